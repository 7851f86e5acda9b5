"""Durotaxis: the compiled step against one node at a time, and what a colony does, is shown and
earns."""

import math
from enum import IntEnum

import numpy as np
import pytest

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.durotaxis.baselines import (
    constant_policy,
    follower_policy,
    idle_policy,
    play,
    random_policy,
)
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments, observe_all
from tenfold.domains.durotaxis.features import (
    EDGE,
    GRAPH,
    NODE,
    EdgeFeature,
    GraphFeature,
    NodeFeature,
    graph_size,
    observe_reference,
)
from tenfold.domains.durotaxis.reference import Colony, play_compiled, play_reference, some_actions
from tenfold.domains.durotaxis.setting import (
    COMPONENTS,
    DELETE,
    HIGH,
    LOW,
    REST,
    SPAWN,
    WEIGHTS,
    EndReason,
    read_setting,
)
from tenfold.envs.making import make_environments

NAME = "tenfold/Durotaxis-v0"
Component = IntEnum("Component", [name.upper() for name in COMPONENTS], start=0)
FAR = [0.5, 15.0, 0.5, 0.5, 0.0]


def colonies(arguments: str = "", number: int = 1, seed: int = 0) -> DurotaxisEnvironments:
    return DurotaxisEnvironments(f"{NAME}({arguments})", number, seed)


def place(envs: DurotaxisEnvironments, x: list[float], y: list[float], parent: list[int]) -> None:
    """A colony by hand: node j has the id j."""
    c, n = envs.colonies, len(x)
    c.x[0, :n], c.y[0, :n], c.parent[0, :n], c.ident[0, :n] = x, y, parent, range(n)
    c.nodes[0] = c.following[0] = n
    c.stiff[0, :n] = 1 + 0.05 * np.floor(x)
    c.age[0, :n], c.centre[0] = 0, np.mean(x)
    observe_all(envs.rules, c, envs.scratch, envs.obs, envs.options)


def tree(envs: DurotaxisEnvironments, i: int = 0) -> dict[int, int]:
    n = envs.colonies.nodes[i]
    return dict(
        zip(envs.colonies.ident[i, :n].tolist(), envs.colonies.parent[i, :n].tolist(), strict=True)
    )


def is_one_tree(parents: dict[int, int]) -> bool:
    def reaches_root(node: int) -> bool:
        for _ in parents:
            if parents[node] < 0:
                return True
            node = parents[node]
        return False

    return list(parents.values()).count(-1) == 1 and all(map(reaches_root, parents))


# the step


@pytest.mark.parametrize(
    ("arguments", "steps", "number"),
    [
        ("substrate=linear", 120, 8),
        ("substrate=exponential, rounding=floor", 120, 8),
        ("substrate=bend, max_nodes=60", 120, 8),
        ("substrate=random, size=250x60, init_nodes=1, max_nodes=20, max_steps=9", 120, 8),
        ("mode=nodes, substrate=bend, max_nodes=40", 80, 8),
        ("substrate=bend, size=210..500x60..300, init_nodes=1..30, max_nodes=40", 60, 8),
    ],
)
def test_compiled_colonies_step_like_one_node_at_a_time(
    arguments: str, steps: int, number: int
) -> None:
    name = f"{NAME}({arguments})"
    actions = some_actions(np.random.default_rng(1), name, steps, number).astype(np.float32)
    compiled, reference = play_compiled(name, 3, actions), play_reference(name, 3, actions)
    for what, found, expected in zip(
        ("obs", "final_obs", "components", "ending", "tree"), compiled, reference, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=what)
    endings = set(np.unique(compiled[3]).tolist())
    # the actions delete everything now and then
    assert endings >= {int(EndReason.NONE), int(EndReason.EXTINCT)}
    assert np.any(actions[..., 0] == 0)


@pytest.mark.parametrize("mode", ["ratio", "nodes"])
def test_ties_in_x_are_broken_by_id_as_one_node_at_a_time(mode: str) -> None:
    rng, name = np.random.default_rng(0), f"{NAME}(mode={mode}, max_nodes=30)"
    for seed in range(60):
        envs = DurotaxisEnvironments(name, 1, seed)
        colony = Colony(envs.setting, envs.episode_seed(0))
        for _ in range(6):
            n = len(colony.nodes)
            for j, node in enumerate(colony.nodes):  # several nodes in one column
                node.x = envs.colonies.x[0, j] = 20.0 * round(node.x / 20)
            action = some_actions(rng, name, 1, 1)[0]
            if mode == "nodes":
                action[0, :30] = np.where(
                    (n == 1) & (action[0, :30] == DELETE), REST, action[0, :30]
                )
            _, ending = colony.step(action[0].astype(np.float32).astype(np.float64).tolist())
            envs.step(action.astype(np.float32))
            if ending:
                break
            assert tree(envs) == {node.ident: node.parent for node in colony.nodes}
            assert is_one_tree(tree(envs))


