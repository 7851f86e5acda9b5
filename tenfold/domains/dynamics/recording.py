"""A user's own recordings: observations, actions and the time of a step, and what is held back of
them.

NaN in an observation means that it was not observed. What cannot be trained on is refused: an
action or a time that is missing, a number that is infinite, parts that do not fit one another.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.clock import Clock, clock_of, growing, on_clock
from tenfold.domains.dynamics.missing import never_changes, not_observed
from tenfold.domains.dynamics.recording_files import USUAL, Columns, Parts
from tenfold.domains.dynamics.recording_formats import KNOWN, read_parts

# steps of a piece that is held back; the least lets ARX see two steps and look ten ahead
HELD, LEAST = 20, 12
SHARE, SLACK = 0.1, 0.05  # of all steps, held back; a little more or less is as good
SAME = 1e-6  # how far, as a share, two values of dt may differ
DIGEST = "sha256f64-"
MOST = 1e18  # a number whose square, and sums of such, float32 still holds

Episode = tuple[np.ndarray, np.ndarray]


class Division(NamedTuple):
    """What is trained on, and pieces y [E, T, Y] and a [E, T, A] held back from it: those that
    choose the best checkpoint, and those that judge it (the same where there is only one)."""

    kept: "Recording"
    choosing: Episode
    judging: Episode

    @property
    def alone(self) -> bool:
        """Whether one piece has to do for both."""
        return self.choosing is self.judging

    @property
    def sentence(self) -> str:
        choosing, judging = (part[0].shape[0] * part[0].shape[1] for part in self[1:])
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
        """Of all numbers, so that a run notices that its recording is another one now."""
        # of float64; those of float32 once were sha256-…
        found = hashlib.sha256(repr(self.dt).encode())
        for part in (part for episode in self.episodes for part in episode):
            found.update(repr(part.shape).encode() + np.ascontiguousarray(part).tobytes())
        return f"{DIGEST}{found.hexdigest()[:16]}"

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
        pieces = range(min(HELD, max(lengths)), LEAST - 1, -1)
        taken_by = {piece: pieces_taken(lengths, piece) for piece in pieces}
        off = {
            piece: max(abs(sum(taken) * piece / sum(lengths) - SHARE) - SLACK, 0)
            for piece, taken in taken_by.items()
        }
        # long, but two of them
        piece = min(pieces, key=lambda piece: (off[piece], sum(taken_by[piece]) < 2), default=0)
        taken = taken_by.get(piece, [0] * len(lengths))
        cuts = [length - n * piece for length, n in zip(lengths, taken, strict=True)]
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
        y, a = (part.reshape(sum(taken), piece, part.shape[-1]) for part in (y, a))
        choosing, judging = (y[::2], a[::2]), (y[1::2], a[1::2])
        division = Division(
            Recording(tuple(kept), self.dt), choosing, judging if len(y) > 1 else choosing
        )
        for rows, _ in division[1:]:
            if never_changes(rows):
                raise UserError(
                    "The observations never change in the steps that are held back for "
                    "validation, and nothing can be judged by these: give longer recordings."
                )
        return division


def pieces_taken(lengths: list[int], piece: int) -> list[int]:
    """How many pieces each episode gives so that a share of all steps is held back: its own share
    as far as that goes, but of an episode of several pieces half at most; what short ones owe the
    long ones give, the last first."""
    most = [length // piece if length < 2 * piece else length // 2 // piece for length in lengths]
    wanted = max(round(SHARE * sum(lengths) / piece), 1)
    taken, given, passed = [0] * len(lengths), 0, 0
    for k, length in enumerate(lengths):
        passed += length
        taken[k] = min(most[k], round(SHARE * passed / piece) - given)
        given += taken[k]
    for k in reversed(range(len(lengths))):
        more = min(most[k] - taken[k], wanted - given)
        taken[k], given = taken[k] + more, given + more
    return taken


# reading


def read_recording(path: Path, dt: float | None = None, columns: Columns = USUAL) -> Recording:
    """From a file; `dt` where the file does not say it."""
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, and not one of a run: give {KNOWN}, or an explorer's run."
        )
    if not path.is_file():
        raise UserError(f"{path} is not there: give {KNOWN}.")
    try:
        parts = read_parts(path, columns)
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return checked(path, parts, dt)


def checked(path: Path, parts: Parts, given: float | None = None) -> Recording:
    """Refuses what does not fit together, is not finite, never changes, or has gaps."""
    y, a = parts.y, parts.a
    if len(y) != len(a) or any(len(seen) != len(done) for seen, done in zip(y, a, strict=True)):
        raise UserError(
            f"{path}: {len(y)} episodes of {[len(seen) for seen in y][:5]} observations and "
            f"{len(a)} of {[len(done) for done in a][:5]} actions do not fit together: every "
            "observation needs the action that follows it."
        )
    if not y or not any(map(len, y)):
        raise UserError(f"{path} has no rows.")
    if not y[0].shape[1]:
        raise UserError(f"{path}: its observations have no numbers.")
    for episode, (seen, done) in enumerate(zip(y, a, strict=True)):
        for what, part in (("observations", seen), ("actions", done)):
            wrong = np.isinf(part) if what == "observations" else ~np.isfinite(part)
            words = "is missing or not finite; fill it in or cut there"
            require(path, what, episode, part, wrong, words)
            require(
                path,
                what,
                episode,
                part,
                np.abs(part) > MOST,
                f"is beyond ±{MOST:g}; give it in another unit",
            )
    pairs = tuple(
        (seen.astype(np.float64), done.astype(np.float64)) for seen, done in zip(y, a, strict=True)
    )
    every = np.concatenate([seen for seen, _ in pairs])
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
    if parts.time is not None:
        growing(path, parts.time, [len(seen) for seen in y])
        clock = clock_of(path, parts.time, SAME)
    dt, notes = step_time(path, parts, given, clock), ()
    if clock is not None and parts.time is not None:
        pairs, notes = on_clock(pairs, parts.time, clock._replace(dt=dt))
    kept = observed_part(pairs)
    if cut := sum(len(seen) for seen, _ in pairs) - sum(len(seen) for seen, _ in kept):
        rows = "row is" if cut == 1 else "rows are"
        notes = (f"{cut:,} {rows} left out behind the last observation of an episode", *notes)
    notes = (*notes, *teaching_nothing(kept))
    found = Recording(kept, dt, parts.left_out, notes)
    if not found.missing:
        return found
    total = found.steps * found.sizes[0]
    return replace(found, notes=(not_observed(found.missing, total), *notes))


def observed_part(episodes: tuple[Episode, ...]) -> tuple[Episode, ...]:
    """Up to each one's last row with an observation: what shorter trials are filled up with teaches
    nothing and judges nothing. Episodes without any are gone."""
    kept = []
    for seen, done in episodes:
        rows = np.flatnonzero(~np.isnan(seen).all(1))
        if len(rows):
            kept.append((seen[: rows[-1] + 1], done[: rows[-1] + 1]))
    return tuple(kept)


def teaching_nothing(episodes: tuple[Episode, ...]) -> list[str]:
    """Words about what is kept and tells nothing: episodes of one row, and channels that never
    change."""
    notes, alone = [], sum(len(seen) == 1 for seen, _ in episodes)
    if alone:
        are = "episode has one row and is" if alone == 1 else "episodes have one row and are"
        notes.append(f"{alone:,} {are} not trained on, since nothing follows it")
    every = np.concatenate([seen for seen, _ in episodes])
    least, most = np.fmin.reduce(every, 0), np.fmax.reduce(every, 0)
    still = np.flatnonzero(least == most)
    if len(still):
        which = f"observations, number {still[0]}, never changes ({least[still[0]]:g} in every row)"
        if len(still) > 1:
            which = f"{len(still):,} of {len(least):,} observations never change, such as number "
            which += f"{still[0]} ({least[still[0]]:g} in every row)"
        notes.append(f"{which}; the model keeps what never changes, and learns nothing from it")
    return notes


def require(
    path: Path, what: str, episode: int, part: np.ndarray, wrong: np.ndarray, words: str
) -> None:
    """Nothing wrong in a part of an episode, or a sentence that says where."""
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise UserError(
            f"{path}: {what}, episode {episode}, row {row}, number {column} "
            f"({part[row, column]:g}) {words}."
        )


def require_counts(path: Path, recording: Recording) -> None:
    """Poisson noise is of counts."""
    for episode, (y, _) in enumerate(recording.episodes):
        require(
            path,
            "observations",
            episode,
            y,
            (y < 0) | (~np.isnan(y) & (y != np.round(y))),
            "is no count, and agent.model.noise = poisson needs whole numbers from 0 on; use "
            "gaussian",
        )


def step_time(path: Path, parts: Parts, given: float | None, clock: Clock | None) -> float:
    """The time of a step: what file, time and user say of it must agree."""
    named = {"its dt": parts.dt, "--dt": given}
    for what, dt in named.items():
        if dt is not None and not 0 < dt < np.inf:
            raise UserError(
                f"{path} does not say a dt above 0, but {what} is {dt:g}: put it right."
            )
    if clock is not None:
        named["its time"] = clock.dt
    said = [(what, dt) for what, dt in named.items() if dt is not None]
    for what, dt in said[1:]:
        slack = clock.slack if clock and what == "its time" else SAME
        if abs(dt - said[0][1]) > slack * said[0][1]:
            raise UserError(
                f"{path}: {said[0][0]} says {said[0][1]:.9g} for a step and {what} {dt:.9g}: leave "
                "one out, or put it right."
            )
    if not said:
        raise UserError(
            f"{path} does not say a dt above 0: put dt or time into the file, or give --dt."
        )
    return said[0][1]
