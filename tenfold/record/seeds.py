"""Many seeds of one experiment: a folder of ordinary runs, `seed-0`, `seed-1`, …, and what they say together."""

import base64
import html
import io
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tenfold.config import read_yaml, to_mapping
from tenfold.envs.vector import anchored
from tenfold.errors import UserError
from tenfold.record.claim import Claim, claimed_below
from tenfold.record.files import replace_file
from tenfold.record.folder import SEEDS_KIND, machine_card, require_place, versions, write_settings
from tenfold.record.metrics import read_rows
from tenfold.record.report import STYLE, table
from tenfold.settings import Run

RESAMPLES = 2000


@dataclass(frozen=True)
class SeedsFolder:
    """Where the members are. `run` is the experiment; its seed is a member's affair. A new one is kept to this process as long
    as the object lives."""

    path: Path
    run: Run
    seeds: tuple[int, ...]
    claim: Claim | None = field(default=None, compare=False, repr=False)

    def member(self, seed: int) -> Path:
        return self.path / f"seed-{seed}"

    def run_of(self, seed: int) -> Run:
        return replace(self.run, seed=seed)

    @classmethod
    def create(cls, path: Path, run: Run, seeds: tuple[int, ...], overwrite: bool = False) -> "SeedsFolder":
        run = replace(run, env=anchored(run.env))
        about = {"kind": SEEDS_KIND, "seeds": list(seeds), "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                 "command": sys.argv, "versions": versions(), "machine": machine_card()}
        try:
            require_place(path, overwrite)
            with claimed_below(path):
                if path.exists():
                    shutil.rmtree(path)
                path.mkdir(parents=True)
            write_settings(path, run)
            replace_file(path / "seeds.json", json.dumps(about, indent=1).encode())
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}.") from None
        return cls(path, run, seeds, Claim(path))

    @classmethod
    def open(cls, path: Path) -> "SeedsFolder":
        seeds = json.loads((path / "seeds.json").read_text()).get("seeds")
        if not (isinstance(seeds, list) and seeds and all(type(seed) is int for seed in seeds)):
            raise UserError(f"{path / 'seeds.json'} does not say which seeds there are: write them back, such as "
                            f"\"seeds\": [0, 1], or name a seed's own folder below {path}.")
        return cls(path, Run.of(read_yaml(path / "config.yaml")), tuple(seeds))


def interquartile_mean(values: np.ndarray) -> Any:
    """The mean of what is left without the lowest and the highest quarter (Agarwal et al., 2021), over the first axis."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut:len(values) - cut].mean(axis=0)


def bootstrap_interval(values: np.ndarray, share: float = 0.95) -> tuple[Any, Any]:
    """Percentile bootstrap of the interquartile mean over members (the first axis); always the same resamples."""
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = np.array([interquartile_mean(values[rows]) for rows in drawn])
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return low, high


def together(values: list[float]) -> dict[str, Any]:
    """Several seeds' numbers as one."""
    array = np.array(values, np.float64)
    low, high = bootstrap_interval(array)
    return {"seeds": len(values), "iqm": float(interquartile_mean(array)), "interval": [float(low), float(high)],
            "mean": float(array.mean()), "std": float(array.std()), "min": float(array.min()), "max": float(array.max())}


