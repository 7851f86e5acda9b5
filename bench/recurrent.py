"""PPO with an LSTM, environment steps a second: ours and sb3-contrib's RecurrentPPO, each in a
process of its own, in turns, one thread, CartPole without velocities.

    python bench/recurrent.py        or        python bench/all.py recurrent-zoo --peers

Three sizes: RL Zoo's settings for this task; the same with the LSTM of sb3-contrib's default; its
default network and minibatches. Theirs has its layers behind the LSTM, ours in front of it; ours of
the last size are one lane each, products of one row, which are bound by reading the weights. Ours
twice: the same task stepped from Python, and our compiled one.
"""

import json
import statistics
from typing import Any

import rates
from measure import timed_row, write

TURNS = 3
rates.WHO |= {
    "tenfold, recurrent": (rates.OURS, "tenfold_recurrent", 40_960),
    "sb3-contrib": (rates.THEIRS, "sb3_recurrent", 6_144),
}
OURS = {"tenfold": ["--env", "WithoutVelocities-v0"], "tenfold, compiled task": []}
ZOO = {"num_envs": 8, "horizon": 32, "minibatches": 1, "epochs": 20, "hidden": [64], "lstm": 64}
DEFAULT = {"horizon": 128, "minibatches": 8, "epochs": 10, "hidden": [64, 64], "lstm": 256}
WORK: dict[str, dict[str, Any]] = {
    "zoo": ZOO,
    "zoo-256": ZOO | {"lstm": 256},
    "default": ZOO | DEFAULT,
}
# of a turn, ours and theirs
STEPS = {"zoo": (40_960, 4_096), "zoo-256": (10_240, 2_048), "default": (8_192, 2_048)}


def race(size: str) -> list[dict[str, Any]]:
    found: dict[str, list[float]] = {who: [] for who in ("sb3-contrib", *OURS)}
    (own, theirs), work = STEPS[size], WORK[size]
    given = ["--work", json.dumps(work)]
    for _ in range(TURNS):
        found["sb3-contrib"].append(rates.rate("sb3-contrib", *given, steps=theirs))
        for who, flags in OURS.items():
            found[who].append(rates.rate("tenfold, recurrent", *given, *flags, steps=own))
    median = {who: statistics.median(each) for who, each in found.items()}
    shape = (
        f"{work['num_envs']} x {work['horizon']} steps, {work['epochs']} epochs x "
        f"{work['minibatches']} minibatches, layers {work['hidden']}, LSTM {work['lstm']}"
    )
    return [
        timed_row(
            f"recurrent-{size}",
            {"work": shape},
            ("sb3-contrib", 1e6 / median["sb3-contrib"]),
            (who, 1e6 / median[who]),
            baseline_per_second=round(median["sb3-contrib"]),
            candidate_per_second=round(median[who]),
        )
        for who in OURS
    ]


NAMES = {}
PEERS = {
    "recurrent-zoo": lambda: race("zoo"),
    "recurrent-zoo-256": lambda: race("zoo-256"),
    "recurrent-default": lambda: race("default"),
}


if __name__ == "__main__":
    for name, work in PEERS.items():
        write(name, work())
