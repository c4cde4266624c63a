"""Loads that arrive on their own, sizes for a response time, and recorded calls."""

import math
import pickle
import signal
import threading
import time

import pytest

import bywash
import bywash.plan

COMPUTING = """
[machine]
processors = { count = 1, speed = "1 GHz" }
interconnect = { rate = "2 GiB/s" }
interfaces = { count = 1, rate = "1 Gbit/s" }
disks = { count = 1, rate = "100 MB/s" }

[request.dynamic]
page = "1 B"
compute = "1000000 cycles"
data = "0 B"

[costs]
server = "0 cycles/B"
tcp = "1 cycles/B"
file-system = "0 cycles/B"
system = "0 cycles/B"
"""
"""A server on which each request computes for 1 ms on one processor, and whose devices have none."""

STRACE = """\
1700000000.000000 openat(AT_FDCWD, "/data/a", O_RDONLY) = 3
1700000000.000200 read(3, "\\177ELF"..., 4096) = 4096
1700000000.000500 read(3, ""..., 4096) = 1024
1700000000.000600 close(3) = 0
1700000000.100000 openat(AT_FDCWD, "/none", O_RDONLY) = -1 ENOENT (No such file or directory)
"""


@pytest.fixture
def computing():
    return bywash.plan.Description(COMPUTING)


def test_the_model_has_the_mean_of_arrivals(computing):
    open_load = computing.with_("load.arrivals", "700 /s")
    told = bywash.plan.evaluate(open_load).performance
    # M/M/1 at 70 %.
    assert told.response == pytest.approx(1e-3 / 0.3, rel=0.01)
    assert (told.requests, told.capacity) == (pytest.approx(700), pytest.approx(1000, rel=0.01))
    burst = bywash.plan.evaluate(open_load.with_("load.burst", 4)).performance
    assert burst.response == pytest.approx(4e-3 / 0.3, rel=0.01)
    over = bywash.plan.evaluate(computing.with_("load.arrivals", "1200 /s")).performance
    assert math.isinf(over.response) and over.requests == pytest.approx(1000, rel=0.01)
    closed = bywash.plan.evaluate(computing)
    assert closed.performance.response == closed.closed.response


def test_the_simulator_has_percentiles_with_bounds(computing):
    report = bywash.plan.simulate(computing.with_("load.arrivals", "700 /s"), requests=50_000)
    # M/D/1 at 70 %.
    assert report.latency.mean.mean == pytest.approx(2.167e-3, rel=0.05)
    assert (report.load, report.offered) == ("steady", 700)
    assert report.capacity.mean == pytest.approx(1000, rel=0.01)
    for name in ("p50", "p90", "p99", "p999"):
        low, high = getattr(report.latency, f"{name}_bounds")
        assert low < getattr(report.latency, name) < high
    over = bywash.plan.simulate(computing.with_("load.arrivals", "1200 /s"), requests=2000)
    assert over.load == "overloaded" and math.isinf(over.latency.p50) and math.isinf(over.latency.mean.mean)
    closed = bywash.plan.simulate(computing, requests=2000)
    assert (closed.load, closed.offered, closed.capacity) == ("steady", None, None)


def test_a_sweep_over_the_load_has_response_times(computing):
    axes = {"load.arrivals": "200 /s:1000 /s:400 /s"}
    table = bywash.plan.sweep(computing, axes)
    assert list(table["architecture"].unique()) == ["conventional", "user-level"]
    times = list(table["response"][::2])
    assert times[0] < times[1] and math.isinf(times[2])
    table = bywash.plan.sweep(computing, axes, architectures="conventional", simulate=True, requests=5000)
    assert list(table["load"]) == ["steady", "steady", "overloaded"]
    assert (table["latency_p99_low"][:2] < table["latency_p99"][:2]).all()
    assert table["latency_p99"].is_monotonic_increasing and math.isinf(table["latency_p99"][2])
    both = bywash.plan.sweep(computing, {"load.burst": [1, 4], "load.arrivals": ["100 /s", "200 /s"]}, response=True)
    assert list(both["response"][::4]) == sorted(both["response"][::4])
    with pytest.raises(bywash.DescriptionError, match="load.burst is 4, and must be 1 unless load.arrivals"):
        bywash.plan.sweep(computing, {"load.burst": [1, 4]})


def test_a_machine_without_device_processors(computing, server):
    assert computing.architectures == ("conventional", "user-level") and server.architectures == bywash.plan.ARCHITECTURES
    assert list(bywash.plan.evaluate_all(computing)) == ["conventional", "user-level"]
    for ask in (bywash.plan.evaluate, bywash.plan.simulate):
        with pytest.raises(bywash.DescriptionError, match="the interfaces have no processor, on which active"):
            ask(computing, "active")
    with pytest.raises(bywash.DescriptionError, match="have no processor"):
        bywash.plan.sweep(computing, {}, architectures="direct")


