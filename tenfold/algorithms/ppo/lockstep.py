"""Lockstep of policy engines: updates of a fast one repeated by the plain one from a copy of the
same state, and compared."""

from pathlib import Path

import numpy as np
import torch

from tenfold.algorithms.ppo.agent import GRAD, ONLINE, PPOAgent
from tenfold.algorithms.ppo.plain import PlainPPO
from tenfold.config.schedules import value_at
from tenfold.core.timing import Clock
from tenfold.engines.lockstep import refuse


class PolicyLockstep:
    """A plain engine beside a fast one, on the same rollout, with parameters of its own."""

    def __init__(self, engine: PlainPPO, every: int) -> None:
        self.engine, self.every = engine, every
        self.folder = Path()  # where the batch of a violation goes
        self.compared = 0
        self.largest = 0.0  # difference of parameters
        agent = engine.agent
        twin = PPOAgent(agent.config, agent.layout, agent.actions, 0)
        twin.keys, twin.norm = agent.keys, agent.norm
        self.plain = PlainPPO(twin, engine.rollout, engine.envs)
        self.before = torch.empty_like(agent.block)

    def update(self, step: int, clock: Clock) -> None:
        """A learning phase by the fast engine, every N-th update of the run by both."""
        fast, plain = self.engine, self.plain
        clock.start()
        fast.finish()
        for number in range(fast.per_phase):
            if (fast.agent.updates + 1) % self.every:
                going = fast.learn(number, number + 1, step)
                clock.lap("update")
            else:
                self.before.copy_(fast.agent.block)
                plain.agent.block.copy_(fast.agent.block)
                plain.agent.count[:] = fast.agent.count
                plain.moved = 0.0
                plain.each = fast.each
                plain.learn(number, number + 1, step)
                clock.lap("verify")
                going = fast.learn(number, number + 1, step)
                clock.lap("update")
                self.compare(number, step)
                clock.lap("verify")
            if not going:
                break

    def compare(self, number: int, step: int) -> None:
        """Gradients by their length, parameters by a hundredth of the learning rate, the size of
        Adam's step."""
        fast, plain = self.engine.agent.block, self.plain.agent.block
        gradient = plain[GRAD]
        apart = float((fast[ONLINE] - plain[ONLINE]).abs().max())
        checks = {
            "gradients": float((fast[GRAD] - gradient).norm() / (1e-4 * gradient.norm() + 1e-6)),
            "parameters": apart / (1e-6 + 0.01 * value_at(self.engine.agent.config.lr, step)),
        }
        checks = {name: np.inf if np.isnan(found) else found for name, found in checks.items()}
        where = max(checks, key=checks.__getitem__)
        if checks[where] > 1:
            part = number % self.plain.rollout.minibatches
            batch = {
                name: np.ascontiguousarray(rows.numpy())
                for name, rows in self.plain.minibatch(part).items()
            }
            refuse(
                self.folder,
                batch,
                self.before,
                self.engine.agent,
                self.plain.agent,
                checks[where],
                where,
            )
        self.compared += 1
        self.largest = max(self.largest, apart)

    def sentence(self) -> str:
        return (
            f"verified: {self.compared:,} updates repeated by the plain engine, largest difference "
            f"of a parameter {self.largest:.1e}"
        )
