"""A run on another machine, which shares no disk with this one: what changes in its folder is sent
as parcels, and so its checkpoints are here when that machine is not there any more.

`away` is what a task of Ray does. The run is trained in a thread, and the task gives on what that
thread packs, at a checkpoint or a row of metrics: a folder is never packed while it is written to.
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

PAUSE = 1.0  # seconds between parcels: a fast run saves more often than anyone needs it elsewhere
LOOKS = 0.5  # seconds between looks whether the run is to stop
METRICS, BOARD = "metrics.jsonl", "tensorboard/"
# an end that a driver dies in leaves rows and metrics that no checkpoint knows, never the reverse
ORDER = ("replay/", METRICS, BOARD, "", "checkpoints/")


class Parcel(NamedTuple):
    """What changed in a run's folder: files, each from a byte on, and files that are gone; at its
    end what became of the run."""

    files: tuple[tuple[str, int, bytes], ...] = ()
    gone: tuple[str, ...] = ()
    answer: tuple[str, int] | None = None
    # the first: the machine's name, and its packages
    begun: tuple[str, dict[str, str]] | None = None


def grows(name: str) -> bool:
    """Whether a file only ever has more at its end."""
    return name == METRICS or name.startswith(BOARD)


@dataclass
class Packer:
    """Packs what has changed in a folder since the last time."""

    folder: Path
    known: dict[str, tuple[int, int]] = field(default_factory=dict)  # size and time, by name

    def files(self) -> dict[str, tuple[int, int]]:
        """Hidden ones are locks and what is being written; not so the mark of modules."""
        found = {}
        for path in sorted(self.folder.rglob("*")) if self.folder.is_dir() else ():
            if path.is_file() and (not path.name.startswith(".") or path.name == ".modules"):
                about = path.stat()
                found[str(path.relative_to(self.folder))] = (about.st_size, about.st_mtime_ns)
        return found

    def pack(self, answer: tuple[str, int] | None = None) -> Parcel:
        now, files = self.files(), []
        for name, about in now.items():
            if self.known.get(name) != about:
                before = self.known.get(name, (0, 0))[0]
                since = before if grows(name) and before <= about[0] else 0
                files.append((name, since, (self.folder / name).read_bytes()[since:]))
        gone = tuple(name for name in self.known if name not in now)
        self.known = now
        return Parcel(tuple(files), gone, answer)


def unpack(folder: Path, parcel: Parcel) -> None:
    """Into the folder that it is a copy of; whoever is interrupted in it leaves a whole run."""

    def place(name: str) -> int:
        known = [k for k, start in enumerate(ORDER) if start and name.startswith(start)]
        return known[0] if known else ORDER.index("")

    for name, since, content in sorted(parcel.files, key=lambda file: place(file[0])):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if grows(name):
            with path.open("r+b" if path.exists() else "wb") as file:
                file.truncate(since)
                file.seek(since)
                file.write(content)
        else:
            replace_file(path, content)
    for name in parcel.gone:
        (folder / name).unlink(missing_ok=True)


class Courier:
    """A callback of the run: packs its folder now and then. `stop` is told from another thread."""

    def __init__(self, packer: Packer | None, parcels: "queue.Queue[Parcel]") -> None:
        self.packer, self.parcels = packer, parcels
        self.training: Any = None
        self.stopping, self.sent = False, time.monotonic()

    def on_start(self, training: Any) -> None:
        self.training = training
        if self.stopping:
            training.stop(evaluate=False)

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        """Rows are written a moment later: those before it are sent."""
        self.send()

    def on_checkpoint(self, training: Any) -> None:
        self.send()

    def send(self) -> None:
        if self.packer and time.monotonic() - self.sent >= PAUSE:
            self.parcels.put(self.packer.pack())  # waits until the one before it is on its way
            self.sent = time.monotonic()

    def stop(self) -> None:
        self.stopping = True
        if self.training:
            self.training.stop(evaluate=False)


Work = Callable[..., tuple[str, int]]


def away(
    work: Work, task: tuple[Any, ...], files: Parcel, shared: bool, stopped: Callable[[], bool]
) -> Iterator[Parcel]:
    """Does a task, whose second part is the run's folder there, in a folder of this machine that
    begins with `files`; or in that very folder, where the disk is `shared`."""
    import ray

    node = ray.get_runtime_context().get_node_id()[:8]  # several may have one address
    machine = f"{ray.util.get_node_ip_address()} ({node})"
    yield Parcel(begun=(machine, versions()))
    settings, path, *more = task
    with nullcontext("") if shared else tempfile.TemporaryDirectory(prefix="tenfold-") as home:
        folder = Path(path) if shared else Path(home) / Path(path).name
        if shared and not folder.parent.is_dir():
            words = f"{folder.parent} is not on the disk of {machine}"
            yield Parcel(answer=(f"{words}: --storage is a folder that every machine shares.", 0))
            return
        unpack(folder, files)
        packer = None if shared else Packer(folder)
        if packer:  # a resume cuts metrics where the checkpoint was: those are sent as a whole
            packer.known = {n: about for n, about in packer.files().items() if not grows(n)}
        parcels: queue.Queue[Parcel] = queue.Queue(maxsize=1)
        courier = Courier(packer, parcels)

        def train() -> None:
            try:
                answer = work(settings, str(folder), *more, callbacks=(courier,))
            except BaseException as error:  # also SystemExit of an environment
                answer = (
                    (f"it {raised(error)}.", 0)
                    if isinstance(error, Exception)
                    else (f"it ended its process ({type(error).__name__}).", 0)
                )
            parcels.put(packer.pack(answer) if packer else Parcel(answer=answer))

        thread = threading.Thread(target=train, name="training", daemon=True)
        thread.start()
        while True:
            if not courier.stopping and stopped():
                courier.stop()
            try:
                parcel = parcels.get(timeout=LOOKS)
            except queue.Empty:
                continue
            yield parcel
            if parcel.answer:
                break
        thread.join()
