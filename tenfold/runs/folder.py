"""A run's folder: settings, versions, machine, metrics, checkpoints, replay rows, report."""

import itertools
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import yaml

from tenfold.config.files import (
    MARK,
    Trust,
    clusters_in,
    distrusted,
    mark_of,
    marks_in,
    modules_in,
    presets,
    require_trust,
)
from tenfold.config.notation import read_yaml
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.registry import SOURCE, algorithms
from tenfold.core.system import machine_card, versions
from tenfold.runs.file_schema import RUN, current, parsed, read_json
from tenfold.runs.storage import (
    RUNS,
    SEVERAL,
    FolderLock,
    Numbered,
    Target,
    install,
    locked_below,
    replace_file,
    resolve_latest,
    write_json,
)

WRITTEN = ("env", "agent", "steps", "seed")  # among what every config.yaml of ours says
KIND, SEEDS_KIND, COMPARE_KIND = "tenfold-run", "tenfold-seeds", "tenfold-compare"
SWEEP_KIND = "tenfold-sweep"


def origin(kind: str) -> dict[str, Any]:
    """The record of a new folder: its kind, time, command, versions and machine."""
    source = SOURCE.get()
    return {
        "kind": kind,
        **({"source": dict(source)} if source else {}),
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "versions": versions(),
        "machine": machine_card(),
    }


class RunFolder:
    """Paths and identity of one run. Locked inside `with`; a new one from its creation on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints, self.rows = path / "checkpoints", path / "replay"
        self.metrics, self.tensorboard = path / "metrics.jsonl", path / "tensorboard"
        self.report = path / "report.html"
        self.about: dict[str, Any] = {}
        self.lock: FolderLock | None = None
        self.trust: Trust = False

    def __enter__(self) -> Self:
        self.lock = self.lock or FolderLock(self.path)
        return self

    def __exit__(self, *error: object) -> None:
        if self.lock:
            self.lock.release()
        self.lock = None

    @property
    def id(self) -> str:
        return self.about["id"]

    @classmethod
    def create(
        cls,
        target: Target,
        run: Run,
        overwrite: bool = False,
        init: dict[str, Any] | None = None,
    ) -> "RunFolder":
        """Creates a folder; refuses one that exists, or with `overwrite` replaces it if it is a
        run. `init` describes the run whose weights this one starts from."""
        about = origin(KIND) | {"id": uuid.uuid4().hex} | ({"init": init} if init else {})

        def fill(made: Path) -> None:
            folder = cls(made)
            folder.about = about
            for part in (folder.checkpoints, folder.rows):
                part.mkdir()
            write_settings(made, run)
            folder.write_about()

        require_place(target, overwrite)
        path, lock = install(target, fill)
        folder = cls(path)
        folder.about, folder.lock = about, lock
        return folder

    def write_about(self) -> None:
        write_json(self.path / "run.json", self.about)

    @classmethod
    def open(cls, path: Path, trust: Trust = False) -> tuple["RunFolder", Run]:
        """The folder and the settings of a run. Modules that they name are imported if this user
        wrote them, or with `trust`."""
        path = resolve_latest(path)
        if not os.path.lexists(path):
            raise UserError(f"{path} does not exist: `tenfold list` shows the runs below runs/.")
        if is_compare(path):
            runs = " or ".join(map(str, sorted(runs_below(path))))
            raise UserError(
                f"{path} is a comparison of runs: name one of them, {runs}; the same `tenfold "
                "compare` goes on."
            )
        if is_sweep(path):
            folders = [path / name for name in ("winner", "trial-0") if (path / name).is_dir()]
            such = f", such as {' or '.join(map(str, folders))}" if folders else ""
            raise UserError(
                f"{path} is a sweep: name one of its folders of seeds{such}; `tenfold resume "
                f"{path}` goes on with it."
            )
        if path.suffix == ".zip" and path.is_file():
            raise UserError(
                f"{path} is an archive: it is evaluated, exported and loaded, and holds no memory "
                "to train on from."
            )
        if not is_run(path):
            lost = next((name for name in SEVERAL if os.path.lexists(path / name)), "")
            raise UserError(
                f"{path / lost} is damaged: put back what was there."
                if lost
                else f"{path} is not a tenfold run: it has no readable run.json."
            )
        folder = cls(path)
        folder.trust = trust
        folder.about = read_json(
            path / "run.json", RUN, "put back what was there when the run was trained"
        )
        if not (path / "config.yaml").is_file():
            raise UserError(f"{path} has lost its config.yaml and cannot be read.")
        return folder, read_settings(path, trust)


def destination(out: str | Path, name: str, overwrite: bool, below: str | Path = RUNS) -> Target:
    """The folder of a new run: `out`, or a new one `below` runs/, which `overwrite` replaces."""
    home = Path(below or RUNS)
    if out and home != RUNS and not Path(out).resolve().is_relative_to(home.resolve()):
        raise UserError(f"{out} is not in {home}, the folder that all machines share.")
    if out:
        path = resolve_latest(Path(out))
        return path.resolve() if path.is_symlink() else path
    return home / name if overwrite else Numbered(home / name)


def named_after(env: str) -> str:
    """An environment's id as a folder name."""
    return env.split("(")[0].replace("/", "-").replace(":", "-")


def run_name(what: Any, run: Run) -> str:
    """The default name of a run's folder: that of its preset or file, or of its environment."""
    if not isinstance(what, str):
        return named_after(run.env)
    if what not in presets() and (what in algorithms() or ":" in what):
        # of one's own: without its module
        return f"{run.agent.name.rpartition(':')[2]}-{named_after(run.env)}"
    return Path(what).stem


