"""The evidence bound of sequences, whose KL terms look 1 … K steps ahead.

    bound = Σ_t E_q log p(y_t | z_t) − β·divergence
    divergence = KL(q(z_0) ‖ N(0, I)) + Σ_{t ≥ 1} Σ_{k ≤ min(K, t)} w_tk E KL(q(z_t) ‖ p_k(· |
    z_{t−k}, a)),   z_{t−k} ~ q

p_k = N(mean rolled k steps, k·v): noise adds up along the way, and its stretching by the dynamics,
of order dt, is left out. (Noise drawn along the way instead would keep KL(q ‖ p_k) bounded too, but
is best explained by a v far too large: each drawn path is off by its own noise and by the world's.)
w_tk is decay^(k−1), normalised over the horizons that reach t, so that every state counts once;
with K = 1 this is the usual bound on log p(y_0 … y_{T−1}). a_t acts between y_t and y_{t+1}. An
ensemble counts by its mean. Horizons share one roll: K steps of all starts at once instead of a
roll for every horizon.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tenfold.core.pairs import pair
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.coordinated import likelihood
from tenfold.domains.dynamics.divergence import kl_variance
from tenfold.domains.dynamics.gapped import gapped_examples, gapped_parts, gapped_reference
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.ops.qlearning import tensor


class Windows(NamedTuple):
    """All pairs (start, horizon k) within a sequence of T, horizon by horizon: R = Σ_k (T − k) of
    them."""

    target: torch.Tensor  # [R] the time t that the window ends at
    weight: torch.Tensor  # [R] w_tk
    share: torch.Tensor  # [R] w_tk / k, of what is divided by the variance k·v
    total_share: torch.Tensor  # [T] its sum over the horizons that reach t
    log_horizons: float  # Σ w_tk log k
    horizons: int  # those that fit: min(K, T − 1)


@torch.inference_mode(False)  # whoever asks first: the table is to serve gradients too
def windows_of(
    length: int, steps: int, decay: float, device: torch.device, dtype: torch.dtype
) -> Windows:
    """The table itself, computed anew."""
    horizons = range(1, min(steps, length - 1) + 1)
    target = torch.cat([torch.arange(0), *(torch.arange(k, length) for k in horizons)])
    k = torch.cat([torch.arange(0), *(torch.full((length - k,), k) for k in horizons)])
    raw = decay ** (k - 1).double()
    totals = torch.zeros(length, dtype=torch.float64).index_add_(0, target, raw)
    weight = raw / totals[target]
    total_share = torch.zeros(length, dtype=torch.float64).index_add_(0, target, weight / k)
    logs = float((weight * k.double().log()).sum())
    weight, share, total_share = (x.to(device, dtype) for x in (weight, weight / k, total_share))
    return Windows(target.to(device), weight, share, total_share, logs, len(horizons))


windows = lru_cache(maxsize=64)(windows_of)  # constants: they depend on no parameter


def draws_shape(network: LatentNetwork, batch: int, length: int) -> tuple[int, ...]:
    """Of the standard normal numbers that one bound takes, for each member: [T, S, B, D]."""
    return length, network.config.samples, batch, network.config.latent


# references


def step_from(
    network: LatentNetwork, z: torch.Tensor, a: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of all models: z [M, N, B, D], the same action [M, B, A] for all."""
    return network.dynamics(z, a.unsqueeze(1).expand(-1, z.shape[1], -1, -1))


