"""Pictures of a gridworld: text for a terminal, PNG, and GIF of several boards."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.treasure.rules import EMPTY, FIRST, WALL, Rules

CELL = 16  # pixels
GROUND, STONE, WALKER = (250, 247, 240), (90, 90, 98), (40, 40, 40)
LABELS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


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