def folder_to_continue(
    target: Target,
    what: str,
    is_one: Callable[[Path], bool],
    changed: Callable[[Path], str],
    overwrite: bool,
) -> Target:
    """An existing folder of the same experiment (`what` it is) to continue, or a new one. A folder
    with other content is refused, or skipped where folders are numbered; `changed` names the first
    setting in which the experiment in a folder differs, "" where it is the same."""
    if isinstance(target, Numbered):
        existing = itertools.takewhile(os.path.lexists, target)
        return next((path for path in existing if not changed(path)), target)
    if target.exists() and any(target.iterdir()):
        if not is_one(target):
            raise UserError(f"{target} exists and is no {what}: choose another folder with --out.")
        if not overwrite and (setting := changed(target)):
            raise UserError(
                f"{target} holds a {what} with another {setting}: replace it with --overwrite, or "
                "choose another folder with --out."
            )
    return target


def require_place(target: Target, overwrite: bool) -> None:
    """Refuses a folder that holds something else than a run, a run without `overwrite`, one that
    another process trains, and the current folder. A numbered target is always free."""
    if isinstance(target, Numbered):
        return
    path = target
    if Path.cwd().is_relative_to(path.resolve()):
        raise UserError(
            f"{path} is the folder you are in, or holds it: name a folder of the run's own with "
            f"--out, such as {path / 'run'}."
        )
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (is_run(path) or is_seeds(path)):
        raise UserError(
            f"{path} exists and is not a tenfold run: choose another folder with --out."
        )
    if not overwrite:
        raise UserError(
            f"{path} holds a run already: continue it with `tenfold resume {path}`, replace it "
            "with --overwrite (in Python overwrite=True), or choose another folder with --out."
        )
    with locked_below(path):
        """Nobody else is there."""


def write_settings(path: Path, run: Run) -> None:
    settings = to_mapping(run)
    text = settings_text(json.dumps(settings | {"seed": 0}))
    replace_file(path / "config.yaml", SEED.sub(f"seed: {run.seed}", text, count=1).encode())
    mark_modules(path, settings)


SEED = re.compile("^seed: 0$", re.MULTILINE)


@lru_cache(maxsize=4)
def settings_text(settings: str) -> str:
    """The content of config.yaml. Cached, since hundreds of seeds differ in the seed alone and YAML
    takes milliseconds."""
    return yaml.safe_dump(json.loads(settings), sort_keys=False)


def read_settings(path: Path, trust: Trust = False) -> Run:
    """The settings in the folder of a run or of several runs."""
    settings = read_yaml(path / "config.yaml")
    if lost := [name for name in WRITTEN if name not in settings]:
        raise UserError(
            f"{path / 'config.yaml'} does not say {', '.join(lost)}, which it did when the run "
            "began: put back what was there."
        )
    require_trust(path, settings, trust)
    return Run.of(current(settings))


def last_session(path: Path) -> dict[str, Any]:
    """The last session recorded in run.json; empty where the run has not started."""
    try:
        about = read_json(path / "run.json", RUN, "put it back")
    except UserError:
        return {}
    return (about.get("sessions") or [{}])[-1]


def failure(path: Path) -> str:
    """The error that a run failed with, if it has not been resumed since."""
    return last_session(path).get("failed", "")


def is_run(path: Path) -> bool:
    return is_kind(path / "run.json", KIND)


def is_seeds(path: Path) -> bool:
    """Whether the folder holds many seeds of one experiment (runs/seeds.py)."""
    return is_kind(path / "seeds.json", SEEDS_KIND)


def is_compare(path: Path) -> bool:
    """Whether the folder holds several runs that are compared."""
    return is_kind(path / "compare.json", COMPARE_KIND)


def is_sweep(path: Path) -> bool:
    """Whether the folder holds a search over settings (runs/sweep_folder.py)."""
    return is_kind(path / "sweep.json", SWEEP_KIND)


def is_kind(path: Path, kind: str) -> bool:
    """Whether a file says that its folder is of this kind; the rest of it may still be damaged."""
    try:
        about = parsed(path.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(about, dict) and about.get("kind") == kind


def checkpoint_file(path: Path, checkpoint: str) -> Path:
    """A file about one checkpoint of a run: best, last, or a step. That of the last one has the
    plain name."""
    return path if checkpoint == "last" else path.with_stem(f"{path.stem}-{checkpoint}")


def runs_below(path: Path) -> list[Path]:
    """Runs below a folder, the most recently written first."""
    runs = [p.parent for p in path.glob("**/run.json") if is_run(p.parent)] if path.is_dir() else []
    files = ("run.json", "metrics.jsonl", "checkpoints")
    return sorted(
        runs,
        key=lambda run: max((run / f).stat().st_mtime for f in files if (run / f).exists()),
        reverse=True,
    )


def mark_modules(folder: Path, settings: Any) -> None:
    """Marks modules and clusters that the settings name as trusted by this user, in addition to
    existing marks."""
    names = sorted({*modules_in(settings), *clusters_in(settings)})
    if not names:
        return
    marks = marks_in(folder)
    new = [mark for mark in map(mark_of, names) if mark and mark not in marks]
    if new:
        replace_file(folder / MARK, "".join(f"{mark}\n" for mark in [*marks, *new]).encode())


def trusted_modules(folder: Path, settings: Any) -> frozenset[str]:
    """The modules that another machine, which has no key of this user, may import for a run: those
    in its settings, which come from here, and those marked in its folder."""
    try:
        named = set(modules_in(read_yaml(folder / "config.yaml")))
    except ConfigError:
        named = set()
    return frozenset(modules_in(settings)) | (named - set(distrusted(folder, named)))
