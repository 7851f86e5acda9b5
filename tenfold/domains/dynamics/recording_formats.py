"""Which file is read how, and reading files of arrays by name: NPZ, HDF5 and MATLAB's.

HDF5 is what begins with its signature, whatever the name: NWB where it has NWB's version, MATLAB
7.3 where MATLAB has written its head before it, else arrays by name, or by those of LFADS. Packages
that are not installed with tenfold are imported by the reader that needs them.

LFADS keeps trials [E, T, channels] in two parts: `train_X` and `valid_X` are read as one array X,
in the order of `train_inds` and `valid_inds` where these exist. Observations are `recon_data`
(which may have neurons and steps that the encoder does not read), else `encod_data` (both of
lfads-torch), else `data` (LFADS of 2018); actions are `ext_input`. An array in a group is named
with its path.

MATLAB: rows are steps, observations [T, Y] or [E, T, Y]. A cell array with a matrix [T_k, Y] in
each cell is a list of episodes; a field of a struct is named `struct.field`, and a field of a
struct array is a list of episodes too. Sparse matrices are filled in."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.recording_table import (
    EPISODE,
    EVERYTHING,
    EpisodeArrays,
    RecordingTable,
    Selection,
    csv_table,
    list_names,
    reading,
    select_episodes,
)
from tenfold.runs.storage import writing

SIGNATURE = b"\x89HDF\r\n\x1a\n"
OFFSETS = (0, 512, 1024, 2048)  # where an HDF5 file may begin; MATLAB's head takes 512 bytes
KNOWN = "NPZ, CSV, NWB, HDF5 or MAT (.npz, .csv, .nwb, .h5, .hdf5, .mat)"
INPUTS = "ext_input"
USUAL = ("observations", "recon_data", "encod_data", "data"), ("actions", INPUTS)
TRAIN, VALID, ORDER = "train_", "valid_", "inds"  # of LFADS
VECTORS = ("time", *EPISODE)  # which MATLAB keeps as matrices of one row or column

Readers = dict[str, Callable[[], Any]]


def read_parts(path: Path, selection: Selection = EVERYTHING) -> EpisodeArrays:
    """Observations and actions of a file's episodes, by the reader of its format."""
    episodes = read_hdf5(path, selection) if is_hdf5(path) else read_other(path, selection)
    if selection.bin and not episodes.binned:
        raise UserError(
            f"{path} has no spike times that could be binned: --bin is for NWB files; leave it out."
        )
    return episodes


def is_hdf5(path: Path) -> bool:
    with path.open("rb") as file:
        for offset in OFFSETS:
            file.seek(offset)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
    return False


def read_other(path: Path, selection: Selection) -> EpisodeArrays:
    suffix, empty = path.suffix.lower(), not path.stat().st_size
    if suffix in (".nwb", ".h5", ".hdf5"):
        raise UserError(f"{path} is {'empty' if empty else 'no HDF5 file, or its head is torn'}.")
    if suffix not in (".npz", ".csv", ".mat"):
        raise UserError(
            f"{path} is of no format that is known by its name or content: give {KNOWN}."
        )
    if empty:
        raise UserError(f"{path} is empty.")
    if suffix == ".csv":
        return select_episodes(csv_table(path), selection)
    if suffix == ".mat":
        return select_episodes(table_of(path, mat_readers(path, selection), selection), selection)
    with path.open("rb") as stream:  # NumPy leaves a file open that it cannot read
        with reading(f"{path} cannot be read as NPZ"):
            file = np.load(stream, allow_pickle=False)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise UserError(
                f"{path} is one bare array (NPY), not an archive: save it with np.savez(file, "
                "observations=…)."
            )
        with file:
            readers = {name: (lambda name=name: file[name]) for name in file.files}
            return select_episodes(RecordingTable(path, readers), selection)


def read_hdf5(path: Path, selection: Selection) -> EpisodeArrays:
    """NWB, MATLAB 7.3, or arrays by name."""
    try:
        import h5py
    except ImportError:
        raise UserError(
            f"{path} is an HDF5 file (as NWB and MATLAB 7.3 are), and h5py, which reads these, is "
            "not installed: pip install 'tenfold[nwb]'."
        ) from None
    with reading(f"{path} cannot be read as HDF5", (OSError,)):
        file = h5py.File(path, "r")
    with file:
        if "nwb_version" in file.attrs:
            from tenfold.domains.dynamics.recording_nwb import read_nwb

            return read_nwb(path, file, selection)
        if path.suffix.lower() == ".nwb":
            raise UserError(f"{path} is HDF5, but has no attribute nwb_version, as NWB files do.")
        with path.open("rb") as stream:
            matlab = stream.read(6) == b"MATLAB"
        if matlab:
            readers = variables(path, dict(group_variables(file, file, "")), selection)
        else:
            readers = hdf5_readers(path, file)
        return select_episodes(table_of(path, readers, selection), selection)


