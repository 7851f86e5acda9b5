"""Many seeds of one experiment: a folder of ordinary runs, `seed-0`, `seed-1`, …, and what they say
together."""

import html
import json
import os
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tenfold.config.changes import changed_run
from tenfold.config.run import Run
from tenfold.config.schema import merge, read_yaml, to_mapping
from tenfold.core.errors import UserError
from tenfold.envs.making import resolve_paths
from tenfold.runs.figures import as_png, new_figure
from tenfold.runs.files import replace_file
from tenfold.runs.folder import (
    SEEDS_KIND,
    RunFolder,
    machine_card,
    require_place,
    versions,
    write_settings,
)
from tenfold.runs.lock import Claim
from tenfold.runs.metrics import WINDOW, fits_of, rank, read_rows, row_in
from tenfold.runs.names import Target, install, settled
from tenfold.runs.plots import entitle, part_names, parts_figure
from tenfold.runs.report import STYLE, components, in_text, table
from tenfold.runs.schema import SEEDS, read_json

RESAMPLES = 2000
# numbers of members that are also given together, and how they are written
FINALS = {
    "return": ",.2f",
    "last_evaluation": ",.2f",
    "best_evaluation": ",.2f",
    "success_rate": ".1%",
    "steps_to_goal": ".1f",
    "field_error": ".3f",
    "least_field_error": ".3f",
    "r2": ".3f",
    "most_r2": ".3f",
}
HEADINGS = {
    "step": "step",
    "return": f"return (last {WINDOW} training episodes)",
    "last_evaluation": "last evaluation",
    "best_evaluation": "best evaluation",
    "success_rate": "success in the best evaluation",
    "steps_to_goal": "steps to the goal there",
    "field_error": "error of the field",
    "least_field_error": "the least there was",
    "r2": "R² of what comes",
    "most_r2": "the most there was",
}


@dataclass(frozen=True)
class SeedsFolder:
    """Where the members are. `run` is the experiment; its seed is a member's affair. A new one is
    kept to this process as long as the object lives."""

    path: Path
    run: Run
    seeds: tuple[int, ...]
    claim: Claim | None = field(default=None, compare=False, repr=False)
    changes: dict[str, Any] = field(default_factory=dict)  # settings that are others since a resume

    def member(self, seed: int) -> Path:
        return self.path / f"seed-{seed}"

    def run_of(self, seed: int) -> Run:
        return replace(self.run, seed=seed)

    @classmethod
    def create(
        cls, target: Target, run: Run, seeds: tuple[int, ...], overwrite: bool = False
    ) -> "SeedsFolder":
        run = replace(run, env=resolve_paths(run.env))
        about = {
            "kind": SEEDS_KIND,
            "seeds": list(seeds),
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": sys.argv,
            "versions": versions(),
            "machine": machine_card(),
        }

        def fill(made: Path) -> None:
            write_settings(made, run)
            replace_file(made / "seeds.json", json.dumps(about, indent=1).encode())

        require_place(target, overwrite)
        path, claim = install(target, fill)
        return cls(path, run, seeds, claim)

    @classmethod
    def open(cls, path: Path) -> "SeedsFolder":
        path = settled(path)
        about = read_json(
            path / "seeds.json",
            SEEDS,
            'put back what was there, such as "seeds": [0, 1], or name a seed\'s own '
            f"folder below {path}",
        )
        return cls(
            path,
            Run.of(read_yaml(path / "config.yaml")),
            tuple(about["seeds"]),
            changes=about.get("changes", {}),
        )

    def ready(self, checkpoint: str) -> tuple[int, ...]:
        """The seeds that can be judged by such a checkpoint, while others have none yet."""
        pattern = "best.safetensors" if checkpoint == "best" else "step-*.safetensors"
        found = tuple(
            seed for seed in self.seeds if any((self.member(seed) / "checkpoints").glob(pattern))
        )
        if not found:
            best, words = (
                checkpoint == "best",
                f"evaluation (eval_every is {self.run.eval_every:,})",
            )
            raise UserError(
                f"No seed of {self.path} has a {'best ' * best}checkpoint yet: it comes with the "
                f"first {words if best else 'steps'}; `tenfold list` shows how far they are."
            )
        return found

    def changed(self, change: dict[str, Any]) -> "SeedsFolder":
        """The same with other settings, which are written down: every member goes on with them, now
        or later."""
        if not change:
            return self
        new = replace(self, run=changed_run(self.run, change), changes=merge(self.changes, change))
        about = read_json(self.path / "seeds.json", SEEDS, "put it back") | {"changes": new.changes}
        try:
            write_settings(self.path, new.run)
            replace_file(self.path / "seeds.json", json.dumps(about, indent=1).encode())
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror or error}.") from None
        return new


