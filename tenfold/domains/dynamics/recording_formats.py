"""Which file is read how: by what stands in it, and by its name where that does not tell.

HDF5 is what begins with its signature, whatever the name: NWB where the file says so of itself,
MATLAB 7.3 where MATLAB has written its head before it, else arrays by name. Packages that are not
installed with tenfold are imported by the reader that needs them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.recording_files import Columns, Parts, read_npz
from tenfold.domains.dynamics.recording_tables import read_csv

SIGNATURE = b"\x89HDF\r\n\x1a\n"
PLACES = (0, 512, 1024, 2048)  # where an HDF5 file may begin; MATLAB's head takes 512 bytes
KNOWN = "NPZ, CSV, NWB, HDF5 or MAT (.npz, .csv, .nwb, .h5, .hdf5, .mat)"

Reader = Callable[[Path, Columns], Parts]


def read_parts(path: Path, columns: Columns) -> Parts:
    """What a file holds, by the reader of its format."""
    parts = reader_of(path)(path, columns)
    if columns.bin and not parts.binned:
        raise UserError(
            f"{path} has no spike times that could be binned: --bin is for NWB files; leave it out."
        )
    return parts


def reader_of(path: Path) -> Reader:
    """The reader of a file's format."""
    suffix = path.suffix.lower()
    if is_hdf5(path):
        return read_hdf5_kind
    if suffix in (".nwb", ".h5", ".hdf5"):
        empty = not path.stat().st_size
        raise UserError(f"{path} is {'empty' if empty else 'no HDF5 file, or its head is torn'}.")
    if suffix == ".mat":
        from tenfold.domains.dynamics.recording_mat import read_mat

        return read_mat
    if suffix in (".npz", ".csv"):
        return read_npz if suffix == ".npz" else read_csv
    raise UserError(f"{path} is of no format that is known by its name or content: give {KNOWN}.")


def is_hdf5(path: Path) -> bool:
    with path.open("rb") as file:
        for place in PLACES:
            file.seek(place)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
    return False


def read_hdf5_kind(path: Path, columns: Columns) -> Parts:
    """NWB, MATLAB 7.3, or arrays by name."""
    from tenfold.domains.dynamics.recording_hdf5 import opened, read_hdf5
    from tenfold.domains.dynamics.recording_mat import is_matlab, read_mat73
    from tenfold.domains.dynamics.recording_nwb import read_nwb

    with opened(path) as file:
        return kind_of(path, file, read_nwb, read_mat73 if is_matlab(path) else read_hdf5)(
            path, file, columns
        )


def kind_of(path: Path, file: Any, nwb: Any, other: Any) -> Callable[..., Parts]:
    """NWB says its version; a file of that name that does not is refused."""
    if "nwb_version" in file.attrs:
        return nwb
    if path.suffix.lower() == ".nwb":
        raise UserError(f"{path} is HDF5, but has no attribute nwb_version, as NWB files do.")
    return other
