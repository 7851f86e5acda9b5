"""Running mean and variance of rows, in one pass and mergeable, and rows normalised by them.

Moments are float64: `count` [1] (int64), `mean` [D], `m2` [D] (the sum of squared distances from
the mean).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.errors import CheckpointError, ObservationError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

CLIP, EPSILON = 10.0, 1e-8
FINE = -1  # what kernels return when nothing is wrong; otherwise the cell, row·D + column


def moment_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Moments of some rows (none, one, many), and further rows; also far from zero, where squares
    would cancel."""
    for count in (0, 1, 50):
        for rows, size, far in ((1, 1, 0.0), (1, 17, 1e4), (32, 5, 1e4), (7, 40, 0.0)):
            before = rng.normal(size=(count, size)) + far
            mean = before.mean(0) if count else np.zeros(size)
            yield (
                np.array([count]),
                mean,
                ((before - mean) ** 2).sum(0),
                (far + rng.normal(size=(rows, size)) * rng.uniform(0.1, 3, size)).astype(dtype),
            )


def merged(count, mean, m2, other_count, other_mean, other_m2):
    """Moments of two sets from the moments of each (Chan, Golub & LeVeque, 1979): n = nₐ + n_b,
    δ = mean_b − meanₐ,  mean = meanₐ + δ·n_b/n,  M2 = M2ₐ + M2_b + δ²·nₐ·n_b/n."""
    n = count + other_count
    if n[0] == 0:
        return count, mean, m2
    delta = other_mean - mean
    return n, mean + delta * other_count / n, m2 + other_m2 + delta**2 * count * other_count / n


def norm_update_reference(count, mean, m2, rows):
    """`merged` with the moments of the rows."""
    rows = rows.astype(np.float64)
    row_mean = rows.mean(0)
    return merged(count, mean, m2, np.array([len(rows)]), row_mean, ((rows - row_mean) ** 2).sum(0))


@pair(norm_update_reference, moment_examples, rtol=1e-10, atol=1e-10, dtypes=("float32", "float64"))
@kernel
def norm_update(count, mean, m2, rows):
    """Takes rows [B, D] into the moments, in place. Each row is a set of one: neighbours in D are
    computed together, and nothing is allocated."""
    size = np.uint64(rows.shape[1])
    flat = rows.reshape(-1)
    for b in range(rows.shape[0]):
        count[0] += 1
        share, start = 1.0 / count[0], np.uint64(b) * size
        for j in range(size):
            x = np.float64(flat[start + j])
            away = x - mean[j]
            near = mean[j] + away * share
            m2[j] += away * (x - near)
            mean[j] = near
    return count, mean, m2


def scale_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for count, size in ((0, 3), (1, 1), (7, 5), (10**6, 33)):
        yield (
            np.array([count]),
            rng.uniform(0, 9, size) * count * (rng.random(size) < 0.8),
            EPSILON,
            np.full(size, np.nan),
        )


def norm_scale_reference(count, m2, epsilon, inv_std):
    """1/√(σ² + ε) with σ² = M2/n; 1 before anything was seen."""
    return 1 / np.sqrt(m2 / count + epsilon) if count[0] else np.ones_like(m2)


@pair(norm_scale_reference, scale_examples, rtol=1e-12)
@kernel
def norm_scale(count, m2, epsilon, inv_std):
    """Writes what `norm_apply` multiplies with."""
    share = 1.0 / max(count[0], 1)
    for j in range(m2.size):
        inv_std[j] = 1.0 / np.sqrt(m2[j] * share + epsilon)
    if count[0] == 0:
        inv_std[:] = 1.0
    return inv_std


def apply_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for count, mean, m2, rows in moment_examples(rng, dtype):
        yield (
            rows,
            mean,
            norm_scale_reference(count, m2, EPSILON, None),
            CLIP,
            np.full(rows.shape, np.nan, np.float32),
        )
    yield (
        np.array([[-50.0, 50.0, 3.0]], dtype),
        np.zeros(3),
        np.ones(3),
        CLIP,
        np.zeros((1, 3), np.float32),
    )


def norm_apply_reference(rows, mean, inv_std, clip, out):
    return np.clip((rows.astype(np.float64) - mean) * inv_std, -clip, clip).astype(np.float32)


