"""The interface of a domain, and which algorithms and domains there are: those of the package, of
installed packages (entry points `tenfold.algorithms` and `tenfold.domains`), and the user's by
`module:Name`.

The package's own are found by looking into its folders: what stands in `ALGORITHMS` and `DOMAINS`
of a folder's `__init__`, or of a file `…_settings.py`, which imports nothing heavy.
"""

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, reduce
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.errors import UserError, told_of

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
    # whether its environments take another limit of steps themselves, and are the same in
    # Gymnasium's form and in another one
    sets_limits = has_forms = False
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

    def episodes(self, env: str, lanes: int, stream: Any, episodes: int) -> "Environments | None":
        """Lanes of an evaluation behind one adapter (`envs.bases.ChosenLanes`), lane i at the start
        of episode i; episode e is seeded by number e of `stream`. None: they are stepped one by
        one."""
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


class FileForm:
    """Files of another library that the command line takes as they are, and what is said of runs
    made from them beyond what is said of any run. `FORM` of `tenfold/integrations/*/file_form.py`
    is one."""

    name = title = ""

    def claims(self, words: Sequence[str]) -> bool:
        """Whether a command line names such a file."""
        raise NotImplementedError

    def run(self, words: Sequence[str]) -> int:
        """Carries out that command line; returns the exit code."""
        raise NotImplementedError

    def results(self, source: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, float]:
        """Numbers by name, of the folders of one or several runs; `source` is what `made_from` was
        given when they were made."""
        return {}


@cache
def file_forms() -> tuple[FileForm, ...]:
    room = Path(__file__).parent.parent / "integrations"
    files = sorted(room.glob("*/file_form.py"))
    return tuple(
        import_module(f"tenfold.integrations.{file.parent.name}.file_form").FORM for file in files
    )


def form_of(source: Mapping[str, Any]) -> FileForm | None:
    """The form of files that a run was made from, by what its folder says of it."""
    return next((form for form in file_forms() if form.name == source.get("form")), None)


SOURCE: ContextVar[Mapping[str, Any] | None] = ContextVar("SOURCE", default=None)


@contextmanager
def made_from(source: Mapping[str, Any]) -> Iterator[None]:
    """Folders of runs that are made inside say that they come from a file of another library:
    `form` is the name of its `FileForm`."""
    token = SOURCE.set(source)
    try:
        yield
    finally:
        SOURCE.reset(token)


NOBODYS = Domain()  # of environments that no domain owns
ADDED: list[Domain] = []  # by users, while the program runs
OBSTACLES: dict[str, str] = {}  # what kept engines from runs of this process when they were tried
MODULE = re.compile(r"[^\W\d][\w.]*")
OWN = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")  # how one's own is written: module:Name


def import_by_name(name: str) -> Any:
    """What `module:Name` means: the module is imported, since whoever writes its name asks for
    it."""
    if not OWN.fullmatch(name):
        raise UserError(f"{name} is not written as module:Name.")
    module, _, inside = name.partition(":")
    try:
        with told_of(f"{name}: importing {module}"):
            home = import_module(module)
    except UserError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            missing = error.__cause__.name
            raise UserError(f"{name}: the module {missing} cannot be imported from here.") from None
        raise
    try:
        return reduce(getattr, inside.split("."), home)
    except AttributeError:
        if module == "__main__":
            raise UserError(
                f"{name} was in the program that trained, and is not in this one: go on from that "
                "program, or put it into a module of its own and name that in config.yaml."
            ) from None
        raise UserError(f"{name}: the module {module} has no {inside}.") from None


@cache
def discover(what: str) -> tuple[Any, ...]:
    """`ALGORITHMS` or `DOMAINS` of the package's folders and of installed packages."""
    everything: list[Any] = []
    for room in ("tenfold.algorithms", "tenfold.domains"):
        for module in pkgutil.iter_modules(import_module(room).__path__, f"{room}."):
            if module.ispkg or module.name.endswith("_settings"):
                everything += getattr(import_module(module.name), what, ())
    everything += [entry.load() for entry in entry_points(group=f"tenfold.{what.lower()}")]
    return tuple(everything)


def algorithms() -> dict[str, Any]:
    return {algorithm.name: algorithm for algorithm in discover("ALGORITHMS")}


def algorithm(name: str) -> Any:
    """By its name, or one's own by `module:Name`."""
    known = algorithms()
    if name in known:
        return known[name]
    if ":" not in name:
        raise UserError(
            f"There is no algorithm {name}: there are {', '.join(known)}, and one of your own as "
            "module:Name."
        )
    loaded = import_by_name(name)
    return loaded.family(name) if hasattr(loaded, "family") else loaded


def domains() -> tuple[Domain, ...]:
    return (*discover("DOMAINS"), *ADDED)


def domain_of(env: str) -> Domain:
    """The domain that an environment belongs to. (Asked anew each time: one may be registered at
    any moment.) Of `my_module:MyEnv-v0` the module is imported first, as Gymnasium does: it may
    have a domain."""
    module, colon, name = env.partition(":")
    if colon and MODULE.fullmatch(module):
        # whoever makes the environment says that there is no such module
        with told_of(f"{env}: importing {module}"), suppress(ModuleNotFoundError):
            import_module(module)
        env = name
    return next((domain for domain in domains() if domain.owns(env)), NOBODYS)


def domain_names() -> dict[str, str]:
    """Public names of the package's domains, with the module each is in."""
    room, names = import_module("tenfold.domains"), {}
    for folder in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        public = getattr(import_module(folder.name), "PUBLIC", {}) if folder.ispkg else {}
        home = folder.name.removeprefix("tenfold.")
        names |= {
            name: f"{home}.{file}"
            for file, public_names in public.items()
            for name in public_names.split()
        }
    return names
