"""Do scripts for Stable-Baselines3 learn the same with their import changed? Settings are RL-Zoo's
where it has some; what is compared are the returns of training's episodes, as its Monitor writes
them, over the last fifth of the steps. Interquartile means over seeds, with 95 % intervals.

    python bench/sb3_curves.py [CASE …] [--seeds 8]      one CASE after another, two seeds at a time
    python bench/sb3_curves.py --note CASE FOLDER        its Monitor files, SIDE-SEED.monitor.csv
"""

import argparse
import importlib
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from measure import FOLDER, write

from tenfold.runs.statistics import bootstrap_interval, interquartile_mean

NAME = "sb3-curves"
SIDES = {"tenfold": "tenfold.integrations.sb3", "stable_baselines3": "stable_baselines3"}
WIDE = {"policy_kwargs": {"net_arch": [256, 256]}}
# class, environment, steps, arguments
CASES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "dqn-cartpole": (
        "DQN",
        "CartPole-v1",
        50_000,
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_fraction": 0.16,
            "exploration_final_eps": 0.04,
            **WIDE,
        },
    ),
    "dqn-mountaincar": (
        "DQN",
        "MountainCar-v0",
        120_000,
        {
            "learning_rate": 4e-3,
            "batch_size": 128,
            "buffer_size": 10_000,
            "learning_starts": 1000,
            "gamma": 0.98,
            "target_update_interval": 600,
            "train_freq": 16,
            "gradient_steps": 8,
            "exploration_fraction": 0.2,
            "exploration_final_eps": 0.07,
            **WIDE,
        },
    ),
    "ppo-cartpole": ("PPO", "CartPole-v1", 50_000, {}),
    "ppo-pendulum": (
        "PPO",
        "Pendulum-v1",
        100_000,
        {"n_steps": 1024, "gamma": 0.9, "gae_lambda": 0.95, "learning_rate": 1e-3},
    ),
    "sac-pendulum": ("SAC", "Pendulum-v1", 10_000, {"learning_rate": 1e-3}),
    "td3-pendulum": ("TD3", "Pendulum-v1", 10_000, {"learning_rate": 1e-3}),
}


def train(side: str, case: str, seed: int, folder: Path) -> None:
    """One script, whose Monitor writes into the folder."""
    import gymnasium as gym
    import torch
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    name, env, steps, arguments = CASES[case]
    watched = Monitor(gym.make(env), str(folder / f"{side}-{seed}"))
    library = importlib.import_module(SIDES[side])
    getattr(library, name)("MlpPolicy", watched, seed=seed, device="cpu", **arguments).learn(steps)
    watched.close()


def end_of_training(file: Path, steps: int) -> float:
    """The mean return of the episodes that ended in the last fifth."""
    rows = [line.split(",") for line in file.read_text().splitlines()[2:]]
    returns, lengths = np.array([[float(r), int(length)] for r, length, _ in rows]).T
    return round(float(returns[lengths.cumsum() > 0.8 * steps].mean()), 1)


def row_of(case: str, folder: Path) -> dict[str, Any]:
    name, env, steps, _ = CASES[case]
    row: dict[str, Any] = {"name": case, "setting": {"class": name, "env": env, "steps": steps}}
    for side in SIDES:
        files = sorted(folder.glob(f"{side}-*.monitor.csv"))
        returns = [end_of_training(file, steps) for file in files]
        low, high = bootstrap_interval(np.array(returns))
        row[side] = {
            "returns": returns,
            "iqm": round(float(interquartile_mean(np.array(returns))), 1),
            "interval": [round(float(low), 1), round(float(high), 1)],
        }
    ours, theirs = (row[side]["interval"] for side in SIDES)
    row["overlap"] = ours[0] <= theirs[1] and theirs[0] <= ours[1]
    return row


def measure(case: str, seeds: int) -> dict[str, Any]:
    with TemporaryDirectory() as name, ProcessPoolExecutor(2) as pool:
        folder = Path(name)
        jobs = [
            pool.submit(train, side, case, s, folder) for s, side in product(range(seeds), SIDES)
        ]
        for job in jobs:
            job.result()
        return row_of(case, folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--note", action="store_true")
    arguments = parser.parse_args()
    file = FOLDER / "results" / f"{NAME}.json"
    known = json.loads(file.read_text())["rows"] if file.exists() else []
    rows = {row["name"]: row for row in known}
    if arguments.note:
        case, folder = arguments.cases
        rows[case] = row_of(case, Path(folder))
    for case in () if arguments.note else arguments.cases or CASES:
        rows[case] = measure(case, arguments.seeds)
        write(NAME, [rows[name] for name in CASES if name in rows])
    write(NAME, [rows[name] for name in CASES if name in rows])


if __name__ == "__main__":
    sys.exit(main())
