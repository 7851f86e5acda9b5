"""A recording as a table of named columns, and the one way from it to observations and actions of
episodes; reading CSV files and pandas' DataFrames.

Readers give a `RecordingTable`. Names are chosen by the user or are the usual ones: of columns with
one number each y0, y1, … and a0, a1, … (other columns are refused, unless the user chose), of
arrays `observations` [E, T, Y] or [T, Y] and `actions` alike. `time` is [N], [T] or [E, T], `dt`
one number. Rows [N, …] of several episodes have a column `episode`, `trial` or `trial_id`.

CSV: a head, and a row for each step. A level of a DataFrame's index named `trial`, `trial_id` or
`episode` tells episodes apart, and one named `time`, or of dates or spans of time, is the clock (in
seconds). Columns of several levels are named by all of them, with _ between: ("spikes", 12) is
spikes_12. pandas itself is never imported: whoever has a frame has done that.
"""

import contextlib
import csv
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import UserError

EPISODE = ("episode", "trial", "trial_id")  # names of the array or column that tells episodes apart
BROKEN = (OSError, ValueError, EOFError, KeyError, RuntimeError)
BROKEN += (zipfile.BadZipFile, zlib.error, csv.Error)
MOST_NAMES = 8  # in a sentence
KINDS = {"c": "complex numbers", "U": "text", "S": "text", "M": "dates", "m": "spans of time"}
KINDS |= {"V": "records"}
MISSING = ("", "nan", "na", "n/a", "null", "none")  # text of a cell without a value
NULLS = ("NoneType", "NAType", "NaTType")  # types of such a cell in a DataFrame
FRAME = Path("The frame")  # where sentences name a file
TICKS = 1e-9  # seconds of a nanosecond, which NumPy's times are converted to
USUAL = ("observations",), ("actions",)


class Selection(NamedTuple):
    """The arrays or columns to take, in place of the usual names; a single name is also a prefix of
    columns."""

    observations: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    bin: float = 0.0
    """width in which spike times are counted; 0: none"""


EVERYTHING = Selection()


class RecordingTable(NamedTuple):
    """What a file holds: for each name a function that reads its values. Where `tabular`, every
    column has one number in a row; `lines` are the rows' lines in the file. `usual` are the names
    of observations and of actions, the first that exists."""

    path: Path
    columns: Mapping[str, Callable[[], Any]]
    usual: tuple[tuple[str, ...], tuple[str, ...]] = USUAL
    tabular: bool = False
    lines: Sequence[int] = ()

    @property
    def episode(self) -> str | None:
        """The name of the column that tells episodes apart."""
        names = [name for name in EPISODE if name in self.columns]
        if len(names) > 1:
            raise UserError(
                f"{self.path} has both {names[0]} and {names[1]}, and only one can tell episodes "
                "apart: remove the other."
            )
        return names[0] if names else None


class EpisodeArrays(NamedTuple):
    """Observations, actions and time of each episode, the file's own dt, and the names of what was
    not read; `bin_series` where spike times were counted."""

    y: list[np.ndarray]
    a: list[np.ndarray]
    time: list[np.ndarray] | None
    dt: float | None
    left_out: tuple[str, ...] = ()
    binned: bool = False


def select_episodes(table: RecordingTable, selection: Selection = EVERYTHING) -> EpisodeArrays:
    """Observations and actions of the table's episodes."""
    path = table.path
    observed, acted = names_of(table, selection, 0), names_of(table, selection, 1)
    both = next((name for name in observed if name in acted), None)
    if both and table.tabular:
        raise UserError(f"{path}: the column {both} cannot be both an observation and an action.")
    episode = table.episode if table.tabular else None
    left_out = [name for name in table.columns if name not in {*observed, *acted, "time", episode}]
    if left_out and table.tabular and not (selection.observations or selection.actions):
        frame = path is FRAME
        flags = "observations= and actions=" if frame else "--observations and --actions"
        raise UserError(
            f"{path} has columns that are none of y0, y1, …, a0, a1, …, time and episode: "
            f"{list_names(left_out)}. Remove them, or say which to take: {flags} take a list, or "
            "what names begin with."
        )
    y = join_arrays(table, observed, "--observations")
    a = join_arrays(table, acted, "--actions") if acted else np.zeros((*y.shape[:-1], 0))
    time = numbers(table, "time") if "time" in table.columns else None
    dt = numbers(table, "dt") if "dt" in table.columns and not table.tabular else None
    episode = table.episode if y.ndim == a.ndim == 2 else None
    if dt is not None and dt.size != 1:
        raise UserError(
            f"{path}: dt has the shape {dt.shape}; it must be one number, the time of a step."
        )
    if time is not None and time.ndim not in (1, 2):
        raise UserError(f"{path}: time has the shape {time.shape}; it must be [T] or [E, T].")
    if not table.tabular:
        left_out = [name for name in left_out if name not in ("dt", episode)]
    step = None if dt is None else float(dt.ravel()[0])
    if episode:
        ids = episode_ids(table, episode, len(y))
        if not len(y) == len(a) == (len(y) if time is None else time.size):
            raise UserError(
                f"{path}: {len(y)} rows of observations, {len(a)} of "
                f"actions{'' if time is None else f' and {time.size} of time'} do not fit the "
                f"{len(ids)} of {episode}."
            )
        groups = by_episode(path, ids, time is not None)
        times = None if time is None else [time.ravel()[rows] for rows in groups]
        observations, actions = ([part[rows] for rows in groups] for part in (y, a))
    else:
        observations, actions = (list(x if x.ndim == 3 else x[None]) for x in (y, a))
        times = None
        if time is not None:
            times = [time] * len(observations) if time.ndim == 1 else [*time]
    return EpisodeArrays(observations, actions, times, step, tuple(left_out))


