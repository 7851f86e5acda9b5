"""Environments of RL-Zoo's files: their ids, arguments and wrappers, as names and settings here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenfold.config.files import KNOWN_WRAPPERS, modules_beyond
from tenfold.config.notation import with_arguments
from tenfold.core.errors import ConfigError
from tenfold.core.other_libraries import package_of
from tenfold.core.registry import OWN
from tenfold.integrations.sb3.converted import refuse

ATARI_IDS = re.compile(r"(?:ALE/)(\w+)-v\d+|(\w+?)(?:NoFrameskip|Deterministic)-v\d+")
ATARI = "tenfold/Atari-v0"
SIGNS = re.compile(r"[(),\[\]]")  # of an environment's name
IMPORTS = (
    "{} is not imported because a file names it: give --allow-imports, or wrap the environment "
    "yourself (--env my_module:MyEnv-v0)"
)
# arguments of Atari's wrapper, as those of our environment, with their defaults there
ATARI_ARGUMENTS = {
    "noop_max": ("noops", 30),
    "frame_skip": ("skip", 4),
    "terminal_on_life_loss": ("life_ends", True),
    "clip_reward": ("clip", True),
    "action_repeat_probability": ("sticky", 0.0),
}
SCREEN = 84
# wrappers that are settings of a run: the setting, its argument there, and the default of that
STEPS = {
    "FrameSkip": ("action_repeat", "skip", 4),
    "TimeLimit": ("max_episode_steps", "max_episode_steps", None),
}


@dataclass
class Wrapping:
    """What an entry's wrappers are here: settings of the run, arguments of the environment's name,
    wrappers by name."""

    settings: dict[str, Any] = field(default_factory=dict)
    wrappers: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    atari: dict[str, Any] | None = None


def bare_id(env: str) -> str:
    """An environment's id without its arguments and the module or package in front."""
    ident = env.partition("(")[0].strip().rpartition(":")[2]
    return ident.removeprefix("tenfold/")


def environment_of(env: str, arguments: Any, wrappers: Any, imports: bool) -> tuple[str, Wrapping]:
    """The environment's name here."""
    wrapping = Wrapping()
    for wrapper in wrappers if isinstance(wrappers, list) else [wrappers] if wrappers else []:
        add_wrapper(wrapping, wrapper, imports)
    if arguments is not None and not isinstance(arguments, Mapping):
        refuse("env_kwargs", arguments, "it is no mapping")
    for key, value in (arguments or {}).items():
        if isinstance(value, list):
            refuse(f"env_kwargs.{key}", value, "lists are not read here")
        require_plain(f"env_kwargs.{key}", key, value)
        if key == "wrappers":
            refuse(f"env_kwargs.{key}", value, "write env_wrapper")
    if wrapping.atari is not None:
        return atari_name(env, wrapping), wrapping
    ident = env.partition("(")[0]
    home = package_of(ident) if ":" not in ident else None
    name = f"{home[0]}:{env}" if home else env
    if wrapping.wrappers:
        arguments = {**(arguments or {}), "wrappers": f"[{', '.join(wrapping.wrappers)}]"}
    whole = with_arguments(name, arguments or {})
    if not imports and (modules := modules_beyond(whole, {"env": name})):
        refuse("env_kwargs", arguments, IMPORTS.format(modules[0]))
    return whole, wrapping


def require_plain(key: str, name: Any, value: Any) -> None:
    """Refuses an argument that would not stand in an environment's name as it is."""
    if not str(name).isidentifier():
        refuse(key, value, "its name is no argument's")
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, bool | int | float | str):
            refuse(key, value, "only numbers, truths, text and lists of them are read")
        if isinstance(item, str) and SIGNS.search(item):
            refuse(key, value, "text with commas or brackets is not read")


def atari_name(env: str, wrapping: Wrapping) -> str:
    theirs = ATARI_IDS.fullmatch(env.strip())
    if env.partition("(")[0].strip() == ATARI:
        return env
    if not theirs:
        raise ConfigError(
            "env_wrapper", f"= AtariWrapper is for Atari games, and {env} is none that is known."
        )
    game = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", theirs[1] or theirs[2]).lower()
    if wrapping.wrappers:
        refuse("env_wrapper", wrapping.wrappers[0], "Atari games are wrapped by AtariWrapper alone")
    wrapping.lines.append(
        f"{ATARI} takes the place of {env} and its wrapper; what differs after a lost life is in "
        "docs/using.md"
    )
    return with_arguments(ATARI, {"game": game, **(wrapping.atari or {})})


def add_wrapper(wrapping: Wrapping, wrapper: Any, imports: bool) -> None:
    """One entry of `env_wrapper`: a class by its dotted name, or {name: arguments}."""
    if isinstance(wrapper, Mapping):
        if len(wrapper) != 1:
            refuse("env_wrapper", wrapper, "each is one name with its arguments")
        ((name, arguments),) = wrapper.items()
    else:
        name, arguments = wrapper, {}
    arguments = arguments or {}
    if not isinstance(name, str) or "." not in name or not isinstance(arguments, Mapping):
        refuse("env_wrapper", wrapper, "a wrapper is written module.Class")
    module, _, kind = str(name).rpartition(".")
    if kind == "AtariWrapper":
        wrapping.atari = atari_arguments(arguments)
    elif kind in STEPS:
        setting, argument, usual = STEPS[kind]
        wrapping.settings[setting] = arguments.get(argument, usual)
        wrapping.lines += [f"{kind} is inside of {outer}" for outer in wrapping.wrappers]
    elif kind == "YAMLCompatResizeObservation":
        add_by_name(wrapping, "gymnasium.wrappers", "ResizeObservation", arguments)
    elif module.startswith("gymnasium.wrappers"):
        add_by_name(wrapping, "gymnasium.wrappers", kind, arguments)
    elif module in KNOWN_WRAPPERS or imports:
        add_by_name(wrapping, module, kind, arguments)
    else:
        refuse("env_wrapper", name, IMPORTS.format(module))


def add_by_name(wrapping: Wrapping, module: str, kind: str, arguments: Mapping[str, Any]) -> None:
    """A wrapper in the environment's name, `module:Class(argument=value)`."""
    if kind == "RecordVideo":  # into a folder that the file names
        refuse("env_wrapper", kind, "leave it out; tenfold eval --video makes films")
    if not OWN.fullmatch(f"{module}:{kind}"):
        refuse("env_wrapper", f"{module}.{kind}", "a wrapper is written module.Class")
    for key, value in arguments.items():
        require_plain(f"env_wrapper.{kind}.{key}", key, value)
    wrapping.wrappers.append(with_arguments(f"{module}:{kind}", arguments))


def atari_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are not our defaults, which are the same."""
    if unknown := [k for k in arguments if k not in (*ATARI_ARGUMENTS, "screen_size")]:
        refuse("env_wrapper.AtariWrapper", unknown[0], "it is no argument of that wrapper")
    if (size := arguments.get("screen_size", SCREEN)) != SCREEN:
        refuse("env_wrapper.AtariWrapper.screen_size", size, f"it is {SCREEN} here")
    return {
        ours: arguments[theirs]
        for theirs, (ours, usual) in ATARI_ARGUMENTS.items()
        if arguments.get(theirs, usual) != usual
    }
