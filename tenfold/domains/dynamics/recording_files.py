"""Reading recordings from NPZ files, and what readers of all formats share: which arrays or columns
are observations, actions, time and episode.

NPZ: `observations` [E, T, Y] or [T, Y], `actions` alike (none: without actions), `dt` (one number)
or `time` ([E, T] or [T]). Episodes of different length: rows [N, Y] and [N, A] with `episode` [N],
and `time` [N]. Other arrays are left out.
"""

import csv
import zipfile
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import UserError

EPISODE = ("episode", "trial", "trial_id")  # names of the array or column that tells episodes apart
BROKEN = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    csv.Error,
)
SHOWN = 8  # names in a sentence
KINDS = {
    "c": "complex numbers",
    "U": "text",
    "S": "text",
    "M": "dates",
    "m": "spans of time",
    "V": "records",
}


class Columns(NamedTuple):
    """The arrays or columns to take, in place of the usual names; a name alone is also what names
    of columns begin with."""

    observations: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    bin: float = 0.0
    """width in which spike times are counted; 0: not said"""

    @property
    def named(self) -> bool:
        """Whether names were given."""
        return bool(self.observations or self.actions)


USUAL = Columns()


class Parts(NamedTuple):
    """Observations, actions and time of each episode, the file's own dt, and the names of what was
    not read; `binned` where spike times were counted."""

    y: list[np.ndarray]
    a: list[np.ndarray]
    time: list[np.ndarray] | None
    dt: float | None
    left_out: tuple[str, ...] = ()
    binned: bool = False


def listed(names: Sequence[str]) -> str:
    """Names for a sentence, not too many of them."""
    shown = ", ".join(name or "one without a name" for name in names[:SHOWN])
    return (
        f"{shown} and {len(names) - SHOWN} more" if len(names) > SHOWN else shown or "none at all"
    )


def by_episode(path: Path, ids: list[Any], timed: bool) -> list[np.ndarray]:
    """The rows of each episode, in the order of their first ones. Without time rows of an episode
    must stand together: nothing else would tell that one is missing, or that two episodes go by one
    name."""
    rows: dict[Any, list[int]] = {}
    for row, own in enumerate(ids):
        rows.setdefault(own, []).append(row)
    for own, places in rows.items():
        again = next((later for row, later in pairwise(places) if later != row + 1), None)
        if again is not None and not timed:
            raise UserError(
                f"{path}: episode {own} goes on at row {again} after another episode: give every "
                "episode a name of its own, or the rows a time."
            )
    return [np.array(places) for places in rows.values()]


def only_one(path: Path, names: Sequence[str]) -> str | None:
    """The name that tells episodes apart."""
    found = [name for name in EPISODE if name in names]
    if len(found) > 1:
        raise UserError(
            f"{path} has both {found[0]} and {found[1]}, and only one can tell episodes apart: "
            "remove the other."
        )
    return found[0] if found else None


# NPZ


def read_npz(path: Path, columns: Columns = USUAL) -> Parts:
    if not path.stat().st_size:
        raise UserError(f"{path} is empty.")
    with path.open("rb") as stream:  # NumPy leaves a file open that it cannot read
        try:
            file = np.load(stream, allow_pickle=False)
        except BROKEN as error:
            raise UserError(
                f"{path} cannot be read as NPZ ({' '.join(str(error).split())})."
            ) from None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise UserError(
                f"{path} is one bare array (NPY), not an archive: save it with np.savez(file, "
                "observations=…)."
            )
        with file:
            return parts_of(
                path,
                file,
                columns.observations or ("observations",),
                columns.actions or (("actions",) if "actions" in file.files else ()),
            )


def parts_of(
    path: Path, file: Any, observations: tuple[str, ...], actions: tuple[str, ...]
) -> Parts:
    """From arrays of these names."""
    seen = joined(path, file, observations, "--observations")
    done = joined(path, file, actions, "--actions") if actions else np.zeros((*seen.shape[:-1], 0))
    time, dt = (
        numbers(path, file, name) if name in file.files else None for name in ("time", "dt")
    )
    which = only_one(path, file.files) if seen.ndim == done.ndim == 2 else None
    left_out = tuple(
        name for name in file.files if name not in {*observations, *actions, "time", "dt", which}
    )
    if dt is not None and dt.size != 1:
        raise UserError(
            f"{path}: dt has the shape {dt.shape}; it must be one number, the time of a step."
        )
    if time is not None and time.ndim not in (1, 2):
        raise UserError(f"{path}: time has the shape {time.shape}; it must be [T] or [E, T].")
    own = None if dt is None else float(dt.ravel()[0])
    if which:
        ids = names_of(path, file, which, len(seen))
        if not len(seen) == len(done) == (len(seen) if time is None else time.size):
            raise UserError(
                f"{path}: {len(seen)} rows of observations, {len(done)} of "
                f"actions{'' if time is None else f' and {time.size} of time'} do not fit the "
                f"{len(ids)} of {which}."
            )
        groups = by_episode(path, ids, time is not None)
        times = None if time is None else [time.ravel()[rows] for rows in groups]
        return Parts(
            [seen[rows] for rows in groups], [done[rows] for rows in groups], times, own, left_out
        )
    y, a = (
        [np.asarray(own) for own in (part if part.ndim == 3 else part[None])]
        for part in (seen, done)
    )
    times = None if time is None else [time] * len(y) if time.ndim == 1 else list(time)
    return Parts(y, a, times, own, left_out)


def joined(path: Path, file: Any, names: tuple[str, ...], flag: str) -> np.ndarray:
    """The arrays of these names side by side, [T, numbers] or [E, T, numbers]."""
    found = []
    for name in names:
        if name not in file.files:
            raise UserError(
                f"{path} has no array {name}, only {listed(file.files)}: name yours with {flag}."
            )
        array = numbers(path, file, name)
        if array.ndim not in (2, 3):
            raise UserError(
                f"{path}: {name} has the shape {array.shape}; it must be [T, numbers] or [E, T, "
                "numbers]."
            )
        if found and array.shape[:-1] != found[0].shape[:-1]:
            raise UserError(
                f"{path}: {names[0]} has the shape {found[0].shape} and {name} {array.shape}, "
                "which do not fit."
            )
        found.append(array)
    return np.concatenate(found, -1)


def numbers(path: Path, file: Any, name: str) -> np.ndarray:
    """An array of real numbers, as float64."""
    array = array_of(path, file, name)
    if array.dtype.kind not in "biuf":
        raise UserError(
            f"{path}: {name} holds {KINDS.get(array.dtype.kind, str(array.dtype))}; it must hold "
            "real numbers."
        )
    return array.astype(np.float64)


def array_of(path: Path, file: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(file[name])
    except BROKEN as error:
        if "Object arrays" in str(error):
            raise UserError(
                f"{path}: {name} holds Python objects, as NumPy saves episodes of different "
                "length: give them as rows, observations [N, numbers] and actions [N, numbers] "
                "with an array episode [N]."
            ) from None
        raise UserError(
            f"{path}: {name} cannot be read ({' '.join(str(error).split())})."
        ) from None


def names_of(path: Path, file: Any, which: str, rows: int) -> list[Any]:
    """The episode of each row: numbers or text."""
    array = array_of(path, file, which)
    if (
        array.shape != (rows,)
        or array.dtype.kind not in "biufU"
        or (array.dtype.kind == "f" and not np.isfinite(array).all())
    ):
        raise UserError(
            f"{path}: {which} has the shape {array.shape} of {array.dtype}; it must name the "
            f"episode of each of the {rows} rows, by numbers or text."
        )
    return array.tolist()
