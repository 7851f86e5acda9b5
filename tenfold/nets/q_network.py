"""Networks of action values: ours, and the user's in its place."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from tenfold.config.networks import Net
from tenfold.core.errors import ConfigError
from tenfold.core.layout import NATURE_SIDE, ObsLayout
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, fill_uniform, key
from tenfold.nets.layers import CONVOLUTIONS, FlatModule, Layer, layers_of
from tenfold.nets.policy import own_network
from tenfold.ops.activations import activation_of
from tenfold.ops.qlearning import dueling, midpoints, tensor

if TYPE_CHECKING:  # a type alone
    from tenfold.algorithms.dqn_settings import DQN

NetConfig = TypeVar("NetConfig", bound=Net)


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
        self.activation = activation_of(config.net.activation)
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
        for index, layer in enumerate(self.layers):
            if index:
                x = self.activation(x)
            if self.implicit and index == self.joins:
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
    requested = net.encoder
    encoder = layout.encoder if requested == "auto" else requested
    if (encoder == "graph") != (layout.graph is not None):
        raise ConfigError(
            "agent.net.encoder",
            f"= {requested} does not fit: the observations are "
            f"{'graphs, use auto or graph' if layout.graph else 'no graphs, use auto or mlp'}.",
        )
    if encoder in CONVOLUTIONS:
        if len(layout.net_shape) != 3:
            raise ConfigError(
                "agent.net.encoder",
                f"= {requested} needs images, and the observations have shape {layout.shape}: use "
                "auto or mlp.",
            )
        least = NATURE_SIDE if encoder == "nature" else 3
        if min(layout.net_shape[1:]) < least:
            raise ConfigError(
                "agent.net.encoder",
                f"= {requested} needs images of at least {least} x {least}, and the observations "
                f"have shape {layout.shape}: use auto, small or mlp.",
            )
    return replace(net, encoder=encoder)


class OwnQNetwork(FlatModule):
    """As `QNetwork`: observation [B, *shape] -> action values [B, A, N]."""

    noise_size, members = 0, None

    def __init__(
        self, shape: tuple[int, ...], actions: int, config: "DQN", scale: float = 1.0
    ) -> None:
        super().__init__()
        if config.implicit or config.sigma:
            raise ConfigError(
                "agent.net.module",
                "is for plain and quantile values: leave out implicit quantiles and noisy layers.",
            )
        self.name, self.shape, self.actions, self.scale = config.net.module, shape, actions, scale
        self.atoms, self.dueling = config.atoms, config.dueling
        self.outputs = (actions + self.dueling) * self.atoms
        self.sizes = (math.prod(shape), self.outputs)
        self.body = own_network(self.name, shape, self.outputs)
        self.flatten()

    def initialise(self, seeds: Sequence[int], member: int = 0) -> "OwnQNetwork":
        self.body = own_network(self.name, self.shape, self.outputs, seeds[0], member)
        return self.flatten()

    def forward(
        self,
        obs: torch.Tensor,
        noise: torch.Tensor | None = None,
        fractions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = obs.to(self.flat.dtype)
        x = self.body(x * self.scale if self.scale != 1.0 else x)
        x = x.view(obs.shape[0], self.actions + self.dueling, self.atoms)
        return dueling(x) if self.dueling else x


# implicit quantiles (Dabney et al., 2018, IQN): the network is asked for the quantile at a fraction
# τ of the return's distribution, drawn anew each time, instead of giving N fixed ones:
#     Z_τ(s, a) = head(ψ(s) ⊙ φ(τ)),   φ(τ) = ReLU(W c(τ) + b),   c_i(τ) = cos(π i τ), i = 0 … n − 1


def cosine_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, n in (((1, 1), 1), ((5, 3), 4), ((2, 3, 4), 64)):
        yield torch.from_numpy(rng.random(lead).astype(dtype)), n


def cosines_reference(fractions, n):
    rows = [
        [math.cos(math.pi * i * float(fraction)) for i in range(n)]
        for fraction in fractions.flatten()
    ]
    return torch.tensor(rows, dtype=fractions.dtype).view(*fractions.shape[:-2], -1, n)


@pair(cosines_reference, cosine_examples, rtol=1e-5, atol=2e-5, dtypes=("float32", "float64"))
def cosines(fractions: torch.Tensor, n: int) -> torch.Tensor:
    """cos(π i τ) for i = 0 … n − 1, a row for each fraction: [..., B, N] -> [..., B·N, n]."""
    frequency = math.pi * torch.arange(n, dtype=fractions.dtype, device=fractions.device)
    return torch.cos(fractions[..., None] * frequency).flatten(-3, -2)


def join_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, b, n, f in (((), 1, 1, 1), ((), 4, 3, 5), ((2,), 3, 4, 6)):
        for items in (b, 1):
            yield tensor(rng, dtype, *lead, b, f), tensor(rng, dtype, *lead, items * n, f), n


def join_reference(features, sums, n):
    if features.dim() > 2:
        return torch.stack(
            [join_reference(*member, n) for member in zip(features, sums, strict=True)]
        )
    # of an item's rows among the sums
    first = [0 if len(sums) == n else b * n for b in range(len(features))]
    return torch.stack(
        [
            features[b] * sums[first[b] + i].clamp(min=0)
            for b in range(len(features))
            for i in range(n)
        ]
    )


@pair(
    join_reference,
    join_examples,
    dtypes=("float32", "float64"),
    gradients=(0, 1),
    rtol=1e-6,
    atol=1e-6,
)
def join(features: torch.Tensor, sums: torch.Tensor, n: int) -> torch.Tensor:
    """ψ ⊙ ReLU(sums) for every item and fraction: features [..., B, F], sums of the embedding's
    layer [..., B·N, F], or [..., N, F] where all items share the fractions -> [..., B·N, F]."""
    embedded = torch.relu(sums).unflatten(-2, (-1, n))
    return (features[..., None, :] * embedded).flatten(-3, -2)