def test_costs_that_are_left_out(computing, server):
    paper = {"costs.server": 0.15, "costs.tcp": 3.8, "costs.file-system": 1.5, "costs.system": 4.55}
    assert server.implied_costs == paper and computing.implied_costs == {}
    assert list(server.with_("costs.tcp", "1 cycles/B").implied_costs) == ["costs.server", "costs.file-system", "costs.system"]


def test_the_most_load_and_the_fewest_processors(computing):
    found = bywash.plan.size(computing, most="load", p99=6e-3, requests=5000, replications=4)
    # M/D/1 has 99 % within 6 service times at a load of 0.63.
    assert 570 < found.answer.value < 630 < found.above.value + 1 < 690 and found.key == "load.arrivals"
    assert found.answer.bounds[1] <= 6e-3 < found.above.bounds[0]
    assert (found.answer.verdict, found.answer.binding, found.limit) == ("within", "processors", 6e-3)
    assert [one.value for one in found.trials] == sorted(one.value for one in found.trials)
    assert found == bywash.plan.size(computing, most="load", p99=6e-3, requests=5000, replications=4)
    busy = computing.with_("load.arrivals", "3500 /s")
    found = bywash.plan.size(busy, fewest="processors", p999=1.0, requests=2000, replications=2)
    assert (found.answer.value, found.beyond.value, found.beyond.load) == (4, 3, "overloaded")


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"p99": 1.0}, ValueError, "give either most or fewest"),
        ({"most": "load", "fewest": "disks", "p99": 1.0}, ValueError, "give either most or fewest"),
        ({"most": "load"}, ValueError, "give one of mean, p50"),
        ({"most": "load", "p50": 1.0, "p99": 1.0}, ValueError, "give one of mean, p50"),
        ({"most": "disks", "p99": 1.0}, ValueError, "most is 'disks', and must be"),
        ({"most": "load", "p99": 0.0}, ValueError, "the limit is 0 s, and must be more than 0"),
        ({"most": "load", "p99": 1.0, "replications": 1}, ValueError, "a trial has 1 runs, and must have from 2"),
        ({"most": "load", "p99": 1e-4, "requests": 1000}, bywash.DescriptionError, "not within p99 of 0.0001 s"),
    ],
)
def test_what_cannot_be_sized(computing, options, error, says):
    with pytest.raises(error, match=says):
        bywash.plan.size(computing, **options)


def test_a_search_is_interrupted(computing):
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            bywash.plan.size(computing, most="load", p999=6e-3, requests=5_000_000)
    finally:
        timer.cancel()
        timer.join()
    assert time.monotonic() - begun < 20


def test_recorded_calls_are_read_and_replayed(tmp_path, server):
    (tmp_path / "calls.txt").write_text(STRACE)
    trace = bywash.plan.trace(tmp_path / "calls.txt")
    assert (len(trace), trace.files, trace.processes) == (2, ("/data/a",), 1)
    assert trace.form == "what strace prints" and trace.seconds == pytest.approx(3e-4)
    assert sum(one.lines for one in trace.left_out) >= 1 and trace.left_out[0].first_line > 0
    (tmp_path / "calls.csv").write_text(trace.to_csv())
    again = bywash.plan.trace(str(tmp_path / "calls.csv"))
    assert again.to_csv() == trace.to_csv() and again.left_out == ()
    copy = pickle.loads(pickle.dumps(trace))
    assert copy.left_out == trace.left_out and repr(copy) == "<bywash.plan.Trace: 2 calls of what strace prints>"
    fast = bywash.plan.replay(server, trace, "user-level", pace="fastest")
    slow = bywash.plan.replay(server, trace, "conventional")
    assert fast.requests == slow.requests == 2 and fast.is_whole
    assert fast == bywash.plan.replay(server, again, "user-level", pace="fastest")
    assert slow.seconds > 3e-4
    with pytest.raises(ValueError, match="pace is 'quick', and must be one of 'recorded', 'fastest'"):
        bywash.plan.replay(server, trace, pace="quick")
    with pytest.raises(bywash.DescriptionError):
        bywash.plan.Trace("nothing of the kind\n")
    (tmp_path / "none.txt").write_text("nothing of the kind\n")
    with pytest.raises(bywash.DescriptionError, match=r"none\.txt: "):
        bywash.plan.trace(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError):
        bywash.plan.trace(tmp_path / "missing.txt")
