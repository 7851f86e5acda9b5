"""Tables of players and shops: makespans, and their gaps to the best known, as text and as a page.
Every schedule is verified by the independent checks of `schedule`."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.jobshop.instances import Instance, lower_bound
from tenfold.domains.jobshop.players import (
    RULES,
    Player,
    chance_player,
    is_installed,
    require_draws,
    rule_player,
    solver_player,
)
from tenfold.domains.jobshop.schedule import (
    Schedule,
    check_schedule,
    check_starts,
    schedule_of_order,
    starts,
)
from tenfold.runs.charts import Chart, Line
from tenfold.runs.file_schema import NUMBER, TEXT, WHOLE, Schema, maybe, read_json
from tenfold.runs.page import Section, chart, grid, image, paragraph, table

SAMPLES = 64  # orders drawn from a policy, of which the best counts
MOST_SAMPLES = 1_000_000


class PlayerEntry(NamedTuple):
    """A player: with 0 samples its best guess, else the best of that many."""

    name: str
    player: Player
    samples: int = 0


@dataclass(frozen=True)
class PlayerResults:
    """A player's makespan of each instance (None: no schedule), and its seconds."""

    name: str
    samples: int
    makespans: list[int | None]
    seconds: list[float]
    schedules: list[Schedule]


def best_of(instance: Instance, orders: Sequence[np.ndarray]) -> tuple[int | None, Schedule]:
    """The best of the schedules, all of them verified."""
    if not len(orders):
        return None, []
    start, makespan = starts(instance, orders)
    if not np.array_equal(check_starts(instance, start), makespan):
        raise UserError(f"{instance.name}: makespans and schedules contradict each other.")
    schedule = schedule_of_order(instance, orders[int(makespan.argmin())])
    return check_schedule(instance, schedule), schedule


def play_entry(
    instances: Sequence[Instance],
    entry: PlayerEntry,
    seed: int,
    tell: Callable[[str], None],
    results: PlayerResults | None = None,
) -> PlayerResults:
    """Plays consecutive instances of one size together, or one by one where the player draws
    samples. Appends to `results`, if given."""
    results = results or PlayerResults(entry.name, entry.samples, [], [], [])
    for (jobs, machines), group in groupby(instances, lambda i: (i.jobs, i.machines)):
        alike = list(group)
        for batch in [[instance] for instance in alike] if entry.samples else [alike]:
            names = batch[0].name if len(batch) == 1 else f"{len(batch)} of {jobs}x{machines}"
            tell(f"{entry.name}: {names}")
            start = time.perf_counter()
            orders_by_shop = entry.player(batch, entry.samples, seed)
            seconds = (time.perf_counter() - start) / len(batch)
            for instance, orders in zip(batch, orders_by_shop, strict=True):
                makespan, schedule = best_of(instance, orders)
                results.makespans.append(makespan)
                results.schedules.append(schedule)
                results.seconds.append(seconds)
    return results


@dataclass(frozen=True)
class ShopTable:
    """Instances and the players' results. A gap is makespan / best known − 1; where no makespan is
    known, to the lower bound."""

    instances: Sequence[Instance]
    columns: Sequence[PlayerResults]

    def column(self, name: str) -> PlayerResults:
        return next(column for column in self.columns if column.name == name)

    @property
    def bounds(self) -> list[int]:
        """Lower bounds of the makespans: proven ones, or our own."""
        return [max(lower_bound(i), i.bounds[0] if i.bounds else 0) for i in self.instances]

    def gaps(self, name: str) -> list[float | None]:
        """The gaps of one player by instance."""
        against = [
            i.best_known or bound for i, bound in zip(self.instances, self.bounds, strict=True)
        ]
        return [
            None if makespan is None else makespan / best - 1
            for makespan, best in zip(self.column(name).makespans, against, strict=True)
        ]

    def mean_gap(self, name: str, only: Sequence[bool] | None = None) -> float | None:
        """The mean gap of one player over the instances of `only`; None if it has no schedule of
        one."""
        gaps = [g for i, g in enumerate(self.gaps(name)) if only is None or only[i]]
        return None if None in gaps or not gaps else float(np.mean(gaps))  # type: ignore[arg-type]

    def groups(self) -> dict[str, list[bool]]:
        """Masks of the instances of each size, if there are several sizes with several
        instances."""
        sizes = [f"{i.jobs}x{i.machines}" for i in self.instances]
        distinct = dict.fromkeys(sizes)
        if len(distinct) == 1 or len(distinct) == len(sizes):
            return {}
        return {size: [size == other for other in sizes] for size in distinct}

    def as_json(self, schedules: bool = False) -> dict[str, Any]:
        """The table as JSON; with `schedules` also the best schedule of the first two players, rows
        of job, operation, machine, start and end."""
        rows = []
        for i, (instance, bound) in enumerate(zip(self.instances, self.bounds, strict=True)):
            row: dict[str, Any] = {
                "name": instance.name,
                "jobs": instance.jobs,
                "machines": instance.machines,
                "lower_bound": bound,
                "best_known": instance.best_known,
                "makespans": {c.name: c.makespans[i] for c in self.columns},
                "gaps": {c.name: self.gaps(c.name)[i] for c in self.columns},
                "seconds": {c.name: round(c.seconds[i], 4) for c in self.columns},
            }
            if schedules:
                row["schedule"] = [list(map(int, s)) for s in self.best_schedule(i)]
            rows.append(row)
        return {
            "players": {c.name: c.samples for c in self.columns},
            "mean_gaps": {c.name: self.mean_gap(c.name) for c in self.columns},
            "size_gaps": {
                size: {c.name: self.mean_gap(c.name, only) for c in self.columns}
                for size, only in self.groups().items()
            },
            "instances": rows,
        }

    def best_schedule(self, i: int) -> Schedule:
        """The policy's best schedule, greedy or sampled (the first two columns)."""
        schedules = [c.schedules[i] for c in self.columns[:2] if c.schedules[i]]
        return min(schedules, key=lambda schedule: max(s.end for s in schedule))