@pair(norm_apply_reference, apply_examples, rtol=1e-6, dtypes=("float32", "float64"))
@kernel
def norm_apply(rows, mean, inv_std, clip, out):
    """out = (rows − mean)·inv_std, clipped to ±clip. `norm_rows` does it in place."""
    size = np.uint64(rows.shape[1])
    flat, into = rows.reshape(-1), out.reshape(-1)
    for b in range(rows.shape[0]):
        start = np.uint64(b) * size
        for j in range(size):
            x = (np.float64(flat[start + j]) - mean[j]) * inv_std[j]
            into[start + j] = min(max(x, -clip), clip)
    return out


def rows_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, mean, inv_std, clip, _ in apply_examples(rng, dtype):
        yield rows, mean, inv_std, clip


def norm_rows_reference(rows, mean, inv_std, clip):
    return norm_apply_reference(rows, mean, inv_std, clip, rows)


@pair(norm_rows_reference, rows_examples, rtol=1e-6)
@kernel
def norm_rows(rows, mean, inv_std, clip):
    """`norm_apply` in place: with one array the compiler sees that its loop can be vectorised, with
    two equal ones it cannot."""
    size = np.uint64(rows.shape[1])
    flat = rows.reshape(-1)
    for b in range(rows.shape[0]):
        start = np.uint64(b) * size
        for j in range(size):
            x = (np.float64(flat[start + j]) - mean[j]) * inv_std[j]
            flat[start + j] = min(max(x, -clip), clip)
    return rows


def columns_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, mean, inv_std, clip, _ in apply_examples(rng, dtype):
        yield np.ascontiguousarray(rows.T), np.stack([mean, mean, inv_std]), clip


def norm_columns_reference(columns, moments, clip):
    return norm_apply_reference(columns.T, moments[0], moments[2], clip, None).T


@pair(norm_columns_reference, columns_examples, rtol=1e-6)
@kernel
def norm_columns(columns, moments, clip):
    """`norm_rows` of columns [D, B], by the moments of a `RunningNorm`: mean, M2, 1/deviation."""
    for j in range(columns.shape[0]):
        mean, inverse = moments[0, j], moments[2, j]
        for b in range(columns.shape[1]):
            x = (np.float64(columns[j, b]) - mean) * inverse
            columns[j, b] = min(max(x, -clip), clip)
    return columns


def finite_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, size in ((1, 1), (3, 5), (32, 81)):
        fine = (rng.uniform(-3, 3, (rows, size)) * 1e38).astype(dtype)
        yield (fine,)
        for bad in (np.nan, np.inf, -np.inf):
            spoiled = fine.copy()
            spoiled[rng.integers(rows), rng.integers(size)] = bad
            yield (spoiled,)


def first_not_finite_reference(rows):
    bad = np.flatnonzero(~np.isfinite(rows))
    return int(bad[0]) if bad.size else FINE


@pair(first_not_finite_reference, finite_examples, dtypes=("float32", "float64"))
@kernel
def first_not_finite(rows):
    """The first cell that is NaN or infinite, row·D + column, or FINE. They are counted first,
    without a branch."""
    flat, bad = rows.reshape(-1), 0
    for i in range(flat.size):
        bad += flat[i] - flat[i] != 0
    if bad:
        for i in range(flat.size):
            if flat[i] - flat[i] != 0:
                return i
    return FINE


