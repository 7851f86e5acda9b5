"""A run on another machine that shares no disk with this one: changes of its folder are sent here
as deltas, so that its checkpoints survive the loss of that machine.

`run_remotely` is the body of a Ray task. The run is trained in a thread, which packs its folder at
a checkpoint or a row of metrics (never while it is written to), and the task yields the deltas.
"""

import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tenfold.core.errors import raised
from tenfold.core.ray_cluster import versions
from tenfold.runs.storage import replace_file
from tenfold.training.worker_pool import Work

DELTA_EVERY = 1.0  # seconds between deltas: a fast run saves more often than that
STOP_CHECK_EVERY = 0.5  # seconds between looks whether the run is to stop
METRICS, BOARD = "metrics.jsonl", "tensorboard/"
# an end that a driver dies in leaves rows and metrics that no checkpoint knows, never the reverse
ORDER = ("replay/", METRICS, BOARD, "", "checkpoints/")


class FolderDelta(NamedTuple):
    """The changes of a run's folder: files, each from a byte offset on, and removed files; the last
    delta has the run's answer."""

    files: tuple[tuple[str, int, bytes], ...] = ()
    gone: tuple[str, ...] = ()
    answer: tuple[str, int] | None = None
    # the first: the machine's name, and its packages
    started: tuple[str, dict[str, str]] | None = None


def grows(name: str) -> bool:
    """Whether a file is append-only."""
    return name == METRICS or name.startswith(BOARD)


@dataclass
class DeltaPacker:
    """Packs the files of a folder that changed since the last call."""

    folder: Path
    known: dict[str, tuple[int, int]] = field(default_factory=dict)  # size and time, by name

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and time by name. Hidden files are locks and temporary files, except the mark of
        trusted modules."""
        files = {}
        for path in sorted(self.folder.rglob("*")) if self.folder.is_dir() else ():
            if path.is_file() and (not path.name.startswith(".") or path.name == ".modules"):
                about = path.stat()
                files[str(path.relative_to(self.folder))] = (about.st_size, about.st_mtime_ns)
        return files

    def pack(self, answer: tuple[str, int] | None = None) -> FolderDelta:
        now, files = self.files(), []
        for name, about in now.items():
            if self.known.get(name) != about:
                before = self.known.get(name, (0, 0))[0]
                since = before if grows(name) and before <= about[0] else 0
                files.append((name, since, (self.folder / name).read_bytes()[since:]))
        gone = tuple(name for name in self.known if name not in now)
        self.known = now
        return FolderDelta(tuple(files), gone, answer)


def unpack(folder: Path, delta: FolderDelta) -> None:
    """Applies a delta to the copy of a folder. If interrupted, the copy is still a complete run."""

    def order(name: str) -> int:
        known = [k for k, start in enumerate(ORDER) if start and name.startswith(start)]
        return known[0] if known else ORDER.index("")

    for name, since, content in sorted(delta.files, key=lambda file: order(file[0])):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if grows(name):
            with path.open("r+b" if path.exists() else "wb") as file:
                file.truncate(since)
                file.seek(since)
                file.write(content)
        else:
            replace_file(path, content)
    for name in delta.gone:
        (folder / name).unlink(missing_ok=True)


class FileSyncer:
    """A callback that packs the run's folder at intervals. Another thread calls `stop`."""

    def __init__(self, packer: DeltaPacker | None, deltas: "queue.Queue[FolderDelta]") -> None:
        self.packer, self.deltas = packer, deltas
        self.training: Any = None
        self.stopping, self.sent = False, time.monotonic()

    def on_start(self, training: Any) -> None:
        self.training = training
        if self.stopping:
            training.stop(evaluate=False)

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        """Sends the rows before this one, which is written a moment later."""
        self.send()

    def on_checkpoint(self, training: Any) -> None:
        self.send()

    def send(self) -> None:
        if self.packer and time.monotonic() - self.sent >= DELTA_EVERY:
            self.deltas.put(self.packer.pack())  # waits until the one before it is on its way
            self.sent = time.monotonic()

    def stop(self) -> None:
        self.stopping = True
        if self.training:
            self.training.stop(evaluate=False)


def run_remotely(
    work: Work, task: tuple[Any, ...], files: FolderDelta, shared: bool, stopped: Callable[[], bool]
) -> Iterator[FolderDelta]:
    """Runs a task, whose second argument is the folder on the driver, in a local folder that starts
    with `files`; or in that very folder, where the disk is `shared`."""
    import ray

    node = ray.get_runtime_context().get_node_id()[:8]  # several may have one address
    machine = f"{ray.util.get_node_ip_address()} ({node})"
    yield FolderDelta(started=(machine, versions()))
    settings, path, *more = task
    with nullcontext("") if shared else tempfile.TemporaryDirectory(prefix="tenfold-") as home:
        folder = Path(path) if shared else Path(home) / Path(path).name
        if shared and not folder.parent.is_dir():
            reason = f"{folder.parent} is not on the disk of {machine}"
            yield FolderDelta(
                answer=(f"{reason}: --storage is a folder that every machine shares.", 0)
            )
            return
        unpack(folder, files)
        packer = None if shared else DeltaPacker(folder)
        if packer:  # a resume cuts metrics where the checkpoint was: those are sent as a whole
            packer.known = {n: about for n, about in packer.files().items() if not grows(n)}
        deltas: queue.Queue[FolderDelta] = queue.Queue(maxsize=1)
        syncer = FileSyncer(packer, deltas)

        def train() -> None:
            try:
                answer = work(settings, str(folder), *more, callbacks=(syncer,))
            except BaseException as error:  # also SystemExit of an environment
                answer = (
                    (f"it {raised(error)}.", 0)
                    if isinstance(error, Exception)
                    else (f"it ended its process ({type(error).__name__}).", 0)
                )
            deltas.put(packer.pack(answer) if packer else FolderDelta(answer=answer))

        thread = threading.Thread(target=train, name="training", daemon=True)
        thread.start()
        while True:
            if not syncer.stopping and stopped():
                syncer.stop()
            try:
                delta = deltas.get(timeout=STOP_CHECK_EVERY)
            except queue.Empty:
                continue
            yield delta
            if delta.answer:
                break
        thread.join()
