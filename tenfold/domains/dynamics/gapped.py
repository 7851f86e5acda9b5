"""The evidence bound where values were not observed.

Missing values have no part in the likelihood. Of a row in which nothing was observed no state is
read: windows neither start nor end there, they pass over it.

    divergence = Σ over states that no window reaches KL(q(z_t) ‖ N(0, I))
               + Σ over the others  Σ_k w_tk E KL(q(z_t) ‖ p_k(· | z_{t−k}, a))

w_tk is decay^(k−1) where row t − k was read, normalised over the horizons that reach t from a row
that was. A state with no row that was read among the K before it begins anew, as the first one
does. Where every row was read this is the bound of `elbo`; with K = 1 and gaps of single values it
is one on the log-likelihood of what was observed.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.coordinated import likelihood
from tenfold.domains.dynamics.divergence import kl_variance
from tenfold.domains.dynamics.missing import unread
from tenfold.ops.qlearning import tensor

if TYPE_CHECKING:
    from tenfold.domains.dynamics.latent import LatentNetwork


class Places(NamedTuple):
    """All pairs (start, horizon k) within a sequence, horizon by horizon, [R] each."""

    start: torch.Tensor
    target: torch.Tensor
    raw: torch.Tensor  # decay^(k−1)
    horizon: torch.Tensor  # k
    horizons: int


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # the table is to serve gradients too
def places(
    length: int, steps: int, decay: float, device: torch.device, dtype: torch.dtype
) -> Places:
    horizons = range(1, min(steps, length - 1) + 1)
    start = torch.cat([torch.arange(0), *(torch.arange(length - k) for k in horizons)])
    k = torch.cat([torch.arange(0), *(torch.full((length - k,), k) for k in horizons)])
    raw = decay ** (k - 1).double()
    return Places(
        start.to(device),
        (start + k).to(device),
        raw.to(device, dtype),
        k.to(device, dtype),
        len(horizons),
    )


# the reference


def gapped_reference(network, y, a, normal, seen=None, beta=1.0):
    """One sequence, sample, state and horizon after another."""
    config, (members, batch, length) = network.config, y.shape[:3]
    mean, variance, _ = network.posterior(
        y.transpose(1, 2), None if seen is None else seen.transpose(1, 2)
    )
    spread = network.dynamics.variance()[:, :, 0]
    bounds = []
    for m in range(members):
        bound = 0 * mean.sum()  # a function of the parameters, even where nothing was read
        for b in range(batch):
            there = [t for t in range(length) if not torch.isnan(y[m, b, t]).all()]
            for t in there:
                q = mean[m, t, b], variance[m, t, b]
                ahead = [k for k in range(1, config.steps + 1) if t - k in there]
                if not ahead:
                    none = torch.zeros_like(q[0])
                    bound = bound - beta * kl_variance(*q, none, none + 1).sum() / batch
                total = sum(config.decay ** (k - 1) for k in ahead)
                for s in range(config.samples):
                    z = q[0] + q[1].sqrt() * normal[m, t, s, b]
                    bound = (
                        bound + likelihood_of(network, m, y[m, b, t], z) / config.samples / batch
                    )
                    for k in ahead:
                        share = config.decay ** (k - 1) / total / config.samples / batch
                        first = (
                            mean[m, t - k, b]
                            + variance[m, t - k, b].sqrt() * normal[m, t - k, s, b]
                        )
                        rolled = rolled_alone(network, m, first, a[m, b, t - k : t])
                        apart = kl_variance(q[0], q[1], rolled, k * spread[m]).sum(-1).mean()
                        bound = bound - beta * share * apart
        bounds.append(bound)
    return torch.stack(bounds)


def rolled_alone(network, m, z, actions):
    """A state [D] of member m after these actions [k, A], by every model: [N, D]."""
    members, models = network.members, network.dynamics.models
    z = z.expand(members, models, 1, -1)
    for action in actions:
        z, _ = network.dynamics(z, action.expand(members, models, 1, -1))
    return z[m, :, 0]


def likelihood_of(network, m, y, z):
    """log p of the numbers of y [Y] that are there, given z [D], by torch's own distributions."""
    there = ~torch.isnan(y)
    mean = network.decoder.mean(z.expand(network.members, 1, -1))[m, 0][there]
    if network.decoder.raw_variance is None:
        return torch.distributions.Poisson(mean).log_prob(y[there]).sum()
    from tenfold.domains.dynamics.dynamics import positive

    scale = positive(network.decoder.raw_variance)[m][there].sqrt()
    return torch.distributions.Normal(mean, scale).log_prob(y[there]).sum()


# the fast form


