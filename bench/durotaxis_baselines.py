"""Durotaxis without learning: random, the best constant action of a grid, the scripted follower,
into bench/results.

    python bench/durotaxis_baselines.py [EPISODES]

The constant action is searched on other episodes than those it is scored on.
"""

import argparse
import itertools
import statistics
from collections import Counter
from typing import Any

from measure import write

from tenfold.domains.durotaxis.baselines import (
    constant_policy,
    follower_policy,
    idle_policy,
    play,
    random_policy,
)
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.evaluation.player import Score

SUBSTRATES = ("linear", "exponential", "random", "bend")
SEARCH, JUDGE = 1, 2  # seeds
GRID = {
    "delete_ratio": (0.45, 0.48, 0.5, 0.52),
    "gamma": (10.0, 15.0),
    "alpha": (0.5, 2.0),
    "noise": (0.05, 0.5),
    "theta": (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2),
}


def best_constant(name: str, seed: int, episodes: int = 64) -> dict[str, float]:
    """By grid search over GRID: the highest rate of success, then the fewest steps. Play it again
    on other seeds to score it."""
    ranked: list[tuple[tuple[float, float], dict[str, float]]] = []
    for values in itertools.product(*GRID.values()):
        envs = DurotaxisEnvironments(name, min(episodes, 64), seed)
        score = play(envs, constant_policy(values), episodes)
        rank = -(score.success_rate or 0.0), score.steps_to_goal or 0.0
        ranked.append((rank, dict(zip(GRID, values, strict=True))))
    return min(ranked, key=lambda one: one[0])[1]


def row_of(policy: str, name: str, score: Score) -> dict[str, Any]:
    endings = Counter(info["ending"] for info in score.infos)
    return {
        "policy": policy,
        "env": name,
        "episodes": score.episodes,
        "success": score.success_rate,
        "steps": score.steps_to_goal,
        "ret": score.mean_return,
        "discounted": statistics.fmean(info["discounted"] for info in score.infos),
        "endings": {ending: count / score.episodes for ending, count in endings.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Scores policies without learning into bench/results/durotaxis-baselines.json."
    )
    parser.add_argument(
        "episodes",
        nargs="?",
        type=int,
        default=512,
        metavar="EPISODES",
        help="of each policy (512)",
    )
    episodes = parser.parse_args().episodes
    rows: list[dict[str, Any]] = []
    for substrate in SUBSTRATES:
        for mode in ("ratio", "nodes"):
            name = f"tenfold/Durotaxis-v0(mode={mode}, substrate={substrate})"
            policies = {
                "random": random_policy(JUDGE),
                "idle": idle_policy,
                "follower": follower_policy,
            }
            more: dict[str, Any] = {}
            if mode == "ratio":
                policies["random, delete_ratio 0.45 to 0.55"] = random_policy(JUDGE, 0.05)
                more = best_constant(name, SEARCH)
                policies["best constant"] = constant_policy(list(more.values()))
            for label, policy in policies.items():
                score = play(
                    DurotaxisEnvironments(name, 64, JUDGE),
                    policy,
                    64 if policy is idle_policy else episodes,
                )
                row = row_of(label, name, score)
                rows.append(row | ({"action": more} if label == "best constant" else {}))
                print(
                    f"{substrate:12} {mode:6} {label:34} success {row['success']:6.1%}  steps "
                    f"{row['steps'] or 0:6.1f}  return {row['ret']:6.2f}  discounted "
                    f"{row['discounted']:6.2f}",
                    flush=True,
                )
    write("durotaxis-baselines", rows)


if __name__ == "__main__":
    main()
