"""Gymnasium's wrappers in an environment's name:
`CartPole-v1(wrappers=[gymnasium.wrappers:TimeAwareObservation, my_module:Mine(scale=2)])`."""

from typing import Any

import gymnasium as gym

from tenfold.config.notation import parse_call, parse_list, split_list
from tenfold.core.errors import EnvironmentFault, told_of
from tenfold.core.registry import import_by_name
from tenfold.envs.arguments import parse_value


def listed(text: str) -> list[str]:
    """The wrappers in a name, the innermost first."""
    inside = text.strip()
    if inside[:1] == "[" and inside[-1:] == "]":
        inside = inside[1:-1]
    return split_list(inside)


def wrap_by_names(env: gym.Env[Any, Any], wrappers: str) -> gym.Env[Any, Any]:
    """The environment in these wrappers, one around the other."""
    for text in listed(str(wrappers)):
        name, positional, named = parse_call(text, "wrappers")
        if positional:
            raise EnvironmentFault(f"wrappers = {text} cannot be read: name each argument.")
        kind = import_by_name(name)
        with told_of(text):
            env = kind(env, **{key: argument(value) for key, value in named.items()})
        if not isinstance(env, gym.Env):
            raise EnvironmentFault(f"{name} is no wrapper: it made a {type(env).__name__}.")
    return env


def argument(text: str) -> Any:
    """A value, or a tuple of values where it stands in brackets."""
    items = parse_list(text) if text[:1] in "[(" else None
    return parse_value(text) if items is None else tuple(map(parse_value, items))
