"""A run on one page: `report.html`, self-contained, and its picture `curve.png`."""

import base64
import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tenfold.config.changes import told_changes
from tenfold.config.mappings import to_mapping
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.domains.dynamics.portrait_section import section
from tenfold.domains.dynamics.recording import is_recording
from tenfold.domains.dynamics.shortfall import shortfall
from tenfold.runs.figures import as_png
from tenfold.runs.files import replace_file
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import WINDOW, fits_of, rank, read_rows
from tenfold.runs.plots import course_of, part_names, parts_figure, returns_figure
from tenfold.runs.schema import EPISODES, MAKESPANS, read_json

AGAIN = "`tenfold eval` writes it anew"
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
img{max-width:100%}table{border-collapse:collapse}td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}
pre{background:#f5f5f5;padding:1em;overflow:auto}"""


def write_report(folder: RunFolder, run: Run) -> Path:
    """Reads the metrics and writes the picture and the page."""
    rows = list(read_rows(folder.metrics))
    steps = "gradient steps" if is_recording(run.env) else "environment steps"
    curve = ""
    if run.agent.name != "explorer":  # whose figures are others
        picture = as_png(
            returns_figure(rows, f"{run.agent.name} on {run.env}, seed {run.seed}", run.eval_policy)
        )
        replace_file(folder.path / "curve.png", picture)
        curve = f'<p><img alt="returns and losses over environment steps" src="data:image/png;base64,{in_text(picture)}"></p>\n'
    page = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(run.env)}</title><style>{STYLE}</style>
<h1>{html.escape(f"{run.agent.name} on {run.env}, seed {run.seed}")}</h1>
{table(summary(rows, run.eval_policy, steps) | damaged(folder.metrics, len(rows)))}
{curve}{section(folder.path, rows, steps)}{schedule(folder.path)}{colony(folder.path, rows)}
<h2>Engine</h2>{table(sessions(folder.about))}
<h2>Time</h2>{table(time_shares(rows))}
<h2>Settings</h2><pre>{html.escape(yaml.safe_dump(to_mapping(run), sort_keys=False))}</pre>
<h2>Versions and machine</h2>{table(folder.about.get("versions", {}) | folder.about.get("machine", {}))}
<h2>Command</h2><pre>{html.escape(json.dumps(folder.about.get("command", "")))}</pre></html>
"""
    replace_file(folder.report, page.encode(errors="replace"))
    return folder.report


def table(cells: dict[str, Any]) -> str:
    lines = "".join(
        f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>"
        for k, v in cells.items()
    )
    return f"<table>{lines}</table>"


def damaged(metrics: Path, rows: int) -> dict[str, str]:
    """A line about lines of the metrics that hold no row, whole ones only: the last may just be
    being written."""
    count = metrics.read_bytes().count(b"\n") - rows if metrics.is_file() else 0
    return (
        {"damaged": f"{count:,} lines of {metrics.name} hold no row and were passed over"}
        if count > 0
        else {}
    )


def summary(rows: list[dict[str, Any]], policy: str, steps: str) -> dict[str, Any]:
    returns = [r["return"] for r in rows if r["kind"] == "episode"]
    evaluated = [r for r in rows if r["kind"] == "eval"]
    trained = [r for r in rows if r["kind"] == "train"]
    found: dict[str, Any] = {"episodes": f"{len(returns):,}"} if returns else {}
    if fits := fits_of(rows):
        names = {"error of the field": "field_error", "evidence bound": "elbo"}
        found |= {name: f"{fits[-1][key]:.3f}" for name, key in names.items() if key in fits[-1]}
        found["R² of observations, 1 to K ahead"] = "  ".join(
            f"{value:.3f}" for value in fits[-1]["r2"]
        )
        if "arx_r2" in fits[-1]:
            found["R² of ARX on the same data"] = "  ".join(
                f"{value:.3f}" for value in fits[-1]["arx_r2"]
            )
        if words := shortfall(fits[-1]):
            found["warning"] = words
    if returns:
        found[f"mean return of the last {min(WINDOW, len(returns))} training episodes"] = (
            f"{np.mean(returns[-WINDOW:]):.2f}"
        )
    if evaluated:
        best = max(evaluated, key=rank)
        found[f"last evaluation ({policy})"] = (
            f"{evaluated[-1]['mean_return']:.2f} ± {evaluated[-1]['std_return']:.2f}"
        )
        found[f"best evaluation ({policy})"] = f"{best['mean_return']:.2f} at step {best['step']:,}"
        if "success_rate" in best and "mean_length" in best:
            found["best evaluation, successes"] = (
                f"{best['success_rate']:.1%}, {best['mean_length']:.1f} steps an episode"
            )
    if trained:
        found |= {
            steps: f"{trained[-1]['step']:,}",
            "gradient updates": f"{trained[-1]['updates']:,}",
            "steps per second": f"{trained[-1]['timing'].get('steps_per_second', 0):,.0f}",
        }
    return found


def schedule(path: Path) -> str:
    """What `tenfold eval` found of a job shop, once it has played it: the makespans and the best
    schedule's chart."""
    if not (path / "makespans.json").exists() or not (path / "gantt.png").is_file():
        return ""
    try:
        found, chart = (
            read_json(path / "makespans.json", MAKESPANS, AGAIN),
            (path / "gantt.png").read_bytes(),
        )
    except UserError as error:
        return passed_over(error)
    best = f"best of {found['samples']}"
    cells = {
        f"makespan, {best} samples": found["best_makespan"],
        "makespan, greedy": found["greedy_makespan"],
        "optimum": found["optimum"] or "unknown",
        f"untrained, {best} samples": found["untrained_best_makespan"],
    }
    rules = {
        f"rule {rule}{f', {best}' if rule == 'random' else ''}": makespan
        for rule, makespan in found["rules"].items()
    }
    return f"""<h2>Schedule</h2>{table(cells | rules)}
<p><img alt="the best schedule: machines over time" src="data:image/png;base64,{in_text(chart)}"></p>
"""


