"""Descriptions of servers, and what the model and the simulator say of them."""

import json
import math
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import tomllib

import pytest

import bywash
import bywash.plan

MIB = 1 << 20
LONG = 100_000_000
"""Requests of a simulation that nobody waits for."""


def test_the_guide_s_server(server):
    now, then = (bywash.plan.evaluate(server, name) for name in ("conventional", "active"))
    assert now.bound.throughput / MIB == pytest.approx(165.4, abs=0.05)
    assert then.bound.throughput / MIB == pytest.approx(268.0, abs=0.05)
    assert (now.bound.binding, then.bound.binding) == ("processors", "disks")
    assert now.bound.utilisation["processors"] == then.bound.utilisation["disks"] == 1.0
    assert tuple(now.bound.utilisation) == bywash.plan.RESOURCES
    # Many threads come near the bound and wait.
    assert 0.97 * then.bound.throughput < then.closed.throughput <= then.bound.throughput
    assert now.closed.requests == pytest.approx(now.closed.throughput / 16384)
    assert sum(now.closed.waiting.values()) == pytest.approx(256)


def test_all_architectures(server):
    answers = bywash.plan.evaluate_all(server)
    assert tuple(answers) == bywash.plan.ARCHITECTURES == ("conventional", "user-level", "active", "direct")
    assert all(answer == bywash.plan.evaluate(server, name) for name, answer in answers.items())
    assert bywash.plan.evaluate(server) == answers[server.architecture] == answers["conventional"]
    with pytest.raises(ValueError, match="architecture is 'fast', and must be one of 'conventional', 'user-level'"):
        bywash.plan.evaluate(server, "fast")


def test_forms_of_a_description(server, guide, tmp_path):
    as_dict = tomllib.loads(guide)
    assert bywash.plan.Description(guide) == bywash.plan.Description.from_toml(guide) == server
    assert bywash.plan.Description.from_dict(as_dict) == bywash.plan.Description.from_json(json.dumps(as_dict)) == server
    assert bywash.plan.Description.from_dict(server.to_dict()) == server
    assert server.to_dict()["request"] == {"web": {"file": "16 KiB", "miss": "10 %"}}
    (tmp_path / "server.json").write_text(server.to_json())
    assert bywash.plan.Description.from_file(str(tmp_path / "server.json")) == server
    assert server != guide and server != server.with_("load.threads", 7)
    assert '"16 KiB"' in repr(server)
    with pytest.raises(TypeError, match="unhashable"):
        hash(server)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"2 GiB/s"', '"2 GHz"', ["line 5", "'2 GHz' is not a rate"]),
        ("miss =", "mis =", ["line 11", "mis, available keys: file, miss"]),
        ('"10 %"', '"110 %"', ["request.web.miss is 110", "at most 100 %"]),
        ("count = 1,", "count = 0,", ["machine.processors.count is 0, and must be more than 0"]),
        ("interconnect", "interconect", ["line 5", "unknown field `interconect`"]),
    ],
)
def test_what_is_wrong_is_named_with_its_line(guide, tmp_path, old, new, says):
    text = guide.replace(old, new, 1)
    (tmp_path / "wrong.toml").write_text(text)
    for read in (lambda: bywash.plan.Description(text), lambda: bywash.plan.Description.from_file(tmp_path / "wrong.toml")):
        with pytest.raises(bywash.plan.DescriptionError) as caught:
            read()
        assert all(words in str(caught.value) for words in says), caught.value
    assert "wrong.toml: " in str(caught.value)
    assert isinstance(caught.value, (bywash.Error, ValueError))


def test_json_has_lines_too(server):
    text = server.to_json().replace('"16 KiB"', '"16 GHz"')
    line = next(number for number, words in enumerate(text.splitlines(), 1) if "16 GHz" in words)
    with pytest.raises(bywash.DescriptionError, match=f"'16 GHz' is not a size.* line {line}"):
        bywash.plan.Description.from_json(text)


def test_presets():
    assert {"carrera-table-2", "carrera-table-4", "schaelicke-streams"} <= set(bywash.plan.PRESETS)
    assert all(bywash.plan.PRESETS.values())
    for name in bywash.plan.PRESETS:
        preset = bywash.plan.Description.preset(name)
        assert pickle.loads(pickle.dumps(preset)) == preset
    assert bywash.plan.Description.preset("carrera-table-4")["machine.processors.count"] == 16
    with pytest.raises(ValueError, match="there is no preset 'mine'; there are today-25g"):
        bywash.plan.Description.preset("mine")


