"""Numbers of several seeds as one: the interquartile mean and its bootstrap interval."""

from typing import Any

import numpy as np

RESAMPLES = 2000


def interquartile_mean(values: np.ndarray) -> Any:
    """The mean of what is left without the lowest and the highest quarter (Agarwal et al., 2021),
    over the first axis."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def bootstrap_interval(values: np.ndarray, share: float = 0.95) -> tuple[Any, Any]:
    """Percentile bootstrap of the interquartile mean over members (the first axis); always the same
    resamples."""
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = np.array([interquartile_mean(values[rows]) for rows in drawn])
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return low, high


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
    low, high = found["interval"]
    return (
        f"{found['iqm']:{form}} (interquartile mean of {found['seeds']} seeds, 95 % interval "
        f"{low:{form}} to {high:{form}})"
    )
