"""Comparing a learned latent space with the true one.

With a learned decoder the latent space is free: any invertible affine map of z, undone in encoder,
dynamics and decoder, gives the same observations. So the learned states of a recording are mapped
to the true ones by least squares,

    x ≈ A·z + b        (x true, z learned, of the same moments),

and everything is compared in true coordinates. A field dz/dt = f(z) reads there dx/dt = A·f(A⁺(x −
b)), with the pseudo-inverse A⁺ where the learned space has fewer numbers; where it has more, z is
read from x by least squares too. The map is fitted to states only, never to the fields: it cannot
flatter the dynamics.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# of the map that is inverted: beyond this a learned space has lost a dimension
MOST_CONDITION = 1e6


class Alignment(NamedTuple):
    """x ≈ matrix·z + offset, and the share of the true states' variance that it explains. Where the
    learned space has more numbers than the true one, many z map to one x: `back` [D, d + 1] then
    says which z the learned states have there, z ≈ back·(x, 1)."""

    matrix: np.ndarray
    offset: np.ndarray
    r2: float
    back: np.ndarray | None = None

    def to_true(self, z: np.ndarray) -> np.ndarray:
        return z @ self.matrix.T + self.offset

    def to_learned(self, x: np.ndarray) -> np.ndarray:
        if self.back is not None:
            return x @ self.back[:, :-1].T + self.back[:, -1]
        return (x - self.offset) @ np.linalg.pinv(self.matrix).T

    def field(self, learned: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
        """The learned field at true states x [n, d], in true coordinates."""
        return learned(self.to_learned(x)) @ self.matrix.T


def align(z_learned: np.ndarray, z_true: np.ndarray) -> Alignment:
    """The affine map from learned states [n, D] to the true ones [n, d] of the same moments, by
    least squares. Where D = d it is the inverse of the map from true to learned ones: true states
    have no error, and learned ones that err, fitted from, would shrink the map by the share of
    their variance that is error."""
    z, x = np.asarray(z_learned, np.float64), np.asarray(z_true, np.float64)
    rows, ones = (
        np.concatenate((z, np.ones((len(z), 1))), 1),
        np.concatenate((x, np.ones((len(x), 1))), 1),
    )
    solution, back = (
        np.linalg.lstsq(rows, x, rcond=None)[0],
        np.linalg.lstsq(ones, z, rcond=None)[0].T,
    )
    error, spread = (x - rows @ solution), x - x.mean(0)
    matrix, offset, r2 = (
        np.ascontiguousarray(solution[:-1].T),
        solution[-1],
        float(1 - (error**2).sum() / (spread**2).sum()),
    )
    if z.shape[1] == x.shape[1] and np.linalg.cond(back[:, :-1]) < MOST_CONDITION:
        matrix = np.linalg.inv(back[:, :-1])
        offset = -matrix @ back[:, -1]
    return Alignment(matrix, offset, r2, back if z.shape[1] > x.shape[1] else None)


def identity(size: int) -> Alignment:
    """Where the hidden state is what is observed (decoder identity), nothing is to be aligned."""
    return Alignment(np.eye(size), np.zeros(size), 1.0)


def field_error(found: np.ndarray, true: np.ndarray, weight: np.ndarray | None = None) -> float:
    """√(Σ w‖found − true‖² / Σ w‖true‖²) over points [n, d]: 0 is perfect, 1 is what a field of
    zeros gets."""
    weight = np.ones(len(true)) if weight is None else np.asarray(weight, np.float64)
    error, size = (
        weight @ np.square(part).sum(-1) for part in (np.subtract(found, true), np.asarray(true))
    )
    return float(np.sqrt(error / size))
