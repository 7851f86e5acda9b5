"""Whole curves: presets trained by the plain and the fused engine on the same seeds.

Runs of two engines drift apart like two plain runs that differ in the last bit, so single runs
cannot be compared; seeds can: the paired difference of the evaluations (greedy, mean over the last
half of training), with its bootstrap interval.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import FOLDER, write

from tenfold.runs.metrics import read_rows
from tenfold.runs.statistics import bootstrap_interval, interquartile_mean

# seeds (with eight the interval is wider than the difference that matters), flags, the step after
# which evaluations count
WHAT = {"cartpole": (64, [], 25_000), "acrobot": (32, ["--steps", "100k"], 50_000)}


def evaluations(preset: str, engine: str, folder: str) -> np.ndarray:
    """Mean greedy return over the evaluations of the last half, by seed."""
    out = f"{folder}/{preset}-{engine}"
    seeds, flags, after = WHAT[preset]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "tenfold",
            "train",
            preset,
            *flags,
            "--engine",
            engine,
            "--seeds",
            str(seeds),
            "--eval-every",
            "5k",
            "--checkpoint-every",
            "0",
            "--out",
            out,
            "--quiet",
        ],
        check=True,
        capture_output=True,
    )
    found = []
    for seed in range(seeds):
        rows = [
            r
            for r in read_rows(Path(out) / f"seed-{seed}" / "metrics.jsonl")
            if r["kind"] == "eval" and r["step"] > after
        ]
        found.append(np.mean([r["mean_return"] for r in rows]))
    return np.array(found)


def compare(preset: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        plain, fused = (evaluations(preset, engine, folder) for engine in ("plain", "fused"))
    difference = (fused - plain) / abs(plain.mean())
    low, high = bootstrap_interval(difference)
    seeds, flags, after = WHAT[preset]
    setting = {
        "preset": " ".join([preset, *flags]),
        "seeds": seeds,
        "measure": f"mean of the evaluations after step {after:,}",
    }
    return {
        "name": "curves",
        "setting": setting,
        "plain": plain.round(1).tolist(),
        "fused": fused.round(1).tolist(),
        "plain_iqm": float(interquartile_mean(plain)),
        "fused_iqm": float(interquartile_mean(fused)),
        "paired_difference": float(interquartile_mean(difference)),
        "mean_difference": float(difference.mean()),
        "interval": [float(low), float(high)],
        "holds": bool(low <= 0 <= high and max(abs(low), abs(high)) <= 0.05),
    }


def main() -> None:
    file = FOLDER / "results" / "curves.json"
    rows = {
        row["setting"]["preset"].split()[0]: row
        for row in (json.loads(file.read_text())["rows"] if file.exists() else [])
    }
    for preset in sys.argv[1:] or WHAT:
        rows[preset] = compare(preset)
        print(json.dumps(rows[preset]))
        write("curves", [rows[p] for p in WHAT if p in rows])


if __name__ == "__main__":
    main()
