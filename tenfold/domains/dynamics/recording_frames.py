"""Reading pandas' DataFrames: columns by name, as those of CSV files, and what the index says.

A level of the index with the name `trial`, `trial_id` or `episode` tells episodes apart, and one
with the name `time`, or of dates or spans of time, is the clock (in seconds). Columns of several
levels are named by all of them, with _ between: ("spikes", 12) is spikes_12. pandas itself is never
imported: whoever has a frame has done that.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.recording_files import (
    EPISODE,
    USUAL,
    Columns,
    Parts,
    by_episode,
)
from tenfold.domains.dynamics.recording_tables import roles

NAME = Path("The frame")  # where sentences speak of a file
TICKS = 1e-9  # seconds of a nanosecond, which NumPy's times are brought to


def is_frame(given: Any) -> bool:
    """Whether this is a DataFrame, or something that looks like one."""
    return all(hasattr(given, name) for name in ("columns", "index", "iloc"))


def read_frame(frame: Any, columns: Columns = USUAL) -> Parts:
    if columns.bin:
        raise UserError("The frame has no spike times that could be binned: leave out bin.")
    if not len(frame):
        raise UserError("The frame has no rows.")
    head, values = named_columns(frame)
    seen, done, which, left_out = roles(NAME, head, columns, "observations= and actions=")
    clock = numbers(head, values, head.index("time")) if "time" in head else None
    groups = [np.arange(len(frame))]
    if which:
        ids = values[head.index(which)]
        missing = [k for k, own in enumerate(ids.tolist()) if own is None or own != own]
        if missing:
            raise UserError(f"{NAME}, row {missing[0]}, does not say its {which}.")
        groups = by_episode(NAME, ids.tolist(), clock is not None)
    y, a = (
        np.stack([numbers(head, values, k) for k in part], 1) if part else np.zeros((len(frame), 0))
        for part in (seen, done)
    )
    times = None if clock is None else [clock[rows] for rows in groups]
    return Parts([y[rows] for rows in groups], [a[rows] for rows in groups], times, None, left_out)


def named_columns(frame: Any) -> tuple[list[str], list[np.ndarray]]:
    """Names and values of the columns, those of the index that tell trials or time after them."""
    head = [
        "_".join(str(part) for part in own if str(part)) if isinstance(own, tuple) else str(own)
        for own in frame.columns
    ]
    values = [np.asarray(frame.iloc[:, k]) for k in range(len(head))]
    for level, name in enumerate(frame.index.names):
        rows = np.asarray(frame.index.get_level_values(level))
        own = "time" if rows.dtype.kind in "mM" else name
        if own in ("time", *EPISODE) and own not in head:
            head.append(own)
            values.append(rows)
    return head, values


def numbers(head: list[str], values: list[np.ndarray], place: int) -> np.ndarray:
    """A column as float64; dates and spans of time in seconds."""
    column = values[place]
    if column.dtype.kind in "mM":
        if head[place] != "time":
            raise UserError(f"{NAME}: the column {head[place]} holds dates; it must hold numbers.")
        since = column - column[0] if column.dtype.kind == "M" and len(column) else column
        exact = since.astype("timedelta64[ns]")
        return np.where(np.isnat(exact), np.nan, exact.astype(np.int64) * TICKS)
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    found = np.empty(len(column))
    for row, cell in enumerate(column.tolist()):
        missing = type(cell).__name__ in ("NoneType", "NAType", "NaTType")
        try:
            found[row] = np.nan if missing else float(cell)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError):
            raise UserError(
                f"{NAME}: column {head[place]}, row {row} ({cell!r}) is no number."
            ) from None
    return found
