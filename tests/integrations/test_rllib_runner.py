"""The environment runner: the same episodes and metrics as RLlib's own, bit for bit, for any module;
callbacks, failures, and what it refuses."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from ragged import Ragged, Uneven, small
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from tenfold.integrations.rllib import BulkEnvRunner
from tenfold.integrations.rllib.samples import CompiledActing

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*already in registry:UserWarning"),
]
BOTH = (SingleAgentEnvRunner, BulkEnvRunner)
# episodes that go on, that are cut twice, whole ones without exploring, and the reset after them
CALLS: tuple[dict[str, Any], ...] = (
    {"num_timesteps": 40},
    {"num_timesteps": 7},
    {"num_timesteps": 25},
    {"num_episodes": 5, "explore": False},
    {"num_timesteps": 20},
)


def arrays(data: Any) -> list[np.ndarray]:
    if isinstance(data, dict):
        return [array for key in sorted(data) for array in arrays(data[key])]
    return [np.asarray(data)]


def assert_same(expected: Any, found: Any) -> None:
    """Two episodes: every number, its type, and what is looked back to."""
    for name in ("t", "t_started", "is_terminated", "is_truncated", "is_numpy"):
        assert getattr(expected, name) == getattr(found, name), name
    assert set(expected.extra_model_outputs) == set(found.extra_model_outputs)
    columns = [
        (getattr(one, name) for one in (expected, found))
        for name in ("observations", "actions", "rewards")
    ] + [
        (one.extra_model_outputs[name] for one in (expected, found))
        for name in expected.extra_model_outputs
    ]
    for mine, other in columns:
        assert mine.lookback == other.lookback and mine.space == other.space
        for a, b in zip(arrays(mine.data), arrays(other.data), strict=True):
            assert a.dtype == b.dtype and np.array_equal(a, b)
    assert expected.infos.data == found.infos.data
    assert expected.infos.lookback == found.infos.lookback


def sampled(kind: type, config: PPOConfig, calls: Any = CALLS) -> tuple[list[Any], list[Any]]:
    """Episodes and reduced metrics of each call."""
    torch.manual_seed(0)
    runner = kind(config=config, worker_index=0)
    runner._weights_seq_no = 3
    episodes, metrics = [], []
    for call in calls:
        episodes.append(runner.sample(**call))
        reduced = runner.get_metrics()
        metrics.append({key: stat.peek() for key, stat in reduced.items() if hasattr(stat, "peek")})
    runner.stop()
    return episodes, metrics


def assert_samples_alike(config: Callable[[], PPOConfig]) -> list[Any]:
    (expected, measured), (found, ours) = (sampled(kind, config()) for kind in BOTH)
    assert [len(part) for part in expected] == [len(part) for part in found]
    for one, other in zip(list(chain(*expected)), list(chain(*found)), strict=True):
        assert_same(one, other)
    timed = ("time", "sec", "connector", "sum_episodes", "throughput")
    for theirs, own in zip(measured, ours, strict=True):
        compared = {
            key for key in theirs if key != "sample" and not any(word in key for word in timed)
        }
        assert "num_env_steps_sampled" in compared
        for key in compared:
            assert np.array_equal(theirs[key], own[key], equal_nan=True), key
    assert "episode_return_mean" in ours[-2]
    return found


@pytest.mark.parametrize("lookback", [1, 3])
def test_samples_are_rllibs_own_bit_for_bit(lookback: int) -> None:
    """Episodes that end at different times in three environments, by themselves or by a time
    limit."""
    found = assert_samples_alike(
        lambda: small(Uneven).env_runners(
            num_envs_per_env_runner=3, episode_lookback_horizon=lookback
        )
    )
    episodes = list(chain(*found[:2]))
    going = {episode.id_ for episode in found[0] if not episode.is_done}
    assert going and going & {episode.id_ for episode in found[1]}
    assert any(e.is_terminated for e in episodes) and any(e.is_truncated for e in episodes)
    assert (episodes[0].extra_model_outputs[WEIGHTS_SEQ_NO].data == 3).all()


def test_masks_in_a_dict_are_sampled_alike() -> None:
    assert_samples_alike(lambda: small(Ragged).environment(env_config={"by_head": True}))


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_rllibs_own_modules_are_sampled_alike(env: str) -> None:
    """One choice, and numbers that the environment takes in other bounds."""
    assert_samples_alike(
        lambda: (
            PPOConfig()
            .environment(env)
            .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
            .debugging(seed=1, log_level="ERROR")
        )
    )


def test_compiled_acting_samples_what_the_module_does(monkeypatch: pytest.MonkeyPatch) -> None:
    config = small(Uneven)
    compiled, _ = sampled(BulkEnvRunner, config)
    runner = BulkEnvRunner(config=config, worker_index=0)
    assert runner.lanes and CompiledActing.of(runner.module, runner.lanes.tree)
    monkeypatch.setattr(CompiledActing, "of", lambda *_: None)
    for one, other in zip(
        list(chain(*compiled)), list(chain(*sampled(BulkEnvRunner, config)[0])), strict=True
    ):
        assert_same(one, other)


def test_random_actions_come_from_the_space() -> None:
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    runner = BulkEnvRunner(config=config, worker_index=0)
    episodes = runner.sample(num_timesteps=64, random_actions=True)
    actions = np.concatenate([episode.get_actions() for episode in episodes])
    assert len(actions) == 64 and set(actions.tolist()) == {0, 1}
    assert set(episodes[0].extra_model_outputs) == {WEIGHTS_SEQ_NO}


# callbacks, failures


class Counting(RLlibCallback):
    """Which moments came for which episode, with something kept in the episode."""

    moments: list[tuple[str, int]] = []

    def on_episode_created(self, *, episode: Any, env_index: int, **_: Any) -> None:
        self.moments.append(("created", env_index))
        episode.custom_data["mark"] = len(self.moments)

    def on_episode_start(self, *, episode: Any, env_index: int, **_: Any) -> None:
        assert len(episode) == 0 and episode.get_observations(0)["observations"].shape == (6,)
        assert episode.custom_data["mark"]
        self.moments.append(("start", env_index))

    def on_episode_end(
        self, *, episode: Any, env_index: int, prev_episode_chunks: Any, **_: Any
    ) -> None:
        length = len(episode) + sum(len(chunk) for chunk in prev_episode_chunks)
        assert episode.is_done and length == 10 and episode.custom_data["mark"]
        self.moments.append(("end", env_index))


def test_callbacks_come_when_rllibs_come() -> None:
    found = []
    for kind in BOTH:
        Counting.moments = []
        sampled(kind, small(Ragged).callbacks(Counting), ({"num_timesteps": 34},) * 2)
        found.append(Counting.moments)
    assert found[0] == found[1] and found[0].count(("end", 0)) == 3


class Brittle(Ragged):
    """The fourth step of the first environment fails, once."""

    left_to_break = 3

    def step(self, action: Any) -> Any:
        Brittle.left_to_break -= 1
        if Brittle.left_to_break == 0:
            raise OSError("the simulator is gone")
        return super().step(action)


def test_a_failed_step_ends_sampling_or_makes_new_environments() -> None:
    Brittle.left_to_break = 7
    runner = BulkEnvRunner(config=small(Brittle), worker_index=0)
    with pytest.raises(RuntimeError, match="the simulator is gone"):
        runner.sample(num_timesteps=30)
    Brittle.left_to_break = 7
    config = small(Brittle).fault_tolerance(restart_failed_sub_environments=True)
    runner = BulkEnvRunner(config=config, worker_index=0)
    episodes = runner.sample(num_timesteps=30)
    assert sum(len(episode) for episode in episodes) == 30
    assert int(runner.get_metrics()["num_env_step_failures"].peek()) == 1


# what is refused


class Stepping(RLlibCallback):
    def on_episode_step(self, **_: Any) -> None:
        """Asked for in every step."""


def with_agents(config: PPOConfig) -> PPOConfig:
    return config.multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda *_: "a")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (with_agents, "multi-agent"),
        (
            lambda c: c.env_runners(env_to_module_connector=lambda *_: FlattenObservations()),
            "env_to_module_connector",
        ),
        (
            lambda c: c.env_runners(module_to_env_connector=lambda *_: FlattenObservations()),
            "module_to_env_connector",
        ),
        (
            lambda c: c.env_runners(add_default_connectors_to_env_to_module_pipeline=False),
            "env_to_module pipeline",
        ),
        (lambda c: c.env_runners(gym_env_vectorize_mode="async"), "vectorize mode async"),
        (lambda c: c.env_runners(episodes_to_numpy=False), "episodes_to_numpy"),
        (lambda c: c.callbacks(Stepping), "Stepping.on_episode_step"),
        (lambda c: c.callbacks(on_episode_step=print), "callbacks_on_episode_step"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(
    change: Callable[[PPOConfig], PPOConfig], names: str
) -> None:
    with pytest.raises(ValueError, match=names) as refused:
        BulkEnvRunner(config=change(small(Ragged)), worker_index=0)
    assert "RLlib's own runner takes it" in str(refused.value)


class Words(gym.Env):
    def __init__(self, config: Any) -> None:
        self.observation_space, self.action_space = gym.spaces.Text(8), gym.spaces.Discrete(2)


def test_recurrent_modules_and_spaces_without_arrays_are_refused() -> None:
    recurrent = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .rl_module(model_config={"use_lstm": True})
    )
    with pytest.raises(ValueError, match="recurrent"):
        BulkEnvRunner(config=recurrent, worker_index=0)
    with pytest.raises(ValueError, match="Text"):
        BulkEnvRunner(config=small(Words), worker_index=0)
