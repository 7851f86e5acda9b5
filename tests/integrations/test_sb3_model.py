"""Scripts with Stable-Baselines3's interface, on environments that are known beforehand: learning,
callbacks, predictions, environments. Stable-Baselines3 itself is not needed."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tenfold.core.errors import UserError
from tenfold.integrations.sb3 import DQN, PPO, SAC, TD3, MaskablePPO, RecurrentPPO
from tenfold.integrations.sb3.callbacks import NEVER, Schedule, as_callback, constant_result
from tenfold.integrations.sb3.logger import TableLogger
from tenfold.integrations.sb3.model import SB3Model
from tests.integrations.clock_env import ClockEnv, DictClock, MaskedClock

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "seed": 3}
ROLLOUTS: dict[str, Any] = {**SMALL, "n_steps": 16, "batch_size": 16, "n_epochs": 2}


@pytest.fixture(autouse=True)
def plain_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled here; engines are held to one another elsewhere."""
    make_run = SB3Model.make_run
    monkeypatch.setattr(
        SB3Model, "make_run", lambda *given: replace(make_run(*given), engine="plain")
    )


class Recorder:
    """A callback that is none of Stable-Baselines3's."""

    def __init__(self, last: int | None = None) -> None:
        self.events: list[Any] = []
        self.calls, self.last = 0, last

    def init_callback(self, model: Any) -> None:
        self.model = model
        self.events.append("init")

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.locals = locals_
        self.events.append(("start", locals_["total_timesteps"]))

    def on_step(self) -> bool:
        self.calls += 1
        values = self.locals
        self.events.append((self.model.num_timesteps, values["rewards"].tolist()))
        self.step = {**values, "old": self.model._last_obs.copy()}
        return self.calls != self.last

    def on_training_end(self) -> None:
        self.events.append("end")


class RolloutRecorder(Recorder):
    def on_rollout_start(self) -> None:
        self.events.append("rollout")

    def on_rollout_end(self) -> None:
        self.events.append(("full", self.model.num_timesteps, self.model._n_updates))


# learning


def test_whole_rollouts_are_learned_from() -> None:
    model = PPO("MlpPolicy", ClockEnv(), **ROLLOUTS)
    assert model.learn(40) is model
    assert (model.num_timesteps, model._n_updates) == (48, 6)  # 3 rollouts, 2 epochs each
    model.learn(20, reset_num_timesteps=False)
    assert (model.num_timesteps, model._total_timesteps) == (80, 68)
    model.learn(16)
    assert (model.num_timesteps, model._n_updates) == (16, 12)


def test_updates_come_with_train_freq() -> None:
    model = DQN("MlpPolicy", ClockEnv(), learning_starts=10, train_freq=4, **SMALL)
    model.learn(30)
    # up to 32 steps; at 12, 16, 20, 24, 28, 32
    assert (model.num_timesteps, model._n_updates) == (32, 6)
    several = [ClockEnv for _ in range(3)]
    model = DQN("MlpPolicy", several, learning_starts=10, train_freq=2, gradient_steps=-1, **SMALL)
    model.learn(20)
    assert (model.num_timesteps, model._n_updates) == (24, 18)  # 6 at steps 12, 18, 24


def test_episodes_and_tables_have_their_keys() -> None:
    model = PPO("MlpPolicy", ClockEnv(), **ROLLOUTS)
    tables = []
    model.set_logger(logger := recording_logger(tables))
    model.learn(32)
    # the first rollout saw the first episode's end alone
    assert [info["l"] for info in model.ep_info_buffer] == [8, 9, 7, 8]
    assert [info["r"] for info in model.ep_info_buffer] == [18.0, 22.5, 14.0, 18.0]
    assert list(model.ep_success_buffer) == [False, True, False, True]
    first, second = tables
    assert (first["time/iterations"], first["time/total_timesteps"]) == (1, 16)
    assert first["rollout/ep_rew_mean"] == 18.0
    assert "train/loss" not in first
    expected = {"train/approx_kl", "train/explained_variance", "train/clip_range"}
    assert expected <= set(second)
    assert second["train/n_updates"] == 2
    # the value's loss has no one half, and vf_coef is 0.5
    loss = second["train/policy_gradient_loss"] + 0.5 * second["train/value_loss"]
    assert second["train/loss"] == pytest.approx(loss)
    assert second["rollout/success_rate"] == 0.5
    assert logger.name_to_value["train/n_updates"] == 4  # after the last table


