"""The group search of a spec as the spaces of a sweep.

A space is written for a key of SLM-Lab's, and drawn for a setting of ours, which may hold it scaled
or inside of a longer value. So the spec is translated with both ends of the space, or with each of
its values: what differs between the translations is where the space stands.
"""

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from tenfold.config.notation import dotted, show
from tenfold.core.errors import ConfigError
from tenfold.integrations.slm_lab.spec import Spec
from tenfold.integrations.slm_lab.translation import translate

NUMBER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])", re.IGNORECASE)
KINDS = {"uniform": "range", "loguniform": "log", "randint": "int"}
LISTS = ("choice", "grid_search")
MOST = 1_000  # values of a space with steps


def search_spaces(spec: Spec) -> dict[str, Any]:
    """The spaces by our settings' names."""
    base = texts(translate(spec).settings)
    whole: dict[str, list[str]] = {}
    pieces: dict[str, list[str]] = {}  # of values that hold spaces: text, number, text, …
    for key, value in searched(spec.values.get("search") or {}):
        name, values, space = setting_of(spec, key, value)
        index = differing_number(values)
        if index is None and space:
            raise ConfigError(f"search.{key}", "cannot be written as a space of one setting.")
        if name in whole or (name in pieces and index is None):
            raise ConfigError(f"search.{key}", f"changes {name}, which another key changes too.")
        if index is None:
            whole[name] = values
            continue
        numbers = [NUMBER.split(value)[index] for value in values]
        template = pieces.setdefault(name, NUMBER.split(base.get(name, values[0])))
        template[index] = f"{space}({numbers[0]}, {numbers[1]})" if space else listed(numbers)
    if not whole and not pieces:
        raise ConfigError("search", "is empty: there is nothing to search over.")
    return whole | {name: "".join(template) for name, template in pieces.items()}


def listed(values: list[str]) -> str:
    return f"[{', '.join(values)}]"


def setting_of(spec: Spec, key: str, space: Any) -> tuple[str, list[str], str]:
    """The setting of ours that a key of a search changes, its values as text at both ends of the
    space or for each of its values, and the space's name here, "" for a list."""
    path, _, kind = key.rpartition("__")
    values = space_values(f"search.{key}", kind, space)
    variants = [texts(translate(spec, with_value(spec, path, v)).settings) for v in values]
    names = [
        name
        for name in dict.fromkeys(name for variant in variants for name in variant)
        if len({variant.get(name) for variant in variants}) > 1
    ]
    if len(names) != 1:
        what = f"changes {', '.join(names)} together" if names else "changes nothing here"
        raise ConfigError(f"search.{key}", f"{what}: leave it out.")
    return names[0], [variant.get(names[0], "none") for variant in variants], KINDS.get(kind, "")


def differing_number(values: list[str]) -> int | None:
    """The place of the only number in which these texts differ, among text and numbers in turn;
    None if they differ otherwise."""
    split = [NUMBER.split(value) for value in values]
    if len({len(pieces) for pieces in split}) > 1:
        return None
    places = [i for i, pieces in enumerate(zip(*split, strict=True)) if len({*pieces}) > 1]
    return places[0] if len(places) == 1 and places[0] % 2 else None


def searched(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys and spaces, of nested groups or of dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from searched(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def space_values(key: str, kind: str, value: Any) -> list[Any]:
    """Both ends of an interval, or all values."""
    if not isinstance(value, list):
        raise ConfigError(key, f"= {show(value)} is not a list.")
    if kind in LISTS:
        return value
    size = 3 if kind == "qrandint" else 2
    if kind not in (*KINDS, "qrandint"):
        kinds = ", ".join((*KINDS, "qrandint", *LISTS))
        raise ConfigError(key, f"is not a space of tenfold: use {kinds}.")
    if len(value) != size or not all(isinstance(v, int | float) for v in value):
        raise ConfigError(key, f"= {value} needs {size} numbers.")
    low, high = value[:2]
    if kind == "qrandint":
        steps = range(int(low), int(high) + 1, max(int(value[2]), 1))
        if not 1 < len(steps) <= MOST:
            raise ConfigError(key, f"= {value} needs 2 to {MOST:,} values.")
        return [*steps]
    return [low, high - 1] if kind == "randint" else [low, high]  # whose end is not drawn


def with_value(spec: Spec, path: str, value: Any) -> dict[str, Any]:
    """The spec's groups with another value of a key."""
    values = deepcopy({k: v for k, v in spec.values.items() if k != "search"})
    *groups, name = path.split(".")
    group = values
    for below in groups:
        group = group.setdefault(below, {})
        if not isinstance(group, dict):
            raise ConfigError(f"search.{path}", f"stands below {below}, which is no group.")
    group[name] = value
    return values


def texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings by their dotted names, as text."""
    values = dotted(settings).items()
    return {k: show(tuple(v)) if isinstance(v, list) else show(v) for k, v in values}
