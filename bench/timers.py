"""What the timers that are always on cost.

fused: one round in 499 (of those with an update each) runs by stages, each timed, and leaves and
enters the compiled loop. plain: the laps of a round with nothing between them, against a whole
round (the difference of two would drown in noise).
"""

from collections.abc import Callable

from tenfold.algorithms.dqn.learner import RARELY, QLearner
from tenfold.cli.measure import interleave, write
from tenfold.config.run import Run
from tenfold.core.system import set_threads
from tenfold.core.timing import EVERY, Clock

ROUNDS = 610
AGENT = {
    "learning_starts": 100,
    "batch_size": 32,
    "every": 1,
    "updates": 1,
    "net": {"hidden": [64, 64]},
}


def rounds_of(place: QLearner) -> Callable[[], int]:
    def rounds() -> int:
        before = place.rounds
        while place.rounds < before + ROUNDS:
            place.round()
        return place.rounds - before

    return rounds


def place_of(engine: str, every: int) -> QLearner:
    place = QLearner(Run.of({"env": "tenfold/CartPole-v1", "engine": engine, "agent": AGENT}))
    place.timed_every = every
    return place


def laps_only() -> int:
    """The clock's part of `places.serial.QLearner.round` and of the plain engine."""
    clock = Clock()
    for count in range(ROUNDS):
        timed = count % EVERY == EVERY - 1
        if timed:
            clock.start()
            clock.lap("act", EVERY)
            clock.lap("env", EVERY)
            clock.lap("store", EVERY)
        clock.start()
        clock.lap("sample")
        clock.lap("update")
    return ROUNDS


def main() -> None:
    set_threads(1)
    rare = RARELY[0]
    fused = interleave(
        {
            "whole": rounds_of(place_of("fused", 10**9)),
            "by stages": rounds_of(place_of("fused", 5)),
        },
        61,
    )
    plain = interleave({"round": rounds_of(place_of("plain", EVERY)), "timers": laps_only}, 11)
    cost = (fused["by stages"] - fused["whole"]) * 5 / rare  # one in five was timed
    setting = {"env": "tenfold/CartPole-v1", "work": "one update a step, batch 32, 64-64"}
    write(
        "timers",
        [
            {
                "name": "timers",
                "setting": setting | {"engine": "fused"},
                "round_us": round(fused["whole"], 2),
                "round_one_in_five_timed_us": round(fused["by stages"], 2),
                "timers_us": round(cost, 3),
                "share": round(cost / fused["whole"], 4),
                "bar": 0.01,
            },
            {
                "name": "timers",
                "setting": setting | {"engine": "plain"},
                "round_us": round(plain["round"], 2),
                "timers_us": round(plain["timers"], 3),
                "share": round(plain["timers"] / plain["round"], 4),
                "bar": 0.01,
            },
        ],
    )


if __name__ == "__main__":
    main()
