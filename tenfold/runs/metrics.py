"""Metrics: one JSON object per line, and the same numbers for TensorBoard.

Rows are `episode`, `train` or `eval` (episodes of the greedy policy); an algorithm may have
evaluations of another kind (`Reporter.rows`). What depends on the clock stands under `timing`;
everything else is a function of the settings. A full disk does not end a run: rows wait in memory
and are written when there is room again.
"""

import contextlib
import json
import math
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from time import monotonic, time
from typing import Any

import numpy as np

from tenfold.core.errors import told_of
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.registry import algorithms
from tenfold.envs.adapter import Episode
from tenfold.runs.file_schema import ROWS, Schema, misfit, parsed
from tenfold.runs.folder import RunFolder
from tenfold.runs.storage import writing

Rank = tuple[float, float]
WORST = (0.0, -math.inf)
WINDOW = 100  # episodes in the running mean, as it is usually reported
# the latest episodes between two other rows that have rows of their own: thousands of environments
# end more than anyone reads, and the running mean knows all of them
KEPT = 1000


@cache
def row_schemas() -> dict[str, Schema]:
    """The schemas of rows by kind, including those of algorithms."""
    reporters = [algorithm.make_reporter() for algorithm in algorithms().values()]
    added = [reporter.rows for reporter in reporters if reporter]
    return {kind: schema for rows in (ROWS, *added) for kind, schema in rows.items()}


def row_in(line: str | bytes) -> dict[str, Any] | None:
    """The row in a line of a metrics file; None for a damaged line."""
    try:
        row = parsed(line)
    except ValueError:
        return None
    kind = row.get("kind") if isinstance(row, dict) else None
    schema = row_schemas().get(kind) if isinstance(kind, str) else None
    return row if schema is not None and not misfit(row, schema) else None


def number(x: float) -> str:
    """A float as JSON, five times faster than json.dumps."""
    return repr(x) if math.isfinite(x) else json.dumps(x)


EPISODE = '{"kind": "episode"'  # as every such row begins


def read_rows(path: Path, episodes: bool = True) -> Iterator[dict[str, Any]]:
    """The valid rows of a metrics file; without those of `episodes` if false."""
    if path.is_file():
        with path.open(errors="replace") as file:
            for line in file:
                if line.isspace() or (not episodes and line.startswith(EPISODE)):
                    continue
                if row := row_in(line):
                    yield row


def latest_row(path: Path, kind: str = "train") -> dict[str, Any]:
    """The last row of this kind in a metrics file, reading no more of it than needed."""
    tail, length = 2**15, 0
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            while True:
                file.seek(max(length - tail, 0))
                for line in reversed(file.read(min(tail, length)).split(b"\n")):
                    row = row_in(line) if b'"%b"' % kind.encode() in line else None
                    if row and row["kind"] == kind:
                        return row
                if tail >= length:
                    return {}
                tail *= 4
    except OSError:
        return {}


def rank(row: dict[str, Any]) -> Rank:
    """The sort key of evaluations for the best checkpoint: success rate, then score or mean
    return."""
    score = row["score"] if "score" in row else row.get("merit", row["mean_return"])
    return row.get("success_rate", 0.0), score


def outcome(row: dict[str, Any]) -> tuple[float | None, float]:
    """Success rate (None if unknown) and score or mean return of an evaluation. Unlike `rank`, both
    keep their unit in all rows, so they may be averaged over runs."""
    return row.get("success_rate"), row["score"] if "score" in row else row["mean_return"]


