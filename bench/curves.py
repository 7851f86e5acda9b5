"""Whole curves: the preset `cartpole` trained by the plain and the fused engine on the same eight seeds.

Runs of two engines drift apart like two plain runs that differ in the last bit, so single runs cannot be compared; seeds can: the
paired difference of the evaluations (greedy, mean over the last half of training), with its bootstrap interval.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tenfold.measure import write
from tenfold.record.metrics import read_rows
from tenfold.record.seeds import bootstrap_interval, interquartile_mean

SEEDS = 8


def evaluations(engine: str, folder: str) -> np.ndarray:
    """Mean greedy return over the evaluations of the last half, by seed."""
    out = f"{folder}/{engine}"
    subprocess.run([sys.executable, "-m", "tenfold.cli", "train", "cartpole", "--engine", engine, "--seeds", str(SEEDS),
                    "--eval-every", "5k", "--checkpoint-every", "0", "--out", out, "--quiet"], check=True, capture_output=True)
    found = []
    for seed in range(SEEDS):
        rows = [r for r in read_rows(Path(out) / f"seed-{seed}" / "metrics.jsonl") if r["kind"] == "eval" and r["step"] > 25_000]
        found.append(np.mean([r["mean_return"] for r in rows]))
    return np.array(found)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, fused = evaluations("plain", folder), evaluations("fused", folder)
    difference = (fused - plain) / plain.mean()
    low, high = bootstrap_interval(difference)
    setting = {"preset": "cartpole", "seeds": SEEDS, "measure": "mean of the evaluations after step 25,000"}
    row = {"name": "curves", "setting": setting, "plain": plain.round(1).tolist(), "fused": fused.round(1).tolist(),
           "plain_iqm": float(interquartile_mean(plain)), "fused_iqm": float(interquartile_mean(fused)),
           "paired_difference": float(interquartile_mean(difference)), "mean_difference": float(difference.mean()),
           "interval": [float(low), float(high)], "holds": bool(low <= 0 <= high and max(abs(low), abs(high)) <= 0.05)}
    write("curves", [row])
    print(json.dumps(row))


if __name__ == "__main__":
    main()