def colony(path: Path, rows: list[dict[str, Any]]) -> str:
    """Of a policy whose rewards come in components: their course and that of its numbers; and what
    `tenfold eval` drew."""
    names, found = part_names(rows), ""
    if names:
        picture = as_png(
            parts_figure({name: course_of(rows, name) for name in names}, "band: one deviation")
        )
        replace_file(path / "components.png", picture)
        found = components(picture)
    return found + "".join(evaluation(drawn) for drawn in sorted(path.glob("eval/*/paths.png")))


def components(picture: bytes) -> str:
    return f"""<h2>Components</h2>
<p><img alt="reward components and the action's numbers over training" src="data:image/png;base64,{in_text(picture)}"></p>
"""


def evaluation(drawn: Path) -> str:
    """One trial of a colony; its title says of which checkpoint, so that nobody takes an early one
    for the run's result."""
    try:
        image, said = (
            in_text(drawn.read_bytes()),
            read_json(drawn.parent / "episodes.json", EPISODES, AGAIN),
        )
    except UserError as error:
        return passed_over(error)
    title = (
        f"Evaluation: {said['where']}, checkpoint of step "
        f"{said['step']:,}{' (untrained)' if not said['step'] else ''}, seed {said['seed']}, "
        f"{said['episodes']} episodes"
    )
    cells = {"trained" if said["step"] else "untrained (step 0)": told(said)}
    cells |= {name: told(own) for name, own in said["yardsticks"].items()}
    return f"""<h2>{html.escape(title)}</h2>{table({"policy": said["policy"], "rounding of deletions": said["rounding"]} | cells)}
<p><img alt="the centroid's way through several episodes" src="data:image/png;base64,{image}"></p>
"""


def passed_over(error: UserError) -> str:
    """In place of what cannot be shown."""
    return f"<p>{html.escape(str(error))}</p>\n"


def told(own: dict[str, Any]) -> str:
    """How many episodes reached the goal, and in how many steps."""
    steps = own["steps_to_goal"]
    return f"success {own['success_rate']:.1%} of {own['episodes']} episodes" + (
        "" if steps is None else f", {steps:.1f} steps to the goal"
    )


def in_text(picture: bytes) -> str:
    return base64.b64encode(picture).decode()


def sessions(about: dict[str, Any]) -> dict[str, str]:
    """How it ran from its start, and from every resume on: the engine and why, where the actors
    were, what was verified, which settings changed."""
    return {
        f"from step {session['from_step']:,}": "; ".join(
            filter(
                None,
                (
                    session["engine"],
                    f"on {session['device']}",
                    session["where"],
                    session.get("verify", ""),
                    told_changes(session.get("changed", {})),
                ),
            )
        )
        for session in about.get("sessions", [])
    }


def time_shares(rows: list[dict[str, Any]]) -> dict[str, str]:
    shares = next(
        (r["timing"].get("shares", {}) for r in reversed(rows) if r["kind"] == "train"), {}
    )
    return {stage: f"{share:.1%}" for stage, share in sorted(shares.items(), key=lambda s: -s[1])}
