"""What a colony lives on: a rectangle whose stiffness, the intensity I, rises to the right.

    linear        I(x) = m·x + b
    exponential   I(x) = b·exp(m·x), at most 1,000
    random        linear or exponential, drawn each episode with its coefficients
    bend          I(x, y) = (m·x + b)·exp(−((y − c(x)) / 25)²),  ridge c(x) = H/2 + A·(sin(2πfx/W +
    φ) − sin φ),
                  f ∈ [0.5, 1], A·f ∈ [25, 48] and φ drawn each episode
    an array [H, W], a function of (x, y), or the name of an .npy file: the user's own

A place is looked up at its integer position, clamped inside. On rectangles other than 600 × 400 a
bend's A is scaled by min(W/600, H/400): its steepest slope, about 1/2, stays under tan(π/6), the
steepest that a colony can follow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.kernels import kernel
from tenfold.core.random import draw_uniform
from tenfold.domains.durotaxis.arguments import (
    GOAL,
    LEAST_MARGIN,
    MARGIN_PART,
    Range,
    margins_of,
    only_size,
    read_size,
)
from tenfold.envs.arguments import read_real, shorten

KINDS = ("linear", "exponential", "random", "bend")
SLOPE, INTERCEPT = 0.05, 1.0
CAP = 1000.0  # of exponential intensities
LARGEST = 1e6  # of all others: more overflows what features and rewards can hold
EXPONENT = 700.0  # above it exp overflows
RIDGE_WIDTH = 25.0
USUAL = (600, 400)
LINEAR_RANGES, EXPONENTIAL_RANGES = ((0.01, 0.1), (0.5, 2.0)), ((0.01, 0.05), (0.5, 1.5))
FREQUENCIES, STEEPNESS = (0.5, 1.0), (25.0, 48.0)
# counters of an episode's draws: those before are its substrate's coefficients
WIDTH_DRAW, HEIGHT_DRAW, NODES_DRAW = 3, 4, 5


class SubstrateKind(IntEnum):
    LINEAR = 0
    EXPONENTIAL = 1
    BEND = 2
    GRID = 3
    RANDOM = 4


LINEAR, EXPONENTIAL, BEND, GRID, RANDOM = (
    int(kind) for kind in SubstrateKind
)  # numbers for compiled code


class Extent(IntEnum):
    """Columns of an episode's extent: its sides, the margins of nodes, the goal's x."""

    WIDTH = 0
    HEIGHT = 1
    MARGIN_X = 2
    MARGIN_Y = 3
    GOAL = 4


class Ground(IntEnum):
    """Columns of an episode's substrate: its kind and coefficients."""

    KIND = 0
    SLOPE = 1
    INTERCEPT = 2
    AMPLITUDE = 3
    FREQUENCY = 4
    PHASE = 5


@dataclass(frozen=True)
class Substrate:
    """The substrate of all episodes: `grid` [H, W] of a user's substrate, else one number. Sides
    are the longest that an episode draws, and `least` the shortest."""

    kind: SubstrateKind
    width: int
    height: int
    slope: float
    intercept: float
    grid: np.ndarray
    least: tuple[int, int]


def make_substrate(
    substrate: Any, size: Any = None, slope: Any = None, intercept: Any = None
) -> Substrate:
    """Refuses a substrate that no colony could live on, with the reason."""
    m = SLOPE if slope is None else read_real("slope", slope)
    b = INTERCEPT if intercept is None else read_real("intercept", intercept)
    substrate = str(substrate) if isinstance(substrate, Path) else substrate
    named = isinstance(substrate, str) and not substrate.endswith(".npy")
    if (slope is not None or intercept is not None) and (not named or substrate == "random"):
        whose = "The random substrate draws its own" if named else "A substrate of your own has no"
        raise EnvironmentFault(f"{whose} slope and intercept: leave them out, or name a kind.")
    if not named:
        return user_substrate(substrate, size)
    if substrate not in KINDS:
        raise unknown_substrate(substrate)
    (narrow, width), (low, height) = read_size(USUAL if size is None else size)
    if b <= 0 or (substrate != "exponential" and m * width + b <= 0):
        raise EnvironmentFault(
            f"Slope {m:g} and intercept {b:g} give an intensity that is not positive everywhere."
        )
    if substrate == "exponential" and m * width > EXPONENT:
        raise EnvironmentFault(
            f"An intensity of {b:g}·exp({m:g}·x) overflows at x = {width}: take a slope under "
            f"{EXPONENT / width:g}."
        )
    if substrate != "exponential" and m * width + b > LARGEST:
        raise EnvironmentFault(
            f"An intensity of {m:g}·x + {b:g} overflows: at x = {width} it is over {LARGEST:g}."
        )
    none = np.zeros((1, 1))
    return Substrate(SubstrateKind[substrate.upper()], width, height, m, b, none, (narrow, low))


