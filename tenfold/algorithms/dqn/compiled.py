"""The compiled engine: the update of any network as one pure function through torch.compile.
Opt-in: compiling takes long.

Forward passes, loss, gradient, clipping and Adam are one graph on the flat buffers; numbers that
change from update to update (learning rate, bias corrections) are tensors, so that nothing is
compiled twice. Sampling, target copies and priorities stay as in the plain engine.
"""

import shutil
from typing import Any

import torch
from torch.func import functional_call, grad_and_value

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError
from tenfold.core.random import Purpose
from tenfold.core.timing import Clock
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay
from tenfold.ops.adam import BETA1, BETA2
from tenfold.ops.qlearning import td_items


class CompiledEngine(PlainEngine):
    """As the plain engine, but gradient and step are one compiled call."""

    def __init__(self, agent: DQNAgent, replay: Replay, envs: Environments) -> None:
        super().__init__(agent, replay, envs)
        if not shutil.which("g++"):
            raise ConfigError(
                "engine",
                "= compiled needs a C++ compiler, and g++ is not installed: use auto, fused or "
                "plain.",
            )
        self.step_parts = torch.compile(pure_update(agent), fullgraph=True, dynamic=False)

    def warm_up(self) -> None:
        """Compiles on a batch of zeros; what it returns is thrown away."""
        agent = self.agent
        noise = agent.draw_noise(Purpose.NOISE_ONLINE, 0)
        self.step_parts(
            agent.online.flat,
            agent.target.flat,
            agent.mean,
            agent.square,
            self.rows,
            noise,
            noise,
            torch.tensor([1e-3, 0.1, 0.1]),
        )

    def update_once(self, step: int, clock: Clock) -> None:
        agent, replay, config = self.agent, self.replay, self.agent.config
        replay.sample(value_at(replay.priorities.beta, step) if replay.priorities else 1.0)
        self.rows |= agent.draw_fractions(len(replay.batch.action))
        clock.lap("sample")
        noise = agent.draw_noise(Purpose.NOISE_ONLINE, agent.updates)
        target_noise = agent.draw_noise(Purpose.NOISE_TARGET, agent.updates)
        agent.count += 1
        numbers = torch.tensor(
            [value_at(config.lr, step), 1 - BETA1**agent.updates, (1 - BETA2**agent.updates) ** 0.5]
        )
        flat, mean, square, gradient, errors, statistics = self.step_parts(
            agent.online.flat,
            agent.target.flat,
            agent.mean,
            agent.square,
            self.rows,
            noise,
            target_noise,
            numbers,
        )
        own = (agent.online.flat, agent.mean, agent.square, agent.online.flat_grad)
        for old, new in zip(own, (flat, mean, square, gradient), strict=True):
            old.copy_(new)
        self.renew_target()
        if replay.priorities:
            replay.prioritise(errors.numpy())
        self.sums += statistics
        clock.lap("update")


def pure_update(agent: DQNAgent) -> Any:
    """(parameters, target, moments, batch, noise, numbers) -> (parameters, moments, gradient, TD
    errors, statistics)."""
    config, online, target = agent.config, agent.online, agent.target
    places, used = {}, 0
    for name, parameter in online.named_parameters():
        places[name] = (used, used + parameter.numel(), parameter.shape)
        used += parameter.numel()

    def values(
        net: torch.nn.Module, flat: torch.Tensor, *inputs: torch.Tensor | None
    ) -> torch.Tensor:
        parameters = {
            name: flat[first:last].view(shape) for name, (first, last, shape) in places.items()
        }
        return functional_call(net, parameters, inputs)

    def loss(
        flat: torch.Tensor,
        behind: torch.Tensor,
        rows: dict[str, torch.Tensor],
        noise: Any,
        target_noise: Any,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        next_obs, next_fractions = agent.to_net(rows["next_obs"]), rows.get("next_fractions")
        next_values = values(target, behind, next_obs, target_noise, next_fractions)
        chooser = (
            values(online, flat.detach(), next_obs, noise, next_fractions)
            if config.double
            else next_values
        )
        own = values(online, flat, agent.to_net(rows["obs"]), noise, rows.get("fractions"))
        weighted, errors, q = td_items(rows, own, next_values, chooser, config.loss)
        return weighted.mean(), (errors, q.mean())

    def update(
        flat: torch.Tensor,
        behind: torch.Tensor,
        mean: torch.Tensor,
        square: torch.Tensor,
        rows: dict[str, torch.Tensor],
        noise: Any,
        target_noise: Any,
        numbers: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        gradient, (value, (errors, q)) = grad_and_value(loss, has_aux=True)(
            flat, behind, rows, noise, target_noise
        )
        norm = gradient.norm()
        if config.clip_norm:
            gradient = gradient * (config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        mean = torch.lerp(mean, gradient, 1 - BETA1)
        square = square * BETA2 + gradient * gradient * (1 - BETA2)
        flat = flat - numbers[0] / numbers[1] * mean / (
            square.sqrt() / numbers[2] + config.adam_eps
        )
        statistics = torch.stack([value, q, errors.abs().mean(), norm, torch.ones_like(norm)])
        return flat, mean, square, gradient, errors, statistics

    return update
