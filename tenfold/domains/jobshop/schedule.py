"""Job-shop instances and their schedules: reading, dispatching rules, and an independent
check.

A job is a list of operations that must run in order; each needs one machine, alone, for a whole
number of time units. A schedule says when each operation starts. `check_schedule` shares nothing
with the simulator in `rules.py` but the instance's two tables.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.core.random import Purpose, key, uniform

SHIPPED = Path(__file__).parent / "data"
# shortest makespans of the instances we ship, proven in the literature
OPTIMA = {"ft06": 55, "la01": 666, "ft10": 930}
LONGEST = 10**9  # a duration's limit, so that sums stay far inside 64 bits


class Scheduled(NamedTuple):
    """An operation on its machine from `start` to before `end`."""

    job: int
    operation: int
    machine: int
    start: int
    end: int


Schedule = list[Scheduled]


class Infeasible(UserError, ValueError):
    """A schedule that the shop floor does not allow; the sentence names the first violation."""


# instances


@dataclass(frozen=True, eq=False)
class Instance:
    """`machine` and `duration` of every operation, [jobs, machines] in the job's order; each job
    visits each machine once."""

    name: str
    machine: np.ndarray
    duration: np.ndarray

    def __post_init__(self) -> None:
        machine, duration = (
            np.array(a, np.int64, order="C", ndmin=2) for a in (self.machine, self.duration)
        )
        if machine.shape != duration.shape or machine.ndim != 2 or not machine.size:
            raise EnvironmentFault(
                f"{self.name}: the tables of machines {machine.shape} and durations "
                f"{duration.shape} differ."
            )
        if not (np.sort(machine, axis=1) == np.arange(machine.shape[1])).all():
            raise EnvironmentFault(
                f"{self.name}: a job does not visit each of the {machine.shape[1]} machines once."
            )
        if duration.min() < 1 or duration.max() > LONGEST:
            raise EnvironmentFault(
                f"{self.name}: durations must be whole numbers from 1 to {LONGEST:,}."
            )
        for part, table in (("machine", machine), ("duration", duration)):
            table.flags.writeable = False
            object.__setattr__(self, part, table)

    @property
    def jobs(self) -> int:
        return self.machine.shape[0]

    @property
    def machines(self) -> int:
        return self.machine.shape[1]


def read_instance(source: str | Path | Instance) -> Instance:
    """An instance by its name (ft06, la01, ft10) or from a file of the standard format.

    The first line has the numbers of jobs and machines, each further one a job: machine and
    duration of its operations in turn. Machines count from 0; empty lines and what follows a # are
    skipped.
    """
    if isinstance(source, Instance):
        return source
    path = SHIPPED / f"{source}.txt" if str(source) in OPTIMA else Path(str(source))
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise EnvironmentFault(
            f"There is no instance {source}: give one of {', '.join(OPTIMA)}, or a file's path."
        ) from None
    except UnicodeDecodeError:
        raise EnvironmentFault(
            f"{path} is not a text file, so it holds no job-shop instance."
        ) from None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}.") from None
    lines = [
        (n, words)
        for n, line in enumerate(text.splitlines(), 1)
        if (words := line.partition("#")[0].split())
    ]
    if not lines:
        raise EnvironmentFault(
            f"{path} is empty: its first line must give the numbers of jobs and machines."
        )
    number, words = lines[0]
    size = whole_numbers(path, number, words)
    if len(size) != 2 or min(size) < 1:
        raise EnvironmentFault(
            f"{path}, line {number}: the first line must be two numbers from 1, jobs and machines, "
            f"and is {' '.join(words)}."
        )
    jobs, machines = size
    if len(lines) - 1 > jobs:
        raise EnvironmentFault(
            f"{path}, line {lines[jobs + 1][0]}: there are more lines than the {jobs} jobs "
            "announced."
        )
    rows = [job_row(path, n, words, job, machines) for job, (n, words) in enumerate(lines[1:])]
    if len(rows) < jobs:
        raise EnvironmentFault(
            f"{path}, line {lines[-1][0]}: the file ends after {len(rows)} of {jobs} jobs."
        )
    return Instance(
        path.stem, np.array([row[::2] for row in rows]), np.array([row[1::2] for row in rows])
    )


def whole_numbers(path: Path, line: int, words: list[str]) -> list[int]:
    for word in words:
        if not word.removeprefix("-").isdecimal():
            raise EnvironmentFault(f"{path}, line {line}: {word} is not a whole number.")
    # anything so long is refused as too large
    return [int(word) if len(word) < 19 else LONGEST + 1 for word in words]


def job_row(path: Path, line: int, words: list[str], job: int, machines: int) -> list[int]:
    row, place = whole_numbers(path, line, words), f"{path}, line {line} (job {job})"
    if len(row) != 2 * machines:
        raise EnvironmentFault(
            f"{place}: {len(row)} numbers, where {machines} machines need {2 * machines}, a "
            "machine and a duration for each operation."
        )
    seen: set[int] = set()
    for machine, duration in zip(row[::2], row[1::2], strict=True):
        if not 0 <= machine < machines:
            raise EnvironmentFault(
                f"{place}: there is no machine {machine}; they count from 0 to {machines - 1}."
            )
        if machine in seen:
            raise EnvironmentFault(f"{place}: the job visits machine {machine} twice.")
        if not 1 <= duration <= LONGEST:
            raise EnvironmentFault(
                f"{place}: the duration on machine {machine} is {duration}; it must be from 1 to "
                f"{LONGEST:,}."
            )
        seen.add(machine)
    return row


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
        bounds.append(int(head[here].min() + instance.duration[here].sum() + tail[here].min()))
    return max(bounds)


# dispatching rules


class Waiting(NamedTuple):
    """What a rule sees of a job that waits at a free machine."""

    job: int
    operation: int
    duration: int  # of the operation it waits for
    work: int  # left in the job, this operation included
    arrived: int  # when it joined the queue
    chance: float  # uniform in [0, 1), drawn anew each time


Rule = Callable[[Waiting], float]
RULES: dict[str, Rule] = {
    "SPT": lambda w: w.duration,  # shortest processing time
    "MWKR": lambda w: -w.work,  # most work remaining
    "FIFO": lambda w: w.arrived,  # first in, first out
    "random": lambda w: w.chance,
}


def dispatch(instance: str | Path | Instance, rule: str | Rule, seed: int = 0) -> Schedule:
    """Every free machine starts the waiting job with the smallest number by the rule, the first of
    equals; none ever idles."""
    from tenfold.domains.jobshop.shops import JobShopEnv  # which imports this module

    shop, choose = read_instance(instance), RULES[rule] if isinstance(rule, str) else rule
    env, stream, draws = JobShopEnv(shop), key(seed, Purpose.RANDOM_POLICY), 0
    _, info = env.reset(seed=seed)
    while "schedule" not in info:
        action = np.full(shop.machines, shop.jobs)
        for m, options in enumerate(info["action_mask"].reshape(shop.machines, -1)[:, :-1]):
            queue = []
            for j in np.flatnonzero(options).tolist():
                k, chance = int(env.following[j]), float(uniform(stream, np.array([draws]))[0])
                queue.append(
                    Waiting(
                        j,
                        k,
                        int(shop.duration[j, k]),
                        int(shop.duration[j, k:].sum()),
                        int(env.ready[j]),
                        chance,
                    )
                )
                draws += 1
            if queue:
                action[m] = min(queue, key=choose).job
        info = env.step(action)[-1]
    return info["schedule"]


# the check


def check_schedule(instance: Instance, schedule: Iterable[tuple[int, int, int, int, int]]) -> int:
    """The makespan of a schedule that keeps every rule of the shop; `Infeasible` names the first
    one broken otherwise.

    The rules: each operation exactly once, on its machine, for its duration, from time 0 on; the
    operations of a job one after another; on a machine never two at a time.
    """
    found: dict[tuple[int, int], tuple[int, int]] = {}
    on_machine: list[list[tuple[int, int, str]]] = [[] for _ in range(instance.machines)]
    for job, operation, machine, start, end in schedule:
        what = f"operation {operation} of job {job}"
        if not (0 <= job < instance.jobs and 0 <= operation < instance.machines):
            raise Infeasible(f"There is no {what} in {instance.name}.")
        if (job, operation) in found:
            raise Infeasible(f"The {what} is scheduled twice.")
        right, long = int(instance.machine[job, operation]), int(instance.duration[job, operation])
        if machine != right:
            raise Infeasible(f"The {what} runs on machine {machine}, and needs machine {right}.")
        if end - start != long:
            raise Infeasible(
                f"The {what} takes {end - start} from {start} to {end}, and its duration is {long}."
            )
        if start < 0:
            raise Infeasible(f"The {what} starts at {start}, before time 0.")
        found[job, operation] = start, end
        on_machine[machine].append((start, end, what))
    for job in range(instance.jobs):
        for operation in range(instance.machines):
            if (job, operation) not in found:
                raise Infeasible(f"The operation {operation} of job {job} is missing.")
            if operation and found[job, operation][0] < found[job, operation - 1][1]:
                raise Infeasible(
                    f"The operation {operation} of job {job} starts at {found[job, operation][0]}, "
                    f"before the job's operation {operation - 1} ends at "
                    f"{found[job, operation - 1][1]}."
                )
    for machine, runs in enumerate(on_machine):
        runs.sort()
        for (_, end, first), (start, _, second) in pairwise(runs):
            if start < end:
                raise Infeasible(
                    f"On machine {machine} the {second} starts at {start}, while the {first} runs "
                    f"until {end}."
                )
    return max(end for _, end in found.values())
