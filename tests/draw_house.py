"""Draws which rooms of the package import from which: docs/pictures/house.png.

python tests/draw_house.py
"""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from test_architecture import ARROWS, PACKAGE, imports

from tenfold.runs.charts import as_png, new_figure

FLOORS = (
    ("cli",),
    ("domains", "shipping", "integrations"),
    ("training", "evaluation"),
    ("algorithms",),
    ("actors", "engines", "runs"),
    ("nets", "memory", "envs"),
    ("ops",),
    ("config", "core"),
)


def counted() -> Counter[tuple[str, str]]:
    """Files of one room that import from another."""
    found: Counter[tuple[str, str]] = Counter()
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room in ARROWS and not room.startswith("__"):
            found.update((room, other) for other in imports(path) - {room, "__main__"})
    return found


def main() -> None:
    places = {
        room: ((k + 1) / (len(floor) + 1), len(FLOORS) - height)
        for height, floor in enumerate(FLOORS)
        for k, room in enumerate(floor)
    }
    figure = new_figure(9, 8)
    axes = figure.subplots()
    for (start, end), count in counted().items():
        (x, y), (u, v) = places[start], places[end]
        bend = 0.25 if y == v else 0.06
        arrow = {
            "arrowstyle": "-|>",
            "color": "0.55" if end in ("core", "config") else "C0",
            "alpha": 0.35 if end in ("core", "config") else 0.8,
            "linewidth": 0.4 + 0.12 * count,
            "shrinkA": 16,
            "shrinkB": 16,
            "connectionstyle": f"arc3,rad={bend}",
        }
        axes.annotate("", (u, v), (x, y), arrowprops=arrow)
    for room, (x, y) in places.items():
        box = {"boxstyle": "round,pad=0.5", "facecolor": "white", "edgecolor": "C0"}
        axes.text(x, y, room, ha="center", va="center", bbox=box, fontsize=11)
    axes.set(xlim=(0, 1), ylim=(0.5, len(FLOORS) + 0.5))
    axes.axis("off")
    axes.set_title("who imports from whom (thickness: how many files; grey: core and config)")
    target = PACKAGE.parent / "docs" / "pictures" / "house.png"
    target.write_bytes(as_png(figure))
    print(target)


if __name__ == "__main__":
    main()
