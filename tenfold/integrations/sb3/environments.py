"""A script's environments behind tenfold's adapter. Single environments are stepped by our own
loop, also those inside of a DummyVecEnv; any other vector environment is stepped as it is, one call
a step; classic tasks that a script names by id alone are stepped in compiled code."""

from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import gymnasium as gym
import numpy as np

from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.masks import MASK, MaskReader
from tenfold.core.registry import ADDED, Domain
from tenfold.core.spaces import policy_actions
from tenfold.envs.adapter import Environments, Episode
from tenfold.envs.control_dynamics import KINDS
from tenfold.envs.making import make_errors
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.integrations.sb3.vec_env import VectorEnv, monitored, sb3, vectorised

PREFIX = "script/"  # of the names that a script's environments go by


class GymLanes(ScalarEnvironments):
    """Single environments, stepped by our loop. Seeds and options are those that the vector
    environment around them was given for its next reset."""

    exact_resume = False

    def __init__(self, source: "ScriptEnv", seed: int, policy: bool) -> None:
        vec, name = source.stepped, source.name
        self.source, self.vec = source, without_transpose(vec)
        self.envs = list(single_envs(vec) or ())
        self.raw_obs: list[Any] = [None] * len(self.envs)
        self.prepare(name, len(self.envs), seed, policy, 0)
        self.exact_resume = False

    def reset_env(self, i: int) -> Any:
        seed, options = self.vec._seeds[i], self.vec._options[i]
        self.vec._seeds[i], self.vec._options[i] = None, {}
        return self.envs[i].reset(seed=seed, **({"options": options} if options else {}))

    def write(self, obs: Any, i: int, last: bool = False) -> None:
        self.raw_obs[i] = obs
        super().write(obs, i, last)

    def read_mask(self, i: int, obs: Any, info: dict[str, Any]) -> None:
        if self.source.masking:
            super().read_mask(i, obs, info)

    def mask_given(self, reader: MaskReader, i: int, obs: Any, info: dict[str, Any]) -> Any:
        if not self.source.use_masking:
            return np.ones(reader.form.options, np.bool_)
        mask = np.ravel(self.envs[i].get_wrapper_attr("action_masks")())
        return super().mask_given(reader, i, {MASK: mask}, {MASK: mask})

    def close(self) -> None:
        """They are the script's."""


class VecEnvLanes(Environments):
    """A vector environment, one call a step."""

    exact_resume = False

    def __init__(self, source: "ScriptEnv", seed: int, policy: bool) -> None:
        self.source, self.vec = source, (vec := source.stepped)
        name = source.name
        actions = policy_actions(vec.action_space, name)
        self.mask_form = MaskReader(vec.observation_space, actions).form
        super().__init__(name, vec.num_envs, seed, vec.observation_space, vec.action_space)
        if source.masking:
            self.masked = True
            self.make_masks(self.mask_form.options)
        self.begin_all()

    def begin_all(self) -> None:
        """Every environment at the start of a new episode."""
        self.length, self.ret = [0] * self.worlds, [0.0] * self.worlds
        self.show(self.vec.reset())

    def show(self, obs: Any) -> None:
        """Takes over the observations that are acted on next."""
        self.raw_obs = obs
        if self.layout.direct:
            self.obs[...] = np.asarray(obs).reshape(self.obs.shape)
        else:
            for row, one in zip(self.obs, self.layout.unbatch(obs) or (), strict=True):
                self.layout.write(one, row)
        if self.fallible and not np.isfinite(self.obs).all():
            finite = np.isfinite(self.obs.reshape(self.num_envs, -1)).all(1)
            raise self.not_finite(int(np.argmin(finite)))
        if self.mask is not None and self.source.use_masking:
            self.mask[:] = [np.ravel(mask) for mask in self.vec.env_method("action_masks")]

    def step(self, actions: np.ndarray) -> None:
        """One step of every environment with actions [B], in the environment's own numbers."""
        self.finished = []
        obs, self.reward[:], ended, self.info = self.vec.step(actions)
        if not np.isfinite(self.reward).all():
            raise self.not_finite(int(np.argmin(np.isfinite(self.reward))))
        self.terminated[:] = self.truncated[:] = False
        for i in range(self.num_envs):
            self.length[i] += 1
            self.ret[i] += float(self.reward[i])
            if ended[i]:
                self.end(i, self.info[i])
        self.show(obs)

    def end(self, i: int, info: dict[str, Any]) -> None:
        """Notes the episode of environment i that ended."""
        cut = bool(info.get("TimeLimit.truncated", False))
        self.terminated[i], self.truncated[i] = not cut, cut
        self.layout.write(info["terminal_observation"], self.final_obs[i])
        if self.mask is not None:
            self.note_final_mask(i, np.ones(self.mask_form.options, np.bool_))
        self.finished.append(Episode(i, self.ret[i], self.length[i]))
        self.length[i], self.ret[i] = 0, 0.0
        self.episode[i] += 1

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """It is the script's, and stays where it is."""
        return False


def single_envs(vec: Any) -> list[Any] | None:
    """The environments inside of a vector environment that does nothing but step them one after
    another; None where it does more."""
    vec = without_transpose(vec)
    plain = type(vec) in (VectorEnv, sb3("common.vec_env", "DummyVecEnv"))
    return vec.envs if plain else None


def without_transpose(vec: Any) -> Any:
    """What is inside of a wrapper that only puts channels of images first."""
    return vec.venv if type(vec) is sb3("common.vec_env", "VecTransposeImage") else vec


