"""Colonies in torch: the same episodes as the compiled ones, whatever is done to them, in a fixed
number of operations."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from colony_lockstep import (
    NAME,
    assert_same,
    both,
    legal,
    play_both,
    put,
    steered,
    step_both,
    varied,
)  # type: ignore[import-not-found]
from torch.utils._python_dispatch import TorchDispatchMode

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.durotaxis.baselines import constant_policy
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments, show_all
from tenfold.domains.durotaxis.setting import DELETE, HIGH, LOW, REST, Ending, Setting, read_setting
from tenfold.domains.durotaxis.torch_colonies import KEPT, TorchColonies
from tenfold.domains.durotaxis.torch_features import cut, observe
from tenfold.domains.durotaxis.torch_rules import State
from tenfold.memory.graphs import pack

FAR = [0.5, 15.0, 0.5, 0.5, 0.0]


def hills(height: int = 60, width: int = 300) -> np.ndarray:
    """Soft valleys, flat ground and a place without any stiffness."""
    grid = np.random.default_rng(0).integers(0, 3, (height, width)) * 0.5
    grid[:, 40:] = 2.0
    return grid


# the same episodes


@pytest.mark.parametrize(
    ("arguments", "number", "steps"),
    [
        ("", 7, 60),
        ("rounding=floor, init_nodes=100", 1, 60),
        pytest.param("substrate=exponential", 7, 120, marks=pytest.mark.slow),
        ("substrate=random, size=250x60, init_nodes=1, max_nodes=20, max_steps=9", 7, 60),
        pytest.param("substrate=bend", 7, 100, marks=pytest.mark.slow),
        pytest.param("substrate=bend, max_nodes=13, soft=0.6", 7, 100, marks=pytest.mark.slow),
        pytest.param("soft=5, max_nodes=30", 7, 100, marks=pytest.mark.slow),
        ("learn=delete_ratio, gamma=10, max_nodes=25", 7, 60),
        ("max_nodes=1, init_nodes=1", 7, 20),
        pytest.param("max_nodes=2, init_nodes=2", 7, 60, marks=pytest.mark.slow),
        pytest.param("slope=-0.001, max_nodes=30", 7, 80, marks=pytest.mark.slow),
        ("mode=nodes, substrate=bend, max_nodes=40", 7, 60),
        pytest.param("mode=nodes, substrate=random, max_nodes=17", 1, 100, marks=pytest.mark.slow),
        ("mode=nodes, substrate=exponential, max_nodes=6, init_nodes=6, soft=3", 7, 60),
        pytest.param("mode=nodes", 7, 60, marks=pytest.mark.slow),
        ("mode=nodes, max_nodes=3, init_nodes=1", 7, 60),
        ("substrate=bend, size=250..700x60..400, init_nodes=1..30, max_nodes=30", 9, 40),
        ("mode=nodes, substrate=random, size=300..900x80, init_nodes=2..12, max_nodes=12", 7, 40),
        ("size=100..300x40, margin=0.5, init_nodes=1..25, max_nodes=25", 7, 40),
    ],
)
def test_colonies_in_torch_step_like_the_compiled_ones(
    arguments: str, number: int, steps: int
) -> None:
    envs, colonies = both(arguments, number, 3)
    seen = play_both(envs, colonies, varied(envs), steps)
    assert seen.get(int(Ending.EXTINCT), 0) or seen.get(int(Ending.OVERGROWN), 0)


def test_a_step_in_place_shows_the_last_observation_on_the_substrate_that_it_was_seen_on() -> None:
    """What a recorded step does, and a GPU is needed for: it goes on in the same tensors, and those
    of the next episode's substrate are not yet in what the last one reached."""
    arguments = "substrate=bend, size=250..700x60..400, init_nodes=1..30, max_nodes=30"
    envs, colonies = both(arguments, 9, 3)
    colonies.told = torch.zeros(9, colonies.numbers, dtype=torch.float64)
    for name in KEPT:  # as `record` does
        held = getattr(colonies, name)
        own = State(*(t.clone() for t in held)) if isinstance(held, State) else held.clone()
        setattr(colonies, name, own)
    places, ended = [t.data_ptr() for t in colonies.state], 0
    for step in range(40):
        actions = varied(envs)(envs, step)
        envs.step(actions)
        colonies.told.copy_(torch.from_numpy(actions))
        colonies.play_in_place()
        assert_same(envs, colonies)
        ended += int((envs.ending > 0).sum())
    assert ended > 9 and [t.data_ptr() for t in colonies.state] == places


