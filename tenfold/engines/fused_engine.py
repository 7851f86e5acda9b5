"""The engine whose rounds are one compiled call each (`engines.fused`): when which part of a round
is run, and rounds in a row."""

from functools import cached_property
from time import monotonic
from typing import Any, ClassVar

import numpy as np

from tenfold.core.kernels import as_numbers
from tenfold.core.protocols import RoundDriver
from tenfold.core.system import Clock
from tenfold.core.tables import KernelTable, compiled_for
from tenfold.engines.fused import (
    ACT,
    PATIENCE,
    ROUNDS,
    SPENT,
    STEP,
    STORE,
    UPDATE,
    on_threads,
    step_arrays,
)
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.control import ControlEnvironments
from tenfold.envs.faults import refuse_dead_end, refuse_stuck
from tenfold.memory.replay import Replay

MAX_ROUNDS = 512  # of one compiled call where no episode ends, so that a signal is heard


def run_rounds(engine: Any, learner: Any, most: int, until: int | None) -> list[Episode]:
    """Whole rounds of a learner by its engine: to the next end of an episode, at most `most`, not
    beyond step `until`. Returns the episodes that ended."""
    if until is not None:
        most = min(most, -((learner.step - until) // learner.envs.num_envs))
    engine.spent[:] = 0
    learner.clock.start()
    most = min(most, MAX_ROUNDS)
    learner.step, learner.rounds = engine.run(learner.step, learner.rounds, most)
    learner.clock.share(dict(zip(SPENT, engine.spent.tolist(), strict=True)), "env")
    return learner.envs.finished


class FusedRounds:
    """Mixin: list it before the plain engine, where parameters, moments, memory and statistics
    stay, so that a run can change engines at any round."""

    description = "one compiled call a round"
    rounds_by: RoundDriver = "engine"
    # compiled: one round, and rounds of compiled environments
    one_round: ClassVar[Any]
    many_rounds: ClassVar[Any]
    agent: Any
    envs: Environments
    replay: Replay
    sums: Any
    since: np.ndarray

    def __init__(self, agent: Any, replay: Replay, envs: Environments) -> None:
        super().__init__(agent, replay, envs)  # type: ignore[call-arg]
        self.has_actions = False  # whether `action` is the action for the current observations
        self.counter = np.zeros(3 + len(SPENT), np.int64)
        self.spent = self.counter[-len(SPENT) :]
        self.compiled_envs = envs if isinstance(envs, ControlEnvironments) else None
        # the agent's next actions, and the same in the environments' own numbers
        self.action = np.zeros((envs.num_envs, *replay.action.shape[1:]), replay.batch.action.dtype)
        self.scaled = self.compiled_envs.action if self.compiled_envs else self.env_actions()
        self.table = KernelTable(
            {"counter": self.counter, "sums": self.sums.numpy(), "since": self.since},
            replay.columns(),
            step_arrays(envs),
            *self.columns(),
        )
        self.description += on_threads(self.table.arrays["team"])
        self.arguments = (
            self.table,
            replay.obs,
            replay.action,
            self.action,
            envs.obs.reshape(envs.num_envs, -1),
            envs.final_obs.reshape(envs.num_envs, -1),
        )

    def columns(self) -> tuple[dict[str, np.ndarray], ...]:
        """Parameters, settings and scratch of the algorithm."""
        raise NotImplementedError

    def env_actions(self) -> np.ndarray:
        """Room for actions as the environments take them."""
        return np.zeros(self.envs.num_envs, np.int64)

    @cached_property
    def call(self) -> Any:
        return compiled_for(self.one_round, 0, *self.arguments)

    def warm_up(self) -> None:
        if self.compiled_envs:
            self.run_compiled(self.compiled_envs, 0)
        self.call(0, *self.arguments)
        e, no = self.envs, slice(0, 0)  # storing alone, of no environment: rounds by stages do it
        self.replay.add(
            self.action[no],
            e.reward[no],
            e.terminated[no],
            e.truncated[no],
            e.skipped[no],
            e.obs[no],
            e.final_obs[no],
            *(mask[no] for mask in (e.mask, e.final_mask) if mask is not None),
        )

    def at(self, step: int, rounds: int, due: int = 0) -> None:
        self.counter[:3] = step, rounds, due

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the current observations."""
        self.at(step, rounds)
        refuse_stuck(self.envs, self.call(ACT, *self.arguments))
        self.has_actions = False
        return self.action

    def play(self, most: int) -> None:
        """Steps of environments that are not compiled, each with a whole round, until an episode
        ends, `most` or a moment."""
        envs, arguments, scaled, call = self.envs, self.arguments, self.scaled, self.call
        enough = monotonic() + PATIENCE
        for _ in range(most):
            envs.step(scaled)
            refuse_dead_end(envs)
            refuse_stuck(envs, call(STORE | UPDATE | ACT, *arguments))
            if envs.finished or monotonic() > enough:
                break

    def update(self, count: int, step: int, clock: Clock) -> None:
        clock.start()
        self.at(step, 0, count)
        self.call(UPDATE, *self.arguments)
        self.has_actions = False
        clock.lap("update")

    run_rounds = run_rounds

    def run(self, step: int, rounds: int, most: int) -> tuple[int, int]:
        """Whole rounds from the given counts until an episode ends, `most` or a moment; returns the
        counts after them."""
        if not self.has_actions:
            self.explore(step, rounds)
            self.has_actions = True
        if self.compiled_envs:
            self.compiled_envs.begin_rounds()
            self.compiled_envs.end_rounds(self.run_compiled(self.compiled_envs, most))
        else:
            self.play(most)
        return int(self.counter[STEP]), int(self.counter[ROUNDS])

    def run_compiled(self, envs: ControlEnvironments, most: int) -> int:
        return self.many_rounds(most, *envs.kernel_arguments, *self.arguments)

    def set_lr(self, lr: Any) -> None:
        self.table.replace("lr", np.array(as_numbers(lr), np.float64))

    def load_state(self, state: Any) -> None:
        super().load_state(state)  # type: ignore[misc]
        self.has_actions = False


class FusedActing:
    """`explore` of an agent as one compiled call, for an actor that does nothing else."""

    def __init__(
        self,
        choose: Any,
        columns: tuple[dict[str, np.ndarray], ...],
        action: np.ndarray,
        options: int = 0,
    ) -> None:
        """`choose`: the kernel of the algorithm that does it, `columns`: what that reads, `action`:
        where actions go, `options`: the length of a mask, 0 where there is none."""
        self.choose, self.action, self.counter = choose, action, np.zeros(3, np.int64)
        self.mask = np.zeros((len(action), options), np.bool_)
        self.table = KernelTable({"counter": self.counter, "e_mask": self.mask}, *columns)

    def __call__(
        self, rows: np.ndarray, step: int, rounds: int, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Actions for rows [B, …], valid until the next call."""
        self.counter[:] = step, rounds, 0
        if mask is not None:
            self.mask[:] = mask
        self.choose(self.table, self.action, rows.reshape(len(rows), -1))
        return self.action
