"""What policies learn: PPO at the frames of SLM-Lab's published benchmark, job shops, and two
baselines for credit between heads.

    python bench/policies.py [NAME …]

SLM-Lab's PPO averages are from its benchmark page. Returns: interquartile mean over eight seeds of
the mean of the last 100 training episodes. Job shops: the best of 64 schedules drawn from the
trained policy, each verified, by seed.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import FOLDER, write

SEEDS, SHOP_SEEDS = 8, 3
# counterfactual baselines take the plain engine
SHORT = ["--steps", "60k", "--agent.lr", "linear(1e-3, 0, 60k)"]
# command, SLM-Lab's average, bar
RETURNS = {
    "cartpole-ppo": (["cartpole-ppo"], 498.9, 490),
    "acrobot-ppo": (["acrobot-ppo"], -81.3, -85),
    "lunarlander-ppo": (["lunarlander-ppo"], 183.3, 180),
    "lunarlander-ppo-1M": (
        ["lunarlander-ppo", "--steps", "1M", "--agent.lr", "linear(1e-3, 0, 1M)"],
        None,
        230,
    ),
    "pendulum-ppo": (["pendulum-ppo"], -174.9, -200),
    "assign": (["assign"], None, None),
    "assign-short": (["assign", *SHORT], None, None),
    "assign-counterfactual": (["assign", *SHORT, "--agent.baseline", "counterfactual"], None, None),
}
SHOPS = {"jobshop-ft06": 55, "jobshop-la01": 666, "jobshop-ft10": 1000}


def tenfold(*command: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "tenfold", *command], check=True, capture_output=True, text=True
    ).stdout


def train(command: list[str], seeds: int, folder: str) -> tuple[Path, float]:
    start = time.monotonic()
    tenfold(
        "train",
        *command,
        "--seeds",
        str(seeds),
        "--out",
        f"{folder}/run",
        "--eval-every",
        "0",
        "--quiet",
    )
    return Path(folder) / "run", round((time.monotonic() - start) / 60, 2)


def returns(name: str) -> dict[str, Any]:
    command, published, bar = RETURNS[name]
    with tempfile.TemporaryDirectory() as folder:
        run, minutes = train(command, SEEDS, folder)
        found = json.loads((run / "summary.json").read_text())
    quoted = " ".join(f'"{part}"' if " " in part else part for part in command)
    return {
        "name": name,
        "command": f"tenfold train {quoted} --seeds {SEEDS}",
        **found["return"],
        "slm_ppo": published,
        "bar": bar,
        "steps": min(member["step"] for member in found["seeds"].values()),
        "minutes": minutes,
        "returns": [member["return"] for member in found["seeds"].values()],
    }


def makespans(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run, minutes = train([name], SHOP_SEEDS, folder)
        members = [str(run / f"seed-{seed}") for seed in range(SHOP_SEEDS)]
        found = [
            json.loads(tenfold("eval", member, "--episodes", "1", "--json")) for member in members
        ]
    each = {
        key: [one[key] for one in found]
        for key in ("best_makespan", "greedy_makespan", "untrained_best_makespan")
    }
    return {
        "name": name,
        "command": f"tenfold train {name} --seeds {SHOP_SEEDS}",
        **each,
        "optimum": found[0]["optimum"],
        "rules": found[0]["rules"],
        "bar": SHOPS[name],
        "minutes": minutes,
    }


def main() -> None:
    file = FOLDER / "results" / "policies.json"
    rows = {
        row["name"]: row for row in (json.loads(file.read_text())["rows"] if file.exists() else [])
    }
    for name in sys.argv[1:] or [*RETURNS, *SHOPS]:
        rows[name] = makespans(name) if name in SHOPS else returns(name)
        write("policies", [rows[n] for n in (*RETURNS, *SHOPS) if n in rows])


if __name__ == "__main__":
    main()
