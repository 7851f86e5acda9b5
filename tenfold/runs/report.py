"""The page `report.html`: of one run, or of many seeds of one experiment with the picture of their
curve, `curve.png`, or of a sweep. Several experiments side by side are `comparison`."""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tenfold.config.run import Run
from tenfold.config.search import searches
from tenfold.core.registry import domain_of
from tenfold.runs.charts import (
    Experiment,
    as_png,
    course_chart,
    figure_of,
    histograms,
    panels,
)
from tenfold.runs.digest import Digest
from tenfold.runs.file_schema import SEEDS, read_json
from tenfold.runs.folder import RunFolder, last_session
from tenfold.runs.page import (
    FILMS,
    Link,
    Section,
    bar,
    chart,
    charts,
    film,
    grid,
    intervals,
    origin_sections,
    page,
    paragraph,
    preformatted,
    settings_section,
    table,
)
from tenfold.runs.reporter import (
    Reporter,
    engines_of_seeds,
    held_out_text,
    measures_section,
    order_of,
    parallel_coordinates,
    params_text,
    reporter_of,
    score_text,
    sessions,
    source_measures,
    tells_success,
    trial_curves,
    value_text,
)
from tenfold.runs.seeds import SeedsFolder, summarise, summary_sentences
from tenfold.runs.statistics import LEAST
from tenfold.runs.storage import replace_file
from tenfold.runs.sweep_folder import SweepFolder, about_sweep

MOST_FILMS = 6  # on a page
# columns of rewards by component and of the action's numbers; columns that other charts show, or
# that only count; columns of evaluations on the main chart
COMPONENTS = ("reward/", "action/")
ELSEWHERE = {"return", "episodes", "updates", "steps_per_second"}
MAIN_EVALUATION = {"mean_return", "std_return", "episodes"}
Row = dict[str, Any]
Rows = list[Row]


# one run


def group_of_run(folder: RunFolder, run: Run, name: str = "") -> Experiment:
    digest = Digest(folder.path, run.steps).read()
    return Experiment(name or folder.path.name, folder.path, run, {"": digest}, folder.about)


def write_report(folder: RunFolder, run: Run, out: Path | None = None) -> Path:
    """Writes the picture and the page of a run; or only the page into the file `out`."""
    return write_run(group_of_run(folder, run), out)


def write_run(group: Experiment, out: Path | None = None, live: float = 0.0) -> Path:
    run, (digest,), reporter = group.run, group.members, reporter_of(group.run)
    rows = digest.rows
    title = f"{run.agent.name} on {run.env}, seed {run.seed}"
    drawn = course_chart(
        [group], reporter.curves(run), title, reporter.counted(run), reporter.course
    )
    if not out:
        replace_file(group.path / "curve.png", as_png(figure_of([drawn], title)))
    summary = reporter.summary(rows, run) | damaged([digest])
    sections = [
        Section("", table(summary)),
        Section("", chart(drawn)),
        *measures_section(group.about, source_measures(group.about, [group.path])),
        *reporter.sections(group.path, rows, run),
        *domain_of(run.env).sections(group.path, rows),
        *training_sections([group], reporter),
        *films(group.path, out),
        Section("Engine", table(sessions(group.about))),
        settings_section(run),
        *origin_sections(group.about),
    ]
    return write(out or group.path / "report.html", title, sections, live)


def write(path: Path, title: str, sections: Iterable[Section], live: float = 0.0) -> Path:
    replace_file(path, page(title, sections, live))
    return path


def damaged(digests: Sequence[Digest]) -> dict[str, str]:
    """A table line with the number of complete but invalid lines of the metrics."""
    count = sum(digest.damaged for digest in digests)
    if not count:
        return {}
    return {"damaged": f"{count:,} lines of metrics.jsonl hold no row and were passed over"}


def training_sections(groups: Sequence[Experiment], reporter: Reporter) -> list[Section]:
    """The sections behind the main curves, for one run or several."""
    along = reporter.counted(groups[0].run)
    small = {
        "Evaluations": panels(groups, "eval", along, lambda name: name not in MAIN_EVALUATION),
        "Components": panels(groups, "train", along, is_component),
        "Learning": panels(groups, "train", along, is_learning),
        "Episodes": histograms(groups),
    }
    sections = [Section(title, charts(drawn)) for title, drawn in small.items() if drawn]
    return [*sections, *time_sections(groups, along)]


