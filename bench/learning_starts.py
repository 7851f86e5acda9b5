"""How many uniform actions before sac and td3 learn: their usual settings with `learning_starts` of
100 and 1,000 on short tasks. Seeds from 100 on.

    python bench/learning_starts.py [AGENT ENVIRONMENT STEPS SEEDS]

Writes bench/results/learning-starts.json.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import FOLDER, write

import tenfold as ten
from tenfold.core.system import set_threads
from tenfold.runs.metrics import read_rows

STARTS, FIRST, EVALUATIONS = (100, 1_000), 100, 4
# agent, environment, steps, seeds
CASES = [
    ("sac", "Pendulum-v1", 3_000, 2),
    ("sac", "InvertedDoublePendulum-v5", 4_000, 2),
    ("sac", "MountainCarContinuous-v0", 4_000, 2),
    ("sac", "HalfCheetah-v5", 6_000, 2),
    ("sac", "HalfCheetah-v5", 20_000, 2),
    ("td3", "Pendulum-v1", 3_000, 2),
]


def learn(agent: str, env: str, steps: int, seed: int, starts: int) -> dict[str, Any]:
    """Greedy returns at four steps, five episodes each, and the mean return of training."""
    with tempfile.TemporaryDirectory() as folder:
        run = ten.train(
            agent,
            Path(folder) / "run",
            env=env,
            steps=steps,
            seed=seed,
            agent={"learning_starts": starts},
            eval_every=steps // EVALUATIONS,
            eval_episodes=5,
            quiet=True,
            report=False,
        )
        rows = list(read_rows(run.path / "metrics.jsonl"))
    returns = [row["return"] for row in rows if row["kind"] == "episode"]
    return {
        "agent": agent,
        "env": env,
        "steps": steps,
        "seed": seed,
        "starts": starts,
        "greedy": [round(row["mean_return"], 1) for row in rows if row["kind"] == "eval"],
        "training": round(sum(returns) / max(len(returns), 1), 1),
    }


def main() -> None:
    set_threads(1)
    given = sys.argv[1:]
    cases = [(given[0], given[1], int(given[2]), int(given[3]))] if given else CASES
    file = FOLDER / "results" / "learning-starts.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    for agent, env, steps, seeds in cases:
        for seed in range(FIRST, FIRST + seeds):
            for starts in STARTS:
                found = learn(agent, env, steps, seed, starts)
                same = ("agent", "env", "steps", "seed", "starts")
                rows = [row for row in rows if any(row[k] != found[k] for k in same)] + [found]
                write("learning-starts", rows)


if __name__ == "__main__":
    main()
