"""The evidence lower bound (ELBO) of sequences, with KL terms that look 1 … K steps ahead.

    bound = Σ_t E_q log p(y_t | z_t) − β·divergence
    divergence = Σ over states that no window reaches KL(q(z_t) ‖ N(0, I))
               + Σ over the others Σ_{k ≤ K} w_tk E KL(q(z_t) ‖ p_k(· | z_{t−k}, a)),   z_{t−k} ~ q

p_k = N(mean rolled k steps, k·v): noise adds up along the way; its stretching by the dynamics, of
order dt, is left out. (Drawing noise along the way would keep KL(q ‖ p_k) bounded too, but favours
a v far too large: each path is off by its own noise and by the system's.) w_tk is decay^(k−1),
normalised over the horizons that reach t, so that every state counts once; K = 1 is the usual bound
on log p(y_0 … y_{T−1}). a_t acts between y_t and y_{t+1}. An ensemble counts by its mean.

Values that were not observed (NaN) have no part in the likelihood. No state is read from a row
without any observation: windows neither start nor end there, they pass over it, and weights are
normalised over the remaining ones. Only states without an observed row among the K before them, as
the first of a sequence, are compared with N(0, I). All horizons share one roll of K steps from all
starts at once.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal, Poisson, kl_divergence

from tenfold.core.pairs import pair
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import positive
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.missing import all_missing
from tenfold.ops.gaussian import EQUAL, PAIRED
from tenfold.ops.qlearning import tensor

# the divergence of two Gaussians


def variance_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for mean, log_std, new_mean, new_log_std in PAIRED(rng, dtype):
        yield mean, log_std.exp(), new_mean, new_log_std.exp()


def kl_variance_reference(mean, variance, new_mean, new_variance):
    return kl_divergence(Normal(mean, variance.sqrt()), Normal(new_mean, new_variance.sqrt()))


@pair(kl_variance_reference, variance_examples, gradients=(0, 1, 2, 3), **EQUAL)
def kl_variance(
    mean: torch.Tensor, variance: torch.Tensor, new_mean: torch.Tensor, new_variance: torch.Tensor
) -> torch.Tensor:
    """KL(N(μ, v) ‖ N(μ′, v′)) = ½ (log(v′/v) + (v + (μ − μ′)²)/v′ − 1). All broadcast."""
    return 0.5 * (
        (new_variance / variance).log() + (variance + (mean - new_mean).square()) / new_variance - 1
    )


# windows


class Windows(NamedTuple):
    """All pairs (start, horizon k) within a sequence of T, horizon by horizon: R = Σ_k (T − k) of
    them. The weights are those of a sequence in which every row was observed."""

    start: torch.Tensor  # [R]
    target: torch.Tensor  # [R] the time t that the window ends at
    horizon: torch.Tensor  # [R] k
    raw: torch.Tensor  # [R] decay^(k−1)
    weight: torch.Tensor  # [R] w_tk
    share: torch.Tensor  # [R] w_tk / k, of what is divided by the variance k·v
    total_share: torch.Tensor  # [T] its sum over the horizons that reach t
    log_horizons: float  # Σ w_tk log k
    horizons: int  # those that fit: min(K, T − 1)


@torch.inference_mode(False)  # whoever calls first: the table must serve gradients too
def windows_of(
    length: int, steps: int, decay: float, device: torch.device, dtype: torch.dtype
) -> Windows:
    """Computes the table; `windows` caches it."""
    horizons = range(1, min(steps, length - 1) + 1)
    start = torch.cat([torch.arange(0), *(torch.arange(length - k) for k in horizons)])
    k = torch.cat([torch.arange(0), *(torch.full((length - k,), k) for k in horizons)])
    raw = decay ** (k - 1).double()
    totals = torch.zeros(length, dtype=torch.float64).index_add_(0, start + k, raw)
    weight = raw / totals[start + k]
    total_share = torch.zeros(length, dtype=torch.float64).index_add_(0, start + k, weight / k)
    logs = float((weight * k.double().log()).sum())
    floats: Any = [x.to(device, dtype) for x in (k, raw, weight, weight / k, total_share)]
    return Windows._make((start.to(device), (start + k).to(device), *floats, logs, len(horizons)))


windows = lru_cache(maxsize=64)(windows_of)  # constants: they depend on no parameter


def draws_shape(network: LatentNetwork, batch: int, length: int) -> tuple[int, ...]:
    """Shape of the standard normal numbers that one bound takes, for each member: [T, S, B, D]."""
    return length, network.config.samples, batch, network.config.latent


# the bound


class BoundTerms(NamedTuple):
    """Terms of the bound of a whole sequence, mean over the batch, [M] each: bound = likelihood −
    β·divergence."""

    likelihood: torch.Tensor
    divergence: torch.Tensor


def elbo_parts(
    network: LatentNetwork,
    y: torch.Tensor,
    a: torch.Tensor,
    normal: torch.Tensor,
    visible: torch.Tensor | None = None,
    kept: torch.Tensor | None = None,
) -> BoundTerms:
    """Both terms of the bound, for logging; see `elbo`. `kept` [M, B, T, Y] is false where
    coordinated dropout hides a value from the encoder: only these count in the likelihood then,
    weighed as all values would be."""
    y = y.transpose(1, 2)  # time before batch: the starts that still fit are then the first rows
    visible, kept = (None if x is None else x.transpose(1, 2) for x in (visible, kept))
    mean, variance, _ = network.posterior(y, visible, kept=kept)
    z = torch.addcmul(mean.unsqueeze(2), variance.sqrt().unsqueeze(2), normal)  # [M, T, S, B, D]
    target = y if kept is None else torch.where(kept, torch.nan, y)
    likelihood = network.decoder.log_likelihood(target.unsqueeze(2), z).mean((2, 3)).sum(1)
    if kept is not None:
        likelihood = likelihood / network.config.coordinated_dropout
    return BoundTerms(likelihood, divergence(network, y, mean, variance, z, a))


def divergence(
    network: LatentNetwork,
    y: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    z: torch.Tensor,
    a: torch.Tensor,
) -> torch.Tensor:
    """The KL terms [M] of rows y and posteriors [M, T, B, …], with samples z [M, T, S, B, D].

    Σ_d ½ (log(kv'/v) + (v + (μ − μ')²)/kv' − 1), summed term by term: only the square depends on
    the sample, and the weights of a state's horizons sum to 1.
    """
    config, (length, samples, batch, latent) = network.config, z.shape[1:]
    table = windows(length, config.steps, config.decay, y.device, mean.dtype)
    spread = network.dynamics.variance()[:, :, 0]  # [M, N, D]
    if config.missing:
        read = (~all_missing(y)).to(mean)  # [M, T, B]
        raw = table.raw[:, None] * read[:, table.start] * read[:, table.target]  # [M, R, B]
        totals = torch.zeros_like(read).index_add_(1, table.target, raw)
        weight = torch.where(raw > 0, raw / totals[:, table.target], 0.0)
        share = weight / table.horizon[:, None]
        reached = (totals > 0).to(read)
        entropy = ((read - reached).unsqueeze(-1) * (variance + mean.square())).mean(2).sum(1)
        entropy = entropy - (read.unsqueeze(-1) * (variance.log() + 1)).mean(2).sum(1)  # [M, D]
        wide = torch.einsum("mrb,mrbd->md", share, variance[:, table.target]) / batch
        logs: Any = (weight * table.horizon.log()[:, None]).mean(2).sum(1)[:, None, None]
        count: Any = reached.mean(2).sum(1)[:, None, None]  # of states that windows reach
        squares = squares_ahead(network, mean, z, a, table)
        rolled = torch.einsum("mrb,mnrsbd->mnd", share, squares) / (samples * batch)
    else:
        entropy = (variance[:, 0] + mean[:, 0].square()).mean(1) - (variance.log() + 1).mean(2).sum(
            1
        )
        wide = torch.matmul(table.total_share, variance.mean(2))
        count, logs = length - 1, table.log_horizons
        squares = squares_ahead(network, mean, z, a, table)
        weighted = torch.matmul(table.share, squares.flatten(3))
        rolled = weighted.view(*squares.shape[:2], samples * batch, latent).mean(2)
    ahead = (rolled + wide.unsqueeze(1)) / spread + count * spread.log() + logs
    return 0.5 * (entropy + ahead.mean(1)).sum(-1)


def squares_ahead(
    network: LatentNetwork, mean: torch.Tensor, z: torch.Tensor, a: torch.Tensor, table: Windows
) -> torch.Tensor:
    """(μ_t − mean rolled from z_{t−k})² of every window, [M, N, R, S, B, D]."""
    dynamics, (members, length, samples, batch, latent) = network.dynamics, z.shape
    lead = (members, dynamics.models)
    if not table.horizons:
        return z.new_zeros(*lead, 0, samples, batch, latent)
    push = dynamics.push(a.transpose(1, 2).flatten(1, 2).unsqueeze(1))
    push = push.view(*lead, length, 1, batch, latent) * dynamics.dt
    z, rolled = z.unsqueeze(1).expand(*lead, -1, -1, -1, -1), []
    for k in range(1, table.horizons + 1):
        z = z[:, :, : length - k]  # starts from which k steps fit
        drift = dynamics.drift(z.flatten(2, 4)).view(z.shape)
        z = torch.add(z, drift, alpha=dynamics.dt) + push[:, :, k - 1 : length - 1]
        rolled.append(z)
    return (mean[:, table.target][:, None, :, None] - torch.cat(rolled, 2)).square()


def elbo(
    network: LatentNetwork,
    y: torch.Tensor,
    a: torch.Tensor,
    normal: torch.Tensor,
    visible: torch.Tensor | None = None,
    beta: float = 1.0,
) -> torch.Tensor:
    """The bound for each member, [M]: of a whole sequence, mean over the batch.

    y [M, B, T, Y], a [M, B, T, A] (the last action is not used), `normal` [M, *draws_shape]
    standard normal numbers, `visible` [M, B, T] is 0 where an observation is hidden from the
    encoder.
    """
    terms = elbo_parts(network, y, a, normal, visible)
    return terms.likelihood - beta * terms.divergence


# the reference


def elbo_reference(network, y, a, normal, visible=None, beta=1.0):
    """One sequence, state, sample and horizon after another."""
    config, (members, batch, length) = network.config, y.shape[:3]
    mean, variance, _ = network.posterior(
        y.transpose(1, 2), None if visible is None else visible.transpose(1, 2)
    )
    spread = network.dynamics.variance()[:, :, 0]
    bounds = []
    for m in range(members):
        bound = 0 * mean.sum()  # a function of the parameters, even where nothing was read
        for b in range(batch):
            read = [t for t in range(length) if not torch.isnan(y[m, b, t]).all()]
            for t in read:
                q = mean[m, t, b], variance[m, t, b]
                ahead = [k for k in range(1, config.steps + 1) if t - k in read]
                if not ahead:
                    none = torch.zeros_like(q[0])
                    bound = bound - beta * kl_variance(*q, none, none + 1).sum() / batch
                total = sum(config.decay ** (k - 1) for k in ahead)
                for s in range(config.samples):
                    z = q[0] + q[1].sqrt() * normal[m, t, s, b]
                    density = log_density_reference(network, m, y[m, b, t], z)
                    bound = bound + density / config.samples / batch
                    for k in ahead:
                        share = config.decay ** (k - 1) / total / config.samples / batch
                        deviation = variance[m, t - k, b].sqrt()
                        z = mean[m, t - k, b] + deviation * normal[m, t - k, s, b]
                        z = z.expand(members, config.ensemble, 1, -1)
                        for action in a[m, b, t - k : t]:
                            z, _ = network.dynamics(z, action.expand(*z.shape[:3], -1))
                        kl = kl_variance(*q, z[m, :, 0], k * spread[m]).sum(-1).mean()
                        bound = bound - beta * share * kl
        bounds.append(bound)
    return torch.stack(bounds)


def log_density_reference(network, m, y, z):
    """log p of the observed numbers of y [Y] given z [D], by torch's own distributions."""
    observed = ~torch.isnan(y)
    mean = network.decoder.mean(z.expand(network.members, 1, -1))[m, 0][observed]
    if network.decoder.raw_variance is None:
        return Poisson(mean).log_prob(y[observed]).sum()
    scale = positive(network.decoder.raw_variance)[m][observed].sqrt()
    return Normal(mean, scale).log_prob(y[observed]).sum()


