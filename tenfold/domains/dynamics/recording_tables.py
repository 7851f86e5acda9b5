"""Reading recordings from tables: CSV files, and which columns are observations, actions, time and
episode.

A head with y0, y1, …, a0, a1, … (none: without actions), optionally `time` and `episode`; a row for
each step. Other columns are refused, unless `Columns` says which to take: then they are left out.
"""

import csv
from pathlib import Path

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.recording_files import (
    BROKEN,
    USUAL,
    Columns,
    Parts,
    by_episode,
    listed,
    only_one,
)

MISSING = ("", "nan", "na", "n/a", "null", "none")  # what a table says of a value it does not have


def read_csv(path: Path, columns: Columns = USUAL) -> Parts:
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            reader = csv.reader(file)
            lines = [(reader.line_num, row) for row in reader if row]
    except BROKEN as error:
        raise UserError(f"{path} cannot be read as CSV ({' '.join(str(error).split())}).") from None
    if not lines:
        raise UserError(f"{path} is empty.")
    head = [name.strip() for name in lines.pop(0)[1]]
    seen, done, which, left_out = roles(path, head, columns)
    for line, row in lines:
        if len(row) != len(head):
            raise UserError(f"{path}, line {line}, has {len(row)} cells, and the head {len(head)}.")
    rows = [row for _, row in lines]
    clock = [head.index("time")] if "time" in head else []
    require_numbers(path, head, lines, seen, [*done, *clock])
    read = np.array([[number(row[place]) for place in (*seen, *done, *clock)] for row in rows])
    groups = [np.arange(len(rows))]
    if which:
        ids = [row[head.index(which)].strip() for row in rows]
        if not all(ids):
            raise UserError(f"{path}, line {lines[ids.index('')][0]}, does not say its {which}.")
        groups = by_episode(
            path, [own if np.isnan(number(own)) else number(own) for own in ids], bool(clock)
        )
    groups = groups if rows else []
    y, a = (
        [read[own][:, part] for own in groups]
        for part in (slice(len(seen)), slice(len(seen), len(seen) + len(done)))
    )
    return Parts(y, a, [read[own, -1] for own in groups] if clock else None, None, left_out)


def require_numbers(
    path: Path,
    head: list[str],
    lines: list[tuple[int, list[str]]],
    seen: list[int],
    others: list[int],
) -> None:
    """Numbers in these columns, or nothing: text is refused by line and column."""
    for line, row in lines:
        for place in (*seen, *others):
            cell = row[place].strip()
            if cell.lower() not in MISSING and np.isnan(number(cell)):
                empty = ": a value that was not observed is left empty or called nan"
                raise UserError(
                    f"{path}, line {line}, column {head[place]}, has {cell!r}, which is no number"
                    f"{empty if place in seen else ''}."
                )


def roles(
    path: Path, head: list[str], columns: Columns, flags: str = "--observations and --actions"
) -> tuple[list[int], list[int], str | None, tuple[str, ...]]:
    """Of a table with this head: the places of observations and of actions, the name of the column
    that tells episodes apart, and the names of those left out."""
    twice = next((name for place, name in enumerate(head) if name and name in head[:place]), None)
    if twice:
        raise UserError(f"{path} has two columns {twice}: rename or remove one.")
    seen, done = (
        chosen(path, head, names, kind, what)
        for names, kind, what in (
            (columns.observations, "y", "observations"),
            (columns.actions, "a", "actions"),
        )
    )
    both = next((head[place] for place in seen if place in done), None)
    if both:
        raise UserError(f"{path}: the column {both} cannot be both an observation and an action.")
    which, used = only_one(path, head), {*seen, *done}
    left_out = tuple(
        name for k, name in enumerate(head) if k not in used and name not in ("time", which)
    )
    if left_out and not columns.named:
        raise UserError(
            f"{path} has columns that are none of y0, y1, …, a0, a1, …, time and episode: "
            f"{listed(left_out)}. Remove them, or say which to take: {flags} take a list, or what "
            "names begin with."
        )
    return seen, done, which, left_out


def chosen(path: Path, head: list[str], names: tuple[str, ...], kind: str, what: str) -> list[int]:
    """Places of the columns `names`, or without any of y0, y1, … and a0, a1, …"""
    shown = f"its head is {listed(head) if any(head) else 'empty'}"
    shown += "; put commas in place of the semicolons" if len(head) == 1 and ";" in head[0] else ""
    if not names:
        found = [
            place for place, name in enumerate(head) if name[:1] == kind and name[1:].isdigit()
        ]
        if not found and kind == "y":
            raise UserError(
                f"{path} has no columns y0, y1, … of observations: {shown}; name yours with "
                "--observations."
            )
        return found
    if len(names) == 1 and names[0] not in head:
        names = tuple(name for name in head if name.startswith(names[0])) or names
    missing = next((name for name in names if name not in head), None)
    if missing is not None:
        raise UserError(f"{path} has no column {missing} of {what}: {shown}.")
    return [head.index(name) for name in names]


def number(cell: str) -> float:
    """NaN where it is none."""
    try:
        return float(cell)
    except ValueError:
        return float("nan")
