"""Environments by name: which there are, making one or many, and what goes wrong."""

import contextlib
import math
import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

import tenfold.envs  # noqa: F401  (registers ours)
from tenfold.core.errors import FAULTS, ConfigError, EnvironmentFault, UserError, described
from tenfold.core.masks import offers_mask
from tenfold.core.other_libraries import package_of
from tenfold.core.registry import domain_of, domains
from tenfold.core.user_envs import OWN, is_object, refuse_twice, take
from tenfold.envs.arguments import read_whole, split_name
from tenfold.envs.faults import CALLERS
from tenfold.envs.named_wrappers import wrap_by_names

if TYPE_CHECKING:
    from tenfold.core.protocols import EnvSpec
    from tenfold.envs.adapter import Environments


def make_env(name: str, **more: Any) -> gym.Env[Any, Any]:
    """`gym.make` for an id with arguments in call notation; an unknown id is an error that names
    the nearest ones."""
    ident, arguments = split_name(name)
    steps = Steps.taken_from(arguments)
    with make_errors(name, ident):
        if name.startswith(OWN):
            env = own_env(name, bool(steps.limit), **more)
        else:
            arguments |= {"max_episode_steps": -1} if steps.limit else {}
            env = without_order_check(
                gym.make(ident, disable_env_checker=True, **arguments, **more)
            )
        env = steps.wrapped(env)
        for space in ("observation_space", "action_space"):
            if not isinstance(getattr(env, space, None), gym.Space):
                raise EnvironmentFault(
                    f"{name} has no {space}: set it to one of gymnasium.spaces when it is made."
                )
        return env