def gapped_parts(
    network: "LatentNetwork",
    y: torch.Tensor,
    a: torch.Tensor,
    normal: torch.Tensor,
    seen: torch.Tensor | None = None,
    kept: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Likelihood and divergence [M] as `elbo_parts` has them; y [M, B, T, Y] is NaN where nothing
    was observed."""
    config, length = network.config, y.shape[2]
    y = y.transpose(1, 2)
    read = (~unread(y)).to(normal)  # [M, T, B]
    seen, kept = (None if part is None else part.transpose(1, 2) for part in (seen, kept))
    mean, variance, _ = network.posterior(y, seen, kept=kept)
    z = torch.addcmul(mean.unsqueeze(2), variance.sqrt().unsqueeze(2), normal)  # [M, T, S, B, D]
    told = likelihood(network, y, z, kept)
    table = places(length, config.steps, config.decay, y.device, mean.dtype)
    raw = table.raw[:, None] * read[:, table.start] * read[:, table.target]  # [M, R, B]
    totals = torch.zeros_like(read).index_add_(1, table.target, raw)
    weight = torch.where(raw > 0, raw / totals[:, table.target], 0.0)
    share = weight / table.horizon[:, None]
    reached = (totals > 0).to(read)
    alone = read - reached  # states that no window reaches
    own = (alone.unsqueeze(-1) * (variance + mean.square())).mean(2).sum(1)
    own = own - (read.unsqueeze(-1) * (variance.log() + 1)).mean(2).sum(1)  # [M, D]
    wide = torch.einsum("mrb,mrbd->md", share, variance[:, table.target]) / y.shape[2]
    logs = (weight * table.horizon.log()[:, None]).mean(2).sum(1)
    spread = network.dynamics.variance()[:, :, 0]  # [M, N, D]
    squares = squares_over_gaps(network, mean, z, a, table, share)
    apart = (
        (squares + wide.unsqueeze(1)) / spread
        + reached.mean(2).sum(1)[:, None, None] * spread.log()
        + logs[:, None, None]
    )
    return told, 0.5 * (own + apart.mean(1)).sum(-1)


def squares_over_gaps(
    network: "LatentNetwork",
    mean: torch.Tensor,
    z: torch.Tensor,
    a: torch.Tensor,
    table: Places,
    share: torch.Tensor,
) -> torch.Tensor:
    """Σ over all windows of (μ_t − rolled mean)²·w_tk/k, mean over samples and batch: [M, N, D]."""
    dynamics, (members, length, samples, batch, latent) = network.dynamics, z.shape
    lead = (members, dynamics.models)
    if not table.horizons:
        return z.new_zeros(*lead, latent)
    pushed = dynamics.push(a.transpose(1, 2).flatten(1, 2).unsqueeze(1))
    pushed = pushed.view(*lead, length, 1, batch, latent) * dynamics.dt
    z, rolled = z.unsqueeze(1).expand(*lead, -1, -1, -1, -1), []
    for k in range(1, table.horizons + 1):
        z = z[:, :, : length - k]  # starts from which k steps fit
        drift = dynamics.drift(z.flatten(2, 4)).view(z.shape)
        z = torch.add(z, drift, alpha=dynamics.dt) + pushed[:, :, k - 1 : length - 1]
        rolled.append(z)
    apart = mean[:, table.target][:, None, :, None] - torch.cat(rolled, 2)
    return torch.einsum("mrb,mnrsbd->mnd", share, apart.square()) / (samples * batch)


# as a pair


def gapped_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Every kind of part; values missing alone, rows missing alone and several together, more of
    them than there are horizons; nothing missing."""
    from tenfold.domains.dynamics.elbo import draws_shape
    from tenfold.domains.dynamics.latent import LatentNetwork

    kinds = (
        LatentModel(dynamics="linear", steps=1, samples=1, missing=True),
        LatentModel(grid=4, ensemble=2, steps=3, samples=2, missing=True),
        LatentModel(dynamics="mlp", hidden=(7,), encoder="gru", samples=1, mask=0.3, missing=True),
        LatentModel(grid=3, decoder="loglinear", noise="poisson", samples=2, missing=True),
    )
    for config in kinds:
        for members, batch, length, share in ((1, 1, 1, 0.2), (2, 2, 9, 0.3), (1, 2, 5, 0.0)):
            network = LatentNetwork(4, 2, config, 0.1, members).to(getattr(torch, dtype))
            network.initialise(rng.integers(1000, size=members).tolist())
            y, a = (tensor(rng, dtype, members, batch, length, size) for size in (4, 2))
            y = y.abs().round() if config.noise == "poisson" else y
            hidden = torch.from_numpy(rng.random(y.shape) < share)
            hidden |= torch.from_numpy(rng.random(y.shape[:-1]) < share)[..., None]
            if length > 6:
                hidden[0, 0, 2:6] = True
            y[hidden] = torch.nan
            flags = (tensor(rng, dtype, members, batch, length) > -0.5).to(y.dtype)
            normal = tensor(rng, dtype, members, *draws_shape(network, batch, length))
            yield network.flat.clone(), y, a, normal, flags if config.mask else None, 0.7, network
