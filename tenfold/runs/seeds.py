"""Many seeds of one experiment: a folder of ordinary runs, `seed-0`, `seed-1`, …, and their
summary."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tenfold.config.changes import changed_run
from tenfold.config.files import Trust, require_trust
from tenfold.config.notation import merge
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.envs.making import resolve_paths
from tenfold.runs.file_schema import SEEDS, read_json
from tenfold.runs.folder import (
    SEEDS_KIND,
    RunFolder,
    failure,
    mark_modules,
    origin,
    read_settings,
    require_place,
    write_settings,
)
from tenfold.runs.metrics import latest_row, read_rows
from tenfold.runs.reporter import Reporter, reporter_of, source_measures
from tenfold.runs.statistics import sentence, together
from tenfold.runs.storage import FolderLock, Target, install, resolve_latest, write_json, writing

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class SeedsFolder:
    """The folders of the members. `run` is the experiment; each member has its own seed. A new
    folder is locked as long as the object lives."""

    path: Path
    run: Run
    seeds: tuple[int, ...]
    lock: FolderLock | None = field(default=None, compare=False, repr=False)
    changes: dict[str, Any] = field(default_factory=dict)  # settings that are others since a resume
    shared: bool = False  # every machine of the cluster sees the folder
    trust: Trust = False

    def member(self, seed: int) -> Path:
        return self.path / f"seed-{seed}"

    @property
    def members(self) -> list[Path]:
        return [self.member(seed) for seed in self.seeds]

    @property
    def title(self) -> str:
        return f"{self.run.agent.name} on {self.run.env}, {len(self.seeds)} seeds"

    def run_of(self, seed: int) -> Run:
        return replace(alone(self.run), seed=seed)

    @classmethod
    def create(
        cls,
        target: Target,
        run: Run,
        seeds: tuple[int, ...],
        overwrite: bool = False,
        shared: bool = False,
        initial: Any = None,
    ) -> "SeedsFolder":
        """`initial` are weights that every member starts from (`training.loop`)."""
        run = replace(run, env=resolve_paths(run.env))
        about = origin(SEEDS_KIND) | {"seeds": list(seeds)} | ({"shared": True} if shared else {})
        about |= {"init": initial.about} if initial else {}

        def fill(made: Path) -> None:
            write_settings(made, run)
            if initial:
                initial.write(made)
            write_json(made / "seeds.json", about)

        require_place(target, overwrite)
        path, lock = install(target, fill)
        return cls(path, run, seeds, lock, shared=shared)

    @classmethod
    def open(cls, path: Path, trust: Trust = False) -> "SeedsFolder":
        path = resolve_latest(path)
        about = read_json(
            path / "seeds.json",
            SEEDS,
            'put back what was there, such as "seeds": [0, 1], or name a seed\'s own '
            f"folder below {path}",
        )
        require_trust(path, about.get("changes"), trust)
        return cls(
            path,
            read_settings(path, trust),
            tuple(about["seeds"]),
            changes=about.get("changes", {}),
            shared=about.get("shared", False),
            trust=trust,
        )

    def ready(self, checkpoint: str) -> tuple[int, ...]:
        """The seeds that have such a checkpoint."""
        pattern = "best.safetensors" if checkpoint == "best" else "step-*.safetensors"
        seeds = tuple(
            seed for seed in self.seeds if any((self.member(seed) / "checkpoints").glob(pattern))
        )
        if not seeds:
            best, when = (
                checkpoint == "best",
                f"evaluation (eval_every is {self.run.eval_every:,})",
            )
            raise UserError(
                f"No seed of {self.path} has a {'best ' * best}checkpoint yet: it comes with the "
                f"first {when if best else 'steps'}; `tenfold list` shows how far they are."
            )
        return seeds

    def end(self, state: str) -> None:
        """Records that unfinished members will not be resumed: `pruned` or `failed`."""
        if state:
            about = read_json(self.path / "seeds.json", SEEDS, "put it back") | {"ended": state}
            with writing(self.path / "seeds.json"):
                write_json(self.path / "seeds.json", about)

    def changed(self, change: dict[str, Any]) -> "SeedsFolder":
        """The folder with changed settings, which are written: every member resumes with them."""
        if not change:
            return self
        new = replace(
            self, run=changed_seeds(self.run, change), changes=merge(self.changes, change)
        )
        about = read_json(self.path / "seeds.json", SEEDS, "put it back") | {"changes": new.changes}
        with writing(self.path):
            write_settings(self.path, new.run)
            mark_modules(self.path, new.changes)
            write_json(self.path / "seeds.json", about)
        return new


def alone(run: Run) -> Run:
    """One of several runs as a run of its own: `where` = ray places the seeds, not their actors."""
    return replace(run, where="auto", address="") if run.where == "ray" else run


def changed_seeds(run: Run, change: Mapping[str, Any]) -> Run:
    """`changed_run` for several seeds, which may move between this machine and a cluster."""
    if "ray" not in (run.where, change.get("where")):
        return changed_run(run, change)
    where = {name: change[name] for name in ("where", "address") if name in change}
    rest = {name: value for name, value in change.items() if name not in where}
    where = {"where": run.where, "address": run.address} | where
    return replace(changed_run(alone(run), rest), **where)


def rows_of(folder: SeedsFolder, known: Mapping[int, Rows | None] = {}) -> list[Rows]:
    """The rows of each member without episodes: those in `known`, or from its file."""
    return [
        known.get(seed) or list(read_rows(folder.member(seed) / "metrics.jsonl", episodes=False))
        for seed in folder.seeds
    ]


def summarise(folder: SeedsFolder, rows: list[Rows] | None = None) -> dict[str, Any]:
    """The last numbers of each member and of all; also writes summary.json. `rows` are those of the
    members, where they are in memory."""
    reporter, rows = reporter_of(folder.run), rows or rows_of(folder)
    about = read_json(folder.path / "seeds.json", SEEDS, "put it back")
    members = dict(zip(folder.seeds, map(reporter.last_numbers, rows), strict=True))
    summary: dict[str, Any] = {"seeds": members}
    for name in pooled(reporter):
        values = [value for member in members.values() if (value := member.get(name)) is not None]
        if len(values) == len(members):
            summary[name] = together(values)
    if measures := source_measures(about, folder.members):
        summary["measures"] = measures
    write_json(folder.path / "summary.json", summary)
    return summary


def pooled(reporter: Reporter) -> list[str]:
    """The names of the numbers that are also summarised over members."""
    return [name for name in reporter.numbers if name != "step"]


def summary_sentences(reporter: Reporter, summary: dict[str, Any]) -> dict[str, str]:
    """The summaries of all members, by the number's name."""
    return {
        name: sentence(summary[name], reporter.numbers[name].form)
        for name in pooled(reporter)
        if name in summary
    }