def test_the_graph_is_always_one_tree() -> None:
    envs, act = colonies("substrate=bend", 16), random_policy(0, 0.1)
    seen = 0
    for step in range(200):
        envs.step(act(envs, step))
        for i in range(16):
            parents = tree(envs, i)
            assert is_one_tree(parents)
            assert envs.obs[i, 1] == len(parents) - 1
            seen += 0 not in parents
    assert seen > 100  # colonies whose first root is gone


@pytest.mark.parametrize("mode", ["ratio", "nodes"])
def test_only_a_root_is_younger_than_its_children(mode: str) -> None:
    """What lets the compiled code go up and down the tree in one pass over the slots each."""
    envs, act = (
        colonies(f"mode={mode}, substrate=bend, soft=2, target=40", 16),
        random_policy(0, 0.1),
    )
    young_roots = 0
    for step in range(300):
        envs.step(act(envs, step))
        for i in range(16):
            parents = tree(envs, i)
            late = {above for ident, above in parents.items() if above > ident}
            assert all(parents[above] == -1 for above in late)
            young_roots += len(late)
    assert young_roots > 20


def test_children_of_deleted_nodes_attach_to_the_parent_and_the_left_most_inherits_the_root() -> (
    None
):
    envs = colonies("mode=nodes, max_nodes=6")
    place(envs, [10, 40, 30, 20, 50, 60], [200] * 6, [-1, 0, 0, 0, 1, 1])
    action = np.zeros((1, 30))
    action[0, :6] = [DELETE, DELETE, REST, REST, REST, REST]
    action[0, 6:] = np.tile(LOW[1:], 6)
    envs.step(action)
    # 4 and 5 lose 1 and then the root 0; of 2, 3, 4, 5 node 3 is left-most
    assert tree(envs) == {2: 3, 3: -1, 4: 3, 5: 3}


def test_the_left_most_are_deleted_and_all_others_spawn_by_the_hill_equation() -> None:
    envs = colonies("rounding=floor, soft=0")
    place(envs, [100, 50, 50, 200], [100, 100, 150, 300], [-1, 0, 0, 0])
    envs.step(np.array([[0.5, 10.0, 2.0, 0.05, 0.0]]))  # k = 2: both at x = 50
    c, n = envs.colonies, int(envs.colonies.nodes[0])
    assert c.ident[0, :n].tolist() == [0, 3, 4, 5]
    assert c.parent[0, :n].tolist() == [-1, 0, 0, 3]
    for child, (x, y) in zip((2, 3), ((100, 100), (200, 300)), strict=True):
        reach = 10 / (1 + (2 / (1 + 0.05 * x)) ** 2)
        assert reach < c.x[0, child] - x < reach + 0.05 * 5
        assert c.y[0, child] == y
    assert c.age[0, :n].tolist() == [1, 1, 0, 0]
    np.testing.assert_allclose(c.born[0, 2], [10, 2, 0.05, 0], rtol=1e-6)


def test_rounding_is_down_on_average_right_or_always_down() -> None:
    sizes = {}
    for rounding in ("stochastic", "floor"):
        envs = colonies(f"rounding={rounding}", 2000)
        envs.step(np.tile([0.5, *FAR[1:]], (2000, 1)))
        sizes[rounding] = envs.colonies.nodes
    assert set(sizes["floor"].tolist()) == {6}  # 5 nodes: k = 2, three are left and spawn
    assert set(sizes["stochastic"].tolist()) == {4, 6}
    assert abs(sizes["stochastic"].mean() - 5) < 0.15


def test_nodes_on_soft_ground_die_half_of_the_time() -> None:
    setting = read_setting(substrate=np.full((400, 600), 0.29), init_nodes=50)
    envs = DurotaxisEnvironments(NAME, 40, 0, setting=setting)
    envs.step(np.tile([0.0, *FAR[1:]], (40, 1)))
    assert abs(envs.colonies.nodes.mean() - 50) < 3  # of a hundred


