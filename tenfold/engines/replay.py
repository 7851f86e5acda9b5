"""What the plain engines of agents with a replay memory share, and how every other engine is held
to them (`ReplayLockstep`)."""

import copy
from typing import Any

import numpy as np
import torch

from tenfold.config.options import Prioritized, Uniform, value_at
from tenfold.core.system import Clock
from tenfold.engines.lockstep import Lockstep, distance
from tenfold.engines.plain import AutogradEngine
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.memory.staging import Staging

Tensors = dict[str, torch.Tensor]
SAMPLED = ("obs", "action", "reward", "discount", "next_obs", "weight")


class ReplayEngine(AutogradEngine):
    """K due updates as one call, each from a batch sampled after the previous one's priorities were
    written. A subclass says what an update is (`launch`)."""

    def __init__(self, agent: Any, replay: Replay, envs: Environments) -> None:
        self.agent, self.replay, self.envs = agent, replay, envs
        # what the network acts on, where it is not the environments' observations
        self.seen: np.ndarray | None = None
        # these tensors share the batch's memory: nothing is copied on the CPU
        self.rows: Tensors = {
            name: torch.from_numpy(getattr(replay.batch, name)) for name in SAMPLED
        }
        if replay.batch.next_mask.shape[-1]:
            self.rows["next_mask"] = torch.from_numpy(replay.batch.next_mask)
        self.rows |= self.draw_beside()
        self.staging = Staging(agent.device)
        # of the statistics, and the number of updates; they stay on the device until they are
        # logged
        self.sums = torch.zeros(len(self.names) + 1, device=agent.device)

    @property
    def batch_items(self) -> int:
        """Of a batch."""
        return self.replay.batch.reward.shape[-1]

    def look(self, seen: np.ndarray) -> None:
        """Acts on these arrays from now on: the last frames instead of the environments'
        observations."""
        self.seen = seen

    @property
    def looked_at(self) -> np.ndarray:
        """What the network acts on."""
        return self.envs.obs if self.seen is None else self.seen

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments' current observations."""
        masks = () if self.envs.mask is None else (self.envs.mask,)
        return self.agent.explore(self.looked_at, step, rounds, *masks)

    def update(self, count: int, step: int, clock: Clock) -> None:
        """`count` gradient updates at environment step `step`."""
        clock.start()
        for _ in range(count):
            self.update_once(step, clock)

    def update_once(self, step: int, clock: Clock) -> None:
        self.finish(self.launch(step, clock))
        clock.lap("update")

    def draw_beside(self) -> Tensors:
        """What is drawn for the next update beside its batch, a row an item."""
        return {}

    def launch(self, step: int, clock: Clock) -> torch.Tensor:
        """An update, as far as nobody has to wait for the device; returns every item's TD error."""
        raise NotImplementedError

    def sample(self, step: int, clock: Clock) -> None:
        """The next batch, and what is drawn beside it."""
        replay = self.replay
        replay.sample(value_at(replay.priorities.beta, step) if replay.priorities else 1.0)
        self.rows |= self.draw_beside()
        clock.lap("sample")

    def finish(self, errors: torch.Tensor) -> None:
        if self.replay.priorities:
            self.replay.prioritise(errors.cpu().numpy())


CHANGED = ("count", "tree", "top", "draw")  # of the replay by an update; all else it only reads


class ReplayLockstep(Lockstep):
    """The plain engine has a replay that shares its rows with the fast one's, and a twin of its
    agent."""

    def __init__(self, engine: Any, twin: Any, plain: type[ReplayEngine], every: int) -> None:
        replay = copy.copy(engine.replay)
        replay.use(copy.deepcopy(replay.batch))
        for name in CHANGED:
            setattr(replay, name, getattr(replay, name).copy())
        twin.keys, twin.norm = engine.agent.keys, engine.agent.norm
        if twin.norm:
            twin.moments = engine.agent.moments
        super().__init__(engine, plain(twin, replay, engine.envs), every)

    def update(self, count: int, step: int, clock: Clock) -> None:
        """`count` updates by the fast engine, every N-th of the run by both."""
        lr = value_at(self.engine.agent.config.lr, step)
        for _ in range(count):
            if self.due:
                self.update_both(lambda engine, clock: engine.update(1, step, clock), lr, clock)
            else:
                self.engine.update(1, step, clock)

    def copy_memory(self) -> None:
        for name in CHANGED:
            getattr(self.plain.replay, name)[:] = getattr(self.engine.replay, name)

    def batch(self) -> dict[str, np.ndarray]:
        return {name: rows.numpy() for name, rows in self.plain.rows.items()}

    def next_values(self) -> torch.Tensor:
        """Values in the batch's next states, before the update: errors are differences of such
        numbers."""
        raise NotImplementedError

    def checks(self, lr: float) -> dict[str, float]:
        """Priorities are compared by the TD errors behind them."""
        fast, plain = self.engine, self.plain
        same = np.array_equal(fast.replay.batch.row, plain.replay.batch.row)
        apart = distance(fast.agent.target.flat, plain.agent.target.flat)
        return super().checks(lr) | {
            "rows of the batch": 0.0 if same else np.inf,
            "target network": apart / (1e-6 + 0.01 * lr),
            "priorities": errors_apart(
                fast.replay.tree, plain.replay.tree, fast.agent.config.replay, self.next_values()
            ),
            "sums of priorities": sums_off(fast.replay.tree),
        }


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
    allowed = 1e-4 * wanted + 2e-6 * (1 + float(values.abs().max()))
    return float(np.max(np.abs(found - wanted) / allowed))


def sums_off(tree: np.ndarray) -> float:
    """How far a node is from the sum of its two children, in units of 1e-9 of the total."""
    off = tree[1 : tree.size // 2] - tree[2:].reshape(-1, 2).sum(1)
    return float(np.abs(off).max(initial=0.0) / (1e-9 * tree[1] + 1e-12))
