"""Values that were not observed: NaN in an observation.

They have no part in the likelihood, in a surprise or in R². The encoder needs a number in their
place, and reads the estimate by the observed values of the same row,

    x = μ + Λ·f + noise of variances ψ,   f ~ N(0, I),        E[x_missing | x_seen]

the factors of a factor analysis of the whole recording, found once by expectation maximisation over
the observed values only (Rubin and Thayer, 1982). Where the encoder is linear this is no
approximation: E[z | x_seen] = E[E[z | x] | x_seen] is its output for the filled row. Flags for the
missing values let it learn how certain it may be. Later rows are never used, so that a forecast
does not depend on what it predicts. No state is read from a row without any observation.

Readings of a gru. A fit takes errors of readings to be independent. Those of a gru are not: it
reads an observation with those before it, so that readings follow the state late, and dynamics
fitted to them turn and fade too slowly: by 3 % and 29 % where 60 neurons were counted in bins of 20
ms. So the fit takes the estimate by a single observation instead, one Newton step up its likelihood
from z,

    z + H⁻¹·s,    s = Cᵀ·m'·(y − m)/v,    H = Cᵀ·diag(m'²/v)·C

(m the mean, C·z + c through its link, v its variance), whose error is y's own, to first order,
wherever z was (the one-step estimate of Le Cam). It is far less certain than z.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tenfold.core.pairs import pair
from tenfold.domains.dynamics.dynamics import MOST_LOG_RATE, positive

if TYPE_CHECKING:
    from tenfold.domains.dynamics.agent import ExplorerAgent
    from tenfold.domains.dynamics.latent import LatentDecoder

FACTORS = 8  # at most: of what many channels have in common
ROUNDS = 50  # of expectation maximisation
MOST_ROWS = 20_000  # that factors are taken from, spread over the recording
LEAST_NOISE = 1e-4  # of a channel's variance, that factors never explain
# times the usual variance of a reading: one that is less sure is no state to fit dynamics to
UNSURE = 4.0
LEAST_INFORMATION = 0.01  # about a state, of the usual observation's: with less it is no reading


def all_missing(y: Any) -> Any:
    """Rows [..., Y] -> [...]: whether nothing was observed in them. Of arrays or tensors."""
    return torch.isnan(y).all(-1) if isinstance(y, torch.Tensor) else np.isnan(y).all(-1)


def is_constant(rows: np.ndarray) -> bool:
    """Whether every number of rows [..., Y] is always the same, where it was observed."""
    flat = rows.reshape(-1, rows.shape[-1])
    return not (np.fmax.reduce(flat, 0) > np.fmin.reduce(flat, 0)).any()


def observed_mean(rows: np.ndarray) -> np.ndarray:
    """Over rows [M, n, Y], of what was observed: [M, Y]; 0 where nothing was."""
    gone = np.isnan(rows)
    if not gone.any():
        return rows.mean(1)
    return np.where(gone, 0.0, rows).sum(1) / np.maximum((~gone).sum(1), 1)


# estimates of missing values


class Factors(NamedTuple):
    """Of every member: mean [M, Y], loading [M, Y, Q], and noise [M, Y], a variance."""

    mean: Any
    loading: Any
    noise: Any


def impute_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Rows without a gap, with some, with nothing but gaps."""
    for members, rows, size, factors in ((1, 1, 1, 1), (2, 7, 5, 2), (1, 30, 12, 8)):
        x = rng.normal(size=(members, rows, size))
        x[rng.random(x.shape) < 0.4] = np.nan
        x[:, -1] = np.nan
        arrays = (
            x,
            rng.normal(size=(members, size)),
            rng.normal(size=(members, size, factors)),
            rng.uniform(0.1, 1, (members, size)),
        )
        yield tuple(torch.from_numpy(part.astype(dtype)) for part in arrays)


def impute_reference(x, mean, loading, noise):
    """Row by row: μ_m + S_mo·S_oo⁻¹·(x_o − μ_o) with the covariance S = Λ·Λᵀ + diag ψ."""
    result = x.clone()
    for m in range(len(x)):
        covariance = loading[m] @ loading[m].T + torch.diag(noise[m])
        for r in range(x.shape[1]):
            gone = torch.isnan(x[m, r])
            known = ~gone
            away = torch.linalg.solve(covariance[known][:, known], (x[m, r] - mean[m])[known])
            result[m, r, gone] = mean[m, gone] + covariance[gone][:, known] @ away
    return result


@pair(impute_reference, impute_examples, rtol=1e-4, atol=1e-5, dtypes=("float32", "float64"))
def impute(
    x: torch.Tensor, mean: torch.Tensor, loading: torch.Tensor, noise: torch.Tensor
) -> torch.Tensor:
    """Rows [M, R, Y] with estimates by the observed values in place of NaN. By the factors: a
    system of Q for a row, (I + Λᵀ·W·Λ)·f = Λᵀ·W·(x − μ) with W = 1/ψ where it was observed; in
    float64, since channels without noise make it steep."""
    gone = torch.isnan(x)
    mean, loading, noise = (part.double() for part in (mean, loading, noise))
    away = torch.where(gone, 0.0, x.double() - mean.unsqueeze(1))
    factors = factor_posterior(away, ~gone, loading, noise)[0]
    expectation = mean.unsqueeze(1) + factors @ loading.mT
    return torch.where(gone, expectation.to(x), x)