# as pairs


class BoundModule(nn.Module):
    """A function of a network as a module, so that its parameters can be replaced."""

    def __init__(self, network: LatentNetwork, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.network, self.function = network, function

    def forward(self, *inputs: Any) -> torch.Tensor:
        return self.function(self.network, *inputs)


def on_flat_parameters(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """function(network, …) as a function of (flat parameters, y, a, normal, visible, β,
    network)."""

    def call(flat: torch.Tensor, *arguments: Any) -> torch.Tensor:
        *inputs, network = arguments
        module = BoundModule(network, function)
        sizes = [p.numel() // network.members for p in module.parameters()]
        values = zip(module.named_parameters(), flat.split(sizes, -1), strict=True)
        parameters = {name: value.view(p.shape) for (name, p), value in values}
        return torch.func.functional_call(module, parameters, tuple(inputs))

    return call


KINDS = (
    LatentModel(dynamics="linear", steps=1, samples=1),
    LatentModel(grid=4, ensemble=2, steps=3),
    LatentModel(dynamics="mlp", hidden=(7,), decoder="mlp", encoder="gru", samples=3, mask=0.3),
    LatentModel(grid=3, latent=3, decoder="loglinear", noise="poisson", ensemble=3, samples=2),
    LatentModel(decoder="identity", dynamics="linear", steps=7, decay=1.0),
    LatentModel(dynamics="linear", steps=1, samples=1, missing=True),
    LatentModel(grid=4, ensemble=2, steps=3, samples=2, missing=True),
    LatentModel(dynamics="mlp", hidden=(7,), encoder="gru", samples=1, mask=0.3, missing=True),
    LatentModel(grid=3, decoder="loglinear", noise="poisson", samples=2, missing=True),
)
SHAPES = (1, 1, 1), (1, 3, 4), (2, 1, 9)  # members, batch, steps of time
GAPPED = (1, 1, 1, 0.2), (2, 2, 9, 0.3), (1, 2, 5, 0.0)  # … and the share that is missing


def elbo_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Every kind of network; batch 1, one step of time, fewer steps of time than horizons, several
    members; values and rows missing, more rows in a row than there are horizons."""
    for config in KINDS:
        for members, batch, length, *missing in GAPPED if config.missing else SHAPES:
            size = config.latent if config.decoder == "identity" else 5
            network = LatentNetwork(size, 2, config, 0.1, members).to(getattr(torch, dtype))
            network.initialise(rng.integers(1000, size=members).tolist())
            y, a = (tensor(rng, dtype, members, batch, length, width) for width in (size, 2))
            y = y.abs().round() if config.noise == "poisson" else y
            for share in missing:
                gone = rng.random(y.shape) < share
                gone |= rng.random(y.shape[:-1])[..., None] < share
                gone[0, 0, 2:6] |= length > 6
                y[torch.from_numpy(gone)] = torch.nan
            visible = (tensor(rng, dtype, members, batch, length) > -0.5).to(y.dtype)
            normal = tensor(rng, dtype, members, *draws_shape(network, batch, length))
            hidden = visible if config.mask else None
            yield network.flat.clone(), y, a, normal, hidden, 0.7, network


for label, dtype, tolerance in (("", "float32", 1e-4), (", float64", "float64", 1e-9)):
    pair(
        on_flat_parameters(elbo_reference),
        elbo_examples,
        name=f"nets.elbo (one window after another{label})",
        rtol=tolerance,
        atol=tolerance,
        dtypes=(dtype,),
        gradients=(0, 1, 2),
    )(on_flat_parameters(elbo))
