"""Figures and films: what is drawn can be read, and nothing of it is lost."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence
from tenfold.runs.plots import (
    course_of,
    part_names,
    parts_figure,
    returns_figure,
    seeds_figure,
)

from tenfold.config.run import Run
from tenfold.domains.durotaxis.api import DurotaxisEnv
from tenfold.domains.durotaxis.baselines import follower_policy
from tenfold.domains.durotaxis.view import EDGE, GOAL, HULL, NEWBORN, NODE, TRAIL, heat_map
from tenfold.evaluation.video import write_gif
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


@pytest.mark.parametrize(
    ("more", "labels"),
    [
        ({"policy_loss": 0.01, "value_loss": 4.0}, {"return", "value loss", "policy loss"}),
        ({"loss": 0.1, "q": 2.0}, {"return", "loss", "mean Q of actions taken"}),
        ({}, {"return"}),
    ],
)
def test_the_lower_panel_shows_the_losses_there_are(
    more: dict[str, float], labels: set[str]
) -> None:
    figure = returns_figure(
        [trained(step, **more) for step in (100, 200)], "dqn on CartPole-v1, seed 0"
    )
    assert {axes.get_ylabel() for axes in figure.axes} == labels
    assert all(axes.lines for axes in figure.axes[1:])
    assert {axes.get_xlabel() for axes in figure.axes} >= {"environment steps"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: returns_figure([], LONG),
        lambda: seeds_figure(
            [[trained(1, **{"return": 1.0})]], USUAL.curves(Run()), LONG, "return"
        ),
    ],
    ids=["run", "seeds"],
)
def test_a_long_title_stays_on_the_picture(make: Any) -> None:
    figure = make()
    figure.draw_without_rendering()
    box = figure.axes[0].title.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height
    assert "w_delete_quality=0.1" in figure.axes[0].get_title().replace("\n", " ")


def test_components_have_ticks_apart_and_labels_on_both_axes() -> None:
    parts = {"reward/goal": 0.1, "reward/goal/std": 0.05, "action/gamma": 4.0, "action/theta": 0.0}
    rows = [trained(step, **parts) for step in range(40_000, 120_001, 40_000)]
    assert part_names(rows) == ["reward/goal", "action/gamma", "action/theta"]
    steps, middle, low, high = course_of(rows, "reward/goal")
    assert steps[0] == 40_000 and (middle[0], low[0], high[0]) == pytest.approx((0.1, 0.05, 0.15))
    figure = parts_figure(
        {name: course_of(rows, name) for name in part_names(rows)}, "band: one deviation"
    )
    figure.draw_without_rendering()
    assert (
        figure.get_supxlabel() == "environment steps"
        and "without weights" in figure.get_supylabel()
    )
    for axes in figure.axes:
        labels = [label for label in axes.get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in labels]
        assert 2 < len(boxes) < 8 and all(label.get_text().endswith("k") for label in labels)
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
