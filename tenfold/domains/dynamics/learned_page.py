"""What a model has learned, on its run's page: fixed points with their eigenvalues, the input
matrix and the loadings as tables. They are made when a run ends, as text beside the arrays of the
phase portrait, so that a page needs no model."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.learned import Estimate, FixedPoint, eigenvalue_words
from tenfold.runs.page import Section, folded, grid, paragraph
from tenfold.runs.schema import TEXT, Schema

TABLE: Schema = {"title": TEXT, "head": [TEXT], "lines": [[TEXT]]}
LONG = 12  # lines: more are shown when somebody asks for them
BELOW = "₀₁₂₃₄₅₆₇₈₉"
POINT = ("kind", "point", "eigenvalues in continuous time", "of steps", "models that have it")


def learned_tables(agent: ExplorerAgent) -> list[dict[str, Any]]:
    """Of the first member, in true coordinates where they are known; nothing of a model that was
    never trained, whose field is 0 everywhere."""
    if not agent.updates:
        return []
    true = bool(agent.maps)
    where = "in true coordinates" if true else "in the model's own coordinates"

    def first(answer: Any) -> Any:
        return answer[0] if agent.members > 1 else answer

    points = [point_line(one) for one in first(agent.fixed_points(true))]
    tables = [table(f"Fixed points without action, {where}", POINT, points)] if points else []
    pushed = first(agent.input_matrix(true))
    if pushed.mean.size:
        title = f"Input matrix: what a unit of each action adds to dz/dt, {where}"
        tables.append(matrix(title, "z", "a", pushed))
    if not agent.online.decoder.layers:  # the state is what is observed
        return tables
    with contextlib.suppress(UserError):  # a decoder that has none
        title = "Loadings: how each channel follows the state, in the model's own coordinates"
        tables.append(matrix(title, "y", "z", first(agent.loadings(whole_rows(agent)))))
    return tables


def whole_rows(agent: ExplorerAgent) -> np.ndarray | None:
    """The first member's observations [T, Y] of which no value is missing; None where there are
    none."""
    seen = agent.window.obs[0, agent.window.places()]
    seen = seen[~np.isnan(seen).any(-1)]
    return seen if len(seen) else None


def table(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {"title": title, "head": list(head), "lines": [list(line) for line in lines]}


def matrix(title: str, down: str, along: str, found: Estimate) -> dict[str, Any]:
    """Rows and columns are numbered as the portrait's axes are: z₁, z₂."""
    head = ["", *(numbered(along, k) for k in range(found.mean.shape[1]))]
    rows = zip(found.mean, found.std, strict=True)
    lines = [[numbered(down, k), *map(number, *own)] for k, own in enumerate(rows)]
    return table(title, head, lines)


def point_line(found: FixedPoint) -> list[str]:
    return [
        found.kind,
        f"({', '.join(map(number, found.point.mean, found.point.std))})",
        eigenvalue_words(found.continuous, number),
        eigenvalue_words(found.eigenvalues, number),
        f"{found.support:.0%}",
    ]


def number(mean: float, std: float) -> str:
    """Digits that count, in any unit."""
    return f"{mean:.4g}" if np.isnan(std) else f"{mean:.4g} ± {std:.2g}"


def numbered(name: str, k: int) -> str:
    return name + "".join(BELOW[int(digit)] for digit in str(k + 1))


def learned_section(tables: Sequence[dict[str, Any]], whose: str) -> list[Section]:
    """`whose`: which of several members it is of; nothing where there are no tables."""
    if not tables:
        return []
    body = paragraph(
        f"{whose}± is one standard error: the deviation between models fitted to the same rows "
        "with other random weights. Numbers without it are of one model alone "
        "(agent.model.ensemble=5 trains five)."
    )
    for own in tables:
        shown = grid(own["head"], own["lines"])
        long = len(own["lines"]) > LONG
        body += folded(own["title"], shown) if long else paragraph(own["title"]) + shown
    return [Section("What was learned, as numbers", body)]
