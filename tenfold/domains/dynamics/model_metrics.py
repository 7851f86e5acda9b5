"""Metrics of a model of a hidden system on validation recordings (`validation`).

The field's error is taken on a grid, in true coordinates, and weighted by how often recordings pass
there. Learned states are brought into true coordinates by the affine map that fits the recordings'
states best; it never sees the fields.

Spike counts are judged in bits per spike (Pillow et al., 2008; as in the Neural Latents Benchmark
of 2021):

    bits = Σ [log p(n | rate) − log p(n | mean rate of the neuron)] / (Σ n · log 2)        p Poisson

0 is as good as knowing every neuron's mean rate in the counts that are judged. Counts are predicted
for neurons that the encoder never reads (co-bps, co-smoothing), and for steps after the last one
read (fp-bps, forward prediction).
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import xlogy

from tenfold.core.random import Purpose, fill_normal, key
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.belief import fit_arx, forecasts, k_step_r2, repeated_r2
from tenfold.domains.dynamics.coordinates import align, field_error
from tenfold.domains.dynamics.elbo import draws_shape, elbo
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.validation import Recordings, Truth
from tenfold.runs.file_schema import NUMBER, WHOLE, Schema, filled

STEPS = 10  # horizons of R²
LAGS = 2  # of ARX
LEAST_RATE = 1e-9  # a rate of 0 would make one spike infinitely unlikely


class Metric(NamedTuple):
    """A number of each member [M], or where it has `horizons` several [M, K]; its column in a row
    of metrics has the mean over members, and `members` is the column of each member's own."""

    name: str
    members: str = ""
    horizons: bool = False
    optional: bool = True


METRICS = (
    Metric("field_error", "field_errors"),
    Metric("aligned"),
    Metric("instant_error", "instant_errors"),
    Metric("elbo", "elbos", optional=False),
    Metric("r2", "r2s", horizons=True, optional=False),
    Metric("fp_bps", horizons=True),
    Metric("session_bps", horizons=True),
    Metric("co_bps"),
    Metric("arx_r2", horizons=True),
    Metric("last_r2", horizons=True),
)


def columns() -> Schema:
    """Of a row of metrics."""
    schema: Schema = {"step": WHOLE, "score": NUMBER}
    for name, members, horizons, optional in METRICS:
        kind: Any = filled(NUMBER) if horizons else NUMBER
        schema[name + "?" * optional] = kind
        if members:
            schema[members + "?" * optional] = [kind] if horizons else filled(NUMBER)
    return schema


@dataclass(frozen=True)
class ModelMetrics:
    """Of each member: R² of observations 1 … K steps ahead [M, K], the bound for each step of time
    [M], and where the truth is known the field's error [M] and how much of the true states the
    alignment explains [M]; where it is one of continuous time, the error of the instantaneous field
    [M] too. R² [M, K] also of repeating the last value, and of ARX fitted to the same data as the
    model. Of counts bits per spike 1 … K steps ahead [M, K], of each of several sessions [M,
    sessions], and of held-out neurons [M]."""

    r2: np.ndarray
    elbo: np.ndarray
    field_error: np.ndarray | None = None
    aligned: np.ndarray | None = None
    arx_r2: np.ndarray | None = None
    last_r2: np.ndarray | None = None
    instant_error: np.ndarray | None = None
    fp_bps: np.ndarray | None = None
    session_bps: np.ndarray | None = None
    co_bps: np.ndarray | None = None

    @property
    def score(self) -> float:
        """By which the best checkpoint is chosen: the share of the field that is explained, 1 −
        error², or else R²; of counts bits per spike of what comes."""
        if self.field_error is not None:
            return float(np.mean(1 - self.field_error**2))
        return float(np.mean(self.r2 if self.fp_bps is None else self.fp_bps))

    def row(self) -> dict[str, Any]:
        """For metrics: means over members, and each member's own."""
        row: dict[str, Any] = {"score": self.score}
        for metric in METRICS:
            values = getattr(self, metric.name)
            if values is not None:
                row[metric.name] = values.mean(0).tolist()
                row |= {metric.members: values.tolist()} if metric.members else {}
        return row