def left_out(seeds: list[int]) -> str:
    """A sentence about seeds without a checkpoint."""
    return (
        f"left out, without such a checkpoint yet: seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))}"
    )


def describe_run(path: Path) -> str:
    """One line about a run: agent, environment, progress, return."""
    try:
        run = RunFolder.open(path)[1]
    except UserError as error:
        return str(error)
    row = latest_row(path / "metrics.jsonl")
    step = row.get("step", 0)
    failed = failure(path)
    far = (
        f"finished at {step:,}"
        if step >= run.steps
        else f"at {step:,} of {run.steps:,}, {f'failed: {failed}' if failed else 'not finished'}"
    )
    return f"{run.agent.name} on {run.env}, {far}" + (
        f", return {row['return']:.2f}" if "return" in row else ""
    )


def describe_seeds(path: Path) -> str:
    """The same for many seeds."""
    folder = SeedsFolder.open(path)
    rows = [latest_row(member / "metrics.jsonl") for member in folder.members]
    done = sum(row.get("step", 0) >= folder.run.steps for row in rows)
    returns = [row["return"] for row in rows if "return" in row]
    mean = f", mean return {sum(returns) / len(returns):.2f}" if returns else ""
    failed = {seed: reason for seed in folder.seeds if (reason := failure(folder.member(seed)))}
    failures = "".join(f", seed {seed} failed: {reason}" for seed, reason in failed.items())
    return (
        f"{folder.run.agent.name} on {folder.run.env}, {done} of {len(rows)} seeds finished at "
        f"{folder.run.steps:,}{mean}{failures}"
    )