def interquartile_mean(values: np.ndarray) -> Any:
    """The mean of what is left without the lowest and the highest quarter (Agarwal et al., 2021),
    over the first axis."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def bootstrap_interval(values: np.ndarray, share: float = 0.95) -> tuple[Any, Any]:
    """Percentile bootstrap of the interquartile mean over members (the first axis); always the same
    resamples."""
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = np.array([interquartile_mean(values[rows]) for rows in drawn])
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return low, high


def together(values: list[float]) -> dict[str, Any]:
    """Several seeds' numbers as one."""
    array = np.array(values, np.float64)
    low, high = bootstrap_interval(array)
    return {
        "seeds": len(values),
        "iqm": float(interquartile_mean(array)),
        "interval": [float(low), float(high)],
        "mean": float(array.mean()),
        "std": float(array.std()),
        "min": float(array.min()),
        "max": float(array.max()),
    }


def rows_of(folder: SeedsFolder) -> list[list[dict[str, Any]]]:
    return [list(read_rows(folder.member(seed) / "metrics.jsonl")) for seed in folder.seeds]


def curves(
    members: list[list[dict[str, Any]]], kind: str, column: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and values [members, T] where every member has a row; members log at the same
    steps."""
    found = [
        {r["step"]: r[column] for r in rows if r["kind"] == kind and column in r}
        for rows in members
    ]
    steps = sorted(set.intersection(*(set(member) for member in found)))
    return np.array(steps), np.array([[member[step] for step in steps] for member in found])


def summarise(folder: SeedsFolder) -> dict[str, Any]:
    """The last numbers of each member and of all; also written to summary.json."""
    members = dict(zip(folder.seeds, map(last_numbers, rows_of(folder)), strict=True))
    found: dict[str, Any] = {"seeds": members}
    for name in FINALS:
        own = [value for member in members.values() if (value := member.get(name)) is not None]
        if len(own) == len(members):
            found[name] = together(own)
    replace_file(folder.path / "summary.json", json.dumps(found, indent=1).encode())
    return found


def last_numbers(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    """What a member came to; of evaluations that tell successes the best is the one its best
    checkpoint is from."""
    trained = [r for r in rows if r["kind"] == "train"]
    step = trained[-1]["step"] if trained else 0
    if fits := fits_of(rows):
        return {"step": step, **identified(fits)}
    judged = [r for r in rows if r["kind"] == "eval"]
    best = max(judged, key=rank, default={})
    found = {
        "step": step,
        "return": trained[-1].get("return") if trained else None,
        "last_evaluation": judged[-1]["mean_return"] if judged else None,
        "best_evaluation": best.get("mean_return"),
    }
    if "success_rate" in best:
        found |= {"success_rate": best["success_rate"], "steps_to_goal": best.get("steps_to_goal")}
    return found


def left_out(seeds: list[int]) -> str:
    """A sentence about seeds that cannot be judged yet."""
    return (
        f"left out, without such a checkpoint yet: seed{'s' * (len(seeds) > 1)} "
        f"{', '.join(map(str, seeds))}"
    )


def told(name: str, value: float | None) -> str:
    """A number of `last_numbers` as it is usually written."""
    return "–" if value is None else f"{value:{FINALS.get(name, ',')}}"


def identified(fits: list[dict[str, Any]]) -> dict[str, Any]:
    """How well a hidden system is known at last: the field's error where the truth is known, else
    R² of what comes."""
    if "field_error" in fits[-1]:
        errors = [row["field_error"] for row in fits]
        return {"field_error": errors[-1], "least_field_error": min(errors)}
    return {
        "r2": float(np.mean(fits[-1]["r2"])),
        "most_r2": max(float(np.mean(row["r2"])) for row in fits),
    }


def write_seeds_report(folder: SeedsFolder) -> Path:
    found, about = summarise(folder), read_json(folder.path / "seeds.json", SEEDS, "put it back")
    members = rows_of(folder)
    picture = as_png(
        returns_figure(
            members,
            f"{folder.run.agent.name} on {folder.run.env}: interquartile mean of "
            f"{len(folder.seeds)} seeds, 95 % interval",
            folder.run.eval_policy,
        )
    )
    replace_file(folder.path / "curve.png", picture)
    title = f"{folder.run.agent.name} on {folder.run.env}, {len(folder.seeds)} seeds"
    columns = [name for name in HEADINGS if name in next(iter(found["seeds"].values()))]
    lines = "".join(
        f"<tr><td><a href='seed-{seed}/report.html'>{seed}</a></td>"
        + "".join(f"<td>{told(name, member.get(name))}</td>" for name in columns)
        + "</tr>"
        for seed, member in found["seeds"].items()
    )
    page = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
{table({HEADINGS[name]: sentence(found[name], form) for name, form in FINALS.items() if name in found})}
<p><img alt="returns over environment steps" src="data:image/png;base64,{in_text(picture)}"></p>
<table><tr><th>seed</th>{"".join(f"<th>{HEADINGS[name]}</th>" for name in columns)}</tr>
{lines}</table>
{components_of(folder.path, members)}
<h2>Settings</h2><pre>{html.escape(yaml.safe_dump(to_mapping(folder.run), sort_keys=False))}</pre>
{table({"changed on resume": json.dumps(folder.changes)} if folder.changes else {})}
<h2>Versions and machine</h2>{table(about["versions"] | about["machine"])}
<h2>Command</h2><pre>{html.escape(json.dumps(about.get("command", "")))}</pre></html>
"""
    replace_file(folder.path / "report.html", page.encode(errors="replace"))
    return folder.path / "report.html"


def sentence(found: dict[str, Any], form: str = ".2f") -> str:
    low, high = found["interval"]
    return (
        f"{found['iqm']:{form}} (interquartile mean of {found['seeds']} seeds, 95 % interval "
        f"{low:{form}} to {high:{form}})"
    )


def returns_figure(members: list[list[dict[str, Any]]], title: str, policy: str) -> Any:
    figure = new_figure(9, 4.5)
    axes = figure.subplots()
    for kind, column, colour, label in (
        ("train", "return", "C0", f"training (mean of {WINDOW} episodes)"),
        ("eval", "mean_return", "C3", f"evaluation ({policy})"),
        ("fit", "field_error", "C3", "error of the field (1: a field of zeros)"),
    ):
        steps, values = curves(members, kind, column)
        if steps.size:
            axes.plot(steps, values.T, color=colour, alpha=0.2, linewidth=0.8)
            axes.plot(steps, interquartile_mean(values), color=colour, label=label)
            axes.fill_between(
                steps, *bootstrap_interval(values), color=colour, alpha=0.2, linewidth=0
            )
    explored = any(row["kind"] == "fit" for row in members[0])
    axes.set(xlabel="environment steps", ylabel="error of the field" if explored else "return")
    entitle(axes, title)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8)
    return figure


