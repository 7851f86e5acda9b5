"""Reading HDF5 files: arrays by the names that NPZ files have, or by those of LFADS.

LFADS keeps trials [E, T, channels] in two parts: `train_X` and `valid_X` are read as one array X,
in the order of `train_inds` and `valid_inds` where these are there. Observations are `recon_data`
(which may have neurons and steps that the encoder does not see), else `encod_data` (both of
lfads-torch), else `data` (LFADS of 2018); actions are `ext_input`. What is trained on and what is
held back is decided as for every recording. An array in a group is named with its path.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.recording_files import BROKEN, Columns, Parts, parts_of

OBSERVED = ("observations", "recon_data", "encod_data", "data")
ACTED = ("actions", "ext_input")
TRAIN, VALID, ORDER = "train_", "valid_", "inds"


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An HDF5 file, to be read."""
    try:
        import h5py
    except ImportError:
        raise UserError(
            f"{path} is an HDF5 file (as NWB and MATLAB 7.3 are), and h5py, which reads these, is "
            "not installed: pip install 'tenfold[nwb]'."
        ) from None
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise UserError(
            f"{path} cannot be read as HDF5 ({' '.join(str(error).split())})."
        ) from None
    with file:
        yield file


class Arrays:
    """Arrays by name, as an NPZ archive gives them: each is read when it is asked for."""

    def __init__(self, readers: dict[str, Callable[[], Any]]) -> None:
        self.readers = readers

    @property
    def files(self) -> list[str]:
        return list(self.readers)

    def __getitem__(self, name: str) -> Any:
        return self.readers[name]()


def usual(files: list[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """The first of the usual names that is there."""
    return next(((name,) for name in names if name in files), ())


def named_parts(path: Path, arrays: Arrays, columns: Columns) -> Parts:
    """Observations and actions by the names asked for, or by the usual ones."""
    seen = columns.observations or usual(arrays.files, OBSERVED) or OBSERVED[:1]
    done = columns.actions or usual(arrays.files, ACTED)
    if done == ACTED[1:] and not columns.actions and seen[0] in arrays.files:
        # inputs are of all steps of recon_data, and encod_data may have the first of these only
        whole, shape = arrays.readers[done[0]], np.shape(arrays[seen[0]])
        arrays.readers[done[0]] = lambda: whole()[:, : shape[1]] if len(shape) == 3 else whole()
    return parts_of(path, arrays, seen, done)


def read_hdf5(path: Path, file: Any, columns: Columns) -> Parts:
    found: dict[str, Callable[[], Any]] = {}

    def visit(name: str, node: Any) -> None:
        if hasattr(node, "shape") and node.shape is not None:
            found[name] = lambda: values_of(node)

    file.visititems(visit)
    if "dt" in file.attrs and "dt" not in found:
        found["dt"] = lambda: np.asarray(file.attrs["dt"])
    return named_parts(path, Arrays(stacked(path, found)), columns)


def values_of(node: Any) -> np.ndarray:
    """A dataset; text as NumPy's."""
    rows = np.asarray(node[()])
    if rows.dtype.kind in "OS":
        texts = [own.decode() if isinstance(own, bytes) else str(own) for own in rows.ravel()]
        return np.array(texts, dtype=np.str_).reshape(rows.shape)
    return rows


def stacked(path: Path, found: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """`train_X` and `valid_X` as X; names that have no such part stay as they are."""
    kinds = [name.removeprefix(TRAIN) for name in found if name.startswith(TRAIN)]
    result = {
        name: read
        for name, read in found.items()
        if not (name.startswith((TRAIN, VALID)) and name[len(TRAIN) :] in kinds)
    }
    if not kinds:
        return result
    order = None
    if f"{TRAIN}{ORDER}" in found and f"{VALID}{ORDER}" in found:
        order = np.argsort(both(path, found, ORDER).ravel(), kind="stable")
    for kind in kinds:
        if kind != ORDER:
            result.setdefault(kind, lambda kind=kind: ordered(both(path, found, kind), order))
    return result


def both(path: Path, found: dict[str, Callable[[], Any]], kind: str) -> np.ndarray:
    """Trials of `train_` and then of `valid_`, where that is there."""
    names = [name for name in (TRAIN + kind, VALID + kind) if name in found]
    try:
        rows = [np.asarray(found[name]()) for name in names]
    except BROKEN as error:
        raise UserError(
            f"{path}: {' or '.join(names)} cannot be read ({' '.join(str(error).split())})."
        ) from None
    if len({own.shape[1:] for own in rows}) > 1 or not rows[0].ndim:
        shapes = " and ".join(
            f"{name} has the shape {own.shape}" for name, own in zip(names, rows, strict=True)
        )
        raise UserError(f"{path}: {shapes}: trials of both must be alike.")
    return np.concatenate(rows)


def ordered(rows: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    """Trials as they were recorded, where that is known and fits."""
    return rows if order is None or len(order) != len(rows) else rows[order]
