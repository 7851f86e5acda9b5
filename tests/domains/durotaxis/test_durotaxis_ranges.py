"""Worlds whose size and first nodes are drawn from ranges: what may be asked for, what is drawn,
what is seen of it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenfold.core.errors import ConfigError, EnvironmentFault, UserError
from tenfold.core.random import Purpose, key
from tenfold.domains.durotaxis.api import DurotaxisEnv
from tenfold.domains.durotaxis.arguments import Deployment
from tenfold.domains.durotaxis.baselines import follower_policy, play
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.domains.durotaxis.features import GraphFeature
from tenfold.domains.durotaxis.reference import uniform
from tenfold.domains.durotaxis.setting import read_setting
from tenfold.domains.durotaxis.substrate import Extent
from tenfold.domains.durotaxis.view import field

NAME = "tenfold/Durotaxis-v0"
RANGES = "substrate=bend, size=300..900x200..400, init_nodes=1..60"


# what may be asked for


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"init_nodes": "60..1"}, r"init_nodes=60\.\.1 is no range: it takes two whole numbers"),
        ({"init_nodes": "0..9"}, "of at least 1 and at most 10,000, the smaller one first"),
        ({"init_nodes": "1.."}, "is no range"),
        ({"init_nodes": "1..2..3"}, "is no range"),
        ({"init_nodes": "1.5..3"}, "is no range"),
        ({"init_nodes": (1, 20_000)}, "is no range"),
        ({"init_nodes": ("1", "5")}, "is no range"),
        ({"init_nodes": (1, 2, 3)}, "init_nodes must be a whole number"),
        (
            {"init_nodes": "1..60", "max_nodes": 50},
            r"init_nodes=1\.\.60 begins with more than max_nodes=50\.",
        ),
        ({"size": "900..300x200"}, r"and not 900\.\.300x200: a range has its smaller end first"),
        ({"size": "300..x200"}, "a range has its smaller end first"),
        ({"size": "300..900"}, "A substrate's size is two whole numbers"),
        ({"size": "0..900x200"}, "A substrate of 0 x 200 has no room"),
        ({"size": "300..20000x200"}, "is too large: a side is at most 10,000"),
        ({"size": "150..900x200"}, "make the substrate at least 200 wide"),
        ({"size": "300x10..90", "margin": 5}, "leaves no room inside 300 x 10"),
        ({"size": "300..900x3"}, "A margin of 3 leaves no room inside 300 x 3"),
        ({"size": "300..900x200", "slope": -0.002}, "is not positive everywhere"),
        (
            {"size": "300..900x200", "substrate": np.ones((200, 300))},
            r"array has one size, and size=300\.\.900x200 is a range",
        ),
        (
            {"size": "300..900x200", "substrate": lambda x, y: x},
            "A function as substrate has one size",
        ),
        ({"max_nodes": "1..60"}, "max_nodes must be a whole number"),
    ],
)
def test_what_is_no_range_is_refused_in_a_sentence(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(EnvironmentFault, match=why) as refused:
        read_setting(**asked)
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


def test_ranges_are_taken_from_text_and_from_python() -> None:
    by_text = read_setting(size="300..900x250", init_nodes="1..60")
    by_pairs = read_setting(size=((300, 900), 250), init_nodes=(1, np.int64(60)))
    for setting in (by_text, by_pairs):
        assert setting.starts == (1, 60)
        assert (setting.ground.least, setting.ground.width, setting.ground.height) == (
            (300, 250),
            900,
            250,
        )
    assert by_text.rules[:-1] == by_pairs.rules[:-1]
    assert {type(number) for number in by_pairs.rules[:-1]} <= {int, float, bool}


def test_trained_in_ranges_and_tried_in_one_place_or_in_others() -> None:
    trained = f"{NAME}({RANGES})"
    there = Deployment.of({"size": "900x300", "nodes": "20"}).env(trained)
    setting = DurotaxisEnvironments(there, 1, 0).setting
    assert (setting.starts, setting.ground.least, setting.ground.width) == (
        (20, 20),
        (900, 300),
        900,
    )
    for options in (
        {"size": "300..600x200", "nodes": "1..9"},
        {"size": ((300, 600), 200), "nodes": (1, 9)},
    ):
        elsewhere = Deployment.of(options)
        setting = DurotaxisEnvironments(elsewhere.env(trained), 1, 0).setting
        assert (setting.starts, setting.ground.least) == ((1, 9), (300, 200))
        assert elsewhere.description == "300..600x200, 1..9 nodes"
    with pytest.raises(EnvironmentFault, match=r"^--nodes=9\.\.1 is no range"):
        Deployment.of({"nodes": "9..1"})
    with pytest.raises(ConfigError, match="--nodes"):
        Deployment.of({"nodes": "many"})
    with pytest.raises(UserError, match="is not a width and a height"):
        Deployment.of({"size": "300..x200"})


def test_an_array_of_ones_own_has_its_own_size_where_ranges_were_trained_on(
    tmp_path: Path,
) -> None:
    file = tmp_path / "my.npy"
    np.save(file, np.ones((60, 250)))
    env = Deployment.of({"substrate": str(file)}).env(f"{NAME}({RANGES})")
    setting = DurotaxisEnvironments(env, 1, 0).setting
    assert (setting.ground.width, setting.ground.height, setting.starts) == (250, 60, (1, 60))


# what is drawn


def test_an_episode_draws_its_room_and_its_nodes_from_its_own_numbers() -> None:
    envs = DurotaxisEnvironments(f"{NAME}({RANGES})", 5, 7)
    for i in range(5):
        start = int(key(envs.episode_seed(i), Purpose.EPISODE, 0))
        width = 300 + math.floor(601 * uniform(start, 3))
        height = 200 + math.floor(201 * uniform(start, 4))
        extent = [width, height, max(2, 0.01 * width), max(2, 0.01 * height), 0.99 * width]
        np.testing.assert_allclose(envs.colonies.extent[i], extent, rtol=1e-15)
        n = math.floor(61 ** uniform(start, 5))
        assert envs.colonies.nodes[i] == n
        x, y = envs.colonies.x[i, :n], envs.colonies.y[i, :n]
        assert (np.diff(x) >= 0).all() and (x >= extent[2]).all() and (x <= 0.1 * width).all()
        assert (np.abs(y - height / 2) <= 0.1 * height).all()
        # what is seen is told in parts of this world, and not of the largest
        whole = envs.obs[i, 2:]
        assert whole[GraphFeature.RIGHT] == pytest.approx(x[-1] / width, rel=1e-6)
        assert whole[GraphFeature.CENTROID_Y] == pytest.approx(2 * y.mean() / height - 1, abs=1e-6)
        assert whole[GraphFeature.GOAL_DISTANCE] == pytest.approx(0.99 - x[-1] / width, rel=1e-6)


def test_sides_are_drawn_evenly_and_every_doubling_of_nodes_as_often() -> None:
    envs = DurotaxisEnvironments(f"{NAME}(size=300..309x250, init_nodes=1..63)", 4000, 0)
    widths = np.bincount(envs.colonies.extent[:, Extent.WIDTH].astype(int) - 300, minlength=10)
    # 400 each: five deviations of a binomial are 95
    assert len(widths) == 10 and np.abs(widths - 400).max() < 95
    assert set(envs.colonies.extent[:, Extent.HEIGHT]) == {250.0}
    doublings = np.bincount(np.log2(envs.colonies.nodes).astype(int))  # 1, 2–3, 4–7, … 32–63
    assert len(doublings) == 6 and np.abs(doublings - 4000 / 6).max() < 5 * 23.6
    assert envs.colonies.nodes.min() == 1 and envs.colonies.nodes.max() == 63


def test_a_range_of_one_number_is_that_number() -> None:
    fixed, ranged = (
        DurotaxisEnvironments(f"{NAME}(substrate=bend, {arguments})", 4, 3)
        for arguments in ("size=450x300, init_nodes=7", "size=450..450x300..300, init_nodes=7..7")
    )
    for step in range(30):
        for envs in (fixed, ranged):
            envs.step(follower_policy(envs, step))
        np.testing.assert_array_equal(fixed.obs, ranged.obs)
        np.testing.assert_array_equal(fixed.reward, ranged.reward)


def test_episodes_of_a_lane_alone_and_as_an_ordinary_environment_are_the_same() -> None:
    many = DurotaxisEnvironments(f"{NAME}({RANGES})", 5, 2)
    alone = DurotaxisEnvironments(f"{NAME}({RANGES})", 1, 2, first=3)
    sizes = set()
    for step in range(130):
        for envs in (many, alone):
            envs.step(follower_policy(envs, step))
        np.testing.assert_array_equal(many.obs[3], alone.obs[0])
        sizes.add(tuple(alone.colonies.extent[0, :2]))
    assert alone.episode[0] >= 2 and len(sizes) == alone.episode[0] + 1  # each has its own
    env = DurotaxisEnv(substrate="bend", size="300..900x200..400", init_nodes="1..60")
    for i in range(3):
        first = DurotaxisEnvironments(f"{NAME}({RANGES})", 3, 2)
        env.reset(seed=first.episode_seed(i))
        np.testing.assert_array_equal(env.inner.obs[0], first.obs[i])


def test_the_goal_is_each_worlds_own() -> None:
    """Colonies that follow the gradient arrive in every world; in wider ones later."""
    envs = DurotaxisEnvironments(f"{NAME}({RANGES.replace('bend', 'linear')})", 64, 5)
    widths = envs.colonies.extent[:, Extent.WIDTH].copy()
    left, steps = np.ones(64, bool), np.zeros(64)
    while left.any():
        envs.step(follower_policy(envs, 0))
        for episode in envs.finished:
            if left[episode.env]:
                assert episode.success
                left[episode.env], steps[episode.env] = False, episode.length
    assert np.corrcoef(widths, steps)[0, 1] > 0.98


def test_a_resume_goes_on_in_the_same_worlds() -> None:
    name = f"{NAME}({RANGES})"
    first = DurotaxisEnvironments(name, 6, 1)
    for step in range(40):
        first.step(follower_policy(first, step))
    second = DurotaxisEnvironments(name, 6, 99)
    assert second.restore(first.state())
    second.streams[:], second.keys = first.streams, first.keys
    for step in range(60):
        for envs in (first, second):
            envs.step(follower_policy(envs, step))
        np.testing.assert_array_equal(first.obs, second.obs)
        np.testing.assert_array_equal(first.colonies.extent, second.colonies.extent)


def test_a_checkpoint_from_before_ranges_is_resumed() -> None:
    name = f"{NAME}(substrate=bend, size=450x300)"
    first, second = (DurotaxisEnvironments(name, 3, 1) for _ in range(2))
    for step in range(10):
        first.step(follower_policy(first, step))
    kept = first.state()
    del kept["extent"]
    assert second.restore(kept)
    np.testing.assert_array_equal(second.colonies.extent, first.colonies.extent)


# what is seen


def test_pictures_have_the_size_of_the_episodes_world() -> None:
    env = DurotaxisEnv(render_mode="rgb_array", substrate="bend", size="300..900x200..400")
    shapes = []
    for seed in range(4):
        env.reset(seed=seed)
        c = env.inner.colonies
        shape = (int(c.extent[0, Extent.HEIGHT]), int(c.extent[0, Extent.WIDTH]))
        assert env.render().shape == (*shape, 3)
        ground = field(env.inner.rules, c, 0)
        assert ground.shape == shape
        x, y = int(c.x[0, 0]), int(c.y[0, 0])
        assert ground[y, x] == pytest.approx(c.stiff[0, 0], rel=1e-12)
        shapes.append(shape)
    assert len(set(shapes)) == 4
    said = DurotaxisEnv(render_mode="ansi", size="300..900x200..400")
    said.reset(seed=1)
    assert f"of {shapes[1][1]}" in said.render()


def test_scripted_colonies_arrive_from_every_start_that_is_drawn() -> None:
    score = play(DurotaxisEnvironments(f"{NAME}({RANGES})", 64, 0), follower_policy, 64)
    assert score.success_rate is not None and score.success_rate > 0.9
