"""Sweeps on a Dask cluster: several processes, of which one is killed."""

import os
import signal
import time

import pytest
from pandas.testing import assert_frame_equal

import bywash.plan

distributed = pytest.importorskip("distributed")

LIMIT = 60
AXES = {"request.web.miss": ["0 %", "5 %", "10 %"], "machine.disks.count": [1, 4]}
SIMULATED = {"simulate": True, "replications": 2, "seed": 5}


@pytest.fixture(scope="module")
def server():
    """With few threads, for which the warm-up of a simulation is short."""
    return bywash.plan.Description.preset("carrera-table-2").with_("load.threads", 8)


@pytest.fixture(scope="module")
def client():
    """Three processes of one thread each, which are started again when they die."""
    options = {"n_workers": 3, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def same(one, other):
    assert_frame_equal(one, other, check_exact=True)


def until(wanted):
    """What `wanted` answers, as soon as that is something."""
    end = time.monotonic() + LIMIT
    while not (found := wanted()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def test_the_table_is_that_of_one_process(client, server):
    same(bywash.plan.sweep(server, AXES, details=True, client=client), bywash.plan.sweep(server, AXES, details=True))
    options = SIMULATED | {"requests": 1000, "details": True}
    seen = []
    same(
        bywash.plan.sweep(server, AXES, **options, client=client, progress=lambda *at: seen.append(at)),
        bywash.plan.sweep(server, AXES, **options, threads=1),
    )
    assert seen == [(done, 48) for done in range(1, 49)]


def test_a_worker_that_is_killed_at_work(client, server):
    """One process is killed while it simulates; what it had to do is done by others."""
    pids = until(lambda: len(running := client.run(os.getpid)) == 3 and running)
    # Each row takes some tenths of a second, and a worker has one in flight and one waiting.
    options = SIMULATED | {"requests": 60_000, "replications": 1}
    killed = {}

    def kill(done, rows):
        if killed:
            return
        held = {address: keys for address, keys in client.processing().items() if keys and address in pids}
        address, keys = max(held.items(), key=lambda item: len(item[1]))
        killed.update(pid=pids[address], held=list(keys), done=done)
        os.kill(pids[address], signal.SIGKILL)

    swept = bywash.plan.sweep(server, AXES, **options, client=client, progress=kill)
    assert killed["held"] and killed["done"] == 1
    assert killed["pid"] not in client.run(os.getpid).values()
    same(swept, bywash.plan.sweep(server, AXES, **options))


def test_a_worker_that_is_killed_with_results(client, server):
    """What a worker had done, and nobody had fetched yet, is done again."""
    pids = until(lambda: len(running := client.run(os.getpid)) == 3 and running)
    options = SIMULATED | {"requests": 1000}
    killed = {}

    def kill(done, rows):
        if killed:
            return

        # While this waits, nobody fetches anything.
        def with_results():
            has = {address: keys for address, keys in client.has_what().items() if address in pids}
            return next(((address, keys) for address, keys in has.items() if len(keys) >= 5), None)

        address, keys = until(with_results)
        killed.update(pid=pids[address], results=list(keys))
        os.kill(pids[address], signal.SIGKILL)
        until(lambda: address not in client.scheduler_info()["workers"])

    swept = bywash.plan.sweep(server, AXES, **options, client=client, progress=kill)
    assert len(killed["results"]) >= 5
    same(swept, bywash.plan.sweep(server, AXES, **options))


def test_ctrl_c_leaves_the_rows_that_are_there(client, server):
    def interrupt(done, rows):
        if done == 4:
            os.kill(os.getpid(), signal.SIGINT)

    options = SIMULATED | {"requests": 20_000}
    with pytest.raises(bywash.plan.Stopped, match="4 of 48 rows") as caught:
        bywash.plan.sweep(server, AXES, **options, client=client, progress=interrupt)
    partial = caught.value.partial
    assert len(partial) == 4
    whole = bywash.plan.sweep(server, AXES, **options)
    assert_frame_equal(partial, whole.loc[partial.index], check_exact=True)
    until(lambda: not any(client.processing().values()))


def test_what_fails_there_is_raised_here(client, server, monkeypatch):
    monkeypatch.setattr(bywash.plan.table, "simulated", os.open)
    with pytest.raises(TypeError):
        bywash.plan.sweep(server, {}, simulate=True, client=client)


def test_a_client_of_asyncio_is_refused(client, server):
    class Asynchronous:
        asynchronous = True

    with pytest.raises(TypeError, match="without asynchronous=True"):
        bywash.plan.sweep(server, {}, client=Asynchronous())
