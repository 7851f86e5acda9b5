"""Gridworlds as data: kinds of treasure, the rules of a world, the names of those that are known;
and their pictures: text for a terminal, PNG, and GIF of several boards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.domains.treasure import DOMAINS, NAMES
from tenfold.envs.arguments import split_name

EMPTY, WALL, AGENT, FIRST = range(4)  # codes of the map; FIRST is the first kind of treasure
ACTIONS = ("up", "down", "left", "right")
CELL = 16  # pixels
GROUND, STONE, WALKER = (250, 247, 240), (90, 90, 98), (40, 40, 40)
LABELS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def require_number(what: str, value: object) -> None:
    if not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise EnvironmentFault(f"{what} = {value!r} cannot be: it is a finite number.")


@dataclass(frozen=True)
class CellKind:
    """A kind of treasure: its value, its share among the treasures, and its colour."""

    name: str
    value: float
    share: float = 1.0
    colour: tuple[int, int, int] = (218, 165, 32)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name[:1].isalpha() or "+" in self.name:
            raise EnvironmentFault(
                f"A treasure's name = {self.name!r} cannot be: it begins with a letter, and has no "
                "+ in it."
            )
        for name in ("value", "share"):
            require_number(f"{self.name}'s {name}", getattr(self, name))


GEM = CellKind("gem", 10, colour=(46, 134, 222))
FOOD = CellKind("food", 5, colour=(39, 174, 96))
BONE = CellKind("bone", -10, colour=(192, 57, 43))


@dataclass(frozen=True)
class Rules:
    """A gridworld as data. `height` and `width` include the border walls; `walls` are further ones,
    (row, column)."""

    height: int = 21
    width: int = 21
    kinds: tuple[CellKind, ...] = (GEM, FOOD, BONE)
    spawn: float = 0.005
    agents: int = 2
    turns: int = 100
    radius: int = 2
    order: Literal["fixed", "shuffled"] = "shuffled"
    bump: float = -1.0
    walls: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name, least in (
            ("height", 3),
            ("width", 3),
            ("agents", 1),
            ("turns", 1),
            ("radius", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise EnvironmentFault(
                    f"A gridworld's {name} = {value} cannot be: it must be a whole number, {least} "
                    "or more."
                )
        if not 0 <= self.spawn <= 1:
            raise EnvironmentFault(
                f"A gridworld's spawn = {self.spawn} cannot be: it is a probability, 0 to 1."
            )
        if self.order not in ("fixed", "shuffled"):
            raise EnvironmentFault(
                f"A gridworld's order = {self.order} cannot be: it is fixed or shuffled."
            )
        require_number("A gridworld's bump", self.bump)
        if not all(isinstance(k, CellKind) for k in self.kinds) or len(
            {k.name for k in self.kinds}
        ) < len(self.kinds):
            raise EnvironmentFault(
                "A gridworld's kinds are CellKind objects, none with the name of another: see "
                f"{self.kinds}."
            )
        if (
            not self.kinds
            or min(k.share for k in self.kinds) < 0
            or sum(k.share for k in self.kinds) <= 0
        ):
            raise EnvironmentFault(
                "A gridworld needs a kind of treasure, and shares that are not negative and not "
                "all 0."
            )
        if any(
            len(cell) != 2 or not all(isinstance(at, int | np.integer) for at in cell)
            for cell in self.walls
        ):
            raise EnvironmentFault(
                f"A gridworld's walls are pairs of whole numbers, (row, column): see {self.walls}."
            )
        if any(not (0 <= y < self.height and 0 <= x < self.width) for y, x in self.walls):
            raise EnvironmentFault(
                f"A gridworld of {self.height} x {self.width} cells has a wall outside: see "
                f"{self.walls}."
            )
        if np.count_nonzero(self.board() == EMPTY) < self.agents:
            raise EnvironmentFault(
                f"A gridworld of {self.height} x {self.width} cells has no room for {self.agents} "
                "agents."
            )

    @property
    def side(self) -> int:
        return 2 * self.radius + 1

    @property
    def channels(self) -> int:
        return 2 + len(self.kinds)

    def observation_space(self) -> gym.spaces.Box:
        return gym.spaces.Box(0, 1, (self.channels * self.side**2,), np.uint8)

    def action_space(self) -> gym.spaces.Discrete:
        return gym.spaces.Discrete(len(ACTIONS))

    def board(self) -> np.ndarray:
        """The padded map with only walls in it."""
        board = np.full(
            (self.height + 2 * self.radius, self.width + 2 * self.radius), WALL, np.int8
        )
        inner = board[self.radius : -self.radius, self.radius : -self.radius]
        inner[1:-1, 1:-1] = EMPTY
        for y, x in self.walls:
            inner[y, x] = WALL
        return board

    def gaps(self) -> np.ndarray:
        """P(at most k cells before the next hit), for every k."""
        return 1 - (1 - self.spawn) ** np.arange(1, self.height * self.width + 1)

    def shares(self) -> np.ndarray:
        """P(a treasure is one of the kinds up to k), for every k."""
        share = np.cumsum([k.share for k in self.kinds])
        return share / share[-1]

    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Arguments of the kernels: whole numbers, the empty map, the reward of entering a code,
        gaps and shares."""
        value = np.array([0.0, self.bump, 0.0, *(k.value for k in self.kinds)])
        return (
            np.array([self.radius, self.turns, self.order == "shuffled"]),
            self.board(),
            value,
            self.gaps(),
            self.shares(),
        )


