"""The same scripts by Stable-Baselines3 and by tenfold, on environments whose every number is known
beforehand: callbacks are called at the same steps and find the same; files go both ways."""

import inspect
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import tenfold.integrations.sb3 as ours
from tests.integrations.clock_env import ClockEnv

theirs = pytest.importorskip("stable_baselines3")
contrib = pytest.importorskip("sb3_contrib")
from stable_baselines3.common import callbacks as calls  # noqa: E402
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.vec_env import (  # noqa: E402
    SubprocVecEnv,
    VecFrameStack,
    VecNormalize,
)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NAMES = ("DQN", "PPO", "SAC", "TD3", "DDPG", "QRDQN", "MaskablePPO", "RecurrentPPO")
SHORT = {"n_steps": 8, "batch_size": 8}
EARLY = {"learning_starts": 10}


def class_of(library: Any, name: str) -> Any:
    return getattr(library, name, None) or getattr(contrib, name)


def clocks(actions: str, count: int) -> Any:
    return make_vec_env(lambda: ClockEnv(actions), n_envs=count)


class Watcher(calls.BaseCallback):
    """Notes every call and what it finds."""

    def __init__(self, last: int = 0) -> None:
        super().__init__()
        self.rows: list[Any] = []
        self.last = last

    def note(self, *values: Any) -> None:
        model = self.model
        returns = [info["r"] for info in model.ep_info_buffer]
        self.rows.append((*values, self.num_timesteps, model.num_timesteps, returns))

    def _on_training_start(self) -> None:
        self.note("start", self.locals["total_timesteps"])

    def _on_rollout_start(self) -> None:
        self.note("rollout")

    def _on_rollout_end(self) -> None:
        self.note("full")

    def _on_training_end(self) -> None:
        self.note("end", self.model._episode_num)

    def _on_step(self) -> bool:
        values, found = self.locals, []
        for info in values["infos"]:
            episode = {k: v for k, v in info.get("episode", {}).items() if k != "t"}
            last = info.get("terminal_observation")
            found.append(dict(info) | {"episode": episode, "terminal_observation": str(last)})
        arrays = [values[name] for name in ("rewards", "dones", "new_obs")]
        numbers = [(array.tolist(), str(array.dtype)) for array in arrays]
        seen = self.model._last_obs.tolist(), values["actions"].shape
        self.note("step", self.n_calls, numbers, found, seen, list(self.model.ep_success_buffer))
        return self.n_calls != self.last


@pytest.mark.parametrize(
    ("name", "count", "actions", "settings", "last"),
    [
        ("PPO", 1, "box", SHORT, 0),
        ("PPO", 3, "discrete", SHORT, 0),
        ("PPO", 2, "multi", SHORT, 13),
        ("DQN", 1, "discrete", EARLY, 0),
        ("DQN", 2, "discrete", EARLY | {"train_freq": 3}, 0),
        ("DQN", 2, "discrete", EARLY, 11),
        ("SAC", 1, "box", EARLY, 0),
        ("SAC", 3, "box", EARLY | {"train_freq": 2}, 0),
        ("TD3", 1, "box", EARLY, 17),
    ],
)
def test_a_callback_finds_the_same_at_every_call(
    name: str, count: int, actions: str, settings: dict[str, Any], last: int
) -> None:
    runs = []
    for library in (theirs, ours):
        watcher, env = Watcher(last), clocks(actions, count)
        model = class_of(library, name)("MlpPolicy", env, seed=3, **settings)
        model.learn(50, callback=watcher)
        if not last:
            model.learn(20, callback=watcher, reset_num_timesteps=False)
            model.learn(20, callback=watcher)
        runs.append((watcher.rows, model.num_timesteps, model._n_updates))
    assert runs[0] == runs[1]


class Child(calls.BaseCallback):
    def __init__(self, rows: list[Any], name: str) -> None:
        super().__init__()
        self.rows, self.name = rows, name

    def _on_step(self) -> bool:
        self.rows.append((self.name, self.n_calls, self.num_timesteps, self.model.num_timesteps))
        return True


