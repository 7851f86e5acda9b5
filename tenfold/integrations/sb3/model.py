"""Models with Stable-Baselines3's interface: a learner of tenfold's behind its constructor, `learn`
and attributes. Nothing is written to disk unless the script asks for it."""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import torch

from tenfold.config.run import Run
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError
from tenfold.core.layout import observation_layout
from tenfold.core.protocols import EnvSpec
from tenfold.core.registry import algorithm
from tenfold.core.system import set_threads
from tenfold.integrations.sb3 import persistence
from tenfold.integrations.sb3.buffers import ReplayView, RolloutView
from tenfold.integrations.sb3.callbacks import Schedule, as_callback
from tenfold.integrations.sb3.converted import FailedAssertion
from tenfold.integrations.sb3.driver import Driver
from tenfold.integrations.sb3.environments import ScriptEnv
from tenfold.integrations.sb3.learners import begin_anew, moved_state, open_model_learner
from tenfold.integrations.sb3.logger import logger_for
from tenfold.integrations.sb3.normalization import normalization_of
from tenfold.integrations.sb3.prediction import Predictor
from tenfold.integrations.sb3.saving import load_replay
from tenfold.integrations.sb3.settings import device, settings_of
from tenfold.integrations.sb3.training_log import record_table, record_training
from tenfold.integrations.sb3.vec_env import sb3

LONGEST_SEED = 2**31


