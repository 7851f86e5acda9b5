"""Recordings: episodes of observations and actions, divided into steps that train and steps that
are held back; and the recording that a run remembers in the id of its environment."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics import RECORDING, is_recording
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.missing import embed_channels, is_constant
from tenfold.domains.dynamics.recording_checks import SAME, Episode, check_recording, require_none
from tenfold.domains.dynamics.recording_formats import KNOWN, read_parts
from tenfold.domains.dynamics.recording_table import EVERYTHING, Selection
from tenfold.envs.arguments import split_name
from tenfold.runs.checkpoint import Checkpoints, nested_state
from tenfold.runs.folder import RunFolder, is_run
from tenfold.training.learners import load

# steps of a piece that is held back; the least lets ARX read two steps and look ten ahead
VALIDATION_LENGTH, LEAST = 20, 12
SHARE, SLACK = 0.1, 0.05  # of all steps, held back; a little more or less is as good
DIGEST = "sha256f64-"
NO_ID = "start it with `tenfold fit FILE`."


class Division(NamedTuple):
    """The recording that is trained on, and pieces y [E, T, Y] and a [E, T, A] held back from it:
    those that choose the best checkpoint, and those that judge it (the same where there is only
    one)."""

    kept: "Recording"
    choosing: Episode
    judging: Episode

    @property
    def alone(self) -> bool:
        """Whether one piece has to do for both."""
        return self.choosing is self.judging

    @property
    def sentence(self) -> str:
        choosing, judging = (y.shape[0] * y.shape[1] for y, _ in self[1:])
        if self.alone:
            return (
                f"{self.kept.steps:,} steps train, {choosing:,} are held back, so few that the "
                "same choose and judge"
            )
        return (
            f"{self.kept.steps:,} steps train, {choosing + judging:,} are held back ({choosing:,} "
            f"choose the best checkpoint, {judging:,} are for `tenfold eval`)"
        )


@dataclass(frozen=True)
class Recording:
    """Episodes, each observations [T, Y] and actions [T, A], with `dt` between steps; `left_out`
    names what was not read, `notes` say what is missing and what was made regular."""

    episodes: tuple[Episode, ...]
    dt: float
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, int]:
        y, a = self.episodes[0]
        return y.shape[1], a.shape[1]

    @property
    def steps(self) -> int:
        return sum(len(y) for y, _ in self.episodes)

    @property
    def missing(self) -> int:
        """How many values were not observed."""
        return sum(int(np.isnan(y).sum()) for y, _ in self.episodes)

    @property
    def digest(self) -> str:
        """A hash of all numbers, by which a run notices that its recording has changed."""
        # of float64; those of float32 once were sha256-…
        digest = hashlib.sha256(repr(self.dt).encode())
        for array in (array for episode in self.episodes for array in episode):
            digest.update(repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
        return f"{DIGEST}{digest.hexdigest()[:16]}"

    def divided(self) -> Division:
        """About a tenth, in pieces of one length, is cut from the ends of episodes all over the
        recording; no sequence crosses a cut. Every other piece judges."""
        episodes = [episode for episode in self.episodes if len(episode[0]) > 1]
        lengths = [len(y) for y, _ in episodes]
        if not lengths:
            raise UserError(
                f"None of the {len(self.episodes)} episodes has more than one row, and "
                "dynamics are learned from rows that follow each other: rows of one recording "
                "are one episode."
            )
        tried = range(min(VALIDATION_LENGTH, max(lengths)), LEAST - 1, -1)
        counts = {piece: held_out_pieces(lengths, piece) for piece in tried}
        off = {
            piece: max(abs(sum(count) * piece / sum(lengths) - SHARE) - SLACK, 0)
            for piece, count in counts.items()
        }
        # long, but two of them
        piece = min(tried, key=lambda piece: (off[piece], sum(counts[piece]) < 2), default=0)
        count = counts.get(piece, [0] * len(lengths))
        cuts = [length - n * piece for length, n in zip(lengths, count, strict=True)]
        kept = [(y[:cut], a[:cut]) for (y, a), cut in zip(episodes, cuts, strict=True) if cut > 1]
        if not piece or not kept:
            raise UserError(
                "The recordings are too short to hold steps back for validation: the longest of "
                f"{len(lengths)} episodes has {max(lengths)}; {LEAST} are needed, and something "
                "besides to train on."
            )
        y, a = (
            np.concatenate([episode[k][cut:] for episode, cut in zip(episodes, cuts, strict=True)])
            for k in (0, 1)
        )
        y, a = (rows.reshape(sum(count), piece, rows.shape[-1]) for rows in (y, a))
        choosing, judging = (y[::2], a[::2]), (y[1::2], a[1::2])
        train = Recording(tuple(kept), self.dt)
        division = Division(train, choosing, judging if len(y) > 1 else choosing)
        for rows, _ in division[1:]:
            if is_constant(rows):
                raise UserError(
                    "The observations never change in the steps that are held back for "
                    "validation, and nothing can be judged by these: give longer recordings."
                )
        return division


def held_out_pieces(lengths: list[int], piece: int) -> list[int]:
    """How many pieces of each episode are held back so that a share of all steps is: its own share
    as far as that goes, but of an episode of several pieces half at most; what short ones lack the
    long ones give, the last first."""
    most = [length // piece if length < 2 * piece else length // 2 // piece for length in lengths]
    target = max(round(SHARE * sum(lengths) / piece), 1)
    counts, total, passed = [0] * len(lengths), 0, 0
    for k, length in enumerate(lengths):
        passed += length
        counts[k] = min(most[k], round(SHARE * passed / piece) - total)
        total += counts[k]
    for k in reversed(range(len(lengths))):
        more = min(most[k] - counts[k], target - total)
        counts[k], total = counts[k] + more, total + more
    return counts


def require_counts(path: Path, recording: Recording) -> None:
    """Poisson noise is of counts."""
    sentence = "is no count, and agent.model.noise = poisson needs whole numbers from 0 on; use "
    for episode, (y, _) in enumerate(recording.episodes):
        wrong = (y < 0) | (~np.isnan(y) & (y != np.round(y)))
        require_none(f"{path}: observations, episode {episode}", y, wrong, f"{sentence}gaussian")


def read_recording(
    path: Path, dt: float | None = None, selection: Selection = EVERYTHING
) -> Recording:
    """From a file; `dt` where the file does not say it."""
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, and not one of a run: give {KNOWN}, or an explorer's run."
        )
    if not path.is_file():
        raise UserError(f"{path} is not there: give {KNOWN}.")
    try:
        arrays = read_parts(path, selection)
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    episodes, step, notes = check_recording(path, arrays, dt)
    return Recording(episodes, step, arrays.left_out, notes)


def pooled(paths: Sequence[Path], recordings: Sequence[Recording]) -> Recording:
    """One recording of all sessions, whose actions and time of a step must be alike: their channels
    side by side, and in each episode NaN (not observed) in those of other sessions.

    An encoder's first layer and a decoder's last layer then have weights for each session, and all
    between them, the dynamics above all, is shared.
    """
    first, actions = recordings[0], recordings[0].sizes[1]
    for path, other in zip(paths, recordings, strict=True):
        if other.sizes[1] != actions:
            raise UserError(
                f"{path} has {other.sizes[1]} actions and {paths[0]} {actions}: sessions share "
                "their dynamics, and so what pushes it; choose the same with --actions."
            )
        if abs(other.dt - first.dt) > SAME * first.dt:
            raise UserError(
                f"{path} has {other.dt:.9g} for a step and {paths[0]} {first.dt:.9g}: sessions "
                "share their dynamics, and so its time; bin them alike."
            )
    sizes = [other.sizes[0] for other in recordings]
    ends = np.cumsum(sizes)
    episodes = tuple(
        (embed_channels(y, end - size, sum(sizes)), a)
        for one, size, end in zip(recordings, sizes, ends.tolist(), strict=True)
        for y, a in one.episodes
    )
    return Recording(episodes, first.dt)


# the recording of a run


class RecordingSource(NamedTuple):
    """Where a run's recording is, and what the run knows about it."""

    file: str
    observations: int
    actions: int
    dt: float
    digest: str
    selection: Selection
    sessions: tuple[int, ...] = ()  # channels of each of several

    @property
    def paths(self) -> list[Path]:
        if not self.sessions:
            return [Path(self.file)]
        return [Path(unquote(path)) for path in self.file.split("+")]


