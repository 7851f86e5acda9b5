"""What engines share whose rounds are one compiled call each, on the arrays of the agent, the
memory and the environments: when which part of a round is run, and rounds in a row."""

from typing import Any, ClassVar

import numpy as np

from tenfold.core.system import Clock
from tenfold.engines.fusing import ROUNDS, SPENT, STEP, UPDATE
from tenfold.envs.adapter import Environments
from tenfold.envs.control import ControlEnvironments
from tenfold.memory.replay import Replay


class FusedRounds:
    """Stands before the plain engine, where parameters, moments, memory and statistics stay, so
    that a run can change engines at any round. `given` is what both kernels take."""

    words, whole_rounds = "one compiled call a round", True
    # compiled: one round, and rounds of compiled environments
    one_round: ClassVar[Any]
    many_rounds: ClassVar[Any]
    envs: Environments
    replay: Replay
    action: np.ndarray
    given: tuple[np.ndarray, ...]

    def __init__(self, agent: Any, replay: Replay, envs: Environments) -> None:
        super().__init__(agent, replay, envs)  # type: ignore[call-arg]
        self.chosen = False  # whether `action` is the action for the current observations
        self.counter = np.zeros(3 + len(SPENT), np.int64)
        self.spent = self.counter[-len(SPENT) :]
        self.compiled = envs if isinstance(envs, ControlEnvironments) else None

    def warm_up(self) -> None:
        if self.compiled:
            self.run_compiled(self.compiled, 0)
        self.one_round(0, *self.given)
        e, no = self.envs, slice(0, 0)  # storing alone, of no environment: rounds by stages do it
        self.replay.add(
            self.action[no],
            e.reward[no],
            e.terminated[no],
            e.truncated[no],
            e.skipped[no],
            e.obs[no],
            e.final_obs[no],
            *(each[no] for each in (e.mask, e.final_mask) if each is not None),
        )

    def at(self, step: int, rounds: int, due: int = 0) -> None:
        self.counter[:3] = step, rounds, due

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the current observations."""
        raise NotImplementedError

    def play(self, most: int) -> None:
        """Steps of environments that are not compiled, each with a whole round, until an episode
        ends, `most` or a moment."""
        raise NotImplementedError

    def update(self, count: int, step: int, clock: Clock) -> None:
        clock.start()
        self.at(step, 0, count)
        self.one_round(UPDATE, *self.given)
        self.chosen = False
        clock.lap("update")

    def run(self, step: int, rounds: int, most: int) -> tuple[int, int]:
        """Whole rounds from the given counts until an episode ends, `most` or a moment; returns the
        counts after them."""
        if not self.chosen:
            self.explore(step, rounds)
            self.chosen = True
        if self.compiled:
            self.compiled.begin_rounds()
            self.compiled.end_rounds(self.run_compiled(self.compiled, most))
        else:
            self.play(most)
        return int(self.counter[STEP]), int(self.counter[ROUNDS])

    def run_compiled(self, envs: ControlEnvironments, most: int) -> int:
        return self.many_rounds(most, *envs.given, *self.given)

    def load_state(self, state: Any) -> None:
        super().load_state(state)  # type: ignore[misc]
        self.chosen = False
