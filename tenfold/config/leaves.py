"""Settings one by one, for flags, help, and an answer to a word that is none of them."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal

from tenfold.config.family import Family
from tenfold.config.notation import show
from tenfold.config.schema import Config, Option, describe, docs, hints
from tenfold.config.synonyms import ANSWERS, OURS, SUCH_AS


@dataclass(frozen=True)
class Leaf:
    """One setting that is not a group: its dotted path, type, default and help."""

    path: str
    hint: Any
    default: Any
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.path.replace("_", "-")


def leaves_of(cls: type[Config], prefix: str = "") -> Iterator[Leaf]:
    types = hints(cls)
    for f in fields(cls):
        hint = types[f.name]
        if isinstance(hint, type) and issubclass(hint, Family):
            yield from leaves_of_kinds(hint, f"{prefix}{f.name}.")
        elif isinstance(hint, type) and issubclass(hint, Config) and not issubclass(hint, Option):
            yield from leaves_of(hint, f"{prefix}{f.name}.")
        else:
            yield Leaf(prefix + f.name, hint, default_of(f), docs(cls).get(f.name, ""))


def leaves_of_kinds(family: type[Family], prefix: str) -> Iterator[Leaf]:
    """The settings of all kinds, each once; the help says whose it is, where it is not
    everyone's."""
    groups = family.kinds()
    found: dict[str, dict[str, Leaf]] = {}
    for name, group in groups.items():
        for leaf in leaves_of(group, prefix):
            found.setdefault(leaf.path, {})[name] = leaf
    for path, owners in found.items():
        first = next(iter(owners.values()))
        if path == f"{prefix}name":
            yield Leaf(path, Literal[tuple(groups)], family.usual, docs(family)["name"])  # type: ignore[valid-type]
            continue
        whose = "" if len(owners) == len(groups) else f"{', '.join(owners)}: "
        other = "".join(
            f"; {name}: default {show(leaf.default)}"
            for name, leaf in owners.items()
            if leaf.default != first.default
        )
        yield Leaf(path, first.hint, first.default, f"{whose}{first.help}{other}")


def default_of(f: Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not MISSING else f.default


def known_as(cls: type[Config], word: str) -> str:
    """Which setting a word means that is none here."""
    if found := known_here(cls, word):
        return found
    if word in OURS:  # one of another group, or of another agent
        return f": tenfold calls it {' or '.join(OURS[word])}"
    if word in ANSWERS:
        return f": {ANSWERS[word]}"
    return nearest_setting(cls, word)


def known_here(cls: type[Config], word: str) -> str:
    return called_here({leaf.path: leaf for leaf in leaves_of(cls)}, word)


def called_here(leaves: "Mapping[str, Leaf]", word: str) -> str:
    """Our name for another library's word, with what it means; "" where no leaf is that. `leaves`
    are by what a person writes."""
    found = [
        (written, leaf, ours)
        for ours in OURS.get(word, ())
        for written, leaf in leaves.items()
        if ours == leaf.path or ours.endswith(f".{leaf.path}")
    ]
    told = [
        f"{written} ({leaf.help}{f', such as {SUCH_AS[ours]}' if ours in SUCH_AS else ''})"
        for written, leaf, ours in found
    ]
    return f": tenfold calls it {' or '.join(told)}" if told else ""


def nearest_setting(cls: type[Config], name: str) -> str:
    """The nearest key here or in a group below, with what it accepts."""
    leaves = {leaf.path.split(".")[-1]: leaf for leaf in leaves_of(cls)} | {
        leaf.path: leaf for leaf in leaves_of(cls)
    }
    found = get_close_matches(name, [*leaves, *(f.name for f in fields(cls))], 1, 0.5)
    if not found:
        return ""
    leaf = leaves.get(found[0])
    return (
        f": the nearest is {leaf.path}, {describe(leaf.hint)}"
        if leaf
        else f": the nearest is {found[0]}, a group of settings"
    )