def is_component(name: str) -> bool:
    return name.startswith(COMPONENTS) and not name.endswith("/std")


def is_learning(name: str) -> bool:
    return name not in ELSEWHERE and not name.startswith(COMPONENTS)


def time_sections(groups: Sequence[Experiment], along: str) -> list[Section]:
    """Time by stage, and speed."""
    body = ""
    for group in groups:
        if shares := time_shares(group.members):
            body += (paragraph(group.name) if len(groups) > 1 else "") + bar(shares)
    body += charts(panels(groups, "train", along, lambda name: name == "steps_per_second"))
    return [Section("Time", body)] if body else []


def time_shares(digests: Sequence[Digest]) -> dict[str, float]:
    """Mean share of each stage, from the end of the runs or from their last rows."""
    totals: Counter[str] = Counter()
    shares_of_runs = [
        last_session(digest.path).get("shares") or digest.last["timing"].get("shares", {})
        for digest in digests
        if digest.last
    ]
    for shares in shares_of_runs:
        totals.update({stage: share / len(shares_of_runs) for stage, share in shares.items()})
    return dict(totals)


def films(path: Path, out: Path | None = None) -> list[Section]:
    """The films of a run."""
    near = out.parent if out else path
    files = [
        file
        for pattern in ("*", "eval/*/*")
        for file in sorted(path.glob(pattern))
        if file.suffix in FILMS and file.is_file()
    ]
    body = "".join(film(file, near) for file in files[:MOST_FILMS])
    return [Section("Films", body)] if body else []


# many seeds


def group_of_seeds(
    folder: SeedsFolder, known: Sequence[Rows] | None = None, name: str = ""
) -> Experiment:
    """`known` are the rows of the members without episodes, where they are in memory."""
    digests = {}
    for number, seed in enumerate(folder.seeds):
        digest = Digest(folder.member(seed), folder.run.steps)
        digests[f"seed {seed}"] = digest.read(known[number] if known else None)
    about = read_json(folder.path / "seeds.json", SEEDS, "put it back")
    return Experiment(name or folder.path.name, folder.path, folder.run, digests, about)


def write_seeds_report(
    folder: SeedsFolder,
    rows: Sequence[Rows] | None = None,
    summary: dict[str, Any] | None = None,
    out: Path | None = None,
) -> Path:
    """`rows` of the members and the result of `summarise`, where they are in memory."""
    return write_seeds(folder, group_of_seeds(folder, rows), summary, out)


def write_seeds(
    folder: SeedsFolder,
    group: Experiment,
    summary: dict[str, Any] | None = None,
    out: Path | None = None,
    live: float = 0.0,
) -> Path:
    reporter = reporter_of(folder.run)
    summary = summary or summarise(folder, [digest.rows for digest in group.members])
    sentences = summary_sentences(reporter, summary)
    cells = {reporter.numbers[name].heading: sentence for name, sentence in sentences.items()}
    title = f"{folder.title}: interquartile mean"
    title += ", 95 % interval" if len(folder.seeds) >= LEAST else f"; an interval takes {LEAST}"
    along, curves = reporter.counted(folder.run), reporter.curves(folder.run)
    drawn = course_chart([group], curves, title, along, reporter.course)
    if not out:
        replace_file(folder.path / "curve.png", as_png(figure_of([drawn], title)))
    near = folder.path / "x"  # films of the first seed that has any
    changed = {"changed on resume": json.dumps(folder.changes)} if folder.changes else None
    sections = [
        Section("", table(cells | damaged(group.members))),
        Section("", chart(drawn)),
        *measures_section(group.about, summary.get("measures", {})),
        members_section(folder.path, summary["seeds"], reporter, out),
        *training_sections([group], reporter),
        *next(filter(None, (films(path, out or near) for path in folder.members)), []),
        Section("Engine", table(engines_of_seeds(group))),
        settings_section(folder.run, changed),
        *origin_sections(group.about),
    ]
    return write(out or folder.path / "report.html", folder.title, sections, live)


