"""Ridge regression in closed form, and the random weights of rows by which an ensemble's models
differ."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key, uniform


def ridge_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, features, outputs in ((1, 1, 1), (7, 3, 2), (60, 12, 2)):
        yield (
            rng.normal(size=(rows, features)),
            rng.normal(size=(rows, outputs)),
            rng.exponential(size=(2, rows)),
            rng.uniform(0.1, 1, features),
        )


def ridge_reference(x, y, weight, penalty):
    """argmin Σ_t w_t ‖y_t − B x_t‖² + Σ_p λ_p ‖B_p‖², as least squares of rows scaled by √w with
    rows √λ below them."""
    found = []
    for w in weight:
        root = np.sqrt(w)[:, None]
        rows = np.concatenate((root * x, np.diag(np.sqrt(penalty))))
        wanted = np.concatenate((root * y, np.zeros((x.shape[1], y.shape[1]))))
        found.append(np.linalg.lstsq(rows, wanted, rcond=None)[0].T)
    return np.stack(found)


@pair(ridge_reference, ridge_examples, rtol=1e-6, atol=1e-7)
def ridge(x: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Coefficients [N, outputs, features] by the normal equations; x [T, features], y [T, outputs],
    weights [N, T]."""
    weighted = weight[:, :, None] * x
    gram = weighted.transpose(0, 2, 1) @ x + np.diag(penalty)
    return np.linalg.solve(gram, weighted.transpose(0, 2, 1) @ y).transpose(0, 2, 1)


def bootstrap(seed: int, models: int, rows: int) -> np.ndarray:
    """Weights [N, T] of mean 1: exponential, by (seed, model, row); of one model alone 1."""
    if models == 1:
        return np.ones((1, rows))
    return -np.log1p(
        -np.stack(
            [uniform(key(seed, Purpose.SEQUENCE, 1 + n), np.arange(rows)) for n in range(models)]
        )
    )
