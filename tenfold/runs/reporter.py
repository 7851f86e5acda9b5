"""Describes the runs of an algorithm: while they train, at their end, as one of many seeds, and on
their page (`report`); also how runs ran, and the charts of a sweep's trials.

`Reporter` is the usual one, of agents that play episodes. An algorithm whose results are others has
one of its own (`AlgorithmSpec.make_reporter`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.changes import changes_in_words
from tenfold.config.notation import show
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.registry import algorithm, form_of
from tenfold.runs.charts import THIN, Chart, Curve, Experiment, Line
from tenfold.runs.file_schema import RUN, Schema, read_json
from tenfold.runs.metrics import WINDOW, latest_row, rank
from tenfold.runs.page import Section, table
from tenfold.runs.statistics import sentence

NAMED = 12  # seeds that are named one by one
Row = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """A result: its heading in a table, and its format."""

    heading: str
    form: str = ","

    def text(self, value: float | None) -> str:
        return "–" if value is None else f"{value:{self.form}}"


class Reporter:
    """Rows are those of a run's metrics without episodes (of a long run a selection), `path` is the
    run's folder."""

    # kinds of rows that the algorithm adds to the metrics; all of them are evaluations, with a
    # `score` that the best checkpoint has most of
    rows: dict[str, Schema] = {}
    # what `last_numbers` finds; all but the step are also given for all seeds together
    numbers = {
        "step": Number("step"),
        "return": Number(f"return (last {WINDOW} training episodes)", ",.2f"),
        "last_evaluation": Number("last evaluation", ",.2f"),
        "best_evaluation": Number("best evaluation", ",.2f"),
        "success_rate": Number("success in the best evaluation", ".1%"),
        "steps_to_goal": Number("steps to the goal there", ".1f"),
    }
    course = "return"  # what the curves show

    # while it trains

    def now(self, latest: Row) -> dict[str, str]:
        """Numbers for the display, from the latest rows of all kinds, besides the training
        returns."""
        return {"evaluated": f"{latest['mean_return']:.1f}"} if "mean_return" in latest else {}

    def progress(self, paths: Sequence[Path]) -> dict[str, str]:
        """The latest number of every run, by label."""
        rows = [latest_row(path / "metrics.jsonl") for path in paths]
        returns = [f"{row['return']:.0f}" if "return" in row else "–" for row in rows]
        return {"returns": " ".join(returns)}

    # when it has ended

    def warning(self, path: Path) -> str:
        """An important warning about the result."""
        return ""

    # on its page

    def counted(self, run: Run) -> str:
        return "environment steps"

    def summary(self, rows: list[Row], run: Run) -> dict[str, Any]:
        """The table at the top."""
        return returns_summary(rows, run.eval_policy) | updates_summary(rows, self.counted(run))

    def sections(self, path: Path, rows: list[Row], run: Run) -> list[Section]:
        """Sections that only this algorithm has."""
        return []

    def curves(self, run: Run) -> tuple[Curve, ...]:
        return (
            Curve("train", "return", "C0", f"training (mean of {WINDOW} episodes)"),
            Curve("eval", "mean_return", "C3", f"evaluation ({run.eval_policy})"),
        )

    # as one of many seeds

    def last_numbers(self, rows: list[Row]) -> dict[str, float | None]:
        """The final numbers of a run; `best` is the evaluation of its best checkpoint."""
        trained = [row for row in rows if row["kind"] == "train"]
        evaluations = [row for row in rows if row["kind"] == "eval"]
        best = max(evaluations, key=rank, default={})
        numbers = {
            "step": trained[-1]["step"] if trained else 0,
            "return": trained[-1].get("return") if trained else None,
            "last_evaluation": evaluations[-1]["mean_return"] if evaluations else None,
            "best_evaluation": best.get("mean_return"),
        }
        if "success_rate" in best:
            names = ("success_rate", "steps_to_goal")
            numbers |= {name: best.get(name) for name in names}
        return numbers


USUAL = Reporter()


def reporter_of(run: Run) -> Reporter:
    """The reporter of a run's algorithm."""
    return algorithm(run.agent.name).make_reporter() or USUAL


