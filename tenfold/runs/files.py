"""Tensor files that are whole or refused: safetensors with a JSON note and a digest in the header,
written beside and renamed.

Nothing is pickled. A file is replaced in one step, so a reader sees the old or the new one, never
half of one.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tenfold.core.errors import CheckpointError, UserError
from tenfold.runs.schema import ANY, Schema, misfit, parsed

FORMAT = "tenfold-1"
TYPES = ("F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL", "C64")
Arrays = dict[str, np.ndarray]


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
    found = digest(arrays, text)
    replace_file(path, save(arrays, {"format": FORMAT, "note": text, "digest": found}))
    return found


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
    found = digest(arrays, about.get("note", ""))
    if found != about.get("digest") or expected not in (None, found):
        raise CheckpointError(f"{path} is damaged: its contents do not match their checksum.")
    return arrays, note_in(path, about, schema)
