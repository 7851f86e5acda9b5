"""A user's own recordings: observations, actions and the time of a step, from an NPZ or a CSV file.

NPZ: `observations` [T, Y] or [E, T, Y], `actions` [T, A] or [E, T, A] (a_t follows y_t), `dt` (one number) or `time` ([T] or
[E, T]). CSV: a head with y0, y1, …, a0, a1, …, optionally `time` and `episode`; a row for each step. What cannot be trained on
is refused: a gap in time, a number that is not finite, parts that do not fit one another.
"""

import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tenfold.config import parse_number
from tenfold.envs.vector import split_name
from tenfold.errors import UserError

IDENT = "tenfold/Recording-v0"
HELD = 20  # steps of a piece that is held back for validation
EVEN = 1e-3  # how far, as a share of dt, a step may be off before it counts as a gap


@dataclass(frozen=True)
class Recording:
    """Episodes, each observations [T, Y] and actions [T, A], with `dt` between steps."""

    episodes: "tuple[tuple[np.ndarray, np.ndarray], ...]"
    dt: float

    @property
    def sizes(self) -> tuple[int, int]:
        y, a = next(iter(self.episodes))
        return y.shape[1], a.shape[1]

    @property
    def steps(self) -> int:
        return sum(len(y) for y, _ in self.episodes)

    def divided(self, held: int) -> "tuple[Recording, np.ndarray, np.ndarray]":
        """What is trained on, and pieces of `held` steps [E, held, …] that are not: of several episodes a tenth, the last ones
        that are long enough; of one its last tenth."""
        whole = [k for k, (y, _) in enumerate(self.episodes) if len(y) >= held]
        if len(self.episodes) > 1 and whole:
            out = set(whole[-max(len(self.episodes) // 10, 1):])
            kept = [episode for k, episode in enumerate(self.episodes) if k not in out]
            tails = [self.episodes[k] for k in sorted(out)]
        else:
            y, a = next(iter(self.episodes))
            count = max(len(y) // 10 // held, 1) * held
            if len(self.episodes) > 1 or len(y) < 2 * held:
                raise UserError(f"The recordings are too short to hold {held} steps back for validation: the longest episode has "
                                f"{max(len(y) for y, _ in self.episodes)}, and one alone needs {2 * held}.")
            kept, tails = [(y[:-count], a[:-count])], [(y[-count:], a[-count:])]
        pieces = [tuple(part[s:s + held] for part in tail) for tail in tails for s in range(0, len(tail[0]) - held + 1, held)]
        held_y, held_a = (np.stack([piece[k] for piece in pieces]) for k in (0, 1))
        return Recording(tuple(kept), self.dt), held_y, held_a


def is_recording(name: str) -> bool:
    return name.split("(")[0] == IDENT


def described(name: str) -> tuple[str, int, int, float]:
    """File, numbers of an observation, numbers of an action and dt, from the id of a recording."""
    _, given = split_name(name)
    missing = [part for part in ("file", "observations", "actions", "dt") if part not in given]
    if missing:
        raise UserError(f"{name} does not say its {missing[0]}: start it with `tenfold fit FILE`.")
    return str(given["file"]), int(given["observations"]), int(given["actions"]), float(given["dt"])


def identified(path: Path, recording: Recording) -> str:
    """The id under which a run remembers its recording."""
    if set(str(path)) & set("(),="):
        raise UserError(f"{path} has one of ( ) , = in its name, which a run's settings cannot hold: rename it.")
    observations, actions = recording.sizes
    return f"{IDENT}(file={path.absolute()}, observations={observations}, actions={actions}, dt={recording.dt!r})"


def read_recording(path: Path, dt: float | None = None) -> Recording:
    """From a file; `dt` where the file does not say it."""
    if not path.is_file():
        raise UserError(f"{path} is not there: give an NPZ or a CSV file.")
    if path.suffix not in (".npz", ".csv"):
        raise UserError(f"{path} is neither NPZ nor CSV by its name: it must end in .npz or .csv.")
    parts = read_npz(path) if path.suffix == ".npz" else read_csv(path)
    return checked(path, *parts, dt)


Parts = tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray] | None, float | None]  # y, a, time of each episode; dt


def read_npz(path: Path) -> Parts:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name], np.float64) for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as NPZ ({' '.join(str(error).split())}).") from None
    for name in ("observations", "actions"):
        if name not in arrays:
            raise UserError(f"{path} has no array {name}, only {', '.join(arrays) or 'none at all'}.")
        if arrays[name].ndim not in (2, 3):
            raise UserError(f"{path}: {name} has the shape {arrays[name].shape}; it must be [T, numbers] or [E, T, numbers].")
    y, a = (list(arrays[name] if arrays[name].ndim == 3 else arrays[name][None]) for name in ("observations", "actions"))
    time = list(np.atleast_2d(arrays["time"])) if "time" in arrays else None
    return y, a, time, float(arrays["dt"].ravel()[0]) if arrays.get("dt", np.zeros(0)).size == 1 else None


