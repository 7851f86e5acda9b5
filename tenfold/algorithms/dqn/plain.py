"""The reference engine: eager PyTorch autograd, one update after another, on any network and any
device; the same through torch.compile; and how every other engine is held to it (`QLockstep`)."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn.agent import ONLINE, TARGET, DQNAgent, Tensors
from tenfold.algorithms.dqn.config import Hard, Prioritized, Uniform
from tenfold.config.schedules import value_at
from tenfold.core.random import Purpose
from tenfold.core.timing import Clock
from tenfold.engines.compiled import Compiled
from tenfold.engines.lockstep import Lockstep, distance
from tenfold.engines.plain import AutogradEngine
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.memory.staging import Staging
from tenfold.ops.adam import polyak
from tenfold.ops.qlearning import among


class PlainEngine(AutogradEngine):
    """K due updates as one call, each from a batch sampled after the previous one's priorities were
    written."""

    names = ("loss", "q", "td_error", "grad_norm")

    def __init__(self, agent: DQNAgent, replay: Replay, envs: Environments) -> None:
        self.agent, self.replay, self.envs = agent, replay, envs
        # what the network acts on, where it is not the environments' observations
        self.seen: np.ndarray | None = None
        b = replay.batch  # these tensors share the batch's memory: nothing is copied on the CPU
        self.rows: Tensors = {
            name: torch.from_numpy(getattr(b, name))
            for name in ("obs", "action", "reward", "discount", "next_obs", "weight")
        }
        if b.next_mask.shape[-1]:
            self.rows["next_mask"] = torch.from_numpy(b.next_mask)
        self.rows |= agent.draw_fractions(b.action.shape[-1])
        self.staging = Staging(agent.device)
        # of the statistics, and the number of updates; they stay on the device until they are
        # logged
        self.sums = torch.zeros(len(self.names) + 1, device=agent.device)

    @property
    def devices(self) -> list[str]:
        """Where learning happens."""
        return [str(self.agent.device)]

    def look(self, seen: np.ndarray) -> None:
        """Acts on these arrays from now on: the last frames instead of the environments'
        observations."""
        self.seen = seen

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments' current observations."""
        seen = self.envs.obs if self.seen is None else self.seen
        return self.agent.explore(seen, step, rounds, self.envs.mask)

    def update(self, count: int, step: int, clock: Clock) -> None:
        """`count` gradient updates at environment step `step`."""
        clock.start()
        for _ in range(count):
            self.update_once(step, clock)

    def update_once(self, step: int, clock: Clock) -> None:
        self.finish(self.launch(step, clock))
        clock.lap("update")

    def launch(self, step: int, clock: Clock) -> torch.Tensor:
        """An update, as far as nobody has to wait for the device; returns every item's TD error."""
        agent, replay, config = self.agent, self.replay, self.agent.config
        replay.sample(value_at(replay.priorities.beta, step) if replay.priorities else 1.0)
        self.rows |= agent.draw_fractions(replay.batch.action.shape[-1])
        clock.lap("sample")
        said, norm = self.descend(value_at(config.lr, step), self.examples())
        self.renew_target()
        errors = torch.cat([part[1] for part in said], -1)
        for loss, _, q in said:
            self.sums[0] += loss / agent.members
            self.sums[1] += q * (1 / len(said))
        self.sums[2] += errors.abs().mean()
        self.sums[3] += norm.mean()
        self.sums[-1] += 1
        return errors

    def examples(self) -> Iterator[tuple[Any, ...]]:
        """What `agent.loss` is given of the batch just sampled: micro-batches, or all of it."""
        agent, action = self.agent, self.rows["action"]
        noise = agent.draw_noise(Purpose.NOISE_ONLINE, agent.updates)
        target_noise = agent.draw_noise(Purpose.NOISE_TARGET, agent.updates)
        # agents of a world stand before the items
        items, effective = action.dim() - 1, action.shape[-1]
        size = effective if self.whole_batches else agent.config.batch_size
        for start in range(0, effective, size):
            rows = {name: t.narrow(items, start, size) for name, t in self.rows.items()}
            yield self.staging.send(rows), noise, target_noise, effective

    def finish(self, errors: torch.Tensor) -> None:
        if self.replay.priorities:
            self.replay.prioritise(errors.cpu().numpy())

    def renew_target(self) -> None:
        renew_target(self.agent)


def renew_target(agent: DQNAgent) -> None:
    """After an update: by a part, or as a whole now and then."""
    target = agent.config.target
    if not isinstance(target, Hard):
        polyak(agent.target.flat, agent.online.flat, target.tau)
    elif agent.updates % target.every == 0:
        agent.target.flat.copy_(agent.online.flat)


class CompiledEngine(Compiled, PlainEngine):
    """As the plain engine, but gradient and step are one compiled call."""


CHANGED = ("count", "tree", "top", "draw")  # of the replay by an update; all else it only reads


class QLockstep(Lockstep):
    """The plain engine has a replay that shares its rows with the fast one's."""

    def __init__(self, engine: PlainEngine, every: int) -> None:
        agent, replay = engine.agent, copy.copy(engine.replay)
        replay.use(copy.deepcopy(replay.batch))
        for name in CHANGED:
            setattr(replay, name, getattr(replay, name).copy())
        twin = DQNAgent(agent.config, agent.layout, agent.actions, 0, str(agent.device))
        twin.keys = agent.keys
        super().__init__(engine, PlainEngine(twin, replay, engine.envs), every)

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

    def next_values(self) -> torch.Tensor:
        """Of every action in the batch's next states, by the network that chose one of them before
        the update."""
        agent = self.plain.agent
        rows = {name: value.to(agent.device) for name, value in self.plain.rows.items()}
        network = copy.deepcopy(agent.online)
        network.flat.copy_(self.before[ONLINE if agent.config.double else TARGET])
        whose = Purpose.NOISE_ONLINE if agent.config.double else Purpose.NOISE_TARGET
        noise = agent.draw_noise(whose, agent.updates - 1)
        with torch.no_grad():
            next_obs, fractions = agent.to_net(rows["next_obs"]), rows.get("next_fractions")
            return agent.means(network(next_obs, noise, fractions))

    def tied(self) -> bool:
        """Whether two best next actions of some item were closer than rounding."""
        values = self.next_values()
        if values.shape[-1] < 2:
            return False
        values = among(values, self.plain.rows.get("next_mask"))
        first, second = values.topk(2, dim=-1).values.unbind(-1)
        return bool((first - second < 1e-5 * (1 + first.abs())).any())


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