def without_order_check(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Without Gymnasium's wrapper that asks at every step whether there was a reset, which we
    always begin with."""
    if isinstance(env, OrderEnforcing):
        return env.env
    outer = env
    while isinstance(outer, gym.Wrapper):
        if isinstance(outer.env, OrderEnforcing):
            outer.env = outer.env.env
        outer = outer.env
    return env


class UserOwnedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An object of the user's, which is not ours to close. It gets back the time limits that were
    `lifted` while it was lent."""

    def __init__(self, env: gym.Env[Any, Any], lifted: bool) -> None:
        super().__init__(env)
        self.lifted = lifted

    def close(self) -> None:
        if self.lifted:
            restore_limits(self.env)
        self.lifted = False


def own_env(name: str, limited: bool, **more: Any) -> gym.Env[Any, Any]:
    """One that was handed over as an object or by a function; `limited`: by another time limit than
    those that it has itself, which are lifted."""
    env = take(name, **more)
    if not isinstance(env, gym.Env):
        raise EnvironmentFault(
            f"{name} is a {type(env).__module__}.{type(env).__name__} and no gymnasium.Env: derive "
            "it from that class, or wrap it (an environment of the old gym in shimmy's "
            "GymV21CompatibilityV0)."
        )
    if not is_object(name):
        refuse_twice(name, env)
    if limited:
        lift_limits(env)
    return UserOwnedEnv(env, limited) if is_object(name) else env


@contextlib.contextmanager
def make_errors(name: str, ident: str) -> Iterator[None]:
    """Gymnasium's and the environment's own complaints as one sentence."""
    try:
        yield
    except gym.error.UnregisteredEnv as error:
        near = instead_of(ident)
        if isinstance(error, gym.error.VersionNotFound | gym.error.DeprecatedEnv):
            near = f"{str(error).strip('. ')}; {near}"
        if multiprocessing.parent_process() is not None:  # where it was made the first time
            near += (
                "; this is a process of its own, which does not know what a notebook or a script "
                "registered: do so in a "
                f'module that it can import, and write env="my_module:{ident}"'
            )
        raise EnvironmentFault(f"There is no environment {ident}: {near}.") from None
    except ModuleNotFoundError as error:
        module = error.name or ident.split(":")[0]
        hint = (
            ": run this in its folder, or put that folder on PYTHONPATH"
            if module == ident.split(":")[0]
            else ""
        )
        raise EnvironmentFault(
            f"{ident} needs the module {module}, which is not installed{hint}."
        ) from None
    except UserError:
        raise
    except FAULTS as error:  # an environment's constructor may complain in any way it likes
        raise EnvironmentFault(f"{name} cannot be made: {described(error)}") from None


# how like two names are without their versions, from 0 to 1; where a module is named
CLOSE, CLOSER = 0.6, 0.85


def instead_of(ident: str) -> str:
    """What to write for an id that nobody has registered."""
    if answer := next(filter(None, (domain.instead_of(ident) for domain in domains())), ""):
        return f"write {answer}"
    if home := package_of(ident):
        module, package = home
        return (
            f"the package {package} has it: pip install '{package}', and write --env "
            f"{module}:{ident}, which imports it first"
        )
    module, _, inside = ident.partition(":")
    known: dict[str, list[str]] = {}
    for one in known_environments():
        known.setdefault(one.rpartition("-v")[0] or one, []).append(one)
    bare = inside or ident
    least = CLOSER if inside else CLOSE
    nearest = get_close_matches(bare.rpartition("-v")[0] or bare, known, 3, least)
    version = bare[len(bare.rpartition("-v")[0]) :]
    near = [
        next((one for one in known[name] if one == name + version), known[name][-1])
        for name in nearest
    ]
    advice = f"the nearest are {', '.join(near)}" if near else "`tenfold list` shows what there is"
    if inside and module in sys.modules and not near:
        advice = f"{module} registers none of that name, and has no function {inside}"
    hint = (
        "" if ":" in ident else f"; one of your own is written with its module, my_module:{ident}"
    )
    return advice + hint


def known_environments() -> list[str]:
    """Ids of the environments whose package is installed, without Gymnasium's copies in JAX and its
    compatibility shims."""
    needs = {"gymnasium.envs.mujoco": "mujoco", "gymnasium.envs.box2d": "Box2D"}
    missing = tuple(home for home, module in needs.items() if find_spec(module) is None)
    single = [
        i
        for i, spec in gym.registry.items()
        if not i.startswith(("phys2d/", "tabular/", "GymV"))
        and not str(spec.entry_point).startswith(missing)
        # ids that Gymnasium only remembers
        and not getattr(spec.entry_point, "__name__", "").startswith("_raise")
    ]
    return sorted([*single, *(ident for domain in domains() for ident in domain.ids())])


def time_limit(name: str) -> int | None:
    """Steps after which an environment's episodes end by themselves, where its registration or its
    name says so."""
    ident, arguments = split_name(name)
    spec = gym.registry.get(ident.split(":")[-1])
    return arguments.get("max_episode_steps", spec and spec.max_episode_steps)


def resolve_paths(name: str) -> str:
    """The name as it means the same from any folder: a file of one's own in it by its absolute
    path."""
    return domain_of(name).resolve_paths(name)


def is_multiagent(name: str) -> bool:
    """Whether a world with several agents goes by this name."""
    return domain_of(name).multiagent


def make_environments(
    name: str, num_envs: int, seed: int, policy: bool = False, first: int = 0
) -> "Environments":
    """Our compiled tasks step together; with arguments they are environments like any other. Of
    worlds with several agents there are `num_envs`, and more lanes. `first` is the index of the
    first one in its run."""
    # a run needs one of these at most
    from tenfold.envs.control_dynamics import KINDS
    from tenfold.envs.functions import FunctionEnvironments, task_of
    from tenfold.envs.tensor_sources import is_tensors

    if name in KINDS:
        from tenfold.envs.control import ControlEnvironments

        return ControlEnvironments(name, num_envs, seed, first)
    if is_tensors(name):
        from tenfold.envs.host_tensors import HostTensors

        return HostTensors(name, num_envs, seed, first)
    if not stepped_one_by_one(name):
        envs = domain_of(name).environments(name, num_envs, seed, policy, first)
        if envs is not None:
            return envs
    if task := task_of(name):
        return FunctionEnvironments(task, name, num_envs, seed, policy, first)
    from tenfold.envs.scalar import ScalarEnvironments

    return ScalarEnvironments(name, num_envs, seed, policy, first)


def stepped_one_by_one(name: str) -> bool:
    """Whether the name asks for what only single environments have: Gymnasium's form, another time
    limit, repeated actions. Some have a limit of that name themselves."""
    domain, (ident, arguments) = domain_of(name), split_name(name)
    if "env_form" in arguments and not domain.has_forms:
        raise ConfigError("env_form", f"is for MuJoCo tasks, and not for {ident}: leave it out.")
    step_keys = [key for key in STEP_KEYS if key in arguments]
    sets_limits = domain.multiagent or domain.sets_limits
    if not step_keys or (sets_limits and step_keys == ["max_episode_steps"]):
        return False
    if domain.multiagent or not domain.steps_alone:
        why = "has several agents" if domain.multiagent else "has steps and limits of its own"
        raise ConfigError(
            step_keys[0],
            f"= {arguments[step_keys[0]]} is not for {ident}, which {why}: leave it out.",
        )
    return True


def spec_of(name: str, policy: bool = False, frames: int = 1) -> "EnvSpec":
    """What environments of this name are like, with so many observations put together: one is made,
    asked, and closed."""
    envs = make_environments(name, 1, 0, policy)
    try:
        spec = envs.spec
        return replace(spec, layout=spec.layout.stacked(frames)) if frames > 1 else spec
    finally:
        envs.close()


CALLERS.add(__file__)
MOST_STEPS = 10**9


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """An action is played `times` times, its rewards added up; it stops where the episode ends."""

    def __init__(self, env: gym.Env[Any, Any], times: int) -> None:
        super().__init__(env)
        self.times = times

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        if offers_mask(obs) or offers_mask(info):
            raise EnvironmentFault(
                f"{self.env.spec.id if self.env.spec else self.env} offers an action mask, and an "
                f"action that is repeated may be forbidden in between: leave action_repeat = "
                f"{self.times} out."
            )
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, times = 0.0, 0
        while True:
            # an environment may write into what it is given
            action_copy = action.copy() if isinstance(action, np.ndarray) else action
            obs, reward, terminated, truncated, info = self.env.step(action_copy)
            total, times = total + float(reward), times + 1
            ended = terminated or truncated
            if ended or times == self.times or terminated is None or truncated is None:
                return obs, total, terminated, truncated, info


# of each limit that is lifted, what it was and how many have lifted it
LIFTED: WeakKeyDictionary[TimeLimit, tuple[Any, int]] = WeakKeyDictionary()


def limits_of(env: Any) -> list[TimeLimit]:
    """The time limits among an environment's wrappers."""
    limits = []
    while isinstance(env, gym.Wrapper):
        limits += [env] if isinstance(env, TimeLimit) else []
        env = env.env
    return limits


def lift_limits(env: Any) -> None:
    """The environment's own time limits end no episode from now on: another one is set around them.
    `restore_limits` sets them again, once it was called as often."""
    for limit in limits_of(env):
        steps, users = LIFTED.get(limit, (limit._max_episode_steps, 0))
        LIFTED[limit], limit._max_episode_steps = (steps, users + 1), math.inf  # type: ignore[assignment]


def restore_limits(env: Any) -> None:
    for limit in limits_of(env):
        steps, users = LIFTED.pop(limit, (limit._max_episode_steps, 1))
        if users > 1:
            LIFTED[limit] = steps, users - 1
        else:
            limit._max_episode_steps = steps


# arguments of a name that are not the environment's own
STEP_KEYS = ("action_repeat", "max_episode_steps", "env_form", "wrappers")


@dataclass(frozen=True)
class Steps:
    """Wrappers, and how long steps and episodes are, as arguments of an environment's name say."""

    wrappers: str = ""
    repeat: int = 1
    limit: int | None = None  # in steps of the agent, of which each may be several of these

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> Self:
        """Takes its own arguments out."""
        arguments.pop("env_form", None)  # what is made here is of no other
        wrappers = str(arguments.pop("wrappers", ""))
        lengths = {
            field: read_whole(key, arguments.pop(key), 1, MOST_STEPS)
            for field, key in (("repeat", "action_repeat"), ("limit", "max_episode_steps"))
            if arguments.get(key) is not None
        }
        return cls(wrappers, **lengths)

    def wrapped(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        env = ActionRepeat(env, self.repeat) if self.repeat > 1 else env
        return wrap_by_names(TimeLimit(env, self.limit) if self.limit else env, self.wrappers)
