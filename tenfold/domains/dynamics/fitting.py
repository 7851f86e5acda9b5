"""Training of a latent model: draws, schedule of β, Adam on the flat buffer, and fitting to given
sequences.

Every draw is a function of (seed, purpose, counter), so a member sees what its seed alone sees, and
what is to be saved are Adam's two moments and three counters. Posterior noise is drawn into new
memory each time: autograd holds it until the gradient is taken, and a second forward pass must not
write over it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.errors import ConfigError, UserError
from tenfold.core.random import Purpose, below, fill_normal, fill_uniform, key, normal_torch
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.elbo import Parts, draws_shape, elbo_parts
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.ops.adam import adam, clip

ADAM_EPS = 1e-8


def beta_at(config: LatentModel, update: int) -> float:
    """Weight of the KL terms in gradient step `update`, counted from 1.

    linear rises to 1 within beta_steps; cyclic does so in the first half of every beta_steps (Fu et
    al., 2019); warm-up leaves the KL terms out for beta_steps.
    """
    if config.beta == "linear":
        return min(update / config.beta_steps, 1.0)
    if config.beta == "cyclic":
        return min(2 * ((update - 1) % config.beta_steps + 1) / config.beta_steps, 1.0)
    return float(config.beta == "none" or update > config.beta_steps)


class Training:
    """What a model's training keeps between calls: Adam's moments [M, P] and how much was drawn."""

    def __init__(self, network: LatentNetwork, seeds: Sequence[int]) -> None:
        if len(seeds) != network.members:
            raise ConfigError(
                "seeds",
                f"has {len(seeds)} of them, and the model {network.members} members: give one for "
                "each.",
            )
        self.mean, self.square = torch.zeros_like(network.flat), torch.zeros_like(network.flat)
        self.updates = self.drawn = self.chosen = 0
        self.streams = {
            purpose: [key(seed, purpose) for seed in seeds]
            for purpose in (Purpose.POSTERIOR, Purpose.MASK, Purpose.SEQUENCE)
        }
        self.mask = np.zeros((len(seeds), 0))

    def state(self) -> dict[str, torch.Tensor]:
        return {
            "mean": self.mean,
            "square": self.square,
            "count": torch.tensor([self.updates, self.drawn, self.chosen]),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.mean.copy_(torch.as_tensor(state["mean"]))
        self.square.copy_(torch.as_tensor(state["square"]))
        self.updates, self.drawn, self.chosen = (int(count) for count in state["count"])

    def draw(
        self, network: LatentNetwork, batch: int, length: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Standard normal numbers [M, T, S, B, D] of one bound, and which observations are seen [M,
        B, T] (None: all)."""
        shape, flat = draws_shape(network, batch, length), network.flat
        size = int(np.prod(shape))
        streams = self.streams[Purpose.POSTERIOR]
        if flat.device.type == "cpu":
            numbers = np.empty(
                (len(streams), size), np.float64 if flat.dtype == torch.float64 else np.float32
            )
            for row, stream in zip(numbers, streams, strict=True):
                fill_normal(stream, self.drawn, row)
            normal = torch.from_numpy(numbers)
        else:
            normal = torch.stack(
                [normal_torch(stream, self.drawn, size, flat.device) for stream in streams]
            ).to(flat.dtype)
        seen = self.draw_seen(network, batch, length) if network.config.mask else None
        self.drawn += size
        return normal.view(-1, *shape), seen

    def draw_seen(self, network: LatentNetwork, batch: int, length: int) -> torch.Tensor:
        """Its numbers go into memory kept for them: only the comparison, which is new, is part of
        the forward pass."""
        if self.mask.shape[1] != batch * length:
            self.mask = np.empty((network.members, batch * length))
        for row, stream in zip(self.mask, self.streams[Purpose.MASK], strict=True):
            fill_uniform(stream, self.drawn, row)
        return (
            torch.from_numpy(self.mask >= network.config.mask)
            .to(network.flat)
            .view(-1, batch, length)
        )

    def choose(self, sequences: int, starts: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Which sequence and which first step, for each member: [M, B] each."""
        counter = self.chosen + np.arange(2 * batch)
        self.chosen += 2 * batch
        picked = [
            (below(stream, counter[:batch], sequences), below(stream, counter[batch:], starts))
            for stream in self.streams[Purpose.SEQUENCE]
        ]
        return tuple(torch.from_numpy(np.stack(part)) for part in zip(*picked, strict=True))  # type: ignore[return-value]


def update(
    network: LatentNetwork,
    training: Training,
    y: torch.Tensor,
    a: torch.Tensor,
    lr: float = 1e-3,
    clip_norm: float | None = 10.0,
) -> Parts:
    """One step of Adam up the bound of sequences y [M, B, T, Y] under actions a [M, B, T, A]; the
    bound's parts before it."""
    training.updates += 1
    network.flat_grad.zero_()
    parts = elbo_parts(network, y, a, *training.draw(network, y.shape[1], y.shape[2]))
    beta = beta_at(network.config, training.updates)
    # for each step of time: rates then fit any length
    loss = (beta * parts.divergence - parts.likelihood).sum() / y.shape[2]
    loss.backward()
    if clip_norm is not None:
        clip(network.flat_grad, clip_norm)
    adam(
        network.flat,
        network.flat_grad,
        training.mean,
        training.square,
        training.updates,
        lr,
        ADAM_EPS,
    )
    return Parts(*(part.detach() for part in parts))


def fit(
    network: LatentNetwork,
    training: Training,
    y: torch.Tensor,
    a: torch.Tensor,
    updates: int,
    batch: int = 8,
    length: int = 20,
    lr: float = 1e-3,
    clip_norm: float | None = 10.0,
) -> torch.Tensor:
    """`updates` gradient steps on pieces of `length` steps out of given sequences; the bound for
    each step of time before every gradient step, [updates, M].

    y [E, L, Y] and a [E, L, A] are E sequences for all members, or [M, E, L, …] for each its own.
    """
    y, a = as_sequences(network, y.to(network.flat), a.to(network.flat))
    sequences, steps = y.shape[1:3]
    length = min(length, steps)
    member = torch.arange(network.members, device=y.device)[:, None, None]
    time = torch.arange(length, device=y.device)
    bounds = []
    for _ in range(updates):
        which, start = (
            index.to(y.device) for index in training.choose(sequences, steps - length + 1, batch)
        )
        rows = (member, which[..., None], start[..., None] + time)
        parts = update(network, training, y[rows], a[rows], lr, clip_norm)
        bounds.append((parts.likelihood - parts.divergence) / length)
    return torch.stack(bounds) if bounds else y.new_zeros(0, network.members)


def as_sequences(
    network: LatentNetwork, y: torch.Tensor, a: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both with members in front; what cannot be fitted is refused."""
    y, a = (x.expand(network.members, *x.shape) if x.dim() == 3 else x for x in (y, a))
    for name, x, size in (
        ("observations", y, network.observations),
        ("actions", a, network.actions),
    ):
        if x.shape[-1] != size:
            raise UserError(
                f"The {name} have {x.shape[-1]} numbers a step, and the model was made for {size}."
            )
        if not torch.isfinite(x).all():
            raise UserError(
                f"The {name} contain NaN or infinity: cut the sequences there before fitting."
            )
    if y.shape[:3] != a.shape[:3] or y.shape[2] < 2:
        raise UserError(
            f"The observations are {y.shape[1]} sequences of {y.shape[2]} steps and the actions "
            f"{a.shape[1]} of {a.shape[2]}: both need the same numbers, and two steps or more."
        )
    return y, a