def names_of(table: RecordingTable, selection: Selection, kind: int) -> tuple[str, ...]:
    """The names of the observations (kind 0) or actions (1)."""
    what, names, head = ("observations", "actions")[kind], selection[:2][kind], list(table.columns)
    if not table.tabular:
        usual = next(((name,) for name in table.usual[kind] if name in head), ())
        return names or usual or table.usual[0][: 1 - kind]
    head_text = f"its head is {list_names(head) if any(head) else 'empty'}"
    head_text += (
        "; put commas in place of the semicolons" if len(head) == 1 and ";" in head[0] else ""
    )
    if not names:
        names = tuple(name for name in head if name[:1] == "ya"[kind] and name[1:].isdigit())
        if not names and not kind:
            raise UserError(
                f"{table.path} has no columns y0, y1, … of observations: {head_text}; name yours "
                "with --observations."
            )
    elif len(names) == 1 and names[0] not in head:
        names = tuple(name for name in head if name.startswith(names[0])) or names
    missing = next((name for name in names if name not in head), None)
    if missing is not None:
        raise UserError(f"{table.path} has no column {missing} of {what}: {head_text}.")
    return names


def join_arrays(table: RecordingTable, names: tuple[str, ...], flag: str) -> np.ndarray:
    """The arrays of these names side by side, [T, numbers] or [E, T, numbers]."""
    path, arrays = table.path, []
    for name in names:
        if name not in table.columns:
            raise UserError(
                f"{path} has no array {name}, only {list_names(list(table.columns))}: name yours "
                f"with {flag}."
            )
        array = numbers(table, name, flag)
        array = array[:, None] if table.tabular else array
        if array.ndim not in (2, 3):
            raise UserError(
                f"{path}: {name} has the shape {array.shape}; it must be [T, numbers] or [E, T, "
                "numbers]."
            )
        if arrays and array.shape[:-1] != arrays[0].shape[:-1]:
            raise UserError(
                f"{path}: {names[0]} has the shape {arrays[0].shape} and {name} {array.shape}, "
                "which do not fit."
            )
        arrays.append(array)
    return np.concatenate(arrays, -1)


def values(table: RecordingTable, name: str) -> np.ndarray:
    try:
        return np.asarray(table.columns[name]())
    except BROKEN as error:
        if "Object arrays" in str(error):
            raise UserError(
                f"{table.path}: {name} holds Python objects, as NumPy saves episodes of different "
                "length: give them as rows, observations [N, numbers] and actions [N, numbers] "
                "with an array episode [N]."
            ) from None
        raise UserError(f"{table.path}: {name} cannot be read ({one_line(error)}).") from None


def numbers(table: RecordingTable, name: str, flag: str = "") -> np.ndarray:
    """Values of real numbers, as float64; of a column of cells with NaN where there is none, dates
    and spans of time in seconds."""
    array = values(table, name)
    kind = array.dtype.kind
    if kind in "biuf":
        return array.astype(np.float64)
    if not table.tabular:
        raise UserError(
            f"{table.path}: {name} holds {KINDS.get(kind, str(array.dtype))}; it must hold real "
            "numbers."
        )
    if kind in "mM":
        if name != "time":
            raise UserError(f"{table.path}: the column {name} holds dates; it must hold numbers.")
        since = array - array[0] if kind == "M" and len(array) else array
        exact = since.astype("timedelta64[ns]")
        return np.where(np.isnat(exact), np.nan, exact.astype(np.int64) * TICKS)
    column = np.empty(len(array))
    for row, cell in enumerate(array.tolist()):
        null = type(cell).__name__ in NULLS or (table.lines and cell.lower() in MISSING)
        try:
            column[row] = np.nan if null else float(cell)
        except (TypeError, ValueError):
            empty = ": a value that was not observed is left empty or called nan"
            raise UserError(
                f"{table.path}, line {table.lines[row]}, column {name}, has {cell!r}, which is no "
                f"number{empty if flag == '--observations' else ''}."
                if table.lines
                else f"{table.path}: column {name}, row {row} ({cell!r}) is no number."
            ) from None
    return column


