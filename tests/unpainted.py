"""Drawing the figures of its report is nine tenths of a short run's time. Figures are made in every
test, and drawn where a test asks for `pictures`, and in processes that are not forked."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg=="
)
DRAW, STREAMS = Figure.savefig, Axes.streamplot


def leave_white(figure: Figure, target: Any, **options: object) -> None:
    if isinstance(target, str | Path):
        Path(target).write_bytes(PIXEL)
    else:
        target.write(PIXEL)


Figure.savefig = leave_white  # type: ignore[method-assign]
Axes.streamplot = lambda *given, **options: SimpleNamespace(lines=ScalarMappable())  # type: ignore[method-assign]