def returns_summary(rows: list[Row], policy: str) -> dict[str, str]:
    """Returns of training episodes and of evaluations."""
    last = next((row for row in reversed(rows) if row["kind"] == "train"), {})
    evaluated = [row for row in rows if row["kind"] == "eval"]
    cells = {}
    if last.get("episodes") and "return" in last:
        episodes = int(last["episodes"])
        cells["episodes"] = f"{episodes:,}"
        cells[f"mean return of the last {min(WINDOW, episodes)} training episodes"] = (
            f"{last['return']:.2f}"
        )
    if evaluated:
        final, best = evaluated[-1], max(evaluated, key=rank)
        cells[f"last evaluation ({policy})"] = (
            f"{final['mean_return']:.2f} ± {final['std_return']:.2f}"
        )
        cells[f"best evaluation ({policy})"] = f"{best['mean_return']:.2f} at step {best['step']:,}"
        if "success_rate" in best and "mean_length" in best:
            cells["best evaluation, successes"] = (
                f"{best['success_rate']:.1%}, {best['mean_length']:.1f} steps an episode"
            )
    return cells


def updates_summary(rows: list[Row], steps: str) -> dict[str, str]:
    """Progress and speed; `steps` is the label of the step count."""
    last = next((row for row in reversed(rows) if row["kind"] == "train"), None)
    if last is None:
        return {}
    return {
        steps: f"{last['step']:,}",
        "gradient updates": f"{last['updates']:,}",
        "steps per second": f"{last['timing'].get('steps_per_second', 0):,.0f}",
    }


# of runs that were made from a file of another library


def source_measures(about: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, float]:
    """That library's measures of a run or of several seeds, by name; `about` is the record of their
    folder. Empty for other runs."""
    source = about.get("source", {})
    form = form_of(source)
    return form.results(source, paths) if form else {}


def measure_texts(measures: Mapping[str, float]) -> dict[str, str]:
    return {name.replace("_", " "): f"{value:,.4g}" for name, value in measures.items()}


def measure_lines(measures: Mapping[str, float]) -> list[str]:
    return [f"  {name:20} {text}" for name, text in measure_texts(measures).items()]


def measures_section(about: Mapping[str, Any], measures: Mapping[str, float]) -> list[Section]:
    form = form_of(about.get("source", {}))
    return [Section(form.title, table(measure_texts(measures)))] if form and measures else []


# how runs ran


def sessions(about: Mapping[str, Any]) -> dict[str, str]:
    """How the run ran in each session: engine, device, actors, verification, changed settings."""
    lines = {}
    for session in about.get("sessions", []):
        how = (
            session["engine"],
            f"on {session['device']}",
            session["where"],
            "" if session.get("exact_resume", True) else "not exact",
            session.get("verify", ""),
            f"failed: {session['failed']}" if "failed" in session else "",
            changes_in_words(session.get("changed", {})),
            *session.get("notes", []),
        )
        lines[f"from step {session['from_step']:,}"] = "; ".join(filter(None, how))
    return lines


def engines(group: Experiment) -> list[str]:
    """How the runs of a group ran; identical texts are merged."""
    if len(group.digests) == 1:
        return [f"{name}: {how}" for name, how in sessions(group.about).items()]
    return [f"{seeds}: {how}" for seeds, how in engines_of_seeds(group).items()]


def engines_of_seeds(group: Experiment) -> dict[str, str]:
    seeds: dict[str, list[str]] = {}
    for name, digest in group.digests.items():
        try:
            about = read_json(digest.path / "run.json", RUN, "put it back")
        except UserError:  # it has not begun
            continue
        text = "; ".join(f"{start}: {how}" for start, how in sessions(about).items())
        seeds.setdefault(text, []).append(name.removeprefix("seed "))
    return {seed_list(numbers): text for text, numbers in seeds.items() if text}


def seed_list(seeds: Sequence[str]) -> str:
    many = f"{seeds[0]} to {seeds[-1]}, {len(seeds)} in all"
    return f"seed{'s' * (len(seeds) > 1)} " + (", ".join(seeds) if len(seeds) <= NAMED else many)


# the trials of a sweep


def order_of(row: Row) -> tuple[float, float]:
    """The sort key of trials, as of checkpoints: success rate, then score; the best is the
    greatest."""
    return row.get("success") or 0.0, row["value"]


def score_text(trial: Row) -> str:
    if trial["value"] is None:
        return "–"
    success = f"success {trial['success']:.1%}, " if trial.get("success") is not None else ""
    return f"{success}{trial['value']:.2f}"


def value_text(value: Any) -> str:
    """A parameter's value as text."""
    return f"{value:.4g}" if isinstance(value, float) else show(value)


def params_text(params: Row) -> str:
    return ", ".join(f"{name} {value_text(value)}" for name, value in params.items())


