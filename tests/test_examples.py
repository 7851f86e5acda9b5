"""The examples run, and do what they say."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_own_environment_learns_to_go_right(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / "own_environment.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "actions by cell: [1, 1, 1, 1, 1, 1, 1, 1, 1]" in done.stdout
    assert "in a batch: [1 1 1 1 1 1 1 1 1]" in done.stdout


def test_own_gridworld_is_played_drawn_and_measured(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / "own_gridworld.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "#" * 14 and "########" in lines[4][3:11] and "frames in wood.gif: 41" in lines[9]
    means = {name.strip("' "): float(mean) for name, _, mean in (item.partition(":") for item in lines[10].strip("{}").split(","))}
    assert means["scripted"] > 50 > 5 > means["random"] and (tmp_path / "wood.gif").stat().st_size > 1000


def test_the_readmes_python_is_true(tmp_path: Path) -> None:
    """The README's snippet, with fewer steps."""
    text = (EXAMPLES.parent / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0].replace("20_000", "600").replace("run =", "import numpy as np\nobs = np.zeros(4)\nrun =", 1)
    done = subprocess.run([sys.executable, "-c", code + "\nprint(action, len(score.returns))"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "20" and done.stdout.split()[-2] in "01"
