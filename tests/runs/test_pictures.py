"""Figures and films: what is drawn can be read, and nothing of it is lost."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from tenfold.config.run import Run
from tenfold.domains.durotaxis.api import DurotaxisEnv
from tenfold.domains.durotaxis.baselines import follower_policy
from tenfold.domains.durotaxis.view import EDGE, GOAL, HULL, NEWBORN, NODE, TRAIL, heat_map
from tenfold.evaluation.video import write_gif
from tenfold.runs.charts import Experiment, course_chart, figure_of, panels
from tenfold.runs.digest import Digest
from tenfold.runs.report import is_component, is_learning
from tenfold.runs.reporter import USUAL

LONG = (
    "ppo on "
    "tenfold/Durotaxis-v0(mode=nodes,substrate=bend,w_survival=-0.25,w_population=0.01,w_spawn_quality=0.3,w_delete_quality=0.1), seed 0"
)


def trained(step: int, **more: float) -> dict[str, Any]:
    return {"kind": "train", "step": step, "updates": 1, "timing": {}, **more}


def test_a_film_of_a_colony_has_every_colour_that_was_drawn(tmp_path: Path) -> None:
    env = DurotaxisEnv(render_mode="rgb_array", substrate="bend")
    env.reset(seed=4)
    frames = [env.render()]
    for _ in range(12):
        env.step(follower_policy(env.inner, 0)[0])
        frames.append(env.render())
    # a smooth ground and a few lines on it
    assert len(np.unique(frames[-1].reshape(-1, 3), axis=0)) > 64
    write_gif(tmp_path / "colony.gif", frames, 10)
    with Image.open(tmp_path / "colony.gif") as film:
        shown = [np.asarray(image.convert("RGB")) for image in ImageSequence.Iterator(film)]
    assert len(shown) == len(frames) and all(
        np.array_equal(a, b) for a, b in zip(shown, frames, strict=True)
    )
    for colour in (NODE, NEWBORN, EDGE, HULL, TRAIL, GOAL):
        assert (shown[-1] == colour).all(-1).any()


def test_a_heat_map_leaves_room_in_a_palette_on_any_ground() -> None:
    for substrate in (
        "linear",
        "exponential",
        "bend",
        np.random.default_rng(0).uniform(0, 9, (300, 300)),
    ):
        env = DurotaxisEnv(substrate=substrate)
        env.reset(seed=1)
        assert (
            len(np.unique(heat_map(env.inner.rules, env.inner.colonies, 0).reshape(-1, 3), axis=0))
            <= 200
        )


def test_a_film_of_more_colours_than_a_palette_holds_is_still_written(tmp_path: Path) -> None:
    frames = [
        np.random.default_rng(i).integers(0, 256, (40, 60, 3)).astype(np.uint8) for i in range(2)
    ]
    write_gif(tmp_path / "noise.gif", frames, 10)
    with Image.open(tmp_path / "noise.gif") as film:
        assert film.n_frames == 2 and film.size == (60, 40)  # type: ignore[attr-defined]


def digested(path: Path, rows: list[dict[str, Any]]) -> Digest:
    digest = Digest(path, 1000)
    digest.add_rows(rows)
    return digest


def group_of(path: Path, *members: list[dict[str, Any]]) -> Experiment:
    digests = {f"seed {k}": digested(path, rows) for k, rows in enumerate(members)}
    return Experiment("mine", path, Run(), digests, {})


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_long_title_stays_on_the_picture(seeds: int, tmp_path: Path) -> None:
    group = group_of(tmp_path, *([trained(1, **{"return": 1.0})] for _ in range(seeds)))
    chart = course_chart([group], USUAL.curves(Run()), LONG, "environment steps", "return")
    figure = figure_of([chart], LONG)
    figure.draw_without_rendering()
    box = figure.axes[0].title.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
    assert "w_delete_quality=0.1" in figure.axes[0].get_title().replace("\n", " ")
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == (
        "environment steps",
        "return",
    )


def test_a_title_with_signs_of_mathematics_is_drawn_as_it_is(tmp_path: Path) -> None:
    group = group_of(tmp_path, [trained(1, **{"return": 1.0})])
    chart = course_chart([group], USUAL.curves(Run()), "", "x$_{$", "y")
    figure = figure_of([chart], "dqn on $\\frac{$-v0")
    figure.draw_without_rendering()  # which would not know what \\frac{ is
    assert figure.axes[0].title.get_text() == r"dqn on \$\frac{\$-v0"


def test_components_have_a_panel_each_with_one_deviation(tmp_path: Path) -> None:
    parts = {"reward/goal": 0.1, "reward/goal/std": 0.05, "action/gamma": 4.0, "loss": 2.0}
    group = group_of(tmp_path, [trained(step, **parts) for step in (40_000, 80_000)])
    goal, gamma = panels([group], "train", "environment steps", is_component)
    assert (goal.title, gamma.title) == ("reward: goal", "action: gamma")
    (line,) = goal.lines
    assert list(line.x) == [40_000, 80_000] and line.y == pytest.approx([0.1, 0.1])
    assert line.band is not None
    assert line.band[0] == pytest.approx([0.05, 0.05]) and line.band[1][0] == pytest.approx(0.15)
    learning = panels([group], "train", "steps", is_learning)
    assert [panel.title for panel in learning] == ["loss"]
