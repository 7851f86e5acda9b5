"""The reference engine: eager PyTorch autograd, one update after another, on any network and any
device; the same through torch.compile; and how every other engine is held to it (`QLockstep`)."""

import copy
from collections.abc import Iterator
from typing import Any

import torch

from tenfold.algorithms.dqn.agent import ONLINE, TARGET, DQNAgent
from tenfold.algorithms.dqn.config import Hard
from tenfold.config.options import value_at
from tenfold.core.random import Purpose
from tenfold.core.system import Clock
from tenfold.engines.compiled import Compiled
from tenfold.engines.replay import ReplayEngine, ReplayLockstep, Tensors
from tenfold.ops.adam import polyak
from tenfold.ops.qlearning import among


class PlainEngine(ReplayEngine):
    """One loss, one step of Adam, and the target network."""

    names = ("loss", "q", "td_error", "grad_norm")
    agent: DQNAgent

    def draw_beside(self) -> Tensors:
        return self.agent.draw_fractions(self.batch_items)

    def launch(self, step: int, clock: Clock) -> torch.Tensor:
        agent = self.agent
        self.sample(step, clock)
        said, norm = self.descend(value_at(agent.config.lr, step), self.examples())
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

    @classmethod
    def why_not(cls, agent: DQNAgent, run: Any = None) -> str:
        changing = "observations are normalised by statistics that change between updates"
        return super().why_not(agent, run) or (changing if agent.norm else "")


class QLockstep(ReplayLockstep):
    """Where two next actions are as good as each other, rounding may choose either."""

    def __init__(self, engine: PlainEngine, every: int) -> None:
        agent = engine.agent
        twin = DQNAgent(agent.config, agent.layout, agent.actions, 0, str(agent.device))
        super().__init__(engine, twin, PlainEngine, every)

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
