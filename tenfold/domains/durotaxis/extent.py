"""How large a world is, and how many nodes begin in it: numbers, or ranges such as 300..900 from
which every episode draws its own.

A side is drawn evenly. The number of nodes is drawn evenly on a logarithmic scale, every doubling
as often as any other: colonies double and halve in a step, and one begun with 1 node differs more
from one with 5 than 55 nodes do from 60.
"""

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

from tenfold.config.notation import parse_number
from tenfold.core.errors import EnvironmentFault
from tenfold.core.kernels import kernel
from tenfold.core.random import draw_uniform
from tenfold.envs.arguments import as_whole, read_whole, shown

GOAL = 0.99  # of the width
LEAST_MARGIN, MARGIN_PART = 2.0, 0.01  # how close to an edge nodes come, where no margin is given
LONGEST = 10_000  # a side: a picture of more places fits into no memory
# of an episode's start: those before are its substrate's coefficients
WIDTH_DRAW, HEIGHT_DRAW, NODES_DRAW = 3, 4, 5
Range = tuple[int, int]  # the least and the most, both included


class Extent(IntEnum):
    """One episode's room in numbers: its sides, how close to them nodes come, and where the goal
    is."""

    WIDTH = 0
    HEIGHT = 1
    MARGIN_X = 2
    MARGIN_Y = 3
    GOAL = 4


# what is asked for


def ends_of(value: Any) -> tuple[Any, Any] | None:
    """The two ends of "1..60", (1, 60) or [1, 60] as they were given; None where it is no range."""
    if isinstance(value, str) and ".." in value:
        first, _, last = value.partition("..")
        return parse_number(first), parse_number(last)
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    return None


def read_range(name: str, value: Any, least: int, most: int) -> Range:
    """A whole number within limits, or a range of them."""
    ends = ends_of(value)
    if ends is None:
        only = read_whole(name, value, least, most)
        return only, only
    low, high = map(as_whole, ends)
    if low is None or high is None or not least <= low <= high <= most:
        raise EnvironmentFault(
            f"{name}={shown(value)} is no range: it takes two whole numbers of at least {least:,} "
            f"and at most {most:,}, the smaller one first, such as 1..60."
        )
    return low, high


def read_size(size: Any) -> tuple[Range, Range]:
    """Width and height of "600x400", (600, 400), "300..900x200..400" or ((300, 900), (200,
    400))."""
    parts = (
        size.lower().split("x")
        if isinstance(size, str)
        else size
        if isinstance(size, list | tuple | np.ndarray)
        else ()
    )
    sides: list[Range] = []
    for part in parts:
        ends = ends_of(part)
        only = parse_number(part) if isinstance(part, str) else part
        low, high = map(as_whole, ends or (only, only))
        if low is None or high is None or low > high:
            sides = []
            break
        sides.append((low, high))
    if len(sides) != 2:
        raise EnvironmentFault(
            "A substrate's size is two whole numbers, such as 600x400, and not "
            f"{shown(size)}{range_hint(size)}."
        )
    (narrow, width), (low, height) = sides
    if narrow < 1 or low < 1:
        raise EnvironmentFault(
            f"A substrate of {shown(narrow)} x {shown(low)} has no room: both sides must be at "
            "least 1."
        )
    if max(width, height) > LONGEST:
        raise EnvironmentFault(
            f"A substrate of {shown(width)} x {shown(height)} is too large: a side is at most "
            f"{LONGEST:,}."
        )
    return sides[0], sides[1]


def range_hint(size: Any) -> str:
    if ".." not in str(size):
        return ""
    return ": a range has its smaller end first, such as 300..900x200..400"


def only_size(size: Any, whose: str) -> tuple[int, int]:
    """The one size of what cannot be stretched."""
    (narrow, width), (low, height) = read_size(size)
    if (narrow, low) != (width, height):
        raise EnvironmentFault(
            f"{whose} has one size, and size={shown(size)} is a range: give its width and height, "
            "or name a kind of substrate."
        )
    return width, height


def margins_of(margin: float | None, width: int, height: int) -> tuple[float, float]:
    """How close nodes come to the left and right, and to the top and bottom."""
    if margin is not None:
        return margin, margin
    return max(LEAST_MARGIN, MARGIN_PART * width), max(LEAST_MARGIN, MARGIN_PART * height)


def check_margin(margin: float | None, width: int, height: int) -> None:
    """Of the smallest world that is drawn: larger ones have more room."""
    margin_x, margin_y = margins_of(margin, width, height)
    if not (margin_x >= 0 and 2 * margin_x < width and 2 * margin_y < height):
        raise EnvironmentFault(
            f"A margin of {margin_x:g} leaves no room inside {width} x {height}."
        )
    if width - margin_x < GOAL * width - 1e-9:
        least = round(margin_x / (1 - GOAL))
        raise EnvironmentFault(
            f"The goal at x = {GOAL * width:g} cannot be reached: with a margin of "
            f"{margin_x:g} nodes come no further than {width - margin_x:g}; make the substrate "
            f"at least {least} wide, or give a smaller margin."
        )


# a reference: the equations


def between_reference(limits: Range, u: float) -> int:
    return limits[0] + math.floor(u * (limits[1] - limits[0] + 1))


def draw_extent_reference(
    sides: tuple[Range, Range], margin: float | None, uniform: Callable[[int], float]
) -> list[float]:
    """One episode's room, from the episode's numbers uniform(0), uniform(1), …"""
    width = between_reference(sides[0], uniform(WIDTH_DRAW))
    height = between_reference(sides[1], uniform(HEIGHT_DRAW))
    margin_x, margin_y = margins_of(margin, width, height)
    goal = min(GOAL * width, width - margin_x)  # they may differ in the last bit
    return [float(width), float(height), margin_x, margin_y, goal]


def draw_nodes_reference(limits: Range, u: float) -> int:
    low, high = limits
    return min(max(math.floor(low * math.exp(u * math.log((high + 1) / low))), low), high)


# compiled


@kernel
def draw_between(low, high, u):
    return low + int(u * (high - low + 1))


@kernel
def draw_nodes(low, high, u):
    return min(max(int(low * np.exp(u * np.log((high + 1) / low))), low), high)


@kernel
def draw_extent(rules, stream, extent):
    width = float(draw_between(rules.least_width, rules.width, draw_uniform(stream, WIDTH_DRAW)))
    height = float(
        draw_between(rules.least_height, rules.height, draw_uniform(stream, HEIGHT_DRAW))
    )
    usual = rules.margin < 0
    extent[0], extent[1] = width, height
    extent[2] = max(LEAST_MARGIN, MARGIN_PART * width) if usual else rules.margin
    extent[3] = max(LEAST_MARGIN, MARGIN_PART * height) if usual else rules.margin
    extent[4] = min(GOAL * width, width - extent[2])
