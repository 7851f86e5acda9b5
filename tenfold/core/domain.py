"""The interface of a domain: what it promises the rest of the house."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the interface speaks of; none of it is needed to state it
    import argparse

    from tenfold.envs.adapter import Environments
    from tenfold.runs.page import Section


@dataclass(frozen=True)
class Command:
    """One of the command line. `add` declares it among the parsers of commands, given the words of
    the command line (help shows what they are about); `run` carries it out and returns the exit
    code."""

    name: str
    add: Callable[[Any, Sequence[str]], None]
    run: "Callable[[argparse.Namespace], int]"


def deferred(target: str) -> Any:
    """A method that passes its arguments to what `module:name` names, imported at the first call:
    help and errors appear without it."""
    module, _, name = target.partition(":")
    return lambda self, *arguments: getattr(import_module(module), name)(*arguments)


class Domain:
    """One field of work: which environments are its own, and what is worth saying about runs in
    them. The methods below are those of an environment that nobody knows more about; a domain
    overrides what it has more to say to. `presets/*.yaml` beside it are presets."""

    name = ""
    title = ""  # its environments in sentences, in the plural
    multiagent = False  # whether they are worlds with several agents
    # its environments by id, with the arguments of `gymnasium.register`
    registered: Mapping[str, dict[str, Any]] = {}
    # whether each may also be stepped alone, as Gymnasium's are, and nothing is lost by it
    steps_alone = True
    # whether its environments take another limit of steps themselves
    sets_limits = False
    flags: tuple[str, ...] = ()  # options that `add_flags` adds, by name

    def owns(self, env: str) -> bool:
        """Whether an environment's name, with its arguments, is one of this domain's."""
        return env.partition("(")[0].strip() in self.registered

    def ids(self) -> list[str]:
        """Its environments, beyond those that Gymnasium knows, for `tenfold list`."""
        return []

    def instead_of(self, env: str) -> str:
        """Its environment for one that there is not, by the name of another library; "" where it
        has none."""
        return ""

    def modules(self, env: str) -> tuple[str, ...]:
        """Modules that making an environment of this name imports because the name says so, beyond
        what `module:Name` means everywhere. Somebody else's runs are asked before they are trusted:
        nothing is imported here."""
        return ()

    def resolve_paths(self, env: str) -> str:
        """The same name, meaning the same from any folder."""
        return env

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments | None":
        """All of them behind one adapter; None: they are stepped one by one."""
        return None

    def commands(self) -> tuple[Command, ...]:
        """Commands that only this domain has, beside `train`, `eval` and the others."""
        return ()

    def add_flags(self, parser: "argparse.ArgumentParser") -> None:
        """Adds `flags` to `tenfold eval`; what was not given is false."""

    def deploy(self, env: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Where a trained policy is tried: the environment's name there, and settings of the run
        that are others there (`eval_policy`). `options` are the flags that were given."""
        return env, {}

    def evaluate(self, played: Any) -> dict[str, Any]:
        """What `tenfold eval` finds beyond returns, of what was `Played`; tables and pictures go
        into the run's folder."""
        return {}

    def film(self, played: Any) -> Path | None:
        """Where an episode is filmed even if nobody asks for it."""
        return None

    def lines(self, results: dict[str, Any]) -> list[str]:
        """The results of `evaluate` for one run, as lines of text."""
        return []

    def lines_of_seeds(self, members: dict[int, dict[str, Any]]) -> list[str]:
        """That of many seeds, for a terminal."""
        return []

    def member_words(self, results: dict[str, Any]) -> str:
        """Of one seed among many, behind its return."""
        return ""

    def sections(self, path: Path, rows: list[dict[str, Any]]) -> "list[Section]":
        """Of a run's page."""
        return []
