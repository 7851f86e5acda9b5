"""Runs a notebook's cells of code one after another, as a kernel would, without one.

python tests/notebook.py notebooks/cartpole_in_five_minutes.ipynb
"""

import json
import sys
from pathlib import Path
from typing import Any


def cells(path: Path) -> list[str]:
    """Of code."""
    found = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def main(path: Path) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(path)):
        exec(compile(cell, f"{path.name}, cell {number}", "exec"), space)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
