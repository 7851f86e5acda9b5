"""Pictures of a colony, and its way as numbers."""

import csv
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tenfold.domains.durotaxis.api import DurotaxisEnv
from tenfold.domains.durotaxis.baselines import follower_policy
from tenfold.domains.durotaxis.setting import COMPONENTS
from tenfold.domains.durotaxis.view import (
    GOAL,
    NEWBORN,
    TRAIL,
    TRAJECTORY,
    field,
    heat_map,
    write_trajectories,
)


def followed(**arguments: str) -> tuple[DurotaxisEnv, dict]:
    env = DurotaxisEnv(substrate="bend", **arguments)
    env.reset(seed=4)
    while True:
        *_, terminated, truncated, info = env.step(follower_policy(env.inner, 0)[0])
        if terminated or truncated:
            return env, info


def test_text_shows_every_node_and_the_goal_line() -> None:
    env = DurotaxisEnv(render_mode="ansi", init_nodes=3)
    env.reset(seed=0)
    c = env.inner.colonies
    c.x[0, :3], c.y[0, :3] = [15, 300, 300], [395, 205, 206]
    *picture, said = env.render().split("\n")
    assert len(picture) == 20 and all(len(line) == 72 and line[71] == "|" for line in picture)
    # the highest y is on top; two nodes in one cell
    assert picture[0][1] == "o" and picture[9][36] == "@"
    assert sum(line.count("o") for line in picture) == 1
    assert said.startswith("step 0, 3 nodes, centroid at x = ")


def test_a_frame_shows_stiffness_nodes_and_the_centroids_way() -> None:
    env, _ = followed(render_mode="rgb_array")
    frame = env.render()
    assert frame.shape == (400, 600, 3) and frame.dtype == np.uint8
    for colour in (NEWBORN, TRAIL, GOAL):
        assert (frame == colour).all(-1).any()
    bare, rules, c = (
        heat_map(env.inner.rules, env.inner.colonies, 0),
        env.inner.rules,
        env.inner.colonies,
    )
    x = 450
    # brightest on the ridge, and the picture is not upside down
    assert abs((399 - int(bare[:, x].sum(-1).argmax())) - c.ridge[0, x]) < 2
    assert field(rules, c, 0).shape == (400, 600)


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space.*")
def test_gymnasiums_checker_passes_with_frames() -> None:
    check_env(DurotaxisEnv(render_mode="rgb_array"), skip_render_check=True)
    env = DurotaxisEnv(render_mode="rgb_array", substrate=np.ones((40, 300)))  # type: ignore[arg-type]
    env.reset(seed=0)
    assert env.render().shape == (40, 300, 3)


@pytest.mark.parametrize("mode", ["ratio", "nodes"])
def test_trajectories_are_written_with_actions_and_components(mode: str, tmp_path: Path) -> None:
    _, info = followed(mode=mode)
    write_trajectories(tmp_path / "way.csv", [info["trajectory"], info["trajectory"][:2]])
    rows = list(csv.DictReader((tmp_path / "way.csv").read_text().splitlines()))
    assert tuple(rows[0]) == ("episode", *TRAJECTORY)
    assert len(rows) == len(info["trajectory"]) + 2 and rows[-1]["episode"] == "1"
    last = rows[len(info["trajectory"]) - 1]
    assert (
        info["ending"] == "goal" and float(last["right"]) >= 594 and last["unweighted_goal"] == "1"
    )
    assert (
        rows[0]["gamma"] == ""
        and float(last["gamma"]) == 15
        and 0 <= float(last["delete_ratio"]) <= 1
    )
    total = sum(
        float(last[f"unweighted_{name}"]) * weight
        for name, weight in zip(COMPONENTS, DurotaxisEnv().setting.component_weights, strict=True)
    )
    assert float(last["reward"]) == pytest.approx(total, rel=1e-4)
