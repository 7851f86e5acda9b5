"""Environments in two halves: one steps while a policy on a GPU acts for the other."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tenfold.envs.adapter import Environments

FIELDS = ("obs", "final_obs", "reward", "terminated", "truncated", "skipped")


class HalvedEnvironments(Environments):
    """As one adapter of all of them, in every bit; their states are each other's. `make` makes the
    adapter of so many from the first on, which steps by `start` and `finish`."""

    def __init__(self, make: Callable[[int, int], Any], worlds: int, first: int) -> None:
        middle = worlds // 2
        self.halves = slice(0, middle), slice(middle, worlds)
        self.adapters = [make(half.stop - half.start, first + half.start) for half in self.halves]
        one = self.adapters[0]
        super().__init__(one.name, worlds, 0, one.observation_space, one.action_space, first)
        self.form = f"two halves of {one.form}: one steps while the policy acts for the other"
        for half, adapter in zip(self.halves, self.adapters, strict=True):
            for field in FIELDS:  # each writes into its part
                getattr(self, field)[half] = getattr(adapter, field)
                setattr(adapter, field, getattr(self, field)[half])

    def start(self, half: int, actions: np.ndarray) -> None:
        """A step of one half, which goes on by itself."""
        self.adapters[half].start(actions)

    def finish(self, half: int) -> None:
        """The step of one half, once it is made; the first half is finished before the second."""
        adapter, first = self.adapters[half], self.halves[half].start
        adapter.finish()
        if not half:
            self.finished = []
        self.finished += [episode._replace(env=episode.env + first) for episode in adapter.finished]

    def step(self, actions: np.ndarray) -> None:
        for number, half in enumerate(self.halves):
            self.start(number, actions[half])
        for number in range(len(self.halves)):
            self.finish(number)

    def state(self) -> dict[str, np.ndarray]:
        states = [adapter.state() for adapter in self.adapters]
        return {name: joined([state[name] for state in states]) for name in states[0]}

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        exact = [
            adapter.restore({name: array[half] for name, array in state.items()})
            for half, adapter in zip(self.halves, self.adapters, strict=True)
        ]
        return all(exact)

    def location(self, i: int, later: int = 0) -> str:
        half = int(i >= self.halves[1].start)
        return self.adapters[half].location(i - self.halves[half].start, later)

    def close(self) -> None:
        for adapter in self.adapters:
            adapter.close()


def joined(arrays: list[np.ndarray]) -> np.ndarray:
    """Arrays of lanes one after another; what one of them has no room for is 0."""
    wide = max(array.shape[1:] for array in arrays)
    rows = [
        np.pad(array, [(0, 0), *((0, w - n) for w, n in zip(wide, array.shape[1:], strict=True))])
        for array in arrays
    ]
    return np.concatenate(rows)
