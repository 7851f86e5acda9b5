"""The evidence bound of sequences, whose KL terms look 1 … K steps ahead.

    bound = Σ_t E_q log p(y_t | z_t) − β·divergence
    divergence = KL(q(z_0) ‖ N(0, I)) + Σ_{t ≥ 1} Σ_{k ≤ min(K, t)} w_tk E KL(q(z_t) ‖ p(· | z⁽ᵏ⁾_{t−1}))

z⁽ᵏ⁾_{t−1} is rolled k − 1 steps by the dynamics, noise and all, from a sample of q(z_{t−k}): one more step gives a Gaussian,
whose KL is closed. The p_k of the text books is the mean of these Gaussians, and KL(q ‖ mean) ≤ mean of KL(q ‖ ·), so sampling
the way there keeps it a bound. w_tk is decay^(k−1), normalised over the horizons that reach t, so every state counts once;
with K = 1 this is the usual bound on log p(y_0 … y_{T−1}). a_t acts between y_t and y_{t+1}. An ensemble counts by its mean.

Horizons are counted along the same roll: K − 1 more steps of all starts at once instead of a roll for every horizon.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tenfold.explorer_settings import LatentModel
from tenfold.nets.latent import LatentNetwork
from tenfold.ops.gaussian import kl_variance
from tenfold.ops.pairs import pair
from tenfold.ops.qlearning import tensor


class Windows(NamedTuple):
    """All pairs (start, horizon) within a sequence, horizon by horizon: R = Σ_k (T − k) of them."""

    target: torch.Tensor  # [R] the time t that the window ends at
    weight: torch.Tensor  # [R] w_tk
    horizons: int  # those that fit: min(K, T − 1)


def windows_of(length: int, steps: int, decay: float, device: torch.device, dtype: torch.dtype) -> Windows:
    """The table itself, computed anew."""
    horizons = min(steps, length - 1)
    raw = decay ** torch.arange(horizons, dtype=torch.float64)
    targets = [torch.arange(k, length) for k in range(1, horizons + 1)]
    total = torch.cumsum(raw, 0)  # of the horizons that reach a target
    weights = [raw[k] / total[torch.clamp(t - 1, max=horizons - 1)] for k, t in enumerate(targets)]
    if not horizons:
        return Windows(torch.zeros(0, dtype=torch.int64, device=device), torch.zeros(0, dtype=dtype, device=device), 0)
    return Windows(torch.cat(targets).to(device), torch.cat(weights).to(device, dtype), horizons)


windows = lru_cache(maxsize=64)(windows_of)  # constants: they depend on no parameter


def draws_shape(network: LatentNetwork, batch: int, length: int) -> tuple[int, ...]:
    """Of the standard normal numbers that one bound takes, for each member: [K, T, S, B, D]. Number 0 of K draws the
    posterior's samples, number k the noise of step k of the roll."""
    config = network.config
    return config.steps, length, config.samples, batch, config.latent


# references ---------------------------------------------------------------------------------------------------------------