def unknown_substrate(substrate: Any) -> EnvironmentFault:
    return EnvironmentFault(
        f"There is no substrate {shorten(substrate)}: take {', '.join(KINDS)}, an .npy file, or "
        "from Python an array or a function."
    )


def user_substrate(substrate: Any, size: Any) -> Substrate:
    """From an array, a function of (x, y), or the name of a file with an array."""
    if callable(substrate):
        size = only_size(USUAL if size is None else size, "A function as substrate")
        return grid_substrate(evaluate_function(substrate, size), size, "function's result")
    if isinstance(substrate, str):
        substrate = load_grid(substrate)
    elif not isinstance(substrate, list | tuple) and not hasattr(substrate, "__array__"):
        raise unknown_substrate(substrate)
    try:
        grid = np.asarray(substrate)
    except Exception as error:
        # lists of lists may have any shape, and other packages' arrays raise what they want
        raise EnvironmentFault(f"The substrate is no array of numbers: {shorten(error)}.") from None
    return grid_substrate(grid, size)


def load_grid(file: str) -> np.ndarray:
    if not Path(file).is_file():
        raise EnvironmentFault(f"There is no file {file} with a substrate.")
    try:
        with open(file, "rb") as opened:
            grid = np.load(opened, allow_pickle=False)
    except Exception as error:  # a torn file breaks wherever it was torn
        raise EnvironmentFault(
            f"{file} holds no array of numbers: {shorten(error).rstrip('.')}."
        ) from None
    if not isinstance(grid, np.ndarray):
        raise EnvironmentFault(
            f"{file} is an archive of arrays: save the one array of the substrate with np.save."
        )
    return grid


def evaluate_function(function: Callable[..., Any], size: tuple[int, int]) -> np.ndarray:
    """The function of (x, y) at every integer position."""
    width, height = size
    x, y = np.meshgrid(np.arange(width, dtype=np.float64), np.arange(height, dtype=np.float64))
    try:
        values = np.asarray(function(x, y))
    except Exception as error:  # a user's own code
        raise EnvironmentFault(
            f"The substrate's function raised {type(error).__name__}: "
            f"{shorten(error, 300).rstrip('.')}; it is called with two arrays x and y."
        ) from error
    if values.shape not in ((), (height, width)):
        raise EnvironmentFault(
            f"The substrate's function returned the shape {values.shape}, and {(height, width)}, "
            "that of its x and y, is needed."
        )
    return np.broadcast_to(values, (height, width))


def grid_substrate(grid: np.ndarray, size: Any, what: str = "array") -> Substrate:
    if grid.ndim != 2 or grid.dtype.kind not in "fiu":
        raise EnvironmentFault(
            f"A substrate's {what} has real numbers in two dimensions [height, width], and this "
            f"one has the shape {grid.shape} and the type {grid.dtype}."
        )
    height, width = grid.shape
    width, height = only_size((width, height) if size is None else size, f"The substrate's {what}")
    if grid.shape != (height, width):
        raise EnvironmentFault(
            f"The substrate's {what} has the shape {grid.shape}, and a size of {width} x {height} "
            f"needs {(height, width)}."
        )
    values = np.array(grid, np.float64, order="C")  # a copy: the user may go on with theirs
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > LARGEST:
        raise EnvironmentFault(
            f"The substrate's {what} must hold finite numbers from 0 to {LARGEST:g}."
        )
    return Substrate(SubstrateKind.GRID, width, height, 0.0, 0.0, values, (width, height))


# a reference: the equations