class SB3Model:
    """One of Stable-Baselines3's algorithms. A subclass has its name."""

    class_name: ClassVar[str]
    on_policy: ClassVar[bool]
    action_spaces: ClassVar[tuple[type, ...]]
    masking: ClassVar[bool] = False
    stores_scaled: ClassVar[bool] = False  # whether actions are kept in [-1, 1]

    save = persistence.save
    load = classmethod(persistence.load)
    get_parameters = persistence.get_parameters
    set_parameters = persistence.set_parameters
    policy = property(persistence.policy_of, persistence.put_policy)

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.argument_names = tuple(name for name in arguments if name not in ("policy", "env"))
        for name in self.argument_names:
            setattr(self, name, arguments[name])
        self.policy_name, env = arguments["policy"], arguments["env"]
        self.verbose: int = arguments["verbose"]
        self.policy_kwargs = arguments["policy_kwargs"] or {}
        self.run_seed = arguments["seed"]
        if self.run_seed is None:  # of the script's own generator, which it may have seeded
            self.run_seed = int(np.random.randint(LONGEST_SEED))
        self.num_timesteps = self._total_timesteps = self._num_timesteps_at_start = 0
        self._episode_num, self._custom_logger, self.start_time = 0, False, 0.0
        self._current_progress_remaining = 1.0
        self.ep_info_buffer: Any = None
        self.ep_success_buffer: Any = None
        self._last_obs: Any = None
        self.agent: Any = None
        self.learner: Any = None
        self.linked: Any = None  # the policy object, where somebody asked for it
        self._logger: Any = None
        self.source: ScriptEnv | None = None
        self.env: Any = None
        self.resources = ExitStack()  # of the learner
        # environment steps of a rollout, or between two calls for updates
        self.steps_between_updates = 1
        if env is not None:
            self.take_new_env(env)
        where = device(arguments["device"])
        self.device = torch.device("cpu" if where == "auto" else where)
        if self.verbose:
            print(f"Using {self.device} device")
        if arguments["_init_setup_model"] and env is not None:
            self._setup_model()

    def take_new_env(self, env: Any) -> None:
        """What a script gave as the environment."""
        self.take_env(ScriptEnv(env, self.verbose, self.masking))

    def take_env(self, source: ScriptEnv) -> None:
        self.source, self.env = source, source.vec
        self.n_envs: int = source.vec.num_envs
        self.take_spaces(source.vec.observation_space, source.vec.action_space)
        self.normalization = normalization_of(source.vec, self.on_policy, self.gamma)
        if self.normalization:
            source.stepped = self.normalization.vec.venv

    def take_spaces(self, observation: gym.Space[Any], action: gym.Space[Any]) -> None:
        """Checks the spaces as Stable-Baselines3 does."""
        self.observation_space, self.action_space = observation, action
        if not isinstance(action, self.action_spaces):
            kinds = ", ".join(kind.__name__ for kind in self.action_spaces)
            raise FailedAssertion(
                "env", f"has actions {action}, and {self.class_name} is for {kinds}."
            )
        if isinstance(action, gym.spaces.Box) and not (
            np.isfinite(action.low).all() and np.isfinite(action.high).all()
        ):
            raise FailedAssertion("env", f"has actions without finite bounds: {action}.")

    # settings

    @property
    def arguments(self) -> dict[str, Any]:
        """The constructor's, as the attributes are now."""
        values = {name: getattr(self, name) for name in self.argument_names}
        values |= {"device": str(self.__dict__.get("device", "auto"))}
        return values | {"policy": self.policy_name, "env": None}

    def settings(self, total: int) -> Any:
        """What the arguments are here, in a training of so many steps."""
        space = getattr(self, "observation_space", None)
        words = isinstance(self.policy_name, str) and self.policy_name.startswith(("Mlp", "Cnn"))
        if words and isinstance(space, gym.spaces.Dict):
            raise ValueError(
                "You must use `MultiInputPolicy` when working with dict observation space, not "
                f"{self.policy_name}"
            )
        return settings_of(self.class_name, self.arguments, getattr(self, "n_envs", 1), total)

    def make_run(self, env: str, total: int) -> Run:
        translated = self.settings(total)
        translated.check()  # by the names of the arguments
        self.steps_between_updates = translated.phase
        given = translated.settings | {"env": env, "seed": self.run_seed, "eval_every": 0}
        given |= {"checkpoint_every": 0, "env_threads": 1}
        given |= self.normalization.settings if self.normalization else {}
        return Run.of(given)

    def _setup_model(self) -> None:
        """Makes the networks; environments are left as they are."""
        self.set_random_seed(self.seed)
        self.make_agent()

    def make_agent(self, total: int = 1_000_000) -> None:
        """The agent, from the spaces alone."""
        set_threads(0)
        name = self.source.name if self.source else "the environment"
        run = self.make_run(name, total)
        layout = observation_layout(self.observation_space, name)
        spec = EnvSpec(name, layout, self.action_space, masked=self.masking)
        kind = algorithm(run.agent.name)
        self.agent = kind.make_agent(replace(run, device="cpu"), spec)
        self.predictor = Predictor(self)

    # learning

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = 1,
        tb_log_name: str = "run",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Trains for `total_timesteps` environment steps or a little more: whole rollouts are
        learned from."""
        if self.env is None:
            raise ConfigError("env", "is missing: call set_env(env), or load(path, env=env).")
        if self.agent is None:
            self._setup_model()
        persistence.require_read(self)
        callback = with_progress(as_callback(callback), progress_bar)
        self.start_time = time.time_ns()
        if reset_num_timesteps or self.ep_info_buffer is None:
            self.ep_info_buffer = deque(maxlen=getattr(self, "stats_window_size", 100))
            self.ep_success_buffer = deque(maxlen=self.ep_info_buffer.maxlen)
        if reset_num_timesteps:
            self.num_timesteps = self._episode_num = 0
        self._num_timesteps_at_start = self.num_timesteps
        self._total_timesteps = self.num_timesteps + int(total_timesteps)
        self.open_learner(Schedule(callback, self.n_envs), reset_num_timesteps)
        if not self._custom_logger:
            self._logger = logger_for(
                self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps
            )
        if callback is not None:
            callback.init_callback(self)
        names = {"total_timesteps": self._total_timesteps, "callback": callback}
        names |= {"log_interval": log_interval, "tb_log_name": tb_log_name}
        names |= {"reset_num_timesteps": reset_num_timesteps, "progress_bar": progress_bar}
        Driver(self, callback, log_interval, names).run()
        self.sync()
        return self

    def open_learner(self, schedule: Schedule, restart: bool) -> None:
        """The learner for this training: the one that is there, unless settings or environments are
        others now; then one with its state."""
        assert self.source is not None
        before, name = self.learner, self.source.name
        if before is not None and before.run.env == self.source.compiled:
            name = before.run.env
        elif before is None and self.source.compiled and not schedule.attached:
            name = self.source.compiled
        run = self.make_run(name, max(self._total_timesteps, 1))
        if self.linked:
            self.linked.sync()
        compiled = before is not None and before.run.env == self.source.compiled
        begun = compiled or self.source.adapter is not None
        if before is None or replace(before.run, steps=run.steps) != run:
            state = moved_state(before or self.agent)
            self.resources.close()
            self.resources = ExitStack()
            self.learner = self.resources.enter_context(open_model_learner(run, state))
            self.use_agent(self.learner.agent)
            if self.normalization and not begun:
                self.normalization.give(self.learner)
        if begun and (restart or self._last_obs is None):
            begin_anew(self.learner)
        self.learner.step = self.num_timesteps

    def use_agent(self, agent: Any) -> None:
        """The learner's agent instead of the one before it, whose numbers it has."""
        self.agent = agent
        self.predictor = Predictor(self)
        if self.linked:
            self.linked.use(agent)

    def sync(self) -> None:
        """Statistics of the environments' normalisation, back into the script's object."""
        if self.normalization and self.learner:
            self.normalization.write_back(self.learner)

    # environments

    def get_env(self) -> Any:
        return self.env

    def get_vec_normalize_env(self) -> Any:
        unwrap = sb3("common.vec_env", "unwrap_vec_normalize")
        return unwrap(self.env) if unwrap and self.env is not None else None

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Another environment with the same spaces."""
        source = ScriptEnv(env, self.verbose, self.masking)
        if source.vec.num_envs != self.n_envs:
            raise FailedAssertion(
                "env",
                f"has {source.vec.num_envs} environments, and the model was made for "
                f"{self.n_envs}: use {self.class_name}.load(path, env) instead.",
            )
        for what in ("observation_space", "action_space"):
            if (given := getattr(source.vec, what)) != (ours := getattr(self, what)):
                raise ValueError(f"{what} spaces do not match: {given} != {ours}")
        if force_reset:
            self._last_obs = None
        self.take_env(source)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seeds Python, NumPy, PyTorch, the action space, and the environments' next reset."""
        if seed is None:
            return
        import random

        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.action_space.seed(seed)
        if self.env is not None:
            self.env.seed(seed)

    # logs

    @property
    def logger(self) -> Any:
        return self._logger

    def set_logger(self, logger: Any) -> None:
        self._logger, self._custom_logger = logger, True

    def dump_logs(self, iteration: int = 0) -> None:
        """Writes the table of what was recorded."""
        record_table(self, iteration)

    def record_training(self, statistics: Mapping[str, float]) -> None:
        """Records what updates since the last time were like."""
        record_training(self, statistics)

    # what scripts read

    @property
    def _n_updates(self) -> int:
        """Gradient updates, of PPO epochs."""
        return int(self.agent.count[1 if self.on_policy else 0]) if self.agent else 0

    @property
    def lr_schedule(self) -> Any:
        """The learning rate by the progress that remains."""
        if callable(self.learning_rate):
            return self.learning_rate
        return partial(constant, float(self.learning_rate))

    @property
    def _last_episode_starts(self) -> np.ndarray | None:
        """Whether the last step ended an episode, of each environment."""
        envs = self.learner and self.learner.envs
        return envs.terminated | envs.truncated if self.learner else None

    def current_lr(self) -> float:
        return float(value_at(self.agent.config.lr, self.num_timesteps))

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """The policy's action for one observation or a batch, and the next state of a recurrent
        policy."""
        return self.predictor(observation, state, episode_start, deterministic)


