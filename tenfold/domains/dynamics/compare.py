"""Compares policies of an explorer: one run of all seeds for each, evaluated on the same
recordings; one table, one figure, one page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.notation import differing
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.evaluation import fits_of, headline, latest_fit
from tenfold.runs.charts import Chart, Line, as_png, figure_of
from tenfold.runs.file_schema import NAME, TEXT, Schema, read_json
from tenfold.runs.folder import (
    COMPARE_KIND,
    destination,
    folder_to_continue,
    is_compare,
    is_run,
    named_after,
    origin,
    read_settings,
    write_settings,
)
from tenfold.runs.metrics import read_rows
from tenfold.runs.page import (
    Link,
    Section,
    charts,
    origin_sections,
    page,
    paragraph,
    settings_section,
    table,
)
from tenfold.runs.statistics import (
    LEAST,
    bootstrap_interval,
    interquartile_mean,
    sentence,
    together,
)
from tenfold.runs.storage import (
    FolderLock,
    Numbered,
    Target,
    install,
    replace_file,
    update_latest,
    write_json,
)
from tenfold.training.run_group import GroupRun, RunGroup, train_group, warm_up

COMPARE: Schema = {"kind": TEXT, "policies": [NAME]}  # in compare.json


@dataclass(frozen=True)
class Comparison:
    """`rows`: for each policy the last numbers over seeds; `interrupted` is the signal that stopped
    it early, or 0; `saved` the steps that they would go on from."""

    path: Path
    rows: dict[str, dict[str, Any]]
    interrupted: int = 0
    saved: dict[str, int] = field(default_factory=dict)


def policy_run(run: Run, policy: str) -> Run:
    agent: Any = run.agent
    try:
        planner = replace(agent.planner, policy=policy)
    except ConfigError as error:
        raise ConfigError("--policies", f"has one that cannot be: {error}") from None
    return replace(run, agent=replace(agent, planner=planner))


def compare(
    run: Run,
    policies: tuple[str, ...],
    seeds: int,
    out: str | Path = "",
    *,
    name: str = "",
    jobs: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
) -> Comparison:
    """Runs every policy with `seeds` members into out/POLICY; called again it goes on where it
    stopped. Without `out` the folder is the first of runs/NAME, runs/NAME-2, … that holds this
    comparison or is free."""
    if not isinstance(run.agent, Explorer):
        raise UserError(
            f"compare runs policies of agent explorer, and this is {run.agent.name}: choose a "
            "preset such as limit-cycle."
        )
    if not policies or len(set(policies)) < len(policies):
        raise ConfigError(
            "--policies",
            f"= {','.join(policies)} cannot be: name at least one, none of them twice.",
        )
    run = replace(run, members=seeds)
    runs = {policy: policy_run(run, policy) for policy in policies}
    target = comparison_folder(
        destination(out, name or f"compare-{named_after(run.env)}", overwrite), run, overwrite
    )
    warm_up([*runs.values()], quiet)
    path, lock = open_folder(target, run, policies, overwrite)
    with lock:
        return run_comparison(path, run, runs, jobs, quiet)


def comparison_folder(target: Target, run: Run, overwrite: bool) -> Target:
    """The folder of the comparison, an existing one to continue or a new one."""
    changed = partial(changed_setting, run=run)
    return folder_to_continue(target, "comparison", is_compare, changed, overwrite)


def changed_setting(path: Path, run: Run) -> str:
    """The name of the first setting in which the comparison in a folder differs from this one;
    empty where they are the same."""
    if not is_compare(path):
        return "kind"
    try:
        before = to_mapping(read_settings(path))
    except ConfigError as error:
        return error.key or "config.yaml"
    return next(iter(differing(to_mapping(run) | {"steps": 0}, before | {"steps": 0})), "")


def open_folder(
    target: Target, run: Run, policies: tuple[str, ...], overwrite: bool
) -> tuple[Path, FolderLock]:
    """A new folder, or that of the same comparison. More policies may join one."""
    about = origin(COMPARE_KIND) | {"policies": list(policies)}

    def fill(path: Path) -> None:
        write_settings(path, run)
        write_json(path / "compare.json", about)

    if isinstance(target, Numbered) or overwrite or not is_compare(target):
        return install(target, fill)
    lock, earlier = FolderLock(target), policies_in(target)
    about["policies"] = [*earlier, *(policy for policy in policies if policy not in earlier)]
    try:
        fill(target)
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror or error}.") from None
    update_latest(target)
    return target, lock


def about_comparison(path: Path) -> dict[str, Any]:
    return read_json(
        path / "compare.json", COMPARE, "put back what was there, or start anew with --overwrite"
    )


def policies_in(path: Path) -> list[str]:
    """Those that a comparison's folder holds a run of, in the order in which they came."""
    named = about_comparison(path)["policies"] if is_compare(path) else []
    return [policy for policy in named if is_run(path / policy)]


