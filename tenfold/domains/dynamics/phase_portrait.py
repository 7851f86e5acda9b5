"""A run's page of an identified system: the phase portrait (true and learned field, visited states,
information, R²), and what the model has learned as tables. Arrays and tables are written into the
run's folder when it ends, so that drawing a page needs no model."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import CheckpointError, UserError
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.learned import Estimate, eigenvalue_words
from tenfold.domains.dynamics.offline import NOTES_FILE, LatentSearch
from tenfold.domains.dynamics.validation import GRID, Recordings, grid_over
from tenfold.runs.charts import THIN, Chart, Line, add_legend, as_png, new_figure
from tenfold.runs.file_schema import NUMBER, TEXT, WHOLE, Schema, filled, misfit, parsed
from tenfold.runs.page import Section, charts, folded, grid, image, paragraph
from tenfold.runs.storage import Arrays, read_arrays, write_arrays

FILE = "portrait.safetensors"
TABLE: Schema = {"title": TEXT, "head": [TEXT], "lines": [[TEXT]]}
NOTE: Schema = {"members?": WHOLE, "seed?": WHOLE, "learned?": [TABLE]}
PANELS = {"true": "true field", "learned": "learned field", "information": "information"}
LONG = 12  # lines of a table: longer ones are folded
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
POINT = ("kind", "point", "eigenvalues in continuous time", "of steps", "models that have it")

SEARCH: dict[str, Any] = {
    "tried": filled(WHOLE),
    "r2": filled(NUMBER),
    "error": filled(NUMBER),
    "chosen": WHOLE,
    "steps": WHOLE,
    "pieces": WHOLE,
}


# its arrays


def write_portrait(
    path: Path, agent: ExplorerAgent, env: str, recordings: Recordings | None
) -> None:
    """Of an agent that was judged on these recordings."""
    assert recordings is not None
    note = {
        "env": env,
        "known": recordings.truth is not None,
        "seed": agent.seeds[0],
        "members": agent.members,
        "learned": learned_tables(agent),
    }
    write_arrays(path / FILE, portrait_arrays(agent, recordings), note)


def portrait_arrays(agent: ExplorerAgent, recordings: Recordings) -> dict[str, np.ndarray]:
    """Of the first member, in true coordinates where they are known: states visited, in the order
    of time, and for systems of two numbers fields and information on a grid."""
    known, truth = bool(agent.maps), recordings.truth
    to = agent.maps[0] if known else agent.output_maps[0]
    visited = to.to_true(agent.window_states()[1][0])
    if visited.shape[1] != 2:
        return {"visited": visited}
    (x, y), points = grid_over(visited if truth is None else truth.latent.reshape(-1, 2))

    def on_grid(values: np.ndarray) -> np.ndarray:
        """The first dimension fastest, as figures have it."""
        return np.ascontiguousarray(values.reshape(GRID, GRID, -1).swapaxes(0, 1).squeeze())

    learned = agent.field(points, true=known).reshape(agent.members, -1)[0]
    arrays = {"x": x, "y": y, "learned": on_grid(learned), "visited": visited}
    if agent.config.model.dynamics != "mlp":
        inside = to.to_learned(points), to.to_learned(visited)
        arrays["information"] = on_grid(information_at(agent, *inside))
    if truth is not None:
        arrays["true"] = on_grid(truth.field)
    return arrays


def information_at(agent: ExplorerAgent, z: np.ndarray, visited: np.ndarray) -> np.ndarray:
    """log₁₀ of the information that visited states give about the weights that count at states z
    [n, D]: the harmonic mean of A_p = 1 + Σ_t (dt·φ_p(z_t))² / v, the Fisher information's
    diagonal, weighted by φ_p(z)²."""
    dynamics = agent.online.dynamics
    variance = float(dynamics.variance()[0, 0].detach().mean())
    gathered = 1 + np.square(dynamics.dt * agent.features(visited)).sum(0) / variance
    weight = np.square(agent.features(z)) + 1e-300  # far outside the grid all features vanish
    return np.log10(weight.sum(-1) / (weight / gathered).sum(-1))


# its figures


def sections(path: Path, fits: list[dict[str, Any]], counted: str) -> list[Section]:
    """The sections of a run's page; none where there is nothing to show. `counted` names the run's
    steps."""
    body, numbers = "", []
    with contextlib.suppress(CheckpointError):
        arrays, note = read_arrays(path / FILE, schema=NOTE)
        if drawable(arrays):
            body += image(draw_fields(arrays, note), "true and learned field")
        numbers = learned_section(note.get("learned", []), member_prefix(note))
    if fits:
        body += charts(fit_charts(fits, counted))
    portrait = [Section("What was identified", body)] if body else []
    notes, search = kept_notes(path)
    about = "".join(paragraph(f"{note[:1].upper()}{note[1:]}.") for note in notes)
    if search:
        about += paragraph(f"Chosen: {search.sentence}.") + charts([search_chart(search)])
    return [*portrait, *numbers, *([Section("The recording", about)] if about else [])]


def drawable(arrays: Arrays) -> bool:
    """Whether these are fields of two numbers on a grid, with the states that were visited."""
    if not all(
        name in arrays and np.isfinite(arrays[name]).all()
        for name in ("x", "y", "learned", "visited")
    ):
        return False
    grid = arrays["y"].size, arrays["x"].size
    shapes = {"learned": (*grid, 2), "true": (*grid, 2), "information": grid}
    fit = all(arrays[name].shape == shape for name, shape in shapes.items() if name in arrays)
    return fit and arrays["visited"].shape[1:] == (2,)


def draw_fields(arrays: Arrays, note: dict[str, Any]) -> bytes:
    """Stream plots side by side in the same colours, visited states on the learned one, and the
    information map."""
    panels = [name for name in PANELS if name in arrays]
    figure = new_figure(4.2 * len(panels) + 0.6, 4.6)
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    x, y = arrays["x"], arrays["y"]
    fields = {
        name: np.moveaxis(arrays[name], -1, 0) for name in ("true", "learned") if name in arrays
    }
    fastest = max(float(np.hypot(*fields.get("true", fields["learned"])).max()), 1e-9)
    for axes, name in zip(every, panels, strict=True):
        if name == "information":
            mesh = axes.pcolormesh(x, y, arrays["information"], cmap="viridis", shading="nearest")
            figure.colorbar(mesh, ax=axes, label="log₁₀ of information")
        else:
            lines = draw_streams(axes, x, y, fields[name], fastest)
            if name == "learned":  # one bar for both
                beyond = np.hypot(*fields[name]).max() > 1.001 * fastest
                figure.colorbar(
                    lines,
                    ax=every[: len(fields)].tolist(),
                    label="speed |dz/dt|",
                    extend="max" if beyond else "neither",
                )
        if name != "true":
            draw_visited(axes, name, arrays["visited"])
        axes.set(
            title=PANELS[name],
            xlim=(x[0], x[-1]),
            ylim=(y[0], y[-1]),
            aspect="equal",
            xlabel="z₁",
            ylabel="z₂",
        )
    title = f"{member_prefix(note)}{coordinates_label('true' in arrays)}"
    figure.suptitle(title, fontsize=10)
    add_legend(figure, *every)
    return as_png(figure)


def draw_streams(axes: Any, x: np.ndarray, y: np.ndarray, field: np.ndarray, fastest: float) -> Any:
    """A field [2, y, x] as lines, coloured by its speed up to the fastest."""
    from matplotlib.colors import Normalize

    return axes.streamplot(
        x,
        y,
        *field,
        color=np.minimum(np.hypot(*field), fastest),
        cmap="viridis",
        norm=Normalize(0, fastest),
        density=1.1,
        linewidth=0.9,
        arrowsize=0.8,
    ).lines


def draw_visited(axes: Any, name: str, visited: np.ndarray) -> None:
    """States [n, 2] as dots that show on what is below them; the legend's dot is larger."""
    colour = "C3" if name == "learned" else "w"
    label = "visited states" if name == "learned" else "visited states (on information)"
    axes.plot(*visited.T, ".", color=colour, markersize=1.5, alpha=0.35)
    axes.plot([], [], ".", color=colour, markeredgecolor="0.5", markersize=6, label=label)


