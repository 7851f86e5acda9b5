"""Environments that a person hands over as an object or as a function that makes one, instead of by
name.

Such an environment goes by a name all the same, `own/…`: settings, folders and sentences know names
only. A function is called for each environment that is needed. An object is the only one of its
kind, and stays the person's: it is never copied (copies of Box2D environments fail silently) and
never closed; evaluations borrow it from training.

What has `num_envs` is many worlds in one object, whose observations are tensors (`envs.tensors`).
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from tenfold.core.errors import ConfigError, EnvironmentFault

OWN = "own/"
registered: dict[str, Any] = {}  # name -> the object or function
made: dict[str, WeakSet[Any]] = {}  # name -> what its function made
batched: dict[str, bool] = {}  # name -> whether it is many worlds in one object
# name -> what its function made to see what it makes; the next that is needed
spare: dict[str, Any] = {}


def name_of(env: Any) -> str:
    """The name that an environment goes by in this process from now on."""
    known = [name for name, registered_env in registered.items() if registered_env is env]
    if known:
        return known[0]
    word = getattr(env, "__name__", type(getattr(env, "unwrapped", env)).__name__)
    base = OWN + "".join(letter for letter in word if letter.isalnum() or letter in "_-")
    name, number = base, 1
    while name in registered:
        number += 1
        name = f"{base}-{number}"
    bind(name, env)
    return name


def bind(name: str, env: Any) -> None:
    """From now on `name` means this object or function."""
    if not callable(env) and not hasattr(env, "step"):
        raise ConfigError(
            "env",
            f"= {env!r:.60} is neither a name, an environment, nor a function that makes one.",
        )
    registered[name], made[name] = env, WeakSet()
    batched.pop(name, None)
    spare.pop(name, None)


def bare(name: str) -> str:
    """Without what a run says of its steps, which is no part of such a name."""
    return name.partition("(")[0]


def lend(name: str, env: Any) -> None:
    """For a run that is opened again: `env` is what its environment `name` was, or None."""
    if env is None:
        return
    if not name.startswith(OWN):
        raise ConfigError("env", f"is not needed here: the run's environment has a name, {name}.")
    bind(name, env)


def is_object(name: str) -> bool:
    """Whether there is only one environment of this name."""
    name = bare(name)
    return name in registered and not callable(registered[name])


def is_single(name: str) -> bool:
    """Whether there is only one world of this name."""
    return is_object(name) and not is_batched(name)


def is_known(name: str) -> bool:
    """Whether this process has what goes by this name."""
    return bare(name) in registered


def is_batched(name: str) -> bool:
    """Whether what goes by this name is many worlds in one object. A function that does not take
    `num_envs` is called to see it."""
    name = bare(name)
    if name not in registered:
        return False
    if name not in batched:
        env = registered[name]
        sized = callable(env) and "num_envs" in parameters(env)
        if callable(env) and not sized:
            env = spare[name] = make(env, {})
        batched[name] = sized or has_worlds(env)
    return batched[name]


def has_worlds(env: Any) -> bool:
    """Whether it is many worlds in one object, by its attribute `num_envs`; Gymnasium's wrappers do
    not pass it on."""
    return hasattr(env, "num_envs") or hasattr(getattr(env, "unwrapped", None), "num_envs")


def handed_over(name: str) -> Any:
    """The object or function of this name; None where there is none."""
    return registered.get(bare(name))


def take(name: str, **more: Any) -> Any:
    """An environment by this name: the object itself, or a new one that the function makes."""
    name = bare(name)
    if name not in registered:
        raise EnvironmentFault(
            f"The environment {name} was handed over as an object or a function, which this "
            "process does not "
            "have: pass it as env= to tenfold.load, evaluate or resume; several processes (seeds, "
            "actors) "
            "need one by name: register it in a module of its own and write "
            'env="my_module:Mine-v0".'
        )
    registered_env = registered[name]
    if not callable(registered_env):
        return registered_env
    return spare.pop(name) if name in spare and not more else make(registered_env, more)


def require_named(name: str) -> None:
    """Refuses what cannot be sent to another process, before anything is made for it."""
    if name.startswith(OWN):
        raise EnvironmentFault(
            f"{name} is an object or a function of this process, and every seed is trained in a "
            "process of "
            'its own: register it in a module and write env="my_module:Mine-v0".'
        )


def refuse_twice(name: str, env: Any) -> None:
    """Of a function that gives an environment which it gave before."""
    name = bare(name)
    if env in made[name]:
        raise EnvironmentFault(
            f"{name}: the function gave the same environment twice; it must make a new one "
            "whenever it is called."
        )
    made[name].add(env)


def parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """Those of a function, by name."""
    from inspect import signature

    return dict(signature(function).parameters)


def make(function: Callable[..., Any], more: dict[str, Any]) -> Any:
    """`more` (a render mode, for a film) reaches functions that take it."""
    from inspect import Parameter

    known = parameters(function)
    every = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
    return function(**{key: value for key, value in more.items() if every or key in known})