def draw_ground_reference(
    substrate: Substrate, extent: Sequence[float], uniform: Callable[[int], float]
) -> list[float]:
    """One episode's coefficients from the uniform draws uniform(0), uniform(1), …"""

    def between(limits: tuple[float, float], draw: int) -> float:
        return limits[0] + (limits[1] - limits[0]) * uniform(draw)

    kind, m, b, amplitude, frequency, phase = (
        substrate.kind,
        substrate.slope,
        substrate.intercept,
        0.0,
        0.0,
        0.0,
    )
    if kind == SubstrateKind.RANDOM:
        kind = SubstrateKind.LINEAR if uniform(0) < 0.5 else SubstrateKind.EXPONENTIAL
        ranges = LINEAR_RANGES if kind == SubstrateKind.LINEAR else EXPONENTIAL_RANGES
        m, b = between(ranges[0], 1), between(ranges[1], 2)
    if kind == SubstrateKind.BEND:
        frequency = between(FREQUENCIES, 0)
        scale = min(extent[0] / USUAL[0], extent[1] / USUAL[1])
        amplitude = between(STEEPNESS, 1) / frequency * scale
        phase = 2 * math.pi * uniform(2)
    return [float(kind), m, b, amplitude, frequency, phase]


def intensity_reference(
    substrate: Substrate, extent: Sequence[float], ground: Any, x: float, y: float
) -> float:
    width, height = int(extent[0]), int(extent[1])
    column, row = min(max(int(x), 0), width - 1), min(max(int(y), 0), height - 1)
    kind, m, b, amplitude, frequency, phase = ground
    if kind == SubstrateKind.GRID:
        return float(substrate.grid[row, column])
    if kind == SubstrateKind.EXPONENTIAL:
        return min(b * math.exp(m * column), CAP)
    level = m * column + b
    if kind == SubstrateKind.BEND:
        turn = math.sin(2 * math.pi * frequency * column / width + phase) - math.sin(phase)
        level *= math.exp(-(((row - (height / 2 + amplitude * turn)) / RIDGE_WIDTH) ** 2))
    return level


def between_reference(limits: Range, u: float) -> int:
    return limits[0] + math.floor(u * (limits[1] - limits[0] + 1))


def draw_extent_reference(
    sides: tuple[Range, Range], margin: float | None, uniform: Callable[[int], float]
) -> list[float]:
    """One episode's extent from the uniform draws uniform(0), uniform(1), …"""
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
def draw_ground(kind, slope, intercept, width, height, stream, ground):
    ground[:] = 0.0
    if kind == RANDOM:
        kind = LINEAR if draw_uniform(stream, 0) < 0.5 else EXPONENTIAL
        (m0, m1), (b0, b1) = LINEAR_RANGES if kind == LINEAR else EXPONENTIAL_RANGES
        slope, intercept = (
            m0 + (m1 - m0) * draw_uniform(stream, 1),
            b0 + (b1 - b0) * draw_uniform(stream, 2),
        )
    if kind == BEND:
        frequency = FREQUENCIES[0] + (FREQUENCIES[1] - FREQUENCIES[0]) * draw_uniform(stream, 0)
        steep = STEEPNESS[0] + (STEEPNESS[1] - STEEPNESS[0]) * draw_uniform(stream, 1)
        ground[3] = steep / frequency * min(width / USUAL[0], height / USUAL[1])
        ground[4], ground[5] = frequency, 2 * np.pi * draw_uniform(stream, 2)
    ground[0], ground[1], ground[2] = kind, slope, intercept


@kernel
def tabulate_ground(ground, width, height, level, ridge):
    """Tabulates level and ridge of each column once an episode, so that no step computes a sine."""
    kind = int(ground[0])
    for column in range(width):
        if kind == EXPONENTIAL:
            level[column] = min(ground[2] * np.exp(ground[1] * column), CAP)
        else:
            level[column] = ground[1] * column + ground[2]
        ridge[column] = 0.0
        if kind == BEND:
            turn = np.sin(2 * np.pi * ground[4] * column / width + ground[5]) - np.sin(ground[5])
            ridge[column] = height / 2 + ground[3] * turn


@kernel
def ridge_factor(row, ridge):
    """The factor of a bend's level at this distance from its ridge."""
    off = (row - ridge) / RIDGE_WIDTH
    return np.exp(-off * off)


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
