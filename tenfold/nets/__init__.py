"""Networks. `ten.nets.mlp(…)` is a plain fully connected one, for algorithms and networks of the
user's."""

import math
from collections.abc import Sequence

import torch
from torch import nn

ACTIVATIONS = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "selu": nn.SELU,
    "leaky_relu": nn.LeakyReLU,
}


class FlattenLast(nn.Module):
    """The last dimensions that together hold `width` numbers, as one: [..., width]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last = next((k for k in range(1, x.dim() + 1) if math.prod(x.shape[-k:]) == self.width), 1)
        return x.flatten(-last)


def mlp(
    inputs: int, hidden: Sequence[int], outputs: int, activation: str = "tanh"
) -> nn.Sequential:
    """Layers of the widths `hidden` with an activation behind each, and a linear one of `outputs`
    behind them. Takes [..., inputs] with any dimensions in front, such as those of a rollout."""
    layers: list[nn.Module] = [FlattenLast(inputs)]
    for width in hidden:
        layers += [nn.Linear(inputs, width), ACTIVATIONS[activation]()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))
