"""Instances by name or from files, and back to files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.jobshop.classics import FAMILIES, classic, classic_name, classics
from tenfold.domains.jobshop.formats import WRITERS, Source, parse
from tenfold.domains.jobshop.instances import Instance
from tenfold.envs.arguments import as_whole, shown
from tenfold.runs.storage import replace_file

LONGEST_FILE = 50_000_000  # characters


def is_name(source: Any) -> bool:
    """Whether that means a classic instance, and no file."""
    text = str(source)
    return text in classics() or (not Path(text).exists() and classic_name(text) is not None)


def read_instance(source: str | Path | Instance) -> Instance:
    """An instance by its name (ft06, la01 … la40, ta01 … ta80 and others) or from a file in one of
    three formats: the standard one, Taillard's, or the JSON of job_shop_lib (`formats` describes
    them). A file with the name and the tables of a classic instance has its bounds too."""
    found = read_instances(source)
    if len(found) > 1:
        raise EnvironmentFault(f"{source} holds {len(found)} instances, where one is needed.")
    return found[0]


def read_instances(source: str | Path | Instance) -> list[Instance]:
    """All instances of a file, which has one as a rule."""
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
    return [with_known_bounds(each) for each in parse(Source(str(path), path.stem, text))]


def family_names(family: str) -> list[str]:
    return [name for name in classics() if name.rstrip("0123456789") == family]


def with_known_bounds(instance: Instance) -> Instance:
    """With the bounds of a classic one of that name, if it is the same and has none."""
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
    """Writes an instance to a file: `standard`, `taillard` or `json`; where no format is given,
    JSON if the file's name ends so, else the standard one, which has no place for bounds."""
    path = Path(path)
    format = format or ("json" if path.suffix.lower() == ".json" else "standard")
    if format not in WRITERS:
        raise EnvironmentFault(f"There is no format {format}: give one of {', '.join(WRITERS)}.")
    replace_file(path, WRITERS[format](read_instance(instance)).encode())
    return path


# the arguments of an environment


def asked_instance(
    instance: str | Path | Instance = "ft06", optimum: Any = None, bounds: Any = None
) -> Instance:
    """What `JobShop-v0(instance=…, optimum=…, bounds=…)` asks for. Bounds are a lower bound and the
    best makespan known, `645..665` or a pair of numbers."""
    shop = read_instance(instance)
    if optimum is not None and bounds is not None:
        raise EnvironmentFault(f"{shop.name}: give the optimum or the bounds, not both.")
    if optimum is not None:
        best = as_whole(optimum)
        if best is None:
            raise EnvironmentFault(
                f"{shop.name}: optimum must be a whole number, and not {shown(optimum)}."
            )
        return with_bounds(shop, (best, best))
    if bounds is None:
        return shop
    pair = bounds.split("..") if isinstance(bounds, str) else bounds
    each = (
        [as_whole(int(p) if isinstance(p, str) and p.strip().isdecimal() else p) for p in pair]
        if isinstance(pair, Sequence)
        else []
    )
    if len(each) != 2 or None in each:
        raise EnvironmentFault(
            f"{shop.name}: bounds must be a lower bound and the best makespan known, for example "
            f"645..665, and not {shown(bounds)}."
        )
    return with_bounds(shop, (int(each[0] or 0), int(each[1] or 0)))
