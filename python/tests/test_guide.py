"""The programs in Python of the guides run as they are printed."""

import pathlib
import subprocess
import sys

import pytest

GUIDES = pathlib.Path(__file__).parents[2] / "docs/guide"


@pytest.mark.parametrize(("page", "output"), [("containers.md", "b'hello'\n"), ("flow.md", "1048576\n")])
def test_program(tmp_path, page, output):
    programs = [part.split("```")[0] for part in (GUIDES / page).read_text().split("```python\n")[1:]]
    assert len(programs) == 1
    program = tmp_path / "program.py"
    program.write_text(programs[0])
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
