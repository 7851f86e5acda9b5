"""Durotaxis without learning: random, the best constant action of a grid, the scripted follower,
into bench/results.

    python bench/durotaxis_baselines.py [EPISODES]

The constant action is searched on other episodes than those it is scored on.
"""

import argparse
from typing import Any

from tenfold.cli.measure import write
from tenfold.domains.durotaxis.baselines import (
    as_row,
    best_constant,
    constant_policy,
    follower_policy,
    idle_policy,
    play,
    random_policy,
)
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments

SUBSTRATES = ("linear", "exponential", "random", "bend")
SEARCH, JUDGE = 1, 2  # seeds


def main() -> None:
    asked = argparse.ArgumentParser(
        description="Scores policies without learning into bench/results/durotaxis-baselines.json."
    )
    asked.add_argument(
        "episodes",
        nargs="?",
        type=int,
        default=512,
        metavar="EPISODES",
        help="of each policy (512)",
    )
    episodes = asked.parse_args().episodes
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
                more, _ = best_constant(name, SEARCH)
                policies["best constant"] = constant_policy(list(more.values()))
            for label, policy in policies.items():
                score = play(
                    DurotaxisEnvironments(name, 64, JUDGE),
                    policy,
                    64 if policy is idle_policy else episodes,
                )
                rows.append(
                    as_row(label, name, score)
                    | ({"action": more} if label == "best constant" else {})
                )
                print(
                    f"{substrate:12} {mode:6} {label:34} success {score.success:6.1%}  steps "
                    f"{score.steps or 0:6.1f}  return {score.ret:6.2f}  discounted "
                    f"{score.discounted:6.2f}",
                    flush=True,
                )
    write("durotaxis-baselines", rows)


if __name__ == "__main__":
    main()
