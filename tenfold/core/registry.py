"""Which algorithms and domains there are: those of the package, of installed packages (entry points
`tenfold.algorithms` and `tenfold.domains`), and one's own by `module:Name`.

The package's own are found by looking into its folders: what stands in `ALGORITHMS` and `DOMAINS`
of a folder's `__init__`, which imports nothing heavy.
"""

import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from tenfold.core.errors import UserError
from tenfold.core.protocols import Domain

NOBODYS = Domain()  # of environments that no domain owns


@cache
def found(what: str) -> tuple[Any, ...]:
    """`ALGORITHMS` or `DOMAINS` of the package's folders and of installed packages."""
    everything: list[Any] = []
    for room in ("tenfold.algorithms", "tenfold.domains"):
        for module in pkgutil.iter_modules(import_module(room).__path__, f"{room}."):
            everything += getattr(import_module(module.name), what, ())
    everything += [entry.load() for entry in entry_points(group=f"tenfold.{what.lower()}")]
    return tuple(everything)


def algorithms() -> dict[str, Any]:
    return {algorithm.name: algorithm for algorithm in found("ALGORITHMS")}


def algorithm(name: str) -> Any:
    """By its name, or one's own by `module:Name`."""
    known = algorithms()
    if name in known:
        return known[name]
    module, colon, own = name.partition(":")
    if not colon:
        raise UserError(f"There is no algorithm {name}: there are {', '.join(known)}.")
    try:
        return getattr(import_module(module), own)
    except ModuleNotFoundError as error:
        raise UserError(f"{name}: the module {error.name} cannot be imported from here.") from None
    except AttributeError:
        raise UserError(f"{name}: the module {module} has no {own}.") from None


def domains() -> tuple[Domain, ...]:
    return found("DOMAINS")


def domain_of(env: str) -> Domain:
    """The domain that an environment belongs to. (Asked anew each time: one may be registered at
    any moment.)"""
    return next((domain for domain in domains() if domain.owns(env)), NOBODYS)
