"""Metrics: one JSON object a line, and the same numbers for TensorBoard.

Rows are `episode`, `train` or `eval`. What depends on the clock stands under `timing`; everything else is a function of the
settings. A full disk does not end a run: rows wait in memory and are written when there is room again.
"""

import contextlib
import json
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tenfold.envs.vector import Episode
from tenfold.record.folder import RunFolder

WINDOW = 100  # episodes in the running mean, as it is usually reported


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a metrics file; a torn last line is passed over."""
    if path.exists():
        for line in path.read_text().splitlines():
            with contextlib.suppress(ValueError):
                yield json.loads(line)


class Metrics:
    """Appends rows; remembers what the display shows."""

    def __init__(self, folder: RunFolder, keep_bytes: int = 0, step: int = 0) -> None:
        """On resume `keep_bytes` is the file's size at the checkpoint: rows after it are dropped."""
        self.path = folder.metrics
        self.waiting: list[str] = []
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.episodes = 0
        self.latest: dict[str, Any] = {}
        self.best = float("-inf")
        self.complaint = ""
        if self.path.exists():
            os.truncate(self.path, keep_bytes)
        for row in read_rows(self.path):
            self.remember(row)
        from torch.utils.tensorboard import SummaryWriter  # here: it costs a moment and only training needs it
        self.board: Any = SummaryWriter(str(folder.tensorboard), purge_step=step + 1 if step else None)

    def remember(self, row: dict[str, Any]) -> None:
        if row["kind"] == "episode":
            self.returns.append(row["return"])
            self.episodes += 1
        else:
            self.latest |= {k: v for k, v in row.items() if k not in ("kind", "step")}
        if row["kind"] == "eval":
            self.best = max(self.best, row["mean_return"])

    def episode(self, step: int, episode: Episode) -> None:
        self.add({"kind": "episode", "step": step, "env": episode.env, "return": episode.ret, "length": episode.length})

    def add(self, row: dict[str, Any]) -> None:
        self.remember(row)
        self.waiting.append(json.dumps(row))
        numbers = {k: v for k, v in row.items() if isinstance(v, int | float) and k not in ("step", "env")}
        if self.board is not None:
            try:
                for name, value in numbers.items():
                    self.board.add_scalar(f"{row['kind']}/{name}", value, row["step"])
            except OSError as error:
                self.complaint, self.board = f"TensorBoard's file cannot be written ({error.strerror or error})", None

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