def members_section(
    path: Path, members: dict[int, dict[str, Any]], reporter: Reporter, out: Path | None
) -> Section:
    """A line for each seed, with a link to its page."""
    first = next(iter(members.values()))
    columns = {name: number for name, number in reporter.numbers.items() if name in first}
    pages = {seed: path / f"seed-{seed}" / "report.html" for seed in members}
    near = out.parent if out else path
    linked = {
        seed: str(page.relative_to(near))
        for seed, page in pages.items()
        if page.exists() and page.is_relative_to(near)
    }
    lines = [
        [
            Link(seed, linked[seed]) if seed in linked else seed,
            *(number.text(member.get(name)) for name, number in columns.items()),
        ]
        for seed, member in members.items()
    ]
    missing = "" if linked else paragraph(f"A seed's own page: tenfold report {path}/seed-N")
    return Section("", missing + grid(["seed", *(n.heading for n in columns.values())], lines))


# a sweep


def write_sweep_report(folder: SweepFolder, out: Path | None = None) -> Path:
    """The page of a sweep: importance of parameters, trials over training and in parallel
    coordinates, and the winner against the default on held-out seeds."""
    results = folder.results()
    trials, winner = results["trials"], results["winner"]
    spaces = [search.spaces for search in searches(folder.run, folder.plan.search)]
    logarithmic = {
        name for named in spaces for name, space in named.items() if getattr(space, "log", False)
    }
    curves = [trial_curves(trials, winner)]
    if tells_success(trials):
        curves.insert(0, trial_curves(trials, winner, "successes", "success"))
    importance = [(name, share, 0.0, share) for name, share in results["importance"].items()]
    note = paragraph("shares of parameters in what distinguishes good trials (PED-ANOVA)")
    scales = intervals(importance, 0.0, 1.0, with_numbers=False)
    search = "; ".join(f"{path} = {space}" for path, space in folder.plan.search.items())
    sections = [
        Section("", sweep_summary(results)),
        Section("Over training", "".join(map(chart, curves))),
        Section("Parallel coordinates", chart(parallel_coordinates(trials, logarithmic))),
        *([Section("Importance", note + scales)] if importance else []),
        Section("Trials", trials_table(trials, winner)),
        Section("Winner", preformatted(folder.best_text())),
        settings_section(folder.run, {"search": search, "pruner": folder.plan.pruner}),
        Section("Study", preformatted(f"optuna-dashboard {shlex.quote(folder.study)}")),
        *origin_sections(about_sweep(folder.path)),
    ]
    return write(out or folder.path / "report.html", folder.title, sections)


def sweep_summary(results: Row) -> str:
    trials = results["trials"]
    states = [trial["state"] for trial in trials]
    winner = next(trial for trial in trials if trial["number"] == results["winner"])
    counts = f"{states.count('pruned')} pruned and {states.count('fail')} failed"
    cells: dict[Any, Any] = {
        "trials": f"{len(states)}, of which {counts}",
        f"winner, trial {winner['number']}": (
            f"{score_text(winner)} ({params_text(winner['params'])})"
        ),
    }
    for name, confirmed in results["confirmed"].items():
        cells[Link(f"{name} on held-out seeds", f"{name}/report.html")] = held_out_text(confirmed)
    return table(cells) + (paragraph(results["verdict"]) if results["verdict"] else "")


def trials_table(trials: Sequence[Row], winner: int) -> str:
    """Trials, the best first, then those that were pruned or failed."""
    states = ["complete", "pruned", "fail"]

    def order(trial: Row) -> tuple[Any, ...]:
        success, score = order_of(trial | {"value": trial["value"] or 0.0})
        state = states.index(trial["state"]) if trial["state"] in states else len(states)
        return state, -success, -score, trial["number"]

    trials = sorted(trials, key=order)
    names = list(dict.fromkeys(name for trial in trials for name in trial["params"]))
    lines = [
        [
            Link(trial["number"], f"trial-{trial['number']}/"),
            "winner" if trial["number"] == winner else trial["state"],
            score_text(trial),
            " ".join(f"{score:.1f}" for score in trial["scores"]),
            *(value_text(trial["params"].get(name, "–")) for name in names),
            trial["why"],
        ]
        for trial in trials
    ]
    return grid(["trial", "", "evaluation", "of its seeds", *names, ""], lines)
