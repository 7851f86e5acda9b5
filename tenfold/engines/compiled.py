"""The compiled engine of any algorithm: forward passes, loss, gradient, clipping and Adam as one
pure function on the flat buffers through torch.compile. Opt-in: compiling takes long.

Numbers that change from update to update (learning rate, bias corrections) are tensors, so that
nothing is compiled twice. All else stays as in the plain engine.
"""

import shutil
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

from tenfold.engines.plain import AutogradEngine
from tenfold.ops.adam import BETA1, BETA2


class Compiled(AutogradEngine):
    """Stands before a plain engine among the bases of a class, whose `examples` are then what the
    loss is given of a batch of every size."""

    examples: Callable[[], Iterable[tuple[Any, ...]]]
    words = "the update as one graph through torch.compile"
    whole_batches = True

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        step = pure_step(self.unchecked_agent(), self.agent.config)
        self.step = torch.compile(step, fullgraph=True, dynamic=False)

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        if not shutil.which("g++"):
            return "it needs a C++ compiler, and g++ is not installed"
        if agent.device.type != "cpu":
            return f"it runs on the CPU, and the networks are on {agent.device.type}"
        if agent.layout.graph:
            return "every batch of graphs has another number of nodes, and would be compiled anew"
        return ""

    def unchecked_agent(self) -> Any:
        """The agent whose loss is compiled, where what it checks has been checked already."""
        return self.agent

    def warm_up(self) -> None:
        """What the first calls return is thrown away."""
        for inputs in self.examples():
            self.call(torch.tensor([1e-3, 0.1, 0.1]), inputs)

    def call(self, numbers: torch.Tensor, inputs: tuple[Any, ...]) -> Any:
        agent = self.agent
        return self.step(agent.online.flat, agent.mean, agent.square, numbers, *inputs)

    def descend(
        self, lr: float, parts: Iterable[tuple[Any, ...]]
    ) -> tuple[list[list[torch.Tensor]], torch.Tensor]:
        (inputs,) = parts
        agent = self.agent
        agent.updates += 1
        new, norm, said = self.call(adam_numbers(lr, agent.updates), inputs)
        buffers = (agent.online.flat, agent.mean, agent.square, agent.online.flat_grad)
        for own, value in zip(buffers, new, strict=True):
            own.copy_(value)
        return [said], norm


def adam_numbers(lr: float, step: int) -> torch.Tensor:
    """What changes in Adam from step to step: learning rate and bias corrections."""
    return torch.tensor([lr, 1 - BETA1**step, (1 - BETA2**step) ** 0.5])


def pure_adam(
    flat: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    gradient: torch.Tensor,
    numbers: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Parameters and moments after a step."""
    mean = torch.lerp(mean, gradient, 1 - BETA1)
    square = square * BETA2 + gradient * gradient * (1 - BETA2)
    root = square.sqrt() / numbers[2] + eps
    return flat - numbers[0] / numbers[1] * mean / root, mean, square


class Loss(nn.Module):
    """An agent's loss as a module, so that the parameters of its network can be given."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.online, self.agent = agent.online, agent

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        loss, *more = self.agent.loss(*inputs)
        return loss, more


def views_of(network: Any, prefix: str) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
    """How a flat buffer becomes the parameters of such a network, by names behind `prefix`."""
    places, used = {}, 0
    for name, parameter in network.named_parameters():
        places[f"{prefix}.{name}"] = (used, used + parameter.numel(), parameter.shape)
        used += parameter.numel()
    return lambda flat: {name: flat[a:b].view(shape) for name, (a, b, shape) in places.items()}


def pure_step(agent: Any, config: Any) -> Any:
    """(parameters, moments, numbers, what the loss is given) -> ((parameters, moments, gradient),
    gradient's norm, what the loss said)."""
    module, views = Loss(agent), views_of(agent.online, "online")

    def loss(flat: torch.Tensor, *inputs: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return functional_call(module, views(flat), inputs)

    def step(
        flat: torch.Tensor,
        mean: torch.Tensor,
        square: torch.Tensor,
        numbers: torch.Tensor,
        *inputs: Any,
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor, list[torch.Tensor]]:
        gradient, (value, more) = grad_and_value(loss, has_aux=True)(flat, *inputs)
        norm = gradient.norm()
        if config.clip_norm:
            gradient = gradient * (config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        flat, mean, square = pure_adam(flat, mean, square, gradient, numbers, config.adam_eps)
        return (flat, mean, square, gradient), norm, [value, *more]

    return step
