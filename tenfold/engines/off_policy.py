"""The plain engine of agents that learn from a replay memory: the reference that every other engine
is held to (`engines.verify`)."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from tenfold.config.options import value_at
from tenfold.core.system import Clock
from tenfold.engines.plain import AutogradEngine, EagerOptimiser
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.memory.staging import Staging

Tensors = dict[str, torch.Tensor]
SAMPLED = ("obs", "action", "reward", "discount", "next_obs", "weight")


class OffPolicyEngine(AutogradEngine):
    """Eager autograd, on any network and any device: K due updates as one call, each from a batch
    sampled after the previous one's priorities were written. What an update is, the agent says
    (`update`)."""

    def __init__(self, agent: Any, replay: Replay, envs: Environments) -> None:
        self.agent, self.replay, self.envs = agent, replay, envs
        self.names = agent.metric_names
        # what the network acts on, where it is not the environments' observations
        self.seen: np.ndarray | None = None
        # these tensors share the batch's memory: nothing is copied on the CPU
        self.rows: Tensors = {
            name: torch.from_numpy(getattr(replay.batch, name)) for name in SAMPLED
        }
        if replay.batch.next_mask.shape[-1]:
            self.rows["next_mask"] = torch.from_numpy(replay.batch.next_mask)
        self.rows |= agent.draw_for(self.batch_items)
        self.optimiser = EagerOptimiser(agent)
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

    def launch(self, step: int, clock: Clock) -> torch.Tensor:
        """An update, as far as nobody has to wait for the device; returns every item's TD error."""
        agent, number = self.agent, self.agent.updates + 1
        self.sample(step, clock)
        inputs = agent.minibatches(self.rows, self.staging.send, self.whole_batches)
        errors, metrics = self.update_from(inputs, number, value_at(agent.config.lr, step))
        agent.updates = number
        for row in metrics:
            self.sums[: len(row)] += row
        self.sums[-1] += 1
        return errors

    def update_from(
        self, inputs: Iterable[tuple[Any, ...]], number: int, lr: float
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Update `number` by these minibatches, as the agent says: every item's TD error, and the
        metrics."""
        self.optimiser.begin(number, lr)
        return self.agent.update(inputs, self.optimiser)

    def sample(self, step: int, clock: Clock) -> None:
        """The next batch, and what is drawn beside it."""
        replay = self.replay
        replay.sample(value_at(replay.priorities.beta, step) if replay.priorities else 1.0)
        self.rows |= self.agent.draw_for(self.batch_items)
        clock.lap("sample")

    def finish(self, errors: torch.Tensor) -> None:
        if self.replay.priorities:
            self.replay.prioritise(errors.cpu().numpy())
