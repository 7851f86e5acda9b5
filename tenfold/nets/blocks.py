"""Layers and the Q-network. Every layer takes an optional leading member dimension: M networks in
one call.

Weights keep torch's layout, (out, in) or (M, out, in). Initial values are drawn from the
counter-based generator in the order of `parameters()`, each member from its own seed, so member i
starts as it would alone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tenfold.config.nets import Net
from tenfold.core.errors import ConfigError
from tenfold.core.layout import NATURE_SIDE, ObsLayout
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, fill_uniform, key
from tenfold.nets.flat import FlatModule
from tenfold.nets.products import LONG, Layers, convolve_by_products
from tenfold.nets.quantile import cosines, join
from tenfold.ops.qlearning import dueling, midpoints, tensor

if TYPE_CHECKING:  # a type alone
    from tenfold.algorithms.dqn_settings import DQN

NetConfig = TypeVar("NetConfig", bound=Net)
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
}
# channels, kernel, stride; nature: Mnih et al. (2015), small: Young & Tian (2019), MinAtar
CONVOLUTIONS = {"nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)), "small": ((16, 3, 1),)}


def linear_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for m, b, i, o in ((1, 1, 1, 1), (3, 5, 4, 2), (8, 32, 16, 7)):
        yield tensor(rng, dtype, m, b, i), tensor(rng, dtype, m, o, i), tensor(rng, dtype, m, o)


def linear_reference(x, weight, bias):
    """One member at a time."""
    return torch.stack([F.linear(x[m], weight[m], bias[m]) for m in range(len(x))])


@pair(
    linear_reference,
    linear_examples,
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2),
)
def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x·Wᵀ + b for all members at once: [M, B, in] -> [M, B, out]; without members, [B, in] -> [B,
    out]."""
    if weight.dim() == 2:
        if Layers.by_products and weight.shape[1] >= LONG:
            return torch.mm(x, weight.t()) + bias
        return F.linear(x, weight, bias)
    return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))


def convolve_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for m, b, c, o, size, stride in ((1, 1, 1, 1, 3, 1), (3, 2, 2, 4, 7, 2)):
        yield (
            tensor(rng, dtype, m, b, c, size, size),
            tensor(rng, dtype, m, o, c, 3, 3),
            tensor(rng, dtype, m, o),
            stride,
        )


def convolve_reference(x, weight, bias, stride):
    return torch.stack([F.conv2d(x[m], weight[m], bias[m], stride) for m in range(len(x))])


@pair(
    convolve_reference,
    convolve_examples,
    rtol=1e-4,
    atol=1e-5,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2),
)
def convolve(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int
) -> torch.Tensor:
    """Members as groups of one convolution: [M, B, C, H, W] -> [M, B, O, H', W']."""
    if weight.dim() == 4:
        if Layers.by_products:
            return convolve_by_products(x, weight, bias, stride)
        return F.conv2d(x, weight, bias, stride)
    m, b, c = x.shape[:3]
    together = x.transpose(0, 1).reshape(b, m * c, *x.shape[3:])
    out = F.conv2d(together, weight.flatten(0, 1), bias.flatten(), stride, groups=m)
    return out.view(b, m, -1, *out.shape[2:]).transpose(0, 1)


def noisy_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, i, o in (((), 1, 1), ((), 4, 3), ((2,), 3, 5)):
        yield (
            tensor(rng, dtype, *lead, o, i),
            tensor(rng, dtype, *lead, o, i),
            tensor(rng, dtype, *lead, o),
            tensor(rng, dtype, *lead, o),
            tensor(rng, dtype, *lead, i + o),
        )


def noisy_reference(weight, weight_sigma, bias, bias_sigma, noise):
    """Fortunato et al. (2018): w_oi = μ_oi + σ_oi f(ε_o) f(ε_i), b_o = μ_o + σ_o f(ε_o), f(x) =
    sign(x)√|x|."""
    if weight.dim() == 3:
        each = [
            noisy_reference(*parts)
            for parts in zip(weight, weight_sigma, bias, bias_sigma, noise, strict=True)
        ]
        return torch.stack([w for w, _ in each]), torch.stack([b for _, b in each])
    scaled = [math.copysign(math.sqrt(abs(x)), x) for x in noise.tolist()]
    o, i = weight.shape
    w = [
        torch.stack(
            [weight[a, b] + weight_sigma[a, b] * scaled[i + a] * scaled[b] for b in range(i)]
        )
        for a in range(o)
    ]
    return torch.stack(w), torch.stack([bias[a] + bias_sigma[a] * scaled[i + a] for a in range(o)])


