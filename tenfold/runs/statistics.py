"""Numbers of several runs as one, and of several groups of runs side by side: the interquartile
mean, its bootstrap interval, and what Agarwal et al. (2021) draw of them."""

from collections.abc import Callable
from typing import Any

import numpy as np

RESAMPLES = 2000
SHARE = 0.95  # of an interval
LEAST = 3  # runs that an interval takes: of two the bootstrap only says which they are
THRESHOLDS = 101  # of a performance profile
Estimate = Callable[[np.ndarray], Any]  # over the first axis


def interquartile_mean(values: np.ndarray) -> Any:
    """The mean of what is left without the lowest and the highest quarter (Agarwal et al., 2021),
    over the first axis."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def resampled(members: int, stream: int = 0) -> np.ndarray:
    """How often a bootstrap draws each member [RESAMPLES, members]; always the same."""
    drawn = np.random.default_rng(stream).integers(members, size=(RESAMPLES, members))
    return np.array([np.bincount(rows, minlength=members) for rows in drawn])


def limits(found: np.ndarray, share: float = SHARE) -> tuple[Any, Any]:
    """Of what resamples came to (the first axis)."""
    low, high = np.quantile(found, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return low, high


def bootstrap_interval(values: np.ndarray, share: float = SHARE) -> tuple[Any, Any]:
    """Percentile bootstrap of the interquartile mean over members (the first axis).

    Which members are drawn is symmetric in them, so it may as well be said of the lowest, the
    second lowest, …: then a resample is a weight for each of the sorted values, and the means of
    all resamples in all columns are one matrix product.
    """
    members = len(values)
    cut, counts = members // 4, resampled(members)
    ends = counts.cumsum(axis=1)
    kept = np.clip(ends, cut, members - cut) - np.clip(ends - counts, cut, members - cut)
    sorted_values = np.sort(values, axis=0).reshape(members, -1)
    low, high = limits(kept / (members - 2 * cut) @ sorted_values, share)
    return low.reshape(values.shape[1:]), high.reshape(values.shape[1:])


def interval_of(estimate: Estimate, values: np.ndarray) -> tuple[float, float, float]:
    """Any other number of one group's scores, with its percentile bootstrap interval; of too few
    that is not a number."""
    if len(values) < LEAST:
        return float(estimate(values)), np.nan, np.nan
    drawn = np.stack([np.repeat(values, counts) for counts in resampled(len(values))], axis=1)
    low, high = limits(estimate(drawn))
    return float(estimate(values)), float(low), float(high)


def together(values: list[float]) -> dict[str, Any]:
    """Several seeds' numbers as one."""
    array = np.array(values, np.float64)
    low, high = bootstrap_interval(array)
    return {
        "seeds": len(values),
        "iqm": float(interquartile_mean(array)),
        "interval": [float(low), float(high)],
        "mean": float(array.mean()),
        "std": float(array.std()),
        "min": float(array.min()),
        "max": float(array.max()),
    }


def sentence(found: dict[str, Any], form: str = ".2f") -> str:
    """What `together` found, in words; `form` is how its numbers are written."""
    (low, high), seeds = found["interval"], found["seeds"]
    between = (
        f", 95 % interval {low:{form}} to {high:{form}}"
        if seeds >= LEAST
        else f"; an interval takes {LEAST}"
    )
    of = f"{seeds} seed{'s' * (seeds > 1)}"
    return f"{found['iqm']:{form}} (interquartile mean of {of}{between})"


# several groups


def aggregates(target: float) -> dict[str, Estimate]:
    """What one number can say of a group's scores; the last is how far they fall short of a target,
    on average, and the less the better."""
    return {
        "median": lambda scores: np.median(scores, axis=0),
        "interquartile mean": interquartile_mean,
        "mean": lambda scores: np.mean(scores, axis=0),
        "optimality gap": lambda scores: np.maximum(target - scores, 0).mean(axis=0),
    }


def thresholds_over(scores: list[np.ndarray]) -> np.ndarray:
    """From the lowest to the highest of all scores."""
    every = np.concatenate(scores)
    return np.linspace(every.min(), every.max(), THRESHOLDS)


def profile(scores: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, ...]:
    """The share of runs whose score is above each threshold, with its interval; of too few that is
    not a number."""
    above = scores[:, None] > thresholds
    if len(scores) < LEAST:
        return above.mean(axis=0), *np.full((2, len(thresholds)), np.nan)
    low, high = limits(resampled(len(scores)) @ above / len(scores))
    return above.mean(axis=0), low, high


def improvement(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """P(a run of `one` scores more than a run of `other`), equal ones counted half (the
    Mann-Whitney U statistic over the number of pairs), with its interval; of too few that is not a
    number."""
    wins = np.sign(one[:, None] - other) / 2 + 0.5
    if min(wins.shape) < LEAST:
        return float(wins.mean()), np.nan, np.nan
    mine, theirs = resampled(len(one)), resampled(len(other), stream=1)
    low, high = limits((mine @ wins * theirs).sum(axis=1) / wins.size)
    return float(wins.mean()), float(low), float(high)
