"""Job-shop instances: what they are, a bound below every makespan, and random ones.

A job is a list of operations that must run in order; each needs one machine, alone, for a whole
number of time units. Jobs may skip machines, visit one again (recirculation), and have operations
that take no time.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tenfold.core.errors import EnvironmentFault

LONGEST = 10**9  # a duration's limit, so that sums stay far inside 64 bits
MOST = 100_000  # operations or machines
LARGEST = 1000  # jobs or machines of a random shop
ROUTES = ("uniform", "mixed")  # of a random shop's jobs
NO_MACHINE = -1  # behind a job's last operation


@dataclass(frozen=True, eq=False)
class Instance:
    """`machine` and `duration` of every operation, [jobs, K] in the job's order, where K is the
    length of the longest job; behind a shorter job's last operation the machine is −1 and the
    duration 0. `lengths` [jobs] are the numbers of operations.

    `machines` is the number of machines; 0 means the largest machine of the table + 1. `bounds` are
    a proven lower bound on the makespan and the best makespan known; if they are equal it is the
    optimum.
    """

    name: str
    machine: np.ndarray
    duration: np.ndarray
    machines: int = 0
    bounds: tuple[int, int] | None = None
    lengths: np.ndarray = field(init=False)

    @staticmethod
    def of_jobs(
        name: str,
        jobs: Sequence[Sequence[tuple[int, int]]],
        machines: int = 0,
        bounds: tuple[int, int] | None = None,
    ) -> "Instance":
        """From a list of jobs, each a list of operations (machine, duration)."""
        table = np.zeros((2, len(jobs), max((len(job) for job in jobs), default=0)), np.int64)
        table[0] = NO_MACHINE
        for j, job in enumerate(jobs):
            if len(job):
                rows = whole_numbers(f"{name}, job {j}", job)
                if rows.shape != (len(job), 2):
                    raise EnvironmentFault(
                        f"{name}, job {j}: each operation is two numbers, a machine and a duration."
                    )
                table[:, j, : len(job)] = rows.T
        return Instance(name, table[0], table[1], machines, bounds)

    def __post_init__(self) -> None:
        machine, duration = (
            whole_numbers(f"{self.name}, the table of {part}", table)
            for part, table in (("machines", self.machine), ("durations", self.duration))
        )
        if not machine.size and not duration.size:
            raise EnvironmentFault(f"{self.name} has no jobs, or no operations.")
        if machine.shape != duration.shape or machine.ndim != 2:
            raise EnvironmentFault(
                f"{self.name}: the tables of machines {machine.shape} and durations "
                f"{duration.shape} differ."
            )
        lengths = (machine >= 0).sum(1)
        exists = np.arange(machine.shape[1]) < lengths[:, None]
        if ((machine == NO_MACHINE) == exists).any() or (duration[~exists] != 0).any():
            raise EnvironmentFault(
                f"{self.name}: machines count from 0, and behind a job's last operation the "
                f"machine is {NO_MACHINE} and the duration 0."
            )
        if not lengths.all():
            raise EnvironmentFault(f"{self.name}: job {lengths.argmin()} has no operations.")
        if self.machines and self.machines <= machine.max():
            raise EnvironmentFault(
                f"{self.name}: a job visits machine {machine.max()}, and the {self.machines} "
                f"machines count from 0 to {self.machines - 1}."
            )
        if max(machine.size, machine.max() + 1, self.machines) > MOST:
            raise EnvironmentFault(
                f"{self.name}: more than {MOST:,} operations or machines are too many."
            )
        if duration.min() < 0 or duration.max() > LONGEST:
            raise EnvironmentFault(
                f"{self.name}: durations must be whole numbers from 0 to {LONGEST:,}."
            )
        if not duration.any():
            raise EnvironmentFault(f"{self.name}: no operation takes any time.")
        machine, duration = (a[:, : lengths.max()].copy() for a in (machine, duration))
        for part, table in (("machine", machine), ("duration", duration), ("lengths", lengths)):
            table.flags.writeable = False
            object.__setattr__(self, part, table)
        object.__setattr__(self, "machines", int(self.machines or machine.max() + 1))
        if self.bounds is not None:
            object.__setattr__(self, "bounds", checked_bounds(self, self.bounds))

    @property
    def jobs(self) -> int:
        return self.machine.shape[0]

    @property
    def operations(self) -> int:
        """The number of operations of all jobs."""
        return int(self.lengths.sum())

    @property
    def best_known(self) -> int | None:
        """The shortest known makespan, if there is one."""
        return None if self.bounds is None else self.bounds[1]

    @property
    def optimum(self) -> int | None:
        """The best known makespan, if it is proven to be optimal."""
        return self.bounds[1] if self.bounds and self.bounds[0] == self.bounds[1] else None

    def job(self, j: int) -> list[tuple[int, int]]:
        """Operations (machine, duration) of a job in order."""
        length = int(self.lengths[j])
        return list(
            zip(self.machine[j, :length].tolist(), self.duration[j, :length].tolist(), strict=True)
        )


def reversed_shop(instance: Instance) -> Instance:
    """The shop with every job's operations in the opposite order. A schedule of one, played from
    its end, is a schedule of the other with the same makespan."""
    column = np.arange(instance.machine.shape[1])
    back = instance.lengths[:, None] - 1 - column
    back = np.where(back >= 0, back, column)  # behind a job's last operation nothing moves
    machine, duration = (
        np.take_along_axis(table, back, 1) for table in (instance.machine, instance.duration)
    )
    return replace(instance, machine=machine, duration=duration)


def whole_numbers(what: str, value: object) -> np.ndarray:
    """A table of whole numbers; others are refused, never rounded."""
    try:
        array = np.array(value, order="C", ndmin=2)
        with np.errstate(invalid="ignore"):  # NaN
            kept = array.astype(np.int64)
        if bool((kept == array).all()):
            return kept
    except (TypeError, ValueError, OverflowError):  # text, or lists of several lengths
        pass
    raise EnvironmentFault(f"{what}: {value!r:.60} is no table of whole numbers.")


def checked_bounds(instance: Instance, bounds: Iterable[int]) -> tuple[int, int]:
    """Refuses bounds that cannot be true."""
    lower, upper = map(int, bounds)
    least, most = lower_bound(instance), int(instance.duration.sum())
    if not lower <= upper:
        raise EnvironmentFault(
            f"{instance.name}: the bounds {lower} and {upper} must be a lower bound and the best "
            "makespan known, which is not below it."
        )
    if upper < least:
        raise EnvironmentFault(
            f"{instance.name}: no schedule is shorter than {least}, so {upper} cannot be the best "
            "makespan known."
        )
    if lower > most:
        raise EnvironmentFault(
            f"{instance.name}: one operation after another takes {most}, so {lower} cannot be a "
            "lower bound."
        )
    return lower, upper


def lower_bound(instance: Instance) -> int:
    """No schedule is shorter: max of the jobs' work and, for each machine, its least head + its
    work + its least tail.

    The head of an operation is the job's work before it, the tail the work after it.
    """
    ends = instance.duration.cumsum(1)
    head, tail = ends - instance.duration, ends[:, -1:] - ends
    bounds = [int(ends[:, -1].max())]
    for m in range(instance.machines):
        here = instance.machine == m
        if here.any():
            bounds.append(int(head[here].min() + instance.duration[here].sum() + tail[here].min()))
    return max(bounds)


def odd_shop() -> Instance:
    """For examples of pairs: jobs of different lengths, a machine visited twice, one that no job
    needs, operations without duration."""
    jobs = [[(0, 2), (1, 0), (0, 3), (2, 1), (0, 0)], [(1, 4)], [(2, 0), (0, 0)], [(2, 2), (2, 1)]]
    return Instance.of_jobs("odd", jobs, machines=4)


# random ones


def random_tables(
    rng: np.random.Generator, shops: int, jobs: int, machines: int, low: int = 1, high: int = 99
) -> tuple[np.ndarray, np.ndarray]:
    """Machines and durations [shops, jobs, machines] as in Taillard's instances: durations uniform
    from `low` to `high`, routes uniform over all orders of the machines."""
    shape = (shops, jobs, machines)
    duration = rng.integers(low, high, shape, endpoint=True)
    machine = rng.permuted(np.broadcast_to(np.arange(machines), shape), axis=2)
    return machine, duration


def alike_routes(rng: np.random.Generator, machine: np.ndarray) -> np.ndarray:
    """Makes the routes [shops, jobs, machines] of every second shop similar, as they are in real
    shops and in many hard instances: the jobs of such a shop follow one order of the machines with
    noise of size `spread`. With 0 it is a flow shop; from 2 on hardly any order is left."""
    shops, _, machines = machine.shape
    spread = 2 * rng.random((shops, 1, 1))
    order = rng.permuted(np.broadcast_to(np.arange(machines), (shops, machines)), axis=1)
    noisy = order[:, None] / machines + spread * rng.random(machine.shape)
    alike = np.arange(shops) % 2 == rng.integers(2)
    return np.where(alike[:, None, None], noisy.argsort(2), machine)


def random_shop(
    rng: np.random.Generator, jobs: int, machines: int, low: int = 1, high: int = 99
) -> Instance:
    """One random shop with uniform routes."""
    machine, duration = random_tables(rng, 1, jobs, machines, low, high)
    return Instance(f"random {jobs}x{machines}", machine[0], duration[0], machines)


@dataclass(frozen=True)
class RandomShops:
    """Random shops whose numbers of jobs and machines are uniform between two limits, both
    included. Routes are uniform; with `routes` mixed, those of every second shop are similar."""

    jobs: tuple[int, int]
    machines: tuple[int, int]
    low: int = 1
    high: int = 99
    routes: str = ROUTES[0]

    def __post_init__(self) -> None:
        for what, (least, most) in (("jobs", self.jobs), ("machines", self.machines)):
            if not 1 <= least <= most <= LARGEST:
                raise EnvironmentFault(
                    f"random = {self}: {least} to {most} {what} cannot be drawn; give numbers from "
                    f"1 to {LARGEST}, the smaller one first."
                )
        if not 1 <= self.low <= self.high <= LONGEST:
            raise EnvironmentFault(
                f"random = {self}: durations from {self.low} to {self.high} cannot be drawn; give "
                f"whole numbers from 1 to {LONGEST:,}, the smaller one first."
            )
        if self.routes not in ROUTES:
            raise EnvironmentFault(f"routes = {self.routes} must be {' or '.join(ROUTES)}.")

    @staticmethod
    def parse(random: object, routes: str = ROUTES[0]) -> "RandomShops":
        """From `10x5`, or with ranges `6..10x5..10`: jobs x machines."""
        match = re.fullmatch(
            r"(\d{1,9})(?:\.\.(\d{1,9}))?[x×](\d{1,9})(?:\.\.(\d{1,9}))?", f"{random}"
        )
        if not match:
            raise EnvironmentFault(
                f"random = {random} cannot be read: give jobs x machines, for example 10x5, or "
                "ranges of them, for example 6..10x5..10."
            )
        j, to_j, m, to_m = match.groups()
        return RandomShops((int(j), int(to_j or j)), (int(m), int(to_m or m)), routes=routes)

    def __str__(self) -> str:
        return "x".join(
            f"{least}" if least == most else f"{least}..{most}"
            for least, most in (self.jobs, self.machines)
        )

    def size(self, rng: np.random.Generator) -> tuple[int, int]:
        """Draws the numbers of jobs and machines."""
        jobs, machines = (
            int(rng.integers(*limits, endpoint=True)) for limits in (self.jobs, self.machines)
        )
        return jobs, machines

    def draw(self, rng: np.random.Generator) -> Instance:
        machine, duration = self.draw_tables(rng, 1)
        _, jobs, machines = machine.shape
        return Instance(f"random {jobs}x{machines}", machine[0], duration[0], machines)

    def draw_tables(self, rng: np.random.Generator, shops: int) -> tuple[np.ndarray, np.ndarray]:
        """Machines and durations [shops, jobs, machines] of several shops of one size."""
        machine, duration = random_tables(rng, shops, *self.size(rng), self.low, self.high)
        if self.routes == "mixed":
            machine = alike_routes(rng, machine)
        return machine, duration