def held_out_text(confirmed: Row) -> str:
    """The summary of held-out seeds as text."""
    texts = [f"success {sentence(confirmed['success'], '.1%')}"] if "success" in confirmed else []
    texts += [sentence(confirmed)] if "iqm" in confirmed else []
    failed = confirmed.get("failed", {})
    return "; ".join([*texts, *(f"seed {seed} failed: {why}" for seed, why in failed.items())])


def tells_success(trials: Sequence[Row]) -> bool:
    return any("success" in trial for trial in trials)


def trial_curves(
    trials: Sequence[Row], winner: int, column: str = "values", label: str = "evaluation"
) -> Chart:
    """Each trial's interquartile mean over training, the winner's on top."""
    suffixes = {"pruned": ", pruned", "fail": ", failed"}
    lines, colours = [], trial_colours(trials)
    for trial in sorted(trials, key=lambda trial: trial["number"] == winner):
        if curve := trial.get(column):
            number, won = trial["number"], trial["number"] == winner
            style = "dots" if won else "" if trial["state"] == "complete" else "dash"
            suffix = ", the winner" if won else suffixes.get(trial["state"], "")
            steps = [int(step) for step in curve]
            name = f"trial {number}{suffix}"
            lines.append(Line(name, steps, [*curve.values()], None, colours[number], style))
    return Chart("interquartile mean over a trial's seeds", lines, y=label)


def trial_colours(trials: Sequence[Row]) -> dict[int, str]:
    """Colours by trial number: blue for the worst to red for the best, grey without a value. With
    successes, by rank."""
    valued = [trial for trial in trials if trial["value"] is not None]
    ranks = sorted({order_of(trial) for trial in valued})
    by_rank = tells_success(trials)
    sizes = [float(ranks.index(order_of(t))) if by_rank else t["value"] for t in valued]
    low, span = min(sizes, default=0.0), np.ptp(sizes or [0.0]) or 1.0
    hues = {
        trial["number"]: f"hsl({220 - 220 * (size - low) / span:.0f} 75% 50%)"
        for trial, size in zip(valued, sizes, strict=True)
    }
    return {trial["number"]: hues.get(trial["number"], "hsl(0 0% 55%)") for trial in trials}


def parallel_coordinates(trials: Sequence[Row], logarithmic: set[str]) -> Chart:
    """A line for each trial that has a value, through its parameters to the value; parameters in
    `logarithmic` have a log scale."""
    trials = sorted((trial for trial in trials if trial["value"] is not None), key=order_of)
    params = [*trials[-1]["params"]] if trials else []
    axes = {
        name: parallel_axis([trial["params"][name] for trial in trials], name in logarithmic)
        for name in params
    }
    if tells_success(trials):
        axes["success"] = parallel_axis([trial.get("success", 0.0) for trial in trials])
    axes["evaluation"] = parallel_axis([trial["value"] for trial in trials])
    colours = trial_colours(trials)
    lines = []
    for index, trial in enumerate(trials):
        name = f"trial {trial['number']}: {score_text(trial)}, {params_text(trial['params'])}"
        heights = [heights[index] for heights, _ in axes.values()]
        colour = colours[trial["number"]]
        lines.append(Line(name, range(len(axes)), heights, None, colour, THIN))
    ticks = [
        (x, height, label) for x, (_, marks) in enumerate(axes.values()) for height, label in marks
    ]
    return Chart("", lines, "", ticks=list(axes), notes=ticks, bounds=(-0.05, 1.05))


def parallel_axis(
    values: list[Any], log: bool = False
) -> tuple[list[float], list[tuple[float, str]]]:
    """Heights from 0 to 1, and the axis' labels: numbers on a linear or, with `log`, a logarithmic
    scale; few values, and words, at equal distances."""
    if not values:
        return [], []
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not numbers or len(set(values)) <= max(1, len(values) // 4):
        kinds = sorted(set(values), key=None if numbers else str)
        heights = dict(zip(kinds, np.linspace(0, 1, len(kinds)).tolist(), strict=True))
        return [heights[v] for v in values], [(h, value_text(kind)) for kind, h in heights.items()]
    array = np.array(values, float)
    log = log and bool((array > 0).all())
    scaled = np.log(array) if log else array
    low, span = scaled.min(), np.ptp(scaled) or 1.0
    marks = np.linspace(low, scaled.max(), 5)
    labels = [f"{np.exp(mark) if log else mark:.3g}" for mark in marks]
    return ((scaled - low) / span).tolist(), list(zip((marks - low) / span, labels, strict=True))
