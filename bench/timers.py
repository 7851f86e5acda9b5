"""What the timers that are always on cost.

fused: a round looks at the clock around its updates, and one in 8 around storing and acting; those
looks alone, against a whole round. plain: the laps of a round with nothing between them, against a
whole round. (The difference of two rounds would drown in noise.)
"""

from collections.abc import Callable

import numpy as np
from measure import interleave, write

from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.kernels import kernel, nanoseconds
from tenfold.core.system import Clock, set_threads
from tenfold.engines.fused import ACTED, SPENT, STORED, UPDATED, timer_start, timer_stop

ROUNDS = 610
AGENT = {
    "learning_starts": 100,
    "batch_size": 32,
    "every": 1,
    "updates": 1,
    "net": {"hidden": [64, 64]},
}


def rounds_of(place: OffPolicyLearner) -> Callable[[], int]:
    def rounds() -> int:
        before = place.rounds
        while place.rounds < before + ROUNDS:
            place.round()
        return place.rounds - before

    return rounds


def place_of(engine: str) -> OffPolicyLearner:
    return OffPolicyLearner(
        Run.of({"env": "tenfold/CartPole-v1", "engine": engine, "agent": AGENT})
    )


def laps_only() -> int:
    """The clock's part of `OffPolicyLearner.round` and of the plain engine."""
    clock = Clock()
    for _ in range(ROUNDS):
        clock.start()
        clock.lap("act")
        clock.lap("env")
        clock.lap("store")
        clock.start()
        clock.lap("sample")
        clock.lap("update")
    return ROUNDS


@kernel
def looks_of(rounds, counter):
    for number in range(rounds):
        timer_stop(counter, STORED, timer_start(number))
        began = nanoseconds()
        counter[UPDATED] += nanoseconds() - began
        timer_stop(counter, ACTED, timer_start(number))


def looks_only() -> int:
    """The clock's part of `fused_round`."""
    looks_of(ROUNDS, np.zeros(len(SPENT), np.int64))
    return ROUNDS


def main() -> None:
    set_threads(1)
    fused = interleave({"round": rounds_of(place_of("fused")), "timers": looks_only}, 61)
    plain = interleave({"round": rounds_of(place_of("plain")), "timers": laps_only}, 11)
    setting = {"env": "tenfold/CartPole-v1", "work": "one update a step, batch 32, 64-64"}
    write(
        "timers",
        [
            {
                "name": "timers",
                "setting": setting | {"engine": engine},
                "round_us": round(found["round"], 2),
                "timers_us": round(found["timers"], 3),
                "share": round(found["timers"] / found["round"], 4),
                "bar": 0.01,
            }
            for engine, found in (("fused", fused), ("plain", plain))
        ],
    )


if __name__ == "__main__":
    main()
