"""Treasure Hunt: moves worked out by hand, what agents see, how treasures come, and the two
yardsticks."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.domains.treasure.api import TreasureHunt
from tenfold.domains.treasure.play import Scripted, TreasureWorlds, yardsticks
from tenfold.domains.treasure.rules import (
    AGENT,
    BONE,
    CELL,
    EMPTY,
    FIRST,
    FOOD,
    GEM,
    WALL,
    CellKind,
    Rules,
    picture,
    picture_text,
    register,
    rules_of,
    save_pictures,
)

UP, DOWN, LEFT, RIGHT = range(4)
SIGNS = {".": EMPTY, "#": WALL, "g": FIRST, "f": FIRST + 1, "b": FIRST + 2}


def world(text: str, **changes: object) -> TreasureWorlds:
    """One world as drawn, in which nothing appears by itself; agents are digits and move in their
    order."""
    rows = text.split()
    agents = {
        letter: (y, x)
        for y, row in enumerate(rows)
        for x, letter in enumerate(row)
        if letter.isdigit()
    }
    rules = Rules(
        len(rows), len(rows[0]), agents=len(agents), **({"spawn": 0.0, "order": "fixed"} | changes)
    )  # type: ignore[arg-type]
    worlds = TreasureWorlds("drawn", 1, 0, rules=rules)
    r = rules.radius
    for y, row in enumerate(rows):
        for x, letter in enumerate(row):
            worlds.boards[0, y + r, x + r] = AGENT if letter.isdigit() else SIGNS[letter]
    worlds.at[0] = [agents[str(a)] for a in range(len(agents))]
    worlds.see_again()
    return worlds


def shown(worlds: TreasureWorlds) -> list[str]:
    return picture_text(worlds.rules, worlds.boards[0], worlds.at[0]).split()


@pytest.mark.parametrize(
    ("before", "action", "after", "reward"),
    [
        ("#### #0.# #..# ####", [UP], "#### #0.# #..# ####", [-1]),  # a wall is bumped into
        ("#### #0.# #..# ####", [LEFT], "#### #0.# #..# ####", [-1]),
        ("#### #0.# #..# ####", [RIGHT], "#### #.0# #..# ####", [0]),
        ("#### #0.# #..# ####", [DOWN], "#### #..# #0.# ####", [0]),
        ("#### #0g# #..# ####", [RIGHT], "#### #.0# #..# ####", [10]),  # what is entered is taken
        ("#### #0f# #..# ####", [RIGHT], "#### #.0# #..# ####", [5]),
        ("#### #0b# #..# ####", [RIGHT], "#### #.0# #..# ####", [-10]),
        # who moves first finds the other in the way
        ("##### #01.# #...# #####", [RIGHT, DOWN], "##### #0..# #.1.# #####", [0, 0]),
        # and behind it there is room
        ("##### #10.# #...# #####", [DOWN, RIGHT], "##### #.1.# #.0.# #####", [0, 0]),
        # one treasure, one taker
        ("##### #0g1# #...# #####", [RIGHT, LEFT], "##### #.01# #...# #####", [10, 0]),
        ("##### #1g0# #...# #####", [LEFT, RIGHT], "##### #10.# #...# #####", [10, 0]),
    ],
)
def test_moves(before: str, action: list[int], after: str, reward: list[float]) -> None:
    worlds = world(before)
    worlds.step(np.array(action))
    assert shown(worlds) == after.split() and worlds.reward.tolist() == reward


def test_a_window_has_walls_others_and_treasures_in_channels_and_is_zero_where_it_is_empty() -> (
    None
):
    worlds = world("###### #0g..# #.1.f# #b...# ######", radius=2)
    wall, others, gem, food, bone = worlds.obs[0].reshape(5, 5, 5)
    assert wall.tolist() == [
        [1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1],
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
    ]
    # itself is not among the others
    assert np.argwhere(others).tolist() == [[3, 3]] and np.argwhere(gem).tolist() == [[2, 3]]
    assert not food.any() and np.argwhere(bone).tolist() == [[4, 2]]
    # in the middle: one wall above, one to the left, one below
    wall, others, gem, food, bone = worlds.obs[1].reshape(5, 5, 5)
    assert (
        wall.tolist()
        == [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
        and others[1, 1]
    )
    assert np.argwhere(food).tolist() == [[2, 4]]


@pytest.mark.parametrize("radius", [1, 2, 3, 6])
def test_outside_of_the_grid_everything_is_wall(radius: int) -> None:
    worlds = world("##### #...# #..0# #####", radius=radius)
    wall = worlds.obs[0].reshape(5, 2 * radius + 1, -1)[0]
    expected = np.ones_like(wall)
    for y, x in ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)):
        i, j = y - 2 + radius, x - 3 + radius
        if min(i, j) >= 0:
            expected[i, j] = 0
    assert np.array_equal(wall, expected)


def test_every_empty_cell_becomes_a_treasure_with_the_given_probability_and_kinds_come_by_their_shares() -> (
    None
):
    kinds = (CellKind("often", 1, 3.0), CellKind("seldom", 1, 1.0))
    rules = Rules(12, 12, kinds=kinds, spawn=0.1, agents=1, turns=10)
    worlds = TreasureWorlds("shares", 500, 0, rules=rules)
    inside = worlds.boards[:, 2:-2, 2:-2]  # the first round: 99 empty cells in 500 worlds
    often, seldom = (np.count_nonzero(inside == FIRST + k) for k in range(2))
    cells = 99 * 500
    assert abs(often + seldom - 0.1 * cells) < 4 * np.sqrt(cells * 0.09)  # four standard deviations
    assert abs(often - 0.75 * (often + seldom)) < 4 * np.sqrt((often + seldom) * 0.1875)
    before, empty = inside.copy(), np.count_nonzero(inside == EMPTY)
    worlds.step(np.full(500, RIGHT))
    came = np.count_nonzero((before == EMPTY) & (inside >= FIRST))
    assert abs(came - 0.1 * empty) < 4 * np.sqrt(empty * 0.09) + 500 * 0.1
    # a treasure stays what it is
    assert ((inside == before) | (before == EMPTY) | (before == AGENT) | (inside == AGENT)).all()


@pytest.mark.parametrize(("probability", "count"), [(0.0, 0), (1.0, 98)])
def test_nothing_or_everything_appears_at_the_ends_of_the_range(
    probability: float, count: int
) -> None:
    worlds = TreasureWorlds("ends", 3, 0, rules=Rules(12, 12, spawn=probability))
    assert (np.count_nonzero(worlds.boards >= FIRST, axis=(1, 2)) == count).all()


def test_the_end_of_an_epoch_is_a_truncation_with_its_last_windows_kept() -> None:
    worlds = TreasureWorlds("tenfold/TreasureSmall-v0(turns=3)", 2, 0)
    alone = TreasureHunt("tenfold/TreasureSmall-v0(turns=3)")
    alone.reset()
    alone.inner.streams[0], alone.inner.episode[0] = worlds.streams[1], -1
    first, _ = alone.reset()
    assert all(np.array_equal(worlds.obs[a * 2 + 1], first[f"agent_{a}"]) for a in range(5))
    total = np.zeros(10)
    for turn in range(3):
        action = np.arange(10) % 4
        worlds.step(action)
        seen, reward, terminated, truncated, _ = alone.step(
            {f"agent_{a}": action[a * 2 + 1] for a in range(5)}
        )
        total += worlds.reward
        last = worlds.final_obs if turn == 2 else worlds.obs
        assert all(
            np.array_equal(last[a * 2 + 1], seen[f"agent_{a}"])
            and worlds.reward[a * 2 + 1] == reward[f"agent_{a}"]
            for a in range(5)
        )
        assert (
            (worlds.truncated == (turn == 2)).all()
            and not worlds.terminated.any()
            and not worlds.skipped.any()
        )
        assert set(truncated.values()) == {turn == 2} and set(terminated.values()) == {False}
    assert [(e.env, e.length) for e in worlds.finished] == [(0, 3), (1, 3)]
    assert worlds.finished[1].agent_returns == tuple(total[1::2]) and worlds.finished[
        1
    ].ret == pytest.approx(total[1::2].mean())
    assert worlds.episode.tolist() == [1, 1] and not worlds.ret.any() and alone.agents == []
    again, _ = alone.reset()
    assert all(np.array_equal(worlds.obs[a * 2 + 1], again[f"agent_{a}"]) for a in range(5))
    with pytest.raises(EnvironmentFault, match=r"they are 0 up, 1 down"):
        worlds.step(np.full(10, 4))


def test_a_shuffled_order_lets_every_agent_go_first_equally_often_and_a_fixed_one_does_not() -> (
    None
):
    first = {"fixed": np.zeros(3), "shuffled": np.zeros(3)}
    for order, wins in first.items():
        worlds = TreasureWorlds(
            "race", 3000, 1, rules=Rules(5, 5, spawn=0.0, agents=3, order=order)
        )  # type: ignore[arg-type]
        worlds.boards[:] = worlds.rules.board()  # three agents around the middle, where a gem lies
        worlds.at[:] = [[1, 2], [2, 1], [3, 2]]
        for y, x in worlds.at[0]:
            worlds.boards[:, y + 2, x + 2] = AGENT
        worlds.boards[:, 4, 4] = FIRST
        worlds.step(np.repeat([DOWN, RIGHT, UP], 3000))
        wins += (worlds.reward.reshape(3, -1) == 10).sum(1)
    assert first["fixed"].tolist() == [3000, 0, 0]
    assert (
        np.abs(first["shuffled"] - 1000).max() < 4 * np.sqrt(3000 * 2 / 9)
        and first["shuffled"].sum() == 3000
    )


def test_agents_begin_anywhere_and_never_on_one_another() -> None:
    worlds = TreasureWorlds(
        "starts", 4000, 0, rules=Rules(5, 5, spawn=0.0, agents=4, walls=((2, 2),))
    )
    cells = worlds.at[..., 0] * 5 + worlds.at[..., 1]
    assert all(len(set(row)) == 4 for row in cells.tolist())
    counts = np.bincount(cells.ravel(), minlength=25).reshape(5, 5)
    assert counts[2, 2] == 0 and counts[[0, 4]].sum() == 0 and counts[:, [0, 4]].sum() == 0
    assert np.abs(counts[1:4, 1:4][counts[1:4, 1:4] > 0] - 2000).max() < 4 * np.sqrt(16000 * 7 / 64)


def test_rules_by_name_and_their_errors() -> None:
    assert rules_of("tenfold/Treasure-v0") == Rules(21, 21, (GEM, FOOD, BONE), 0.005, 2, 100, 2)
    assert rules_of("tenfold/TreasureSmall-v0") == Rules(10, 10, (GEM,), 0.02, 5, 50, 2)
    assert rules_of("tenfold/Treasure-v0(agents=3, kinds=gem+bone, order=fixed)") == Rules(
        kinds=(GEM, BONE), agents=3, order="fixed"
    )
    register("tests/Meadow-v0", Rules(5, 6))
    assert rules_of("tests/Meadow-v0(turns=7)") == Rules(5, 6, turns=7)
    for name, said in (
        ("tenfold/Treasure-v0(agent=3)", "perhaps agents"),
        ("tenfold/Treasure-v0(kinds=gold)", "gem, food, bone"),
        ("tenfold/Treasure-v0(agents=0)", "1 or more"),
        ("tenfold/Treasure-v0(spawn=2)", "a probability"),
        ("tenfold/TreasureSmall-v0(agents=65)", "no room for 65"),
        ("tenfold/Treasure-v0(order=odd)", "fixed or shuffled"),
        ("tenfold/Treasur-v0", "nearest are tenfold/Treasure-v0"),
        ("tenfold/Treasure-v0(height=2.5)", "whole number"),
    ):
        with pytest.raises(EnvironmentFault, match=said):
            rules_of(name)
    with pytest.raises(EnvironmentFault, match="a wall outside"):
        Rules(5, 5, walls=((5, 1),))
    with pytest.raises(EnvironmentFault, match="shares"):
        Rules(kinds=(CellKind("none", 1, 0.0),))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Rules(bump=float("nan")), "bump = nan cannot be: it is a finite number"),
        (lambda: CellKind("gem", float("inf")), "gem's value = inf"),
        (lambda: CellKind("gem", "ten"), "gem's value = 'ten'"),
        (lambda: CellKind("gem", 1, float("nan")), "gem's share = nan"),  # type: ignore[arg-type]
        (lambda: CellKind("", 1), "begins with a letter"),
        (lambda: CellKind("3", 1), "begins with a letter"),
        (lambda: CellKind("a+b", 1), "has no \\+"),
        (lambda: Rules(kinds=("gem",)), "kinds are CellKind objects"),
        (lambda: Rules(kinds=(GEM, GEM)), "none with the name of another"),  # type: ignore[arg-type]
        (lambda: Rules(walls=((1, 2, 3),)), "pairs of whole numbers"),
        (lambda: Rules(walls=((1.5, 2),)), "pairs of whole numbers"),  # type: ignore[arg-type]
        (lambda: rules_of("tenfold/Treasure-v0(kinds=gem+gem)"), "none with the name of another"),
        (lambda: register("tenfold/TreasureSmall-v0", Rules()), "is an environment already"),
        (lambda: register("CartPole-v1", Rules()), "is an environment already"),
    ],
)
def test_data_that_cannot_be_a_gridworld_is_refused_in_a_sentence(
    make: Callable[[], object], said: str
) -> None:
    with pytest.raises(EnvironmentFault, match=said):
        make()


@pytest.mark.parametrize(
    "name", ["tenfold/Treasure-v0(turns=20)", "tenfold/TreasureSmall-v0(turns=20)"]
)
def test_pettingzoos_own_test_of_the_parallel_api_passes(name: str) -> None:
    from pettingzoo import ParallelEnv

    # its tests import environments by old names
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        from pettingzoo.test import parallel_api_test, parallel_seed_test
    env = TreasureHunt(name)
    assert isinstance(env, ParallelEnv)
    parallel_api_test(env, num_cycles=50)
    parallel_seed_test(lambda: TreasureHunt(name))


def test_the_parallel_class_refuses_what_makes_no_sense() -> None:
    env = TreasureHunt("tenfold/Treasure-v0(turns=1)")
    with pytest.raises(EnvironmentFault, match="call reset"):
        env.step({})
    env.reset(seed=0)
    for actions, said in (
        ({"agent_0": 1}, "the agents are agent_0, agent_1"),
        ({"agent_0": 1, "agent_1": 7}, "agent_1 cannot do 7"),
    ):
        with pytest.raises(EnvironmentFault, match=said):
            env.step(actions)
    with pytest.raises(EnvironmentFault, match="ansi or rgb_array"):
        TreasureHunt(render_mode="human")


def test_pictures_show_the_board(tmp_path: Path) -> None:
    worlds = world("##### #0g.# #.b1# #####")
    assert shown(worlds) == ["#####", "#0g.#", "#.b1#", "#####"]
    image = picture(worlds.rules, worlds.boards[0], worlds.at[0])
    assert image.shape == (4 * CELL, 5 * CELL, 3)
    middle = image[CELL // 2 :: CELL, CELL // 2 :: CELL]
    assert (
        tuple(middle[1, 2]) == GEM.colour
        and tuple(middle[2, 2]) == BONE.colour
        and tuple(middle[1, 1]) == (40, 40, 40)
    )
    from PIL import Image

    save_pictures([image], tmp_path / "board.png")
    with Image.open(tmp_path / "board.png") as found:
        assert np.array_equal(np.asarray(found), image)
    env = TreasureHunt("tenfold/Treasure-v0", render_mode="rgb_array")
    env.reset(seed=0)
    frames = [np.asarray(env.render())]
    for _ in range(2):
        env.step({"agent_0": RIGHT, "agent_1": LEFT})
        frames.append(np.asarray(env.render()))
    save_pictures(frames, tmp_path / "epoch.gif")
    with Image.open(tmp_path / "epoch.gif") as found:
        assert getattr(found, "n_frames", 1) == 3 and found.size == (21 * CELL, 21 * CELL)
    with pytest.raises(UserError, match=r"one fits a \.png"):
        save_pictures(frames, tmp_path / "epoch.png")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("####### #.....# #.....# #..0g.# #.....# #.....# #######", {RIGHT}),
        ("####### #.....# #.....# #f.0g.# #.....# #.....# #######", {RIGHT}),  # 10 / 1 before 5 / 2
        # 5 / 1 and 10 / 2 are worth the same
        ("####### #.....# #.....# #.f0.g# #.....# #.....# #######", {LEFT, RIGHT}),
        ("####### #.....# #.....# #..0bg# #.....# #.....# #######", {UP, DOWN}),  # around a bone
        ("####### #.....# #.....# #..01g# #.....# #.....# #######", {UP, DOWN}),  # around somebody
        # the only way round the walls
        ("####### #.....# #.....# #..0#g# #...##. #.....# #######", {UP}),
        # nothing to take: not into walls or bones
        ("####### #.b...# #.b...# #.b0#.# #.b.#.# #.b#..# #######", {UP, DOWN}),
    ],
)
def test_the_script_walks_to_the_best_treasure_it_sees(text: str, expected: set[int]) -> None:
    worlds = world(text)
    player = Scripted(worlds.rules, worlds.num_envs, 0)
    for heading in range(4):
        player.heading[:] = heading
        assert int(player.act(worlds.obs)[0]) in expected


def test_the_script_is_not_stuck_in_corners_or_behind_others() -> None:
    """An epoch without treasures in sight: never a bump, and much of a large grid is visited."""
    rules = Rules(spawn=0.0, turns=300)
    worlds = TreasureWorlds("alone", 20, 0, rules=rules)
    player, visited, bumps = Scripted(rules, 40, 0), np.zeros((20, 21, 21), bool), 0
    for _ in range(300):
        worlds.step(player.act(worlds.obs))
        bumps += int((worlds.reward < 0).sum())
        for w in range(20):
            visited[w, worlds.at[w, :, 0], worlds.at[w, :, 1]] = True
    assert bumps == 0 and visited.sum((1, 2)).mean() > 100


def test_the_yardsticks_are_far_apart_and_repeatable() -> None:
    small, large = (
        yardsticks("tenfold/TreasureSmall-v0", 300, 3),
        yardsticks("tenfold/Treasure-v0", 300, 3),
    )
    assert small == yardsticks("tenfold/TreasureSmall-v0", 300, 3)
    assert 48 < small["random"] < 55 and 100 < small["scripted"] < 115
    assert 5 < large["random"] < 18 and 195 < large["scripted"] < 225
