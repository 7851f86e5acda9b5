"""The phase portrait of an identified system: true and learned field, where it was, what it knows
there, and how well it foretells. Arrays of it lie in the run's folder; the page draws them."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import CheckpointError
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.dimensions import search_chart, told_of
from tenfold.domains.dynamics.learned_page import TABLE, learned_section, learned_tables
from tenfold.domains.dynamics.model_metrics import Recordings
from tenfold.domains.dynamics.truth import GRID, grid_over
from tenfold.runs.charts import THIN, Chart, Line, add_legend, as_png, new_figure
from tenfold.runs.files import Arrays, read_arrays, write_arrays
from tenfold.runs.page import Section, charts, image, paragraph
from tenfold.runs.schema import WHOLE, Schema

FILE = "portrait.safetensors"
NOTE: Schema = {"members?": WHOLE, "seed?": WHOLE, "learned?": [TABLE]}
PANELS = {"true": "true field", "learned": "learned field", "information": "information"}


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
    place = agent.maps[0] if known else agent.own[0]
    visited = place.to_true(agent.window_states()[1][0])
    if visited.shape[1] != 2:
        return {"visited": visited}
    (x, y), points = grid_over(visited if truth is None else truth.latent.reshape(-1, 2))

    def on_grid(values: np.ndarray) -> np.ndarray:
        """The first dimension fastest, as figures have it."""
        return np.ascontiguousarray(values.reshape(GRID, GRID, -1).swapaxes(0, 1).squeeze())

    learned = agent.field(points, true=known).reshape(agent.members, -1)[0]
    found = {"x": x, "y": y, "learned": on_grid(learned), "visited": visited}
    if agent.config.model.dynamics != "mlp":
        inside = place.to_learned(points), place.to_learned(visited)
        found["information"] = on_grid(information_at(agent, *inside))
    if truth is not None:
        found["true"] = on_grid(truth.field)
    return found


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


def sections(path: Path, fits: list[dict[str, Any]], steps: str) -> list[Section]:
    """The part of a run's page that shows them; nothing where there is nothing to show. `steps`
    says what the run counts."""
    body, numbers = "", []
    with contextlib.suppress(CheckpointError):
        arrays, note = read_arrays(path / FILE, schema=NOTE)
        if drawable(arrays):
            body += image(draw_fields(arrays, note), "true and learned field")
        numbers = learned_section(note.get("learned", []), whose_member(note))
    if fits:
        body += charts(fit_charts(fits, steps))
    found = [Section("What was identified", body)] if body else []
    found += numbers
    notes, tried = told_of(path)
    said = "".join(paragraph(f"{note[:1].upper()}{note[1:]}.") for note in notes)
    if tried:
        said += paragraph(f"Chosen: {tried.sentence}.") + charts([search_chart(tried)])
    return [*found, Section("The recording", said)] if said else found


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
            shown = axes.pcolormesh(x, y, arrays["information"], cmap="viridis", shading="nearest")
            figure.colorbar(shown, ax=axes, label="log₁₀ of information")
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
    figure.suptitle(whose_coordinates(arrays, note), fontsize=10)
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
    words = "visited states" if name == "learned" else "visited states (on information)"
    axes.plot(*visited.T, ".", color=colour, markersize=1.5, alpha=0.35)
    axes.plot([], [], ".", color=colour, markeredgecolor="0.5", markersize=6, label=words)


def whose_member(note: dict[str, Any]) -> str:
    """Words in front of what is of the first of several members."""
    several = note.get("members", 1) > 1
    return f"seed {note.get('seed', 0)}, the first of {note['members']}: " if several else ""


def whose_coordinates(arrays: Arrays, note: dict[str, Any]) -> str:
    where = "in true coordinates" if "true" in arrays else "in the model's own coordinates"
    return f"{whose_member(note)}{where}"


def fit_charts(fits: list[dict[str, Any]], counted: str) -> list[Chart]:
    """The error (of the field where it is known, else 1 − R²) over steps, and R² over horizons with
    a band over members."""
    known = "field_errors" in fits[-1]
    steps = [row["step"] for row in fits]
    errors = np.array(
        [row["field_errors"] if known else 1 - np.mean(row["r2s"], -1) for row in fits]
    )
    each = [Line(f"seed {k}", steps, own, None, 0, THIN) for k, own in enumerate(errors.T)]
    words = "error of the field (1: a field of zeros)" if known else "1 − R²"
    model = Line("model", steps, errors.mean(-1), None, 0, "dots")
    r2 = np.array(fits[-1]["r2s"])
    ahead = np.arange(1, r2.shape[1] + 1)
    band = (r2.min(0), r2.max(0)) if len(r2) > 1 else None
    name = "model, from least to most of seeds" if band else "model"
    foretold = [Line(name, ahead, r2.mean(0), band, 0, "dots")]
    if "arx_r2" in fits[-1]:
        foretold.append(Line("ARX on the same data", ahead, fits[-1]["arx_r2"], None, 7, "dash"))
    bounds = (max(min(0.0, float(r2.min())), -1.0), 1.02)
    return [
        Chart(words, [*(each if len(each) > 1 else []), model], counted, small=True),
        Chart("R² of observations", foretold, "steps ahead", small=True, bounds=bounds),
        *spike_charts(fits, counted),
    ]


def spike_charts(fits: list[dict[str, Any]], counted: str) -> list[Chart]:
    """Of counts bits per spike over steps: of what comes, of each session, of held-out neurons."""
    if "fp_bps" not in fits[-1]:
        return []
    steps = [row["step"] for row in fits]
    lines = [Line("of what comes (fp-bps)", steps, [np.mean(r["fp_bps"]) for r in fits], None, 0)]
    if "co_bps" in fits[-1]:
        held = [row["co_bps"] for row in fits]
        lines.append(Line("of held-out neurons (co-bps)", steps, held, None, 1, "dots"))
    for k in range(len(fits[-1].get("session_bps", ()))):
        own = [row["session_bps"][k] for row in fits]
        lines.append(Line(f"of what comes, session {k}", steps, own, None, 2 + k, THIN))
    return [Chart("bits per spike (0: mean rates)", lines, counted, small=True)]
