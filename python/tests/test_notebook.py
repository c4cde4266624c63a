"""The guide's notebook runs, and is kept without what comes out."""

import pathlib

import nbclient
import nbformat
import pytest

NOTEBOOK = pathlib.Path(__file__).parents[2] / "docs/guide/plan.ipynb"
LIMIT = 300
"""Seconds of a cell on a busy machine."""


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_kept_without_results(notebook):
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None, cell.source


@pytest.mark.simulates
def test_every_cell_runs(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    client = nbclient.NotebookClient(notebook, timeout=LIMIT, resources={"metadata": {"path": str(NOTEBOOK.parent)}})
    client.execute()
    drawn = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not any(output.output_type == "error" for output in cell.outputs)
            drawn[cell.source] = sum("image/png" in output.get("data", {}) for output in cell.outputs)
    for number in range(2, 8):
        assert drawn[f"draw({number})"] == 1
    assert sum(drawn.values()) == 10, drawn
