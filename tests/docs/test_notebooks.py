"""The notebooks: whole, without outputs, linked from a page, and every cell runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from notebook import cells

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# what the last of the numbers that are printed look like, however little was learned
SAID = {
    "cartpole_in_five_minutes": r"600 steps in .*\nmean return \d+; .*\none episode: \d+.*"
    r"\nthree steps \d+, one step \d+\n3 steps ahead: .*\n1 steps ahead: .*"
    r"\npolicy\.onnx \d+ bytes\nby ONNX Runtime (\[[01 ]+\]) by the agent \1\n",
    "identify_a_hidden_system": r"five steps ahead: \d\.\d+, against \d\.\d+\n"
    r"of the angle -?\d+\.\d% and of the speed -?\d+\.\d% are in the found states\n",
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_what_jupyter_reads_and_holds_no_outputs(path: Path) -> None:
    book = json.loads(path.read_text())
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]{1,64}", one) for one in ids)
    assert book["cells"][0]["source"][0].startswith("# ")
    for cell in book["cells"]:
        assert cell["cell_type"] in ("markdown", "code") and "".join(cell["source"]).strip()
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            assert len(cell["source"]) <= 25, "a cell is short"
            for line in cell["source"]:
                assert len(line.rstrip()) <= 100 and not line.startswith(("%", "!"))


def test_every_notebook_is_run_and_linked() -> None:
    assert {path.stem for path in NOTEBOOKS} == SAID.keys()
    linked = (ROOT / "docs" / "examples.md").read_text()
    assert all(f"](../notebooks/{path.name})" in linked for path in NOTEBOOKS)


SLOW = {"cartpole_in_five_minutes"}  # processes for seeds, and ONNX


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=pytest.mark.slow if p.stem in SLOW else ()) for p in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_every_cell_runs(path: Path, tmp_path: Path) -> None:
    """In a process of its own, with so little to do that nothing is learned."""
    little = os.environ | {"TENFOLD_SMALL": "1", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "notebook.py", path],
        cwd=tmp_path,
        env=little | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(SAID[path.stem], done.stdout), done.stdout
    assert cells(path)[0].count("SMALL") >= 3