class OnPolicyModel(SB3Model):
    """PPO and its kin."""

    on_policy = True
    action_spaces = (
        gym.spaces.Box,
        gym.spaces.Discrete,
        gym.spaces.MultiDiscrete,
        gym.spaces.MultiBinary,
    )

    @property
    def rollout_buffer(self) -> RolloutView:
        return RolloutView(self.learner)


class ReplayModel(SB3Model):
    """Algorithms with a replay memory."""

    on_policy = False
    save_replay_buffer = persistence.save_replay_buffer

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Takes over a saved replay memory. Episodes in it that had not ended go on nowhere."""
        if not truncate_last_traj:
            raise ConfigError(
                "truncate_last_traj",
                "= False is not possible: the environments are elsewhere now; leave it out.",
            )
        self.open_learner(Schedule(None, self.n_envs), restart=False)
        load_replay(path, self.learner)

    @property
    def replay_buffer(self) -> ReplayView | None:
        return ReplayView(self.learner) if self.learner else None


class ActorCriticModel(ReplayModel):
    """SAC, TD3 and DDPG."""

    action_spaces = (gym.spaces.Box,)
    stores_scaled = True
    draws_actions: ClassVar[bool] = False  # whether the policy is drawn from


class QLearningModel(ReplayModel):
    """DQN and QRDQN."""

    action_spaces = (gym.spaces.Discrete,)
    rate: tuple[int, float] | None = None  # set by the script, and at which step

    @property
    def exploration_rate(self) -> float:
        """The share of random actions; before training none."""
        if self.rate is not None and self.rate[0] == self.num_timesteps:
            return self.rate[1]
        if not self.num_timesteps:
            return 0.0
        return float(self.agent.exploring(self.num_timesteps)["epsilon"])

    @exploration_rate.setter
    def exploration_rate(self, rate: float) -> None:
        self.rate = self.num_timesteps, float(rate)


def constant(value: float, progress_remaining: float) -> float:
    return value


def with_progress(callback: Any, progress_bar: bool) -> Any:
    """The callback with a progress bar beside it, where one is asked for."""
    if not progress_bar:
        return callback
    bar = sb3("common.callbacks", "ProgressBarCallback")
    if bar is None:
        raise ConfigError(
            "progress_bar",
            "= True is Stable-Baselines3's callback, which is not installed: leave it out.",
        )
    return as_callback([one for one in (callback, bar()) if one is not None])