def read_csv(path: Path) -> Parts:
    with path.open(newline="", errors="replace") as file:
        head, *rows = [row for row in csv.reader(file) if row] or [[]]
    head = [name.strip() for name in head]
    columns = {kind: [i for i, name in enumerate(head) if name[:1] == kind and name[1:].isdigit()] for kind in "ya"}
    for kind, what in (("y", "observations"), ("a", "actions")):
        if not columns[kind]:
            raise UserError(f"{path} has no columns {kind}0, {kind}1, … of {what}: its head is {', '.join(head) or 'empty'}.")
    numbers = np.full((len(rows), len(head)), np.nan)
    for line, row in enumerate(rows):
        if len(row) != len(head):
            raise UserError(f"{path}, line {line + 2}, has {len(row)} cells, and the head {len(head)}.")
        numbers[line] = [np.nan if (value := parse_number(cell)) is None else value for cell in row]
    which = numbers[:, head.index("episode")] if "episode" in head else np.zeros(len(rows))
    order = [np.flatnonzero(which == episode) for episode in dict.fromkeys(which.tolist())]
    if not len(rows) or not all(len(rows_of) for rows_of in order):
        raise UserError(f"{path} has no rows with a whole number as their episode.")
    y, a = ([numbers[rows_of][:, columns[kind]] for rows_of in order] for kind in "ya")
    time = [numbers[rows_of, head.index("time")] for rows_of in order] if "time" in head else None
    return y, a, time, None


def checked(path: Path, y: list[np.ndarray], a: list[np.ndarray], time: list[np.ndarray] | None, own: float | None,
            given: float | None) -> Recording:
    """Refuses what does not fit together, is not finite, or has gaps."""
    if len(y) != len(a) or any(len(seen) != len(done) for seen, done in zip(y, a, strict=False)):
        raise UserError(f"{path}: {len(y)} episodes of {[len(seen) for seen in y][:5]} observations and {len(a)} of "
                        f"{[len(done) for done in a][:5]} actions do not fit together: every observation needs the action that "
                        "follows it.")
    for episode, (seen, done) in enumerate(zip(y, a, strict=True)):
        for what, part in (("observations", seen), ("actions", done)):
            if not np.isfinite(part).all():
                row, column = np.argwhere(~np.isfinite(part))[0].tolist()
                raise UserError(f"{path}: {what}, episode {episode}, row {row}, number {column} is missing or not finite; fill "
                                "it in, or cut the episode there.")
    dt = own if own is not None else given
    if time is not None:
        steps = np.concatenate([np.diff(moments) for moments in time])
        dt = float(np.median(steps)) if steps.size and dt is None else dt
        for episode, moments in enumerate(time):
            if len(moments) != len(y[episode]):
                raise UserError(f"{path}: episode {episode} has {len(y[episode])} observations and {len(moments)} times.")
            off = ~(np.abs(np.diff(moments) - (dt or 0)) <= EVEN * (dt or 0))
            if off.any():
                row = int(np.argmax(off))
                raise UserError(f"{path}: episode {episode} has a gap after row {row}, from {moments[row]:g} to "
                                f"{moments[row + 1]:g} where dt is {dt:g}: give what follows an episode number of its own.")
    if dt is None or not 0 < dt < np.inf:
        raise UserError(f"{path} does not say a dt above 0{'' if dt is None else f', but {dt:g}'}: put dt or time into the file, "
                        "or give --dt.")
    return Recording(tuple((seen.astype(np.float32), done.astype(np.float32)) for seen, done in zip(y, a, strict=True)), dt)
