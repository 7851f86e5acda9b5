"""What arguments of Stable-Baselines3 become: settings of a run and its agent, where each of them
comes from, and what is not the same."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenfold.config.agent_config import AgentConfig
from tenfold.config.notation import nearest, show
from tenfold.config.schema import convert
from tenfold.core.errors import ConfigError
from tenfold.integrations.sb3.signatures import CONSTRUCTORS, REQUIRED

LONGEST = 100  # characters of a value in a sentence


class FailedAssertion(ConfigError, AssertionError):
    """A setting that Stable-Baselines3 refuses by an assertion."""


class UnknownArgument(ConfigError, TypeError):
    """An argument that a class of Stable-Baselines3's does not take."""


def short(value: Any) -> str:
    text = " ".join(show(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def refuse(key: str, value: Any, why: str, kind: type[ConfigError] = ConfigError) -> None:
    raise kind(key, f"= {short(value)}: {why}.")


@dataclass
class SB3Settings:
    """Settings of `agent` and of the run, as `Run.of` reads them; `differences` in sentences.

    `class_name` is the algorithm's class there, and `arguments` are all of its constructor's, with
    their defaults."""

    class_name: str
    arguments: Mapping[str, Any]
    num_envs: int
    total: int
    agent: dict[str, Any] = field(default_factory=dict)
    net: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)  # dotted name here -> argument there
    phase: int = 1  # environment steps of a rollout: learning ends with a whole one

    def __getitem__(self, key: str) -> Any:
        return self.arguments[key]

    def is_set(self, key: str) -> bool:
        """Whether an argument has another value than its default."""
        default = CONSTRUCTORS[self.class_name].get(key)
        return (
            key in self.arguments
            and self.arguments[key] is not default
            and self.arguments[key] != default
        )

    def number(self, key: str, hint: Any) -> Any:
        """An argument as a number of this type."""
        return convert(self[key], hint, key)

    def set(self, key: str, value: Any, *origin: str) -> None:
        """A setting of the agent, and which arguments say it."""
        home = self.net if key.startswith("net.") else self.agent
        home[key.removeprefix("net.")] = value
        self.origins[f"agent.{key}"] = origin[0] if origin else key

    def same(self, **names: str) -> None:
        """Arguments that mean the same here, by our names for them."""
        for ours, theirs in names.items():
            self.set(ours, self[theirs], theirs)

    def refuse_unless_default(self, key: str, why: str) -> None:
        if self.is_set(key):
            refuse(key, self[key], why)

    def note(self, sentence: str) -> None:
        self.differences.append(sentence)

    def warn(self, sentence: str) -> None:
        warnings.warn(sentence, UserWarning, stacklevel=2)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the run with those of its agent."""
        return {**self.run, "agent": {**self.agent, "net": self.net}}

    def check(self) -> AgentConfig:
        """The agent's settings; an error names the argument there as well."""
        try:
            return AgentConfig.converted(self.settings["agent"], "agent")
        except ConfigError as error:
            theirs = self.origins.get(error.key.partition(",")[0])
            if theirs is None:
                raise
            raise ConfigError(
                theirs, f"= {short(self.arguments.get(theirs))} is not possible: {error}"
            ) from None


def all_arguments(class_name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor with its defaults; an unknown one is refused."""
    defaults = CONSTRUCTORS.get(class_name)
    if defaults is None:
        raise ConfigError(
            "",
            f"{class_name} is no class of Stable-Baselines3 here"
            f"{nearest(class_name, list(CONSTRUCTORS))}.",
        )
    for name, value in arguments.items():
        if name not in defaults:
            raise ConfigError(
                name,
                f"= {short(value)} is no argument of {class_name}{nearest(name, list(defaults))}.",
            )
    return {n: (None if d is REQUIRED else d) for n, d in defaults.items()} | {**arguments}
