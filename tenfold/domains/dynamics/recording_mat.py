"""Reading MATLAB files, all versions: variables by the names that arrays of NPZ files have.

Rows are steps, as in MATLAB's own tables: observations [T, Y] or [E, T, Y]. A cell array with a
matrix [T_k, Y] in each cell is a list of episodes; a field of a struct is named `struct.field`, and
a field of a struct array is a list of episodes too. Sparse matrices are filled in.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.recording_files import EPISODE, Columns, Parts, listed
from tenfold.domains.dynamics.recording_hdf5 import Arrays, named_parts

VECTORS = ("time", *EPISODE)  # which MATLAB keeps as matrices of one row or column


def is_matlab(path: Path) -> bool:
    """Whether MATLAB wrote its head before the HDF5 file."""
    with path.open("rb") as file:
        return file.read(6) == b"MATLAB"


def read_mat(path: Path, columns: Columns) -> Parts:
    """Versions 4 to 7, which are no HDF5 files."""
    from scipy.io import loadmat

    if not path.stat().st_size:
        raise UserError(f"{path} is empty.")
    try:
        found = loadmat(path)
    except Exception as error:  # torn files end in whatever the bytes lead to
        raise UserError(
            f"{path} cannot be read as a MATLAB file ({' '.join(str(error).split())})."
        ) from None
    own = {name: value for name, value in found.items() if not name.startswith("__")}
    return variables(path, dict(plain("", own)), columns)


def plain(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What SciPy gives, as arrays and lists of arrays by name."""
    if isinstance(value, dict):
        for own, inner in value.items():
            yield from plain(own, inner)
    elif hasattr(value, "toarray"):
        yield name, np.asarray(value.toarray())
    elif value.dtype.names:
        for field in value.dtype.names:
            inner = [row[field] for row in value.ravel()]
            yield from plain(f"{name}.{field}", inner[0] if len(inner) == 1 else cell(inner))
    elif value.dtype == object:
        yield (
            name,
            [
                np.asarray(own.toarray() if hasattr(own, "toarray") else own)
                for own in value.ravel()
            ],
        )
    else:
        yield name, value


def cell(values: list[Any]) -> np.ndarray:
    """A row of cells with these values."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


# version 7.3


def read_mat73(path: Path, file: Any, columns: Columns) -> Parts:
    return variables(path, dict(of_group(file, file, "")), columns)


def of_group(file: Any, group: Any, before: str) -> Iterator[tuple[str, Any]]:
    """Variables of a file or fields of a struct; what begins with # is MATLAB's own."""
    for name, node in group.items():
        if name.startswith("#"):
            continue
        if hasattr(node, "shape") or "MATLAB_sparse" in node.attrs:
            yield before + name, of_node(file, node)
        else:
            yield from of_group(file, node, f"{before}{name}.")


def of_node(file: Any, node: Any) -> Any:
    """An array, or a list of arrays where the node holds references to them."""
    if "MATLAB_sparse" in node.attrs:
        return of_sparse(node)
    kind = node.attrs.get("MATLAB_class", b"")
    rows = np.asarray(node[()])
    if "MATLAB_empty" in node.attrs and np.any(node.attrs["MATLAB_empty"]):
        return np.zeros(rows.astype(int).ravel().tolist())
    if rows.dtype == object:
        return [of_node(file, file[own]) for own in rows.T.ravel()]
    if kind == b"char":
        return np.array("".join(map(chr, rows.T.ravel())))
    return rows.T


def of_sparse(node: Any) -> np.ndarray:
    from scipy.sparse import csc_matrix

    ends = np.asarray(node["jc"])
    shape = (int(node.attrs["MATLAB_sparse"]), len(ends) - 1)
    if "data" not in node:  # nothing but zeros
        return np.zeros(shape)
    return csc_matrix((np.asarray(node["data"]), np.asarray(node["ir"]), ends), shape).toarray()


# both


def variables(path: Path, found: dict[str, Any], columns: Columns) -> Parts:
    """Lists become rows with the episode of each."""
    ids: list[np.ndarray] = []

    def reader(name: str, value: Any) -> Callable[[], Any]:
        if isinstance(value, list):
            return lambda: joined_cells(path, name, value, ids)
        vector = name in VECTORS and value.ndim == 2 and 1 in value.shape
        return lambda: value.ravel() if vector else value

    readers = {name: reader(name, value) for name, value in found.items()}
    asked = {*columns.observations, *columns.actions, "observations", "actions", "time"}
    if any(isinstance(value, list) and name in asked for name, value in found.items()):
        for name in EPISODE:  # one name for each cell, which says no more than the cells do
            readers.pop(name, None)
        readers = {EPISODE[0]: lambda: ids[0]} | readers
    return named_parts(path, Arrays(readers), columns)


def joined_cells(
    path: Path, name: str, cells: list[np.ndarray], ids: list[np.ndarray]
) -> np.ndarray:
    """Matrices [T_k, Y] below one another; `ids` gets the cell of each row, once."""
    if name == "time":
        cells = [own.reshape(-1, 1) for own in cells]
    shapes = [own.shape for own in cells]
    width = {shape[1:] for shape in shapes}
    if not cells or any(len(shape) != 2 for shape in shapes) or len(width) > 1:
        where = next((k for k, shape in enumerate(shapes) if shape[1:] != shapes[0][1:]), 0)
        raise UserError(
            f"{path}: cell {where + 1} of {name} has the shape {(*shapes, 'of no cell')[where]}, "
            f"cell 1 {(*shapes, 'of no cell')[0]}: every cell must be a matrix of one episode, a "
            f"row for each step and a column for each number."
        )
    own = np.repeat(np.arange(len(cells)), [len(rows) for rows in cells])
    if ids and not np.array_equal(ids[0], own):
        raise UserError(
            f"{path}: the cells of {name} have {listed([str(len(rows)) for rows in cells])} rows, "
            "which are not those of the observations."
        )
    ids.append(own)
    rows = np.concatenate(cells)
    return rows.ravel() if name == "time" else rows
