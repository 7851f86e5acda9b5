"""What a recording must be to be trained on, and the regular clock that a model of steps needs.

NaN in an observation means that it was not observed. Refused are missing actions or times, infinite
numbers, episodes whose parts do not fit. A step in time

    is off by at most 0.1 %     is taken as it is
    is off by at most 25 %      its rows are resampled to a regular clock
    is n steps long, to 25 %    is a gap of n − 1 rows
    is anything else            ends the episode

Rows are resampled by the parabola through their neighbours. Linear interpolation would do for the
signal, but mixes the noise of two rows: w steps away its variance becomes 1 − 2w(1 − w) of what it
was, and neighbours correlate by w(1 − w), and by these a filter separates readings from states.
With the parabola they are 1 − 3w²/2 and w². An action holds until the next one: it is averaged over
the clock's step. Counts are of bins, and stay where they are.

A gap in recordings without actions is filled by rows without observations. With actions, which are
unknown in a gap, and after a long gap a new episode begins.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.missing import is_constant
from tenfold.domains.dynamics.recording_table import EpisodeArrays

MOST = 1e18  # a number whose square, and sums of such, float32 still holds
SAME = 1e-6  # how far, as a share, two values of dt may differ
EVEN = 1e-3  # how far, as a share of dt, a step may be off and still be taken as it is
LOOSE = 0.25  # … before rows cannot be moved to a regular clock
LONGEST = 10  # rows that a gap is filled by
MOST_ODD = 0.1  # share of steps that are neither: beyond it there is no clock
NEAR = 0.75  # steps between a moment and a row that is moved to it

Episode = tuple[np.ndarray, np.ndarray]


class RecordedClock(NamedTuple):
    """The time of a step, how far it may be off (as a share), and the largest and the usual
    deviation of a step from whole ones."""

    dt: float
    slack: float
    most: float
    usual: float


def check_recording(
    path: Path, arrays: EpisodeArrays, dt: float | None = None
) -> tuple[tuple[Episode, ...], float, tuple[str, ...]]:
    """Episodes on a regular clock, the time of a step, and notes about what is missing and what was
    made regular."""
    y, a = arrays.y, arrays.a
    lengths = [len(rows) for rows in y]
    require_numbers(path, y, a, lengths)
    pairs = tuple((y.astype(np.float64), a.astype(np.float64)) for y, a in zip(y, a, strict=True))
    require_observed(path, np.concatenate(y))
    clock, notes = None, ()
    if arrays.time is not None:
        require_growing(path, arrays.time, lengths)
        clock = estimate_clock(path, arrays.time, SAME)
    step = step_time(path, arrays, dt, clock)
    if clock is not None and arrays.time is not None:
        pairs, notes = regularise(pairs, arrays.time, clock._replace(dt=step))
    # rows after the last observation, as shorter trials are padded, have nothing to learn from
    kept = []
    for rows, actions in pairs:
        observed = np.flatnonzero(~np.isnan(rows).all(1))
        if len(observed):
            kept.append((rows[: observed[-1] + 1], actions[: observed[-1] + 1]))
    if cut := sum(len(rows) for rows, _ in pairs) - sum(len(rows) for rows, _ in kept):
        are = "row is" if cut == 1 else "rows are"
        notes = (f"{cut:,} {are} left out behind the last observation of an episode", *notes)
    missing = sum(int(np.isnan(rows).sum()) for rows, _ in kept)
    if missing:
        total = sum(rows.size for rows, _ in kept)
        share = f"{missing:,} of {total:,} values ({100 * missing / total:.1f} %)"
        notes = (f"{share} are not observed", *notes)
    return tuple(kept), step, (*notes, *uninformative_notes(kept))


def require_numbers(
    path: Path, y: list[np.ndarray], a: list[np.ndarray], lengths: list[int]
) -> None:
    """Refuses parts that do not fit, and numbers that are not finite."""
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


def require_observed(path: Path, every: np.ndarray) -> None:
    """Refuses rows [n, Y] of all episodes that nothing can be learned from."""
    if np.isnan(every).all():
        raise UserError(f"{path}: none of its observations was observed: all of them are NaN.")
    if is_constant(every):
        raise UserError(
            f"{path}: none of its observations ever changes, and there is nothing to learn from."
        )
    never = np.isnan(every).all(0)
    if never.any():
        raise UserError(
            f"{path}: observations, number {int(np.argmax(never))} is never observed: leave it out."
        )


def uninformative_notes(episodes: list[Episode]) -> list[str]:
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


# the clock


def require_growing(path: Path, time: list[np.ndarray], lengths: list[int]) -> None:
    """Times are numbers, one for each row, and grow in every episode."""
    if [len(moments) for moments in time] != lengths:
        raise UserError(
            f"{path}: {len(lengths)} episodes of {lengths[:5]} observations and {len(time)} of "
            f"{[len(moments) for moments in time][:5]} times do not fit together."
        )
    for episode, moments in enumerate(time):
        where = f"{path}: time, episode {episode},"
        if not np.isfinite(moments).all():
            raise UserError(
                f"{where} row {int(np.argmin(np.isfinite(moments)))} is missing or no number."
            )
        if (np.diff(moments) <= 0).any():
            row = int(np.argmax(np.diff(moments) <= 0))
            raise UserError(
                f"{where} does not grow after row {row}, from {moments[row]:g} to "
                f"{moments[row + 1]:g}: sort the rows, or give what follows an episode number of "
                "its own."
            )


def estimate_clock(path: Path, time: list[np.ndarray], same: float) -> RecordedClock | None:
    """Of times that grow; none where no episode has two. `same` is how far two values of dt may
    differ anyway."""
    steps = np.concatenate([np.diff(moments) for moments in time])
    if not steps.size:
        return None
    middle = float(np.median(steps))
    if (np.abs(steps - middle) <= EVEN * middle).all():
        return RecordedClock(float(steps.mean()), same, 0.0, 0.0)
    whole = whole_steps(steps, middle)
    odd = 1 - np.mean(whole > 0)
    if odd > MOST_ODD:
        raise UserError(
            f"{path}: {100 * odd:.0f} % of its steps in time are no multiples of the usual one, "
            f"{middle:g}, to {100 * LOOSE:.0f} %, and there is no clock to put its rows on: "
            "resample it, or cut it into episodes that have one."
        )
    dt = float(steps[whole > 0].sum() / whole.sum())
    off = (steps[whole > 0] - whole[whole > 0] * dt) / dt
    usual = float(np.sqrt(np.square(off).mean()))
    slack = max(same, 4 * usual / np.sqrt(len(off)))
    return RecordedClock(dt, slack, float(np.abs(off).max()), usual)


def whole_steps(steps: np.ndarray, dt: float) -> np.ndarray:
    """How many steps of the clock each is, 0 where it is no whole number of them."""
    count = np.maximum(np.round(steps / dt), 1)
    return np.where(np.abs(steps / dt - count) <= LOOSE, count, 0).astype(np.int64)


def regularise(
    episodes: tuple[Episode, ...], time: list[np.ndarray], clock: RecordedClock
) -> tuple[tuple[Episode, ...], tuple[str, ...]]:
    """Episodes with rows at the moments of a regular clock, and sentences about what was done."""
    if not clock.most:
        return episodes, ()
    counts = all(are_counts(y) for y, _ in episodes)
    move = clock.most > EVEN and not counts
    regular: list[Episode] = []
    rows_between = filled = cut = alone = 0
    for (y, a), moments in zip(episodes, time, strict=True):
        whole = whole_steps(np.diff(moments), clock.dt)
        longest = 1 if a.shape[1] else 1 + LONGEST
        cuts = np.flatnonzero((whole == 0) | (whole > longest)) + 1
        cut += len(cuts)
        for rows in np.split(np.arange(len(y)), cuts):
            if not len(rows) or (len(rows) < 2 and len(y) > 1):
                alone += len(rows)
                continue
            count = whole[rows[:-1]]
            rows_between, filled = (
                rows_between + int((count - 1).sum()),
                filled + int((count > 1).sum()),
            )
            slots = np.concatenate(([0], np.cumsum(count)))
            if move:
                regular.append(resample(y[rows], a[rows], moments[rows], slots, clock.dt))
            else:
                regular.append(insert_gaps(y[rows], a[rows], slots))
    notes = []
    if clock.most > EVEN:
        notes.append(
            f"its steps in time are off {clock.dt:g} by {100 * clock.usual:.2g} % (at most "
            f"{100 * clock.most:.2g} %): "
            + (
                "counts are taken as if they were not"
                if counts
                else "rows are moved to a regular clock by parabolas through their neighbours"
            )
        )
    if filled:
        notes.append(
            f"{filled:,} {'gaps' if filled > 1 else 'gap'} in time {'are' if filled > 1 else 'is'} "
            f"filled by {rows_between:,} rows of which nothing was observed"
        )
    if cut:
        notes.append(
            f"an episode begins after each of {cut:,} {'gaps' if cut > 1 else 'gap'} in time"
            + (f"; {alone:,} rows that stand alone between gaps are left out" if alone else "")
        )
    return tuple(regular), tuple(notes)


def are_counts(y: np.ndarray) -> bool:
    """Whole numbers from 0 on, whatever is missing."""
    known = y[~np.isnan(y)]
    return bool((known >= 0).all() and (known == np.round(known)).all())


def insert_gaps(y: np.ndarray, a: np.ndarray, slots: np.ndarray) -> Episode:
    """Rows at their places, NaN between them. Actions in a gap are 0: there are none, or no gap."""
    observed, done = (
        np.full((slots[-1] + 1, y.shape[1]), np.nan),
        np.zeros((slots[-1] + 1, a.shape[1])),
    )
    observed[slots], done[slots] = y, a
    return observed, done


def resample(
    y: np.ndarray, a: np.ndarray, time: np.ndarray, slots: np.ndarray, dt: float
) -> Episode:
    """Rows at the moments of the clock that fits their times best."""
    first = float(np.mean(time - slots * dt))
    low = int(np.ceil((time[0] - first) / dt - LOOSE))
    high = int(np.floor((time[-1] - first) / dt + LOOSE))
    moments = first + dt * np.arange(low, high + 1)
    edges = np.concatenate((time, [time[-1] + 2 * dt]))
    totals = np.concatenate((np.zeros((1, a.shape[1])), np.cumsum(a * np.diff(edges)[:, None], 0)))

    def until(when: np.ndarray) -> np.ndarray:
        """What actions add up to from the first row on; before it the first one holds."""
        inside = [np.interp(when, edges, column) for column in totals.T]
        early = np.minimum(when - time[0], 0.0)
        return np.stack(inside, -1) + early[:, None] * a[0] if a.shape[1] else totals[: len(when)]

    done = (
        (until(moments + dt) - until(moments)) / dt if a.shape[1] else np.zeros((len(moments), 0))
    )
    return interpolate_parabolic(y, time, moments, dt), done


def interpolate_parabolic(
    y: np.ndarray, time: np.ndarray, moments: np.ndarray, dt: float
) -> np.ndarray:
    """Values at other moments, each channel through the row that is nearest and the two beside it:
    y + u·slope + u²·bend. Where one of these is missing a line through the other, where both are
    the value itself; NaN where the nearest is missing or far."""
    right = np.clip(np.searchsorted(time, moments), 1, len(time) - 1)
    near = np.where(moments - time[right - 1] < time[right] - moments, right - 1, right)
    u = (moments - time[near])[:, None]
    last = len(time) - 1

    def slope_to(step: int) -> tuple[np.ndarray, np.ndarray]:
        """Slope to the row on one side, NaN where there is none, and how far away that is."""
        other = np.clip(near + step, 0, last)
        distance = (time[other] - time[near])[:, None]
        near_by = (distance != 0) & (np.abs(distance) <= (1 + LOOSE + EVEN) * dt)
        slope = (y[other] - y[near]) / np.where(distance == 0, 1.0, distance)
        return np.where(near_by, slope, np.nan), np.abs(distance)

    (before, back), (after, ahead) = slope_to(-1), slope_to(1)
    whole = back + ahead
    bend = (after - before) / np.where(whole == 0, 1.0, whole)
    middle = (ahead * before + back * after) / np.where(whole == 0, 1.0, whole)
    parabola = u * middle + u * u * bend
    line = u * np.where(np.isnan(before), after, before)
    change = np.where(np.isnan(parabola), np.where(np.isnan(line), 0.0, line), parabola)
    return np.where(np.abs(u) > NEAR * dt, np.nan, y[near] + change)
