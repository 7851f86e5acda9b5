"""Files and folders that are whole or not there. A file or folder is written under another name
and then renamed, so a reader sees the old or the new one, never half of one. Tensor files are
safetensors with a JSON note and a digest in the header; nothing is pickled. A lock keeps a folder
to one process; runs/latest is the run that was started last.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import get_native_id
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tenfold.core.errors import CheckpointError, UserError
from tenfold.runs.file_schema import ANY, Schema, misfit, parsed

FORMAT = "tenfold-1"
TYPES = ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "C64")
Arrays = dict[str, np.ndarray]
LOCK = ".lock"
RUNS = Path("runs")
LATEST = "latest"
SEVERAL = ("seeds.json", "compare.json", "sweep.json")  # what a folder of several runs holds
# said by `rename` where something is there already
TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@contextlib.contextmanager
def writing(what: object) -> Iterator[None]:
    """A disk that refuses is a person's affair: a sentence about what could not be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what} cannot be written: {error.strerror or error}.") from None


def replace_file(path: Path, content: bytes) -> None:
    """Writes to a temporary name in the same folder, reaches the disk, then renames."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def for_writing(path: Path, flag: str) -> Path:
    """A file that is written after much work; refused before it where that cannot be."""
    with writing(f"{flag} {path}"):
        new = not path.exists()
        path.open("a").close()
        if new:
            path.unlink()
    return path


def digest(arrays: Arrays, note: str) -> str:
    """Over names, types, shapes, numbers and the note."""
    total = hashlib.sha256(note.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.view(np.uint8).data if array.ndim else array.tobytes())
    return total.hexdigest()


def write_arrays(path: Path, arrays: Arrays, note: dict[str, Any]) -> str:
    """Returns the digest."""
    arrays = {
        name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()
    }
    text = json.dumps(note, sort_keys=True)
    checksum = digest(arrays, text)
    replace_file(path, save(arrays, {"format": FORMAT, "note": text, "digest": checksum}))
    return checksum


@contextlib.contextmanager
def opened_arrays(path: Path) -> Iterator[Any]:
    """A tensor file; what cannot be read of it is a CheckpointError."""
    try:
        with safe_open(path, "numpy") as file:
            yield file
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing.") from None
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{path} is damaged or no tenfold file ({' '.join(str(error).split())})."
        ) from None


def note_in(path: Path, about: dict[str, str], schema: Schema) -> dict[str, Any]:
    """The note of a tensor file."""
    try:
        note = parsed(about["note"])
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: its note cannot be read ({error}).") from None
    if wrong := misfit(note, schema):
        raise CheckpointError(f"{path} is damaged: in its note {wrong}.")
    return note


def read_note(path: Path, schema: Schema) -> dict[str, Any]:
    """The note alone: the numbers are neither read nor compared with their checksum."""
    with opened_arrays(path) as file:
        about = file.metadata() or {}
    return note_in(path, about, schema)


def require_known_types(path: Path, file: Any) -> None:
    """Refuses numbers of kinds that nothing of ours is saved as; NumPy has no names for some."""
    for name in file.keys():  # noqa: SIM118
        if (kind := str(file.get_slice(name).get_dtype())) not in TYPES:
            raise CheckpointError(
                f"{path} is damaged or no tenfold file ({name[:80]!a} is of type {kind:.20})."
            )


def read_arrays(
    path: Path, expected: str | None = None, schema: Schema = ANY
) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the note, or a CheckpointError: missing, foreign, torn or altered, or a note
    that is not of the schema."""
    with opened_arrays(path) as file:
        about = file.metadata() or {}
        require_known_types(path, file)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if about.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} was not written by tenfold (format {about.get('format')}, expected {FORMAT})."
        )
    checksum = digest(arrays, about.get("note", ""))
    if checksum != about.get("digest") or expected not in (None, checksum):
        raise CheckpointError(f"{path} is damaged: its contents do not match their checksum.")
    return arrays, note_in(path, about, schema)