@pair(
    noisy_reference,
    noisy_examples,
    rtol=1e-5,
    atol=1e-6,
    dtypes=("float32", "float64"),
    gradients=(0, 1),
)
def noisy_weights(
    weight: torch.Tensor,
    weight_sigma: torch.Tensor,
    bias: torch.Tensor,
    bias_sigma: torch.Tensor,
    noise: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and biases under one noise vector [..., in + out]."""
    scaled = noise.sign() * noise.abs().sqrt()
    into, out = scaled[..., None, : weight.shape[-1]], scaled[..., weight.shape[-1] :, None]
    return weight + weight_sigma * (out * into), bias + bias_sigma * out.squeeze(-1)


class Layer(nn.Module):
    """Fully connected (`kernel` 0) or convolutional, plain or noisy."""

    def __init__(
        self,
        into: int,
        out: int,
        members: int | None,
        kernel: int = 0,
        stride: int = 1,
        sigma: float = 0.0,
    ) -> None:
        super().__init__()
        lead = () if members is None else (members,)
        shape = (*lead, out, into, kernel, kernel) if kernel else (*lead, out, into)
        self.stride, self.bound = stride, 1 / math.sqrt(into * max(kernel, 1) ** 2)
        self.weight, self.bias = (
            nn.Parameter(torch.zeros(shape)),
            nn.Parameter(torch.zeros(*lead, out)),
        )
        self.sigma = sigma
        self.noise_size = into + out if sigma else 0
        if sigma:
            self.weight_sigma, self.bias_sigma = (
                nn.Parameter(torch.zeros(shape)),
                nn.Parameter(torch.zeros(*lead, out)),
            )

    def forward(self, x: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        weight, bias = self.weight, self.bias
        if self.sigma and noise is not None:
            weight, bias = noisy_weights(weight, self.weight_sigma, bias, self.bias_sigma, noise)
        if self.stride:
            return convolve(x, weight, bias, self.stride)
        return linear(x, weight, bias)


def layers_of(
    shape: tuple[int, ...],
    outputs: int,
    net: Net,
    members: int | None = None,
    sigma: float = 0.0,
    beside: int = 0,
) -> tuple[nn.ModuleList, nn.ModuleList, tuple[int, ...]]:
    """Convolutions if the input is an image, then fully connected layers, and the sizes of these.
    `beside`: numbers that the first of them reads besides."""
    convolutions, width = [], math.prod(shape)
    if len(shape) == 3:
        channels, *sides = shape
        for out, kernel, stride in CONVOLUTIONS[net.encoder]:
            convolutions.append(Layer(channels, out, members, kernel, stride))
            channels, sides = out, [(side - kernel) // stride + 1 for side in sides]
        width = channels * math.prod(sides)
    sizes = (width + beside, *net.hidden, outputs)
    connected = (Layer(i, o, members, stride=0, sigma=sigma) for i, o in pairwise(sizes))
    return nn.ModuleList(convolutions), nn.ModuleList(connected), sizes


class QNetwork(FlatModule):
    """Observation [..., B, *shape] -> action values [..., B, A, N].

    The last layer gives A·N numbers, or (1 + A)·N with dueling, joined by a fixed map. `noise` is
    one vector for all noisy layers, [..., noise_size]; without it the means act.

    Implicit quantiles: the atoms stand at `fractions` [..., B, N], or without these at the
    midpoints for acting. Features of the first hidden layer (of images: the convolutions) are
    multiplied by an embedding of the fraction; what follows sees B·N rows.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        actions: int,
        config: "DQN",
        scale: float = 1.0,
        members: int | None = None,
    ) -> None:
        super().__init__()
        self.members, self.actions, self.scale = members, actions, scale
        self.atoms, self.implicit = config.atoms, config.implicit
        self.dueling = config.dueling
        self.activation = ACTIVATIONS[config.net.activation]
        self.convolutions, self.layers, self.sizes = layers_of(
            obs_shape, (actions + self.dueling) * self.atoms, config.net, members, config.sigma
        )
        self.noise_size = sum(layer.noise_size for layer in self.layers)  # type: ignore[misc]
        # the layer whose input the embedding multiplies
        self.joins = min(len(config.net.hidden), 0 if len(obs_shape) == 3 else 1)
        self.embedding = (
            Layer(self.implicit.cosines, self.sizes[self.joins], members, stride=0)
            if self.implicit
            else None
        )
        self.flatten()

    def initialise(self, seeds: Sequence[int], member: int = 0) -> "QNetwork":
        """Weights and biases uniform within ±1/√inputs (torch's default), noise scales
        sigma/√inputs; a seed per member, or one seed and which agent of a world it is."""
        rows = self.flat.cpu().view(len(seeds), -1)
        for row, seed in zip(rows, seeds, strict=True):
            row.copy_(
                torch.from_numpy(
                    fill_uniform(key(seed, Purpose.INIT, member), 0, np.empty(row.numel()))
                )
            )
        with torch.no_grad():
            self.flat.copy_(rows.view_as(self.flat))
            for layer in [
                *self.convolutions,
                *self.layers,
                *([self.embedding] if self.embedding else []),
            ]:
                assert isinstance(layer, Layer)
                layer.weight.mul_(2).sub_(1).mul_(layer.bound)
                layer.bias.mul_(2).sub_(1).mul_(layer.bound)
                if layer.sigma:
                    layer.weight_sigma.fill_(layer.sigma * layer.bound)
                    layer.bias_sigma.fill_(layer.sigma * layer.bound)
        return self

    def forward(
        self,
        obs: torch.Tensor,
        noise: torch.Tensor | None = None,
        fractions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = obs.to(self.flat.dtype)
        if self.scale != 1.0:
            x = x * self.scale
        for convolution in self.convolutions:
            x = self.activation(convolution(x))
        lead = 1 if self.members is None else 2
        x = x.flatten(lead)
        used = 0
        for place, layer in enumerate(self.layers):
            if place:
                x = self.activation(x)
            if self.implicit and place == self.joins:
                x = self.at_fractions(x, fractions)
            x = layer(x, None if noise is None else noise[..., used : used + layer.noise_size])  # type: ignore[operator]
            used += layer.noise_size  # type: ignore[operator]
        if self.implicit:
            x = x.view(*obs.shape[:lead], -1, self.actions + self.dueling).transpose(-1, -2)
        else:
            x = x.view(*x.shape[:-1], self.actions + self.dueling, self.atoms)
        return dueling(x) if self.dueling else x

    def at_fractions(self, features: torch.Tensor, fractions: torch.Tensor | None) -> torch.Tensor:
        """Features [..., B, F] -> a row for each item and fraction, [..., B·N, F]."""
        assert self.implicit is not None and self.embedding is not None
        if fractions is None:  # the same for all items
            fractions = midpoints(self.implicit.acting, features).expand(
                *features.shape[:-2], 1, self.implicit.acting
            )
        sums = self.embedding(cosines(fractions.to(features.dtype), self.implicit.cosines))
        return join(features, sums, fractions.shape[-1])


def fit_encoder(net: NetConfig, layout: ObsLayout) -> NetConfig:
    """`auto` replaced by the encoder that fits the observations; one that cannot fit is refused."""
    wanted = net.encoder
    encoder = layout.encoder if wanted == "auto" else wanted
    if (encoder == "graph") != (layout.graph is not None):
        raise ConfigError(
            "agent.net.encoder",
            f"= {wanted} does not fit: the observations are "
            f"{'graphs, use auto or graph' if layout.graph else 'no graphs, use auto or mlp'}.",
        )
    if encoder in CONVOLUTIONS:
        if len(layout.net_shape) != 3:
            raise ConfigError(
                "agent.net.encoder",
                f"= {wanted} needs images, and the observations have shape {layout.shape}: use "
                "auto or mlp.",
            )
        least = NATURE_SIDE if encoder == "nature" else 3
        if min(layout.net_shape[1:]) < least:
            raise ConfigError(
                "agent.net.encoder",
                f"= {wanted} needs images of at least {least} x {least}, and the observations have "
                f"shape {layout.shape}: use auto, small or mlp.",
            )
    return replace(net, encoder=encoder)
