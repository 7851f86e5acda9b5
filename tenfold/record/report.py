"""A run on one page: `report.html`, self-contained, and its picture `curve.png`."""

import base64
import html
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tenfold.config import to_mapping
from tenfold.envs.recording import is_recording
from tenfold.record.files import replace_file
from tenfold.record.folder import RunFolder
from tenfold.record.metrics import WINDOW, read_rows
from tenfold.record.portrait import section
from tenfold.settings import Run

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
img{max-width:100%}table{border-collapse:collapse}td,th{padding:.2em 1em .2em 0;text-align:left;vertical-align:top}
pre{background:#f5f5f5;padding:1em;overflow:auto}"""


def write_report(folder: RunFolder, run: Run) -> Path:
    """Reads the metrics and writes the picture and the page."""
    rows = list(read_rows(folder.metrics))
    steps = "gradient steps" if is_recording(run.env) else "environment steps"
    curve = ""
    if run.agent.name != "explorer":  # whose figures are others
        picture = draw(rows, f"{run.agent.name} on {run.env}, seed {run.seed}")
        replace_file(folder.path / "curve.png", picture)
        image = base64.b64encode(picture).decode()
        curve = f'<p><img alt="returns and losses over environment steps" src="data:image/png;base64,{image}"></p>\n'
    page = f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(run.env)}</title><style>{STYLE}</style>
<h1>{html.escape(f"{run.agent.name} on {run.env}, seed {run.seed}")}</h1>
{table(summary(rows, steps))}
{curve}{section(folder.path, rows, steps)}{schedule(folder.path)}{colony(folder.path, rows)}
<h2>Engine</h2>{table(sessions(folder.about))}
<h2>Time</h2>{table(time_shares(rows))}
<h2>Settings</h2><pre>{html.escape(yaml.safe_dump(to_mapping(run), sort_keys=False))}</pre>
<h2>Versions and machine</h2>{table(folder.about.get("versions", {}) | folder.about.get("machine", {}))}
<h2>Command</h2><pre>{html.escape(json.dumps(folder.about.get("command", "")))}</pre></html>
"""
    replace_file(folder.report, page.encode())
    return folder.report


def table(cells: dict[str, Any]) -> str:
    lines = "".join(f"<tr><th>{html.escape(str(k))}</th><td>{html.escape(str(v))}</td></tr>" for k, v in cells.items())
    return f"<table>{lines}</table>"


def summary(rows: list[dict[str, Any]], steps: str) -> dict[str, Any]:
    returns = [r["return"] for r in rows if r["kind"] == "episode"]
    evaluated = [r for r in rows if r["kind"] == "eval"]
    trained = [r for r in rows if r["kind"] == "train"]
    found: dict[str, Any] = {"episodes": f"{len(returns):,}"} if returns else {}
    fits = [r for r in rows if r["kind"] == "fit"]
    if fits:
        names = {"error of the field": "field_error", "evidence bound": "elbo"}
        found |= {name: f"{fits[-1][key]:.3f}" for name, key in names.items() if key in fits[-1]}
        found["R² of observations, 1 to K ahead"] = "  ".join(f"{value:.3f}" for value in fits[-1]["r2"])
        if "arx_r2" in fits[-1]:
            found["R² of ARX on the same data"] = "  ".join(f"{value:.3f}" for value in fits[-1]["arx_r2"])
    if returns:
        found[f"mean return of the last {min(WINDOW, len(returns))} training episodes"] = f"{np.mean(returns[-WINDOW:]):.2f}"
    if evaluated:
        best = max(evaluated, key=lambda r: r.get("merit", r["mean_return"]))
        found["last evaluation (greedy)"] = f"{evaluated[-1]['mean_return']:.2f} ± {evaluated[-1]['std_return']:.2f}"
        found["best evaluation (greedy)"] = f"{best['mean_return']:.2f} at step {best['step']:,}"
        if "success_rate" in best:
            found["best evaluation, successes"] = f"{best['success_rate']:.1%}, {best['mean_length']:.1f} steps an episode"
    if trained:
        found |= {steps: f"{trained[-1]['step']:,}", "gradient updates": f"{trained[-1]['updates']:,}",
                  "steps per second": f"{trained[-1]['timing']['steps_per_second']:,.0f}"}
    return found


def schedule(path: Path) -> str:
    """What `tenfold eval` found of a job shop, once it has played it: the makespans and the best schedule's chart."""
    try:
        found, chart = json.loads((path / "makespans.json").read_text()), (path / "gantt.png").read_bytes()
    except (OSError, ValueError):
        return ""
    best = f"best of {found['samples']}"
    cells = {f"makespan, {best} samples": found["best_makespan"], "makespan, greedy": found["greedy_makespan"],
             "optimum": found["optimum"] or "unknown", f"untrained, {best} samples": found["untrained_best_makespan"]}
    rules = {f"rule {rule}{f', {best}' if rule == 'random' else ''}": makespan for rule, makespan in found["rules"].items()}
    image = base64.b64encode(chart).decode()
    return f"""<h2>Schedule</h2>{table(cells | rules)}
<p><img alt="the best schedule: machines over time" src="data:image/png;base64,{image}"></p>
"""