@pytest.mark.parametrize("mode", ["ratio", "nodes"])
def test_on_an_array_too_also_where_all_ground_is_the_same(mode: str) -> None:
    for grid in (hills(), np.full((60, 300), 0.7)):
        envs, colonies = both(read_setting(mode=mode, substrate=grid, max_nodes=25), 7)
        play_both(envs, colonies, varied(envs), 30)


def delete_right_most(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
    action = np.zeros((envs.num_envs, envs.action.shape[1]))
    action[:, : envs.setting.max_nodes] = REST
    for i, n in enumerate(envs.colonies.nodes):
        action[i, int(np.argmax(envs.colonies.x[i, :n]))] = DELETE
    return action


@pytest.mark.parametrize(
    ("arguments", "policy", "ending"),
    [
        ("size=250x60", steered, Ending.GOAL),
        ("substrate=bend", steered, Ending.GOAL),
        ("", constant_policy([1.0, *FAR[1:]]), Ending.EXTINCT),
        ("", constant_policy([0.0, *FAR[1:]]), Ending.OVERGROWN),
        ("max_steps=3", constant_policy(FAR), Ending.TIME),
        ("mode=nodes, init_nodes=50, max_nodes=60", delete_right_most, Ending.RETREAT),
    ],
)
def test_every_ending_comes_at_the_same_step_and_the_next_episode_is_the_same(
    arguments: str, policy: Any, ending: Ending
) -> None:
    envs, colonies = both(arguments, 5)
    seen = play_both(envs, colonies, policy, 45)
    assert set(seen) == {int(ending)} and seen[int(ending)] >= 5
    assert (colonies.episode > 0).all()


@pytest.mark.parametrize("mode", ["ratio", "nodes"])
def test_ties_in_x_are_broken_by_id(mode: str) -> None:
    envs, colonies = both(f"mode={mode}, max_nodes=30", 7)
    policy, tied = varied(envs), 0
    for step in range(40):
        envs.colonies.x[:] = 20.0 * np.round(envs.colonies.x / 20)  # several nodes in one column
        colonies.state.numbers[0] = torch.from_numpy(envs.colonies.x)
        tied += sum(
            len(set(x[:n])) < n
            for x, n in zip(envs.colonies.x.tolist(), envs.colonies.nodes.tolist(), strict=True)
        )
        step_both(envs, colonies, policy(envs, step))
    assert tied > 100


def by_hand(
    x: list[float], stiff: list[float], parent: list[int], choices: list[int], number: int = 8
) -> list[dict[int, int]]:
    """The trees of colonies in mode nodes after one step of both forms: they differ in who dies on
    soft ground."""
    n = len(x)
    envs, colonies = both(f"mode=nodes, init_nodes={n}, max_nodes={n}, soft=3", number)
    c = envs.colonies
    c.x[:, :n], c.y[:, :n], c.stiff[:, :n], c.parent[:, :n], c.centre[:] = (
        x,
        200,
        stiff,
        parent,
        np.mean(x),
    )
    show_all(envs.rules, c, envs.scratch, envs.obs, envs.options)
    put(envs, colonies)
    step_both(envs, colonies, np.tile([*choices, *np.tile(LOW[1:], n)], (number, 1)))
    return [
        dict(zip(c.ident[i, :n].tolist(), c.parent[i, :n].tolist(), strict=True))
        for i, n in enumerate(c.nodes)
    ]


def test_children_of_deleted_nodes_attach_to_the_parent_and_the_left_most_inherits_the_root() -> (
    None
):
    trees = by_hand(
        [10, 40, 30, 20, 50, 60],
        [9] * 6,
        [-1, 0, 0, 0, 1, 1],
        [DELETE, DELETE, REST, REST, REST, REST],
        1,
    )
    # 4 and 5 lose 1 and then the root 0; of 2, 3, 4, 5 node 3 is left-most
    assert trees == [{2: 3, 3: -1, 4: 3, 5: 3}]


def test_deaths_on_soft_ground_come_after_the_chosen_ones() -> None:
    """1 has inherited the root before 2 dies, though 2's child lies further to the left."""
    trees = by_hand([10, 20, 50, 15], [9, 9, 1, 9], [-1, 0, 0, 2], [DELETE, REST, REST, REST])
    assert {1: -1, 3: 1} in trees and {1: -1, 2: 1, 3: 2} in trees


@pytest.mark.parametrize(
    "arguments", ["substrate=bend, max_nodes=20", "mode=nodes, max_nodes=12, soft=3"]
)
def test_what_lies_behind_the_last_node_has_no_meaning(arguments: str) -> None:
    envs, colonies = both(arguments, 5)
    policy = varied(envs)
    for step in range(30):
        behind = torch.arange(2 * envs.setting.max_nodes) >= colonies.state.nodes[:, None]
        colonies.state.numbers.masked_fill_(behind, torch.nan)
        colonies.state.whole.masked_fill_(behind, 2 * envs.setting.max_nodes - 1)
        step_both(envs, colonies, policy(envs, step))


def test_a_colony_alone_draws_what_it_draws_among_others() -> None:
    many, alone = (
        TorchColonies(f"{NAME}(substrate=bend)", 5, 4),
        TorchColonies(f"{NAME}(substrate=bend)", 1, 4, first=3),
    )
    for step in range(40):
        action = torch.from_numpy(np.random.default_rng(step).uniform(LOW, HIGH, (5, 5)))
        action[:, 0] = 0.5
        many.step(action)
        alone.step(action[3:4])
        assert torch.equal(many.obs[3], alone.obs[0]) and many.reward[3] == alone.reward[0]


# what is seen


@pytest.mark.parametrize(
    ("x", "y", "parent"),
    [
        ([50], [200], [-1]),
        ([50, 50], [200, 200], [-1, 0]),
        ([50] * 5, [200] * 5, [-1, 0, 1, 2, 3]),
        ([50, 60, 70, 80], [200] * 4, [1, -1, 1, 2]),
        ([50, 50, 50, 60, 60, 60], [100, 110, 120, 100, 110, 120], [-1, 0, 1, 2, 3, 4]),
        ([10, 20, 30, 20], [10, 20, 30, 5], [3, 3, 3, -1]),
        ([5, 5, 9, 9, 7, 7, 7], [5, 5, 5, 5, 9, 9, 1], [6, 0, 0, 6, 2, 2, -1]),
        (
            list(range(10, 22)),
            [7, 3, 9, 1, 5, 8, 2, 6, 4, 0, 7, 7],
            [11, 0, 11, 11, 1, 4, 4, 4, 0, 8, 3, -1],
        ),
    ],
)
def test_degenerate_colonies_and_those_above_max_nodes_show_the_same(
    x: list[float], y: list[float], parent: list[int]
) -> None:
    """The last two have more nodes than are shown: the root lies behind the last one shown and is
    cut off."""
    n = len(x)
    for nodes in (max(n, 2), 6):
        envs, colonies = both(f"max_nodes={nodes}, init_nodes=1", 1)
        c = envs.colonies
        c.x[0, :n], c.y[0, :n], c.parent[0, :n], c.ident[0, :n] = x, y, parent, range(n)
        c.nodes[0] = n
        c.stiff[0, :n], c.age[0, :n] = 1 + 0.05 * np.floor(x), np.arange(n) % 3
        show_all(envs.rules, c, envs.scratch, envs.obs, envs.options)
        put(envs, colonies)
        np.testing.assert_allclose(
            observe(colonies.rules, cut(colonies.rules, colonies.state)).numpy(),
            envs.obs,
            rtol=1e-6,
            atol=1e-6,
        )


def test_rows_can_be_packed_as_they_are() -> None:
    envs, colonies = both("substrate=bend", 7)
    play_both(envs, colonies, varied(envs), 5)
    for found, expected in zip(
        pack(colonies.obs, colonies.size),
        pack(torch.from_numpy(envs.obs), colonies.size),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


# no waiting


class Counting(TorchDispatchMode):
    """Counts operations, and refuses those whose result's shape or whose Python number hangs on the
    data."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in (
            "_local_scalar_dense",
            "nonzero",
            "masked_select",
            "repeat_interleave",
            "unique_dim",
            "_unique2",
        ), name
        if name == "index":
            assert all(part is None or part.dtype != torch.bool for part in args[1])
        self.found[name] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "arguments", ["substrate=bend", "substrate=random", "mode=nodes, max_nodes=20"]
)
def test_a_step_has_as_many_operations_for_any_number_of_colonies_and_asks_for_none_of_their_numbers(
    arguments: str,
) -> None:
    counts = []
    for number in (1, 7):
        envs, colonies = both(arguments, number)
        actions = torch.from_numpy(legal(envs.mask, varied(envs)(envs, 0)))
        with Counting() as counting:
            colonies.step(actions)
        counts.append(counting.found)
    assert counts[0] == counts[1] and counts[0].total() > 100
    with pytest.raises(AssertionError, match="nonzero"), Counting():
        colonies.check()


# what is refused


def test_masked_choices_rest_and_are_told_by_the_next_check() -> None:
    envs, colonies = both("mode=nodes, init_nodes=1, max_nodes=3", 2)
    action = torch.zeros(2, 15, dtype=torch.float64)
    action[:, 3:] = torch.from_numpy(np.tile(LOW[1:], 3))
    action[1, 0], action[:, 1:3] = DELETE, 9.0  # rows without a node are ignored
    colonies.step(action)
    rested = action.numpy().copy()
    rested[1, 0] = REST
    envs.step(rested)
    np.testing.assert_allclose(colonies.obs.numpy(), envs.obs, rtol=1e-6, atol=1e-6)
    with pytest.raises(EnvironmentFault, match="1 of 2, the first is colony 1, were told"):
        colonies.check()
    colonies.check()


def test_numbers_outside_their_ranges_are_clipped_and_what_is_none_is_told_by_the_next_check() -> (
    None
):
    envs, colonies = both("", 2)
    step_both(envs, colonies, np.tile([-3.0, 99.0, 0.0, 9.0, 2.0], (2, 1)))
    colonies.check()
    colonies.step(torch.tensor([FAR, [torch.nan, *FAR[1:]]]))
    envs.step(np.array([FAR, [0.0, *FAR[1:]]], np.float32))
    np.testing.assert_allclose(colonies.obs.numpy(), envs.obs, rtol=1e-6, atol=1e-6)
    with pytest.raises(EnvironmentFault, match="the first is colony 1"):
        colonies.check()
    with pytest.raises(
        EnvironmentFault, match=r"actions of the shape \(2, 4\) do not fit \(2, 5\)"
    ):
        colonies.step(torch.zeros(2, 4))


def test_a_graph_is_refused_where_there_is_no_cuda_device() -> None:
    with pytest.raises(EnvironmentFault, match="recorded on CUDA, and this is cpu"):
        TorchColonies(Setting(), 1, 0, graph=True)


def test_beginning_again_plays_the_same_episodes() -> None:
    colonies = TorchColonies(NAME, 3, 5)
    rows = []
    for _ in range(2):
        colonies.begin(5)
        for _ in range(3):
            colonies.step(torch.tensor([FAR] * 3))
        rows.append(colonies.obs)
    assert torch.equal(*rows)