@torch.no_grad()
def evaluate_model(agent: ExplorerAgent, recordings: Recordings, arx: bool = True) -> ModelMetrics:
    """Judges the agent's model, and where the truth is known gives it the alignment with true
    coordinates."""
    network, members = agent.online, agent.members
    y = agent.inner(np.broadcast_to(recordings.y, (members, *recordings.y.shape)))
    a = agent.inner_actions(recordings.a).expand(members, *recordings.a.shape)
    steps = min(STEPS, y.shape[2] - 1)
    shape = draws_shape(network, *y.shape[1:3])
    normal = fill_normal(key(0, Purpose.SELECT, 2), 0, np.empty(int(np.prod(shape)), np.float32))
    drawn = torch.from_numpy(normal).to(network.flat).view(shape)
    bound = elbo(network, y, a, drawn.expand(members, *drawn.shape)) / y.shape[2]
    metrics: dict[str, Any] = {
        "r2": k_step_r2(network, y, a, steps),
        "elbo": bound.cpu().double().numpy() + agent.units.log_density_of(recordings.y),
        "last_r2": np.stack([repeated_r2(one, steps) for one in y.cpu().double().numpy()]),
    }
    if agent.config.model.noise == "poisson":
        normals = drawn.expand(members, *drawn.shape)
        metrics |= spike_metrics(network, y, a, normals, steps, agent.sessions)
    if truth := recordings.truth:
        mean = network.posterior(y.transpose(1, 2))[0].transpose(1, 2).flatten(1, 2)
        states = truth.latent.reshape(-1, truth.latent.shape[-1])
        same = agent.config.model.decoder == "identity" and states.shape == mean.shape[1:]
        learned = mean.cpu().double().numpy()
        agent.maps = agent.output_maps if same else [align(one, states) for one in learned]
        metrics["field_error"] = field_errors(agent, truth)
        if truth.continuous:
            metrics["instant_error"] = field_errors(agent, truth, True)
        metrics["aligned"] = np.array([m.r2 for m in agent.maps])
    if arx and agent.window.ready and agent.window.length > LAGS and y.shape[2] - steps >= LAGS:
        metrics["arx_r2"] = np.stack([arx_of(agent, m, recordings, steps) for m in range(members)])
    return ModelMetrics(**metrics)


def field_errors(agent: ExplorerAgent, truth: Truth, instantaneous: bool = False) -> np.ndarray:
    """Of each member, [M]."""
    fields = agent.field(truth.points, true=True, instantaneous=instantaneous)
    every = fields.reshape(agent.members, *truth.field.shape)
    return np.array([field_error(one, truth.field, truth.weight) for one in every])


