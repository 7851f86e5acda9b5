"""Eight seeds as tasks of a Ray cluster of this machine's two cores, against the same eight as
local processes (`--jobs 2`): whole commands in turns, from the first import to the report.

    python bench/ray_seeds.py        or        python bench/all.py ray-seeds --peers
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from measure import timed_row

SEEDS, STEPS, TURNS = 8, 60_000, 5
COMMAND = [sys.executable, "-m", "tenfold", "train", "dqn", "--env", "tenfold/CartPole-v1"]
COMMAND += ["--steps", str(STEPS), "--eval-every", "20k", "--seeds", str(SEEDS), "--quiet"]
PLACES = {"--jobs 2": ("--jobs", "2"), "--where ray": ("--where", "ray")}


def seconds(folder: str, *flags: str) -> float:
    start = time.perf_counter()
    subprocess.run([*COMMAND, *flags, "--out", folder], check=True, capture_output=True)
    return time.perf_counter() - start


def compare() -> list[dict[str, Any]]:
    found: dict[str, list[float]] = {place: [] for place in PLACES}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(TURNS):
            for k, (place, flags) in enumerate(PLACES.items()):
                found[place].append(seconds(f"{folder}/{turn}-{k}", *flags))
    local, ray = (statistics.median(times) for times in found.values())
    setting = {"seeds": SEEDS, "steps": STEPS, "env": "tenfold/CartPole-v1"}
    return [
        timed_row(
            "ray-seeds",
            setting,
            ("--jobs 2", local * 1e6),
            ("--where ray", ray * 1e6),
            seconds={place: [round(t, 2) for t in times] for place, times in found.items()},
        )
    ]


NAMES = {}  # only with --peers
PEERS = {"ray-seeds": compare}

if __name__ == "__main__":
    for row in compare():
        print(json.dumps(row), flush=True)
