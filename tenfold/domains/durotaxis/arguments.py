"""Reads sizes of worlds and numbers of first nodes, each one number or a range such as 300..900
that every episode draws from; and the conditions that a trained policy is evaluated in.

Imports no compiled code, so that errors appear at once.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.notation import parse_number
from tenfold.config.schema import convert_scalar
from tenfold.core.errors import ConfigError, EnvironmentFault, UserError
from tenfold.domains.durotaxis import COLONY
from tenfold.envs.arguments import (
    as_whole,
    join_name,
    read_whole,
    shorten,
    split_name,
    with_absolute_path,
)

GOAL = 0.99  # of the width
LEAST_MARGIN, MARGIN_PART = 2.0, 0.01  # how close to an edge nodes come, where no margin is given
MAX_SIDE = 10_000  # a picture of more places fits into no memory
MAX_NODES = 10_000  # rows of larger colonies are too long to keep a training batch of
SIDE = r"\d+(?:\.\.\d+)?"  # 900, or 300..900
Range = tuple[int, int]  # the least and the most, both included


def range_ends(value: Any) -> tuple[Any, Any] | None:
    """The two ends of "1..60", (1, 60) or [1, 60], unchecked; None if it is not a range."""
    if isinstance(value, str) and ".." in value:
        first, _, last = value.partition("..")
        return parse_number(first), parse_number(last)
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    return None


def read_range(name: str, value: Any, least: int, most: int) -> Range:
    """A whole number within limits, or a range of them."""
    ends = range_ends(value)
    if ends is None:
        only = read_whole(name, value, least, most)
        return only, only
    low, high = map(as_whole, ends)
    if low is None or high is None or not least <= low <= high <= most:
        raise EnvironmentFault(
            f"{name}={shorten(value)} is no range: it takes two whole numbers of at least "
            f"{least:,} and at most {most:,}, the smaller one first, such as 1..60."
        )
    return low, high


def read_size(size: Any) -> tuple[Range, Range]:
    """Width and height of "600x400", (600, 400), "300..900x200..400" or ((300, 900), (200,
    400))."""
    sides_text = (
        size.lower().split("x")
        if isinstance(size, str)
        else size
        if isinstance(size, list | tuple | np.ndarray)
        else ()
    )
    sides: list[Range] = []
    for part in sides_text:
        ends = range_ends(part)
        only = parse_number(part) if isinstance(part, str) else part
        low, high = map(as_whole, ends or (only, only))
        if low is None or high is None or low > high:
            sides = []
            break
        sides.append((low, high))
    if len(sides) != 2:
        raise EnvironmentFault(
            "A substrate's size is two whole numbers, such as 600x400, and not "
            f"{shorten(size)}{range_hint(size)}."
        )
    (narrow, width), (low, height) = sides
    if narrow < 1 or low < 1:
        raise EnvironmentFault(
            f"A substrate of {shorten(narrow)} x {shorten(low)} has no room: both sides must be at "
            "least 1."
        )
    if max(width, height) > MAX_SIDE:
        raise EnvironmentFault(
            f"A substrate of {shorten(width)} x {shorten(height)} is too large: a side is at most "
            f"{MAX_SIDE:,}."
        )
    return sides[0], sides[1]


def range_hint(size: Any) -> str:
    if ".." not in str(size):
        return ""
    return ": a range has its smaller end first, such as 300..900x200..400"


def only_size(size: Any, whose: str) -> tuple[int, int]:
    """The size of a substrate that cannot be stretched."""
    (narrow, width), (low, height) = read_size(size)
    if (narrow, low) != (width, height):
        raise EnvironmentFault(
            f"{whose} has one size, and size={shorten(size)} is a range: give its width and "
            "height, or name a kind of substrate."
        )
    return width, height


def margins_of(margin: float | None, width: int, height: int) -> tuple[float, float]:
    """The margins of nodes at left and right, and at top and bottom."""
    if margin is not None:
        return margin, margin
    return max(LEAST_MARGIN, MARGIN_PART * width), max(LEAST_MARGIN, MARGIN_PART * height)


def check_margin(margin: float | None, width: int, height: int) -> None:
    """Refuses a margin that the smallest world has no room for."""
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


# where a trained policy is tried


@dataclass(frozen=True)
class Deployment:
    """The conditions that a trained policy is evaluated in; empty ones stay as in training.
    `deterministic` takes the most probable action and rounds the number of deletions down."""

    substrate: str = ""
    size: str = ""
    nodes: int | str | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.size and not re.fullmatch(rf"{SIDE}x{SIDE}", self.size):
            raise UserError(
                f"--size {self.size} is not a width and a height: write both, such as 900x300."
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Deployment":
        """From flags of `tenfold eval`, or arguments of `ten.evaluate`."""
        substrate, size, nodes = (options.get(name) for name in ("substrate", "size", "nodes"))
        if not isinstance(substrate, str | Path | None):
            raise UserError(
                "substrate must be a name (linear, exponential, random, bend) or an .npy file's: "
                "save an array with numpy.save first."
            )
        if isinstance(size, tuple):
            size = "x".join(  # as `--size` takes it: 900, or (300, 900) as 300..900
                "..".join(map(str, side)) if isinstance(side, tuple) else str(side) for side in size
            )
        if isinstance(nodes, tuple) or (isinstance(nodes, str) and ".." in nodes):
            nodes = "..".join(map(str, read_range("--nodes", nodes, 1, MAX_NODES)))
        elif nodes is not None:
            nodes = convert_scalar(str(nodes), int, "--nodes")
            if nodes < 1:
                raise ConfigError("--nodes", f"= {nodes} is out of range: it must be at least 1.")
        return cls(str(substrate or ""), size or "", nodes, bool(options.get("deterministic")))

    def env(self, trained_in: str) -> str:
        """The name of the environment with these conditions."""
        changed = {
            "substrate": self.substrate,
            "size": self.size,
            "init_nodes": self.nodes,
            "rounding": "floor" if self.deterministic else "",
        }
        overrides = {name: value for name, value in changed.items() if value}
        if not overrides:
            return trained_in
        arguments = split_name(trained_in)[1]
        if self.substrate:  # its own slope and intercept, not those of the one trained on
            dropped = (
                "slope",
                "intercept",
                *(("size",) if self.substrate.endswith(".npy") else ()),
            )
            arguments = {name: value for name, value in arguments.items() if name not in dropped}
        return resolve_substrate(join_name(COLONY, arguments | overrides))

    @property
    def description(self) -> str:
        """The conditions that differ from training; a file by its name and the start of its
        digest."""
        ground = self.substrate
        if ground.endswith(".npy") and Path(ground).is_file():
            ground = (
                f"{Path(ground).stem} {hashlib.sha256(Path(ground).read_bytes()).hexdigest()[:6]}"
            )
        differences = (
            ground,
            self.size,
            f"{self.nodes} nodes" if self.nodes else "",
            "deterministic" if self.deterministic else "",
        )
        return ", ".join(filter(None, differences)) or "as trained"


def resolve_substrate(name: str) -> str:
    """The environment's name with a substrate's file as an absolute path."""
    file = Path(str(split_name(name)[1].get("substrate", "")))
    if file.suffix != ".npy" or not file.is_file():
        return name
    return with_absolute_path(name, "substrate", "substrate")