def colony(path: Path, rows: list[dict[str, Any]]) -> str:
    """Of a policy whose rewards come in components: their course and that of its numbers; and what `tenfold eval` drew."""
    trained = [row for row in rows if row["kind"] == "train" and any(name.startswith("reward/") for name in row)]
    found = ""
    if trained:
        picture = draw_parts(trained)
        replace_file(path / "components.png", picture)
        image = base64.b64encode(picture).decode()
        found = f"""<h2>Components</h2>
<p><img alt="reward components and the action's numbers over training" src="data:image/png;base64,{image}"></p>
"""
    for drawn in sorted(path.glob("eval/*/paths.png")):
        try:
            image, said = base64.b64encode(drawn.read_bytes()).decode(), json.loads((drawn.parent / "episodes.json").read_text())
            cells = {"success": f"{said['success_rate']:.1%}", "steps to the goal": said["steps_to_goal"],
                     **{f"{name}, success": f"{own['success_rate']:.1%}" for name, own in said["yardsticks"].items()}}
        except (OSError, ValueError, KeyError):
            continue
        found += f"""<h2>Evaluation: {html.escape(drawn.parent.name)}</h2>{table(cells)}
<p><img alt="the centroid's way through several episodes" src="data:image/png;base64,{image}"></p>
"""
    return found


def draw_parts(rows: list[dict[str, Any]]) -> bytes:
    """Means over training with bands of one deviation, a panel for each component and each number."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    names = [name for name in rows[-1] if name.startswith(("reward/", "action/")) and not name.endswith("/std")]
    figure = Figure(figsize=(10, 1.7 * -(-len(names) // 3)), layout="constrained")
    FigureCanvasAgg(figure)
    step = np.array([row["step"] for row in rows])
    for place, name in enumerate(names):
        axes = figure.add_subplot(-(-len(names) // 3), 3, place + 1)
        mean, spread = (np.array([row.get(key, np.nan) for row in rows], float) for key in (name, f"{name}/std"))
        colour = "C0" if name.startswith("reward/") else "C2"
        axes.fill_between(step, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
        axes.plot(step, mean, color=colour)
        axes.set_title(name.replace("/", ": "), fontsize=8)
        axes.tick_params(labelsize=7)
    return png(figure)


def png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def sessions(about: dict[str, Any]) -> dict[str, str]:
    """How it ran from its start, and from every resume on: the engine and why, where the actors were, what was verified."""
    return {f"from step {session['from_step']:,}": "; ".join(
        filter(None, (session["engine"], f"on {session['device']}", session["where"], session.get("verify", ""))))
        for session in about.get("sessions", [])}


def time_shares(rows: list[dict[str, Any]]) -> dict[str, str]:
    shares = next((r["timing"]["shares"] for r in reversed(rows) if r["kind"] == "train"), {})
    return {stage: f"{share:.1%}" for stage, share in sorted(shares.items(), key=lambda s: -s[1])}


def draw(rows: list[dict[str, Any]], title: str) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # here: drawing is the only thing that needs matplotlib
    from matplotlib.figure import Figure
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    episodes = [(r["step"], r["return"]) for r in rows if r["kind"] == "episode"]
    if episodes:
        step, returned = np.array(episodes).T
        above.plot(step, returned, ".", color="0.8", markersize=3, label="training episode")
        total = np.cumsum(np.concatenate([[0.0], returned]))
        first = np.maximum(np.arange(1, len(returned) + 1) - WINDOW, 0)
        mean = (total[1:] - total[first]) / (np.arange(1, len(returned) + 1) - first)
        above.plot(step, mean, color="C0", label=f"mean of {WINDOW} training episodes")
    evaluated = [(r["step"], r["mean_return"], r["std_return"]) for r in rows if r["kind"] == "eval"]
    if evaluated:
        step, mean, deviation = np.array(evaluated).T
        above.errorbar(step, mean, deviation, color="C3", marker="o", capsize=3, label="evaluation (greedy, ± one deviation)")
    above.set(ylabel="return", title=title)
    if above.get_legend_handles_labels()[0]:
        above.legend(loc="best", fontsize=8)
    losses = [(r["step"], r["loss"], r["q"]) for r in rows if r["kind"] == "train" and "loss" in r]
    if losses:
        step, loss, q = np.array(losses).T
        below.plot(step, np.maximum(loss, 1e-12), color="C1")
        below.set(yscale="log")
        other = below.twinx()
        other.plot(step, q, color="C2")
        other.set_ylabel("mean Q of actions taken", color="C2")
    below.set_xlabel("environment steps")
    below.set_ylabel("loss", color="C1")
    return png(figure)
