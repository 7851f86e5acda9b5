"""Settings of a run that wrap its environments: what an agent is shown of them and learns from, how
long episodes and steps are. Rules between them and the agent's."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tenfold.config.notation import show
from tenfold.config.schema import Option
from tenfold.core.errors import ConfigError
from tenfold.core.registry import algorithm

if TYPE_CHECKING:
    from tenfold.config.run import Run

# settings of the run that are the agent's own where it has one of this name
AGENTS_OWN = ("frames", "normalize_obs")
# with what they are where nobody asks for them
USUAL: dict[str, Any] = {
    "action_repeat": 1,
    "max_episode_steps": None,
    "frames": None,
    "normalize_obs": None,
    "normalize_reward": False,
    "clip_reward": None,
}

# settings of former versions: the value that changes nothing, and why there is no other
REMOVED = {
    "vectorize": ("scalar", "environments are stepped by tenfold's own adapter"),
    "learners": (1, "one process learns"),
}


@dataclass(frozen=True)
class Sign(Option):
    """Rewards for learning are -1, 0 or 1."""


def refuse_contradictions(mapping: Mapping[str, Any]) -> None:
    """Of what is said of a run and otherwise of its agent."""
    agent: Any = mapping.get("agent")
    for name in AGENTS_OWN if isinstance(agent, Mapping) else ():
        dashed = name.replace("_", "-")
        said = [show(group.get(name, group.get(dashed))) for group in (mapping, agent)]
        if "none" not in said and said[0] != said[1]:
            raise ConfigError(
                name,
                f"= {said[0]} and agent.{name} = {said[1]} contradict each other: they are one "
                "setting, so leave one of them out.",
            )


def without_removed(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Without the settings of former versions, which their run folders name."""
    for name, (usual, why) in REMOVED.items():
        if mapping.get(name, usual) != usual:
            raise ConfigError(
                name,
                f"= {show(mapping[name])} is no longer offered: {why}. Leave it out and train "
                "anew.",
            )
    return {key: value for key, value in mapping.items() if key not in REMOVED}


def without_replaced(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file without those that `change` says by their other name: of the run
    instead of the agent, or of the agent instead of the run."""

    def has(settings: Any, name: str) -> bool:
        return isinstance(settings, Mapping) and bool({name, name.replace("_", "-")} & {*settings})

    def without(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
        return {k: v for k, v in settings.items() if k not in (name, name.replace("_", "-"))}

    kept = dict(base)
    for name in AGENTS_OWN:
        if has(change.get("agent"), name):
            kept = without(kept, name)
        if has(change, name) and has(kept.get("agent"), name):
            kept["agent"] = without(kept["agent"], name)
    return kept


def tell_agent(run: "Run") -> None:
    """What is the agent's own is kept there alone."""
    for name in AGENTS_OWN:
        value = getattr(run, name)
        if value is not None and name in {own.name for own in fields(run.agent)}:
            object.__setattr__(run, "agent", replace(run.agent, **{name: value}))
            object.__setattr__(run, name, None)


def check_wrappers(run: "Run") -> None:
    """Refuses those that the agent cannot have, and those
    that the environment's name says too."""
    _ = run.world
    asked = {name: getattr(run, name) for name, usual in USUAL.items()}
    asked = {name: value for name, value in asked.items() if value != USUAL[name]}
    if asked and not run.agent.wrappable:
        name, value = next(iter(asked.items()))
        raise ConfigError(
            name,
            f"= {show(value)} is not for agent {run.agent.name}, which takes environments as they "
            "are: leave it out.",
        )
    if run.normalize_obs and not getattr(algorithm(run.agent.name), "normalises", False):
        raise ConfigError(
            "normalize_obs", f"= true is not for agent {run.agent.name}: leave it out."
        )
