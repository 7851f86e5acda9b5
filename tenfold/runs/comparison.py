"""Compares several experiments on one page: scores with their uncertainty, sample efficiency, and
the settings in which they differ. The statistics are those of Agarwal et al. (2021)."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.notation import dotted, show
from tenfold.config.schema import to_mapping
from tenfold.core.errors import UserError
from tenfold.runs.charts import Chart, Experiment, Line, course_chart, shared_curve, steps_to
from tenfold.runs.digest import Digest
from tenfold.runs.metrics import WINDOW, outcome
from tenfold.runs.page import Link, Section, chart, grid, intervals, paragraph, table
from tenfold.runs.report import (
    damaged,
    training_sections,
    write,
)
from tenfold.runs.reporter import Number, engines, reporter_of
from tenfold.runs.statistics import (
    LEAST,
    LEAST_MEDIAN,
    aggregates,
    improvement,
    interquartile_mean,
    interval_of,
    profile,
    thresholds_over,
)

MOST = 24  # experiments on a page
PAIRED = 8  # experiments of which every two are compared
REACHED = (0.5, 0.9)  # shares of the way from the worst start to the best end
NOT_COMPARED = {"seed"}  # settings
ALIKE = 0.99  # of the furthest run's steps: not as far is another end
# what runs are compared by; of successes where their environment tells of some
MEASURES = {"success": Number("", ".1%"), "return": Number("", ",.2f")}


def write_comparison(
    groups: Sequence[Experiment], out: Path, live: float = 0.0, left_out: Sequence[str] = ()
) -> Path:
    """Compares experiments on the same environment; other environments get their own sections.
    `left_out` are the errors of experiments that could not be read."""
    if len(groups) > MOST:
        raise UserError(
            f"{len(groups)} experiments do not fit one page, {MOST} do: name those that are meant."
        )
    by_env: dict[str, list[Experiment]] = {}
    for group in groups:
        by_env.setdefault(group.run.env, []).append(group)
    ends = {env: common_end(members) for env, members in by_env.items()}
    sections = [Section("", overview(groups, out, ends)), settings_differing(groups)]
    for env, members in by_env.items():
        if len(by_env) > 1:
            sections.append(Section(env, ""))
        sections += compared(members, ends[env])
    everyone = [digest for group in groups for digest in group.members]
    sections += [Section("Left out", "".join(map(paragraph, left_out)))] if left_out else []
    engine_texts = {group.name: text for group in groups if (text := "; ".join(engines(group)))}
    sections += [Section("Engine", table(engine_texts))] if engine_texts else []
    sections += [Section("", paragraph(*damaged(everyone).values()))] if damaged(everyone) else []
    title = f"{len(groups)} experiments: {', '.join(group.name for group in groups)}"
    return write(out, title, sections, live)


def ends_of(group: Experiment) -> list[int]:
    return [digest.last.get("step", 0) for digest in group.members]


def common_end(groups: Sequence[Experiment]) -> float:
    """The last step that all runs have reached; infinity if they end together (up to a few steps of
    actors)."""
    ends = [step for group in groups for step in ends_of(group)]
    return min(ends) if min(ends) < ALIKE * max(ends) else np.inf


def end_note(groups: Sequence[Experiment], end: float) -> str:
    """A sentence about runs that end earlier than others."""
    if end == np.inf:
        return ""
    far = ", ".join(f"{group.name} at step {min(ends_of(group)):,}" for group in groups)
    return paragraph(
        f"The runs end at different steps ({far}): scores are those at step {end:,.0f}, the last "
        "that all have come to. Curves go on to their own ends."
    )


def overview(groups: Sequence[Experiment], out: Path, ends: Mapping[str, float]) -> str:
    """A line for each experiment: settings, progress, score."""
    lines, near = [], out.absolute().parent
    for group in groups:
        step = min(ends_of(group), default=0)
        end = ends[group.run.env]
        scores = [
            number.text(float(interquartile_mean(values)))
            for measure, number in MEASURES.items()
            if (values := scores_of(group, end, measure)) is not None
        ]
        page = (group.path / "report.html").absolute()
        linked = page.exists() and page.is_relative_to(near)
        name = Link(group.name, str(page.relative_to(near))) if linked else group.name
        count = len(group.members)
        seeds = f"{count} seed{'s' * (count > 1)}"
        far = f"{step:,} of {group.run.steps:,}"
        lines.append(
            [name, group.run.agent.name, group.run.env, seeds, far, ", ".join(scores) or "–"]
        )
    return grid(["experiment", "agent", "environment", "runs", "steps", "score"], lines)


def settings_differing(groups: Sequence[Experiment]) -> Section:
    """A line for each setting in which they differ."""
    all_settings = [dotted(to_mapping(group.run)) for group in groups]
    names = dict.fromkeys(
        name for settings in all_settings for name in settings if name not in NOT_COMPARED
    )
    lines = [
        [name, *(show(settings[name]) if name in settings else "–" for settings in all_settings)]
        for name in names
        if len({show(settings.get(name, ...)) for settings in all_settings}) > 1
    ]
    if not lines:
        return Section("Settings", paragraph("They differ in no setting."))
    return Section(
        "Settings that differ", grid(["setting", *(group.name for group in groups)], lines)
    )


def score(digest: Digest, end: float, measure: str) -> float | None:
    """A run's score at a step: its last evaluation, or its last training episodes."""
    rows = [row for row in digest.rows if row["step"] <= end]
    evaluations = [row for row in rows if row["kind"] != "train"]
    if not evaluations:
        return rows[-1].get(measure) if rows else None
    success, value = outcome(evaluations[-1])
    return success if measure == "success" else value


