"""What the timers that are always on cost: a round's laps with nothing between them, against a whole round of training.

Two whole rounds, with and without timers, differ by less than this machine's noise; so the timers are timed alone.
"""

import torch

from tenfold.measure import interleave, write
from tenfold.places.serial import Serial
from tenfold.record.clock import EVERY, Clock
from tenfold.settings import DQN, Run

ROUNDS = 610


def laps_only(updates: int) -> int:
    """The clock's part of `places.serial.Serial.round` and of the plain engine."""
    clock = Clock()
    for count in range(ROUNDS):
        timed = count % EVERY == EVERY - 1
        if timed:
            clock.start()
        if timed:
            clock.lap("act", EVERY)
        if timed:
            clock.lap("env", EVERY)
        if timed:
            clock.lap("store", EVERY)
        if updates:
            clock.start()
            clock.lap("sample")
            clock.lap("update")
    return ROUNDS


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for label, agent in (("one update a step", DQN(learning_starts=100)), ("no updates", DQN(learning_starts=10**9))):
        place = Serial(Run(agent=agent))

        def rounds(place: Serial = place) -> int:
            for _ in range(ROUNDS):
                place.round()
            return ROUNDS

        updates = int(label != "no updates")
        found = interleave({"round": rounds, "timers": lambda updates=updates: laps_only(updates)}, 31)
        rows.append({"name": "timers", "setting": {"env": "CartPole-v1", "work": label}, "round_us": round(found["round"], 2),
                     "timers_us": round(found["timers"], 3), "share": round(found["timers"] / found["round"], 4), "bar": 0.01})
    write("timers", rows)


if __name__ == "__main__":
    main()