def run_comparison(
    path: Path, run: Run, runs: dict[str, Run], jobs: int, quiet: bool
) -> Comparison:
    def title_of(policies: Iterable[str]) -> str:
        return f"{', '.join(policies)} on {run.env}, {run.members} seeds"

    def progress() -> dict[str, str]:
        """Every policy's latest number."""
        rows = {policy: latest_fit(path / policy) for policy in runs}
        return {
            policy: f"{'R² ' if row and 'field_error' not in row else ''}{headline(row)}"
            for policy, row in rows.items()
        }

    group = RunGroup(
        title_of(runs),
        "policies",
        [GroupRun(f"policy {policy}", one, path / policy) for policy, one in runs.items()],
        path,
        "The same command goes on from the last checkpoints.",
        {"steps": run.steps},
    )
    stopped = train_group(group, jobs, quiet, progress)
    everything = policies_in(path)  # those that were there before, too
    rows = summarise(path, everything)
    if not stopped:
        about = about_comparison(path) | {"results": rows}
        write_json(path / "compare.json", about)
        write_page(path, rows, run, title_of(everything), about)
    return Comparison(path, rows, stopped, group.saved)


def summarise(path: Path, policies: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of each policy: the last numbers with intervals over seeds, and every seed's curve."""
    summary = {}
    for policy in policies:
        fits = fits_of(read_rows(path / policy / "metrics.jsonl"))
        if not fits:
            continue
        last = fits[-1]
        row: dict[str, Any] = {
            "step": last["step"],
            "steps": [fit["step"] for fit in fits],
            "r2s": last["r2s"],
            "elbo": together(last["elbos"]),
            "r2": [together(list(column)) for column in np.transpose(last["r2s"])],
        }
        if "field_errors" in last:
            row["field_error"] = together(last["field_errors"])
            row["field_errors"] = [fit["field_errors"] for fit in fits]
        if "instant_errors" in last:
            row["instant_error"] = together(last["instant_errors"])
        if "arx_r2" in last:
            row["arx_r2"] = last["arx_r2"]
        summary[policy] = row
    return summary


def table_of(rows: dict[str, dict[str, Any]]) -> list[list[str]]:
    """For the terminal: a head, a line for each policy, and ARX on each policy's data."""
    ahead = len(next(iter(rows.values()))["r2"]) if rows else 0
    marks = sorted({1, (ahead + 1) // 2, ahead})
    ahead_of = [f"R² {k} ahead" for k in marks]
    # beside that of the mean along a step, where the truth is of continuous time
    instant = ["instantaneous"] if any("instant_error" in row for row in rows.values()) else []
    head = ["policy", "steps", "field error", "95 % interval", *instant]
    lines = [[*head, *ahead_of, "evidence bound"]]
    for policy, row in rows.items():
        numbers = ["–"] * (2 + len(instant))
        if error := row.get("field_error"):
            numbers[:2] = f"{error['iqm']:.3f}", interval_words(error)
        if error := row.get("instant_error"):
            numbers[2] = f"{error['iqm']:.3f}"
        r2 = [f"{row['r2'][k - 1]['iqm']:.3f}" for k in marks]
        lines.append([policy, f"{row['step']:,}", *numbers, *r2, f"{row['elbo']['iqm']:.2f}"])
    for policy, row in rows.items():
        if "arx_r2" in row:
            numbers = [f"{row['arx_r2'][k - 1]:.3f}" for k in marks]
            none = ["–"] * (2 + len(instant))
            lines.append([f"ARX, data of {policy}", f"{row['step']:,}", *none, *numbers, "–"])
    return lines


def interval_words(pooled: dict[str, Any]) -> str:
    """Of what `together` found."""
    if pooled["interval"] is None:
        return f"takes {LEAST} seeds"
    low, high = pooled["interval"]
    return f"{low:.3f} to {high:.3f}"


# figure and page


def write_page(
    path: Path, rows: dict[str, dict[str, Any]], run: Run, title: str, about: dict[str, Any]
) -> None:
    """Writes the picture and the page; `rows` are the results of each policy."""
    drawn = charts_of(rows)
    few = any(row["elbo"]["interval"] is None for row in rows.values())
    intervals = f"; intervals take {LEAST} seeds" if few else ", 95 % intervals"
    whole = f"{title}: interquartile means{intervals}"
    replace_file(path / "compare.png", as_png(figure_of(drawn, whole, columns=2)))
    errors = {
        policy: sentence(row["field_error"]) for policy, row in rows.items() if "field_error" in row
    }
    runs = [Link(policy, f"{policy}/report.html") for policy in rows]
    sections = [
        Section("", charts(drawn)),
        Section("Error of the field", table(errors)),
        Section("Runs", paragraph(*runs)),
        settings_section(run),
        *origin_sections(about),
    ]
    replace_file(path / "report.html", page(title, sections))


def charts_of(rows: dict[str, dict[str, Any]]) -> list[Chart]:
    """The field's error over steps and R² over horizons: interquartile means over seeds with their
    95 % intervals, where these are enough."""
    errors, foretold = [], []
    for number, (policy, row) in enumerate(rows.items()):
        ahead = np.arange(1, len(row["r2"]) + 1)
        foretold.append(line_of(policy, ahead, np.array(row["r2s"]), number))
        if "field_errors" in row:
            values = np.array(row["field_errors"]).T
            errors.append(line_of(policy, row["steps"], values, number))
    title = "error of the field (1: a field of zeros)"
    return [
        Chart(title, errors, y="error of the field"),
        Chart("R² of observations", foretold, "steps ahead", "R²"),
    ]


def line_of(policy: str, x: Any, values: np.ndarray, colour: int) -> Line:
    """Of values [seeds, x]."""
    band = bootstrap_interval(values) if len(values) >= LEAST else None
    return Line(policy, x, interquartile_mean(values), band, colour, "dots", run=policy)