def parse_recording_id(name: str) -> RecordingSource:
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
    paths: Sequence[Path],
    recording: Recording,
    selection: Selection = EVERYTHING,
    sessions: tuple[int, ...] = (),
) -> str:
    """The id under which a run remembers its recording, or those of several sessions."""
    wrong = next((one for one in paths if set(str(one)) & set("(),=")), None)
    if wrong:
        raise UserError(
            f"{wrong} has one of ( ) , = in its name, which a run's settings cannot hold: rename "
            "it."
        )
    observations, actions = recording.sizes
    names = [str(path.absolute()) for path in paths]
    arguments = {
        "file": "+".join(quote(name) for name in names) if sessions else names[0],
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


def open_recording(
    path: Path, dt: float | None = None, selection: Selection = EVERYTHING
) -> Recording:
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
    recording = run_recording(path)
    if dt is not None and abs(dt - recording.dt) > SAME * recording.dt:
        raise UserError(
            f"{path} was recorded with {recording.dt:.9g} for a step, and --dt says {dt:.9g}: "
            "leave --dt out."
        )
    return recording


def load_recording(name: str) -> Recording:
    """The recording of a run, which must be what it was when the run began."""
    source = parse_recording_id(name)
    if source.digest and not source.digest.startswith(DIGEST):
        raise UserError(
            f"A run on {source.file} by an earlier version of tenfold cannot go on in this one: "
            f"start it anew with `tenfold fit {source.file}`."
        )
    recordings = [open_recording(path, source.dt, source.selection) for path in source.paths]
    recording = pooled(source.paths, recordings) if source.sessions else recordings[0]
    same = recording.sizes == (source.observations, source.actions)
    if not same or source.digest not in ("", recording.digest):
        raise UserError(
            f"{source.file} is no longer what this run was trained on: put it back as it was, or "
            f"start a run of its own with `tenfold fit {source.file}`."
        )
    return recording


def run_recording(path: Path) -> Recording:
    folder, run = RunFolder.open(path)
    if not isinstance(run.agent, Explorer):
        raise UserError(
            f"{path} is a run of {run.agent.name}, which keeps no recordings of a hidden system."
        )
    if is_recording(run.env):
        return load_recording(run.env)
    agent: Any = load(path)
    agent.load_state(nested_state(Checkpoints(folder, run.keep).latest()[0])["agent"])
    episodes = []
    for m in range(agent.members):
        window, rows = agent.window, agent.window.rows()
        for part in np.split(rows, np.flatnonzero(window.first[m, rows[1:]]) + 1):
            if len(part) > 1:
                episodes.append((window.obs[m, part], window.action[m, part]))
    if not episodes:
        raise UserError(f"{path} has recorded nothing yet: go on with `tenfold resume {path}`.")
    return Recording(tuple(episodes), agent.dt)