class Metrics:
    """Appends rows; keeps what the display shows."""

    def __init__(
        self,
        folder: RunFolder,
        keep_bytes: int = 0,
        step: int = 0,
        best: Rank = WORST,
        episodes: int | None = None,
    ) -> None:
        """On resume `keep_bytes` is the file's size at the checkpoint: later rows are dropped;
        `best` is the best rank so far, and `episodes` the number of episodes, not all of which have
        rows."""
        self.path, self.events_path = folder.metrics, folder.tensorboard
        self.waiting: list[str] = []
        self.ended: deque[str] = deque(maxlen=KEPT)
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.successes: deque[bool] = deque(maxlen=WINDOW)
        self.episodes = 0
        self.latest: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []  # all but those of episodes
        self.best = best
        # the evaluation that was best, since this run or its resume began
        self.best_row: dict[str, Any] = {}
        self.complaint = ""
        self.sinks: list[Any] = []  # the user's: their `on_row` is given every row
        with writing(self.path):
            size = self.path.stat().st_size if self.path.exists() else 0
            if size < keep_bytes:
                self.complaint = (
                    f"{self.path} has lost rows that were written before the checkpoint"
                )
            elif size > keep_bytes:
                os.truncate(self.path, keep_bytes)
        for row in read_rows(self.path):
            self.remember(row)
        self.episodes = self.episodes if episodes is None else episodes
        first = step + 1 if step else None
        self.events: EventFile | None = EventFile(folder.tensorboard, first)
        self.pause, self.flushed = 0.0, monotonic()

    def remember(self, row: dict[str, Any]) -> None:
        if row["kind"] == "episode":
            self.returns.append(row["return"])
            self.lengths.append(row["length"])
            if "success" in row:
                self.successes.append(row["success"])
            self.episodes += 1
        else:
            self.rows.append(row)
            self.latest |= row
        if row["kind"] == "train":
            self.episodes = row.get("episodes", self.episodes)
        if row["kind"] not in ("episode", "train"):  # an evaluation, of whatever kind
            if rank(row) >= self.best:
                self.best_row = row
            self.best = max(self.best, rank(row))

    def best_or_none(self) -> float | None:
        return self.best[1] if self.best > WORST else None

    def recent(self) -> dict[str, float]:
        """Number of episodes; over the window their mean return, and the success rate where it is
        known."""
        mean = {"return": sum(self.returns) / len(self.returns)} if self.returns else {}
        share = {"success": sum(self.successes) / len(self.successes)} if self.successes else {}
        return {"episodes": self.episodes, **mean, **share}

    def episode(self, step: int, episode: Episode) -> None:
        step = step if episode.step is None else episode.step
        if not (self.sinks or episode.agent_returns or episode.success is not None):
            self.plain_episode(step, episode)
            return
        # of several agents
        per_agent = {"each": list(episode.agent_returns)} if episode.agent_returns else {}
        success = {} if episode.success is None else {"success": episode.success}
        self.add(
            {
                "kind": "episode",
                "step": step,
                "env": episode.env,
                "return": episode.ret,
                "length": episode.length,
                **per_agent,
                **success,
            }
        )

    def plain_episode(self, step: int, episode: Episode) -> None:
        """The same without JSON encoding, ten times faster: hundreds of seeds end a million
        episodes a minute."""
        self.returns.append(episode.ret)
        self.lengths.append(episode.length)
        self.episodes += 1
        self.ended.append(
            f'{EPISODE}, "step": {step}, "env": {episode.env}, '
            f'"return": {number(episode.ret)}, "length": {episode.length}}}'
        )

    def add(self, row: dict[str, Any]) -> None:
        self.remember(row)
        for sink in self.sinks:
            with told_of(f"{type(sink).__name__}.on_row"):
                sink.on_row(row)
        self.queue_episodes()
        self.waiting.append(json.dumps(row))
        if self.events is not None and row["kind"] != "episode":
            self.events.add(row)

    def queue_episodes(self) -> None:
        self.waiting += self.ended
        self.ended.clear()

    def flush_if_due(self) -> None:
        """Writes pending rows, unless the last flush was less than `pause` seconds ago."""
        if monotonic() - self.flushed >= self.pause:
            self.flush()

    def flush(self) -> int:
        """Writes pending rows; returns the file's size."""
        self.flushed = monotonic()
        self.queue_episodes()
        try:
            if self.events is not None:
                self.events.flush()
        except OSError as error:
            reason = f"{self.events_path} cannot be written ({error.strerror or error})"
            self.complaint, self.events = reason, None
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


# TensorBoard's files


def masked_crc32c_reference(content: np.ndarray) -> int:
    """TensorBoard's own implementation."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    return masked_crc32c(content.tobytes())


def random_bytes(rng: np.random.Generator, dtype: str) -> Iterator[tuple[np.ndarray]]:
    for size in (0, 1, 8, 333):
        yield (np.frombuffer(rng.bytes(size), np.uint8),)


def crc_table() -> np.ndarray:
    """The CRC-32C of every byte."""
    crc = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = (crc >> 1) ^ np.where(crc & 1, np.uint32(0x82F63B78), np.uint32(0))
    return crc


CRC_TABLE = crc_table()


@pair(masked_crc32c_reference, random_bytes, name="runs.metrics.masked_crc32c")
@kernel
def masked_crc32c(content):
    """The checksum of a record. TensorBoard computes it in Python, at 30 µs a row: too slow for
    hundreds of seeds."""
    crc = np.uint32(0xFFFFFFFF)
    for byte in content:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> np.uint32(8))
    crc = np.uint64(crc ^ np.uint32(0xFFFFFFFF))
    return np.uint32(((crc >> np.uint64(15)) | (crc << np.uint64(17))) + np.uint64(0xA282EAD8))


def framed(content: bytes) -> bytes:
    """Bytes followed by their checksum."""
    return content + struct.pack("<I", masked_crc32c(np.frombuffer(content, np.uint8)))


FILE_NUMBERS = count()  # of the event files of this process


class EventFile:
    """A run's numbers for TensorBoard, as its protocol buffers in TFRecord frames. The first
    `flush` creates the file. (TensorBoard's own writer starts a thread per file.)"""

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        """TensorBoard hides values of earlier files in the folder from `purge_step` on: the run was
        resumed there."""
        name = f"events.out.tfevents.{int(time()):010d}.{socket.gethostname()}"
        self.path = folder / f"{name}.{os.getpid()}.{next(FILE_NUMBERS):06d}"
        self.waiting: list[tuple[float, dict[str, Any]]] = []
        self.header: list[dict[str, Any]] = [{"file_version": "brain.Event:2"}]
        if purge_step is not None:
            self.header.append({"step": purge_step, "session_log": {"status": "START"}})

    def add(self, row: dict[str, Any]) -> None:
        self.waiting.append((time(), row))

    def flush(self) -> None:
        """Raises OSError if the disk refuses."""
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

        if not (self.header or self.waiting):
            return
        events = [Event(wall_time=time(), **fields) for fields in self.header]
        for wall_time, row in self.waiting:
            values = [{"tag": tag, "simple_value": value} for tag, value in scalars(row).items()]
            events.append(Event(wall_time=wall_time, step=row["step"], summary={"value": values}))
        self.path.parent.mkdir(exist_ok=True)
        with open(self.path, "ab") as file:
            for content in (event.SerializeToString() for event in events):
                file.write(framed(struct.pack("<Q", len(content))) + framed(content))
        self.waiting, self.header = [], []


def scalars(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row by their TensorBoard tags, such as `train/loss`."""
    return {
        f"{row['kind']}/{name}": float(value)
        for name, value in row.items()
        if isinstance(value, int | float) and name != "step"
    }
