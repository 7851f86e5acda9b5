"""iCEM: the best sequence of actions by sampling, keeping the best and sampling around them
(Pinneri et al., 2020).

Samples are coloured: their power over frequencies falls as f^(−colour), so that neighbouring
actions agree and a plan goes somewhere. The best of a round stay in the race of the next one with
the score they have, the best of a plan start the next plan shifted by a step, and so does the mean.
Mean and deviation keep a share `momentum` of the old. Every draw has an address (member's stream,
plan, round, sample): a plan is a function of what `state()` saves.
"""

from collections.abc import Callable, Iterator
from functools import cache
from math import ceil
from typing import Any

import numpy as np

from tenfold.core.errors import ConfigError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, fill_normal, key
from tenfold.domains.dynamics.config import Planner
from tenfold.domains.dynamics.information import PlannerState

WIDTH = 0.25  # the first round's standard deviation, as a share of the action's range
Score = Callable[[np.ndarray], np.ndarray]  # actions [M, B, H, A] -> what they are worth [M, B]


@cache
def colouring(horizon: int, colour: float) -> np.ndarray:
    """[H, H]: times white noise it has the spectrum f^(−colour) and variance 1 at every step. f
    = 0 counts as the lowest frequency above it (a constant push is worth trying, and has to be
    finite)."""
    waves = np.fft.rfft(np.eye(horizon))  # of unit impulses
    frequency = np.maximum(np.arange(horizon // 2 + 1), 1.0)
    mixed = np.fft.irfft(waves * frequency ** (-colour / 2), horizon)
    return np.ascontiguousarray(mixed / np.sqrt(np.square(mixed).sum(0)))


class Icem(PlannerState):
    """The search of M members at once, and what it carries from plan to plan: mean [M, H, A], the
    kept elites [M, kept, H, A] and the number of plans."""

    arrays, counter = ("mean", "elites"), "plans"
    depends_on = "members, horizon, elites and keep"

    def __init__(
        self, settings: Planner, streams: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> None:
        settings.check()
        members, controls = len(streams), len(low)
        self.settings, self.streams, self.plans = settings, streams.astype(np.uint64), 0
        self.low, self.high = low.astype(np.float32), high.astype(np.float32)
        if not (np.isfinite(self.low) & np.isfinite(self.high) & (self.low < self.high)).all():
            raise ConfigError(
                "",
                f"Actions from {low} to {high} cannot be searched: every bound must be finite, low "
                "below high.",
            )
        self.kept = ceil(settings.keep * settings.elites)
        self.noise = colouring(settings.horizon, settings.colour)
        shape = (settings.horizon, controls)
        self.mean = np.zeros((members, *shape), np.float32)
        self.mean[:] = (self.low + self.high) / 2
        self.elites = np.zeros((members, self.kept, *shape), np.float32)
        self.tried = np.empty((members, settings.samples, *shape), np.float32)

    def plan(self, score: Score) -> np.ndarray:
        """The next actions [M, A]; `score` judges sequences [M, B, H, A] of all members at once."""
        s, first = self.settings, (self.plans * self.settings.iterations)
        deviation = np.empty_like(self.mean)
        deviation[:] = (self.high - self.low) * WIDTH
        elites = np.empty((len(self.mean), s.elites, *self.mean.shape[1:]), np.float32)
        scores = np.empty((len(self.mean), s.elites))
        for i in range(s.iterations):
            candidates(
                self.streams,
                first + i,
                self.noise,
                self.mean,
                deviation,
                self.low,
                self.high,
                self.tried,
            )
            if i == 0 and self.plans:
                self.tried[:, : self.kept] = self.elites
            if i == s.iterations - 1:
                self.tried[:, -1] = self.mean
            refit(
                score(self.tried),
                self.tried,
                self.kept if i else 0,
                s.momentum,
                elites,
                scores,
                self.mean,
                deviation,
            )
        self.plans += 1
        self.elites[:, :, :-1], self.elites[:, :, -1] = (
            elites[:, : self.kept, 1:],
            elites[:, : self.kept, -1],
        )
        self.mean[:, :-1] = self.mean[:, 1:].copy()
        return elites[:, 0, 0].copy()


def streams_of(seeds: list[int]) -> np.ndarray:
    """One stream of plans for each member's seed."""
    return np.array([key(seed, Purpose.PLAN) for seed in seeds], np.uint64)


# sampling


def candidate_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for members, samples, horizon, controls, colour in (
        (1, 1, 1, 1, 0.0),
        (2, 5, 7, 3, 2.0),
        (3, 4, 2, 1, 0.5),
        (1, 33, 10, 2, 2.0),
    ):
        low = rng.normal(size=controls).astype(dtype) - 1
        yield (
            streams_of(rng.integers(0, 2**40, members).tolist()),
            int(rng.integers(1000)),
            colouring(horizon, colour),
            rng.normal(size=(members, horizon, controls)).astype(dtype),
            rng.uniform(0.1, 1, (members, horizon, controls)).astype(dtype),
            low,
            low + 2,
            np.zeros((members, samples, horizon, controls), dtype),
        )


def candidates_reference(streams, round_, noise, mean, deviation, low, high, tried):
    """clip(μ + σ·C·n), one sequence after another."""
    members, samples, horizon, controls = tried.shape
    for m, b, a in np.ndindex(members, samples, controls):
        white = np.zeros(horizon)
        fill_normal(streams[m], ((round_ * samples + b) * controls + a) * horizon, white)
        tried[m, b, :, a] = np.clip(
            mean[m, :, a] + deviation[m, :, a] * (noise @ white), low[a], high[a]
        )
    return tried


@pair(candidates_reference, candidate_examples, rtol=1e-5, atol=1e-6)
@kernel
def candidates(streams, round_, noise, mean, deviation, low, high, tried):
    """Fills `tried` [M, B, H, A] with coloured samples around mean and deviation [M, H, A], within
    low and high [A]."""
    members, samples, horizon, controls = tried.shape
    white = np.empty(horizon)
    for m in range(members):
        for b in range(samples):
            for a in range(controls):
                start = ((round_ * samples + b) * controls + a) * horizon
                fill_normal(streams[m], start, white)
                for t in range(horizon):
                    coloured = 0.0
                    for f in range(horizon):
                        coloured += noise[t, f] * white[f]
                    tried[m, b, t, a] = min(
                        max(mean[m, t, a] + deviation[m, t, a] * coloured, low[a]), high[a]
                    )
    return tried


# refitting


def refit_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """All samples are elites; ties; scores that are not numbers; elites kept from before."""
    for members, samples, horizon, controls, elites, kept in (
        (1, 1, 1, 1, 1, 0),
        (2, 5, 7, 3, 5, 2),
        (3, 9, 2, 1, 3, 3),
        (1, 32, 10, 2, 8, 3),
    ):
        shape = (horizon, controls)
        scores = np.round(rng.normal(size=(members, samples)), 1)
        scores[0, samples // 2] = np.nan if samples > 1 else 0
        yield (
            scores,
            rng.normal(size=(members, samples, *shape)).astype(dtype),
            kept,
            0.1,
            rng.normal(size=(members, elites, *shape)).astype(dtype),
            -np.sort(-rng.normal(size=(members, elites))),
            rng.normal(size=(members, *shape)).astype(dtype),
            rng.uniform(size=(members, *shape)).astype(dtype),
        )


def refit_reference(worth, tried, kept, momentum, elites, scores, mean, deviation):
    """The best of kept and tried, in order; μ and σ move to theirs."""
    for m in range(len(tried)):
        pool = np.concatenate([elites[m, :kept], tried[m]])
        judged = np.concatenate([scores[m, :kept], np.where(np.isnan(worth[m]), -np.inf, worth[m])])
        best = np.argsort(-judged, kind="stable")[: elites.shape[1]]
        elites[m], scores[m] = pool[best], judged[best]
        mean[m] = momentum * mean[m] + (1 - momentum) * elites[m].mean(0)
        deviation[m] = momentum * deviation[m] + (1 - momentum) * elites[m].std(0)
    return elites, scores, mean, deviation


@pair(refit_reference, refit_examples, rtol=1e-5, atol=1e-6)
@kernel
def refit(worth, tried, kept, momentum, elites, scores, mean, deviation):
    """Elites [M, E, H, A] with scores [M, E], the first `kept` of which stand, become the best of
    themselves and `tried`; ties go to the older and the earlier. Mean and deviation [M, H, A]
    follow."""
    members, samples, horizon, controls = tried.shape
    count = elites.shape[1]
    for m in range(members):
        old, order, judged = (
            elites[m, :kept].copy(),
            np.empty(count, np.int64),
            np.empty(kept + samples),
        )
        for b in range(kept + samples):
            value = scores[m, b] if b < kept else worth[m, b - kept]
            judged[b] = -np.inf if np.isnan(value) else value
        left = np.ones(kept + samples, np.bool_)
        for e in range(count):
            best = -1
            for b in range(kept + samples):
                if left[b] and (best < 0 or judged[b] > judged[best]):
                    best = b
            left[best], order[e], scores[m, e] = False, best, judged[best]
        for t in range(horizon):
            for a in range(controls):
                for e in range(count):
                    elites[m, e, t, a] = (
                        old[order[e], t, a] if order[e] < kept else tried[m, order[e] - kept, t, a]
                    )
                middle, square = 0.0, 0.0
                for e in range(count):
                    middle += elites[m, e, t, a] / count
                for e in range(count):
                    square += (elites[m, e, t, a] - middle) ** 2 / count
                mean[m, t, a] = momentum * mean[m, t, a] + (1 - momentum) * middle
                deviation[m, t, a] = momentum * deviation[m, t, a] + (1 - momentum) * np.sqrt(
                    square
                )
    return elites, scores, mean, deviation