def episode_ids(table: RecordingTable, name: str, rows: int) -> list[Any]:
    """The episode of each row: numbers or text."""
    array = values(table, name)
    ids = array.tolist()
    if table.tabular:
        for row, one in enumerate(ids):
            if one is None or one != one or (table.lines and not one):
                where = f"line {table.lines[row]}" if table.lines else f"row {row}"
                raise UserError(f"{table.path}, {where}, does not say its {name}.")
            with contextlib.suppress(ValueError):  # 1 and 1.0 are one episode
                ids[row] = float(one) if table.lines else one
        return ids
    known = array.dtype.kind in "biufU" and (array.dtype.kind != "f" or np.isfinite(array).all())
    if array.shape != (rows,) or not known:
        raise UserError(
            f"{table.path}: {name} has the shape {array.shape} of {array.dtype}; it must name the "
            f"episode of each of the {rows} rows, by numbers or text."
        )
    return ids


def by_episode(path: Path, ids: list[Any], timed: bool) -> list[np.ndarray]:
    """The rows of each episode, in the order of their first ones. Without time rows of an episode
    must be adjacent: nothing else would tell that one is missing, or that two episodes have one
    name."""
    rows: dict[Any, list[int]] = {}
    for row, one in enumerate(ids):
        rows.setdefault(one, []).append(row)
    for one, places in rows.items():
        again = next((later for row, later in pairwise(places) if later != row + 1), None)
        if again is not None and not timed:
            raise UserError(
                f"{path}: episode {one} goes on at row {again} after another episode: give every "
                "episode a name of its own, or the rows a time."
            )
    return [np.array(places) for places in rows.values()]


def list_names(names: Sequence[str]) -> str:
    """Names for a sentence, not too many of them."""
    text = ", ".join(name or "one without a name" for name in names[:MOST_NAMES])
    more = len(names) - MOST_NAMES
    return f"{text} and {more} more" if more > 0 else text or "none at all"


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@contextlib.contextmanager
def reading(failure: str, errors: tuple[type[Exception], ...] = BROKEN) -> Iterator[None]:
    """What a reader raises as one sentence, which begins with `failure` and ends with the
    reason."""
    try:
        yield
    except errors as error:
        raise UserError(f"{failure} ({one_line(error)}).") from None


# tables of cells


def tabular(
    path: Path, head: list[str], columns: Sequence[Any], lines: Sequence[int]
) -> RecordingTable:
    twice = next((name for k, name in enumerate(head) if name and name in head[:k]), None)
    if twice:
        raise UserError(f"{path} has two columns {twice}: rename or remove one.")
    named = zip(head, columns, strict=True)
    readers = {name: (lambda column=column: column) for name, column in named}
    return RecordingTable(path, readers, tabular=True, lines=lines)


def csv_table(path: Path) -> RecordingTable:
    with (
        reading(f"{path} cannot be read as CSV"),
        path.open(newline="", encoding="utf-8-sig", errors="replace") as file,
    ):
        reader = csv.reader(file)
        lines = [(reader.line_num, row) for row in reader if row]
    if not lines:
        raise UserError(f"{path} is empty.")
    head = [name.strip() for name in lines.pop(0)[1]]
    for line, row in lines:
        if len(row) != len(head):
            raise UserError(f"{path}, line {line}, has {len(row)} cells, and the head {len(head)}.")
    cells = [np.array([row[k].strip() for _, row in lines], object) for k in range(len(head))]
    return tabular(path, head, cells, [line for line, _ in lines])


def is_frame(recording: Any) -> bool:
    """Whether this is a DataFrame, or something that looks like one."""
    return all(hasattr(recording, name) for name in ("columns", "index", "iloc"))


def read_frame(frame: Any, selection: Selection = EVERYTHING) -> EpisodeArrays:
    if selection.bin:
        raise UserError("The frame has no spike times that could be binned: leave out bin.")
    if not len(frame):
        raise UserError("The frame has no rows.")
    head = [
        "_".join(str(part) for part in name if str(part)) if isinstance(name, tuple) else str(name)
        for name in frame.columns
    ]
    columns = [np.asarray(frame.iloc[:, k]) for k in range(len(head))]
    for level, name in enumerate(frame.index.names):
        rows = np.asarray(frame.index.get_level_values(level))
        name = "time" if rows.dtype.kind in "mM" else name
        if name in ("time", *EPISODE) and name not in head:
            head.append(name)
            columns.append(rows)
    return select_episodes(tabular(FRAME, head, columns, ()), selection)
