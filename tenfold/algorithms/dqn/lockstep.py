"""Lockstep: updates of a fast engine repeated by the plain engine from a copy of the same state,
and compared."""

import copy
from pathlib import Path

import numpy as np
import torch

from tenfold.algorithms.dqn.agent import GRAD, ONLINE, TARGET, DQNAgent
from tenfold.algorithms.dqn.config import Prioritized, Uniform
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.config.schedules import value_at
from tenfold.core.timing import Clock
from tenfold.engines.lockstep import refuse


class Lockstep:
    """A plain engine beside a fast one, on a copy of everything an update changes."""

    def __init__(self, engine: PlainEngine, every: int) -> None:
        self.engine, self.every = engine, every
        self.folder = Path()  # where the batch of a violation goes
        self.compared = self.ties = 0
        self.largest = 0.0  # difference of parameters
        agent, replay = engine.agent, copy.copy(engine.replay)
        replay.use(copy.deepcopy(replay.batch))
        # by an update, of the replay; all else it only reads
        self.changed = ("count", "tree", "top", "draw")
        for name in self.changed:
            setattr(replay, name, getattr(replay, name).copy())
        self.before = torch.empty_like(agent.block)
        twin = DQNAgent(agent.config, agent.layout, agent.actions, 0)
        twin.keys = agent.keys
        self.plain = PlainEngine(twin, replay, engine.envs)

    def update(self, count: int, step: int, clock: Clock) -> None:
        """`count` updates by the fast engine, every N-th of the run by both."""
        for _ in range(count):
            if (self.engine.agent.updates + 1) % self.every:
                self.engine.update(1, step, clock)
            else:
                self.update_both(step, clock)

    def update_both(self, step: int, clock: Clock) -> None:
        fast, plain = self.engine, self.plain
        clock.start()
        self.before.copy_(fast.agent.block)
        plain.agent.block.copy_(fast.agent.block)
        plain.agent.count[:] = fast.agent.count
        for name in self.changed:
            getattr(plain.replay, name)[:] = getattr(fast.replay, name)
        plain.update(1, step, Clock())
        clock.lap("verify")
        fast.update(1, step, clock)
        clock.start()
        excess, where = self.excess(value_at(fast.agent.config.lr, step))
        if excess <= 1:
            self.compared += 1
            self.largest = max(self.largest, distance(fast.agent, plain.agent, ONLINE))
        elif self.tied():
            self.ties += 1
        else:
            batch = {name: rows.numpy() for name, rows in plain.rows.items()}
            refuse(self.folder, batch, self.before, fast.agent, plain.agent, excess, where)
        clock.lap("verify")

    def excess(self, lr: float) -> tuple[float, str]:
        """The largest difference in units of what is allowed, and where it is. Gradients are
        compared by their length; parameters by a hundredth of the learning rate, the size of Adam's
        step; priorities by the TD errors behind them."""
        fast, plain = self.engine, self.plain
        if not np.array_equal(fast.replay.batch.row, plain.replay.batch.row):
            return np.inf, "rows of the batch"
        gradient = plain.agent.block[GRAD]
        allowed = 1e-6 + 0.01 * lr
        checks = {
            "gradient": float(
                (fast.agent.block[GRAD] - gradient).norm() / (1e-4 * gradient.norm() + 1e-6)
            ),
            "parameters": distance(fast.agent, plain.agent, ONLINE) / allowed,
            "target network": distance(fast.agent, plain.agent, TARGET) / allowed,
            "priorities": errors_apart(
                fast.replay.tree, plain.replay.tree, fast.agent.config.replay, self.next_values()
            ),
            "sums of priorities": sums_off(fast.replay.tree),
        }
        checks = {name: np.inf if np.isnan(found) else found for name, found in checks.items()}
        where = max(checks, key=checks.__getitem__)
        return checks[where], where

    def next_values(self) -> torch.Tensor:
        """Of every action in the batch's next states, by the network that chose one of them before
        the update."""
        agent, rows = copy.deepcopy(self.plain.agent.online), self.plain.rows
        agent.flat.copy_(self.before[ONLINE if self.plain.agent.config.double else TARGET])
        with torch.no_grad():
            return agent(
                self.plain.agent.to_net(rows["next_obs"]), None, rows.get("next_fractions")
            ).mean(-1)

    def tied(self) -> bool:
        """Whether two best next actions of some item were closer than rounding: then each engine
        may choose its own."""
        values = self.next_values()
        if values.shape[-1] < 2:
            return False
        first, second = values.topk(2, dim=-1).values.unbind(-1)
        return bool((first - second < 1e-5 * (1 + first.abs())).any())

    def sentence(self) -> str:
        ties = (
            f"; {self.ties} more held a tie between actions closer than rounding"
            if self.ties
            else ""
        )
        return (
            f"verified: {self.compared:,} updates repeated by the plain engine, largest difference "
            f"of a parameter {self.largest:.1e}{ties}"
        )


def distance(one: DQNAgent, other: DQNAgent, row: int) -> float:
    return float((one.block[row] - other.block[row]).abs().max())


def errors_apart(
    tree: np.ndarray, expected: np.ndarray, how: Prioritized | Uniform, values: torch.Tensor
) -> float:
    """How far apart the TD errors are whose powers are the priorities, in units of what is allowed:
    the rounding of the values that they are differences of. The powers themselves would not do:
    |e|^0.6 is steep at 0, where two values nearly agree. (Against double precision, with values of
    about 50, both engines' errors are off by up to 2e-5.)"""
    if not isinstance(how, Prioritized):
        return 0.0
    found, wanted = (
        leaves[leaves.size // 2 :] ** (1 / how.alpha) if how.alpha else leaves
        for leaves in (tree, expected)
    )
    return float(
        np.max(np.abs(found - wanted) / (1e-4 * wanted + 2e-6 * (1 + float(values.abs().max()))))
    )


def sums_off(tree: np.ndarray) -> float:
    """How far a node is from the sum of its two children, in units of 1e-9 of the total."""
    off = tree[1 : tree.size // 2] - tree[2:].reshape(-1, 2).sum(1)
    return float(np.abs(off).max(initial=0.0) / (1e-9 * tree[1] + 1e-12))
