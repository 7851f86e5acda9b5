"""Which algorithms and domains there are: those of the package, of installed packages (entry points
`tenfold.algorithms` and `tenfold.domains`), and one's own by `module:Name`.

The package's own are found by looking into its folders: what stands in `ALGORITHMS` and `DOMAINS`
of a folder's `__init__`, or of a file `…_settings.py`, which imports nothing heavy.
"""

import pkgutil
import re
from contextlib import suppress
from functools import cache, reduce
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tenfold.core.domain import Domain
from tenfold.core.errors import UserError, told_of

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
