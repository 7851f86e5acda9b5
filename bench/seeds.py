"""Eight seeds in one command on all cores, against one seed, and against eight separate commands
two at a time."""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from measure import timed_row

COMMAND = [
    sys.executable,
    "-m",
    "tenfold",
    "train",
    "dqn",
    "--env",
    "CartPole-v1",
    "--steps",
    "100k",
    "--eval-every",
    "0",
    "--checkpoint-every",
    "0",
    "--agent.batch-size",
    "32",
    "--quiet",
]
SEEDS, TURNS = 8, 3


def seconds(folder: str, *flags: str) -> float:
    start = time.perf_counter()
    subprocess.run([*COMMAND, *flags, "--out", folder], check=True, capture_output=True)
    return time.perf_counter() - start


def separately(folder: str) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda seed: seconds(f"{folder}/{seed}", "--seed", str(seed)), range(SEEDS)))
    return time.perf_counter() - start


def compare() -> list[dict[str, Any]]:
    times: dict[str, list[float]] = {"one seed": [], "eight seeds": [], "eight commands": []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            times["one seed"].append(seconds(f"{folder}/one-{turn}"))
            times["eight seeds"].append(seconds(f"{folder}/eight-{turn}", "--seeds", str(SEEDS)))
            times["eight commands"].append(separately(f"{folder}/separate-{turn}"))
    median = {name: sorted(found)[TURNS // 2] for name, found in times.items()}
    setting = {
        "seeds": SEEDS,
        "steps": 100_000,
        "env": "CartPole-v1",
        "work": "one update a step, batch 32, 64-64",
    }
    return [
        timed_row(
            "eight-seeds",
            setting,
            (name, median[name] * 1e6),
            ("--seeds 8", median["eight seeds"] * 1e6),
        )
        for name in ("one seed", "eight commands")
    ]


NAMES = {"eight-seeds": compare}
