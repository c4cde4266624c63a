"""Sweeps in threads of this process."""

import os
import signal
import sys
import threading
import time

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import bywash
import bywash.plan
from bywash.plan import table, workers

LONG = 100_000_000


AXES = {"request.web.miss": "0 %:20 %:5 %", "machine.disks.count": [1, 2, 4]}


def same(one, other):
    assert_frame_equal(one, other, check_exact=True)


def test_rows_are_what_one_would_ask_for_alone(server, guide):
    swept = bywash.plan.sweep(server, AXES, details=True)
    assert len(swept) == 5 * 3 * 4
    assert list(swept.columns[:5]) == [*AXES, "architecture", "throughput", "binding"]
    assert isinstance(swept.index, pd.RangeIndex)
    # The architecture varies fastest, the first axis slowest.
    assert list(swept["architecture"][:5]) == [*bywash.plan.ARCHITECTURES, "conventional"]
    assert list(swept["machine.disks.count"][::4][:4]) == [1.0, 2.0, 4.0, 1.0]
    assert swept["request.web.miss"].is_monotonic_increasing
    assert sorted(set(swept["request.web.miss"])) == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    for row in swept.to_dict("records"):
        at = bywash.plan.Description(guide, "toml", {key: row[key] for key in AXES})
        answer = bywash.plan.evaluate(at, row["architecture"])
        assert (row["throughput"], row["binding"]) == (answer.bound.throughput, answer.bound.binding)
        assert {name: row[f"utilisation {name}"] for name in bywash.plan.RESOURCES} == answer.bound.utilisation
        assert row["response"] == answer.performance.response
        assert (row["closed_throughput"], row["closed_response"]) == (answer.closed.throughput, answer.closed.response)


def test_kinds_of_columns(server):
    swept = bywash.plan.sweep(server, AXES, details=True)
    kinds = {name: str(kind) for name, kind in swept.dtypes.items()}
    assert kinds.pop("architecture") == kinds.pop("binding") == "category"
    assert set(kinds.values()) == {"float64"}
    assert tuple(swept["architecture"].cat.categories) == bywash.plan.ARCHITECTURES
    assert tuple(swept["binding"].cat.categories) == bywash.plan.RESOURCES
    found = list(bywash.plan.sweep(server, AXES).columns)
    assert found == [*AXES, "architecture", "throughput", "binding", "response"]
    assert list(bywash.plan.sweep(server, AXES, response=False).columns) == found[:-1]
    # A table of one's own, to be written to.
    swept.loc[0, "throughput"] = 0.0


def test_ways_to_say_values(server):
    def values(given, key="request.web.miss"):
        return list(bywash.plan.sweep(server, {key: given}, architectures="active")[key])

    assert values("10 %") == [0.1]
    assert values(["10 %", "0 %"]) == [0.1, 0.0]
    assert values(f"{miss} %" for miss in range(3)) == [0.0, 0.01, 0.02]
    assert values("1:4:1", "machine.disks.count") == values(range(1, 5), "machine.disks.count") == [1, 2, 3, 4]
    assert values(pd.Series([1, 2.5]), "machine.disks.count") == [1, 2.5]
    only = bywash.plan.sweep(server, {})
    assert len(only) == 4 and list(only.columns) == ["architecture", "throughput", "binding", "response"]


@pytest.mark.parametrize(
    ("axes", "options", "says"),
    [
        ({"request.web.miss": []}, {}, "there is nothing to compute"),
        ({}, {"architectures": []}, "there is nothing to compute"),
        ({}, {"architectures": ["active", "active"]}, "an architecture is there twice"),
        ({}, {"architectures": "fast"}, "architecture is 'fast'"),
        ({}, {"threads": 0}, "threads is 0, and must be at least 1"),
        ({}, {"replications": 2}, "give simulate=True as well"),
        ({}, {"simulate": True, "replications": 0}, "there is nothing to compute"),
        ({}, {"simulate": True, "requests": 0}, "no requests or no time"),
        ({"load.threads": [1, 1e7]}, {"simulate": True}, "threads are too many to simulate"),
        ({"wheels": [1]}, {}, "there is no 'wheels'"),
        ({"request.streams.writes": ["1 %"]}, {}, "there is no 'request.streams.writes'"),
        ({"request.web.miss": ["1 %", "101 %"]}, {}, "at most 100 %"),
        ({"request.web.miss": "0 %:200 %:50 %"}, {}, "at most 100 %"),
        ({"request.web.miss": "1 %:2 %"}, {}, "write KEY=FROM:TO:STEP"),
        ({"machine.disks.count": "1:9000:1", "load.threads": "1:9000:1"}, {}, "at most 50000000 rows"),
    ],
)
def test_what_cannot_be_swept(server, axes, options, says):
    with pytest.raises(ValueError, match=says):
        bywash.plan.sweep(server, axes, **options)


def test_pieces_have_every_row_once():
    for rows, most, many in [(1, 5, 1), (60, 7, 4), (1000, 1000, 2), (17, 1, 64), (64, 10**6, 1)]:
        pieces = workers.cut(rows, most, many)
        assert [row for start, stop in pieces for row in range(start, stop)] == list(range(rows))
        assert max(stop - start for start, stop in pieces) <= most
        assert len(pieces) >= min(rows, 8 * many)


