"""Reads instances by name or from files, and writes files."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.domains.jobshop.formats import WRITERS, SourceText, parse
from tenfold.domains.jobshop.instances import Instance
from tenfold.envs.arguments import as_whole, shorten
from tenfold.runs.storage import replace_file

LONGEST_FILE = 50_000_000  # characters


def is_name(source: Any) -> bool:
    """Whether it names a classic instance and not a file."""
    text = str(source)
    return text in classics() or (not Path(text).exists() and classic_name(text) is not None)


def read_instance(source: str | Path | Instance) -> Instance:
    """An instance by its name (ft06, la01 … la40, ta01 … ta80 and others) or from a file in one of
    three formats: the standard one, Taillard's, or the JSON of job_shop_lib (`formats` describes
    them). A file with the name and the tables of a classic instance has its bounds too."""
    instances = read_instances(source)
    if len(instances) > 1:
        raise EnvironmentFault(f"{source} holds {len(instances)} instances, where one is needed.")
    return instances[0]


def read_instances(source: str | Path | Instance) -> list[Instance]:
    """All instances of a file; usually there is one."""
    if isinstance(source, Instance):
        return [source]
    if is_name(source):
        return [
            classic(str(source) if str(source) in classics() else str(classic_name(str(source))))
        ]
    path = Path(str(source))
    try:
        if path.is_file() and path.stat().st_size > LONGEST_FILE:
            raise EnvironmentFault(
                f"{path} has more than {LONGEST_FILE:,} characters, and no job shop needs as many."
            )
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        names = ", ".join(f"{of[0]} to {of[-1]}" for of in map(family_names, FAMILIES))
        raise EnvironmentFault(
            f"There is no instance {source}: give a file's path, or a name ({names})."
        ) from None
    except UnicodeDecodeError:
        raise EnvironmentFault(
            f"{path} is not a text file, so it holds no job-shop instance."
        ) from None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}.") from None
    return [
        with_known_bounds(instance) for instance in parse(SourceText(str(path), path.stem, text))
    ]


def family_names(family: str) -> list[str]:
    return [name for name in classics() if name.rstrip("0123456789") == family]


def with_known_bounds(instance: Instance) -> Instance:
    """Adds the bounds of the classic instance of that name, if the tables are the same and there
    are none."""
    name = classic_name(instance.name)
    if name is None or instance.bounds is not None:
        return instance
    known = classic(name)
    same = np.array_equal(known.machine, instance.machine) and np.array_equal(
        known.duration, instance.duration
    )
    return with_bounds(instance, known.bounds) if same else instance


def with_bounds(instance: Instance, bounds: tuple[int, int] | None) -> Instance:
    return Instance(instance.name, instance.machine, instance.duration, instance.machines, bounds)


def write_instance(instance: str | Path | Instance, path: str | Path, format: str = "") -> Path:
    """Writes an instance to a file: `standard`, `taillard` or `json`. Without a format it is JSON
    if the file's name ends so, else the standard one, which holds no bounds."""
    path = Path(path)
    format = format or ("json" if path.suffix.lower() == ".json" else "standard")
    if format not in WRITERS:
        raise EnvironmentFault(f"There is no format {format}: give one of {', '.join(WRITERS)}.")
    replace_file(path, WRITERS[format](read_instance(instance)).encode())
    return path


# the arguments of an environment


def instance_of_arguments(
    instance: str | Path | Instance = "ft06", optimum: Any = None, bounds: Any = None
) -> Instance:
    """The instance of `JobShop-v0(instance=…, optimum=…, bounds=…)`. Bounds are a lower bound and
    the best makespan known, `645..665` or a pair of numbers."""
    shop = read_instance(instance)
    if optimum is not None and bounds is not None:
        raise EnvironmentFault(f"{shop.name}: give the optimum or the bounds, not both.")
    if optimum is not None:
        best = as_whole(optimum)
        if best is None:
            raise EnvironmentFault(
                f"{shop.name}: optimum must be a whole number, and not {shorten(optimum)}."
            )
        return with_bounds(shop, (best, best))
    if bounds is None:
        return shop
    pair = bounds.split("..") if isinstance(bounds, str) else bounds
    limits = (
        [as_whole(int(p) if isinstance(p, str) and p.strip().isdecimal() else p) for p in pair]
        if isinstance(pair, Sequence)
        else []
    )
    if len(limits) != 2 or None in limits:
        raise EnvironmentFault(
            f"{shop.name}: bounds must be a lower bound and the best makespan known, for example "
            f"645..665, and not {shorten(bounds)}."
        )
    return with_bounds(shop, (int(limits[0] or 0), int(limits[1] or 0)))


