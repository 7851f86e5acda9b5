"""Metrics: one JSON object a line, and the same numbers for TensorBoard.

Rows are `episode`, `train`, `eval` (episodes of the greedy policy) or `fit` (how well a model of
the world fits). What depends on the clock stands under `timing`; everything else is a function of
the settings. A full disk does not end a run: rows wait in memory and are written when there is room
again.
"""

import contextlib
import json
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tenfold.core.errors import UserError
from tenfold.envs.adapter import Episode
from tenfold.runs.folder import RunFolder
from tenfold.runs.schema import ROWS, misfit, parsed

Rank = tuple[float, float]
WORST = (0.0, -math.inf)
WINDOW = 100  # episodes in the running mean, as it is usually reported


def row_in(line: str | bytes) -> dict[str, Any] | None:
    """The row in a line of a metrics file; None where there is none (a torn or damaged line)."""
    try:
        row = parsed(line)
    except ValueError:
        return None
    kind = row.get("kind") if isinstance(row, dict) else None
    fits = isinstance(kind, str) and kind in ROWS and not misfit(row, ROWS[kind])
    return row if fits and (kind != "fit" or shape_of(row)) else None


def shape_of(fit: dict[str, Any]) -> tuple[int, ...]:
    """Members and horizons of a row of kind fit, and whether the field is known; empty where its
    parts contradict each other."""
    members, ahead, known = len(fit["r2s"]), len(fit["r2"]), "field_error" in fit
    whole = (
        members
        and {ahead} == {len(own) for own in (*fit["r2s"], fit.get("arx_r2", fit["r2"]))}
        and members == len(fit["elbos"]) == len(fit.get("field_errors", fit["elbos"]))
        and known == ("field_errors" in fit)
    )
    return (members, ahead, known) if whole else ()


def fits_of(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that say how well a model fits, of the same shape as the last of them."""
    fits = [row for row in rows if row["kind"] == "fit"]
    return [fit for fit in fits if shape_of(fit) == shape_of(fits[-1])]


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a metrics file; what is no row is passed over."""
    if path.is_file():
        for line in path.read_text(errors="replace").splitlines():
            if row := row_in(line):
                yield row


def rank(row: dict[str, Any]) -> Rank:
    """By what the best of a run's evaluations is chosen: the share of successes, then what it has
    most of. Where the environment tells only of successes, an evaluation without any counts as one
    with none."""
    return row.get("success_rate", 0.0), row["score"] if row["kind"] == "fit" else row.get(
        "merit", row["mean_return"]
    )


class Metrics:
    """Appends rows; remembers what the display shows."""

    def __init__(
        self, folder: RunFolder, keep_bytes: int = 0, step: int = 0, best: Rank = WORST
    ) -> None:
        """On resume `keep_bytes` is the file's size at the checkpoint, rows after it are dropped;
        `best` is the best so far."""
        self.path = folder.metrics
        self.waiting: list[str] = []
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.successes: deque[bool] = deque(maxlen=WINDOW)
        self.episodes = 0
        self.latest: dict[str, Any] = {}
        self.best = best
        # the evaluation that was best, since this run or its resume began
        self.best_row: dict[str, Any] = {}
        self.complaint = ""
        self.sinks: list[Callable[[dict[str, Any]], None]] = []  # the user's: get every row
        try:
            size = self.path.stat().st_size if self.path.exists() else 0
            if size < keep_bytes:
                self.complaint = (
                    f"{self.path} has lost rows that were written before the checkpoint"
                )
            elif size > keep_bytes:
                os.truncate(self.path, keep_bytes)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror or error}.") from None
        for row in read_rows(self.path):
            self.remember(row)
        # here: it costs a moment and only training needs it
        from torch.utils.tensorboard import SummaryWriter

        self.board: Any = None
        try:
            self.board = SummaryWriter(
                str(folder.tensorboard), purge_step=step + 1 if step else None
            )
        except OSError as error:
            self.complaint = f"{folder.tensorboard} cannot be written ({error.strerror or error})"

    def remember(self, row: dict[str, Any]) -> None:
        if row["kind"] == "episode":
            self.returns.append(row["return"])
            self.lengths.append(row["length"])
            if "success" in row:
                self.successes.append(row["success"])
            self.episodes += 1
        else:
            self.latest |= {k: v for k, v in row.items() if k not in ("kind", "step")}
        if row["kind"] in ("eval", "fit"):
            if rank(row) >= self.best:
                self.best_row = row
            self.best = max(self.best, rank(row))

    def best_or_none(self) -> float | None:
        return self.best[1] if self.best > WORST else None

    def recent(self) -> dict[str, float]:
        """Episodes so far; their mean return over the window, and where successes are told the
        share of these."""
        mean = {"return": sum(self.returns) / len(self.returns)} if self.returns else {}
        share = {"success": sum(self.successes) / len(self.successes)} if self.successes else {}
        return {"episodes": self.episodes, **mean, **share}

    def episode(self, step: int, episode: Episode) -> None:
        each = {"each": list(episode.each)} if episode.each else {}  # of several agents
        told = {} if episode.success is None else {"success": episode.success}
        self.add(
            {
                "kind": "episode",
                "step": step,
                "env": episode.env,
                "return": episode.ret,
                "length": episode.length,
                **each,
                **told,
            }
        )

    def add(self, row: dict[str, Any]) -> None:
        self.remember(row)
        for sink in self.sinks:
            sink(row)
        self.waiting.append(json.dumps(row))
        # TensorBoard takes 50 µs a number: means at intervals must do
        if self.board is not None and row["kind"] != "episode":
            try:
                for name, value in row.items():
                    if isinstance(value, int | float) and name != "step":
                        self.board.add_scalar(f"{row['kind']}/{name}", value, row["step"])
            except OSError as error:
                self.complaint, self.board = (
                    f"TensorBoard's file cannot be written ({error.strerror or error})",
                    None,
                )

    def flush(self) -> int:
        """Writes what waits; returns the file's size."""
        size = self.path.stat().st_size if self.path.exists() else 0
        try:
            if self.waiting:
                with open(self.path, "a") as file:
                    file.write("".join(line + "\n" for line in self.waiting))
                    file.flush()
                self.waiting = []
        except OSError as error:
            self.complaint = f"metrics cannot be written ({error.strerror or error})"
            with contextlib.suppress(OSError):
                os.truncate(self.path, size)  # no half rows
        return self.path.stat().st_size if self.path.exists() else 0

    def close(self) -> None:
        self.flush()
        if self.board is not None:
            with contextlib.suppress(OSError):
                self.board.close()