def recording_logger(tables: list[dict[str, Any]]) -> Any:
    from tenfold.integrations.sb3.logger import TableLogger

    class Recording(TableLogger):
        def dump(self, step: int = 0) -> None:
            tables.append(dict(self.name_to_value))
            super().dump(step)

    return Recording(None, prints=False)


def test_tables_of_replay_algorithms_come_with_episodes() -> None:
    model = DQN("MlpPolicy", ClockEnv(), learning_starts=10, **SMALL)
    tables: list[dict[str, Any]] = []
    model.set_logger(recording_logger(tables))
    model.learn(48, log_interval=2)
    # ends at steps 8, 17, 24, 32, 41, 48
    assert [table["time/total_timesteps"] for table in tables] == [17, 32, 48]
    assert [table["time/episodes"] for table in tables] == [2, 4, 6]
    assert tables[0]["rollout/exploration_rate"] == pytest.approx(0.05)  # after a tenth of 48 steps
    assert "train/loss" in tables[1]


def test_a_seed_gives_a_run_and_another_one_another() -> None:
    def weights(seed: int) -> Any:
        model = SAC("MlpPolicy", ClockEnv("box"), learning_starts=5, **SMALL | {"seed": seed})
        return model.learn(12).agent.online.flat.clone()

    first = weights(1)
    assert (first == weights(1)).all()
    assert (first != weights(2)).any()


# callbacks


def test_a_callback_sees_each_step_before_it_is_stored() -> None:
    seen, rows = Recorder(), []
    model = DQN("MlpPolicy", ClockEnv(), learning_starts=2, train_freq=1, **SMALL)

    def look(values: dict[str, Any], names: dict[str, Any]) -> bool:
        rows.append((values["self"]._n_updates, values["replay_buffer"].size()))
        return True

    model.learn(9, callback=[seen, look])
    assert seen.events[:3] == ["init", ("start", 9), (1, [0.5])]
    assert seen.events[-2:] == [(9, [0.5]), "end"]
    # the first step is stored, and can be drawn, when the second one is seen; updates begin at 3
    assert rows == [(max(0, k - 3), k - 1) for k in range(1, 10)]
    # the ninth step is the first one of the second episode
    assert seen.step["old"].tolist() == [[0.0, 2.0]]
    assert seen.step["new_obs"].tolist() == [[1.0, 2.0]]


def test_the_end_of_an_episode_has_its_last_observation_and_the_next_first_one() -> None:
    seen = Recorder(last=8)
    model = DQN("MlpPolicy", ClockEnv(), **SMALL)
    model.learn(50, callback=seen)
    info = seen.step["infos"][0]
    assert seen.step["dones"].tolist() == [True]
    assert seen.step["new_obs"].tolist() == [[0.0, 2.0]]
    assert info["terminal_observation"].tolist() == [8.0, 1.0]
    assert info["TimeLimit.truncated"]
    assert (info["episode"]["r"], info["episode"]["l"], info["odd"]) == (18.0, 8, True)


@pytest.mark.parametrize("kind", [DQN, PPO])
def test_a_callback_ends_the_training_at_its_step(kind: Any) -> None:
    """That step is counted, and neither stored nor learned from."""
    settings = ROLLOUTS if kind is PPO else SMALL
    model, seen = kind("MlpPolicy", ClockEnv(), **settings), Recorder(last=5)
    model.learn(100, callback=seen)
    assert (model.num_timesteps, seen.calls, seen.events[-1]) == (5, 5, "end")
    assert model._n_updates == 0
    if kind is DQN:
        assert model.replay_buffer and model.replay_buffer.size() == 4
    model.learn(16, reset_num_timesteps=False)
    assert model.num_timesteps == 21


def test_training_by_episodes_ends_with_whole_ones() -> None:
    """Episodes have 8, 9, 7 steps, and so on: 30 steps end in the fourth."""
    noise = {"learning_starts": 3, "batch_size": 4, "gradient_steps": -1}
    model = TD3("MlpPolicy", ClockEnv("box"), train_freq=(2, "episode"), **noise, **SMALL)
    model.learn(20)
    assert (model.num_timesteps, model._episode_num, model._n_updates) == (32, 4, 32)
    model.learn(1, reset_num_timesteps=False)
    assert (model.num_timesteps, model._episode_num) == (48, 6)


def test_no_steps_are_no_training() -> None:
    for kind in (PPO, DQN):
        assert kind("MlpPolicy", ClockEnv(), **SMALL).learn(0).num_timesteps == 0