class ScriptEnv:
    """What a script gave a model as its environment: `vec` is the vector environment that
    `get_env()` shows."""

    numbers = count()

    def __init__(self, env: Any, verbose: int = 0, masking: bool = False) -> None:
        self.masking, self.use_masking = masking, True
        self.compiled = compiled_twin(env) if isinstance(env, str) and not masking else ""
        self.vec = as_vec_env(env, verbose)
        self.stepped = self.vec  # what the adapter steps: without what the learner does itself
        self.adapter: Environments | None = None
        label = env if isinstance(env, str) else label_of(self.vec)
        self.name = f"{PREFIX}{label}-{next(self.numbers)}"
        SCRIPTS[self.name] = self

    def mask(self, use_masking: bool) -> None:
        """Whether masks are asked for from now on."""
        if use_masking and not all_have(self.vec, "action_masks"):
            raise ValueError(
                "Environment does not support action masking: it needs a method action_masks, or "
                "sb3_contrib's ActionMasker around it."
            )
        self.use_masking = use_masking

    def environments(self, seed: int, policy: bool) -> Environments:
        """The adapter; made once, since it resets them."""
        if self.adapter is None:
            kind = GymLanes if single_envs(self.stepped) is not None else VecEnvLanes
            self.adapter = kind(self, seed, policy)
        return self.adapter


class ScriptEnvironments(Domain):
    """The environments that scripts of this process gave to models."""

    name = "sb3-scripts"

    def owns(self, env: str) -> bool:
        return env.partition("(")[0] in SCRIPTS

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> Environments | None:
        return SCRIPTS[env.partition("(")[0]].environments(seed, policy)


SCRIPTS: WeakValueDictionary[str, ScriptEnv] = WeakValueDictionary()
ADDED.append(ScriptEnvironments())


def compiled_twin(name: str) -> str:
    """The compiled environment with the dynamics of a Gymnasium id; "" where there is none."""
    return next((twin for twin, kind in KINDS.items() if kind.original == name), "")


def label_of(vec: Any) -> str:
    """A name for messages."""
    envs = single_envs(vec)
    spec = getattr(envs[0] if envs else None, "spec", None)
    word = spec.id if spec else type(envs[0].unwrapped if envs else vec).__name__
    return word.partition("(")[0]


def all_have(vec: Any, method: str) -> bool:
    if hasattr(vec, "has_attr"):  # environments elsewhere need not send the method itself
        return vec.has_attr(method)
    try:
        vec.get_attr(method)
    except AttributeError:
        return False
    return True


def made_by_id(name: str) -> gym.Env[Any, Any]:
    """Gymnasium's environment of an id, with pictures where it has some."""
    with make_errors(name, name):
        try:
            return gym.make(name, render_mode="rgb_array")
        except TypeError:
            return gym.make(name)


def as_vec_env(env: Any, verbose: int = 0) -> Any:
    """An id, an environment, a function or a list of functions that make one, or a vector
    environment, as a vector environment."""
    if not (hasattr(env, "step_async") and hasattr(env, "num_envs")):
        say: Callable[[str], Any] = print if verbose else lambda sentence: None
        if isinstance(env, str):
            say(f"Creating environment from the given name '{env}'")
        say("Wrapping the env with a `Monitor` wrapper")
        say("Wrapping the env in a DummyVecEnv.")
        env = vectorised([monitored(one) for one in single_list(env)])
    refuse_nested(env.observation_space)
    transpose = sb3("common.vec_env", "VecTransposeImage")
    return transpose(env) if transpose and shows_images(env) else env


def single_list(env: Any) -> list[Any]:
    """Single environments of whatever a script may give."""
    if isinstance(env, str):
        return [made_by_id(env)]
    if isinstance(env, gym.vector.VectorEnv):
        inner = getattr(env, "envs", None)
        if inner is None:
            raise ConfigError(
                "env",
                f"= {type(env).__name__} steps environments elsewhere: give a list of functions "
                "that make one, or Stable-Baselines3's SubprocVecEnv.",
            )
        return list(inner)
    made = [
        one() if callable(one) and not isinstance(one, gym.Env) else one
        for one in (env if isinstance(env, list | tuple) else [env])
    ]
    for one in made:
        if not isinstance(one, gym.Env):
            raise EnvironmentFault(
                f"env = {one!r:.60} is neither an id nor a gymnasium.Env: derive it from that "
                "class, or wrap an environment of the old gym in shimmy's GymV21CompatibilityV0."
            )
    return made


def refuse_nested(space: gym.Space[Any]) -> None:
    """Nested Dict and Tuple observations are not what these classes take."""
    parts = space.spaces.values() if isinstance(space, gym.spaces.Dict) else ()
    if any(isinstance(part, gym.spaces.Dict | gym.spaces.Tuple) for part in parts):
        raise NotImplementedError(
            "Nested observation spaces are not supported: flatten them, or train by tenfold.train."
        )


def shows_images(vec: Any) -> bool:
    """Whether images come with their channels last, which Stable-Baselines3 puts first."""
    images = sb3("common.preprocessing", "is_image_space")
    first = sb3("common.preprocessing", "is_image_space_channels_first")
    wrapped = sb3("common.vec_env", "is_vecenv_wrapped")
    if wrapped(vec, sb3("common.vec_env", "VecTransposeImage")):
        return False
    space = vec.observation_space
    parts = space.spaces.values() if isinstance(space, gym.spaces.Dict) else (space,)
    return any(images(part) and not first(part) for part in parts)
