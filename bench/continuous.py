"""Continuous control: what presets reach, greedy, at their last evaluation.

    python bench/continuous.py [PRESET …]
    python bench/continuous.py --note PRESET WHERE FOLDER …    runs that were made elsewhere
    python bench/continuous.py --picture                       curves of those that have them

Settings began from RL-Zoo's and were chosen on seeds from 100 on; the seeds here count from 0, the
lander's from 8: earlier settings of it had been seen on 0 to 7, and its two updates a step followed
from that. MuJoCo's tasks but HalfCheetah by SAC have published settings as they are; the Zoo's
scores are of one run each and of the tasks' third version.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import FOLDER, write

from tenfold.runs.metrics import read_rows

# preset -> seeds, bar, others' results at as many steps where not said otherwise
CASES: dict[str, tuple[str, float, str]] = {
    "pendulum-sac": ("8", -165, "RL-Zoo -157 ± 89"),
    "lunarlander-continuous-sac": ("8..11", 260, "RL-Zoo 260 at 500k"),
    "bipedal-sac": ("4", 290, "RL-Zoo 297.7"),
    "halfcheetah-sac": ("3", 9_500, "CleanRL 9,635, RL-Zoo 9,535 at 1M"),
    "halfcheetah-sac --num-envs 16 --precision tf32": ("3", 9_500, "RL-Zoo 9,535"),
    "hopper-sac": ("3", 2_326, "RL-Zoo 2,326"),
    "hopper-sac --num-envs 16 --precision tf32": ("3", 2_326, "RL-Zoo 2,326"),
    "walker2d-sac": ("3", 3_863, "RL-Zoo 3,863"),
    "walker2d-sac --num-envs 16 --precision tf32": ("3", 3_863, "RL-Zoo 3,863"),
    "ant-sac": ("3", 4_616, "RL-Zoo 4,616"),
    "ant-sac --num-envs 16 --precision tf32": ("3", 4_616, "RL-Zoo 4,616"),
    "humanoid-sac": ("3", 6_232, "RL-Zoo 6,232"),
    "halfcheetah-ppo": ("3", 5_819, "RL-Zoo 5,819"),
    "hopper-ppo": ("3", 2_410, "RL-Zoo 2,410"),
    "walker2d-ppo": ("3", 3_479, "RL-Zoo 3,479"),
    "ant-ppo": ("3", 1_327, "RL-Zoo 1,327"),
}
NAME = "continuous"
POINTS = 25  # of a curve
PICTURE = FOLDER.parent / "docs" / "pictures" / "locomotion.svg"


def last_evaluation(folder: Path) -> tuple[int, float]:
    """Its step, and the mean return."""
    *_, last = (row for row in read_rows(folder / "metrics.jsonl") if row["kind"] == "eval")
    return last["step"], last["mean_return"]


def curve_of(folder: Path) -> list[tuple[int, float]]:
    """Mean returns of training's episodes by equal stretches of steps."""
    rows = [row for row in read_rows(folder / "metrics.jsonl") if row["kind"] == "episode"]
    bounds = np.linspace(0, rows[-1]["step"] + 1, POINTS + 1)
    steps = np.array([row["step"] for row in rows])
    returns = np.array([row["return"] for row in rows])
    stretches = np.searchsorted(bounds, steps, side="right")
    return [
        (round(bounds[k]), round(float(returns[stretches == k].mean()), 1))
        for k in range(1, POINTS + 1)
        if (stretches == k).any()
    ]


def draw(rows: list[dict[str, Any]]) -> None:
    """A panel a preset, a line a seed, and what others reached."""
    from matplotlib import pyplot

    panels = 3
    lines = -(-len(rows) // panels)
    figure, axes = pyplot.subplots(lines, panels, figsize=(9, 2.4 * lines), squeeze=False)
    for ax in axes.flat[len(rows) :]:
        ax.axis("off")
    for ax, row in zip(axes.flat, rows, strict=False):
        for curve in row["curves"]:
            ax.plot(*zip(*curve, strict=True), linewidth=1)
        ax.axhline(row["bar"], color="grey", linestyle=":", linewidth=1)
        ax.set_title(row["name"].replace(" --num-envs 16 --precision tf32", ", 16 environments"))
        ax.title.set_fontsize(8)
        ax.tick_params(labelsize=7)
        ax.xaxis.set_major_formatter(lambda step, _: f"{step / 1e6:g}M")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def row_of(preset: str, where: str, folders: list[Path], minutes: float | None) -> dict[str, Any]:
    _, bar, others = CASES[preset]
    found = [last_evaluation(folder) for folder in folders]
    returns = [round(value, 1) for _, value in found]
    return {
        "name": preset,
        "where": where,
        "steps": min(step for step, _ in found),
        "returns": returns,
        "mean": round(statistics.fmean(returns), 1),
        "bar": bar,
        "others": others,
        "minutes": minutes,
        "curves": [curve_of(folder) for folder in folders],
    }


def measure(preset: str) -> dict[str, Any]:
    seeds = CASES[preset][0]
    with tempfile.TemporaryDirectory() as folder:
        start, out = time.monotonic(), Path(folder) / "run"
        command = [sys.executable, "-m", "tenfold", "train", *preset.split(), "--seeds", seeds]
        subprocess.run([*command, "--out", str(out), "--quiet"], check=True)
        minutes = round((time.monotonic() - start) / 60, 1)
        return row_of(preset, "two CPU cores", sorted(out.glob("seed-*")), minutes)


def main() -> None:
    file = FOLDER / "results" / f"{NAME}.json"
    known = json.loads(file.read_text())["rows"] if file.exists() else []
    rows = {row["name"]: row for row in known}
    if sys.argv[1:2] == ["--picture"]:
        draw([row for row in known if "curves" in row])
        return
    if sys.argv[1:2] == ["--note"]:
        preset, where, *folders = sys.argv[2:]
        rows[preset] = row_of(preset, where, [Path(folder) for folder in folders], None)
        write(NAME, [rows[name] for name in CASES if name in rows])
        return
    for preset in sys.argv[1:] or CASES:
        rows[preset] = measure(preset)
        write(NAME, [rows[name] for name in CASES if name in rows])


if __name__ == "__main__":
    main()
