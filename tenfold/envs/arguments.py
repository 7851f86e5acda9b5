"""Numbers that a person gave as an environment's arguments, in its name or from Python: read, or
refused in one sentence."""

import math
from numbers import Real
from typing import Any

import numpy as np

from tenfold.core.errors import EnvironmentFault


def shown(value: Any, most: int = 60) -> str:
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
        raise EnvironmentFault(f"{name} must be a finite number, and not {shown(value)}.")
    return float(value)


def read_whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number within limits."""
    found = as_whole(value)
    if found is None or not least <= found <= most:
        raise EnvironmentFault(
            f"{name} must be a whole number of at least {least:,} and at most {most:,}, and not "
            f"{shown(value)}."
        )
    return found
