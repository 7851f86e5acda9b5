"""The classic instances, their bounds, and suites of them. data/README.md names the sources."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.jobshop.formats import Source, parse
from tenfold.domains.jobshop.instances import Instance

SHIPPED = Path(__file__).parent / "data"
FAMILIES = ("ft", "la", "abz", "orb", "ta")
OTHER_WORDS = {"mt": "ft", "tai": "ta"}  # of families


class Classic(NamedTuple):
    jobs: int
    machines: int
    bounds: tuple[int, int]


def rows(file: str) -> Iterator[tuple[str, list[int]]]:
    """Of a table in data: a name, then numbers."""
    for line in (SHIPPED / file).read_text("utf-8").splitlines():
        if words := line.partition("#")[0].split():
            yield words[0], [int(word) for word in words[1:]]


@cache
def classics() -> dict[str, Classic]:
    """Every instance that comes with the package, by name."""
    return {
        name: Classic(jobs, machines, (lower, upper))
        for name, (jobs, machines, lower, upper) in rows("bounds.txt")
    }


@cache
def classic(name: str) -> Instance:
    """One of them."""
    known = classics()[name]
    if not name.startswith("ta"):
        path = SHIPPED / f"{name}.txt"
        (read,) = parse(Source(str(path), name, path.read_text("utf-8")))
        return Instance(name, read.machine, read.duration, read.machines, known.bounds)
    seeds = dict(rows("taillard.txt"))[name]
    machine, duration = taillard_tables(known.jobs, known.machines, seeds[0], seeds[1])
    return Instance(name, machine, duration, known.machines, known.bounds)


def classic_name(text: str) -> str | None:
    """The name as we write it, of one that was written otherwise: TA1, tai01, mt06."""
    found = re.fullmatch(r"([a-z]+)[ _-]?0*([0-9]{1,3})", text.lower())
    if not found:
        return None
    family = OTHER_WORDS.get(found[1], found[1])
    each = (f"{family}{int(found[2]):02d}", f"{family}{int(found[2])}")
    return next((name for name in each if name in classics()), None)


def suite(text: str) -> list[str]:
    """The names in a suite: a family (la), or those of one size in it (ta15x15)."""
    found = re.fullmatch(r"([a-z]+)(?:[ _-]?([0-9]+)x([0-9]+))?", text.lower())
    family = found and OTHER_WORDS.get(found[1], found[1])
    names = [
        name
        for name, known in classics().items()
        if found
        and name.rstrip("0123456789") == family
        and (found[2] is None or (known.jobs, known.machines) == (int(found[2]), int(found[3])))
    ]
    if not names:
        raise UserError(f"There is no suite {text}: give one of {', '.join(suites())}.")
    return names


@cache
def suites() -> list[str]:
    """Families, and sizes in them where there are several."""
    found: list[str] = []
    for family in FAMILIES:
        sizes = {
            f"{known.jobs}x{known.machines}": None
            for name, known in classics().items()
            if name.rstrip("0123456789") == family
        }
        found += [family, *(f"{family}{size}" for size in sizes if len(sizes) > 1)]
    return found


# Taillard's


def chances(seed: int) -> Iterator[float]:
    """His generator: seed ← 16807 · seed mod (2^31 − 1), and its share of the modulus."""
    while True:
        seed = 16807 * seed % (2**31 - 1)
        yield seed / (2**31 - 1)


def taillard_tables(
    jobs: int, machines: int, time_seed: int, machine_seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Machines and durations of an instance as Taillard (1993) draws them: durations from 1 to 99,
    row by row; then each job's machines, of which the k-th changes places with a later one, or
    itself."""
    times, swaps = chances(time_seed), chances(machine_seed)
    duration = [[1 + int(99 * next(times)) for _ in range(machines)] for _ in range(jobs)]
    machine = [list(range(machines)) for _ in range(jobs)]
    for route in machine:
        for k in range(machines):
            other = k + int(next(swaps) * (machines - k))
            route[k], route[other] = route[other], route[k]
    return np.array(machine), np.array(duration)