class LocalsReader(Recorder):
    def on_step(self) -> bool:
        names = ("actions", "values", "n_steps", "num_collected_steps", "replay_buffer", "other")
        self.events.append([name in self.locals for name in names])
        self.events.append(self.locals.get("n_steps"))
        return super().on_step()


def test_locals_that_take_long_are_there_too() -> None:
    """Steps of a rollout are counted behind the callbacks: the first one is 0."""
    PPO("MlpPolicy", ClockEnv(), **ROLLOUTS).learn(16, callback=(seen := LocalsReader()))
    assert [True, True, True, False, False, False] in seen.events
    assert [event for event in seen.events if isinstance(event, int)] == list(range(16))
    DQN("MlpPolicy", ClockEnv(), **SMALL).learn(4, callback=(seen := LocalsReader()))
    assert [True, False, False, True, True, False] in seen.events


class TableWriter(Recorder):
    """Writes a table of its own at a step, as EvalCallback does."""

    def on_step(self) -> bool:
        if self.model.num_timesteps == 12:
            self.model.logger.dump(12)
        return super().on_step()


def test_a_callbacks_table_has_what_updates_were_like() -> None:
    model = DQN("MlpPolicy", ClockEnv(), learning_starts=4, batch_size=4, **SMALL)
    logger = TableLogger(None, False)
    tables: list[Any] = []
    logger.table = lambda: tables.append(dict(logger.name_to_value)) or ""
    logger.prints = True
    model.set_logger(logger)
    model.learn(16, log_interval=1000, callback=TableWriter())
    assert tables[0]["train/n_updates"] == 1  # at step 8; that of step 12 comes behind it
    assert "dump" not in vars(logger)


def test_the_deviation_of_actions_is_in_the_table() -> None:
    model = PPO("MlpPolicy", ClockEnv("box"), **ROLLOUTS).learn(16)
    expected = float(model.get_parameters()["policy"]["log_std"].exp().mean())
    assert model.logger.name_to_value["train/std"] == pytest.approx(expected)


def test_an_argument_is_warned_of_once() -> None:
    settings: dict[str, Any] = {**ROLLOUTS, "batch_size": 10}
    with pytest.warns(UserWarning, match="truncated mini-batch") as told:
        PPO("MlpPolicy", ClockEnv(), **settings).learn(32)
    assert len(told) == 1


def test_rollouts_begin_and_end_around_learning() -> None:
    seen = RolloutRecorder()
    PPO("MlpPolicy", ClockEnv(), **ROLLOUTS).learn(32, callback=seen)
    marks = [event for event in seen.events if event == "rollout" or event[0] == "full"]
    assert marks == ["rollout", ("full", 16, 0), "rollout", ("full", 32, 2)]
    seen = RolloutRecorder()
    DQN("MlpPolicy", ClockEnv(), learning_starts=3, **SMALL).learn(8, callback=seen)
    marks = [event for event in seen.events if event == "rollout" or event[0] == "full"]
    assert marks == ["rollout", ("full", 4, 0), "rollout", ("full", 8, 1)]


def test_learning_is_the_same_whoever_looks() -> None:
    def weights(callback: Any) -> Any:
        model = DQN("MlpPolicy", ClockEnv(), learning_starts=5, train_freq=2, **SMALL)
        return model.learn(30, callback=callback).agent.online.flat.clone()

    alone = weights(None)
    assert (alone == weights(Recorder())).all()
    assert (alone == weights(RolloutRecorder())).all()


def test_actions_are_those_of_the_environment_and_those_of_the_memory() -> None:
    found = []

    def look(values: dict[str, Any], names: dict[str, Any]) -> bool:
        found.append((values["actions"], values["buffer_actions"]))
        return True

    model = SAC("MlpPolicy", ClockEnv("box"), learning_starts=2, **SMALL)
    model.learn(6, callback=look)
    for action, kept in found:
        np.testing.assert_allclose(action, 2 * kept, rtol=1e-6)  # bounds of 2
    assert model.replay_buffer
    stored = model.replay_buffer.actions[:, 0]
    np.testing.assert_array_equal(stored, [kept[0] for _, kept in found][: len(stored)])


def test_functions_and_lists_are_callbacks() -> None:
    calls = []

    def ends_at_four(values: dict[str, Any], names: dict[str, Any]) -> bool:
        calls.append(values["n_steps"])
        return len(calls) < 4

    seen = Recorder()
    model = PPO("MlpPolicy", ClockEnv(), **ROLLOUTS).learn(64, callback=[ends_at_four, seen])
    assert (model.num_timesteps, seen.calls, calls) == (4, 4, [0, 1, 2, 3])