def factor_posterior(
    away: torch.Tensor, known: torch.Tensor, loading: torch.Tensor, noise: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean [M, R, Q] and precision [M, R, Q, Q] of the factors of rows less their mean, 0 where
    they were not seen."""
    size = loading.shape[-1]
    certain = known / noise.unsqueeze(1)
    squares = (loading.unsqueeze(-1) * loading.unsqueeze(-2)).flatten(-2)  # [M, Y, Q²]
    precision = (certain @ squares).unflatten(-1, (size, size))
    precision = precision + torch.eye(size, dtype=precision.dtype, device=precision.device)
    right = (certain * away) @ loading
    return torch.linalg.solve(precision, right.unsqueeze(-1)).squeeze(-1), precision


def factor_analysis(x: np.ndarray) -> Factors:
    """Of rows [n, Y] with NaN where values are missing, for one member, without M in front."""
    x = x[:: -(-len(x) // MOST_ROWS)]
    observed = ~np.isnan(x)
    rows, size = x.shape
    count = np.maximum(observed.sum(0), 1)
    known = np.where(observed, x, 0.0)
    mean = known.sum(0) / count
    away = np.where(observed, x - mean, 0.0)
    spread = np.square(away).sum(0) / count
    spread = np.where(spread > 0, spread, 1.0)
    factors = max(min(FACTORS, size - 1), 1)
    _, values, axes = np.linalg.svd(away, full_matrices=False)
    loading = np.zeros((size, factors))
    count_found = min(factors, len(values))
    loading[:, :count_found] = axes[:count_found].T * values[:count_found] / np.sqrt(rows)
    noise = np.maximum(spread - np.square(loading).sum(1), 0.1 * spread)
    for _ in range(ROUNDS):
        arrays = (away, observed, loading, noise)
        f, precision = (
            part[0].numpy()
            for part in factor_posterior(
                *(torch.from_numpy(np.asarray(part))[None] for part in arrays)
            )
        )
        ones = np.concatenate((f, np.ones((rows, 1))), 1)
        second = ones[:, :, None] * ones[:, None]
        second[:, :-1, :-1] += np.linalg.inv(precision)
        # each channel by the rows in which it was seen
        gram = (observed.T.astype(float) @ second.reshape(rows, -1)).reshape(
            size, *second.shape[1:]
        )
        gram += LEAST_NOISE * np.eye(factors + 1)
        right = known.T @ ones
        weight = np.linalg.solve(gram, right[..., None])[..., 0]
        loading, mean = weight[:, :-1], weight[:, -1]
        # the mean of (x − w·(f, 1))² over what f may be
        square = np.square(known).sum(0) - 2 * (weight * right).sum(1)
        square += np.einsum("yi,yij,yj->y", weight, gram, weight)
        noise = np.maximum(square / count, LEAST_NOISE * spread)
        away = np.where(observed, x - mean, 0.0)
    return Factors(mean, loading, noise)


class Imputer(nn.Module):
    """Observations as an encoder reads them, with estimates in place of missing values. Poisson
    counts are read as log(1 + y)."""

    mean: torch.Tensor
    loading: torch.Tensor
    noise: torch.Tensor

    def __init__(self, members: int, size: int, counts: bool) -> None:
        super().__init__()
        self.counts = counts
        lead = (members, size)
        none = torch.zeros(*lead, max(min(FACTORS, size - 1), 1))
        for name, value in zip(
            Factors._fields, (torch.zeros(lead), none, torch.ones(lead)), strict=True
        ):
            self.register_buffer(name, value, persistent=False)

    @property
    def factors(self) -> Factors:
        return Factors(self.mean, self.loading, self.noise)

    def learn(self, factors: Factors) -> None:
        for name, value in factors._asdict().items():
            setattr(self, name, torch.as_tensor(value).to(self.mean))

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        """[M, …, Y], NaN where nothing was observed."""
        gone = torch.isnan(y)
        y = torch.where(gone, 0.0, y)
        y = torch.log1p(y) if self.counts else y
        if not gone.any():
            return y
        holes = torch.where(gone, torch.nan, y).flatten(1, -2)
        return impute(holes, *self.factors).view_as(y)


def observed_log_likelihood(
    y: torch.Tensor,
    mean: torch.Tensor,
    raw_variance: torch.Tensor | None,
    log_rate: torch.Tensor | None,
) -> torch.Tensor:
    """log p of the numbers of y [M, …, Y] that are not NaN: Gaussian with these variances [M, Y],
    or Poisson with the rate `mean` and its logarithm."""
    gone = torch.isnan(y)
    y, observed = torch.where(gone, 0.0, y), (~gone).to(mean)
    if raw_variance is None:
        assert log_rate is not None
        return (observed * (y * log_rate - mean)).sum(-1) - (observed * torch.lgamma(y + 1)).sum(-1)
    variance = positive(raw_variance).view(len(y), *[1] * (y.dim() - 2), -1)
    squares = (observed * (y - mean).square() / variance).sum(-1)
    return -0.5 * (squares + (observed * (math.log(2 * math.pi) + variance.log())).sum(-1))


# rows without observations


def forward_fill(rows: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Rows [n, …] with the last valid one in place of those that are `gone` [n]; at the start the
    first valid one."""
    if gone.all():
        return rows
    last = np.maximum.accumulate(np.where(gone, -1, np.arange(len(rows))))
    return rows[np.where(last < 0, int(np.argmin(gone)), last)]


def reliable_rows(y: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Which rows [n, Y] give a state to fit dynamics to, [n], by the variances [n, D] of what was
    read: those without a gap, and those that are about as sure as most are."""
    gap, none = np.isnan(y).any(-1), all_missing(y)
    usual = np.median(variance[~none], 0) if not none.all() else variance.mean(0)
    return ~gap | (~none & (variance <= UNSURE * usual).all(-1))


# states from single observations


@torch.no_grad()
def single_observation_states(
    agent: "ExplorerAgent", member: int, rows: np.ndarray, z: np.ndarray
) -> np.ndarray | None:
    """Of the window's rows [n] that were read as z [n, D]: the same states [n, D] from each
    observation alone, NaN where its information is too small. None where readings are such already,
    or the decoder has hidden layers."""
    network = agent.online
    if not network.encoder.units or network.decoder.kind == "mlp":
        return None
    y = agent.inner(agent.window.obs[:, rows])[member]
    y = torch.where(network.held_out, torch.nan, y).cpu().double().numpy()
    return newton_step(network.decoder, member, y, z)


def newton_step(decoder: "LatentDecoder", member: int, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """From readings z [n, D] to those of observations y [n, Y] alone, by a decoder without hidden
    layers."""
    loading, mean, slope = decoder_slopes(decoder, member, z)
    if decoder.raw_variance is None:
        variance = np.maximum(mean, np.finfo(np.float64).tiny)
    else:
        variance = positive(decoder.raw_variance[member]).detach().cpu().double().numpy()
    observed = ~np.isnan(y)
    score = np.where(observed, slope * (np.where(observed, y, 0.0) - mean) / variance, 0.0)
    weight = np.where(observed, np.square(slope) / variance, 0.0)
    information = np.einsum("ty,yi,yj->tij", weight, loading, loading)
    least = np.linalg.eigvalsh(information)[:, 0]
    floor = max(LEAST_INFORMATION * float(np.median(least)), np.finfo(np.float64).tiny)
    enough = least > floor
    information[~enough] = np.eye(z.shape[1])
    states = z + np.linalg.solve(information, (score @ loading)[..., None])[..., 0]
    states[~enough] = np.nan
    return states


def decoder_slopes(
    decoder: "LatentDecoder", member: int, z: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The loading C [Y, D], and the means of observations [n, Y] at states z with their derivatives
    by the input of the link function."""
    loading, below = np.eye(z.shape[1]), torch.from_numpy(z)
    if decoder.layers:
        layer: Any = decoder.layers[0]
        loading, bias = (
            part[member].detach().cpu().double().numpy() for part in (layer.weight, layer.bias)
        )
        below = torch.from_numpy(z @ loading.T + bias)
    if decoder.kind == "loglinear":
        below = below.clamp(max=MOST_LOG_RATE)
    mean = decoder.link(below).numpy()
    if decoder.kind == "loglinear":
        return loading, mean, mean
    return loading, mean, torch.sigmoid(below).numpy() if decoder.poisson else np.ones_like(mean)


# of several sessions


def embed_channels(y: np.ndarray, start: int, channels: int) -> np.ndarray:
    """A session's observations [..., Y] among those of all sessions, from channel `start` on."""
    wide = np.full((*y.shape[:-1], channels), np.nan)
    wide[..., start : start + y.shape[-1]] = y
    return wide


def means_only(x: np.ndarray) -> Factors:
    """Factors that give each channel's mean only: sessions have no row in common, by which one
    could be estimated from another."""
    mean = observed_mean(x[None])[0]
    return Factors(mean, np.zeros((len(mean), 1)), np.ones(len(mean)))


def member_factors(x: np.ndarray, several: bool) -> Factors:
    """Of every member's rows [M, n, Y]; of several sessions means alone."""
    factors = [means_only(rows) if several else factor_analysis(rows) for rows in x]
    return Factors(*(np.stack(part) for part in zip(*factors, strict=True)))