def save_frame(arrays: EpisodeArrays, folder: Path) -> Path:
    """Writes a frame's episodes to an NPZ file below the folder of runs, named after its
    content."""
    rows = {
        "observations": np.concatenate(arrays.y) if arrays.y else np.zeros((0, 1)),
        "episode": np.repeat(np.arange(len(arrays.y)), [len(y) for y in arrays.y]),
    }
    if arrays.a and arrays.a[0].shape[1]:
        rows["actions"] = np.concatenate(arrays.a)
    if arrays.time is not None:
        rows["time"] = np.concatenate(arrays.time)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in rows.values()))
    path = folder / "recordings" / f"frame-{digest.hexdigest()[:16]}.npz"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **rows)  # pyright: ignore[reportArgumentType]
    return path


# arrays of HDF5


def table_of(path: Path, readers: Readers, selection: Selection) -> RecordingTable:
    """Arrays by the usual names or those of LFADS. Its inputs are of all steps of `recon_data`, and
    `encod_data` may have the first of these only."""
    names = [*selection.observations, *(name for name in USUAL[0] if name in readers)][:1]
    if names and names[0] in readers and not selection.actions and "actions" not in readers:
        whole = readers.get(INPUTS)
        shape = np.shape(readers[names[0]]()) if whole else ()
        if whole and len(shape) == 3:
            readers = readers | {INPUTS: lambda: whole()[:, : shape[1]]}
    return RecordingTable(path, readers, USUAL)


def hdf5_readers(path: Path, file: Any) -> Readers:
    nodes: Readers = {}

    def visit(name: str, node: Any) -> None:
        if hasattr(node, "shape") and node.shape is not None:
            nodes[name] = lambda: dataset(node)

    file.visititems(visit)
    if "dt" in file.attrs and "dt" not in nodes:
        nodes["dt"] = lambda: np.asarray(file.attrs["dt"])
    return merge_lfads(path, nodes)


def dataset(node: Any) -> np.ndarray:
    """Its values; text as NumPy's."""
    rows = np.asarray(node[()])
    if rows.dtype.kind in "OS":
        texts = [one.decode() if isinstance(one, bytes) else str(one) for one in rows.ravel()]
        return np.array(texts, dtype=np.str_).reshape(rows.shape)
    return rows


def merge_lfads(path: Path, nodes: Readers) -> Readers:
    """`train_X` and `valid_X` as X, trials in the order in which they were recorded where that is
    known; other names stay as they are."""
    kinds = [name.removeprefix(TRAIN) for name in nodes if name.startswith(TRAIN)]
    names = {part + kind for part in (TRAIN, VALID) for kind in kinds}
    readers = {name: read for name, read in nodes.items() if name not in names}
    order = None
    if {TRAIN + ORDER, VALID + ORDER} <= {*nodes}:
        order = np.argsort(join_splits(path, nodes, ORDER, None).ravel(), kind="stable")
    for kind in kinds:
        if kind != ORDER:
            readers.setdefault(kind, lambda kind=kind: join_splits(path, nodes, kind, order))
    return readers


def join_splits(path: Path, nodes: Readers, kind: str, order: np.ndarray | None) -> np.ndarray:
    """Trials of `train_` and then of `valid_`, where that exists; in this order where it fits."""
    names = [name for name in (TRAIN + kind, VALID + kind) if name in nodes]
    with reading(f"{path}: {' or '.join(names)} cannot be read"):
        rows = [np.asarray(nodes[name]()) for name in names]
    if len({part.shape[1:] for part in rows}) > 1 or not rows[0].ndim:
        shapes = " and ".join(
            f"{name} has the shape {part.shape}" for name, part in zip(names, rows, strict=True)
        )
        raise UserError(f"{path}: {shapes}: trials of both must be alike.")
    whole = np.concatenate(rows)
    return whole if order is None or len(order) != len(whole) else whole[order]


# MATLAB


