"""The examples run, here with little to do."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize(
    ("name", "size", "says"),
    [
        ("pingpong", "200", "200 rounds, "),
        ("stream", "16", "0 bytes copied"),
        ("forwarder", "500", "500 messages, "),
        ("frames", "20", "20 frames of 1920 x 1080"),
        ("backup", "8", "it arrived as it was"),
    ],
)
def test_example(name, size, says):
    words = [sys.executable, str(EXAMPLES / f"{name}.py"), size]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_the_example_that_copies(tmp_path):
    (tmp_path / "from").write_bytes(b"data")
    words = [sys.executable, str(EXAMPLES / "copy.py"), str(tmp_path / "from"), str(tmp_path / "to"), "hash:sha256"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "4 bytes in " in done.stdout and "\nsha256 3a6eb0790f39ac87" in done.stdout
    assert (tmp_path / "to").read_bytes() == b"data"


def test_all_examples_are_run():
    # That of a surface needs a display: test_surfaces.py.
    run = {"pingpong", "stream", "forwarder", "frames", "backup", "copy", "counter"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == run
