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
    ],
)
def test_example(name, size, says):
    words = [sys.executable, str(EXAMPLES / f"{name}.py"), size]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_all_examples_are_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"pingpong", "stream", "forwarder", "frames"}


def test_the_readme(tmp_path):
    text = (EXAMPLES.parent / "README.md").read_text()
    program = tmp_path / "readme.py"
    program.write_text(text.split("```python\n")[1].split("```")[0])
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "7.0 0\n"
