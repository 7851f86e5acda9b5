"""Training on recordings, from the command line and from Python: `ten.fit("data.npz")`, and which
recording a run was trained on."""

import hashlib
import sys
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from tenfold.config.mappings import merge
from tenfold.config.notation import show
from tenfold.config.run import Run, named
from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.dynamics import RECORDING, is_recording
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.recording import DIGEST, SAME, Recording, read_recording
from tenfold.domains.dynamics.recording_files import USUAL, Columns, Parts, listed
from tenfold.domains.dynamics.recording_frames import is_frame, read_frame
from tenfold.domains.dynamics.sessions import pooled
from tenfold.envs.arguments import split_name
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.files import writing
from tenfold.runs.folder import RunFolder, is_run
from tenfold.training.learners import load
from tenfold.training.loop import Result, train

SETTINGS = {
    "steps": 3_000,
    "eval_every": 500,
    "checkpoint_every": 1_000,
    "log_every": 100,
    "agent": {"planner": {"policy": "random"}},
}


def fit(
    file: Any,
    out: str | Path = "",
    *,
    settings: dict[str, Any] | None = None,
    dt: float | None = None,
    observations: str | Sequence[str] = "",
    actions: str | Sequence[str] = "",
    bin: float | None = None,
    shared: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
) -> Result:
    """Trains a model on a file (NPZ, CSV, NWB, HDF5, MAT), on a pandas DataFrame, or on what a run
    of an explorer recorded, into the folder `out`; without it into a new one, runs/fit-NAME,
    runs/fit-NAME-2, …. `settings` are those of a run, whose steps are gradient steps; `dt` is the
    time of a step where the file does not say it; `observations` and `actions` name arrays or
    columns, or what names of columns begin with; `bin` is the width in which spike times are
    counted. A list of several with `shared=True` is fitted by one dynamics, with readouts for each.
    """
    step = None if dt is None else as_number(dt)
    columns = Columns(names_in(observations), names_in(actions), bin_width(bin))
    source = sources(file, shared, out, columns)
    parts = [recorded(path, step, source.columns) for path in source.paths]
    left_out = source.left_out + tuple(name for own in parts for name in own.left_out)
    if left_out:
        print(
            f"tenfold: {source.words} also holds what is left out: {listed(left_out)}.",
            file=sys.stderr,
        )
    for path, part in zip(source.paths, parts, strict=True):
        for note in part.notes:
            print(f"tenfold: {path}: {note}.", file=sys.stderr)
    recording = pooled(source.paths, parts) if shared else parts[0]
    own = {"window": recording.steps} | ({"model": {"missing": True}} if recording.missing else {})
    base = merge(merge(SETTINGS, {"agent": own}), settings or {})
    sizes = tuple(part.sizes[0] for part in parts) if shared else ()
    ident = recording_id(source.paths, recording, source.columns, sizes)
    run: Run = named("explorer", base | {"env": ident})
    if not isinstance(run.agent, Explorer):
        raise UserError(f"fit trains agent explorer, not {run.agent.name}.")
    return train(run, out, name=f"fit-{source.name}", overwrite=overwrite, quiet=quiet)


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


# the recording of a run


class Source(NamedTuple):
    """Where a run's recording is, and what the run knows of it."""

    file: str
    observations: int
    actions: int
    dt: float
    digest: str
    columns: Columns
    sessions: tuple[int, ...] = ()
    """channels of each of several sessions"""

    @property
    def paths(self) -> list[Path]:
        if not self.sessions:
            return [Path(self.file)]
        return [Path(unquote(own)) for own in self.file.split("+")]


def source_of(name: str) -> Source:
    """From the id of a recording."""
    _, given = split_name(name, str)
    missing = [part for part in ("file", "observations", "actions", "dt") if part not in given]
    if missing:
        raise UserError(f"{name} does not say its {missing[0]}: start it with `tenfold fit FILE`.")
    try:
        sizes, dt = (int(given["observations"]), int(given["actions"])), float(given["dt"])
        sessions = tuple(map(int, filter(None, given.get("sessions", "").split("+"))))
        width = float(given.get("bin", 0))
    except ValueError:
        raise UserError(f"{name} cannot be read: start it with `tenfold fit FILE`.") from None
    columns = (
        tuple(map(unquote, filter(None, given.get(part, "").split("+"))))
        for part in ("observed", "acted")
    )
    named = Columns(*columns, width)
    return Source(given["file"], *sizes, dt, given.get("digest", ""), named, sessions)


