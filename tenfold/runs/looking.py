"""Looking at runs from outside, while they go on and afterwards: what is read is read on, and
nothing of theirs is touched. Not even their locks are tried; the kernel's list tells which are
held."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tenfold.core.errors import UserError
from tenfold.runs.comparison import called, experiments_named, group_of, write_comparison
from tenfold.runs.curves import Group
from tenfold.runs.digest import Digest
from tenfold.runs.folder import failure, is_seeds, is_sweep
from tenfold.runs.names import LOCK
from tenfold.runs.report import write_run, write_seeds
from tenfold.runs.schema import SEEDS, read_json
from tenfold.runs.seeds import SeedsFolder

LOCKS = Path("/proc/locks")
RECENT = 60.0  # seconds since the last row of a run that goes on without a lock of its own
ABOVE = 2  # folders above a run that may be locked for it: that of its seeds, that of a sweep


def held_inodes() -> set[int] | None:
    """Of files that somebody holds a lock of; None where nobody tells."""
    try:
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    parts = [line.split() for line in lines if " FLOCK " in line]
    return {int(words[-3].rpartition(":")[2]) for words in parts if len(words) >= 8}


def is_held(folder: Path, held: set[int] | None) -> bool:
    lock = folder / LOCK
    return held is not None and lock.exists() and lock.stat().st_ino in held


def activity(folder: Path, held: set[int] | None) -> str:
    """Whether a process trains a run: it holds the folder's lock. Where the run is one of several
    whose folder is held, it may be trained on another machine, or be next."""
    if is_held(folder, held):
        return "running"
    file = folder / "metrics.jsonl"
    recent = file.exists() and time.time() - file.stat().st_mtime < RECENT
    if held is None:
        return "running" if recent else "stopped"
    if any(is_held(place, held) for place in folder.absolute().parents[:ABOVE]):
        return "running" if recent else "waiting"
    return "stopped"


def ended(folder: Path) -> str:
    """What became of seeds of a sweep that are not trained on."""
    if not is_seeds(folder):
        return ""
    return read_json(folder / "seeds.json", SEEDS, "put it back").get("ended", "")


@dataclass
class Sight:
    """Experiments that are looked at again and again. Folders that appear join them."""

    paths: Sequence[Path]  # as they were named
    sweeps: bool = False  # the trials of sweeps too
    trust: bool = False  # modules are imported, whoever named them

    def __post_init__(self) -> None:
        self.groups: dict[Path, Group] = {}
        self.held: set[int] | None = None
        self.left_out: dict[Path, str] = {}  # by what is wrong with them

    def look(self) -> list[Group]:
        """All of them, as they are now. One that cannot be read is left out, unless it was
        named."""
        self.held, self.left_out = held_inodes(), {}
        found = experiments_named(self.paths, self.sweeps)
        seen = {}
        for path, name in zip(found, called(found), strict=True):
            try:
                seen[path] = self.look_at(path, name)
            except UserError as error:
                if path in self.paths:
                    raise
                self.left_out[path] = str(error)
        self.groups = seen
        if not seen:
            raise UserError(next(iter(self.left_out.values())))
        return list(seen.values())

    def look_at(self, path: Path, name: str) -> Group:
        if path not in self.groups:
            return group_of(path, name, self.trust)
        for digest in self.groups[path].members:
            digest.read()
        return replace(self.groups[path], name=name)

    def state(self, group: Group, digest: Digest) -> str:
        """Of one run."""
        if digest.last.get("step", 0) >= group.run.steps:
            return "finished"
        now = activity(digest.path, self.held)
        if now == "running":
            return now
        return "failed" if failure(digest.path) else ended(group.path) or now

    def going(self) -> bool:
        """Whether any of them is being trained."""
        return any(
            self.state(group, digest) in ("running", "waiting")
            for group in self.groups.values()
            for digest in group.members
        )


def write_page(sight: Sight, out: Path | None = None, live: float = 0.0) -> Path:
    """Of what was seen: one run's page, that of many seeds, or a comparison."""
    groups = list(sight.groups.values())
    alone = len(groups) == 1 and list(sight.paths) == [groups[0].path]
    if not alone:
        left_out = list(sight.left_out.values())
        return write_comparison(groups, page_of(sight, out), live, left_out)
    (group,) = groups
    if is_seeds(group.path):
        return write_seeds(SeedsFolder.open(group.path, sight.trust), group, None, out, live)
    return write_run(group, out, live)


def page_of(sight: Sight, out: Path | None) -> Path:
    """Where the page of several goes that was not told where."""
    if out:
        return out
    only = sight.paths[0] if len(sight.paths) == 1 else None
    return only / "report.html" if only and only.is_dir() else Path("report.html")


def require_runs(paths: Sequence[Path], flag: str) -> None:
    """Refuses what is not told of by metrics."""
    for path in paths:
        if is_sweep(path):
            raise UserError(
                f"{flag} is for runs and folders of seeds, and {path} is a sweep: name one of its "
                f"folders, such as {path / 'trial-0'}."
            )