def start_divergence(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """KL(q(z_0) ‖ N(0, I)) from [M, T, B, D], mean over the batch: [M]."""
    first, none = mean[:, 0], torch.zeros_like(mean[:, 0])
    return kl_variance(first, variance[:, 0], none, none + 1).sum(-1).mean(-1)


def horizon_weights(t: int, steps: int, decay: float) -> list[float]:
    """w_t1, w_t2, …"""
    raw = [decay ** (k - 1) for k in range(1, min(steps, t) + 1)]
    return [w / sum(raw) for w in raw]


def loops_reference(network, y, a, normal, seen=None, beta=1.0):
    """Loops over samples s, starts t and horizons k; members, models and the batch stay
    together."""
    config, length = network.config, y.shape[2]
    mean, variance, _ = network.posterior(
        y.transpose(1, 2), None if seen is None else seen.transpose(1, 2)
    )
    bound = -beta * start_divergence(mean, variance)
    for s in range(config.samples):
        for t in range(length):
            z = mean[:, t] + variance[:, t].sqrt() * normal[:, t, s]
            bound = bound + network.decoder.log_likelihood(y[:, :, t], z).mean(-1) / config.samples
            z = z.unsqueeze(1).expand(-1, config.ensemble, -1, -1)
            for k in range(1, min(config.steps, length - 1 - t) + 1):
                z, spread = step_from(network, z, a[:, :, t + k - 1])
                apart = (
                    kl_variance(mean[:, None, t + k], variance[:, None, t + k], z, k * spread)
                    .sum(-1)
                    .mean((1, 2))
                )
                bound = (
                    bound
                    - beta
                    * horizon_weights(t + k, config.steps, config.decay)[k - 1]
                    * apart
                    / config.samples
                )
    return bound


def rerolled_reference(network, y, a, normal, seen=None, beta=1.0):
    """Samples and starts together; every horizon is rolled from its beginning."""
    config, length = network.config, y.shape[2]
    mean, variance, _ = network.posterior(
        y.transpose(1, 2), None if seen is None else seen.transpose(1, 2)
    )
    z0 = mean.unsqueeze(2) + variance.sqrt().unsqueeze(2) * normal  # [M, T, S, B, D]
    likelihood = network.decoder.log_likelihood(y.transpose(1, 2).unsqueeze(2), z0)
    bound = likelihood.mean((2, 3)).sum(1) - beta * start_divergence(mean, variance)
    actions = a.transpose(1, 2).unsqueeze(2).expand(-1, -1, config.samples, -1, -1)
    weights = windows(length, config.steps, config.decay, y.device, y.dtype).weight.split(
        [length - k for k in range(1, min(config.steps, length - 1) + 1)]
    )
    for k, weight in enumerate(weights, 1):
        starts = length - k
        shape = (len(y), config.ensemble, starts, *z0.shape[2:])
        z = spread = z0[:, None, :starts].expand(shape).flatten(2, 4)
        for j in range(k):
            z, spread = step_from(network, z, actions[:, j : j + starts].flatten(1, 3))
        apart = kl_variance(
            mean[:, None, k:, None],
            variance[:, None, k:, None],
            z.view(shape),
            k * spread[:, :, None, None],
        )
        bound = bound - beta * (apart.sum(-1).mean((1, 3, 4)) * weight).sum(-1)
    return bound


# the fast form


class Parts(NamedTuple):
    """Of the bound of a whole sequence, mean over the batch, [M] each: bound = likelihood −
    β·divergence."""

    likelihood: torch.Tensor
    divergence: torch.Tensor


def elbo_parts(
    network: LatentNetwork,
    y: torch.Tensor,
    a: torch.Tensor,
    normal: torch.Tensor,
    seen: torch.Tensor | None = None,
    kept: torch.Tensor | None = None,
) -> Parts:
    """Both parts of the bound, for logging; see `elbo`. `kept` [M, B, T, Y] is false where
    coordinated dropout hides a value from the encoder: only these count in the likelihood then."""
    if network.config.missing:
        return Parts(*gapped_parts(network, y, a, normal, seen, kept))
    config, length = network.config, y.shape[2]
    y = y.transpose(1, 2)  # time before batch: the starts that still fit are then the first rows
    seen, kept = (None if part is None else part.transpose(1, 2) for part in (seen, kept))
    mean, variance, _ = network.posterior(y, seen, kept=kept)
    z = torch.addcmul(mean.unsqueeze(2), variance.sqrt().unsqueeze(2), normal)  # [M, T, S, B, D]
    told = likelihood(network, y, z, kept)
    table = windows(length, config.steps, config.decay, y.device, y.dtype)
    # Σ_d ½ (log(kv'/v) + (v + (μ − μ')²)/kv' − 1), summed by parts: only the square depends on the
    # sample, and the weights of a state's horizons sum to 1
    spread = network.dynamics.variance()[:, :, 0]  # [M, N, D]
    own = (variance[:, 0] + mean[:, 0].square()).mean(1) - (variance.log() + 1).mean(2).sum(1)
    wide = torch.matmul(table.total_share, variance.mean(2)).unsqueeze(1)
    apart = (
        (squares_ahead(network, mean, z, a, table) + wide) / spread
        + (length - 1) * spread.log()
        + table.log_horizons
    )
    return Parts(told, 0.5 * (own + apart.mean(1)).sum(-1))


def squares_ahead(
    network: LatentNetwork, mean: torch.Tensor, z: torch.Tensor, a: torch.Tensor, table: Windows
) -> torch.Tensor:
    """Σ over all windows of (μ_t − rolled mean)²·w_tk/k, mean over samples and batch: [M, N, D]."""
    dynamics, (members, length, samples, batch, latent) = network.dynamics, z.shape
    lead = (members, dynamics.models)
    if not table.horizons:
        return z.new_zeros(*lead, latent)
    pushed = (
        dynamics.push(a.transpose(1, 2).flatten(1, 2).unsqueeze(1)).view(
            *lead, length, 1, batch, latent
        )
        * dynamics.dt
    )
    z = z.unsqueeze(1).expand(*lead, -1, -1, -1, -1)
    rolled = []
    for k in range(1, table.horizons + 1):
        z = z[:, :, : length - k]  # starts from which k steps fit
        drift = dynamics.drift(z.flatten(2, 4)).view(z.shape)
        z = torch.add(z, drift, alpha=dynamics.dt) + pushed[:, :, k - 1 : length - 1]
        rolled.append(z)
    apart = mean[:, table.target][:, None, :, None] - torch.cat(rolled, 2)
    weighted = torch.matmul(table.share, apart.square().view(*lead, len(table.share), -1))
    return weighted.view(*lead, samples * batch, latent).mean(2)


def elbo(
    network: LatentNetwork,
    y: torch.Tensor,
    a: torch.Tensor,
    normal: torch.Tensor,
    seen: torch.Tensor | None = None,
    beta: float = 1.0,
) -> torch.Tensor:
    """The bound for each member, [M]: of a whole sequence, mean over the batch.

    y [M, B, T, Y], a [M, B, T, A] (the last action is not used), `normal` [M, *draws_shape]
    standard normal numbers, `seen` [M, B, T] is 0 where an observation is hidden from the encoder.
    """
    parts = elbo_parts(network, y, a, normal, seen)
    return parts.likelihood - beta * parts.divergence


# as pairs


class Asked(nn.Module):
    """A function of a network as a module, whose parameters can be given."""

    def __init__(self, network: LatentNetwork, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, *inputs: Any) -> torch.Tensor:
        return self.function(self.network, *inputs)


def of_flat(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """function(network, …) as a function of (flat parameters, y, a, normal, seen, β, network)."""

    def call(flat: torch.Tensor, *given: Any) -> torch.Tensor:
        *inputs, network = given
        module = Asked(network, function)
        sizes = [p.numel() // network.members for p in module.parameters()]
        values = zip(module.named_parameters(), flat.split(sizes, -1), strict=True)
        parameters = {name: value.view(p.shape) for (name, p), value in values}
        return torch.func.functional_call(module, parameters, tuple(inputs))

    return call


def elbo_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Every kind of part; batch 1, one step of time, fewer steps of time than horizons, one
    horizon, several members."""
    kinds = (
        LatentModel(dynamics="linear", steps=1, samples=1),
        LatentModel(grid=4, ensemble=2, steps=3),
        LatentModel(dynamics="mlp", hidden=(7,), decoder="mlp", encoder="gru", samples=3, mask=0.3),
        LatentModel(grid=3, latent=3, decoder="loglinear", noise="poisson", ensemble=3, samples=2),
        LatentModel(decoder="identity", dynamics="linear", steps=7, decay=1.0),
    )
    for config in kinds:
        for members, batch, length in ((1, 1, 1), (1, 3, 4), (2, 1, 9)):
            observations = config.latent if config.decoder == "identity" else 5
            network = LatentNetwork(observations, 2, config, 0.1, members).to(getattr(torch, dtype))
            network.initialise(rng.integers(1000, size=members).tolist())
            y, a = (tensor(rng, dtype, members, batch, length, size) for size in (observations, 2))
            y = y.abs().round() if config.noise == "poisson" else y
            seen = (
                (tensor(rng, dtype, members, batch, length) > -0.5).to(y.dtype)
                if config.mask
                else None
            )
            yield (
                network.flat.clone(),
                y,
                a,
                tensor(rng, dtype, members, *draws_shape(network, batch, length)),
                seen,
                0.7,
                network,
            )


# sums of many terms
LOOSE = {"rtol": 1e-4, "atol": 1e-4, "dtypes": ("float32",), "gradients": (0, 1, 2)}
TIGHT = {"rtol": 1e-9, "atol": 1e-9, "dtypes": ("float64",), "gradients": (0, 1, 2)}
for options, label in ((LOOSE, ""), (TIGHT, ", float64")):
    for reference, words in (
        (rerolled_reference, "every horizon rolled anew"),
        (loops_reference, "loops over s, t, k"),
    ):
        name = f"nets.elbo (against {words}{label})"
        pair(of_flat(reference), elbo_examples, name=name, **options)(of_flat(elbo))
    name = f"nets.elbo (of what was observed{label})"
    pair(of_flat(gapped_reference), gapped_examples, name=name, **options)(of_flat(elbo))
