"""Whole commands on a GPU, as they are typed: from the command to its summary, with the kernels
compiled on disk, and what was learned. And curves: seeds of the resident engine beside seeds of the
fused engine on the CPU, with the same settings.

The first, short run of each command compiles into an empty cache; its time is told apart.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.runs.metrics import read_rows
from tenfold.runs.statistics import bootstrap_interval, interquartile_mean

# flags, those of the first run; seconds of the command and of its training, the least return
COMMANDS = (
    (["cartpole-ppo", "--seeds", "256"], ["--steps", "20_480"], 15.0, None, 490.0),
    (["cartpole-ppo", "--num-envs", "4096"], ["--steps", "524_288"], 8.0, 1.0, 490.0),
    (["cartpole", "--seeds", "256"], ["--steps", "2k"], None, None, 475.0),
)
ON_CPU = 64  # seeds
CURVES = (("cartpole-ppo", "20_480"), ("cartpole", "5k"))  # and how often they are judged


def train(*given: str, out: Path, device: str) -> float:
    """Seconds; kernels are kept beside the run's folder."""
    command = [sys.executable, "-W", "ignore", "-m", "tenfold", "train", *given]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--device", device, "--out", str(out)],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_CACHE_DIR": str(out.parent / "kernels")},
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return time.perf_counter() - start


def seeds_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("seed-*")) or [folder]


def evaluations(folder: Path) -> dict[int, np.ndarray]:
    """Greedy returns of all seeds by step."""
    found: dict[int, list[float]] = {}
    for run in seeds_in(folder):
        for row in read_rows(run / "metrics.jsonl"):
            if row["kind"] == "eval":
                found.setdefault(row["step"], []).append(row["mean_return"])
    return {step: np.array(values) for step, values in sorted(found.items())}


def training_seconds(folder: Path) -> float:
    """Of a run's rounds: evaluations and files left out."""
    *_, last = (row for row in read_rows(folder / "metrics.jsonl") if row["kind"] == "train")
    timing = last["timing"]
    besides = sum(timing["shares"].get(stage, 0.0) for stage in ("evaluate", "save"))
    return timing["seconds"] * (1 - besides)


def commands() -> list[dict[str, Any]]:
    rows = []
    for flags, short, bar, training_bar, least in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            first = train(*flags, *short, out=Path(folder) / "first", device="cuda")
            out = Path(folder) / "run"
            seconds = train(*flags, out=out, device="cuda")
            last = list(evaluations(out).values())[-1]
            rows.append(
                {
                    "name": "cuda-commands",
                    "setting": {"command": f"tenfold train {' '.join(flags)} --device cuda"},
                    "seconds": round(seconds, 2),
                    "bar": bar,
                    "training_seconds": round(training_seconds(seeds_in(out)[0]), 3),
                    "training_bar": training_bar,
                    "first_seconds": round(first, 2),
                    "return": float(interquartile_mean(last)),
                    "least": least,
                }
            )
    return rows


def told(values: np.ndarray) -> list[float]:
    """The interquartile mean and its interval."""
    return [float(interquartile_mean(values)), *map(float, bootstrap_interval(values))]


def curves() -> list[dict[str, Any]]:
    rows = []
    for preset, every in CURVES:
        with tempfile.TemporaryDirectory() as folder:
            there, here = Path(folder) / "resident", Path(folder) / "fused"
            train(preset, "--seeds", "256", "--eval-every", every, out=there, device="cuda")
            same = str(seeds_in(there)[0] / "config.yaml")
            jobs = ["--jobs", str(os.cpu_count()), "--engine", "fused"]
            train(same, "--seeds", f"1000..{999 + ON_CPU}", *jobs, out=here, device="cpu")
            resident, fused = evaluations(there), evaluations(here)
        for step in resident:
            ours, theirs = told(resident[step]), told(fused[step])
            rows.append(
                {
                    "name": "cuda-curves",
                    "setting": {"preset": preset, "step": step},
                    "resident": ours,
                    "fused": theirs,
                    "overlap": max(ours[1], theirs[1]) <= min(ours[2], theirs[2]),
                }
            )
    return rows


NAMES = {}  # without a GPU
CUDA = {"cuda-commands": commands, "cuda-curves": curves}