def step_from(network: LatentNetwork, z: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of all models: z [M, N, B, D], the same action [M, B, A] for all."""
    return network.dynamics(z, a.unsqueeze(1).expand(-1, z.shape[1], -1, -1))


def loops_reference(network, y, a, normal, seen=None, beta=1.0):
    """Loops over samples s, starts t and horizons k; members, models and the batch stay together."""
    config, length = network.config, y.shape[2]
    mean, variance, _ = network.posterior(y.transpose(1, 2), None if seen is None else seen.transpose(1, 2))
    table = {(int(t), k): float(w) for (t, k), w in zip(window_list(length, config.steps),
             windows_of(length, config.steps, config.decay, y.device, torch.float64).weight, strict=True)}
    start = kl_variance(mean[:, 0], variance[:, 0], torch.zeros_like(mean[:, 0]), torch.ones_like(mean[:, 0]))
    bound = -beta * start.sum(-1).mean(-1)
    for s in range(config.samples):
        for t in range(length):
            z = mean[:, t] + variance[:, t].sqrt() * normal[:, 0, t, s]
            bound = bound + network.log_likelihood(y[:, :, t], z).mean(-1) / config.samples
            z = z.unsqueeze(1).expand(-1, config.ensemble, -1, -1)
            for k in range(1, min(config.steps, length - 1 - t) + 1):
                ahead, spread = step_from(network, z, a[:, :, t + k - 1])
                apart = kl_variance(mean[:, None, t + k], variance[:, None, t + k], ahead, spread).sum(-1).mean((1, 2))
                bound = bound - beta * table[t + k, k] * apart / config.samples
                if k < config.steps:
                    z = ahead + spread.sqrt() * normal[:, None, k, t, s]
    return bound


def window_list(length: int, steps: int) -> list[tuple[int, int]]:
    """(target, horizon) in the order of the table."""
    return [(t, k) for k in range(1, min(steps, length - 1) + 1) for t in range(k, length)]


def rerolled_reference(network, y, a, normal, seen=None, beta=1.0):
    """Samples and starts together; every horizon is rolled from its beginning."""
    config, length = network.config, y.shape[2]
    mean, variance, _ = network.posterior(y.transpose(1, 2), None if seen is None else seen.transpose(1, 2))
    z0 = mean.unsqueeze(2) + variance.sqrt().unsqueeze(2) * normal[:, 0]  # [M, T, S, B, D]
    seen_y = y.transpose(1, 2).unsqueeze(2).expand(-1, -1, config.samples, -1, -1)
    likelihood = network.log_likelihood(seen_y.flatten(1, 3), z0.flatten(1, 3)).view(z0.shape[:-1])
    start = kl_variance(mean[:, 0], variance[:, 0], torch.zeros_like(mean[:, 0]), torch.ones_like(mean[:, 0]))
    bound = likelihood.mean((2, 3)).sum(1) - beta * start.sum(-1).mean(-1)
    actions = a.transpose(1, 2).unsqueeze(2).expand(-1, -1, config.samples, -1, -1)
    weight = windows_of(length, config.steps, config.decay, y.device, y.dtype).weight
    done = 0
    for k in range(1, min(config.steps, length - 1) + 1):
        starts = length - k
        shape = (len(y), config.ensemble, starts, *z0.shape[2:])
        z = z0[:, None, :starts].expand(shape).flatten(2, 4)
        ahead = spread = z
        for j in range(1, k + 1):
            ahead, spread = step_from(network, z, actions[:, j - 1:j - 1 + starts].flatten(1, 3))
            if j < k:
                z = ahead + spread.sqrt() * normal[:, None, j, :starts].flatten(2, 4)
        apart = kl_variance(mean[:, None, k:, None], variance[:, None, k:, None], ahead.view(shape), spread[:, :, None, None])
        bound = bound - beta * (apart.sum(-1).mean((1, 3, 4)) * weight[done:done + starts]).sum(-1)
        done += starts
    return bound


# the fast form ------------------------------------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Of the bound of a whole sequence, mean over the batch, [M] each: bound = likelihood − β·divergence."""

    likelihood: torch.Tensor
    divergence: torch.Tensor


def elbo_parts(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, normal: torch.Tensor,
               seen: torch.Tensor | None = None) -> Parts:
    """Both parts of the bound, for logging; see `elbo`."""
    config, length = network.config, y.shape[2]
    y = y.transpose(1, 2)  # time before batch: the starts that still fit are then the first rows
    mean, variance, _ = network.posterior(y, None if seen is None else seen.transpose(1, 2))
    z = torch.addcmul(mean.unsqueeze(2), variance.sqrt().unsqueeze(2), normal[:, 0])  # [M, T, S, B, D]
    likelihood = network.decoder.log_likelihood(y.unsqueeze(2), z).mean((2, 3)).sum(1)
    table = windows(length, config.steps, config.decay, y.device, y.dtype)
    spread = network.dynamics.variance()[:, :, 0]  # [M, N, D]
    # Σ_d ½ (log(v'/v) + (v + (μ − μ')²)/v' − 1), summed by parts: only the square depends on sample and horizon, and the weights
    # of a state's horizons sum to 1
    own = (variance[:, 0] + mean[:, 0].square()).mean(1) - (variance.log() + 1).mean(2).sum(1)
    narrow = (squares_ahead(network, mean, z, a, normal, table) + variance[:, None, 1:].mean(3).sum(2)) / spread
    ahead = (narrow + (length - 1) * spread.log()).mean(1)
    return Parts(likelihood, 0.5 * (own + ahead).sum(-1))


def squares_ahead(network: LatentNetwork, mean: torch.Tensor, z: torch.Tensor, a: torch.Tensor, normal: torch.Tensor,
                  table: Windows) -> torch.Tensor:
    """Weighted sum over all windows of (μ_t − rolled mean)², mean over samples and batch: [M, N, D]."""
    dynamics, (members, length, samples, batch, latent) = network.dynamics, z.shape
    lead = (members, dynamics.models)
    if not table.horizons:
        return z.new_zeros(*lead, latent)
    pushed = dynamics.push(a.transpose(1, 2).flatten(1, 2).unsqueeze(1)).view(*lead, length, 1, batch, latent) * dynamics.dt
    noise = dynamics.variance().sqrt()[:, :, :, None, None]
    z = z[:, None, :-1].expand(*lead, -1, -1, -1, -1)
    rolled = []
    for k in range(1, table.horizons + 1):
        starts = length - k
        drift = dynamics.drift(z.flatten(2, 4)).view(z.shape)
        ahead = torch.add(z, drift, alpha=dynamics.dt) + pushed[:, :, k - 1:k - 1 + starts]
        rolled.append(ahead)
        if k < table.horizons:
            z = torch.addcmul(ahead[:, :, :-1], noise, normal[:, None, k, :starts - 1])
    apart = mean[:, table.target][:, None, :, None] - torch.cat(rolled, 2)
    weighted = torch.matmul(table.weight, apart.square().view(*lead, len(table.weight), -1))
    return weighted.view(*lead, samples * batch, latent).mean(2)


def elbo(network: LatentNetwork, y: torch.Tensor, a: torch.Tensor, normal: torch.Tensor, seen: torch.Tensor | None = None,
         beta: float = 1.0) -> torch.Tensor:
    """The bound for each member, [M]: of a whole sequence, mean over the batch.

    y [M, B, T, Y], a [M, B, T, A] (the last action is not used), `normal` [M, *draws_shape] standard normal numbers, `seen`
    [M, B, T] is 0 where an observation is hidden from the encoder.
    """
    parts = elbo_parts(network, y, a, normal, seen)
    return parts.likelihood - beta * parts.divergence


# as pairs -----------------------------------------------------------------------------------------------------------------


class WithParameters(nn.Module):
    """Calls a function of a network with the parameters given as one flat tensor, so that it can be differentiated by them."""

    def __init__(self, network: LatentNetwork, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, *inputs: Any) -> torch.Tensor:
        return self.function(self.network, *inputs)


def of_flat(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """function(network, …) as a function of (flat parameters, y, a, normal, seen, β, network)."""
    def call(flat: torch.Tensor, *given: Any) -> torch.Tensor:
        *inputs, network = given
        sizes = [p.numel() // network.members for p in network.parameters()]
        values = zip(network.named_parameters(prefix="network"), flat.split(sizes, -1), strict=True)
        parameters = {name: value.view(p.shape) for (name, p), value in values}
        return torch.func.functional_call(WithParameters(network, function), parameters, tuple(inputs))
    return call


def elbo_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Every kind of part; batch 1, one step of time, fewer steps of time than horizons, one horizon, several members."""
    kinds = (LatentModel(dynamics="linear", steps=1, samples=1), LatentModel(grid=4, ensemble=2, steps=3),
             LatentModel(dynamics="mlp", hidden=(7,), decoder="mlp", encoder="gru", samples=3, mask=0.3),
             LatentModel(grid=3, latent=3, decoder="loglinear", noise="poisson", ensemble=3, samples=2),
             LatentModel(decoder="identity", dynamics="linear", steps=7, decay=1.0))
    for config in kinds:
        for members, batch, length in ((1, 1, 1), (1, 3, 4), (2, 1, 9)):
            observations = config.latent if config.decoder == "identity" else 5
            network = LatentNetwork(observations, 2, config, 0.1, members).to(getattr(torch, dtype))
            network.initialise(rng.integers(1000, size=members).tolist())
            y, a = (tensor(rng, dtype, members, batch, length, size) for size in (observations, 2))
            y = y.abs().round() if config.noise == "poisson" else y
            seen = (tensor(rng, dtype, members, batch, length) > -0.5).to(y.dtype) if config.mask else None
            yield (network.flat.clone(), y, a, tensor(rng, dtype, members, *draws_shape(network, batch, length)), seen, 0.7,
                   network)


LOOSE = {"rtol": 1e-4, "atol": 1e-4, "dtypes": ("float32",), "gradients": (0, 1, 2)}  # sums of many terms
TIGHT = {"rtol": 1e-9, "atol": 1e-9, "dtypes": ("float64",), "gradients": (0, 1, 2)}
for options, label in ((LOOSE, ""), (TIGHT, ", float64")):
    pair(of_flat(rerolled_reference), elbo_examples, name=f"nets.elbo (against every horizon rolled anew{label})",
         **options)(of_flat(elbo))
    pair(of_flat(loops_reference), elbo_examples, name=f"nets.elbo (against loops over s, t, k{label})", **options)(of_flat(elbo))
