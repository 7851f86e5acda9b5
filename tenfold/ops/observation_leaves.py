"""The leaves of a structured space: where each lies in a row of numbers, how its value is fetched
from an observation and checked."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import ObservationError
from tenfold.core.layout import ObsLayout

F64, I64, F32, I32, U8, I8 = range(6)  # what compiled code reads
CODES = {
    np.dtype(t): c
    for t, c in (
        (np.float64, F64),
        (np.int64, I64),
        (np.float32, F32),
        (np.int32, I32),
        (np.uint8, U8),
        (np.bool_, U8),
        (np.int8, I8),
    )
}
WIDER = {
    np.dtype(a): np.dtype(b)
    for a, b in (
        (np.float16, np.float32),
        (np.longdouble, np.float64),
        (np.int16, np.int32),
        (
            # read as the second, converted first
            np.uint16,
            np.int32,
        ),
        (np.uint32, np.int64),
        (np.uint64, np.float64),
    )
}


@dataclass(frozen=True)
class Leaf:
    """A leaf of the space and its columns; `choices` are (number, first value) of each discrete
    component."""

    path: tuple[Any, ...]
    column: int
    size: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    choices: tuple[tuple[int, int], ...]

    @property
    def key(self) -> str:
        return ".".join(map(str, self.path))

    @property
    def numbers(self) -> int:
        """How many an observation holds of it."""
        return len(self.choices) or self.size

    def of(self, observation: Any) -> Any:
        """The leaf's value in an observation."""
        for depth, step in enumerate(self.path):
            try:
                observation = observation[step]
            except (LookupError, TypeError):
                present = (
                    ", ".join(map(str, observation))
                    if hasattr(observation, "keys")
                    else type(observation).__name__
                )
                raise ObservationError(
                    ".".join(map(str, self.path[: depth + 1])), f"is missing; there is: {present}."
                ) from None
        return observation

    def array(self, observation: Any, lead: tuple[int, ...]) -> np.ndarray:
        """The leaf's value, checked, as an array that compiled code can read."""
        value = self.of(observation)
        try:
            array = np.asarray(value)
        except (ValueError, TypeError):
            raise ObservationError(
                self.key, f"is no array of numbers, but {type(value).__name__}."
            ) from None
        if array.dtype.kind not in ("biu" if self.choices else "biuf"):
            raise ObservationError(
                self.key,
                f"holds {array.dtype}, and must hold {'whole ' if self.choices else ''}numbers.",
            )
        if array.shape != (*lead, *self.shape):
            raise ObservationError(
                self.key, f"has shape {list(array.shape)}, and must have {[*lead, *self.shape]}."
            )
        native = array.dtype.newbyteorder("=")
        wider = native if native in CODES else np.dtype(np.int64) if self.choices else WIDER[native]
        return np.ascontiguousarray(array, wider).reshape(array.shape)

    def table_rows(self, dtype: np.dtype[Any], before: int) -> list[tuple[int, ...]]:
        """Its rows of the table that compiled code reads, for values of this dtype with `before`
        bytes of an observation in front: one, or one for each discrete component."""
        width, column, rows = dtype.itemsize, self.column, []
        for component, (count, first) in enumerate(self.choices or ((self.size, 0),)):
            hot, skip = bool(self.choices), component * width
            rows.append(
                (CODES[dtype], hot, before, self.numbers * width, skip, count, column, first)
            )
            column += count
        return rows

    def refused(self, values: np.ndarray, row: int, column: int) -> ObservationError:
        """The error for a column of what the leaf became: its key, the row, the value that it
        holds."""
        if not self.choices:
            value = values[column - self.column]
            sort = (
                f"{value}, which float32 cannot hold"
                if np.isfinite(value)
                else f"{value}, which is not finite"
            )
            return ObservationError(
                self.key,
                f"holds {sort}, in row {row}; mend the environment, or clip what it returns.",
            )
        starts = np.cumsum([0, *(count for count, _ in self.choices)]).tolist()
        component = starts.index(column - self.column)
        count, first = self.choices[component]
        return ObservationError(
            self.key,
            f"holds {values[component]} in row {row}, and must hold one of {first} … "
            f"{first + count - 1}.",
        )


def picker(keys: list[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """All values of the keys at once, as a tuple."""
    if len(keys) > 1:
        return itemgetter(*keys)
    return (lambda observation: (observation[keys[0]],)) if keys else (lambda observation: ())


def branch(
    space: Any, layout: ObsLayout, path: tuple[Any, ...], column: int
) -> tuple[list[Leaf], Any]:
    """The leaves below a space, and the function that fetches their values from an observation in
    that order: a node's own leaves first, then its branches. None for a leaf."""
    if space.shape is not None:
        choices = tuple((count, first) for _, count, first in layout.choices)
        return [Leaf(path, column, layout.size, space.shape, space.dtype, choices)], None
    leaves, below, keys, branches = [], [], [], []
    for key, part in zip(layout.keys or range(len(layout.children)), layout.children, strict=True):
        part_leaves, fetch = branch(space[key], part, (*path, key), column)
        column += part.size
        if fetch is None:
            keys.append(key)
            leaves += part_leaves
        else:
            branches.append((key, fetch))
            below += part_leaves
    fetch_leaves = picker(keys)

    def fetch_all(observation: Any) -> tuple[Any, ...]:
        values = fetch_leaves(observation)
        for key, fetch in branches:
            values += fetch(observation[key])
        return values

    return leaves + below, fetch_all if branches else fetch_leaves


# examples


def example_space() -> gym.spaces.Dict:
    """Every kind of leaf, two levels deep."""
    box, discrete = gym.spaces.Box, gym.spaces.Discrete
    return gym.spaces.Dict(
        {
            "speed": box(-5, 5, (3,)),
            "count": box(0, 9, (2, 2), np.int32),
            "image": box(0, 255, (4, 3, 1), np.uint8),
            "arm": gym.spaces.Dict(
                {
                    "angle": box(-np.inf, np.inf, (), np.float64),
                    "grip": discrete(3, start=-1),
                    "joint": gym.spaces.Tuple(
                        (box(-1, 1, (2,), np.float16), gym.spaces.MultiBinary((2, 2)))
                    ),
                }
            ),
            "gear": gym.spaces.MultiDiscrete(np.array([[2, 3], [4, 1]])),
            "none": box(0, 1, (0,)),
            "long": box(-9, 9, (5,), np.int64),
            "short": box(-9, 9, (3,), np.int8),
            "odd": box(0, 9, (1,), np.uint16),
            "far": gym.spaces.MultiDiscrete([3, 3], np.int32),
        }
    )