# the classic instances


SHIPPED = Path(__file__).parent / "data"
FAMILIES = ("ft", "la", "abz", "orb", "ta")
OTHER_WORDS = {"mt": "ft", "tai": "ta"}  # of families


class Classic(NamedTuple):
    jobs: int
    machines: int
    bounds: tuple[int, int]


def rows(file: str) -> Iterator[tuple[str, list[int]]]:
    """The rows of a table in data: a name, then numbers."""
    for line in (SHIPPED / file).read_text("utf-8").splitlines():
        if fields := line.partition("#")[0].split():
            yield fields[0], [int(word) for word in fields[1:]]


@cache
def classics() -> dict[str, Classic]:
    """All instances of the package by name."""
    return {
        name: Classic(jobs, machines, (lower, upper))
        for name, (jobs, machines, lower, upper) in rows("bounds.txt")
    }


@cache
def classic(name: str) -> Instance:
    """A classic instance by its name."""
    known = classics()[name]
    if not name.startswith("ta"):
        path = SHIPPED / f"{name}.txt"
        (read,) = parse(SourceText(str(path), name, path.read_text("utf-8")))
        return Instance(name, read.machine, read.duration, read.machines, known.bounds)
    seeds = dict(rows("taillard.txt"))[name]
    machine, duration = taillard_tables(known.jobs, known.machines, seeds[0], seeds[1])
    return Instance(name, machine, duration, known.machines, known.bounds)


def classic_name(text: str) -> str | None:
    """Our name of an instance that was written otherwise (TA1, tai01, mt06)."""
    match = re.fullmatch(r"([a-z]+)[ _-]?0*([0-9]{1,3})", text.lower())
    if not match:
        return None
    family = OTHER_WORDS.get(match[1], match[1])
    candidates = (f"{family}{int(match[2]):02d}", f"{family}{int(match[2])}")
    return next((name for name in candidates if name in classics()), None)


def suite(text: str) -> list[str]:
    """The names of a suite: a family (la), or its instances of one size (ta15x15)."""
    match = re.fullmatch(r"([a-z]+)(?:[ _-]?([0-9]+)x([0-9]+))?", text.lower())
    family = match and OTHER_WORDS.get(match[1], match[1])
    names = [
        name
        for name, known in classics().items()
        if match
        and name.rstrip("0123456789") == family
        and (match[2] is None or (known.jobs, known.machines) == (int(match[2]), int(match[3])))
    ]
    if not names:
        raise UserError(f"There is no suite {text}: give one of {', '.join(suites())}.")
    return names


@cache
def suites() -> list[str]:
    """Families, and their sizes where there are several."""
    names: list[str] = []
    for family in FAMILIES:
        sizes = {
            f"{known.jobs}x{known.machines}": None
            for name, known in classics().items()
            if name.rstrip("0123456789") == family
        }
        names += [family, *(f"{family}{size}" for size in sizes if len(sizes) > 1)]
    return names


# Taillard's


def taillard_uniform(seed: int) -> Iterator[float]:
    """Taillard's generator: seed ← 16807 · seed mod (2^31 − 1), divided by the modulus."""
    while True:
        seed = 16807 * seed % (2**31 - 1)
        yield seed / (2**31 - 1)


def taillard_tables(
    jobs: int, machines: int, time_seed: int, machine_seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Machines and durations of an instance as Taillard (1993) draws them: durations from 1 to 99,
    row by row; then each job's machines, the k-th swapped with a later one or itself."""
    times, swaps = taillard_uniform(time_seed), taillard_uniform(machine_seed)
    duration = [[1 + int(99 * next(times)) for _ in range(machines)] for _ in range(jobs)]
    machine = [list(range(machines)) for _ in range(jobs)]
    for route in machine:
        for k in range(machines):
            other = k + int(next(swaps) * (machines - k))
            route[k], route[other] = route[other], route[k]
    return np.array(machine), np.array(duration)