def curves(folder: SeedsFolder, kind: str, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and values [members, T] where every member has a row; members log at the same steps."""
    found = []
    for seed in folder.seeds:
        rows = read_rows(folder.member(seed) / "metrics.jsonl")
        found.append({r["step"]: r[field] for r in rows if r["kind"] == kind and field in r})
    steps = sorted(set.intersection(*(set(member) for member in found)))
    return np.array(steps), np.array([[member[step] for step in steps] for member in found])


def summarise(folder: SeedsFolder) -> dict[str, Any]:
    """The last numbers of each member and of all; also written to summary.json."""
    members: dict[int, dict[str, Any]] = {}
    finals = {}
    for seed in folder.seeds:
        rows = list(read_rows(folder.member(seed) / "metrics.jsonl"))
        trained = [r for r in rows if r["kind"] == "train"]
        evaluated = [r["mean_return"] for r in rows if r["kind"] == "eval"]
        members[seed] = {"step": trained[-1]["step"] if trained else 0}
        if folder.run.agent.name == "explorer":
            members[seed] |= identified([r for r in rows if r["kind"] == "fit"])
            continue
        members[seed] |= {"return": trained[-1].get("return") if trained else None,
                          "last_evaluation": evaluated[-1] if evaluated else None,
                          "best_evaluation": max(evaluated, default=None)}
    for name in [name for name in next(iter(members.values())) if name != "step"]:
        values: list[Any] = [m.get(name) for m in members.values()]
        if all(v is not None for v in values):
            finals[name] = together(values)
    found = {"seeds": members, **finals}
    replace_file(folder.path / "summary.json", json.dumps(found, indent=1).encode())
    return found


def identified(fits: list[dict[str, Any]]) -> dict[str, Any]:
    """How well a hidden system is known at last: the field's error where the truth is known, else R² of what comes."""
    if not fits or "field_error" in fits[-1]:
        errors = [row["field_error"] for row in fits]
        return {"field_error": errors[-1] if errors else None, "least_field_error": min(errors, default=None)}
    return {"r2": float(np.mean(fits[-1]["r2"])), "most_r2": max(float(np.mean(row["r2"])) for row in fits)}


def write_seeds_report(folder: SeedsFolder) -> Path:
    found, about = summarise(folder), json.loads((folder.path / "seeds.json").read_text())
    picture = draw(folder)
    replace_file(folder.path / "curve.png", picture)
    image, title = base64.b64encode(picture).decode(), f"{folder.run.agent.name} on {folder.run.env}, {len(folder.seeds)} seeds"
    lines = "".join(f"<tr><td><a href='seed-{seed}/report.html'>{seed}</a></td>"
                    + "".join(f"<td>{'–' if v is None else f'{v:,}' if name == 'step' else f'{v:,.2f}'}</td>"
                              for name, v in member.items()) + "</tr>"
                    for seed, member in found["seeds"].items())
    words = {"return": "return (last 100 training episodes)"}
    heads = "".join(f"<th>{words.get(name, name.replace('_', ' '))}</th>" for name in next(iter(found["seeds"].values())))
    page = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
{table({name: sentence(found[name]) for name in found if name != "seeds"})}
<p><img alt="returns over environment steps" src="data:image/png;base64,{image}"></p>
<table><tr><th>seed</th>{heads}</tr>
{lines}</table>
<h2>Settings</h2><pre>{html.escape(yaml.safe_dump(to_mapping(folder.run), sort_keys=False))}</pre>
<h2>Versions and machine</h2>{table(about["versions"] | about["machine"])}
<h2>Command</h2><pre>{html.escape(json.dumps(about.get("command", "")))}</pre></html>
"""
    replace_file(folder.path / "report.html", page.encode())
    return folder.path / "report.html"


def sentence(found: dict[str, Any]) -> str:
    low, high = found["interval"]
    return f"{found['iqm']:.2f} (interquartile mean of {found['seeds']} seeds, 95 % interval {low:.2f} to {high:.2f})"


def draw(folder: SeedsFolder) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here: drawing is the only thing that needs matplotlib
    from matplotlib.figure import Figure
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for kind, column, colour, label in (("train", "return", "C0", "training (mean of 100 episodes)"),
                                        ("eval", "mean_return", "C3", "evaluation (greedy)"),
                                        ("fit", "field_error", "C3", "error of the field (1: a field of zeros)")):
        steps, values = curves(folder, kind, column)
        if steps.size:
            axes.plot(steps, values.T, color=colour, alpha=0.2, linewidth=0.8)
            axes.plot(steps, interquartile_mean(values), color=colour, label=label)
            axes.fill_between(steps, *bootstrap_interval(values), color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="environment steps", ylabel="error of the field" if folder.run.agent.name == "explorer" else "return",
             title=f"{folder.run.agent.name} on {folder.run.env}: interquartile mean of {len(folder.seeds)} seeds, 95 % interval")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def latest_row(path: Path, kind: str = "train") -> dict[str, Any]:
    """The last row of a metrics file, without reading all of it."""
    try:
        with path.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - 2**15, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        if f'"kind": "{kind}"' in line:
            try:
                return json.loads(line)
            except ValueError:
                continue
    return {}