def test_what_a_function_returns_is_known_from_its_code() -> None:
    def documented() -> bool:
        """Nothing is done here."""
        return True

    def looks() -> bool:
        return bool(ROLLOUTS)

    assert constant_result(documented) is True
    assert constant_result(lambda: None) is None
    assert constant_result(looks) is ...
    assert constant_result(len) is ...


def test_nobody_is_waited_for_where_nobody_looks() -> None:
    nobody = Schedule(None, 1)
    assert (nobody.calls(0), nobody.attached, nobody.rollouts) == (NEVER, False, False)
    somebody = Schedule(as_callback(Recorder()), 1)
    assert (somebody.calls(0), somebody.attached, somebody.rollouts) == (1, True, False)
    assert Schedule(as_callback([RolloutRecorder()]), 1).rollouts


# environments


def test_environments_are_seeded_at_the_first_reset_alone() -> None:
    envs = [ClockEnv(), ClockEnv()]
    DQN("MlpPolicy", [lambda env=env: env for env in envs], **SMALL).learn(40)
    assert [env.seeds for env in envs] == [[3, None, None], [4, None, None]]
    env = ClockEnv()
    DQN("MlpPolicy", env, **SMALL | {"seed": None}).learn(12)
    assert env.seeds == [None, None]


def test_environments_begin_anew_unless_they_go_on() -> None:
    env = ClockEnv()
    model = DQN("MlpPolicy", env, **SMALL).learn(4)
    assert (env.episode, env.step_number) == (1, 4)
    model.learn(4, reset_num_timesteps=False)
    assert (env.episode, env.step_number) == (2, 0)
    model.learn(4)
    assert (env.episode, env.step_number, model.num_timesteps) == (3, 4, 4)


def test_gymnasium_vector_environments_are_taken_apart() -> None:
    vector = gym.vector.SyncVectorEnv([ClockEnv, ClockEnv])
    model = PPO("MlpPolicy", vector, **ROLLOUTS).learn(32)
    assert (model.n_envs, model.num_timesteps) == (2, 32)


def test_another_environment_takes_over() -> None:
    first, second = ClockEnv(), ClockEnv()
    model = DQN("MlpPolicy", first, learning_starts=0, **SMALL).learn(8)
    before = model.agent.updates
    model.set_env(second)
    model.learn(8, reset_num_timesteps=False)
    assert (first.episode, second.episode) == (2, 2)
    assert (model.num_timesteps, model.agent.updates) == (16, before + 2)
    assert model.replay_buffer and model.replay_buffer.size() == 16
    with pytest.raises(AssertionError, match="2 environments"):
        model.set_env([ClockEnv, ClockEnv])
    with pytest.raises(ValueError, match="action_space"):
        model.set_env(ClockEnv("box"))


def test_the_vector_environment_is_stepped_as_scripts_do() -> None:
    model = PPO("MlpPolicy", ClockEnv(), **ROLLOUTS)
    env = model.get_env()
    env.seed(11)
    assert env.reset().tolist() == [[0.0, 1.0]]
    steps = [env.step(model.predict(np.zeros((1, 2), np.float32))[0]) for _ in range(8)]
    obs, reward, done, infos = steps[-1]
    assert (obs.tolist(), reward.tolist(), done.tolist()) == ([[0.0, 2.0]], [4.0], [True])
    assert infos[0]["terminal_observation"].tolist() == [8.0, 1.0]
    assert env.get_attr("seeds") == [[11, None]]
    assert env.env_method("observe")[0].tolist() == [0.0, 2.0]


def test_an_id_alone_is_stepped_in_compiled_code() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", **SMALL)
    model.learn(20)
    assert model.learner.run.env == "tenfold/CartPole-v1"
    watched = DQN("MlpPolicy", "CartPole-v1", **SMALL).learn(20, callback=Recorder())
    assert watched.learner.run.env.startswith("script/CartPole-v1")


# predictions


@pytest.mark.parametrize(
    ("kind", "env", "shape", "dtype"),
    [
        (DQN, ClockEnv(), (), np.int64),
        (PPO, ClockEnv(), (), np.int64),
        (PPO, ClockEnv("multi"), (2,), np.int64),
        (PPO, ClockEnv("box"), (2,), np.float32),
        (SAC, ClockEnv("box"), (2,), np.float32),
        (TD3, ClockEnv("box"), (2,), np.float32),
    ],
)
@pytest.mark.parametrize("deterministic", [True, False])
def test_actions_have_the_shape_of_the_space(
    kind: Any, env: Any, shape: Any, dtype: Any, deterministic: bool
) -> None:
    model = kind("MlpPolicy", env, **SMALL)
    one, state = model.predict(np.zeros(2, np.float32), deterministic=deterministic)
    many, _ = model.predict(np.zeros((5, 2)), deterministic=deterministic)
    assert state is None
    assert isinstance(one, np.ndarray)
    assert (one.shape, one.dtype, many.shape) == (shape, dtype, (5, *shape))
    assert env.action_space.contains(one if shape else int(one))


