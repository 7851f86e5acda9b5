"""The ground under colonies in torch: `substrate` and what a node senses there, on any device."""

import math
from typing import NamedTuple

import torch

from tenfold.domains.durotaxis.extent import GOAL, LEAST_MARGIN, MARGIN_PART
from tenfold.domains.durotaxis.rules import GRADIENT_REACH
from tenfold.domains.durotaxis.setting import Rules
from tenfold.domains.durotaxis.substrate import (
    BEND,
    CAP,
    EXPONENTIAL,
    EXPONENTIAL_RANGES,
    FREQUENCIES,
    GRID,
    LINEAR,
    LINEAR_RANGES,
    RANDOM,
    RIDGE_WIDTH,
    STEEPNESS,
    USUAL,
)

FULL_TURN = 2 * math.pi


class World(NamedTuple):
    """The rules, and what of them lies on the device."""

    rules: Rules
    grid: torch.Tensor
    soft: bool  # whether any ground is soft


def make_world(rules: Rules, device: torch.device) -> World:
    b, risen = rules.intercept, rules.slope * (rules.width - 1)
    lowest = {
        LINEAR: min(b, b + risen),
        EXPONENTIAL: min(b, b * math.exp(risen), CAP),
        BEND: 0.0,
        GRID: rules.grid.min(),
        RANDOM: min(LINEAR_RANGES[1][0], EXPONENTIAL_RANGES[1][0]),
    }[rules.kind]
    return World(
        rules, torch.from_numpy(rules.grid.astype("float64")).to(device), bool(lowest <= rules.soft)
    )


def draw_extent(rules: Rules, u: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """`extent.draw_extent` for every colony, from the two numbers of its sides."""
    width, height = (
        low + (draw * (high - low + 1)).floor()
        for low, high, draw in (
            (rules.least_width, rules.width, u[0]),
            (rules.least_height, rules.height, u[1]),
        )
    )
    margins = (
        (side * MARGIN_PART).clamp(min=LEAST_MARGIN)
        if rules.margin < 0
        else torch.full_like(side, rules.margin)
        for side in (width, height)
    )
    margin_x, margin_y = margins
    goal = torch.minimum(GOAL * width, width - margin_x)
    return torch.stack((width, height, margin_x, margin_y, goal), 1)


def draw_nodes(rules: Rules, u: torch.Tensor) -> torch.Tensor:
    """`extent.draw_nodes` for every colony, from one number of its start."""
    low, high = rules.least_nodes, rules.init_nodes
    return (low * (u * math.log((high + 1) / low)).exp()).long().clamp(low, high)


def draw_ground(rules: Rules, extent: torch.Tensor, u: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """`substrate.draw_ground` for every colony, from the first three numbers of its start."""
    zero = torch.zeros_like(u[0])
    if rules.kind == RANDOM:
        kind = torch.where(u[0] < 0.5, LINEAR, EXPONENTIAL)
        slope, intercept = (
            torch.where(kind == LINEAR, a0 + (a1 - a0) * draw, b0 + (b1 - b0) * draw)
            for (a0, a1), (b0, b1), draw in zip(
                LINEAR_RANGES, EXPONENTIAL_RANGES, u[1:], strict=True
            )
        )
        return torch.stack((kind.to(zero.dtype), slope, intercept, zero, zero, zero), 1)
    frequency, steep = (
        low + (high - low) * draw
        for (low, high), draw in zip((FREQUENCIES, STEEPNESS), u[:2], strict=True)
    )
    bend = (
        steep / frequency * torch.minimum(extent[:, 0] / USUAL[0], extent[:, 1] / USUAL[1]),
        frequency,
        FULL_TURN * u[2],
    )
    curve = bend if rules.kind == BEND else (zero, zero, zero)
    return torch.stack((zero + rules.kind, zero + rules.slope, zero + rules.intercept, *curve), 1)


def level_at(rules: Rules, ground: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """Intensity of columns [E, …], of a bend that on its ridge; computed where it is asked for
    instead of once an episode."""
    shape = (-1, *[1] * (column.dim() - 1))
    kind, slope, intercept = (ground[:, k].view(shape) for k in range(3))
    rising = slope * column
    if rules.kind in (LINEAR, BEND):
        return rising + intercept
    exponential = (intercept * rising.exp()).clamp(max=CAP)
    return (
        exponential
        if rules.kind == EXPONENTIAL
        else torch.where(kind == LINEAR, rising + intercept, exponential)
    )


def ridge_at(extent: torch.Tensor, ground: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    shape = (-1, *[1] * (column.dim() - 1))
    width, height = (extent[:, k].view(shape) for k in range(2))
    amplitude, frequency, phase = (ground[:, k].view(shape) for k in range(3, 6))
    return height / 2 + amplitude * (
        (FULL_TURN * frequency * column / width + phase).sin() - phase.sin()
    )


def sense(
    world: World, extent: torch.Tensor, ground: torch.Tensor, x: torch.Tensor, y: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Intensity and its relative gradient at places [E, S]."""
    rules = world.rules
    column, row = (
        torch.stack((at, at + GRADIENT_REACH, at - GRADIENT_REACH))
        .long()
        .clamp(min=0)
        .minimum(side[:, None] - 1)
        for at, side in zip((x, y), extent[:, :2].long().unbind(1), strict=True)
    )
    if rules.kind == GRID:
        (here, right, left), (above, below) = (
            world.grid[row[0], column],
            world.grid[row[1:], column[0]],
        )
    else:
        here, right, left = level = level_at(rules, ground, column.movedim(0, -1)).unbind(-1)
        above = below = here
        if rules.kind == BEND:
            ridge = ridge_at(extent, ground, column.movedim(0, -1)).movedim(-1, 0)
            above, below = (
                here * ridge_factor(row[1], ridge[0]),
                here * ridge_factor(row[2], ridge[0]),
            )
            here, right, left = (
                high * ridge_factor(row[0], middle)
                for high, middle in zip(level, ridge, strict=True)
            )
    return here, relative(right, left), relative(above, below)


def ridge_factor(row: torch.Tensor, ridge: torch.Tensor) -> torch.Tensor:
    off = (row - ridge) / RIDGE_WIDTH
    return (-off * off).exp()


def relative(more: torch.Tensor, less: torch.Tensor) -> torch.Tensor:
    both = more + less
    return torch.where(both > 0, (more - less) / both, 0.0)
