"""What the timers that are always on cost: a round of training with them and without."""

import torch
from measure import interleave, write

from tenfold.places import serial
from tenfold.record.clock import EVERY, Clock
from tenfold.settings import DQN, Run

ROUNDS = 600


class NoClock(Clock):
    def start(self) -> None:
        """Nothing."""

    def lap(self, stage: str, scale: int = 1) -> None:
        """Nothing."""


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for label, agent in (("one update a step", DQN(learning_starts=100)), ("no updates", DQN(learning_starts=10**9))):
        place = serial.Serial(Run(agent=agent))  # one place for both, so that nothing but the clock differs

        def rounds(clock: Clock, every: int, place: serial.Serial = place) -> int:
            place.clock, serial.EVERY = clock, every
            for _ in range(ROUNDS):
                place.round()
            return ROUNDS

        found = interleave({"with": lambda: rounds(Clock(), EVERY), "without": lambda: rounds(NoClock(), 10**9)}, 31)
        rows.append({"name": "timers", "setting": {"env": "CartPole-v1", "work": label}, "with_us": round(found["with"], 2),
                     "without_us": round(found["without"], 2), "ratio": round(found["with"] / found["without"], 4)})
    write("timers", rows)


if __name__ == "__main__":
    main()