def test_a_colony_alone_draws_what_it_draws_among_others() -> None:
    many, rng = colonies("substrate=bend", 5, seed=4), np.random.default_rng(0)
    alone = DurotaxisEnvironments(f"{NAME}(substrate=bend)", 1, 4, first=3)
    for _ in range(60):
        action = rng.uniform(LOW, HIGH, (5, 5))
        action[:, 0] = 0.5
        many.step(action)
        alone.step(action[3:4])
        np.testing.assert_array_equal(many.obs[3], alone.obs[0])
        assert many.reward[3] == alone.reward[0]


def test_saved_and_restored_colonies_go_on_as_if_never_stopped() -> None:
    for mode in ("ratio", "nodes"):
        first, second = (
            colonies(f"mode={mode}, substrate=random", 6, 1),
            colonies(f"mode={mode}, substrate=random", 6, 2),
        )
        act = random_policy(3, 0.1)
        for step in range(40):
            first.step(act(first, step))
        second.streams[:], second.keys = first.streams, first.keys
        assert second.restore(first.state())
        for step in range(40, 120):
            for envs in (first, second):
                envs.step(act(envs, step))
            for what in ("obs", "reward", "final_obs", "components", "ending", "ret"):
                np.testing.assert_array_equal(
                    getattr(first, what)[first.ending > 0], getattr(second, what)[first.ending > 0]
                )
            np.testing.assert_array_equal(first.obs, second.obs)
            assert first.finished == second.finished


# what is seen


