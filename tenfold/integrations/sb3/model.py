"""Models with Stable-Baselines3's interface: a learner of tenfold's behind its constructor, `learn`
and attributes. Nothing is written to disk unless the script asks for it."""

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from inspect import Signature
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
import torch

from tenfold.config.run import Run
from tenfold.config.schedules import value_at
from tenfold.core.layout import observation_layout
from tenfold.core.protocols import EnvSpec
from tenfold.core.registry import algorithm
from tenfold.core.system import set_threads
from tenfold.integrations.sb3 import learning, persistence
from tenfold.integrations.sb3.converted import FailedAssertion
from tenfold.integrations.sb3.environments import ScriptEnv
from tenfold.integrations.sb3.normalization import normalization_of
from tenfold.integrations.sb3.prediction import Predictor
from tenfold.integrations.sb3.settings import device, settings_of
from tenfold.integrations.sb3.signatures import CONSTRUCTORS, learn_arguments, signature
from tenfold.integrations.sb3.training_log import record_table, record_training
from tenfold.integrations.sb3.vec_env import sb3

# of the policy object, under their own names in a model
PARTS = ("actor", "actor_target", "critic", "critic_target", "q_net", "q_net_target")
PARTS += ("quantile_net", "quantile_net_target")
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

    def __init__(self, *positional: Any, **named: Any) -> None:
        arguments = filled(signature(CONSTRUCTORS[self.class_name]), positional, named)
        self.argument_names = tuple(name for name in arguments if name not in ("policy", "env"))
        for name in self.argument_names:
            setattr(self, name, arguments[name])
        self.policy_name, env = arguments["policy"], arguments["env"]
        self.verbose: int = arguments["verbose"]
        self.policy_kwargs = arguments["policy_kwargs"] or {}
        self.run_seed = arguments["seed"]
        if self.run_seed is None:  # of the script's own generator, which it may have seeded
            self.run_seed = int(np.random.randint(LONGEST_SEED))  # noqa: NPY002
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
        self.normalization: Any = None  # of the script's environments, where it is tenfold's
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
        self.normalization = normalization_of(source.vec, self.on_policy)
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
        with warnings.catch_warnings():
            if self.agent is not None:  # they were told when it was made
                warnings.simplefilter("ignore", UserWarning)
            return settings_of(self.class_name, self.arguments, getattr(self, "n_envs", 1), total)

    def make_run(self, env: str, total: int) -> Run:
        translated = self.settings(total)
        translated.check()  # by the names of the arguments
        self.steps_between_updates = translated.phase
        settings = translated.settings | {"env": env, "seed": self.run_seed, "eval_every": 0}
        settings |= {"checkpoint_every": 0, "env_threads": 1}
        settings |= self.normalization.settings if self.normalization else {}
        return Run.of(settings)

    def _setup_model(self) -> None:
        """Makes the networks; environments are left as they are."""
        self.set_random_seed(self.seed)
        self.make_agent()
        for sentence in self.settings(1).differences if self.verbose else ():
            print(f"Not the same: {sentence}")

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

    train = learning.train  # `learn` with all its arguments
    open_learner = learning.open_learner

    def learn(self, *positional: Any, **named: Any) -> Self:
        """Trains for `total_timesteps` environment steps or a little more: whole rollouts are
        learned from."""
        self.train(**filled(signature(learn_arguments(self.class_name)), positional, named))
        return self

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
            if (theirs := getattr(source.vec, what)) != (ours := getattr(self, what)):
                raise ValueError(f"{what} spaces do not match: {theirs} != {ours}")
        if force_reset:
            self._last_obs = None
        self.take_env(source)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seeds Python, NumPy, PyTorch, the action space, and the environments' next reset."""
        if seed is None:
            return
        import random

        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  which scripts draw from
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

    def __getattr__(self, name: str) -> Any:
        if name in PARTS:
            return getattr(self.policy, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

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


def filled(
    form: Signature, positional: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by name, with the defaults."""
    bound = form.bind(*positional, **named)
    bound.apply_defaults()
    return dict(bound.arguments)


def constant(value: float, progress_remaining: float) -> float:
    return value
