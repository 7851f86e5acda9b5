"""Environments that a person hands over as an object or as a function that makes one, instead of by
name.

Such an environment goes by a name all the same, `own/…`: settings, folders and sentences know names
only. A function is called for each environment that is needed. An object is the only one of its
kind, and stays the person's: it is never copied (copies of Box2D environments fail silently) and
never closed; evaluations borrow it from training.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from tenfold.core.errors import ConfigError, EnvironmentFault

OWN = "own/"
registered: dict[str, Any] = {}  # name -> the object or function
made: dict[str, WeakSet[Any]] = {}  # name -> what its function made


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
    if not callable(env) and not (hasattr(env, "reset") and hasattr(env, "step")):
        raise ConfigError(
            "env",
            f"= {env!r:.60} is neither a name, an environment, nor a function that makes one.",
        )
    registered[name], made[name] = env, WeakSet()


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


def is_known(name: str) -> bool:
    """Whether this process has what goes by this name."""
    return bare(name) in registered


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
    return make(registered_env, more) if callable(registered_env) else registered_env


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


def make(function: Callable[..., Any], more: dict[str, Any]) -> Any:
    """`more` (a render mode, for a film) reaches functions that take it."""
    from inspect import Parameter, signature

    parameters = signature(function).parameters.values()
    every = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
    return function(
        **{
            key: value
            for key, value in more.items()
            if every or key in {p.name for p in parameters}
        }
    )