def test_dict_observations_need_their_policy() -> None:
    with pytest.raises(ValueError, match="MultiInputPolicy"):
        PPO("MlpPolicy", DictClock(), **ROLLOUTS)
    model = PPO("MultiInputPolicy", DictClock(), **ROLLOUTS).learn(16)
    one = {"time": np.zeros(2, np.float32), "odd": 1}
    many = {"time": np.zeros((4, 2), np.float32), "odd": np.array([0, 1, 0, 1])}
    assert model.predict(one)[0].shape == ()
    assert model.predict(many)[0].shape == (4,)


def test_observations_that_do_not_fit_are_refused() -> None:
    model = PPO("MlpPolicy", ClockEnv(), **ROLLOUTS)
    with pytest.raises(ValueError, match="mixing Gym API"):
        model.predict(ClockEnv().reset())
    with pytest.raises(ValueError, match="Unexpected observation"):
        model.predict(np.zeros(3))


def test_exploration_is_a_share_of_random_actions() -> None:
    model = DQN("MlpPolicy", ClockEnv(), exploration_fraction=0.5, **SMALL)
    assert model.exploration_rate == 0.0
    model.learn(20)
    assert model.exploration_rate == pytest.approx(0.05)
    greedy = model.predict(np.ones((1, 2)), deterministic=True)[0]
    model.exploration_rate = 1.0
    drawn = {int(model.predict(np.ones(2))[0]) for _ in range(60)}
    model.exploration_rate = 0.0
    assert drawn == {0, 1, 2}
    assert {int(model.predict(np.ones(2))[0]) for _ in range(20)} == {int(greedy[0])}


def test_recurrent_states_are_given_back() -> None:
    model = RecurrentPPO("MlpLstmPolicy", ClockEnv(), n_steps=16, batch_size=16, seed=1)
    obs = np.ones((3, 2), np.float32)
    _, (h, c) = model.predict(obs, deterministic=True)
    assert h.shape == c.shape == (1, 3, 256)
    _, (again, _) = model.predict(obs, (h, c), np.array([True, False, True]), deterministic=True)
    np.testing.assert_array_equal(again[0, [0, 2]], h[0, [0, 2]])
    assert (again[0, 1] != h[0, 1]).any()


def test_masked_actions_are_never_taken() -> None:
    with pytest.raises(ValueError, match="action masking"):
        MaskablePPO("MlpPolicy", ClockEnv(), **ROLLOUTS).learn(16)
    free = MaskablePPO("MlpPolicy", ClockEnv(), **ROLLOUTS)
    assert free.learn(16, use_masking=False).num_timesteps == 16
    env = MaskedClock()
    model = MaskablePPO("MlpPolicy", env, **ROLLOUTS).learn(32)
    assert len(env.chosen) == 32
    assert all(env.chosen)
    for option in range(3):
        mask = np.arange(3) == option
        assert model.predict(np.zeros(2), action_masks=mask)[0] == option
    model.learn(32, use_masking=False)
    assert not all(env.chosen)


# refusals


def test_environments_and_arguments_that_do_not_fit_are_named() -> None:
    with pytest.raises(AssertionError, match="Discrete"):
        DQN("MlpPolicy", ClockEnv("box"))
    with pytest.raises(AssertionError, match="Discrete"):
        MaskablePPO("MlpPolicy", ClockEnv("box"))
    with pytest.raises(AssertionError, match="Box"):
        SAC("MlpPolicy", ClockEnv())
    with pytest.raises(ValueError, match="use_sde"):
        PPO("MlpPolicy", ClockEnv("box"), use_sde=True)
    with pytest.raises(TypeError, match="n_step"):
        PPO("MlpPolicy", ClockEnv(), n_step=3)
    with pytest.raises(UserError, match=r"gymnasium\.Env"):
        PPO("MlpPolicy", 3)
    with pytest.raises(ValueError, match="set_env"):
        PPO("MlpPolicy", None).learn(10)
    endless = ClockEnv("box")
    endless.action_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    with pytest.raises(AssertionError, match="bounds"):
        PPO("MlpPolicy", endless)
