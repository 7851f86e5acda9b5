"""Atomic files and folders: written under a temporary name, then renamed, so that a reader sees the
old or the new one, never half of one. Tensor files are safetensors with a JSON note and a digest in
the header; nothing is pickled. A lock gives one process a folder; runs/latest is the run that was
started last."""

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
    """Turns an OSError into a UserError that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what} cannot be written: {error.strerror or error}.") from None


def replace_file(path: Path, content: bytes) -> None:
    """Writes to a temporary name in the same folder, syncs, then renames."""
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


def write_json(path: Path, content: Any) -> None:
    replace_file(path, json.dumps(content, indent=1).encode())


def for_writing(path: Path, flag: str) -> Path:
    """Refuses a file that cannot be written, before the work for it starts."""
    with writing(f"{flag} {path}"):
        new = not path.exists()
        path.open("a").close()
        if new:
            path.unlink()
    return path


def digest(arrays: Arrays, note: str) -> str:
    """The SHA-256 of names, types, shapes, numbers and note."""
    total = hashlib.sha256(note.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.view(np.uint8).data if array.ndim else array.tobytes())
    return total.hexdigest()


def tensor_file(arrays: Arrays, note: dict[str, Any]) -> tuple[bytes, str]:
    """The bytes of a tensor file, and the digest in its header."""
    arrays = {
        name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()
    }
    text = json.dumps(note, sort_keys=True)
    checksum = digest(arrays, text)
    return save(arrays, {"format": FORMAT, "note": text, "digest": checksum}), checksum


def write_arrays(path: Path, arrays: Arrays, note: dict[str, Any]) -> str:
    """Returns the digest."""
    content, checksum = tensor_file(arrays, note)
    replace_file(path, content)
    return checksum


@contextlib.contextmanager
def opened_arrays(path: Path) -> Iterator[Any]:
    """Opens a tensor file; reading errors become a CheckpointError."""
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
    """The note alone, without reading or checking the arrays."""
    with opened_arrays(path) as file:
        about = file.metadata() or {}
    return note_in(path, about, schema)


def require_known_types(path: Path, file: Any) -> None:
    """Refuses element types that tenfold does not write; NumPy lacks some."""
    for name in file.keys():  # noqa: SIM118
        if (kind := str(file.get_slice(name).get_dtype())) not in TYPES:
            raise CheckpointError(
                f"{path} is damaged or no tenfold file ({name[:80]!a} is of type {kind:.20})."
            )


def read_arrays(
    path: Path, expected: str | None = None, schema: Schema = ANY
) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the note; a CheckpointError if the file is missing, foreign or damaged, or the
    note does not fit the schema."""
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
    """Locks a folder; a second holder is refused. The kernel holds the lock, so none outlives its
    process; the lock file alone means nothing."""

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
    """Locks a run, or many seeds and each of them, where they exist."""
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
    """Creates a locked folder: `fill` writes it under a hidden name, and a rename puts it in place
    of an old one. Two processes that want the same number get two."""
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
    """Points runs/latest at a run below runs/, where links are supported. Members of several runs
    do not count."""
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
    """The run that runs/latest points at, if it still exists."""
    path = resolve_latest(RUNS / LATEST)
    return path if any((path / name).exists() for name in ("run.json", *SEVERAL)) else None


def resolve_latest(path: Path) -> Path:
    """Resolves runs/latest: the link may change during the work."""
    if LATEST not in path.parts:
        return path
    target = path.resolve()
    cwd = Path.cwd()
    return (
        target.relative_to(cwd) if not path.is_absolute() and target.is_relative_to(cwd) else target
    )
