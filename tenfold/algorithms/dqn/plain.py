"""The reference engine: eager PyTorch autograd, one update after another. Any network, any
device."""

from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn.agent import DQNAgent, Tensors
from tenfold.algorithms.dqn.config import Hard
from tenfold.config.schedules import value_at
from tenfold.core.random import Purpose
from tenfold.core.timing import Clock
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.memory.staging import Staging
from tenfold.ops.adam import adam, clip, polyak

STATISTICS = ("loss", "q", "td_error", "grad_norm")


class PlainEngine:
    """K due updates as one call, each from a batch sampled after the previous one's priorities were
    written."""

    def __init__(self, agent: DQNAgent, replay: Replay, envs: Environments) -> None:
        self.agent, self.replay, self.envs = agent, replay, envs
        # what the network acts on, where it is not the environments' observations
        self.seen: np.ndarray | None = None
        b = replay.batch  # these tensors share the batch's memory: nothing is copied on the CPU
        self.rows: Tensors = {
            name: torch.from_numpy(getattr(b, name))
            for name in ("obs", "action", "reward", "discount", "next_obs", "weight")
        }
        self.rows |= agent.draw_fractions(b.action.shape[-1])
        self.staging = Staging(agent.device)
        # of the statistics, and the number of updates; they stay on the device until they are
        # logged
        self.sums = torch.zeros(len(STATISTICS) + 1, device=agent.device)

    @property
    def devices(self) -> list[str]:
        """Where learning happens."""
        return [str(self.agent.device)]

    def look(self, seen: np.ndarray) -> None:
        """Acts on these arrays from now on: the last frames instead of the environments'
        observations."""
        self.seen = seen

    def warm_up(self) -> None:
        """Compiles what there is to compile, and changes nothing."""

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments' current observations."""
        return self.agent.explore(self.envs.obs if self.seen is None else self.seen, step, rounds)

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
        errors = self.accumulate_gradient()
        grad = agent.online.flat_grad
        norm = clip(grad, config.clip_norm)[1] if config.clip_norm else grad.norm(dim=-1)
        agent.count += 1
        adam(
            agent.online.flat,
            grad,
            agent.mean,
            agent.square,
            agent.updates,
            value_at(config.lr, step),
            config.adam_eps,
        )
        self.renew_target()
        self.sums[2] += errors.abs().mean()
        self.sums[3] += norm.mean()
        self.sums[-1] += 1
        return errors

    def finish(self, errors: torch.Tensor) -> None:
        if self.replay.priorities:
            self.replay.prioritise(errors.cpu().numpy())

    def renew_target(self) -> None:
        agent, target = self.agent, self.agent.config.target
        if not isinstance(target, Hard):
            polyak(agent.target.flat, agent.online.flat, target.tau)
        elif agent.updates % target.every == 0:
            agent.target.flat.copy_(agent.online.flat)

    def accumulate_gradient(self) -> torch.Tensor:
        """Gradient of the batch just sampled, in micro-batches, into the flat buffer; returns every
        item's TD error."""
        agent, size = self.agent, self.agent.config.batch_size
        noise = agent.draw_noise(Purpose.NOISE_ONLINE, agent.updates)
        target_noise = agent.draw_noise(Purpose.NOISE_TARGET, agent.updates)
        agent.online.flat_grad.zero_()
        errors = []
        action = self.rows["action"]
        # agents of a world stand before the items
        items, effective = action.dim() - 1, action.shape[-1]
        for start in range(0, effective, size):
            part = self.staging.send(
                {name: t.narrow(items, start, size) for name, t in self.rows.items()}
            )
            loss, error, q = agent.loss(part, noise, target_noise, effective)
            loss.backward()
            errors.append(error)
            self.sums[0] += loss.detach() / agent.members
            self.sums[1] += q * (size / effective)
        return torch.cat(errors, -1)

    def set_lr(self, lr: Any) -> None:
        """The agent's settings say it."""

    def statistics(self) -> dict[str, float]:
        """Means since the last call."""
        *sums, count = self.sums.tolist()
        self.sums.zero_()
        return (
            {name: total / count for name, total in zip(STATISTICS, sums, strict=True)}
            if count
            else {}
        )

    def state(self) -> Tensors:
        return {"sums": self.sums}

    def load_state(self, state: Tensors) -> None:
        self.sums.copy_(state["sums"])
