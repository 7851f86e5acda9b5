"""Statistics over several runs, and over several groups of runs: the interquartile mean, its
bootstrap interval, and the plots of Agarwal et al. (2021)."""

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import factorial
from typing import Any

import numpy as np

RESAMPLES = 20_000  # two standard errors of an interval's end are then 1 % of its width
FEWEST, LARGEST = 2_000, 8_000_000  # resamples of very many runs; numbers drawn where they are more
LISTED = 8  # runs up to which every resample there can be is listed, with how often it is drawn
SHARE = 0.95  # of an interval
# Runs that an interval takes. With fewer, more than 2.5 % of all resamples hold (after the outer
# quarters are cut) the lowest run alone: the ends would be the lowest and the highest run. A median
# of five is such a case too.
LEAST, LEAST_MEDIAN = 5, 6
THRESHOLDS = 101  # of a performance profile
ROUNDING = 1e-12  # of sums of shares
COLUMNS = 64  # of which resamples are in memory at the same time
Outcome = tuple[float | None, float]  # as `metrics.outcome` has it
Estimate = Callable[[np.ndarray], Any]  # over the first axis


def interquartile_mean(values: np.ndarray) -> Any:
    """The mean without the lowest and the highest quarter (Agarwal et al., 2021), over the first
    axis."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


@lru_cache(maxsize=2)
def resamples(members: int) -> tuple[np.ndarray, np.ndarray]:
    """The members of each bootstrap resample [resamples, members], and the resample's probability.
    For few members all multisets with their multinomial probabilities, so that the interval is
    exact; for more, fixed random draws."""
    if members > LISTED:
        rows = drawn_members(members, resample_count(members))
        return rows, np.full(len(rows), 1 / len(rows))
    rows = np.array([*itertools.combinations_with_replacement(range(members), members)])
    factorials = np.array([factorial(k) for k in range(members + 1)], float)
    orders = factorial(members) / factorials[counts_of(rows, members)].prod(axis=1)
    return rows, orders / members**members


def resample_count(members: int) -> int:
    return min(RESAMPLES, max(FEWEST, LARGEST // members))


def drawn_members(members: int, count: int, stream: int = 0) -> np.ndarray:
    """Fixed random draws [count, members]."""
    return np.random.default_rng(stream).integers(members, size=(count, members), dtype=np.int32)


def counts_of(rows: np.ndarray, members: int) -> np.ndarray:
    """How often each member is in each resample."""
    places = rows + members * np.arange(len(rows))[:, None]
    return np.bincount(places.ravel(), minlength=len(rows) * members).reshape(-1, members)


@lru_cache(maxsize=2)
def kept_counts(members: int) -> np.ndarray:
    """How often the lowest, second lowest, … member is between the outer quarters of a resample
    [resamples, members]."""
    cut, counts = members // 4, counts_of(resamples(members)[0], members)
    ends = counts.cumsum(axis=1)
    kept = np.clip(ends, cut, members - cut) - np.clip(ends - counts, cut, members - cut)
    return kept.astype(float)


def limits(estimates: np.ndarray, weights: np.ndarray | None = None) -> tuple[Any, Any]:
    """The interval's ends over resamples (the last axis): the least value that at least 2.5 % of
    them do not exceed, and the greatest that at least 2.5 % do not fall below. Without `weights`
    all are equally likely."""
    tail = (1 - SHARE) / 2
    if weights is None:
        count = estimates.shape[-1]
        least = int(np.ceil(tail * count)) - 1
        ends = np.partition(estimates, (least, count - 1 - least), axis=-1)
        return ends[..., least], ends[..., count - 1 - least]
    order = np.argsort(estimates, axis=-1)
    ordered, share = np.take_along_axis(estimates, order, -1), weights[order]
    # a share of exactly 2.5 % counts, however it was rounded
    low = (share.cumsum(axis=-1) < tail - ROUNDING).sum(axis=-1, keepdims=True)
    high = (share[..., ::-1].cumsum(axis=-1) < tail - ROUNDING).sum(axis=-1, keepdims=True)
    last = estimates.shape[-1] - 1
    return (
        np.take_along_axis(ordered, low, -1)[..., 0],
        np.take_along_axis(ordered, last - high, -1)[..., 0],
    )


def weights_for(members: int) -> np.ndarray | None:
    return resamples(members)[1] if members <= LISTED else None


def bootstrap_interval(values: np.ndarray) -> tuple[Any, Any]:
    """The 95 % percentile bootstrap interval of the interquartile mean over members (the first
    axis); NaN for fewer than `LEAST`.

    Which members are drawn is symmetric in them, so it may as well be said of the lowest, the
    second lowest, …: then a resample is a weight for each of the sorted values, and the means of
    all resamples in all columns are one matrix product.
    """
    members, shape = len(values), values.shape[1:]
    if members < LEAST:
        return np.full(shape, np.nan), np.full(shape, np.nan)
    kept, weights = kept_counts(members), weights_for(members)
    sorted_values = np.sort(values, axis=0).reshape(members, -1).T
    ends = [
        limits(sorted_values[start : start + COLUMNS] @ kept.T, weights)
        for start in range(0, len(sorted_values), COLUMNS)
    ]
    low, high = (np.concatenate(side) for side in zip(*ends, strict=True))
    size = members - 2 * (members // 4)
    return (low / size).reshape(shape), (high / size).reshape(shape)


def interval_of(
    estimate: Estimate, values: np.ndarray, least: int = LEAST
) -> tuple[float, float, float]:
    """Any other statistic of one group's scores, with its percentile bootstrap interval; NaN for
    too few."""
    if len(values) < least:
        return float(estimate(values)), np.nan, np.nan
    drawn = estimate(values[resamples(len(values))[0]].T)
    low, high = limits(drawn, weights_for(len(values)))
    return float(estimate(values)), float(low), float(high)


def together(values: list[float]) -> dict[str, Any]:
    """The summary of several seeds' numbers; `interval` is None for too few."""
    array = np.array(values, np.float64)
    low, high = bootstrap_interval(array)
    return {
        "seeds": len(values),
        "iqm": float(interquartile_mean(array)),
        "interval": [float(low), float(high)] if len(values) >= LEAST else None,
        "mean": float(array.mean()),
        "std": float(array.std()),
        "min": float(array.min()),
        "max": float(array.max()),
    }