def test_files_that_are_not_there_or_no_text(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.toml"):
        bywash.plan.Description.from_file(tmp_path / "nowhere.toml")
    (tmp_path / "noise.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        bywash.plan.Description.from_file(tmp_path / "noise.toml")


def test_numbers_that_are_set(server, guide):
    warmer = server.with_("request.web.miss", "2 %").with_("machine.disks.count", 8)
    assert (warmer["request.web.miss"], warmer["machine.disks.count"]) == (0.02, 8.0)
    assert (server["request.web.miss"], server["machine.disks.count"]) == (0.1, 4.0)
    assert server.with_("machine.processors.speed", "3 GHz")["machine.processors.speed"] == 3e9
    # Every number that is there has a name, and the other way round.
    assert set(server.keys()) < set(bywash.plan.KEYS)
    assert all(math.isfinite(server[key]) for key in server.keys())
    for key in set(bywash.plan.KEYS) - set(server.keys()):
        with pytest.raises(KeyError, match=key):
            server[key]
    for key, value, says in [
        ("request.web.mis", "2 %", "there is no 'request.web.mis'; there are machine.processors.count"),
        ("request.web.miss", "2 GHz", "'2 GHz' is not a share"),
        ("request.web.miss", 0.02, "'0.02' is not a share"),
        ("request.web.miss", "102 %", "at most 100 %"),
        ("request.streams.writes", "2 %", "there is no 'request.streams.writes'"),
        ("machine.disks.count", 0, "must be more than 0"),
        ("machine.disks.count", -1, "'-1' is not a number of them"),
    ]:
        with pytest.raises(bywash.DescriptionError, match=says):
            server.with_(key, value)
    with pytest.raises(TypeError, match="machine.disks.count is text with its unit, not NoneType"):
        server.with_("machine.disks.count", None)
    for number in (-1.0, math.nan, math.inf):
        with pytest.raises(bywash.DescriptionError, match="must be a number from 0 on"):
            bywash.plan.Description(guide, "toml", {"costs.tcp": number})


def test_a_description_is_pickled_to_the_last_bit(server):
    # Written anew as text, this share would be read as another number.
    odd = server.with_("request.web.miss", "0.07 %")
    for description in (server, odd, bywash.plan.Description.from_json(odd.to_json()), odd.with_("load.threads", 3)):
        again = pickle.loads(pickle.dumps(description))
        assert again == description
        assert [again[key] for key in again.keys()] == [description[key] for key in description.keys()]
        assert bywash.plan.evaluate(again) == bywash.plan.evaluate(description)


def test_the_paper_s_figures():
    assert bywash.plan.FIGURES == tuple(range(2, 8))
    for number in bywash.plan.FIGURES:
        figure = bywash.plan.figure(number)
        assert figure.number == number and figure.curves and figure.marks
        for curve in figure.curves:
            assert len(curve.x) == len(curve.y) >= 10
            assert list(curve.x) == sorted(curve.x) and min(curve.y) > 0
    miss = {curve.name: curve for curve in bywash.plan.figure(2).curves}
    at_ten = {name: curve.y[curve.x.index(10.0)] for name, curve in miss.items()}
    assert at_ten["conventional, d = 4"] == pytest.approx(165.4, abs=0.05)
    assert at_ten["active, d = 4"] == pytest.approx(268.0, abs=0.05)
    for number in (1, 99, -1, "2"):
        with pytest.raises(ValueError, match=f"the figure is {number!r}, and must be a number from 2 to 7"):
            bywash.plan.figure(number)


def test_what_the_paper_says():
    lines = bywash.plan.check()
    assert len(lines) == 18
    differ = [line for line in lines if line.verdict == "differs"]
    assert [(line.figure, line.point) for line in differ] == [
        (4, "conventional's limit"),
        (7, "the disks bind at little work"),
    ]
    assert all(line.note for line in differ)
    assert {line.verdict for line in lines} == {"agrees", "differs", "reference"}
    assert lines[3].computed == "conventional 165.4, active 268.0 MiB/s"


def test_a_simulation_comes_near_the_model(server):
    """Where one thing binds, it does so in both; the rest of the way is the business of the simulator's own tests."""
    for name, answer in bywash.plan.evaluate_all(server).items():
        # Fewer do not fill the queues of the disks, which hardly bind here, with most of the 256 threads.
        report = bywash.plan.simulate(server, name, seed=3, requests=200_000)
        assert report.architecture == name and report.seed == 3
        assert report.is_whole and report.requests == 200_000
        assert report.throughput.mean == pytest.approx(answer.closed.throughput, rel=0.1)
        assert report.rate.mean == pytest.approx(report.throughput.mean / 16384, rel=1e-6)
        assert 0 < report.throughput.half_width < 0.1 * report.throughput.mean
        assert report.latency.p50 <= report.latency.p90 <= report.latency.p99 <= report.latency.p999 <= report.latency.max
        assert report.binding == answer.bound.binding
        uses = {use.name: use for use in report.resources}
        assert uses[report.binding].working == max(use.working for use in report.resources)
        assert uses["disks"].units == 4


def test_what_the_papers_simulated():
    bars = {bar.name: bar for bar in bywash.plan.bars(8)}
    assert len(bars) == 9
    joints = [name.split(", ")[0] for name in bars]
    assert list(dict.fromkeys(joints)) == ["PCI", "RapidIO", "InfiniBand"]
    slow, fast = (bars[f"RapidIO, {name}"].throughput.mean for name in ("conventional", "active, 1.5 GHz"))
    # The paper has 2.12; memory binds the conventional server here.
    assert 2.12 < fast / slow < 4
    assert all(0 <= bar.processors <= 1 and bar.binding for bar in bars.values())
    with pytest.raises(ValueError, match="the figure is 7, and must be 8 or 9"):
        bywash.plan.bars(7)
    targets = bywash.plan.targets()
    assert {"Fig. 8", "Fig. 9", "Section 5", "23 streams"} == {target.source for target in targets}
    by_name = {target.what: target for target in targets}
    best = by_name["Web, on a switch: active 1.5 GHz / conventional"]
    assert best.simulated == pytest.approx(fast / slow, rel=0.05) and best.verdict == "differs"
    differ = [target.what for target in targets if target.verdict == "differs"]
    assert "Video, on PCI: active / conventional" in differ and len(differ) == 7
    assert all(bool(target.note) == (target.verdict == "differs") for target in targets)
    assert bars["RapidIO, conventional"].says_binding == "processors"
    assert bars["RapidIO, conventional"].verdict == "differs"


def test_a_seed_is_a_run(server):
    one, again = (bywash.plan.simulate(server, seed=7, requests=500) for _ in range(2))
    assert one == again and one.requests == 500
    assert bywash.plan.simulate(server, seed=8, requests=500) != one
    assert pickle.loads(pickle.dumps(one)) == one
    timed = bywash.plan.simulate(server, seconds=0.5)
    assert timed.seconds == pytest.approx(0.5) and timed.requests > 500


def test_processors_compute_stall_spin_or_are_idle(server):
    closed = server.with_("load.threads", 64)
    for architecture in bywash.plan.ARCHITECTURES:
        report = bywash.plan.simulate(closed, architecture, requests=5000)
        shares = report.processors
        assert all(0 <= share <= 1 for share in shares) and sum(shares) == pytest.approx(1)
        use = next(use for use in report.resources if use.name == "processors")
        # Requests that are under way at the ends of the measurement are in one figure and not in the other.
        assert shares.computing == pytest.approx(use.working, abs=0.001) and shares.spinning < 0.001
        assert 1 - shares.idle == pytest.approx(use.utilisation, abs=0.001)


def test_what_cannot_be_simulated(server):
    for options, says in [
        ({"requests": 0}, "no requests or no time"),
        ({"seconds": 0.0}, "no requests or no time"),
        ({"seconds": math.nan}, "no requests or no time"),
        ({"requests": 1, "seconds": 1.0}, "by requests or by seconds, not by both"),
        ({"requests": -1}, "requests is -1, and must be a whole number from 0"),
        ({"seed": "x"}, "seed is 'x', and must be a whole number from 0"),
    ]:
        with pytest.raises(ValueError, match=says):
            bywash.plan.simulate(server, **options)
    with pytest.raises(bywash.DescriptionError, match="threads are too many to simulate"):
        bywash.plan.simulate(server.with_("load.threads", 5e6))


def test_other_threads_run_while_one_simulates(server):
    stop, turns = threading.Event(), 0

    def count():
        nonlocal turns
        while not stop.wait(0.005):
            turns += 1

    counter = threading.Thread(target=count)
    counter.start()
    shares = []
    begin = time.monotonic()
    bywash.plan.simulate(server, requests=400_000, progress=shares.append)
    took = time.monotonic() - begin
    stop.set()
    counter.join()
    # With the interpreter's lock held all the time there would be none, or one.
    assert turns > 5, f"{turns} turns in {took} s"
    assert shares == sorted(shares) and all(0 < share <= 1 for share in shares)
    assert len(shares) >= 1


def test_ctrl_c_leaves_what_there_is(server):
    begin = time.monotonic()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        bywash.plan.simulate(server, "active", requests=LONG)
    timer.join()
    assert 0.4 < time.monotonic() - begin < 10
    assert isinstance(caught.value, bywash.plan.Stopped) and isinstance(caught.value.__cause__, KeyboardInterrupt)
    report = caught.value.partial
    assert not report.is_whole and 1000 < report.requests < LONG
    assert report.throughput.mean == pytest.approx(268 * MIB, rel=0.1)


def test_what_progress_raises_ends_it(server):
    def refuse(share):
        raise RuntimeError(f"enough at {share}")

    with pytest.raises(RuntimeError, match="enough at [0-9]"):
        bywash.plan.simulate(server, requests=LONG, progress=refuse)


def test_the_readme(capsys):
    text = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
    [block] = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "bywash.plan" in block]
    names = {}
    exec(block, names)
    assert "binding='disks'" in capsys.readouterr().out
    assert len(names["table"]) == 21 * 3 * 4


def test_nothing_heavy_is_imported():
    program = "import bywash.plan, sys; print(sorted({'numpy', 'pandas', 'dask', 'distributed'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