def scores_of(group: Experiment, end: float, measure: str = "return") -> np.ndarray | None:
    """The scores of all runs of a group; None if one has none yet. Runs without successes count as
    0 where others have some."""
    scores = [score(digest, end, measure) for digest in group.members]
    if measure == "success" and any(value is not None for value in scores):
        scores = [value or 0.0 for value in scores]
    return None if None in scores or not scores else np.array(scores, float)


def compared(groups: Sequence[Experiment], end: float) -> list[Section]:
    """The sections of one environment."""
    reporter = reporter_of(groups[0].run)
    along, curves = reporter.counted(groups[0].run), reporter.curves(groups[0].run)
    drawn = course_chart(groups, curves, "Sample efficiency", along, reporter.course)
    body = end_note(groups, end) + chart(drawn) + how_soon(groups, drawn)
    sections = [Section("Sample efficiency", body)]
    scores = [values for group in groups if (values := scores_of(group, end)) is not None]
    if len(groups) > 1 and len(scores) == len(groups):
        names = [group.name for group in groups]
        rates = [scores_of(group, end, "success") for group in groups]
        none = [np.zeros(len(values)) for values in scores]
        if tells_success := any(values is not None for values in rates):  # then they come first
            every = [z if values is None else values for values, z in zip(rates, none, strict=True)]
            sections += score_sections(names, every, "success")
        sections += score_sections(names, scores, "return" if tells_success else "")
    return [*sections, *training_sections(groups, reporter)]


def how_soon(groups: Sequence[Experiment], drawn: Chart) -> str:
    """Steps after which the interquartile mean first reached fractions of the way to the best."""
    ends = [line for line in drawn.lines if line.style != "thin" and len(line.y)]
    if not ends or len(groups) < 2:
        return ""
    reporter = reporter_of(groups[0].run)
    curve = shared_curve(groups, reporter.curves(groups[0].run))
    low, high = (
        min(float(np.min(line.y)) for line in ends),
        max(float(np.max(line.y)) for line in ends),
    )
    targets = [low + part * (high - low) for part in REACHED]
    steps = Number("", ",.0f")
    lines = [
        [group.name, *(steps.text(steps_to(group, curve, target)) for target in targets)]
        for group in groups
    ]
    return grid(["steps until", *(f"{curve.label} ≥ {target:,.4g}" for target in targets)], lines)


def score_sections(
    names: Sequence[str], scores: Sequence[np.ndarray], measure: str
) -> list[Section]:
    """The score sections of several groups; `measure` names one of two measures."""
    target = max(float(values.max()) for values in scores)
    of = f": {measure}" if measure else ""
    return [
        Section(
            f"Scores{of}",
            paragraph(
                "A run's score is its last evaluation, or the mean return of its last "
                f"{WINDOW} training episodes where there was none. Bars are 95 % bootstrap "
                f"intervals over runs; the optimality gap is to {target:,.4g}, the best score of "
                "all, and less is better."
            )
            + too_few(names, scores)
            + aggregate_intervals(names, scores, target),
        ),
        Section(f"Performance profiles{of}", chart(profiles(names, scores))),
        Section(f"Probability of improvement{of}", improvements(names, scores)),
    ]


def too_few(names: Sequence[str], scores: Sequence[np.ndarray]) -> str:
    """Sentences about groups with too few runs for an interval."""
    counts = {name: len(values) for name, values in zip(names, scores, strict=True)}
    few = [f"{name} ({count})" for name, count in counts.items() if count < LEAST]
    without_median = [name for name, count in counts.items() if LEAST <= count < LEAST_MEDIAN]
    body = paragraph(f"No interval for {', '.join(few)}: it takes {LEAST} runs.") if few else ""
    if without_median:
        body += paragraph(
            f"None for the median of {', '.join(without_median)}: it takes {LEAST_MEDIAN} runs."
        )
    return body


def aggregate_intervals(names: Sequence[str], scores: Sequence[np.ndarray], target: float) -> str:
    """Median, interquartile mean, mean and optimality gap of each, with intervals."""
    body = ""
    for name, estimate in aggregates(target).items():
        least = LEAST_MEDIAN if name == "median" else LEAST
        rows = [
            (name, *interval_of(estimate, values, least))
            for name, values in zip(names, scores, strict=True)
        ]
        every = np.array([row[1:] for row in rows])
        low, high = np.nanmin(every), np.nanmax(every)
        room = 0.05 * (high - low) or 0.5
        body += paragraph(name) + intervals(rows, low - room, high + room, ",.4g")
    return body


def profiles(names: Sequence[str], scores: Sequence[np.ndarray]) -> Chart:
    """The share of runs above every score."""
    thresholds = thresholds_over(list(scores))
    lines = []
    for number, (name, values) in enumerate(zip(names, scores, strict=True)):
        middle, low, high = profile(values, thresholds)
        band = (low, high) if len(values) >= LEAST else None
        lines.append(Line(name, thresholds, middle, band, number, run=name))
    return Chart(
        "Performance profiles", lines, "score", "share of runs above", bounds=(-0.02, 1.02)
    )


def improvements(names: Sequence[str], scores: Sequence[np.ndarray]) -> str:
    """For each pair, the probability that a run of the one is better than a run of the other."""
    order = sorted(range(len(names)), key=lambda k: -float(interquartile_mean(scores[k])))[:PAIRED]
    rows: list[Any] = [
        (f"{names[a]} over {names[b]}", *improvement(scores[a], scores[b]))
        for a, b in itertools.combinations(order, 2)
    ]
    return intervals(rows, 0.0, 1.0, ".2f")