def member_prefix(note: dict[str, Any]) -> str:
    """A prefix for results of the first of several members."""
    several = note.get("members", 1) > 1
    return f"seed {note.get('seed', 0)}, the first of {note['members']}: " if several else ""


def coordinates_label(true: bool) -> str:
    return "in true coordinates" if true else "in the model's own coordinates"


def fit_charts(fits: list[dict[str, Any]], counted: str) -> list[Chart]:
    """The error (of the field where it is known, else 1 − R²) over steps, and R² over horizons with
    a band over members."""
    known = "field_errors" in fits[-1]
    steps = [row["step"] for row in fits]
    errors = np.array(
        [row["field_errors"] if known else 1 - np.mean(row["r2s"], -1) for row in fits]
    )
    seeds = [Line(f"seed {k}", steps, one, None, 0, THIN) for k, one in enumerate(errors.T)]
    title = "error of the field (1: a field of zeros)" if known else "1 − R²"
    model = Line("model", steps, errors.mean(-1), None, 0, "dots")
    r2 = np.array(fits[-1]["r2s"])
    ahead = np.arange(1, r2.shape[1] + 1)
    band = (r2.min(0), r2.max(0)) if len(r2) > 1 else None
    name = "model, from least to most of seeds" if band else "model"
    lines = [Line(name, ahead, r2.mean(0), band, 0, "dots")]
    if "arx_r2" in fits[-1]:
        lines.append(Line("ARX on the same data", ahead, fits[-1]["arx_r2"], None, 7, "dash"))
    bounds = (max(min(0.0, float(r2.min())), -1.0), 1.02)
    return [
        Chart(title, [*(seeds if len(seeds) > 1 else []), model], counted, small=True),
        Chart("R² of observations", lines, "steps ahead", small=True, bounds=bounds),
        *spike_charts(fits, counted),
    ]


