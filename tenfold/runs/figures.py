"""Figures that are drawn off screen, and their pictures."""

import io
from typing import Any


def new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import (
        FigureCanvasAgg,
    )  # here: drawing is the only thing that needs matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def as_png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def add_legend(figure: Any, *axes: Any) -> None:
    """Below all axes, where it covers nothing; each word once."""
    handles = {
        word: handle
        for one in axes
        for handle, word in zip(*one.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
