"""The fused engine: everything between two environment steps is ONE compiled call on the agent's
and the memory's own arrays.

Storing the step, drawing batches, the forward passes, the loss, the backward pass, clipping, Adam,
the target network, new priorities and the next action: no Python and no allocation in between. It
does what the plain engine does, from the same random numbers in the same order; `tests/engines`
holds the two in lockstep. For fully connected networks on the CPU, in float32.
"""

from time import monotonic
from typing import Any

import numpy as np

from tenfold.algorithms.dqn.agent import DQNAgent, Tensors
from tenfold.algorithms.dqn.fused_acting import LR, rules
from tenfold.algorithms.dqn.fused_round import (
    ACT,
    ROUNDS,
    STEP,
    UPDATE,
    WHOLE,
    Arrays,
    fused_round,
    fused_rounds,
)
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.core.random import Purpose
from tenfold.core.schedules import as_numbers
from tenfold.core.tables import table_of
from tenfold.core.timing import Clock
from tenfold.engines.fusing import PATIENCE, zeros
from tenfold.envs.adapter import Environments
from tenfold.envs.control import ControlEnvironments
from tenfold.memory.replay import Replay


class FusedEngine(PlainEngine):
    """Runs rounds by one call each. Parameters, moments, memory and statistics stay where the plain
    engine keeps them, so a run can change engines at any round."""

    def __init__(self, agent: DQNAgent, replay: Replay, envs: Environments) -> None:
        super().__init__(agent, replay, envs)
        self.chosen = False  # whether `action` is the action for the current observations
        self.scale = 1  # of the time of an update: how many rounds a timed one stands for
        self.counter = np.zeros(3, np.int64)
        streams = np.array(
            [agent.keys[purpose] for purpose in (Purpose.REPLAY, Purpose.COIN, Purpose.ACTION)]
        )
        sizes, batch, count = np.array(agent.online.sizes), len(replay.draw), envs.num_envs
        outputs = int(sizes[1:].sum())
        self.compiled = envs if isinstance(envs, ControlEnvironments) else None
        # the environments' next
        self.action = self.compiled.action if self.compiled else np.zeros(count, np.int64)
        self.items = np.ones((4, batch), np.float32)  # weights of uniform replay stay 1
        self.arrays = Arrays(
            counter=self.counter,
            updates=agent.count,
            rule=rules(agent),
            streams=streams,
            sums=self.sums.numpy(),
            block=agent.block.numpy(),
            sizes=sizes,
            inputs=zeros(2, sizes[0], batch),
            layers=zeros(4, batch * outputs),
            items=self.items,
            turned=zeros(batch * int(sizes.max())),
            y=zeros(agent.online.atoms),
            row=replay.batch.row,
            action=replay.batch.action,
            draw=replay.draw,
            m_action=replay.action,
            m_reward=replay.reward,
            m_kind=replay.kind,
            m_ready=replay.ready,
            m_head=replay.head,
            m_start=replay.start,
            m_count=replay.count,
            m_tree=replay.tree,
            m_top=replay.top,
            e_reward=envs.reward,
            e_terminated=envs.terminated,
            e_truncated=envs.truncated,
            e_skipped=envs.skipped,
            e_action=self.action,
            e_inputs=zeros(sizes[0], count),
            e_hidden=zeros(count * outputs),
        )
        self.given = (
            table_of(self.arrays),
            replay.obs,
            envs.obs.reshape(count, -1),
            envs.final_obs.reshape(count, -1),
        )

    def warm_up(self) -> None:
        if self.compiled:
            self.run_compiled(self.compiled, 0)
        fused_round(0, *self.given)
        e, no = self.envs, slice(0, 0)  # storing alone, which timed rounds do, of no environment
        self.replay.add(
            self.action[no],
            e.reward[no],
            e.terminated[no],
            e.truncated[no],
            e.skipped[no],
            e.obs[no],
            e.final_obs[no],
        )

    def at(self, step: int, rounds: int, due: int = 0) -> None:
        self.counter[:] = step, rounds, due

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the current observations."""
        self.at(step, rounds)
        fused_round(ACT, *self.given)
        self.chosen = False
        return self.action

    def update(self, count: int, step: int, clock: Clock) -> None:
        clock.start()
        self.at(step, 0, count)
        fused_round(UPDATE, *self.given)
        self.chosen = False
        clock.lap("update", self.scale)

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
            envs, given, action, start = (
                self.envs,
                self.given,
                self.action,
                self.agent.actions.start,
            )
            enough = monotonic() + PATIENCE
            for _ in range(most):
                envs.step(action + start if start else action)
                fused_round(WHOLE, *given)
                if envs.finished or monotonic() > enough:
                    break
        return int(self.counter[STEP]), int(self.counter[ROUNDS])

    def run_compiled(self, envs: ControlEnvironments, most: int) -> int:
        return fused_rounds(most, *envs.given, *self.given)

    def set_lr(self, lr: Any) -> None:
        self.arrays.rule[LR : LR + 4] = as_numbers(lr)

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        self.chosen = False
