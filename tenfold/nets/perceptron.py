"""A plain fully connected network, for algorithms and networks of one's own."""

from collections.abc import Sequence

from torch import nn

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}


def mlp(
    inputs: int, hidden: Sequence[int], outputs: int, activation: str = "tanh"
) -> nn.Sequential:
    """Layers of the widths `hidden` with an activation behind each, and a linear one of `outputs`
    behind them. What is more than one number deep is flattened."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width in hidden:
        layers += [nn.Linear(inputs, width), ACTIVATIONS[activation]()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))
