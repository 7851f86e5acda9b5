"""Settings as text and as nested mappings: numbers, calls, YAML files, dotted names, and
suggestions for misspelled names."""

import math
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from tenfold.core.errors import ConfigError

MULTIPLES = {"k": 10**3, "M": 10**6, "G": 10**9}
NUMBER = re.compile(r"[+-]?(\d[\d_]*)?\.?\d*([eE][+-]?\d+)?[kMG]?")


MOST_VALUES = 10**6  # of a YAML file, with what its aliases stand for
CLOSING = {"(": ")", "[": "]"}


def balanced(text: str) -> bool:
    """Whether brackets are balanced."""
    awaited: list[str] = []
    for letter in text:
        if letter in CLOSING:
            awaited.append(CLOSING[letter])
        elif letter in CLOSING.values() and (not awaited or awaited.pop() != letter):
            return False
    return not awaited


def parse_list(text: str) -> list[str] | None:
    """`64, 64`, with or without brackets, as a list; None if the text is no list."""
    inside = text.strip()
    if inside[:1] in CLOSING and inside[-1:] == CLOSING[inside[0]]:
        inside = inside[1:-1].strip()
    items = [part.strip() for part in inside.removesuffix(",").split(",")] if inside else []
    brackets = any(letter in "([)]" for letter in inside)
    return None if brackets or not all(items) else items


def parse_call(text: str, key: str = "") -> tuple[str, list[str], dict[str, str]]:
    """`name(a, b(c), k=d)` -> ("name", ["a", "b(c)"], {"k": "d"}). No expression is ever
    evaluated."""
    match = re.fullmatch(r"\s*([^()]*?)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None or not balanced(text):
        raise ConfigError(
            key,
            f"= {show(text)} cannot be read: write it as a name or a call, such as name(1, key=2).",
        )
    name, inside = match.group(1), match.group(2) or ""
    positional, named = [], {}
    for part in split_list(inside):
        word = re.match(r"(\w+)\s*=\s*(.*)", part, re.DOTALL)
        if word and word.group(1) in named:
            raise ConfigError(key, f"= {show(text)}: {word.group(1)} is given twice.")
        if word:
            named[word.group(1)] = word.group(2)
        else:
            positional.append(part)
    return name, positional, named


def with_arguments(text: str, more: Mapping[str, Any]) -> str:
    """A call with additional named arguments."""
    if not more:
        return text
    name, positional, named = parse_call(text)
    if twice := [key for key in more if key in named]:
        raise ConfigError(
            twice[0], f"= {show(more[twice[0]])} is given twice: {text} says it as well."
        )
    arguments = [f"{key}={show(value)}" for key, value in {**named, **more}.items()]
    return f"{name}({', '.join([*positional, *arguments])})"


def split_list(inside: str) -> list[str]:
    """`a, b(c, d), [e, f]` -> ["a", "b(c, d)", "[e, f]"]."""
    items, depth, start = [], 0, 0
    for index, letter in enumerate(inside + ","):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            items.append(inside[start:index].strip())
            start = index + 1
    return [part for part in items if part]


def parse_number(text: str) -> int | float | None:
    """300k, 1.5M, 1e-3, 1_000 as numbers; None where the text is not one."""
    text = text.strip()
    if not text or not NUMBER.fullmatch(text):
        return None
    scale = MULTIPLES.get(text[-1], 1)
    digits = text[:-1] if scale > 1 else text
    try:
        number = float(digits)
        if scale == 1 and re.fullmatch(r"[+-]?[\d_]+", digits):
            return int(digits)
    except ValueError:  # 1__0, or more digits than Python reads
        return None
    scaled = number * scale
    whole = math.isfinite(scaled) and scale > 1 and abs(scaled - round(scaled)) < 1e-6
    return round(scaled) if whole else scaled


def show(value: Any) -> str:
    """A value as a user would write it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, tuple):
        return ",".join(map(show, value)) or "[]"
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def nearest(word: object, known: tuple[object, ...] | list[str], most: int = 1) -> str:
    """A suggestion of at most `most` similar names; an exact match up to case stands alone."""
    spelled = {str(candidate).lower().lstrip("-"): str(candidate) for candidate in known}
    meant = str(word).lower().lstrip("-")
    matches = [meant] if meant in spelled else get_close_matches(meant, spelled, most, 0.6)
    *others, last = [spelled[name] for name in matches] or [""]
    named = f"{', '.join(others)} or {last}" if others else last
    return f" (did you mean {named}?)" if named else ""


def read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a YAML file, as nested groups."""
    return nested(load_yaml(path))


def parse_yaml(text: str) -> Any:
    """YAML whose aliases make no value endless, or larger than settings are."""
    loaded = yaml.safe_load(text)
    if written_out(loaded, {}) > MOST_VALUES:
        raise ValueError("its aliases make a value endless or too large")
    return loaded


def written_out(value: Any, sizes: dict[int, float]) -> float:
    """How many values there are in lists and mappings, each counted as often as it is seen;
    infinite where one is inside itself."""
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in sizes:
        sizes[id(value)] = math.inf  # to those inside it
        inside = value.values() if isinstance(value, dict) else value
        sizes[id(value)] = 1 + sum([written_out(item, sizes) for item in inside])
    return sizes[id(value)]


def load_yaml(path: Path) -> dict[str, Any]:
    """A YAML file, which must hold a mapping, as it is."""
    try:
        loaded = parse_yaml(path.read_text())
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise ConfigError(
            "", f"{path} cannot be read as YAML: {' '.join(str(error).split())}."
        ) from None
    if not isinstance(loaded or {}, dict):
        raise ConfigError(
            "", f"{path} must hold settings as `key: value` lines, not {show(loaded)}."
        )
    return loaded or {}


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted names ("agent.lr") as nested groups."""
    groups_of_settings: dict[str, Any] = {}
    for path, value in settings.items():
        *groups, name = str(path).split(".")
        level: Any = groups_of_settings
        for group in groups:
            level = level.setdefault(group, {})
            if not isinstance(level, dict):
                raise ConfigError(
                    str(path),
                    f"cannot stand beside {group}: {show(level)}, which is no group of settings.",
                )
        if not isinstance(value, Mapping):
            level[name] = value
        elif isinstance(level.setdefault(name, {}), dict):
            level[name] |= nested(value)
        else:
            raise ConfigError(
                name, f"= {show(level[name])} is given twice, once as a group of settings."
            )
    return groups_of_settings


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `change`, group by group."""
    merged = dict(base)
    for key, value in change.items():
        below = merged.get(key)
        merged[key] = (
            merge(below, value)
            if isinstance(below, Mapping) and isinstance(value, Mapping)
            else value
        )
    return merged


def dotted(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The reverse of `nested`: values by their dotted names."""
    values: dict[str, Any] = {}
    for key, value in settings.items():
        path = prefix + str(key).replace("-", "_")
        values |= dotted(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return values


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Dotted names of the values in which two nested mappings differ."""
    a, b = dotted(one), dotted(other)
    return sorted(path for path in a.keys() | b.keys() if a.get(path) != b.get(path))
