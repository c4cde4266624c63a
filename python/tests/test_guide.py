"""The programs in Python of README.md, python/README.md and the guides run as they are printed.

Those that use a device server are in test_serve.py, those of python/README.md that plan in test_plan.py.
"""

import pathlib
import subprocess
import sys
import threading
import time

import dask.distributed
import pytest

import bywash
import bywash.plan

ROOT = pathlib.Path(__file__).parents[2]


def programs(page):
    return [part.split("```")[0] for part in (ROOT / page).read_text().split("```python\n")[1:]]


@pytest.mark.parametrize(
    ("page", "output"),
    [
        ("docs/guide/containers.md", "b'hello'\n"),
        ("docs/guide/flow.md", "1048576\n"),
        ("python/README.md", "7.0 0\n"),
    ],
)
def test_program(tmp_path, page, output):
    program = tmp_path / "program.py"
    program.write_text(programs(page)[0])
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_container_of_the_readme(tmp_path):
    [program] = programs("README.md")
    name = str(tmp_path / "viewer")
    received = []
    with bywash.Listener.bind(name) as listener:

        def receive():
            with listener.accept() as path:
                received.extend(len(container) for container in path.receive())

        receiver = threading.Thread(target=receive)
        receiver.start()
        exec(program.replace("/run/viewer", name), {"bywash": bywash})
        receiver.join(timeout=30)
    assert received == [1 << 20]


def test_flow_of_the_python_readme(tmp_path, capsys):
    [program] = [program for program in programs("python/README.md") if "video.raw" in program]
    (tmp_path / "video.raw").write_bytes(bytes(100_000))
    # The peer is a socket of this test, as the program's own would be another host's.
    received = bywash.Flow(f"unix-listen:{tmp_path}/backup", str(tmp_path / "received"), stages=["decompress:"]).start()
    while not (tmp_path / "backup").exists():
        time.sleep(0.01)
    program = program.replace("video.raw", str(tmp_path / "video.raw"))
    program = program.replace("tcp:backup.example:9000", f"unix:{tmp_path}/backup")
    exec(program, {"bywash": bywash, "time": time})
    received.wait()
    assert (tmp_path / "received").read_bytes() == bytes(100_000)
    assert "\n100000 " in capsys.readouterr().out


def test_sweeps_of_the_guide(monkeypatch):
    alone, with_a_cluster = programs("docs/guide/plan.md")
    monkeypatch.chdir(ROOT)
    # Fewer repetitions than the page has, which take a minute.
    fewer = [("replications=5", "replications=1"), ("replications=100", "replications=1")]
    for many, few in fewer:
        alone, with_a_cluster = alone.replace(many, few), with_a_cluster.replace(many, few)
    names = {}
    exec(alone, names)
    assert names["report"].throughput.mean > 0
    assert len(names["table"]) == 5 * 2 * 4
    with dask.distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        exec(with_a_cluster.replace("scheduler:8786", cluster.scheduler_address), names | {"axes": {"load.threads": [4]}})