def spike_charts(fits: list[dict[str, Any]], counted: str) -> list[Chart]:
    """Of counts bits per spike over steps: of what comes, of each session, of held-out neurons."""
    if "fp_bps" not in fits[-1]:
        return []
    steps = [row["step"] for row in fits]
    lines = [Line("of what comes (fp-bps)", steps, [np.mean(r["fp_bps"]) for r in fits], None, 0)]
    if "co_bps" in fits[-1]:
        co_bps = [row["co_bps"] for row in fits]
        lines.append(Line("of held-out neurons (co-bps)", steps, co_bps, None, 1, "dots"))
    for k in range(len(fits[-1].get("session_bps", ()))):
        bps = [row["session_bps"][k] for row in fits]
        lines.append(Line(f"of what comes, session {k}", steps, bps, None, 2 + k, THIN))
    return [Chart("bits per spike (0: mean rates)", lines, counted, small=True)]


def kept_notes(path: Path) -> tuple[list[str], LatentSearch | None]:
    """The notes in a run's folder; nothing where the file does not exist or is damaged."""
    try:
        content = parsed((path / NOTES_FILE).read_text())
    except (OSError, ValueError):
        return [], None
    if misfit(content, {"notes": [TEXT]}):
        return [], None
    notes, latent = content["notes"], content.get("latent")
    lists = ("tried", "r2", "error")
    if misfit(latent, SEARCH) or len({len(latent[name]) for name in lists}) > 1:
        return notes, None
    sizes, r2, error = (tuple(latent[name]) for name in lists)
    return notes, LatentSearch(
        sizes, r2, error, latent["chosen"], latent["steps"], latent["pieces"]
    )


def search_chart(search: LatentSearch) -> Chart:
    """R² over sizes with one standard error on each side."""
    r2, error = np.array(search.r2), np.array(search.error)
    line = Line(
        "R² on pieces held back ± its error", search.tried, r2, (r2 - error, r2 + error), 0, "dots"
    )
    best = r2[search.tried.index(search.size)] if search.size in search.tried else r2.max()
    mark = Line("taken", [search.size], np.array([best]), None, 3, "dots")
    axis = "numbers of the hidden state"
    return Chart("R² over the size of the state", [line, mark], axis, small=True)


# what was learned, as tables


def learned_tables(agent: ExplorerAgent) -> list[dict[str, Any]]:
    """Of the first member, in true coordinates where they are known; none of a model that was never
    trained, whose field is 0 everywhere."""
    if not agent.updates:
        return []
    true = bool(agent.maps)

    def first(answer: Any) -> Any:
        return answer[0] if agent.members > 1 else answer

    points = [
        [
            point.kind,
            f"({', '.join(map(number, point.point.mean, point.point.std))})",
            eigenvalue_words(point.continuous, number),
            eigenvalue_words(point.eigenvalues, number),
            f"{point.support:.0%}",
        ]
        for point in first(agent.fixed_points(true))
    ]
    title = f"Fixed points without action, {coordinates_label(true)}"
    tables = [table(title, POINT, points)] if points else []
    pushed = first(agent.input_matrix(true))
    if pushed.mean.size:
        title = f"Input matrix: what a unit of each action adds to dz/dt, {coordinates_label(true)}"
        tables.append(matrix(title, "z", "a", pushed))
    if agent.online.decoder.layers:  # else the state is what is observed
        rows = agent.window.obs[0, agent.window.rows()]
        rows = rows[~np.isnan(rows).any(-1)]
        title = f"Loadings: how each channel follows the state, {coordinates_label(False)}"
        with contextlib.suppress(UserError):  # a decoder that has none
            loadings = first(agent.loadings(rows if len(rows) else None))
            tables.append(matrix(title, "y", "z", loadings))
    return tables


def table(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {"title": title, "head": list(head), "lines": [list(line) for line in lines]}


def matrix(title: str, down: str, along: str, numbers: Estimate) -> dict[str, Any]:
    """Rows and columns are numbered as the portrait's axes are: z₁, z₂."""
    head = ["", *(numbered(along, k) for k in range(numbers.mean.shape[1]))]
    rows = zip(numbers.mean, numbers.std, strict=True)
    lines = [[numbered(down, k), *map(number, *row)] for k, row in enumerate(rows)]
    return table(title, head, lines)


def number(mean: float, std: float) -> str:
    """Significant digits, in any unit."""
    return f"{mean:.4g}" if np.isnan(std) else f"{mean:.4g} ± {std:.2g}"


def numbered(name: str, k: int) -> str:
    return name + str(k + 1).translate(SUBSCRIPTS)


def learned_section(tables: Sequence[dict[str, Any]], whose: str) -> list[Section]:
    """`whose`: which of several members the tables are of; none without tables."""
    if not tables:
        return []
    body = paragraph(
        f"{whose}± is one standard error: the deviation between models fitted to the same rows "
        "with other random weights. Numbers without it are of one model alone "
        "(agent.model.ensemble=5 trains five)."
    )
    for one in tables:
        rows, title = grid(one["head"], one["lines"]), one["title"]
        long = len(one["lines"]) > LONG
        body += folded(title, rows) if long else paragraph(title) + rows
    return [Section("What was learned, as numbers", body)]