def components_of(path: Path, members: list[list[dict[str, Any]]]) -> str:
    """The part of the page that shows rewards by component, where there are such."""
    found = {}
    for name in part_names(members[0]):
        steps, values = curves(members, "train", name)
        if steps.size:
            found[name] = (steps, interquartile_mean(values), *bootstrap_interval(values))
    if not found:
        return ""
    picture = as_png(
        parts_figure(found, f"interquartile mean of {len(members)} seeds, 95 % interval")
    )
    replace_file(path / "components.png", picture)
    return components(picture)


def latest_rows(folder: "SeedsFolder", kind: str) -> dict[int, dict[str, Any]]:
    """Of every seed that has one."""
    rows = {seed: latest_row(folder.member(seed) / "metrics.jsonl", kind) for seed in folder.seeds}
    return {seed: row for seed, row in rows.items() if row}


def latest_row(path: Path, kind: str = "train") -> dict[str, Any]:
    """The last row of this kind in a metrics file, without reading more of it than need be."""
    taken, length = 2**15, 0
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            while True:
                file.seek(max(length - taken, 0))
                for line in reversed(file.read(min(taken, length)).split(b"\n")):
                    row = row_in(line) if b'"%b"' % kind.encode() in line else None
                    if row and row["kind"] == kind:
                        return row
                if taken >= length:
                    return {}
                taken *= 4
    except OSError:
        return {}


def about_run(path: Path) -> str:
    """A run in a few words: what trained on what, how far, and how well at last."""
    try:
        run = RunFolder.open(path)[1]
    except UserError as error:
        return str(error)
    row = latest_row(path / "metrics.jsonl")
    step = row.get("step", 0)
    far = (
        f"finished at {step:,}"
        if step >= run.steps
        else f"at {step:,} of {run.steps:,}, not finished"
    )
    return f"{run.agent.name} on {run.env}, {far}" + (
        f", return {row['return']:.2f}" if "return" in row else ""
    )


def about_seeds(path: Path) -> str:
    """The same of many seeds."""
    folder = SeedsFolder.open(path)
    rows = [latest_row(folder.member(seed) / "metrics.jsonl") for seed in folder.seeds]
    done = sum(row.get("step", 0) >= folder.run.steps for row in rows)
    returns = [row["return"] for row in rows if "return" in row]
    mean = f", mean return {sum(returns) / len(returns):.2f}" if returns else ""
    return (
        f"{folder.run.agent.name} on {folder.run.env}, {done} of {len(rows)} seeds finished at "
        f"{folder.run.steps:,}{mean}"
    )
