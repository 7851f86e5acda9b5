"""Structured observations as rows of one float32 array, checked and normalised on the way.

`FlattenPlan(space)` is made once. Its `flatten` takes a batch (a Dict whose leaves are arrays with
B in front, or a list of B observations) and writes [B, D]: the bytes of all leaves are joined by
one call; one compiled pass reads them as what they are, writes every leaf to its columns (discrete
ones one-hot), refuses numbers that are not finite, and, with a `RunningNorm`, updates its mean and
variance and normalises.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from tenfold.core.errors import EnvironmentFault, ObservationError
from tenfold.core.kernels import kernel
from tenfold.core.layout import observation_layout
from tenfold.core.pairs import pair
from tenfold.ops.moments import (
    CLIP,
    EPSILON,
    FINE,
    RunningNorm,
    check_out,
    first_not_finite,
    norm_apply_reference,
    norm_rows,
    norm_scale,
    norm_scale_reference,
    norm_update,
    norm_update_reference,
)
from tenfold.ops.observation_leaves import (
    CODES,
    F32,
    F64,
    I32,
    I64,
    U8,
    WIDER,
    branch,
    example_space,
)

WIDTHS = np.array([8, 8, 4, 4, 1, 1])  # bytes, by code
# a table has a row per leaf, or per component of a discrete leaf
CODE, HOT, BEFORE, BYTES, SKIP, COUNT, COLUMN, FIRST = range(8)


# compiled flattening


@kernel
def copy_leaf(source, first, stride, count, column, out):
    """`count` numbers of each row, the next row's `stride` further on, into the columns from
    `column` on."""
    flat, size = out.reshape(-1), np.uint64(out.shape[1])
    for b in range(np.uint64(out.shape[0])):
        source_at, target_at = first + b * stride, b * size + column
        for j in range(count):
            flat[target_at + j] = source[source_at + j]


@kernel
def whole_number(code, i64, i32, u8, i8, index):
    """A whole number of any width; a loop for each would make compiling slow, and few observations
    hold many."""
    if code == I64:
        return i64[index]
    if code == I32:
        return np.int64(i32[index])
    return np.int64(u8[index]) if code == U8 else np.int64(i8[index])


@kernel
def flatten_bytes(buffer, table, stride, out):
    """The joined bytes of all leaves into rows [B, D]. `stride`: bytes from one observation to the
    next, 0 where the B rows of a leaf follow one another. Returns the first cell that is not
    allowed, or FINE."""
    f64, i64 = (
        buffer[: buffer.size // 8 * 8].view(np.float64),
        buffer[: buffer.size // 8 * 8].view(np.int64),
    )
    f32, i32 = (
        buffer[: buffer.size // 4 * 4].view(np.float32),
        buffer[: buffer.size // 4 * 4].view(np.int32),
    )
    i8, fallible = buffer.view(np.int8), False
    for k in range(table.shape[0]):
        code, width = table[k, CODE], WIDTHS[table[k, CODE]]
        start = table[k, BEFORE] if stride else table[k, BEFORE] * out.shape[0]
        first = np.uint64((start + table[k, SKIP]) // width)
        step = np.uint64((stride if stride else table[k, BYTES]) // width)
        count, column = np.uint64(table[k, COUNT]), np.uint64(table[k, COLUMN])
        if table[k, HOT]:
            for b in range(np.uint64(out.shape[0])):
                for j in range(count):
                    out[b, column + j] = 0
                value = whole_number(code, i64, i32, buffer, i8, first + b * step) - table[k, FIRST]
                if value < 0 or value >= table[k, COUNT]:
                    return np.int64(b) * out.shape[1] + table[k, COLUMN]
                out[b, column + np.uint64(value)] = 1
        elif code == F32:
            copy_leaf(f32, first, step, count, column, out)
        elif code == F64:
            copy_leaf(f64, first, step, count, column, out)
        elif code == U8:
            copy_leaf(buffer, first, step, count, column, out)
        else:
            for b in range(np.uint64(out.shape[0])):
                for j in range(count):
                    out[b, column + j] = whole_number(
                        code, i64, i32, buffer, i8, first + b * step + j
                    )
        fallible |= code in (F32, F64)
    return first_not_finite(out) if fallible else FINE


@kernel
def flatten_norm_bytes(buffer, table, stride, learn, count, moments, epsilon, clip, out):
    """The same, then the moments updated by the rows (with `learn`), then the rows normalised. Rows
    that are not allowed change no moments."""
    bad = flatten_bytes(buffer, table, stride, out)
    if bad == FINE:
        if learn:
            norm_update(count, moments[0], moments[1], out)
            norm_scale(count, moments[1], epsilon, moments[2])
        norm_rows(out, moments[0], moments[2], clip)
    return bad


# the plan


class FlattenPlan:
    """Where each leaf of a space lies in a row of `size` float32 numbers, and how a batch gets
    there in one pass.

    Box as it is, Discrete and MultiDiscrete one-hot, MultiBinary as 0 and 1, Dict and Tuple joined
    in the space's order. Leaves may come in any numeric dtype; those that compiled code cannot read
    (float16, for example) are converted first. What the space does not know is ignored. A plan
    belongs to one thread.
    """

    def __init__(self, space: gym.Space[Any], name: str = "The environment") -> None:
        self.space, self.layout = space, observation_layout(space, name)
        leaves, fetch = branch(space, self.layout, (), 0)
        if not sum(leaf.size for leaf in leaves):
            raise EnvironmentFault(f"{name} has observations without a number in them: {space}.")
        self.fetch: Callable[[Any], tuple[Any, ...]] = fetch or (lambda observation: (observation,))
        self.size, self.fetched = sum(leaf.size for leaf in leaves), leaves
        self.leaves = tuple(sorted(leaves, key=lambda leaf: leaf.column))
        self.shapes = [leaf.shape for leaf in leaves]
        self.batch_shapes: dict[int, list[tuple[int, ...]]] = {}
        self.read_as(
            [
                leaf.dtype if leaf.dtype in CODES else WIDER.get(leaf.dtype, np.dtype(np.float64))
                for leaf in leaves
            ]
        )

    def read_as(self, dtypes: list[np.dtype[Any]]) -> None:
        """The table for leaves of these dtypes. Wide numbers come first, so that all lie at
        multiples of their width."""
        order = sorted(range(len(dtypes)), key=lambda i: -dtypes[i].itemsize)
        rows, before = [], 0
        for i in order:
            leaf = self.fetched[i]
            rows += leaf.table_rows(dtypes[i], before)
            before += leaf.numbers * dtypes[i].itemsize
        self.dtypes, self.table = dtypes, np.array(rows, np.int64)
        self.padding = bytes(-before % 8)
        self.stride = before + len(self.padding)
        sorted_already = order == list(range(len(order)))
        self.arrange: Callable[[Any], Any] = (
            (lambda leaves: leaves) if sorted_already else itemgetter(*order)
        )

    def flatten(
        self,
        observations: Any,
        out: np.ndarray,
        norm: RunningNorm | None = None,
        learn: bool = False,
    ) -> np.ndarray:
        """Writes a batch into `out` [B, size], float32: a list of B observations, or one whose
        leaves have B in front.

        With `norm` the rows are normalised, with `learn` it is updated by them first. An
        observation that the space does not allow raises ObservationError; then no moments have
        changed, and what `out` holds means nothing.
        """
        check_out(out, self.size)
        joined, stride = (self.join_rows if type(observations) is list else self.join)(
            observations, len(out)
        )
        buffer = np.frombuffer(joined, np.uint8)
        if norm is None:
            bad = flatten_bytes(buffer, self.table, stride, out)
        else:
            bad = flatten_norm_bytes(
                buffer,
                self.table,
                stride,
                learn,
                norm.count,
                norm.moments,
                norm.epsilon,
                norm.clip,
                out,
            )
        if bad != FINE:
            raise self.not_allowed(observations, int(bad))
        return out

    def join(self, batch: Any, rows: int) -> tuple[bytes, int]:
        """The bytes of all leaves, each with all its rows. What is not as it was last time takes
        the slow way, leaf by leaf."""
        try:
            leaves = self.fetch(batch)
            if [a.shape for a in leaves] == self.batch_shapes[rows] and [
                a.dtype for a in leaves
            ] == self.dtypes:
                return b"".join(self.arrange(leaves)), 0
        except (LookupError, TypeError, AttributeError, ValueError, BufferError):
            pass
        return self.join_slowly([leaf.array(batch, (rows,)) for leaf in self.fetched], rows)

    def join_rows(self, observations: list[Any], rows: int) -> tuple[bytes, int]:
        """The bytes of one observation after another."""
        if len(observations) != rows:
            raise ValueError(f"out has {rows} rows for {len(observations)} observations")
        buffers: list[Any] = []
        try:
            for observation in observations:
                leaves = self.fetch(observation)
                if [a.shape for a in leaves] != self.shapes or [
                    a.dtype for a in leaves
                ] != self.dtypes:
                    break
                buffers += self.arrange(leaves)
                buffers.append(self.padding)
            else:
                return b"".join(buffers), self.stride
        except (LookupError, TypeError, AttributeError, ValueError, BufferError):
            pass
        return self.join_slowly(
            [np.stack([leaf.array(o, ()) for o in observations]) for leaf in self.fetched], rows
        )

    def join_slowly(self, leaves: list[np.ndarray], rows: int) -> tuple[bytes, int]:
        self.batch_shapes[rows] = [(rows, *shape) for shape in self.shapes]
        self.read_as([a.dtype for a in leaves])
        return b"".join(self.arrange(leaves)), 0

    def not_allowed(self, observations: Any, cell: int) -> ObservationError:
        """The error for a cell of the output: which key, which row, what it holds."""
        row, column = divmod(cell, self.size)
        leaves = [leaf for leaf in self.leaves if leaf.size]
        leaf = leaves[bisect_right([leaf.column for leaf in leaves], column) - 1]
        values = np.ravel(
            leaf.of(observations[row])
            if type(observations) is list
            else np.asarray(leaf.of(observations))[row]
        )
        return leaf.refused(values, row, column)


# plan and reference


def flatten_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    box = gym.spaces.Box(-1, 1, (2, 3), np.dtype(dtype).type)
    for space in (
        example_space(),
        box,
        gym.spaces.Discrete(4),
        gym.spaces.Tuple((box, gym.spaces.Discrete(2))),
    ):
        space.seed(int(rng.integers(2**31)))
        plan = FlattenPlan(space)
        for rows in (1, 5, 32):
            observations = [space.sample() for _ in range(rows)]
            together = concatenate(space, observations, create_empty_array(space, rows))
            yield plan, together, np.full((rows, plan.size), np.nan, np.float32)
            yield plan, observations, np.full((rows, plan.size), np.nan, np.float32)


def flatten_reference(plan, observations, out):
    """Row by row, leaf by leaf."""
    if not isinstance(observations, list):
        observations = iterate(batch_space(plan.space, len(out)), observations)
    for observation, row in zip(observations, out, strict=True):
        plan.layout.write(observation, row)
    return out


@pair(flatten_reference, flatten_examples, dtypes=("float32", "float64"))
def flatten(plan: FlattenPlan, observations: Any, out: np.ndarray) -> np.ndarray:
    """`plan.flatten`."""
    return plan.flatten(observations, out)


def flatten_norm_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for plan, observations, out in flatten_examples(rng, dtype):
        for learn in (False, True):
            mean, m2 = rng.normal(size=plan.size), rng.uniform(0, 50, plan.size)
            yield plan, observations, np.array([20]), mean, m2, learn, out
        yield plan, observations, np.array([0]), np.zeros(plan.size), np.zeros(plan.size), True, out


def flatten_norm_reference(plan, observations, count, mean, m2, learn, out):
    """Flattened, then taken into the moments, then normalised by them."""
    rows = flatten_reference(plan, observations, out)
    if learn:
        count, mean, m2 = norm_update_reference(count, mean, m2, rows)
    return (
        norm_apply_reference(rows, mean, norm_scale_reference(count, m2, EPSILON, None), CLIP, out),
        count,
        mean,
        m2,
    )


@pair(flatten_norm_reference, flatten_norm_examples, rtol=1e-5, atol=1e-6)
def flatten_norm(
    plan: FlattenPlan,
    observations: Any,
    count: np.ndarray,
    mean: np.ndarray,
    m2: np.ndarray,
    learn: bool,
    out: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """`plan.flatten` with a RunningNorm of these moments, which are returned as they are then."""
    norm = RunningNorm(plan.size)
    norm.load_state({"count": count, "mean": mean, "m2": m2})
    return plan.flatten(observations, out, norm, learn), norm.count, norm.mean, norm.m2
