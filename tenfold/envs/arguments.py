"""The arguments of an environment, in its name or from Python: ONE reader of names such as
`tenfold/Catch-v0(size=8)`, one writer, and checks of numbers that end with a sentence."""

import math
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.notation import parse_call, parse_number
from tenfold.core.errors import EnvironmentFault

WORDS = {"true": True, "false": False, "none": None}


def parse_value(text: str) -> Any:
    """A truth, None, a number, or the text without its quotes."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    number = parse_number(text)
    return text.strip("'\"") if number is None else number


def split_name(name: str, value: Callable[[str], Any] = parse_value) -> tuple[str, dict[str, Any]]:
    """An environment's id and its arguments, each read by `value`."""
    ident, positional, arguments = parse_call(name, "env")
    if positional:
        raise EnvironmentFault(
            f"env = {name} cannot be read: name each argument, for example {ident}(size=8)."
        )
    return ident, {key: value(text) for key, text in arguments.items()}


def join_name(ident: str, arguments: Mapping[str, Any]) -> str:
    """The name that `split_name` reads."""
    return f"{ident}({', '.join(f'{key}={value}' for key, value in arguments.items())})"


def with_absolute_path(name: str, argument: str, what: str) -> str:
    """The name with the file of an argument as an absolute path, so that it means the same file
    from any folder; `what` the file is, for the sentence where a name cannot hold its path."""
    ident, arguments = split_name(name)
    file = Path(str(arguments[argument])).absolute()
    moved = join_name(ident, arguments | {argument: file})
    if split_name(moved)[1] != arguments | {argument: str(file)}:
        raise EnvironmentFault(
            f"The {what}'s path {file} cannot be kept in a run's settings: move it to a folder "
            "without commas, quotes and brackets in its name."
        )
    return moved


def shorten(value: Any, most: int = 60) -> str:
    """A value in one short line, however large it is."""
    try:
        text = " ".join(str(value).split())
    except ValueError:  # a whole number with more digits than Python writes
        text = "a number of thousands of digits"
    return text if len(text) <= most else f"{text[: most - 3]}…"


def is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def as_float(value: Any) -> float:
    """NaN where it is no number."""
    if not isinstance(value, Real) or is_truth(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # of a whole number
        return math.inf


def as_whole(value: Any) -> int | None:
    """None where it is no whole number."""
    return int(value) if as_float(value).is_integer() else None


def read_real(name: str, value: Any) -> float:
    """A finite number."""
    if not math.isfinite(as_float(value)):
        raise EnvironmentFault(f"{name} must be a finite number, and not {shorten(value)}.")
    return float(value)


def read_whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number within limits."""
    number = as_whole(value)
    if number is None or not least <= number <= most:
        raise EnvironmentFault(
            f"{name} must be a whole number of at least {least:,} and at most {most:,}, and not "
            f"{shorten(value)}."
        )
    return number