class FolderLock:
    """Keeps a folder to its holder until it is left or dropped; whoever comes second is refused.
    The kernel holds the lock, so no death of the process leaves one behind; a lock file that lies
    there means nothing."""

    def __init__(self, folder: Path) -> None:
        with writing(folder):
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        self.release = weakref.finalize(self, os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # replaced between the two calls
            in_use = not os.path.samestat(os.fstat(handle), os.stat(folder / LOCK))
        except (BlockingIOError, FileNotFoundError):
            in_use = True
        except OSError:  # a file system without locks, where nothing can be known
            in_use = False
        if in_use:
            self.release()
            raise UserError(
                f"{folder} is being trained by another process: wait until that ends, or stop it."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


@contextmanager
def locked_below(folder: Path) -> Iterator[None]:
    """A run, or many seeds and each of them, kept to this process, as far as there is one."""
    with ExitStack() as locks:
        for lock in (*folder.glob(LOCK), *folder.glob(f"*/{LOCK}")):
            locks.enter_context(FolderLock(lock.parent))
        yield


@dataclass(frozen=True)
class Numbered:
    """The first free one of PATH, PATH-2, PATH-3, …"""

    path: Path

    def __iter__(self) -> Iterator[Path]:
        yield self.path
        for number in count(2):
            yield self.path.with_name(f"{self.path.name}-{number}")


Target = Path | Numbered


def install(target: Target, fill: Callable[[Path], None]) -> tuple[Path, FolderLock]:
    """A new folder, locked: `fill` writes it under a hidden name, so that it is whole when it
    comes to its place, and before what was there goes. Of two that want the same number one gets
    the next."""
    first = target.path if isinstance(target, Numbered) else target
    made = first.absolute()
    # threads may train side by side
    made = made.with_name(f".{made.name}.{os.getpid()}-{get_native_id()}.new")
    locks = locked_below(first) if isinstance(target, Path) else contextlib.nullcontext()
    try:
        with writing(first), locks:
            made.mkdir(parents=True)
            fill(made)
            lock = FolderLock(made)  # it stays with the folder when that is renamed
            path = moved(made, target)
    except UserError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    update_latest(path)
    return path, lock


def moved(made: Path, target: Target) -> Path:
    if isinstance(target, Path):
        replaced, exists = made.with_suffix(".old"), target.exists()
        if exists:
            target.rename(replaced)  # whole or not at all
        try:
            path = made.rename(target)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                replaced.rename(target)
            raise
        if exists:
            shutil.rmtree(replaced, ignore_errors=True)
        return path
    for path in target:
        try:
            return made.rename(path)
        except OSError as error:
            if error.errno not in TAKEN:
                raise
    raise AssertionError("numbers do not end")


def update_latest(path: Path) -> None:
    """Makes runs/latest a link to a run below runs/ that starts, where links can be made. One of
    several is no run of its own."""
    link, run = RUNS.absolute() / LATEST, path.absolute()
    if not run.is_relative_to(link.parent) or any((run.parent / name).exists() for name in SEVERAL):
        return
    turned = link.with_name(f".{LATEST}.{os.getpid()}-{get_native_id()}")
    with contextlib.suppress(OSError):
        turned.unlink(missing_ok=True)
        turned.symlink_to(run.relative_to(link.parent), target_is_directory=True)
        try:
            turned.replace(link)
        finally:
            turned.unlink(missing_ok=True)


def latest() -> Path | None:
    """The run that runs/latest names, if it is still there."""
    path = resolve_latest(RUNS / LATEST)
    return path if any((path / name).exists() for name in ("run.json", *SEVERAL)) else None


def resolve_latest(path: Path) -> Path:
    """The run itself where runs/latest leads to it: the link may be turned while somebody works
    there."""
    if LATEST not in path.parts:
        return path
    target = path.resolve()
    cwd = Path.cwd()
    return (
        target.relative_to(cwd) if not path.is_absolute() and target.is_relative_to(cwd) else target
    )