def recording_id(
    path: Path | Sequence[Path],
    recording: Recording,
    columns: Columns = USUAL,
    sessions: tuple[int, ...] = (),
) -> str:
    """The id under which a run remembers its recording, or those of several sessions."""
    paths = [path] if isinstance(path, Path) else list(path)
    wrong = next((own for own in paths if set(str(own)) & set("(),=")), None)
    if wrong:
        raise UserError(
            f"{wrong} has one of ( ) , = in its name, which a run's settings cannot hold: rename "
            "it."
        )
    file = str(paths[0].absolute())
    if sessions:
        file = "+".join(quote(str(own.absolute())) for own in paths)
    observations, actions = recording.sizes
    named = "".join(
        f", {part}={'+'.join(quote(name, safe='') for name in names)}"
        for part, names in zip(("observed", "acted"), columns[:2], strict=True)
        if names
    )
    named += f", bin={columns.bin!r}" if columns.bin else ""
    named += f", sessions={'+'.join(map(str, sessions))}" if sessions else ""
    return (
        f"{RECORDING}(file={file}, observations={observations}, actions={actions}, "
        f"dt={recording.dt!r}, digest={recording.digest}{named})"
    )


def recorded(path: Path, dt: float | None = None, columns: Columns = USUAL) -> Recording:
    """From a file, or from what an explorer's run still has in its window."""
    if not is_run(path):
        below = (
            next((run for run in sorted(path.iterdir()) if is_run(run)), None)
            if path.is_dir()
            else None
        )
        if below:
            raise UserError(
                f"{path} holds runs and is none itself: give one of them, such as {below}."
            )
        return read_recording(path, dt, columns)
    if any(columns):
        raise UserError(
            f"{path} is a run, whose observations and actions are known: --observations, --actions "
            "and --bin are for files."
        )
    recording = of_run(path)
    if dt is not None and abs(dt - recording.dt) > SAME * recording.dt:
        raise UserError(
            f"{path} was recorded with {recording.dt:.9g} for a step, and --dt says {dt:.9g}: "
            "leave --dt out."
        )
    return recording


def recalled(name: str) -> Recording:
    """The recording of a run, which must be what it was when the run began."""
    source = source_of(name)
    if source.digest and not source.digest.startswith(DIGEST):
        raise UserError(
            f"A run on {source.file} by an earlier version of tenfold cannot go on in this one: "
            f"start it anew with `tenfold fit {source.file}`."
        )
    parts = [recorded(path, source.dt, source.columns) for path in source.paths]
    recording = pooled(source.paths, parts) if source.sessions else parts[0]
    if recording.sizes != (source.observations, source.actions) or source.digest not in (
        "",
        recording.digest,
    ):
        raise UserError(
            f"{source.file} is no longer what this run was trained on: put it back as it was, or "
            f"start a run of its own with `tenfold fit {source.file}`."
        )
    return recording


def of_run(path: Path) -> Recording:
    folder, run = RunFolder.open(path)
    if not isinstance(run.agent, Explorer):
        raise UserError(
            f"{path} is a run of {run.agent.name}, which keeps no recordings of a hidden system."
        )
    if is_recording(run.env):
        return recalled(run.env)
    agent: Any = load(path)
    agent.load_state(nested_state(Checkpoints(folder, run.keep).latest()[0])["agent"])
    episodes = []
    for m in range(agent.members):
        window, rows = agent.window, agent.window.places()
        first = [k for k, row in enumerate(rows) if k == 0 or window.first[m, row]]
        episodes += [
            (window.obs[m, rows[s:e]], window.action[m, rows[s:e]])
            for s, e in zip(first, [*first[1:], len(rows)], strict=True)
        ]
    episodes = [(y, a) for y, a in episodes if len(y) > 1]
    if not episodes:
        raise UserError(f"{path} has recorded nothing yet: go on with `tenfold resume {path}`.")
    return Recording(tuple(episodes), agent.dt)
