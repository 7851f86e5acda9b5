"""What `fit` is given: files, frames of pandas, several sessions, names and numbers."""

import hashlib
from collections.abc import Sequence
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenfold.config.notation import show
from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.dynamics.recording_files import USUAL, Columns, Parts
from tenfold.domains.dynamics.recording_frames import is_frame, read_frame
from tenfold.runs.files import writing


class Given(NamedTuple):
    """The files that a fit is about, which columns of them, what was left out before they were
    written, and what a run and a sentence call them."""

    paths: list[Path]
    columns: Columns
    left_out: tuple[str, ...]
    name: str
    words: str


def sources(given: Any, shared: bool, out: str | Path, columns: Columns) -> Given:
    """Files as they are; a frame is written to one, so that a run can be resumed and judged."""
    several = isinstance(given, list | tuple)
    every = list(given) if several else [given]
    if shared != (len(every) > 1):
        raise UserError(
            f"fit was given {len(every)} recordings {'with' if shared else 'without'} shared: "
            "several are fitted by one dynamics with shared=True (--shared), and one alone without."
        )
    frames = [own for own in every if is_frame(own)]
    other = next((own for own in every if not isinstance(own, str | PathLike)), None)
    if other is not None and not frames:
        raise UserError(
            f"fit takes the path of a file, or a pandas frame, and not {type(other).__name__}: "
            'save arrays by np.savez("mine.npz", observations=…, actions=…, dt=…).'
        )
    if not frames:
        paths = [Path(own) for own in every]
        name = paths[0].stem + (f"-and-{len(paths) - 1}-more" if several and shared else "")
        return Given(paths, columns, (), name, str(paths[0]))
    if len(frames) < len(every):
        raise UserError("fit was given files and frames together: give one kind.")
    parts = [read_frame(own, columns) for own in frames]
    paths = [kept_parts(own, Path(out).parent if out else Path("runs")) for own in parts]
    left_out = tuple(name for own in parts for name in own.left_out)
    return Given(paths, USUAL, left_out, "frame", "the frame")


def kept_parts(parts: Parts, folder: Path) -> Path:
    """What a frame holds as an NPZ file below the folder of runs, named after its content."""
    rows = {
        "observations": np.concatenate(parts.y) if parts.y else np.zeros((0, 1)),
        "episode": np.repeat(np.arange(len(parts.y)), [len(own) for own in parts.y]),
    }
    if parts.a and parts.a[0].shape[1]:
        rows["actions"] = np.concatenate(parts.a)
    if parts.time is not None:
        rows["time"] = np.concatenate(parts.time)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(own).tobytes() for own in rows.values()))
    path = folder / "recordings" / f"frame-{digest.hexdigest()[:16]}.npz"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **rows)  # pyright: ignore[reportArgumentType]
    return path


def bin_width(given: float | None) -> float:
    """0 where none is said."""
    width = 0.0 if given is None else as_number(given, "bin")
    if given is not None and not 0 < width < np.inf:
        raise ConfigError("bin", f"= {show(given)} is no width: give one above 0, such as 0.02.")
    return width


def names_in(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name, names with commas between them, or a sequence."""
    return tuple(
        filter(
            None, (name.strip() for name in (given.split(",") if isinstance(given, str) else given))
        )
    )


def as_number(given: object, what: str = "dt") -> float:
    """NumPy's numbers too."""
    if isinstance(given, bool) or not isinstance(given, Real):
        meant = {"dt": "the time of a step, such as 0.05", "bin": "a width, such as 0.02"}[what]
        raise ConfigError(what, f"= {show(given)} is no number: give {meant}.")
    return float(given)