RULES = {
    "tenfold/Treasure-v0": Rules(),
    "tenfold/TreasureSmall-v0": Rules(10, 10, kinds=(GEM,), spawn=0.02, agents=5, turns=50),
}
SHIPPED = frozenset(NAMES)


def register(name: str, rules: Rules) -> None:
    """Registers a user's rules under a name that can be used like any environment's; names in use
    are refused."""
    if name in SHIPPED or name in gym.registry:
        raise EnvironmentFault(
            f"{name} is an environment already: register your gridworld under a name of its own."
        )
    RULES[name] = rules
    NAMES.add(name)


def rules_of(name: str) -> Rules:
    """The rules of a name with arguments in call notation; `kinds` picks from the world's kinds:
    kinds=gem+bone."""
    ident, changes = split_name(name)
    if not DOMAINS[0].owns(name):
        near = get_close_matches(ident, RULES, 3, 0.5) or list(RULES)
        raise EnvironmentFault(f"There is no gridworld {ident}: the nearest are {', '.join(near)}.")
    rules = RULES[ident.rpartition(":")[2]]
    known = [f.name for f in fields(Rules) if f.name != "walls"]
    for argument in changes:
        if argument not in known:
            near = get_close_matches(argument, known, 1, 0.5) or known
            raise EnvironmentFault(
                f"{name} cannot be made: {argument} is no rule of a gridworld; perhaps "
                f"{', '.join(near)}."
            )
    if "kinds" in changes:
        by_name, names = {k.name: k for k in rules.kinds}, str(changes["kinds"]).split("+")
        for kind in names:
            if kind not in by_name:
                raise EnvironmentFault(
                    f"{name} cannot be made: its kinds are {', '.join(by_name)}, and {kind} is "
                    "none of them."
                )
        changes["kinds"] = tuple(by_name[kind] for kind in names)
    return replace(rules, **changes)


# pictures


def picture_text(rules: Rules, board: np.ndarray, at: np.ndarray) -> str:
    """`#` walls, `.` empty cells, the first letter of a treasure's kind, and agents by number (A to
    Z from the tenth on)."""
    signs = {EMPTY: ".", WALL: "#"} | {
        FIRST + k: kind.name[0] for k, kind in enumerate(rules.kinds)
    }
    rows = [[signs.get(code, "?") for code in row] for row in inside(rules, board).tolist()]
    for a, (y, x) in enumerate(at.tolist()):
        rows[y][x] = LABELS[a % len(LABELS)]
    return "\n".join("".join(row) for row in rows)


def picture(rules: Rules, board: np.ndarray, at: np.ndarray) -> np.ndarray:
    """RGB [height · CELL, width · CELL, 3]: treasures are squares in their kind's colour, agents
    dark discs with a pale centre that grows with their number."""
    colours = np.array([GROUND, STONE, GROUND, *(k.colour for k in rules.kinds)], np.uint8)
    codes = np.kron(inside(rules, board), np.ones((CELL, CELL), np.int8))
    image = colours[codes]
    edge = np.arange(CELL)
    border = np.minimum(edge, CELL - 1 - edge) < CELL // 5
    frame = np.tile(border[:, None] | border[None], (rules.height, rules.width)) & (codes >= FIRST)
    image[frame] = GROUND
    distance = np.hypot(*np.meshgrid(edge - (CELL - 1) / 2, edge - (CELL - 1) / 2))
    for a, (y, x) in enumerate(at.tolist()):
        cell = image[y * CELL : (y + 1) * CELL, x * CELL : (x + 1) * CELL]
        cell[distance < CELL * 0.45] = WALKER
        cell[distance < CELL * 0.36 * a / max(rules.agents, 1)] = GROUND
    return image


def inside(rules: Rules, board: np.ndarray) -> np.ndarray:
    """The board without its padding."""
    return board[rules.radius : -rules.radius, rules.radius : -rules.radius]


def save_pictures(images: Sequence[np.ndarray], path: str | Path, seconds: float = 0.15) -> None:
    """One image as PNG, any number as GIF."""
    from PIL import Image  # comes with matplotlib

    path = Path(path)
    if path.suffix == ".png" and len(images) == 1:
        Image.fromarray(images[0]).save(path)
    elif path.suffix == ".gif" and len(images):
        first, *more = [Image.fromarray(image) for image in images]
        first.save(path, save_all=True, append_images=more, duration=int(seconds * 1000), loop=0)
    else:
        raise UserError(
            f"{len(images)} pictures cannot be written to {path}: one fits a .png, one or more a "
            ".gif."
        )
