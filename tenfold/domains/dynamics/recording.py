"""A user's own recordings: observations, actions and the time of a step, checked, divided into
steps that train and steps that are held back, and several sessions pooled.

NaN in an observation means that it was not observed. A recording that cannot be trained on is
refused: a missing action or time, an infinite number, episodes whose parts do not fit.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.clock import RecordedClock, clock_of, growing, on_clock
from tenfold.domains.dynamics.missing import never_changes, not_observed, widened
from tenfold.domains.dynamics.recording_formats import KNOWN, read_parts
from tenfold.domains.dynamics.recording_table import EVERYTHING, EpisodeArrays, Selection

# steps of a piece that is held back; the least lets ARX read two steps and look ten ahead
VALIDATION_LENGTH, LEAST = 20, 12
SHARE, SLACK = 0.1, 0.05  # of all steps, held back; a little more or less is as good
SAME = 1e-6  # how far, as a share, two values of dt may differ
DIGEST = "sha256f64-"
MOST = 1e18  # a number whose square, and sums of such, float32 still holds

Episode = tuple[np.ndarray, np.ndarray]


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
        # of one row nothing is known of what follows
        episodes = [episode for episode in self.episodes if len(episode[0]) > 1]
        lengths = [len(y) for y, _ in episodes]
        if not lengths:
            raise UserError(
                f"None of the {len(self.episodes)} episodes has more than one row, and "
                "dynamics are learned from rows that follow each other: rows of one recording "
                "are one episode."
            )
        tried = range(min(VALIDATION_LENGTH, max(lengths)), LEAST - 1, -1)
        counts = {piece: pieces_taken(lengths, piece) for piece in tried}
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
            if never_changes(rows):
                raise UserError(
                    "The observations never change in the steps that are held back for "
                    "validation, and nothing can be judged by these: give longer recordings."
                )
        return division


def pieces_taken(lengths: list[int], piece: int) -> list[int]:
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


# reading


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
        episodes = read_parts(path, selection)
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return checked(path, episodes, dt)


def checked(path: Path, arrays: EpisodeArrays, dt: float | None = None) -> Recording:
    """The recording of a file's episodes; refuses parts that do not fit, numbers that are not
    finite and observations that never change, and puts rows on a regular clock."""
    y, a = arrays.y, arrays.a
    lengths = [len(rows) for rows in y]
    if lengths != [len(rows) for rows in a]:
        raise UserError(
            f"{path}: {len(y)} episodes of {lengths[:5]} observations and "
            f"{len(a)} of {[len(rows) for rows in a][:5]} actions do not fit together: every "
            "observation needs the action that follows it."
        )
    if not any(lengths):
        raise UserError(f"{path} has no rows.")
    if not y[0].shape[1]:
        raise UserError(f"{path}: its observations have no numbers.")
    for what, episodes in (("observations", y), ("actions", a)):
        for episode, rows in enumerate(episodes):
            wrong = np.isinf(rows) if what == "observations" else ~np.isfinite(rows)
            at = f"{path}: {what}, episode {episode}"
            require_none(at, rows, wrong, "is missing or not finite; fill it in or cut there")
            large = f"is beyond ±{MOST:g}; give it in another unit"
            require_none(at, rows, np.abs(rows) > MOST, large)
    pairs = tuple((y.astype(np.float64), a.astype(np.float64)) for y, a in zip(y, a, strict=True))
    every = np.concatenate([rows for rows, _ in pairs])
    if np.isnan(every).all():
        raise UserError(f"{path}: none of its observations was observed: all of them are NaN.")
    if never_changes(every):
        raise UserError(
            f"{path}: none of its observations ever changes, and there is nothing to learn from."
        )
    never = np.isnan(every).all(0)
    if never.any():
        raise UserError(
            f"{path}: observations, number {int(np.argmax(never))} is never observed: leave it out."
        )
    clock = None
    if arrays.time is not None:
        growing(path, arrays.time, lengths)
        clock = clock_of(path, arrays.time, SAME)
    step, notes = step_time(path, arrays, dt, clock), ()
    if clock is not None and arrays.time is not None:
        pairs, notes = on_clock(pairs, arrays.time, clock._replace(dt=step))
    # rows after the last observation, as shorter trials are padded, have nothing to learn from
    kept = []
    for rows, actions in pairs:
        observed = np.flatnonzero(~np.isnan(rows).all(1))
        if len(observed):
            kept.append((rows[: observed[-1] + 1], actions[: observed[-1] + 1]))
    if cut := sum(len(rows) for rows, _ in pairs) - sum(len(rows) for rows, _ in kept):
        are = "row is" if cut == 1 else "rows are"
        notes = (f"{cut:,} {are} left out behind the last observation of an episode", *notes)
    notes = (*notes, *uninformative(kept))
    recording = Recording(tuple(kept), step, arrays.left_out, notes)
    if not recording.missing:
        return recording
    total = recording.steps * recording.sizes[0]
    return replace(recording, notes=(not_observed(recording.missing, total), *notes))


def uninformative(episodes: list[Episode]) -> list[str]:
    """Notes about episodes of one row, and channels that never change."""
    notes, single = [], sum(len(rows) == 1 for rows, _ in episodes)
    if single:
        are = "episode has one row and is" if single == 1 else "episodes have one row and are"
        notes.append(f"{single:,} {are} not trained on, since nothing follows it")
    every = np.concatenate([rows for rows, _ in episodes])
    least, most = np.fmin.reduce(every, 0), np.fmax.reduce(every, 0)
    still = np.flatnonzero(least == most)
    if len(still):
        value = f"({least[still[0]]:g} in every row)"
        which = f"observations, number {still[0]}, never changes {value}"
        if len(still) > 1:
            which = f"{len(still):,} of {len(least):,} observations never change, such as number "
            which += f"{still[0]} {value}"
        notes.append(f"{which}; the model keeps what never changes, and learns nothing from it")
    return notes


def require_none(at: str, rows: np.ndarray, wrong: np.ndarray, sentence: str) -> None:
    """Raises for the first value of an episode that is `wrong`."""
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise UserError(f"{at}, row {row}, number {column} ({rows[row, column]:g}) {sentence}.")


def require_counts(path: Path, recording: Recording) -> None:
    """Poisson noise is of counts."""
    sentence = "is no count, and agent.model.noise = poisson needs whole numbers from 0 on; use "
    for episode, (y, _) in enumerate(recording.episodes):
        wrong = (y < 0) | (~np.isnan(y) & (y != np.round(y)))
        require_none(f"{path}: observations, episode {episode}", y, wrong, f"{sentence}gaussian")


def step_time(
    path: Path, arrays: EpisodeArrays, user_dt: float | None, clock: RecordedClock | None
) -> float:
    """The time of a step: file, time column and user must agree."""
    named = {"its dt": arrays.dt, "--dt": user_dt}
    for what, dt in named.items():
        if dt is not None and not 0 < dt < np.inf:
            raise UserError(
                f"{path} does not say a dt above 0, but {what} is {dt:g}: put it right."
            )
    if clock is not None:
        named["its time"] = clock.dt
    values = [(what, dt) for what, dt in named.items() if dt is not None]
    if not values:
        raise UserError(
            f"{path} does not say a dt above 0: put dt or time into the file, or give --dt."
        )
    name, first = values[0]
    for what, dt in values[1:]:
        slack = clock.slack if clock and what == "its time" else SAME
        if abs(dt - first) > slack * first:
            raise UserError(
                f"{path}: {name} says {first:.9g} for a step and {what} {dt:.9g}: leave "
                "one out, or put it right."
            )
    return first


# several sessions


def pooled(paths: Sequence[Path], recordings: Sequence[Recording]) -> Recording:
    """One recording of all sessions, whose actions and time of a step must be alike: their channels
    side by side, and in each episode NaN (not observed) in those of other sessions.

    An encoder's first layer and a decoder's last layer then have weights for each session, and all
    between them, the dynamics above all, is shared. The encoder reads a channel of another session
    as its mean and gets a flag that it is missing, which makes a bias for each session.
    """
    first, (_, actions) = recordings[0], recordings[0].sizes
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
        (widened(y, end - size, sum(sizes)), a)
        for one, size, end in zip(recordings, sizes, ends.tolist(), strict=True)
        for y, a in one.episodes
    )
    return Recording(episodes, first.dt)