def mat_readers(path: Path, selection: Selection) -> Readers:
    """Versions 4 to 7, which are no HDF5 files."""
    from scipy.io import loadmat

    # torn files end in whatever the bytes lead to
    with reading(f"{path} cannot be read as a MATLAB file", (Exception,)):
        content = loadmat(path)
    named = [(name, value) for name, value in content.items() if not name.startswith("__")]
    return variables(path, dict(pair for item in named for pair in flatten_mat(*item)), selection)


def flatten_mat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """SciPy's values as arrays and lists of arrays by name."""
    if hasattr(value, "toarray"):
        yield name, np.asarray(value.toarray())
    elif value.dtype.names:
        for field in value.dtype.names:
            rows = [row[field] for row in value.ravel()]
            cells = np.empty(len(rows), object)
            cells[:] = rows
            yield from flatten_mat(f"{name}.{field}", rows[0] if len(rows) == 1 else cells)
    elif value.dtype == object:
        dense = (cell.toarray() if hasattr(cell, "toarray") else cell for cell in value.ravel())
        yield name, [np.asarray(cell) for cell in dense]
    else:
        yield name, value


def group_variables(file: Any, group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Variables of a file of version 7.3 or fields of a struct; names with # are MATLAB's own."""
    for name, node in group.items():
        if name.startswith("#"):
            continue
        if hasattr(node, "shape") or "MATLAB_sparse" in node.attrs:
            yield prefix + name, node_value(file, node)
        else:
            yield from group_variables(file, node, f"{prefix}{name}.")


def node_value(file: Any, node: Any) -> Any:
    """An array, or a list of arrays where the node holds references to them."""
    if "MATLAB_sparse" in node.attrs:
        from scipy.sparse import csc_matrix

        ends = np.asarray(node["jc"])
        shape = (int(node.attrs["MATLAB_sparse"]), len(ends) - 1)
        if "data" not in node:  # nothing but zeros
            return np.zeros(shape)
        return csc_matrix((np.asarray(node["data"]), np.asarray(node["ir"]), ends), shape).toarray()
    rows = np.asarray(node[()])
    if "MATLAB_empty" in node.attrs and np.any(node.attrs["MATLAB_empty"]):
        return np.zeros(rows.astype(int).ravel().tolist())
    if rows.dtype == object:
        return [node_value(file, file[reference]) for reference in rows.T.ravel()]
    if node.attrs.get("MATLAB_class", b"") == b"char":
        return np.array("".join(map(chr, rows.T.ravel())))
    return rows.T


def variables(path: Path, values: dict[str, Any], selection: Selection) -> Readers:
    """Lists become rows with the episode of each."""
    ids: list[np.ndarray] = []

    def reader(name: str, value: Any) -> Callable[[], Any]:
        if isinstance(value, list):
            return lambda: joined_cells(path, name, value, ids)
        vector = name in VECTORS and value.ndim == 2 and 1 in value.shape
        return lambda: value.ravel() if vector else value

    readers = {name: reader(name, value) for name, value in values.items()}
    names = {*selection.observations, *selection.actions, "observations", "actions", "time"}
    if any(isinstance(value, list) and name in names for name, value in values.items()):
        for name in EPISODE:  # one name for each cell, which adds nothing to the cells
            readers.pop(name, None)
        readers = {EPISODE[0]: lambda: ids[0]} | readers
    return readers


def joined_cells(
    path: Path, name: str, cells: list[np.ndarray], ids: list[np.ndarray]
) -> np.ndarray:
    """Matrices [T_k, Y] below one another; `ids` gets the cell of each row, once."""
    if name == "time":
        cells = [cell.reshape(-1, 1) for cell in cells]
    shapes = [cell.shape for cell in cells]
    if not cells or any(len(s) != 2 for s in shapes) or len({s[1:] for s in shapes}) > 1:
        where = next((k for k, shape in enumerate(shapes) if shape[1:] != shapes[0][1:]), 0)
        raise UserError(
            f"{path}: cell {where + 1} of {name} has the shape {(*shapes, 'of no cell')[where]}, "
            f"cell 1 {(*shapes, 'of no cell')[0]}: every cell must be a matrix of one episode, a "
            f"row for each step and a column for each number."
        )
    cell_ids = np.repeat(np.arange(len(cells)), [len(rows) for rows in cells])
    if ids and not np.array_equal(ids[0], cell_ids):
        raise UserError(
            f"{path}: the cells of {name} have "
            f"{list_names([str(len(rows)) for rows in cells])} rows, "
            "which are not those of the observations."
        )
    ids.append(cell_ids)
    rows = np.concatenate(cells)
    return rows.ravel() if name == "time" else rows