def sentence(pooled_numbers: dict[str, Any], form: str = ".2f") -> str:
    """A summary of `together` as text; `form` is the format of its numbers."""
    seeds, interval = (
        pooled_numbers["seeds"],
        pooled_numbers["interval"] if pooled_numbers["seeds"] >= LEAST else None,
    )
    between = f"; an interval takes {LEAST}"
    if interval:
        between = f", 95 % interval {interval[0]:{form}} to {interval[1]:{form}}"
    of = f"{seeds} seed{'s' * (seeds > 1)}"
    return f"{pooled_numbers['iqm']:{form}} (interquartile mean of {of}{between})"


# several groups


def aggregates(target: float) -> dict[str, Estimate]:
    """Aggregate statistics of a group's scores; the last is the mean shortfall from a target, where
    less is better."""
    return {
        "median": lambda scores: np.median(scores, axis=0),
        "interquartile mean": interquartile_mean,
        "mean": lambda scores: np.mean(scores, axis=0),
        "optimality gap": lambda scores: np.maximum(target - scores, 0).mean(axis=0),
    }


def thresholds_over(scores: list[np.ndarray]) -> np.ndarray:
    """Thresholds from the lowest to the highest of all scores."""
    every = np.concatenate(scores)
    return np.linspace(every.min(), every.max(), THRESHOLDS)


def profile(scores: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, ...]:
    """The share of runs whose score is above each threshold, with its interval; NaN for too few."""
    above = scores[:, None] > thresholds
    if len(scores) < LEAST:
        return above.mean(axis=0), *np.full((2, len(thresholds)), np.nan)
    counts = counts_of(resamples(len(scores))[0], len(scores))
    low, high = limits(above.T @ counts.T / len(scores), weights_for(len(scores)))
    return above.mean(axis=0), low, high


def improvement(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """P(a run of `one` scores more than a run of `other`), ties counted half (the Mann-Whitney U
    statistic over the number of pairs), with its interval; NaN for too few."""
    wins = np.sign(one[:, None] - other) / 2 + 0.5
    if min(wins.shape) < LEAST:
        return float(wins.mean()), np.nan, np.nan
    count = resample_count(max(wins.shape))
    mine = counts_of(drawn_members(len(one), count), len(one))
    theirs = counts_of(drawn_members(len(other), count, stream=1), len(other))
    low, high = limits((mine @ wins * theirs).sum(axis=1) / wins.size)
    return float(wins.mean()), float(low), float(high)


# evaluations of several seeds: pairs of a share of successes (None: not told of) and a score


def pooled(outcomes: Sequence[Outcome]) -> Outcome:
    """The interquartile means of both."""
    rates, scores = success_rates(outcomes), np.array([score for _, score in outcomes])
    success = float(interquartile_mean(np.array(rates))) if rates else None
    return success, float(interquartile_mean(scores))


def success_rates(outcomes: Sequence[Outcome]) -> list[float]:
    """The success rate of each seed, 0 where unknown; empty if unknown for all."""
    tells = any(rate is not None for rate, _ in outcomes)
    return [rate or 0.0 for rate, _ in outcomes] if tells else []
