"""Durotaxis for Gymnasium."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tenfold.core.errors import EnvironmentFault
from tenfold.core.layout import observation_layout
from tenfold.domains.durotaxis.api import DurotaxisEnv, DurotaxisVectorEnv, read_row
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.envs.making import make_env, make_environments

NAME = "tenfold/Durotaxis-v0"


@pytest.mark.filterwarnings("ignore:.*symmetric and normalized space.*")  # the ranges are physical
@pytest.mark.parametrize(
    "arguments",
    [
        {"substrate": "bend"},
        {"mode": "nodes", "max_nodes": 30},
        {"learn": "delete_ratio"},
        {"max_nodes": 1, "init_nodes": 1},
    ],
)
def test_gymnasiums_checker_passes(arguments: dict[str, str | int]) -> None:
    check_env(gym.make(NAME, **arguments).unwrapped, skip_render_check=True)


@pytest.mark.parametrize(
    "arguments", ["substrate=bend", "mode=nodes, substrate=bend, max_nodes=20"]
)
def test_an_ordinary_environment_plays_a_lanes_episode(arguments: str) -> None:
    name = f"{NAME}({arguments}, max_steps=60)"
    envs, rng = make_environments(name, 3, 5, policy=True), np.random.default_rng(0)
    assert isinstance(envs, DurotaxisEnvironments)
    env = make_env(name)
    obs, info = env.reset(seed=envs.episode_seed(1))
    layout, lasting = observation_layout(env.observation_space, name), True
    while lasting:
        np.testing.assert_array_equal(layout.encode(obs), envs.obs[1])
        assert env.observation_space.contains(obs)
        if envs.mask is None:
            action = np.tile([0.5, 15, 0.5, 0.3, 0], (3, 1)) * rng.uniform(0.9, 1.1, (3, 5))
            own = action[1]
        else:
            np.testing.assert_array_equal(info["action_mask"], envs.mask[1])
            action = rng.uniform(0.5, 1, (3, 100))
            action[:, :20] = 1
            action[:, 0] = envs.mask[:, 0] != 1  # spawn where that is allowed
            own = {"choice": action[1, :20].astype(int), "spawn": action[1, 20:].reshape(20, 4)}
        obs, reward, terminated, truncated, info = env.step(own)
        envs.step(action)
        lasting = not (terminated or truncated)
        assert reward == pytest.approx(envs.reward[1])
        assert info["components"]["survival"] == envs.component_values[1, 8]
    assert (terminated, truncated) == (envs.terminated[1], envs.truncated[1])
    np.testing.assert_array_equal(layout.encode(obs), envs.final_obs[1])
    assert info["ending"] in ("extinct", "goal", "overgrown", "time")
    with pytest.raises(EnvironmentFault, match="is over: call reset"):
        env.unwrapped.step(own)


def test_time_is_truncation_and_no_ending_of_the_colony() -> None:
    env = DurotaxisEnv(max_steps=2)
    env.reset(seed=0)
    action = np.array([0.5, 15, 0.5, 0.5, 0])
    assert env.step(action)[2:4] == (False, False)
    *_, terminated, truncated, info = env.step(action)
    assert (terminated, truncated, info["ending"], info["success"]) == (False, True, "time", False)


@pytest.mark.parametrize("arguments", [{"substrate": "bend"}, {"mode": "nodes", "max_nodes": 12}])
def test_the_vector_steps_together_and_keeps_the_last_observation(
    arguments: dict[str, str | int],
) -> None:
    envs = gym.make_vec(NAME, 3, vectorization_mode="vector_entry_point", max_steps=2, **arguments)
    obs, _ = envs.reset(seed=1)
    assert envs.observation_space.contains(obs)
    assert obs["colony"].shape[0] == len(obs["graph"]) == 3
    actions = envs.action_space.sample()
    if "mode" in arguments:
        actions["choice"][:] = 1
    else:
        actions[:, 0] = 0.5
    for _ in range(2):
        obs, reward, terminated, truncated, info = envs.step(actions)
        assert envs.observation_space.contains(obs) and reward.shape == (3,)
        assert sorted(info["components"])[0] == "boundary"
    assert truncated.all() and not terminated.any()
    assert info["_final_obs"].all() and len(info["final_obs"][0]["graph"].nodes) >= 4
    assert all(len(graph.nodes) == 5 for graph in obs["graph"])
    again, _ = envs.reset(seed=1)
    np.testing.assert_array_equal(
        again["graph"][2].nodes,
        read_row(
            envs.unwrapped.setting,
            DurotaxisEnvironments(  # type: ignore[attr-defined]
                NAME, 3, 1, setting=envs.unwrapped.setting
            ).obs[2],
        )["graph"].nodes,
    )  # type: ignore[attr-defined]


def test_an_episode_played_twice_has_one_table_and_another_one_another() -> None:
    """Also where numbers are not there: those of the action before the first step, and the place of
    a colony that died out."""
    env = DurotaxisEnv(max_nodes=1, init_nodes=1)

    def table(ratio: float) -> np.ndarray:
        env.reset(seed=3)
        return env.step(np.array([ratio, 15, 0.5, 0.5, 0]))[-1]["trajectory"]

    once, again, other = table(1.0), table(1.0), table(0.0)
    assert once.shape == (2, 22) and np.isnan(once).sum() == 5 + 4
    assert (once == again).all() and not (once != again).any() and np.allclose(once, again)
    assert (once != other).any() and (once != 0).any()


@pytest.mark.parametrize(
    ("mode", "action"),
    [
        ("ratio", np.zeros(3)),
        ("ratio", np.zeros((3, 5))),
        ("ratio", 0.5),
        ("ratio", None),
        ("ratio", "left"),
        ("ratio", ["a"] * 5),
        ("ratio", [[1, 2], [3]]),
        ("ratio", {"choice": [1]}),
        ("nodes", {"choice": np.ones(6)}),
        ("nodes", {"choice": np.ones(6), "spawn": np.ones((6, 3))}),
        ("nodes", np.ones(4)),
        ("nodes", {"choice": np.ones(5), "spawn": np.ones((6, 4))}),
        ("nodes", {}),
    ],
)
def test_actions_that_do_not_fit_are_refused_in_one_sentence(mode: str, action: Any) -> None:
    env, envs = DurotaxisEnv(mode=mode, max_nodes=6), DurotaxisVectorEnv(2, mode=mode, max_nodes=6)
    for stage in (env, envs):
        stage.reset(seed=0)
        with pytest.raises(
            EnvironmentFault, match=r"^tenfold/Durotaxis-v0: [^\n]*(do not fit|and not)[^\n]*\.$"
        ):
            stage.step(action)
    assert env.inner.colonies.step[0] == 0


def test_any_seed_that_gymnasium_takes_begins_an_episode() -> None:
    env = DurotaxisEnv(substrate="random")
    nodes = [
        env.reset(seed=seed)[0]["graph"].nodes for seed in (2**70, 2**70, 2**70 + 1, 2**64 - 1)
    ]
    assert (
        np.array_equal(nodes[0], nodes[1])
        and not np.array_equal(nodes[0], nodes[2])
        and len(nodes[3]) == 5
    )
    with pytest.raises(gym.error.Error):
        env.reset(seed=-1)


def test_a_vector_tells_success_where_an_episode_ended() -> None:
    envs = DurotaxisVectorEnv(2, max_steps=3, size="200x60", margin=1)
    envs.reset(seed=0)
    envs.inner.colonies.x[1, 4] = 190  # one step from the goal
    _, _, terminated, _, info = envs.step(np.tile([0.5, 15, 0.5, 0.5, 0], (2, 1)))
    assert (
        terminated.tolist()
        == info["_success"].tolist()
        == info["_ending"].tolist()
        == info["success"].tolist()
        == [False, True]
    )
    assert (
        info["ending"][1] == "goal"
        and info["nodes"][1] == 5
        and info["_nodes"].all()
        and info["_components"].all()
    )
    envs.step(np.tile([0.5, 15, 0.5, 0.5, 0], (2, 1)))
    *_, truncated, info = envs.step(np.tile([0.5, 15, 0.5, 0.5, 0], (2, 1)))
    assert (
        truncated.tolist() == info["_success"].tolist() == [True, False]
        and not info["success"].any()
    )


def test_a_vector_takes_a_list_of_actions_as_an_agent_gives_them() -> None:
    one, other = (DurotaxisVectorEnv(2, mode="nodes", max_nodes=8) for _ in range(2))
    for envs in (one, other):
        envs.reset(seed=4)
    both = one.action_space.sample()
    both["choice"][:] = 1
    both["choice"][:, 2] = 0
    one.step(both)
    other.step([{"choice": both["choice"][i], "spawn": both["spawn"][i]} for i in range(2)])
    np.testing.assert_array_equal(one.inner.obs, other.inner.obs)
