"""Where recordings come from: files and frames that `fit` was given, and the recording that a run
remembers in the id of its environment."""

import hashlib
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics import RECORDING, is_recording
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.recording import DIGEST, SAME, Recording, pooled, read_recording
from tenfold.domains.dynamics.recording_table import (
    EVERYTHING,
    EpisodeArrays,
    Selection,
    is_frame,
    read_frame,
)
from tenfold.envs.arguments import split_name
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.folder import RunFolder, is_run
from tenfold.runs.storage import writing
from tenfold.training.learners import load

NO_ID = "start it with `tenfold fit FILE`."


class FitInput(NamedTuple):
    """The files of a fit, which columns of them, what was left out when frames were written to
    files, and the names of a run and in a sentence."""

    paths: list[Path]
    selection: Selection
    left_out: tuple[str, ...]
    name: str
    label: str


def fit_input(recordings: Any, shared: bool, out: str | Path, selection: Selection) -> FitInput:
    """Files as they are; a frame is written to one, so that a run can be resumed and judged."""
    several = isinstance(recordings, list | tuple)
    every = list(recordings) if several else [recordings]
    if shared != (len(every) > 1):
        raise UserError(
            f"fit was given {len(every)} recordings {'with' if shared else 'without'} shared: "
            "several are fitted by one dynamics with shared=True (--shared), and one alone without."
        )
    frames = [one for one in every if is_frame(one)]
    other = next((one for one in every if not isinstance(one, str | PathLike)), None)
    if other is not None and not frames:
        raise UserError(
            f"fit takes the path of a file, or a pandas frame, and not {type(other).__name__}: "
            'save arrays by np.savez("mine.npz", observations=…, actions=…, dt=…).'
        )
    if not frames:
        paths = [Path(one) for one in every]
        name = paths[0].stem + (f"-and-{len(paths) - 1}-more" if several and shared else "")
        return FitInput(paths, selection, (), name, str(paths[0]))
    if len(frames) < len(every):
        raise UserError("fit was given files and frames together: give one kind.")
    tables = [read_frame(one, selection) for one in frames]
    paths = [save_frame(one, Path(out).parent if out else Path("runs")) for one in tables]
    left_out = tuple(name for one in tables for name in one.left_out)
    return FitInput(paths, EVERYTHING, left_out, "frame", "the frame")


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


# the recording of a run


class RecordingSource(NamedTuple):
    """Where a run's recording is, and what the run knows about it."""

    file: str
    observations: int
    actions: int
    dt: float
    digest: str
    selection: Selection
    sessions: tuple[int, ...] = ()
    """channels of each of several sessions"""

    @property
    def paths(self) -> list[Path]:
        if not self.sessions:
            return [Path(self.file)]
        return [Path(unquote(path)) for path in self.file.split("+")]


def source_of(name: str) -> RecordingSource:
    """From the id of a recording."""
    _, arguments = split_name(name, str)
    missing = [key for key in ("file", "observations", "actions", "dt") if key not in arguments]
    if missing:
        raise UserError(f"{name} does not say its {missing[0]}: {NO_ID}")

    def names_under(key: str) -> tuple[str, ...]:
        return tuple(map(unquote, filter(None, arguments.get(key, "").split("+"))))

    try:
        return RecordingSource(
            arguments["file"],
            int(arguments["observations"]),
            int(arguments["actions"]),
            float(arguments["dt"]),
            arguments.get("digest", ""),
            Selection(
                names_under("observed"), names_under("acted"), float(arguments.get("bin", 0))
            ),
            tuple(map(int, names_under("sessions"))),
        )
    except ValueError:
        raise UserError(f"{name} cannot be read: {NO_ID}") from None


def recording_id(
    path: Path | Sequence[Path],
    recording: Recording,
    selection: Selection = EVERYTHING,
    sessions: tuple[int, ...] = (),
) -> str:
    """The id under which a run remembers its recording, or those of several sessions."""
    paths = [path] if isinstance(path, Path) else list(path)
    wrong = next((one for one in paths if set(str(one)) & set("(),=")), None)
    if wrong:
        raise UserError(
            f"{wrong} has one of ( ) , = in its name, which a run's settings cannot hold: rename "
            "it."
        )
    observations, actions = recording.sizes
    arguments = {
        "file": "+".join(quote(str(one.absolute())) for one in paths)
        if sessions
        else str(paths[0].absolute()),
        "observations": observations,
        "actions": actions,
        "dt": repr(recording.dt),
        "digest": recording.digest,
        "observed": "+".join(quote(name, safe="") for name in selection.observations),
        "acted": "+".join(quote(name, safe="") for name in selection.actions),
        "bin": repr(selection.bin) if selection.bin else "",
        "sessions": "+".join(map(str, sessions)),
    }
    return f"{RECORDING}({', '.join(f'{k}={v}' for k, v in arguments.items() if v != '')})"


def recorded(path: Path, dt: float | None = None, selection: Selection = EVERYTHING) -> Recording:
    """From a file, or from the window of an explorer's run."""
    if not is_run(path):
        runs = sorted(path.iterdir()) if path.is_dir() else []
        below = next((run for run in runs if is_run(run)), None)
        if below:
            raise UserError(
                f"{path} holds runs and is none itself: give one of them, such as {below}."
            )
        return read_recording(path, dt, selection)
    if any(selection):
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
    recordings = [recorded(path, source.dt, source.selection) for path in source.paths]
    recording = pooled(source.paths, recordings) if source.sessions else recordings[0]
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
        window, rows = agent.window, agent.window.rows()
        first = [k for k, row in enumerate(rows) if k == 0 or window.first[m, row]]
        episodes += [
            (window.obs[m, rows[s:e]], window.action[m, rows[s:e]])
            for s, e in zip(first, [*first[1:], len(rows)], strict=True)
        ]
    episodes = [(y, a) for y, a in episodes if len(y) > 1]
    if not episodes:
        raise UserError(f"{path} has recorded nothing yet: go on with `tenfold resume {path}`.")
    return Recording(tuple(episodes), agent.dt)