@pytest.mark.parametrize(
    ("name", "count", "actions", "settings", "episodes"),
    [
        ("PPO", 2, "discrete", SHORT, 0),
        ("DQN", 1, "discrete", EARLY, 0),
        ("DQN", 3, "discrete", EARLY, 4),
        ("PPO", 2, "discrete", SHORT, 5),
        ("SAC", 1, "box", EARLY, 0),
    ],
)
def test_scheduled_callbacks_come_at_the_same_steps(
    name: str, count: int, actions: str, settings: dict[str, Any], episodes: int, tmp_path: Path
) -> None:
    runs = []
    for library in (theirs, ours):
        rows: list[Any] = []
        folder = tmp_path / library.__name__
        evaluation = calls.EvalCallback(
            clocks(actions, 1),
            eval_freq=7,
            n_eval_episodes=1,
            verbose=0,
            log_path=str(folder),
            best_model_save_path=str(folder),
            callback_after_eval=Child(rows, "evaluated"),
            callback_on_new_best=Child(rows, "best"),
        )
        group = [
            evaluation,
            calls.EveryNTimesteps(10, Child(rows, "every")),
            calls.CheckpointCallback(9, str(folder), save_replay_buffer=True),
        ]
        if episodes:
            group.append(calls.StopTrainingOnMaxEpisodes(episodes))
        model = class_of(library, name)("MlpPolicy", clocks(actions, count), seed=1, **settings)
        model.learn(90, callback=group)
        counts = [(one.n_calls, one.num_timesteps) for one in group]
        files = sorted(path.name for path in folder.iterdir())
        kept = np.load(folder / "evaluations.npz")
        runs.append((rows, model.num_timesteps, counts, files, kept["results"].tolist()))
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("name", "settings"), [("PPO", {"n_steps": 64}), ("SAC", EARLY)])
def test_statistics_of_vec_normalize_are_the_same(name: str, settings: dict[str, Any]) -> None:
    """With a gamma that is not the model's; also where a callback ends the training."""
    runs = []
    for library in (theirs, ours):
        env = VecNormalize(clocks("box", 2), gamma=0.9)
        model = getattr(library, name)("MlpPolicy", env, seed=1, **settings)
        model.learn(100, callback=(watcher := Watcher()))
        model.learn(100)
        model.learn(100, callback=Watcher(5))
        moments = [(rms.mean, rms.var, rms.count) for rms in (env.obs_rms, env.ret_rms)]
        last = watcher.locals["new_obs"], watcher.locals["rewards"], env.returns
        assert model.get_vec_normalize_env() is env
        runs.append([np.asarray(part, np.float64) for row in (*moments, last) for part in row])
    env.training = False
    with pytest.raises(ValueError, match="set_env"):
        model.learn(10)
    for own, other in zip(*runs, strict=True):
        np.testing.assert_allclose(other, own, rtol=2e-6, atol=1e-9)


def test_other_vector_environments_are_stepped_as_they_are() -> None:
    stacked = VecFrameStack(clocks("discrete", 2), 3)
    model = ours.PPO("MlpPolicy", stacked, seed=0, **SHORT).learn(32)
    assert model.learner.envs.layout.size == 6
    assert len(model.ep_info_buffer) == 2
    makers = [lambda: ClockEnv() for _ in range(2)]
    env = SubprocVecEnv(makers, start_method="fork")
    try:
        model = ours.DQN("MlpPolicy", env, seed=0, **EARLY).learn(40)
        assert (model.num_timesteps, model._episode_num) == (40, 4)
        assert model.replay_buffer and model.replay_buffer.size() == 20
    finally:
        env.close()


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_theirs(name: str) -> None:
    other, own = class_of(theirs, name), getattr(ours, name)
    for method in ("__init__", "learn"):
        forms = [inspect.signature(getattr(kind, method)).parameters for kind in (other, own)]
        listed = [[(p.name, p.default) for p in form.values()] for form in forms]
        assert listed[0] == listed[1]
    assert own.__name__ == name


@pytest.mark.parametrize("name", ["DQN", "PPO", "SAC", "TD3", "DDPG", "QRDQN"])
def test_models_go_both_ways(name: str, tmp_path: Path) -> None:
    """Saved here and loaded there it acts the same and goes on; its policy object too."""
    env_id = "CartPole-v1" if name in ("DQN", "PPO", "QRDQN") else "Pendulum-v1"
    model = getattr(ours, name)("MlpPolicy", env_id, seed=0)
    policy = model.policy
    model.learn(300)
    model.save(tmp_path / "model")
    there = class_of(theirs, name).load(tmp_path / "model", env=gym.make(env_id))
    here = getattr(ours, name).load(tmp_path / "model", env=env_id)
    space = model.observation_space
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(50, *space.shape)).astype(np.float32)
    actions = model.predict(obs, deterministic=True)[0]
    for other in (there, here, policy):
        np.testing.assert_allclose(other.predict(obs, deterministic=True)[0], actions, atol=1e-6)
    assert (here.num_timesteps, here._n_updates) == (model.num_timesteps, model._n_updates)
    there.learn(200)
    here.learn(200)
    model.learn(100, reset_num_timesteps=False)
    assert model.policy is policy
    after = model.predict(obs, deterministic=True)[0]
    np.testing.assert_allclose(policy.predict(obs, deterministic=True)[0], after, atol=1e-6)
    assert evaluate_policy(model, model.get_env(), n_eval_episodes=1)[1] == 0.0
