"""Pictures of a colony: text for a terminal, RGB frames; and its trajectory as a table of
numbers."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.domains.durotaxis.geometry import find_hull
from tenfold.domains.durotaxis.setting import ACTIONS, COMPONENTS, Colonies, ColonyParams
from tenfold.domains.durotaxis.substrate import BEND, GRID, RIDGE_WIDTH, Extent

SHADES = " .:-=+*%"  # soft to stiff
COLUMNS, ROWS = 72, 20  # of a picture in text
HEAT = np.array(
    [(13, 18, 43), (34, 60, 110), (44, 120, 140), (120, 180, 130), (232, 222, 150)], np.float64
)
NODE, NEWBORN, EDGE = (250, 250, 250), (255, 176, 64), (210, 210, 210)
HULL, TRAIL, GOAL = (150, 200, 255), (255, 90, 90), (255, 255, 255)
LEVELS = 200  # colours of a heat map: with those of the drawing they fit a GIF's palette of 256
# `reward` is the weighted sum of the components; their own columns are without weights
TRAJECTORY = (
    "step",
    "nodes",
    "centroid_x",
    "centroid_y",
    "right",
    "mean_intensity",
    *ACTIONS,
    "reward",
    *(f"unweighted_{name}" for name in COMPONENTS),
)


def sides(c: Colonies, i: int) -> tuple[int, int]:
    """Width and height of colony i's world."""
    return int(c.extent[i, Extent.WIDTH]), int(c.extent[i, Extent.HEIGHT])


def field(rules: ColonyParams, c: Colonies, i: int) -> np.ndarray:
    """I at every integer position [H, W] of colony i's substrate."""
    if int(c.ground[i, 0]) == GRID:
        return rules.grid
    width, height = sides(c, i)
    level = np.broadcast_to(c.level[i, :width], (height, width))
    if int(c.ground[i, 0]) != BEND:
        return level
    off = (np.arange(height)[:, None] - c.ridge[i, :width]) / RIDGE_WIDTH
    return level * np.exp(-(off**2))


def brightness(intensity: np.ndarray) -> np.ndarray:
    """0 … 1, logarithmic, so that differences between soft positions are visible."""
    return np.log1p(intensity) / max(float(np.log1p(intensity.max())), 1e-12)


def picture_text(rules: ColonyParams, c: Colonies, i: int) -> str:
    """Stiffness in shades, `o` nodes, `@` several in one cell, `|` the goal line; the top row is
    the highest y."""
    width, height = sides(c, i)
    columns, rows = min(COLUMNS, width), min(ROWS, height)
    x, y = (
        ((np.arange(n) + 0.5) * side / n).astype(int)
        for n, side in ((columns, width), (rows, height))
    )
    shade = (brightness(field(rules, c, i))[np.ix_(y, x)] * (len(SHADES) - 1)).round().astype(int)
    signs = [[SHADES[s] for s in row] for row in shade]
    goal = min(int(c.extent[i, Extent.GOAL] * columns / width), columns - 1)
    for row in signs:
        row[goal] = "|"
    for j in range(int(c.nodes[i])):
        row, column = int(c.y[i, j] * rows / height), int(c.x[i, j] * columns / width)
        signs[row][column] = "@" if signs[row][column] in "o@" else "o"
    caption = f"step {c.step[i]}, {c.nodes[i]} nodes, centroid at x = {c.centre[i]:.0f} of {width}"
    return "\n".join("".join(row) for row in reversed(signs)) + f"\n{caption}"


def heat_map(rules: ColonyParams, c: Colonies, i: int) -> np.ndarray:
    """The substrate as RGB [H, W, 3] of LEVELS colours, the highest y on top."""
    return heat_colours(brightness(field(rules, c, i)))[::-1]


def heat_colours(bright: np.ndarray) -> np.ndarray:
    """Brightness 0 … 1 as RGB on a new last axis."""
    shade = (bright * (LEVELS - 1)).round() / (LEVELS - 1) * (len(HEAT) - 1)
    low = np.minimum(shade.astype(int), len(HEAT) - 2)
    part = (shade - low)[..., None]
    return (HEAT[low] * (1 - part) + HEAT[low + 1] * part).round().astype(np.uint8)


def picture(
    rules: ColonyParams,
    c: Colonies,
    i: int,
    trail: Sequence[tuple[float, float]] = (),
    heat: np.ndarray | None = None,
) -> np.ndarray:
    """RGB [H, W, 3]: the heat map, edges, the convex hull, nodes (the youngest in another colour),
    the centroid's path so far."""
    from PIL import Image, ImageDraw  # comes with matplotlib

    image = Image.fromarray(heat_map(rules, c, i) if heat is None else heat)
    draw, n = ImageDraw.Draw(image), int(c.nodes[i])
    x, y, top, goal = c.x[i, :n], c.y[i, :n], sides(c, i)[1] - 1, c.extent[i, Extent.GOAL]
    at = {int(ident): (x[j], top - y[j]) for j, ident in enumerate(c.ident[i, :n])}
    draw.line([(goal, 0), (goal, top + 1)], GOAL)
    for j, parent in enumerate(c.parent[i, :n].tolist()):
        if parent >= 0:
            draw.line([at[parent], (x[j], top - y[j])], EDGE)
    corners = np.zeros(n + 2, np.int64)
    size = find_hull(x, y, n, np.zeros(n + 2, np.int64), corners)
    if size > 1:
        outline = [(float(x[k]), float(top - y[k])) for k in corners[:size].tolist()]
        draw.line([*outline, outline[0]], HULL)
    for j in range(n):
        draw.ellipse(
            [x[j] - 2, top - y[j] - 2, x[j] + 2, top - y[j] + 2],
            NEWBORN if c.age[i, j] == 0 else NODE,
        )
    if len(trail) > 1:
        draw.line([(a, top - b) for a, b in trail], TRAIL, 2)
    return np.asarray(image).copy()


class Trajectory(np.ndarray):
    """The table of an episode. Missing numbers are NaN, and NaN equals NaN, so that an episode
    played twice has equal tables."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]]) -> "Trajectory":
        return np.array(rows).view(cls)

    def __eq__(self, other: Any) -> Any:
        mine, theirs = np.asarray(self), np.asarray(other)
        return (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)


def trajectory_row(
    rules: ColonyParams,
    c: Colonies,
    i: int,
    action: np.ndarray | None,
    reward: float,
    components: np.ndarray,
) -> list[float]:
    """One row of the table, by the names in TRAJECTORY. In mode nodes the action's numbers are
    means over the nodes before the step."""
    n = int(c.nodes[i])
    numbers = [float("nan")] * len(ACTIONS) if action is None else action.tolist()
    where = (
        [c.x[i, :n].mean(), c.y[i, :n].mean(), c.x[i, :n].max(), c.stiff[i, :n].mean()]
        if n
        else [float("nan")] * 4
    )
    return [float(v) for v in (c.step[i], n, *where, *numbers, reward, *components)]


def write_trajectories(path: str | Path, episodes: Iterable[Iterable[Sequence[float]]]) -> None:
    """Writes episodes' tables into one CSV file, with the episode's number in the first column."""
    with open(path, "w", newline="") as file:
        table: Any = csv.writer(file)
        table.writerow(("episode", *TRAJECTORY))
        for number, rows in enumerate(episodes):
            for row in rows:
                whole = (int(row[0]), int(row[1]))
                table.writerow(
                    (number, *whole, *("" if np.isnan(v) else f"{v:.6g}" for v in row[2:]))
                )
