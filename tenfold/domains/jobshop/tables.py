"""Who schedules how well: makespans of several players on several shops, and their gaps to the best
known. Every schedule is verified by the independent checks of `schedule`."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.jobshop.instances import Instance, lower_bound
from tenfold.domains.jobshop.orders import Player, require_draws, schedule_of_order, starts
from tenfold.domains.jobshop.players import rule_player
from tenfold.domains.jobshop.schedule import RULES, Schedule, check_schedule, check_starts

SAMPLES = 64  # orders drawn from a policy, of which the best counts
MOST_SAMPLES = 1_000_000


class Entry(NamedTuple):
    """Who plays: with 0 samples the order it holds for best, else the best of so many."""

    name: str
    player: Player
    samples: int = 0


@dataclass(frozen=True)
class Column:
    """What one found on each instance (None: nothing), and the seconds it took there."""

    name: str
    samples: int
    makespans: list[int | None]
    seconds: list[float]
    schedules: list[Schedule]


def best_of(instance: Instance, orders: Sequence[np.ndarray]) -> tuple[int | None, Schedule]:
    """The shortest of the schedules, all of them verified."""
    if not len(orders):
        return None, []
    start, makespan = starts(instance, orders)
    if not np.array_equal(check_starts(instance, start), makespan):
        raise UserError(f"{instance.name}: makespans and schedules contradict each other.")
    schedule = schedule_of_order(instance, orders[int(makespan.argmin())])
    return check_schedule(instance, schedule), schedule


def play_entry(
    instances: Sequence[Instance], entry: Entry, seed: int, tell: Callable[[str], None]
) -> Column:
    """Instances of one size that stand together are given to the player together; where it draws
    samples, each alone."""
    column = Column(entry.name, entry.samples, [], [], [])
    for (jobs, machines), group in groupby(instances, lambda i: (i.jobs, i.machines)):
        alike = list(group)
        each = [[instance] for instance in alike] if entry.samples else [alike]
        for part in each:
            names = part[0].name if len(part) == 1 else f"{len(part)} of {jobs}x{machines}"
            tell(f"{entry.name}: {names}")
            begun = time.perf_counter()
            found = entry.player(part, entry.samples, seed)
            took = (time.perf_counter() - begun) / len(part)
            for instance, orders in zip(part, found, strict=True):
                makespan, schedule = best_of(instance, orders)
                column.makespans.append(makespan)
                column.schedules.append(schedule)
                column.seconds.append(took)
    return column


@dataclass(frozen=True)
class ShopTable:
    """Instances and what players found on them. A gap is makespan / best known − 1; where no
    makespan is known, to the lower bound."""

    instances: Sequence[Instance]
    columns: Sequence[Column]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    @property
    def bounds(self) -> list[int]:
        """Below which no makespan is: proven ones, or our own."""
        return [max(lower_bound(i), i.bounds[0] if i.bounds else 0) for i in self.instances]

    def gaps(self, name: str) -> list[float | None]:
        """Of one player, by instance."""
        against = [
            i.best_known or bound for i, bound in zip(self.instances, self.bounds, strict=True)
        ]
        return [
            None if makespan is None else makespan / best - 1
            for makespan, best in zip(self.column(name).makespans, against, strict=True)
        ]

    def mean_gap(self, name: str, only: Sequence[bool] | None = None) -> float | None:
        """Of one player, over the instances of `only`; None where it found nothing on one."""
        found = [g for i, g in enumerate(self.gaps(name)) if only is None or only[i]]
        return None if None in found or not found else float(np.mean(found))  # type: ignore[arg-type]

    def groups(self) -> dict[str, list[bool]]:
        """Which instances are of one size, where there are several sizes with several instances."""
        sizes = [f"{i.jobs}x{i.machines}" for i in self.instances]
        each = dict.fromkeys(sizes)
        if len(each) == 1 or len(each) == len(sizes):
            return {}
        return {size: [size == own for own in sizes] for size in each}

    def as_json(self, schedules: bool = False) -> dict[str, Any]:
        """`schedules`: with the best of the first two players, rows of job, operation, machine,
        start and end."""
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
        """The shortest of the policy's, greedy or sampled: it has the first two columns."""
        made = [c.schedules[i] for c in self.columns[:2] if c.schedules[i]]
        return min(made, key=lambda schedule: max(s.end for s in schedule))


def lines(found: Mapping[str, Any]) -> list[str]:
    """What `as_json` holds, for a terminal: the first two players' makespans and gaps, the others'
    gaps."""
    names = list(found["players"])
    unknown = any(row["best_known"] is None for row in found["instances"])

    def cells(row: Mapping[str, Any]) -> list[str]:
        own = row["gaps"]
        told = [
            f"{row['makespans'][name] if row['makespans'][name] is not None else '–'} "
            f"{percent(own[name]):>7}"
            if n < 2
            else percent(own[name])
            for n, name in enumerate(names)
        ]
        star = "" if row["best_known"] is not None else " *"
        size, best = f"{row['jobs']}x{row['machines']}", row["best_known"] or "unknown"
        return [f"{row['name']}{star}", size, str(row["lower_bound"]), str(best), *told]

    head = ["instance", "size", "bound", "best known", *names]
    table = [head, *map(cells, found["instances"])]
    for size, gaps in found["size_gaps"].items():
        table.append(["mean gap", size, "", "", *(percent(gaps[name]) for name in names)])
    table.append(["mean gap", "", "", "", *(percent(found["mean_gaps"][name]) for name in names)])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    text = []
    for row in table:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        text.append("  " + "  ".join(left + right))
    if unknown:
        text.append("  * no makespan is known: the gap is that to the lower bound")
    return text


def percent(gap: float | None) -> str:
    return "–" if gap is None else f"{100 * gap:.1f} %"


# who is compared


def rule_entries(samples: int) -> list[Entry]:
    """Every rule, and chance among the choices that a policy of any shop has; what draws has as
    many samples as the policy."""
    from tenfold.domains.jobshop.chance import chance_player  # with torch

    chance = Entry(f"random active, best of {samples}", chance_player, samples)
    rules = [
        Entry(f"random, best of {samples}", rule_player(rule), samples)
        if rule == "random"
        else Entry(rule, rule_player(rule))
        for rule in RULES
    ]
    return [*rules, chance]


def compare_players(
    instances: Sequence[Instance],
    policy: Player,
    samples: int = SAMPLES,
    seed: int = 0,
    solver: bool = True,
    tell: Callable[[str], None] = lambda words: None,
) -> ShopTable:
    """A policy, greedy and its best of `samples`, beside dispatching rules and, where OR-Tools is
    installed and nobody declines it, CP-SAT in the seconds that the samples took."""
    from tenfold.domains.jobshop.solver import is_installed, solver_player

    require_draws(instances, samples, seed)
    policy(instances[:1], 0, seed)  # compiles what there is to compile, before the clock runs
    entries = [Entry("greedy", policy), Entry(f"best of {samples}", policy, samples)]
    columns = [
        play_entry(instances, entry, seed, tell) for entry in (*entries, *rule_entries(samples))
    ]
    if solver and is_installed():
        parts = [
            play_entry([instance], Entry("CP-SAT", solver_player(seconds)), seed, tell)
            for instance, seconds in zip(instances, columns[1].seconds, strict=True)
        ]
        joined = [
            [getattr(part, of)[0] for part in parts] for of in ("makespans", "seconds", "schedules")
        ]
        columns.append(Column("CP-SAT", 0, *joined))
    return ShopTable(instances, columns)
