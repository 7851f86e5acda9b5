"""Soft actor-critic beside Stable-Baselines3's with equal settings: greedy returns of the final
policies on Pendulum-v1, eight seeds each, two at a time. Whether the same algorithm was written
shows in intervals of the interquartile means that overlap.

    python bench/sac_curves.py
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from measure import write
from rates import HERE, OURS, THEIRS

from tenfold.runs.metrics import read_rows
from tenfold.runs.statistics import bootstrap_interval, interquartile_mean

ENV, STEPS, SEEDS, EPISODES = "Pendulum-v1", 10_000, 8, 20
LR, BATCH, HIDDEN, STARTS, TAU, GAMMA = 1e-3, 64, (64, 64), 1_000, 0.005, 0.99


def ours(seed: int) -> float:
    agent = {
        "lr": LR,
        "batch-size": BATCH,
        "capacity": STEPS,
        "learning-starts": STARTS,
        "tau": TAU,
        "gamma": GAMMA,
        "net.hidden": ",".join(map(str, HIDDEN)),
    }
    flags = [str(part) for name, value in agent.items() for part in (f"--agent.{name}", value)]
    with TemporaryDirectory() as folder:
        run = ["train", "sac", "--env", ENV, "--steps", str(STEPS), "--seed", str(seed), *flags]
        judged = ["--eval-every", str(STEPS), "--eval-episodes", str(EPISODES)]
        where = ["--out", f"{folder}/run", "--quiet"]
        subprocess.run([OURS, "-m", "tenfold", *run, *judged, *where], check=True)
        rows = read_rows(Path(folder) / "run" / "metrics.jsonl")
        return [row["mean_return"] for row in rows if row["kind"] == "eval"][-1]


def theirs(seed: int) -> float:
    settings = {
        "learning_rate": LR,
        "batch_size": BATCH,
        "buffer_size": STEPS,
        "learning_starts": STARTS,
        "tau": TAU,
        "gamma": GAMMA,
        "policy_kwargs": {"net_arch": list(HIDDEN)},
    }
    run = ["--agent", "sac", "--env", ENV, "--steps", str(STEPS), "--seed", str(seed)]
    more = ["--episodes", str(EPISODES), "--settings", json.dumps(settings)]
    command = [THEIRS, str(HERE / "peers" / "sb3_learning.py"), *run, *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])["return"]


def side(train: Any) -> dict[str, Any]:
    with ThreadPoolExecutor(2) as pool:
        returns = np.array(list(pool.map(train, range(SEEDS))))
    return {
        "returns": returns.round(1).tolist(),
        "iqm": round(float(interquartile_mean(returns)), 1),
        "interval": [round(float(end), 1) for end in bootstrap_interval(returns)],
    }


def main() -> None:
    tenfold, sb3 = side(ours), side(theirs)
    (low, high), (least, most) = tenfold["interval"], sb3["interval"]
    row = {
        "name": "sac-curves",
        "setting": {"env": ENV, "steps": STEPS, "hidden": list(HIDDEN), "batch": BATCH, "lr": LR},
        "tenfold": tenfold,
        "stable_baselines3": sb3,
        "overlap": low <= most and least <= high,
    }
    write("sac-curves", [row])


if __name__ == "__main__":
    main()
