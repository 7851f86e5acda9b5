"""What is believed of the hidden state, step by step: predict by the dynamics, correct by the
encoder.

Both say a Gaussian with independent numbers, and the belief after an observation is their product:
a prediction alone runs away from the state, an encoder alone forgets what was known before. There
is one call of the encoder for an observation; what a gru remembers is carried on.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.pairs import pair
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.ops.qlearning import tensor

Gaussian = tuple[torch.Tensor, torch.Tensor]  # mean and variance


def fuse_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for shape in ((1, 1), (3, 2), (4, 5)):
        one, other = tensor(rng, dtype, *shape), tensor(rng, dtype, *shape)
        yield one, tensor(rng, dtype, *shape).exp(), other, tensor(rng, dtype, *shape).exp()


def fuse_reference(mean, variance, other_mean, other_variance):
    """The product of two Gaussians: precisions add, and means count by their precision."""
    precision = 1 / variance + 1 / other_variance
    return (mean / variance + other_mean / other_variance) / precision, 1 / precision


@pair(
    fuse_reference,
    fuse_examples,
    rtol=1e-5,
    atol=1e-6,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2, 3),
)
def fuse(
    mean: torch.Tensor,
    variance: torch.Tensor,
    other_mean: torch.Tensor,
    other_variance: torch.Tensor,
) -> Gaussian:
    """The same by its gain, which also bears variances of 0."""
    gain = variance / (variance + other_variance)
    return torch.lerp(mean, other_mean, gain), variance * (1 - gain)


class Belief:
    """Mean and variance [M, D] of M members, and the encoder's state."""

    def __init__(self, network: LatentNetwork) -> None:
        self.network = network
        size = (network.members, network.config.latent)
        self.mean, self.variance = network.flat.new_zeros(size), network.flat.new_ones(size)
        units = network.encoder.units
        self.carried = network.flat.new_zeros(network.members, 1, units) if units else None
        self.encoded = 0  # calls of the encoder

    @torch.no_grad()
    def predict(self, action: torch.Tensor) -> None:
        """One step under actions [M, A]: V' = diag(J·V·Jᵀ) + what the dynamics add, the ensemble's
        disagreement included."""
        dynamics = self.network.dynamics
        z, a = self.mean[:, None], action[:, None]
        slope = dynamics.jacobian(
            *(x.unsqueeze(1).expand(-1, dynamics.models, -1, -1) for x in (z, a))
        ).mean(1)[:, 0]
        mean, added = dynamics.predict(z, a)
        spread = (slope.square() @ self.variance.unsqueeze(-1)).squeeze(-1)
        self.mean, self.variance = mean[:, 0], spread + added[:, 0]

    @torch.no_grad()
    def correct(self, y: torch.Tensor, begins: torch.Tensor) -> None:
        """By an observation [M, Y]; where an episode begins nothing was known before."""
        if self.carried is not None:
            self.carried = self.carried * ~begins[:, None, None]
        mean, variance, self.carried = self.network.encode(y[:, None], self.carried)
        self.encoded += 1
        fused = fuse(self.mean, self.variance, mean[:, 0], variance[:, 0])
        self.mean, self.variance = (
            torch.where(begins[:, None], own, both)
            for own, both in zip((mean[:, 0], variance[:, 0]), fused, strict=True)
        )

    def state(self) -> dict[str, torch.Tensor]:
        carried = {} if self.carried is None else {"carried": self.carried}
        return {"mean": self.mean, "variance": self.variance, **carried}

    def load_state(self, state: dict[str, Any]) -> None:
        for name in self.state():
            setattr(self, name, torch.as_tensor(state[name]).to(self.mean))
