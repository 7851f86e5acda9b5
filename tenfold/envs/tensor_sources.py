"""Where environments of tensors come from: a function by its name, `my_module:make(num_envs=64)`,
or a function or an object that was handed over; and who uses which.

A function that takes `num_envs` makes others for evaluations, of fewer worlds. Otherwise there is
one of them in a process: evaluations then play in training's own, whose episodes they end.
"""

import sys
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import gymnasium as gym

from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.registry import NOBODYS, domain_of
from tenfold.core.registry import OWN as DOTTED
from tenfold.core.user_envs import (
    bare,
    handed_over,
    has_worlds,
    is_batched,
    is_known,
    is_object,
    is_single,
    parameters,
    take,
)
from tenfold.envs.arguments import split_name
from tenfold.envs.faults import put_away
from tenfold.envs.making import is_multiagent, make_errors
from tenfold.envs.tensors import TensorWorlds, adapt

TRAINING: dict[str, TensorWorlds] = {}  # by name, what runs under way train in
# by name and number of worlds (0: as many as there are): open, and used by nobody
IDLE: dict[tuple[str, int], TensorWorlds] = {}


def named_function(name: str) -> Callable[..., Any] | None:
    """What `my_module:make` means, unless Gymnasium knows an environment by that name."""
    ident = split_name(name)[0] if ":" in name else ""
    # which imports the module
    if not DOTTED.fullmatch(ident) or domain_of(name) is not NOBODYS:
        return None
    module, _, inside = ident.partition(":")
    if module not in sys.modules or inside in gym.registry:
        return None
    function: Any = sys.modules[module]
    for part in inside.split("."):
        function = getattr(function, part, None)
    return function if callable(function) else None


def is_tensors(name: str) -> bool:
    """Whether environments of this name are tensors."""
    if is_known(name):
        with make_errors(name, bare(name)):
            return is_batched(name)
    return named_function(name) is not None


def steps_together(name: str) -> bool:
    """Whether one step moves all environments of this name, and episodes begin by themselves."""
    return is_multiagent(name) or is_tensors(name)


def most_lanes(name: str, usual: int) -> int:
    """How many episodes may be played side by side, at most `usual`."""
    if is_single(name):
        return 1
    if not is_tensors(name) or not borrows(name):
        return usual
    worlds = open_episodes(name, usual)
    close_episodes(worlds, usual)
    return min(usual, worlds.num_envs)


def source_of(name: str) -> Any:
    """The function that makes them, or the only ones."""
    return handed_over(name) if is_known(name) else named_function(name)


def known_arguments(name: str) -> dict[str, Any]:
    """Of the function that makes them, by name."""
    source = source_of(name)
    return parameters(source) if callable(source) and not is_object(name) else {}


def borrows(name: str) -> bool:
    """Whether there is one of them in a process, so that evaluations play in training's own."""
    return "num_envs" not in known_arguments(name)


def make_worlds(name: str, **more: Any) -> TensorWorlds:
    """New ones, or the only ones; `more` (`num_envs`, `device`) goes to functions that take it."""
    ident, arguments = split_name(name)
    source, training = source_of(name), TRAINING.get(name)
    with make_errors(name, ident):
        if is_known(name):
            env = take(name, **more)
        else:
            known = known_arguments(name)
            env = source(**arguments | {k: v for k, v in more.items() if k in known})
    if not has_worlds(env):
        raise EnvironmentFault(
            f"{name} gave a {type(env).__name__} without num_envs: a function by name makes many "
            "worlds of tensors; register a single environment with Gymnasium and name its id."
        )
    if training and training.env is env:
        raise EnvironmentFault(
            f"{name}: the function gave the same environment twice; it must make a new one "
            "whenever it is called, or take no num_envs."
        )
    worlds = adapt(env, name)
    worlds.source = source
    return worlds


def idle_worlds(name: str, num_envs: int) -> TensorWorlds | None:
    """Those of an earlier use, unless the name means something else now."""
    worlds = IDLE.pop((name, num_envs), None)
    return worlds if worlds and worlds.source is source_of(name) else None


def open_training(name: str, num_envs: int, device: str) -> TensorWorlds:
    """What a run trains in; `num_envs` and `device` as its settings say, where the name does not
    and the function takes them."""
    known, arguments = known_arguments(name), split_name(name)[1]
    more: dict[str, Any] = {}
    size = known.get("num_envs")
    if "num_envs" not in arguments and (num_envs > 1 or (size and size.default is Parameter.empty)):
        more["num_envs"] = num_envs
    if "device" not in arguments and device != "auto":
        more["device"] = device
    worlds = idle_worlds(name, 0) or make_worlds(name, **more)
    if num_envs not in (1, worlds.num_envs):
        count = worlds.num_envs
        release(worlds)
        raise ConfigError(
            "num_envs", f"= {num_envs} is not what {name} has, {count:,} worlds: leave it out."
        )
    TRAINING[name] = worlds
    return worlds


def open_episodes(name: str, num_envs: int) -> TensorWorlds:
    """Worlds to play episodes in: new ones, those of an earlier evaluation, or training's."""
    training = TRAINING.get(name)
    if borrows(name):
        return training or idle_worlds(name, 0) or make_worlds(name)
    device = {"device": str(training.device)} if training else {}
    return idle_worlds(name, num_envs) or make_worlds(name, num_envs=num_envs, **device)


def close_episodes(worlds: TensorWorlds, num_envs: int) -> None:
    """After an evaluation: kept for the next one where making them again may take long, or cannot
    be."""
    name = worlds.name
    if TRAINING.get(name) is worlds:
        return
    if borrows(name) or name in TRAINING:
        IDLE[name, 0 if borrows(name) else num_envs] = worlds
    else:
        release(worlds)


def close_training(worlds: TensorWorlds) -> None:
    """At the end of a run."""
    name = worlds.name
    if TRAINING.get(name) is worlds:
        del TRAINING[name]
    for key in [key for key in IDLE if key[0] == name]:
        release(IDLE.pop(key))
    if borrows(name):  # `ten.evaluate` may follow
        IDLE[name, 0] = worlds
    else:
        release(worlds)


def release(worlds: TensorWorlds) -> None:
    """Closes what a function made; an object stays its owner's."""
    if worlds.source is not worlds.env and hasattr(worlds.env, "close"):
        put_away(worlds.env)