def gap_rows(
    result: Mapping[str, Any], cell: Callable[[Mapping[str, Any], str], str], mark: str = ""
) -> list[list[Any]]:
    """The rows of the table in `as_json`, then mean gaps. `cell` formats an instance's makespan by
    a player; `mark` follows instances whose best makespan is not known."""
    names = list(result["players"])
    rows: list[list[Any]] = []
    for row in result["instances"]:
        known, best = row["best_known"] is not None, row["best_known"]
        name, best = (row["name"], best) if known else (row["name"] + mark, "unknown")
        size = f"{row['jobs']}x{row['machines']}"
        cells = [cell(row, player) for player in names]
        rows.append([name, size, row["lower_bound"], best, *cells])
    for size, gaps in (*result["size_gaps"].items(), ("", result["mean_gaps"])):
        rows.append(["mean gap", size, "", "", *(percent(gaps[name]) for name in names)])
    return rows


def lines(result: Mapping[str, Any]) -> list[str]:
    """The table as text: the first two players' makespans and gaps, the others' gaps."""
    names = list(result["players"])

    def cell(row: Mapping[str, Any], name: str) -> str:
        makespan, gap = row["makespans"][name], percent(row["gaps"][name])
        return f"{'–' if makespan is None else makespan} {gap:>7}" if name in names[:2] else gap

    head = ["instance", "size", "bound", "best known", *names]
    table = [head, *([str(c) for c in row] for row in gap_rows(result, cell, mark=" *"))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    text = []
    for row in table:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        text.append("  " + "  ".join(left + right))
    if any(row["best_known"] is None for row in result["instances"]):
        text.append("  * no makespan is known: the gap is that to the lower bound")
    return text


def percent(gap: float | None) -> str:
    return "–" if gap is None else f"{100 * gap:.1f} %"


def compare_players(
    instances: Sequence[Instance],
    policy: Player,
    samples: int = SAMPLES,
    seed: int = 0,
    solver: bool = True,
    tell: Callable[[str], None] = lambda message: None,
) -> ShopTable:
    """Compares a policy, greedy and its best of `samples`, with dispatching rules and, where
    OR-Tools is installed and `solver` is true, with CP-SAT in the time of the samples."""
    require_draws(instances, samples, seed)
    policy(instances[:1], 0, seed)  # compiles kernels before the clock starts
    entries = [
        PlayerEntry("greedy", policy),
        PlayerEntry(f"best of {samples}", policy, samples),
        *(PlayerEntry(rule, rule_player(rule)) for rule in RULES if rule != "random"),
        PlayerEntry(f"random, best of {samples}", rule_player("random"), samples),
        PlayerEntry(f"random active, best of {samples}", chance_player, samples),
    ]
    columns = [play_entry(instances, entry, seed, tell) for entry in entries]
    if solver and is_installed():
        columns.append(PlayerResults("CP-SAT", 0, [], [], []))
        for instance, seconds in zip(instances, columns[1].seconds, strict=True):
            entry = PlayerEntry("CP-SAT", solver_player(seconds))
            play_entry([instance], entry, seed, tell, columns[-1])
    return ShopTable(instances, columns)


# what a run's page shows


AGAIN = "`tenfold eval` writes it anew"
MAKESPANS: Schema = {  # what `tenfold eval` leaves in makespans.json, makespans-best.json, …
    "checkpoint?": TEXT,
    "step?": WHOLE,
    "samples": WHOLE,
    "best_makespan": NUMBER,
    "greedy_makespan": NUMBER,
    "optimum": maybe(NUMBER),
    "best_known?": maybe(NUMBER),
    "lower_bound?": NUMBER,
    "untrained_best_makespan": NUMBER,
    "rules": {...: NUMBER},
}
SHOPS: Schema = {  # what it leaves in shops/*.json
    "shops": TEXT,
    "checkpoint": TEXT,
    "step": WHOLE,
    "seed": WHOLE,
    "samples": WHOLE,
    "players": {...: WHOLE},
    "mean_gaps": {...: maybe(NUMBER)},
    "size_gaps": {...: {...: maybe(NUMBER)}},
    "instances": [
        {
            "name": TEXT,
            "jobs": WHOLE,
            "machines": WHOLE,
            "lower_bound": WHOLE,
            "best_known": maybe(WHOLE),
            "makespans": {...: maybe(WHOLE)},
            "gaps": {...: maybe(NUMBER)},
        }
    ],
}


def sections(path: Path) -> list[Section]:
    """The sections of a run's page: tables that `tenfold eval` wrote, of one shop and of others."""
    shop = (shop_section(file) for file in sorted(path.glob("makespans*.json")))
    tables = (gaps_section(file) for file in sorted(path.glob("shops/*.json")))
    return [section for section in (*shop, *tables) if section]


def gaps_section(file: Path) -> Section:
    """The table and the chart of one evaluation on several shops."""
    try:
        result = read_json(file, SHOPS, AGAIN)
        head = ["instance", "size", "lower bound", "best known", *result["players"]]
        return Section(
            f"Job shops: {result['shops']}, {checkpoint_label(result)}, seed {result['seed']}",
            gaps_chart(result) + grid(head, gap_rows(result, makespan_and_gap)),
        )
    except UserError as error:
        return Section("", paragraph(error))
    except KeyError as error:
        return Section("", paragraph(f"{file} has no {error} for one of its players: {AGAIN}."))


def makespan_and_gap(row: Mapping[str, Any], name: str) -> str:
    makespan = row["makespans"][name]
    return "–" if makespan is None else f"{makespan} ({percent(row['gaps'][name])})"


def gaps_chart(result: dict[str, Any]) -> str:
    """Gaps of every player by instance, in percent."""
    rows = result["instances"]
    gaps = {
        name: [math.nan if row["gaps"][name] is None else 100 * row["gaps"][name] for row in rows]
        for name in result["players"]
    }
    curves = [
        Line(name, list(range(len(rows))), y, None, number, "" if number < 2 else "dash")
        for number, (name, y) in enumerate(gaps.items())
    ]
    title = "gap to the best known makespan, or to the lower bound where none is known"
    return chart(Chart(title, curves, "instance", "%", ticks=[row["name"] for row in rows]))


def checkpoint_label(result: dict[str, Any]) -> str:
    return f"checkpoint {result['checkpoint']} (step {result['step']:,})"


def shop_section(makespans: Path) -> Section | None:
    """The makespans of a policy of one shop, and the best schedule's chart."""
    picture = makespans.with_name(f"{makespans.stem.replace('makespans', 'gantt', 1)}.png")
    if not picture.is_file():
        return None
    try:
        result = read_json(makespans, MAKESPANS, AGAIN)
    except UserError as error:
        return Section("", paragraph(error))
    known = {"checkpoint", "step"} <= result.keys()  # earlier versions did not write them
    title = f"Schedule, {checkpoint_label(result)}" if known else "Schedule"
    best = f"best of {result['samples']}"
    cells = {
        f"makespan, {best} samples": result["best_makespan"],
        "makespan, greedy": result["greedy_makespan"],
        "optimum": result["optimum"] or "unknown",
        **({"best known": result["best_known"]} if result.get("best_known") else {}),
        **({"lower bound": result["lower_bound"]} if "lower_bound" in result else {}),
        f"untrained, {best} samples": result["untrained_best_makespan"],
    }
    for rule, makespan in result["rules"].items():
        cells[f"rule {rule}{f', {best}' if rule == 'random' else ''}"] = makespan
    gantt = image(picture.read_bytes(), "the best schedule: machines over time")
    return Section(title, table(cells) + gantt)