def arx_of(agent: ExplorerAgent, m: int, recordings: Recordings, steps: int) -> np.ndarray:
    """R² of ARX fitted to the pieces that member m's window can be cut into."""
    window, length = agent.window, agent.window.length
    made, gone = window.counters[m, 2], window.counters[m, 3]
    ends = window.ends[m, np.arange(gone, made, length) % window.capacity]
    rows = (ends[:, None] - np.arange(length)[::-1]) % window.capacity

    def inside(y: np.ndarray, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        every = np.broadcast_to(y, (agent.members, *y.shape))
        return agent.units.observations_in(every)[m], agent.units.actions_in(a)

    train, validation = (
        inside(window.obs[m, rows], window.action[m, rows]),
        inside(recordings.y, recordings.a),
    )

    def fill(rows: np.ndarray) -> np.ndarray:
        """Rows [E, T, Y] inside with estimates for missing values."""
        if not agent.config.model.missing:
            return rows
        every = torch.from_numpy(np.broadcast_to(rows, (agent.members, *rows.shape)).copy())
        filled = agent.online.fill(every.to(agent.online.flat))[m].cpu().double().numpy()
        filled = np.expm1(filled) if agent.config.model.noise == "poisson" else filled
        return np.where(np.isnan(rows), filled, rows)

    return fit_arx(*train, LAGS, fill).k_step_r2(*validation, steps)


# spike counts


def bits_per_spike(rates: Any, counts: Any) -> float:
    """Of counts [..., neurons] under rates of the same shape: expected counts in a bin, not spikes
    in a second. Counts that are NaN were not observed and do not count. 0 where there is no
    spike."""
    rate, count = np.asarray(rates, np.float64), np.asarray(counts, np.float64)
    if rate.shape != count.shape or not count.ndim:
        raise ValueError(
            f"Rates {rate.shape} and counts {count.shape} do not fit: give both as [..., neurons]."
        )
    known = ~np.isnan(count)
    if (count[known] < 0).any() or not np.isfinite(count[known]).all():
        raise ValueError("Counts must be 0 or more.")
    if not np.isfinite(rate[known]).all() or (rate[known] < 0).any():
        raise ValueError("Rates must be finite and 0 or more where there is a count.")
    n, rows = np.where(known, count, 0.0), tuple(range(count.ndim - 1))
    mean = n.sum(rows) / np.maximum(known.sum(rows), 1)
    spikes = n.sum()
    if not spikes:
        return 0.0
    # log n! is on both sides
    model, null = (
        np.where(known, xlogy(n, r) - r, 0.0).sum()
        for r in (np.where(known, np.maximum(rate, LEAST_RATE), 1.0), mean)
    )
    return float((model - null) / (spikes * np.log(2)))


def read_rates(network: LatentNetwork, y: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    """Expected counts [M, B, T, Y] at the moments of y [M, B, T, Y] that the encoder reads: the
    mean over posterior states, drawn by `normal` [M, T, S, B, D]."""
    mean, variance, _ = network.posterior(y.transpose(1, 2))
    z = mean.unsqueeze(2) + variance.sqrt().unsqueeze(2) * normal
    rates = network.decode(z.flatten(1, 3)).view(*z.shape[:-1], -1).mean(2)
    return rates.transpose(1, 2)


@torch.no_grad()
def spike_metrics(
    network: LatentNetwork,
    y: torch.Tensor,
    a: torch.Tensor,
    normal: torch.Tensor,
    steps: int,
    sessions: tuple[int, ...] = (),
) -> dict[str, np.ndarray]:
    """Of counts y [M, B, T, Y] under actions a [M, B, T, A]: fp-bps 1 … steps ahead [M, steps], of
    each session [M, sessions] where there are several, and co-bps [M] where neurons are held
    out."""
    ahead = forecasts(network, y, a[:, :, :-1], steps).cpu().double().numpy()  # [M, B, S, K, Y]
    later = y[:, :, 1:].unfold(2, steps, 1).movedim(-1, 3).cpu().double().numpy()
    later, ahead = (part[:, :, : min(ahead.shape[2], later.shape[2])] for part in (later, ahead))
    pairs = [*zip(ahead, later, strict=True)]
    spans = [*pairwise(np.cumsum((0, *sessions)))]
    metrics: dict[str, Any] = {
        "fp_bps": [[bits(r[:, :, k], n[:, :, k]) for k in range(steps)] for r, n in pairs]
    }
    if sessions:
        by_session = [[bits(r[..., i:j], n[..., i:j]) for i, j in spans] for r, n in pairs]
        metrics["session_bps"] = by_session
    held_out = network.held_out.cpu().numpy()
    if held_out.any():
        rates, counts = (
            x[..., held_out].cpu().double().numpy() for x in (read_rates(network, y, normal), y)
        )
        metrics["co_bps"] = [bits(*pair) for pair in zip(rates, counts, strict=True)]
    return {name: np.array(values) for name, values in metrics.items()}


def bits(rates: np.ndarray, counts: np.ndarray) -> float:
    """`bits_per_spike` of a model whose rates may not be finite, which gets a very low value."""
    return bits_per_spike(np.nan_to_num(rates, nan=1e9, posinf=1e9), counts)