class RunningNorm:
    """Running mean and variance of `size` numbers; (x − mean)/√(variance + ε), clipped. Before
    anything is seen, x itself."""

    def __init__(self, size: int, clip: float = CLIP, epsilon: float = EPSILON) -> None:
        self.size, self.clip, self.epsilon = size, float(clip), float(epsilon)
        self.count = np.zeros(1, np.int64)
        # one array, since each argument of a compiled call costs 0.1 µs
        self.moments = np.zeros((3, size))
        self.mean, self.m2, self.inv_std = self.moments
        self.inv_std[:] = 1

    @property
    def variance(self) -> np.ndarray:
        return self.m2 / max(int(self.count[0]), 1)

    def update(self, rows: np.ndarray) -> None:
        """Takes rows [B, size] in. Rows that are not finite would spoil the mean for good, and are
        refused."""
        rows = self.rows(rows)
        bad = first_not_finite(rows)
        if bad != FINE:
            raise ObservationError(
                "", f"is not finite: column {bad % self.size} of row {bad // self.size}."
            )
        norm_update(self.count, self.mean, self.m2, rows)
        norm_scale(self.count, self.m2, self.epsilon, self.inv_std)

    def normalise(self, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Rows [B, size] normalised into `out` (float32, may be `rows`), without learning from
        them."""
        rows = self.rows(rows)
        out = np.empty(rows.shape, np.float32) if out is None else out
        check_out(out, self.size, len(rows))
        if out is rows:
            return norm_rows(rows, self.mean, self.inv_std, self.clip)
        return norm_apply(rows, self.mean, self.inv_std, self.clip, out)

    def rows(self, rows: np.ndarray) -> np.ndarray:
        if rows.ndim != 2 or rows.shape[1] != self.size:
            raise ValueError(f"rows are {list(rows.shape)} and must be [B, {self.size}]")
        return np.ascontiguousarray(
            rows, rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64
        )

    def merge(self, other: "RunningNorm") -> None:
        """Takes in what another one saw."""
        self.count[:], self.mean[:], self.m2[:] = merged(
            self.count, self.mean, self.m2, other.count, other.mean, other.m2
        )
        norm_scale(self.count, self.m2, self.epsilon, self.inv_std)

    def state(self) -> dict[str, np.ndarray]:
        """For checkpoints."""
        return {"count": self.count.copy(), "mean": self.mean.copy(), "m2": self.m2.copy()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for name, current in (("count", self.count), ("mean", self.mean), ("m2", self.m2)):
            if name not in state or np.shape(state[name]) != current.shape:
                mismatch = f"is {list(np.shape(state[name]))}" if name in state else "is missing"
                raise CheckpointError(
                    f"The checkpoint's normalisation does not fit: {name} {mismatch} and must be "
                    f"{list(current.shape)}. It belongs to another observation space."
                )
        self.count[:], self.mean[:], self.m2[:] = state["count"], state["mean"], state["m2"]
        norm_scale(self.count, self.m2, self.epsilon, self.inv_std)


def tensor_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for count, mean, m2, rows in moment_examples(rng, dtype):
        numbers = np.array(count, np.float64), mean, m2
        yield (*(torch.from_numpy(number) for number in numbers), torch.from_numpy(rows))


def update_on_tensors(count, mean, m2, rows):
    return norm_update_reference(*(tensor.numpy().copy() for tensor in (count, mean, m2, rows)))


@pair(update_on_tensors, tensor_examples, rtol=1e-10, atol=1e-10, dtypes=("float32", "float64"))
def merge_rows(
    count: torch.Tensor, mean: torch.Tensor, m2: torch.Tensor, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Takes rows [B, D] into the moments, in place, on any device and without waiting for it."""
    rows, size = rows.double(), len(rows)
    row_mean = rows.mean(0)
    total, delta = count + size, row_mean - mean
    m2.add_((rows - row_mean).square().sum(0)).addcmul_(delta.square(), count * size / total)
    mean.addcmul_(delta, size / total)
    count.copy_(total)
    return count, mean, m2


class TensorNorm:
    """A `RunningNorm` on a device, for rows that are there; `store` brings it up to date."""

    def __init__(self, norm: RunningNorm, device: torch.device) -> None:
        self.norm = norm
        self.count = torch.zeros(1, dtype=torch.float64, device=device)
        self.moments = torch.zeros(norm.moments.shape, dtype=torch.float64, device=device)
        self.mean, self.m2, self.inv_std = self.moments
        self.load()

    def load(self) -> None:
        self.count.copy_(torch.from_numpy(self.norm.count))
        self.moments.copy_(torch.from_numpy(self.norm.moments))

    def store(self) -> None:
        self.norm.count[:] = self.count.cpu().numpy()
        self.norm.moments[:] = self.moments.cpu().numpy()

    def update(self, rows: torch.Tensor) -> None:
        merge_rows(self.count, self.mean, self.m2, rows)
        self.inv_std.copy_((self.m2 / self.count + self.norm.epsilon).rsqrt())

    def normalise(self, rows: torch.Tensor) -> torch.Tensor:
        away = (rows.double() - self.mean) * self.inv_std
        return away.clamp(-self.norm.clip, self.norm.clip).float()


def check_out(out: np.ndarray, size: int, rows: int | None = None) -> None:
    fits = out.ndim == 2 and out.shape[1] == size and (rows is None or len(out) == rows)
    if not fits or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise ValueError(
            f"out must be C-contiguous float32 [{'B' if rows is None else rows}, {size}]: it is "
            f"{out.dtype} {list(out.shape)}"
        )