def test_features_worked_out_by_hand() -> None:
    envs = colonies("max_nodes=10")
    place(envs, [60, 90, 90, 120], [200, 200, 240, 200], [-1, 0, 1, 1])
    row, (nodes, links, edges, _) = envs.obs[0], graph_size(10).starts
    seen = row[nodes : nodes + 4 * NODE].reshape(4, NODE)
    assert row[:2].tolist() == [4, 3]
    np.testing.assert_allclose(seen[:, NodeFeature.X], [0.1, 0.15, 0.15, 0.2], rtol=1e-6)
    np.testing.assert_allclose(seen[:, NodeFeature.Y], [0, 0, 0.2, 0], atol=1e-6)
    np.testing.assert_allclose(
        seen[:, NodeFeature.INTENSITY], np.log1p([4, 5.5, 5.5, 7]) / 2, rtol=1e-6
    )
    assert seen[:, NodeFeature.IN_DEGREE].tolist() == [0, 1, 1, 1]
    assert seen[:, NodeFeature.OUT_DEGREE].tolist() == [0.25, 0.5, 0, 0]
    # 1 + 2 + 2 edges
    np.testing.assert_allclose(seen[:, NodeFeature.CLOSENESS], [3 / 5, 1, 3 / 5, 3 / 5], rtol=1e-6)
    np.testing.assert_allclose(
        seen[:, NodeFeature.CENTROID_DISTANCE],
        np.array([math.hypot(30, 10), 10, 30, math.hypot(30, 10)]) / 50,
        rtol=1e-6,
    )
    assert seen[:, NodeFeature.HULL].tolist() == [1, 0, 1, 1]  # node 1 lies on an edge of the hull
    assert seen[:, NodeFeature.NEW].tolist() == [1, 1, 1, 1]
    assert row[links : links + 6].tolist() == [0, 1, 1, 2, 1, 3]
    shown = row[edges : edges + 3 * EDGE].reshape(3, EDGE)
    np.testing.assert_allclose(shown[:, EdgeFeature.LENGTH], [2, 40 / 15, 2], rtol=1e-6)
    np.testing.assert_allclose(shown[:, EdgeFeature.COSINE], [1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(shown[:, EdgeFeature.SINE], [0, 1, 0], atol=1e-6)
    whole = row[2 : 2 + GRAPH]
    assert whole[GraphFeature.HULL_AREA] == pytest.approx(60 * 40 / 2 / 2500)
    assert whole[GraphFeature.LEAVES] == 0.5
    assert whole[GraphFeature.MEAN_OUT_DEGREE] == pytest.approx(1.5 / 4)
    assert whole[GraphFeature.GOAL_DISTANCE] == pytest.approx((594 - 120) / 600)
    assert not row[nodes + 4 * NODE : links].any() and not row[edges + 3 * EDGE :].any()


def test_the_gradient_points_to_the_ridge() -> None:
    envs = colonies("substrate=bend, init_nodes=40", 8)
    nodes, c = graph_size(100).starts[0], envs.colonies
    seen = envs.obs[:, nodes : nodes + 40 * NODE].reshape(8, 40, NODE)
    ridge = np.take_along_axis(c.ridge, c.x[:, :40].astype(int), 1)
    off = np.floor(c.y[:, :40]) - ridge
    assert np.all(
        np.sign(seen[..., NodeFeature.GY])[np.abs(off) > 1] == -np.sign(off)[np.abs(off) > 1]
    )


def test_features_of_degenerate_colonies_equal_the_naive_loops() -> None:
    envs = colonies("max_nodes=12")
    for x, y in (
        ([50], [200]),
        ([50, 50], [200, 200]),
        ([50] * 5, [200] * 5),
        ([50, 60, 70, 80], [200] * 4),
        ([50, 50, 50, 60, 60, 60], [100, 110, 120, 100, 110, 120]),
    ):
        place(envs, x, y, [-1, *range(len(x) - 1)])
        colony = Colony(envs.setting, 0)
        c = envs.colonies
        colony.nodes, colony.following = [], 0
        for j in range(len(x)):
            colony.add(j - 1, x[j], y[j])
            colony.nodes[j].stiff, colony.nodes[j].gradient = (
                c.stiff[0, j],
                (c.gx[0, j], c.gy[0, j]),
            )
        np.testing.assert_allclose(
            envs.obs[0],
            observe_reference(envs.setting, colony.extent, colony.nodes),
            rtol=1e-6,
            atol=1e-7,
        )
        assert np.isfinite(envs.obs).all()


# what is earned, and how it ends


def test_no_component_is_constantly_zero_over_random_steps() -> None:
    envs, act = colonies("", 8), random_policy(0, 0.1)
    seen = np.zeros(len(COMPONENTS))
    for step in range(1000):
        envs.step(act(envs, step))
        assert envs.reward == pytest.approx(envs.component_values @ envs.component_weights)
        seen = np.maximum(seen, np.abs(envs.component_values).max(0))
    assert (seen > 0).all(), dict(zip(COMPONENTS, seen, strict=True))
    assert (seen < 4).all()


def test_two_actions_from_one_state_earn_differently() -> None:
    for place_of_number in range(5):
        one, other = colonies("substrate=bend", 4, 1), colonies("substrate=bend", 4, 1)
        first = np.tile([0.4, 8.0, 2.0, 0.3, 0.1], (4, 1))
        second = first.copy()
        second[:, place_of_number] = HIGH[place_of_number]
        one.step(first)
        other.step(second)
        assert (one.reward != other.reward).all()


def test_components_worked_out_by_hand() -> None:
    envs = colonies("mode=nodes, max_nodes=6, target=4, w_goal=0, w_distance=2", 1)
    place(envs, [60, 90, 120], [200, 200, 200], [-1, 0, 1])
    action = np.zeros((1, 30))
    action[0, :3] = [DELETE, REST, SPAWN]
    action[0, 6:] = np.tile([15, 0.5, 0.05, 0], 6)
    envs.step(action)
    part, child = envs.component_values[0], envs.colonies.x[0, 2]
    gain = 0.05 * (math.floor(child) - 120)
    centre = (90 + 120 + child) / 3
    assert part[Component.DISTANCE] == pytest.approx((centre - 90) / 15)
    assert part[Component.POPULATION] == pytest.approx(math.exp(-0.5 * (1 / 2) ** 2))
    assert part[Component.SPAWN_QUALITY] == pytest.approx(gain / (1 + gain))
    assert part[Component.DELETE_QUALITY] == 1
    assert part[Component.EDGE_ALIGNMENT] == pytest.approx(1)
    assert part[
        [Component.BOUNDARY, Component.GOAL, Component.TERMINATION, Component.MILESTONES]
    ].tolist() == [0, 0, 0, 0]
    assert part[Component.SURVIVAL] == 1
    assert (
        envs.component_weights[Component.DISTANCE] == 2
        and envs.component_weights[Component.GOAL] == 0
    )
    assert envs.component_weights[Component.SURVIVAL] == WEIGHTS["survival"]


def test_no_deletion_is_good_or_bad_where_all_ground_is_the_same() -> None:
    """In floating point the sum of n equal numbers, divided by n, may be another."""
    envs, intensities = (
        colonies("init_nodes=20", 200),
        np.random.default_rng(0).uniform(0.5, 1, 200),
    )
    assert any(sum([value] * n) / n != value for value in intensities for n in range(3, 20))
    envs.colonies.stiff[:] = intensities[:, None]
    envs.colonies.nodes[:] = 3 + np.arange(200) % 17
    envs.step(np.tile(FAR, (200, 1)))
    assert not envs.component_values[:, Component.DELETE_QUALITY].any()


def test_each_milestone_is_paid_once() -> None:
    envs, paid = colonies("", 4), np.zeros(4)
    while not envs.finished:
        envs.step(np.tile(FAR, (4, 1)))
        paid += envs.component_values[:, Component.MILESTONES]
    assert all(paid[e.env] == 4 for e in envs.finished)


def test_extinction_overgrowth_goal_retreat_and_time_each_end_an_episode() -> None:
    cases = [
        ("", constant_policy([1.0, *FAR[1:]]), EndReason.EXTINCT),
        ("", constant_policy([0.0, *FAR[1:]]), EndReason.OVERGROWN),
        ("", constant_policy(FAR), EndReason.GOAL),
        ("max_steps=3", constant_policy(FAR), EndReason.TIME),
        ("mode=nodes, init_nodes=50, max_nodes=60", delete_right_most, EndReason.RETREAT),
    ]
    for arguments, policy, ending in cases:
        envs = colonies(arguments, 3)
        for step in range(100):
            envs.step(policy(envs, step))
            if envs.finished:
                break
        done = [e.env for e in envs.finished]
        assert (envs.ending[done] == ending).all()
        assert (envs.truncated[done] == (ending is EndReason.TIME)).all()
        assert (envs.terminated[done] == (ending is not EndReason.TIME)).all()
        assert all(e.success == (ending is EndReason.GOAL) for e in envs.finished)
        lost = ending in (EndReason.EXTINCT, EndReason.OVERGROWN, EndReason.RETREAT)
        assert (envs.component_values[done, Component.TERMINATION] == (-1 if lost else 0)).all()
        assert (envs.component_values[done, Component.GOAL] == (ending is EndReason.GOAL)).all()
        if ending is EndReason.RETREAT:
            assert envs.finished[0].length == 30


def delete_right_most(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
    action = np.zeros((envs.num_envs, envs.action.shape[1]))
    action[:, : envs.setting.max_nodes] = REST
    for i, n in enumerate(envs.colonies.nodes):
        action[i, int(np.argmax(envs.colonies.x[i, :n]))] = DELETE
    return action


def test_the_true_last_observation_is_kept_and_the_next_episode_is_another() -> None:
    envs = colonies("max_steps=2", 2)
    first = envs.obs.copy()
    envs.step(np.tile(FAR, (2, 1)))
    envs.step(np.tile(FAR, (2, 1)))
    assert envs.truncated.all() and envs.episode.tolist() == [1, 1]
    assert (
        envs.final_obs[:, 2 + GraphFeature.CENTROID_X] > first[:, 2 + GraphFeature.CENTROID_X]
    ).all()
    assert (envs.obs[:, 0] == 5).all() and not np.array_equal(envs.obs, first)


def test_steering_pays_and_idling_does_not() -> None:
    """The reward's scale: reaching the goal earns more than staying, discounted by 0.99 ten times
    more."""
    scores = {}
    for name, policy in (
        ("follower", follower_policy),
        ("idle", idle_policy),
        ("fixed", constant_policy(FAR)),
    ):
        scores[name] = play(colonies("substrate=bend, max_steps=500", 64, 7), policy, 64)
    rate = {name: score.success_rate or 0.0 for name, score in scores.items()}
    assert rate["follower"] > 0.95 and 30 < (scores["follower"].steps_to_goal or 0) < 45
    assert rate["fixed"] < 0.4
    discounted = {
        name: np.mean([info["discounted"] for info in score.infos])
        for name, score in scores.items()
    }
    assert discounted["follower"] > 10 * discounted["idle"] > 0
    assert scores["follower"].mean_return > 2 * scores["idle"].mean_return > 0
    assert rate["idle"] == 0 and scores["idle"].steps_to_goal is None


def test_both_modes_let_the_follower_reach_the_goal() -> None:
    for mode in ("ratio", "nodes"):
        for substrate in ("linear", "exponential"):
            score = play(
                colonies(f"mode={mode}, substrate={substrate}", 32, 3), follower_policy, 32
            )
            assert score.success_rate == 1 and 33 < (score.steps_to_goal or 0) < 39


# what is refused


def test_masks_say_what_a_node_may_choose_and_a_masked_choice_is_refused_before_anything_moves() -> (
    None
):
    envs = colonies("mode=nodes, init_nodes=1, max_nodes=3")
    assert envs.mask is not None
    # the last node is not deleted; no nodes in the other rows
    assert envs.mask[0].tolist() == [True, True, False] + [False] * 6
    full = colonies("mode=nodes, init_nodes=3, max_nodes=3")
    assert full.mask is not None
    assert full.mask[0].reshape(3, 3).tolist() == [[False, True, True]] * 3
    before = envs.obs.copy()
    action = np.zeros((1, 15))
    action[0, 0] = DELETE
    with pytest.raises(
        EnvironmentFault,
        match="environment 0, episode 0, step 1: node 0 may not choose delete: its options are spawn, rest",
    ):
        envs.step(action)
    np.testing.assert_array_equal(envs.obs, before)


def test_numbers_outside_their_ranges_are_clipped_and_what_is_no_number_is_refused() -> None:
    one, other = colonies("", 2), colonies("", 2)
    one.step(np.tile([-3.0, 99.0, 0.0, 9.0, 2.0], (2, 1)))
    other.step(np.tile([0.0, 15.0, 0.5, 0.5, HIGH[4]], (2, 1)))
    np.testing.assert_array_equal(one.obs, other.obs)
    with pytest.raises(
        EnvironmentFault, match="environment 1, episode 0, step 2: the action is not a number"
    ):
        one.step(np.array([FAR, [np.nan, *FAR[1:]]]))
    with pytest.raises(
        EnvironmentFault, match=r"actions of the shape \(2, 4\) do not fit \(2, 5\)"
    ):
        one.step(np.zeros((2, 4)))


def test_a_curriculum_learns_delete_ratio_alone() -> None:
    envs, full = colonies("learn=delete_ratio, gamma=10", 2), colonies("", 2)
    assert envs.action_space.shape == (1,)
    envs.step(np.full((2, 1), 0.3))
    full.step(np.tile([0.3, 10.0, 0.5, 0.5, 0.0], (2, 1)))
    np.testing.assert_allclose(envs.obs, full.obs, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("size=0x400", "0 x 400 has no room"),
        ("size=wide", "two whole numbers"),
        ("substrate=cliff", "no substrate cliff: take linear"),
        ("slope=1e9", "overflows: at x = 600"),
        ("substrate=exponential, slope=2", "overflows at x = 600: take a slope under 1.16667"),
        ("intercept=-1", "not positive everywhere"),
        ("init_nodes=7, max_nodes=6", "init_nodes=7 begins with more than max_nodes=6"),
        (
            "size=150x100",
            "goal at x = 148.5 cannot be reached: with a margin of 2 nodes come no further than 148",
        ),
        ("margin=20", "goal at x = 594 cannot be reached"),
        ("size=300x4", "leaves no room"),
        (
            "init_nodes=0",
            "init_nodes must be a whole number of at least 1 and at most 10,000, and not 0",
        ),
        ("mode=all", "no mode=all: take ratio or nodes"),
        ("rounding=up", "no rounding=up"),
        ("learn=gamma", "no learn=gamma"),
        ("mode=nodes, learn=delete_ratio", "is for mode=ratio"),
        ("w_gaol=1", "no reward component gaol, the nearest is goal"),
        ("w_goal=much", "w_goal must be a finite number"),
        ("max_node=3", "no setting max_node: the nearest is max_nodes"),
        ("target=0", "target=0 must be positive"),
        ("gamma=99", "gamma=99 is not within 0.5 and 15"),
        ("soft=-1", "soft=-1 not negative"),
        ("substrate=random, slope=1", "draws its own slope"),
        ("substrate=nowhere.npy", "There is no file nowhere.npy"),
    ],
)
def test_impossible_worlds_are_refused_with_the_reason(arguments: str, why: str) -> None:
    with pytest.raises(EnvironmentFault, match=why):
        make_environments(f"{NAME}({arguments})", 1, 0, policy=True)