def test_threads_and_pieces_change_nothing(server, monkeypatch):
    alone = bywash.plan.sweep(server, AXES, details=True, threads=1)
    seen = []
    same(bywash.plan.sweep(server, AXES, details=True, threads=4, progress=lambda *at: seen.append(at)), alone)
    assert [at[0] for at in seen] == sorted(at[0] for at in seen)
    assert seen[-1] == (60, 60) and len(seen) > 4
    monkeypatch.setattr(table, "DETAILED_ROWS_MAX", 7)
    same(bywash.plan.sweep(server, AXES, details=True, threads=3), alone)


def test_a_million_points(server):
    begin = time.monotonic()
    axes = {"request.web.miss": "0 %:99.9 %:0.1 %", "machine.disks.count": "1:1000:1"}
    swept = bywash.plan.sweep(server, axes, architectures="active", response=False)
    # A fraction of a second; this is no bench.
    assert len(swept) == 1_000_000 and time.monotonic() - begin < 10
    at = swept.iloc[123_456]
    alone = server.with_("request.web.miss", "12.3 %").with_("machine.disks.count", 457)
    assert at["throughput"] == pytest.approx(bywash.plan.evaluate(alone, "active").bound.throughput, rel=1e-12)


SIMULATED = {"simulate": True, "replications": 2, "seed": 5, "requests": 300}


@pytest.fixture(scope="module")
def small(server):
    """With few threads, for which the warm-up is short."""
    return server.with_("load.threads", 8)


def test_simulated_rows_can_be_simulated_again(small, guide):
    swept = bywash.plan.sweep(small, AXES, **SIMULATED, details=True)
    assert len(swept) == 5 * 3 * 4 * 2
    assert list(swept["replication"][:4]) == [0, 1, 0, 1]
    for row in swept.iloc[[0, 1, 2, 63, 118, 119]].to_dict("records"):
        at = bywash.plan.Description(guide, "toml", {key: row[key] for key in AXES} | {"load.threads": 8.0})
        report = bywash.plan.simulate(at, row["architecture"], seed=row["seed"], requests=300)
        assert row["throughput"] == report.throughput.mean
        assert row["throughput_half_width"] == report.throughput.half_width
        assert (row["latency"], row["latency_p99"]) == (report.latency.mean.mean, report.latency.p99)
        assert (row["binding"], row["events"], row["requests"]) == (report.binding, report.events, 300)
        shares = tuple(row[f"processors_{part}"] for part in ("computing", "stalled", "spinning", "idle"))
        assert shares == report.processors
        for use in report.resources:
            assert (row[f"working {use.name}"], row[f"waiting {use.name}"]) == (use.working, use.waiting)


def test_kinds_of_columns_of_simulations(small):
    swept = bywash.plan.sweep(small, {}, **SIMULATED)
    kinds = {name: str(kind) for name, kind in swept.dtypes.items()}
    assert kinds.pop("architecture") == kinds.pop("binding") == kinds.pop("load") == "category"
    assert kinds.pop("seed") == "uint64"
    assert {kinds.pop(name) for name in ("replication", "requests", "events")} == {"int64"}
    assert set(kinds.values()) == {"float64"} and {"latency_p999", "processor_seconds"} < set(kinds)
    assert not swept.isna().any(axis=None)


def test_seeds_follow_from_the_sweep_s_and_the_point(small):
    swept = bywash.plan.sweep(small, AXES, **SIMULATED)
    # One for each point and replication, the same for all architectures.
    by_trial = swept.groupby([*AXES, "replication"])["seed"]
    assert (by_trial.nunique() == 1).all()
    assert swept["seed"].nunique() == 5 * 3 * 2
    same(bywash.plan.sweep(small, AXES, **SIMULATED, threads=1), swept)
    other = bywash.plan.sweep(small, AXES, **SIMULATED | {"seed": 6})
    assert not set(other["seed"]) & set(swept["seed"])


def test_ctrl_c_leaves_the_rows_that_are_there(small):
    def interrupt(done, rows):
        if done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        bywash.plan.sweep(small, AXES, **SIMULATED, progress=interrupt)
    assert isinstance(caught.value, bywash.plan.Stopped)
    partial = caught.value.partial
    assert len(partial) == 5
    whole = bywash.plan.sweep(small, AXES, **SIMULATED)
    assert_frame_equal(partial, whole.loc[partial.index], check_exact=True)


def test_ctrl_c_ends_simulations_that_go_on(small):
    before = threading.active_count()
    begin = time.monotonic()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(bywash.plan.Stopped, match="0 of 4 rows") as caught:
        bywash.plan.sweep(small, {}, simulate=True, requests=LONG)
    timer.join()
    assert time.monotonic() - begin < 10
    assert len(caught.value.partial) == 0 and "throughput" in caught.value.partial
    assert threading.active_count() == before


@pytest.mark.parametrize(("module", "extra"), [("pandas", "plan"), ("distributed", "dask")])
def test_what_is_missing_is_named(server, monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs {module}.*pip install {module}, or 'bywash\[{extra}\]'") as caught:
        bywash.plan.sweep(server, {}, client=object())
    assert caught.value.name == module
