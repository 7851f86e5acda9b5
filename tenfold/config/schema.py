"""Frozen dataclasses <-> YAML <-> flags, through ONE conversion.

A setting is a field; the string under it is its help text. A value reaches a field from Python, a
YAML file or a flag, and `convert` is the only code that judges it, so all three are refused with
the same sentence. Choices with parameters are small dataclasses (`Option`), written as calls:
`polyak(0.005)`, `epsilon(linear(1, 0.05, 10k))`.
"""

import ast
import inspect
import math
import re
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import yaml

from tenfold.config.synonyms import ANSWERS, OURS, SUCH_AS
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.registry import OWN, own

LARGEST = 2**63 - 1  # of any number in the settings: what an int64 holds
MULTIPLES = {"k": 10**3, "M": 10**6, "G": 10**9}
NUMBER = re.compile(r"[+-]?(\d[\d_]*)?\.?\d*([eE][+-]?\d+)?[kMG]?")


@dataclass(frozen=True)
class Limits:
    """The closed interval a number must lie in; `above` excludes the lower end."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        least = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        if self.high == math.inf:
            return least
        return (
            f"{least} and at most {self.high:g}"
            if self.above
            else f"between {self.low:g} and {self.high:g}"
        )


Count = Annotated[int, Limits(1)]
Whole = Annotated[int, Limits(0)]
Share = Annotated[float, Limits(0, 1)]
Positive = Annotated[float, Limits(0, above=True)]
NotNegative = Annotated[float, Limits(0)]


class Decided:
    """A default that other settings decide, when the settings are made."""

    def of(self, config: "Config") -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Follows(Decided):
    """A default that another setting decides: `values` by what the setting at `path` is,
    `otherwise` for all others."""

    path: str
    values: Mapping[Any, Any]
    otherwise: Any

    def __str__(self) -> str:
        return told_cases(self.path, self.values, self.otherwise)

    def of(self, config: "Config") -> Any:
        return self.values.get(attrgetter(self.path)(config), self.otherwise)


def told_cases(path: str, values: Mapping[Any, Any], otherwise: Any) -> str:
    """4 where place is north, else 2."""
    cases = [f"{show(value)} where {path} is {show(case)}" for case, value in values.items()]
    return ", ".join([*cases, f"else {show(otherwise)}"])


def follows(path: str, values: Mapping[Any, Any], otherwise: Any) -> Any:
    """`Follows` as the default of a field of any type: a config that was made holds the value,
    never this."""
    return field(default=Follows(path, types.MappingProxyType(values), otherwise))


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Config:
    """A group of settings. Every value is converted and judged on construction, wherever it came
    from. A class that derives from it is a frozen dataclass, with or without the decorator."""

    def __new__(cls, *positional: Any, **named: Any) -> Self:
        """Refuses a keyword that is no field, before the dataclass's own TypeError does, and says
        what it may be called here."""
        for name, value in named.items():
            if name not in hints(cls):
                raise ConfigError(name, f"= {show(value)} is not a setting{known_as(cls, name)}.")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        def decided(name: str) -> bool:
            return not isinstance(getattr(self, name), Decided)

        for name, hint in sorted(hints(type(self)).items(), key=lambda one: not decided(one[0])):
            value = getattr(self, name)
            value = value.of(self) if isinstance(value, Decided) else value
            object.__setattr__(self, name, convert(value, hint, name))
        self.check()

    def check(self) -> None:
        """Rules that hold between settings; raises ConfigError."""

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Self:
        """Built from a mapping (a YAML file, flags); an unknown key is an error that names the
        nearest one."""
        given = {str(raw).replace("-", "_"): value for raw, value in mapping.items()}
        if len(given) < len(mapping):
            words = [str(raw).replace("-", "_") for raw in mapping]
            raise ConfigError(
                next(word for word in words if words.count(word) > 1),
                "is given twice, with - and with _.",
            )
        return cls(**given)


@dataclass(frozen=True)
class Option(Config):
    """A choice with parameters. Its notation is its lower-case class name, called:
    `hard(every=500)`."""

    from_module: ClassVar[bool] = False  # its notation is a function's name instead, module:name

    @classmethod
    def notation(cls) -> str:
        """How it is written, for errors and help."""
        names = ", ".join(f.name for f in fields(cls))
        return f"{cls.__name__.lower()}({names})" if names else cls.__name__.lower()

    @classmethod
    def called(cls, word: str, positional: list[str], named: dict[str, str]) -> Self:
        """Made of the call `word(positional, named)`."""
        names = [f.name for f in fields(cls)]
        if len(positional) > len(names):
            raise ConfigError(
                "",
                f"takes at most {len(names)} values ({', '.join(names)}), not {len(positional)}.",
            )
        given = dict(zip(names, positional, strict=False))
        twice = [name for name in named if name in given]
        if twice:
            raise ConfigError(twice[0], "is given twice.")
        given |= named
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in given]
        if missing:
            raise ConfigError(missing[0], "is missing.")
        return cls.of(given)

    def __str__(self) -> str:
        given = ", ".join(f"{f.name}={show(getattr(self, f.name))}" for f in fields(self))
        return f"{type(self).__name__.lower()}({given})" if given else type(self).__name__.lower()


@dataclass(frozen=True)
class Family(Config):
    """A group of settings of which there are several kinds, told apart by `name`."""

    usual: ClassVar[str] = ""  # the kind where no name is given

    name: str = ""
    """which kind"""

    @classmethod
    def kinds(cls) -> "Mapping[str, type[Family]]":
        """Those that are known, by their names."""
        raise NotImplementedError

    @classmethod
    def kind(cls, name: str) -> "type[Family]":
        """A kind by its name, also one that is not known before; raises UserError."""
        raise NotImplementedError


@cache
def hints(cls: type) -> dict[str, Any]:
    """Types of the fields, by their names."""
    if "__dataclass_fields__" not in vars(cls):
        dataclass(frozen=True)(cls)
    found = get_type_hints(cls, include_extras=True)
    return {f.name: found[f.name] for f in fields(cls)}


@cache
def docs(cls: type) -> dict[str, str]:
    """Field name -> the string literal under it in the source."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if base is Config or base is Option:
            continue
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):  # typed into a console
            continue
        body = ast.parse(textwrap.dedent(source)).body[0].body  # type: ignore[attr-defined]
        for node, after in pairwise(body):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[node.target.id] = " ".join(str(after.value.value).split())  # type: ignore[union-attr]
    return found


def convert(value: Any, hint: Any, key: str) -> Any:
    """`value` as the type `hint`, or a ConfigError that says what is allowed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # a number of NumPy's or torch's
    if origin is Annotated:
        value = convert(value, arguments[0], key)
        for limits in arguments[1:]:
            if value is not None and value not in limits:
                raise ConfigError(key, f"= {show(value)} is out of range: it must be {limits}.")
        return value
    if origin is Literal:
        if value in arguments:
            return value
        raise ConfigError(
            key,
            f"= {show(value)} is not one of "
            f"{', '.join(map(str, arguments))}{nearest(value, arguments)}.",
        )
    if origin in (Union, types.UnionType):
        return convert_union(value, arguments, key)
    if origin is tuple:
        if isinstance(value, str):
            value = [part for part in value.strip("[]() ").split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise ConfigError(key, f"= {show(value)} is not {describe(hint)}.")
        return tuple(convert(item, arguments[0], key) for item in value)
    if isinstance(hint, type) and issubclass(hint, Option):
        return convert_union(value, (hint,), key)
    if isinstance(hint, type) and issubclass(hint, Family):
        return convert_kind(value, hint, key)
    if isinstance(hint, type) and issubclass(hint, Config):
        return convert_group(value, hint, key)
    return convert_scalar(value, hint, key)


def convert_group(value: Any, group: type[Config], key: str) -> Config:
    """A group of settings."""
    if isinstance(value, group):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError(key, f"= {show(value)} is not a group of settings.")
    try:
        return group.of(value)
    except ConfigError as error:
        raise error.within(key) from None


def convert_kind(value: Any, family: type[Family], key: str) -> Config:
    """A group of settings of the kind that its `name` says."""
    if isinstance(value, family):
        group = kind_named(value.name, family, key)
        if type(value) is not group:
            raise ConfigError(
                f"{key}.name",
                f"= {value.name} has settings of its own, {group.__name__}, and these are "
                f"{type(value).__name__}.",
            )
        return value
    if not isinstance(value, Mapping):
        known = isinstance(value, str) and value in family.kinds()
        hint = f": write {key}: {{name: {value}}}" if known else ""
        raise ConfigError(key, f"= {show(value)} is not a group of settings{hint}.")
    name = str(value.get("name", family.usual))
    group = kind_named(name, family, key)
    for raw, given in value.items():
        word = str(raw).replace("-", "_")
        owners = [other for other, kind in family.kinds().items() if word in hints(kind)]
        if owners and word not in hints(group) and not known_here(group, word):
            raise ConfigError(
                f"{key}.{raw}",
                f"= {show(given)} is not a setting of {name}, which this run trains: it belongs to "
                f"{', '.join(owners)}.",
            )
    return convert_group({"name": name, **value}, group, key)


def kind_named(name: str, family: type[Family], key: str) -> type[Family]:
    if not name:
        raise ConfigError(
            f"{key}.name", "is missing: say whose settings these are, such as my_module:Mine."
        )
    if name not in family.kinds() and ":" not in name:
        raise ConfigError(
            f"{key}.name",
            f"= {name} is not one of {', '.join(family.kinds())}"
            f"{nearest(name, tuple(family.kinds()))}; one of your own is written module:Name.",
        )
    try:
        return family.kind(name)
    except ConfigError:
        raise
    except UserError as error:
        raise ConfigError(f"{key}.name", f"= {error}") from None


def convert_scalar(value: Any, hint: type, key: str) -> Any:
    wrong = ConfigError(key, f"= {show(value)} is not {describe(hint)}.")
    if hint is bool:
        words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        if isinstance(value, bool):
            return value
        raise wrong
    if hint is str:
        if isinstance(value, str):
            return value
        raise wrong
    number = parse_number(value) if isinstance(value, str) else value
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or abs(number) > LARGEST
        or number != number
    ):
        raise wrong
    if hint is int:
        if number != int(number):
            raise wrong
        return int(number)
    return float(number)


def convert_union(value: Any, choices: tuple[Any, ...], key: str) -> Any:
    """`none`, a number, or one of several Options in call notation."""
    if isinstance(value, str) and value.strip().lower() == "none":
        value = None
    if value is None and type(None) in choices:
        return None
    kinds = [c for c in choices if isinstance(c, type) and issubclass(c, Option)]
    if isinstance(value, tuple(kinds)):
        return value
    options = {c.__name__.lower(): c for c in kinds if not c.from_module}
    custom = next((c for c in kinds if c.from_module), None)
    if custom and callable(value):
        value = importable(value, key)
    allowed = " or ".join(describe(c) for c in choices)
    if isinstance(value, str) and not NUMBER.fullmatch(value.strip()):
        name, positional, named = parse_call(value, key)
        option = custom if ":" in name else options.get(name)
        if option:
            return call_option(option, name, positional, named, key)
        raise ConfigError(key, f"= {show(value)} is not {allowed}{nearest(name, tuple(options))}.")
    plain = [c for c in choices if c is not type(None) and c not in kinds]
    if len(plain) == 1 and value is not None:
        return convert(value, plain[0], key)
    raise ConfigError(key, f"= {show(value)} is not {allowed}.")


def call_option(
    option: type[Option], word: str, positional: list[str], named: dict[str, str], key: str
) -> Option:
    try:
        return option.called(word, positional, named)
    except ConfigError as error:
        label = f"{key}, {word}"
        raise error.within(label) from None


def importable(function: Any, key: str) -> str:
    """The name of a function, module:name, by which other processes find it too."""
    module = getattr(function, "__module__", "")
    name = f"{module}:{getattr(function, '__qualname__', '')}"
    if module == "__main__" or not OWN.fullmatch(name) or own(name) is not function:
        raise ConfigError(
            key,
            f"= {function!r:.60} cannot be written into the run's settings: put the function into "
            "a module of its own and write my_module:its_name.",
        )
    return name


def parse_call(text: str, key: str = "") -> tuple[str, list[str], dict[str, str]]:
    """`name(a, b(c), k=d)` -> ("name", ["a", "b(c)"], {"k": "d"}). No expression is ever
    evaluated."""
    match = re.fullmatch(r"\s*([^()]*?)\s*(?:\((.*)\))?\s*", text, re.DOTALL)
    if match is None or text.count("(") != text.count(")"):
        raise ConfigError(
            key,
            f"= {show(text)} cannot be read: write it as a name or a call, such as name(1, key=2).",
        )
    name, inside = match.group(1), match.group(2) or ""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(inside + ","):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(inside[start:place].strip())
            start = place + 1
    positional, named = [], {}
    for part in filter(None, parts):
        word = re.match(r"(\w+)\s*=\s*(.*)", part, re.DOTALL)
        if word and word.group(1) in named:
            raise ConfigError(key, f"= {show(text)}: {word.group(1)} is given twice.")
        if word:
            named[word.group(1)] = word.group(2)
        else:
            positional.append(part)
    return name, positional, named


def parse_number(text: str) -> int | float | None:
    """300k, 1.5M, 1e-3, 1_000 as numbers; None where the text is not one."""
    text = text.strip()
    if not text or not NUMBER.fullmatch(text):
        return None
    scale = MULTIPLES.get(text[-1], 1)
    digits = text[:-1] if scale > 1 else text
    try:
        number = float(digits)
        if scale == 1 and re.fullmatch(r"[+-]?[\d_]+", digits):
            return int(digits)
    except ValueError:  # 1__0, or more digits than Python reads
        return None
    scaled = number * scale
    whole = math.isfinite(scaled) and scale > 1 and abs(scaled - round(scaled)) < 1e-6
    return round(scaled) if whole else scaled


def describe(hint: Any) -> str:
    """What a field accepts, in words for an error and for help."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return f"{describe(arguments[0])} ({arguments[1]})"
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(describe(a) for a in arguments)
    if origin is tuple:
        return "a list such as 64,64"
    if hint is type(None):
        return "none"
    if isinstance(hint, type) and issubclass(hint, Option):
        return hint.notation()
    words = {
        int: "a whole number such as 32, 300k or 1.5M",
        float: "a number such as 0.99 or 1e-3",
        bool: "true or false",
    }
    return words.get(hint, "text")


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted names ("agent.lr") as groups within groups."""
    found: dict[str, Any] = {}
    for path, value in settings.items():
        *groups, name = str(path).split(".")
        level: Any = found
        for group in groups:
            level = level.setdefault(group, {})
            if not isinstance(level, dict):
                raise ConfigError(
                    str(path),
                    f"cannot stand beside {group}: {show(level)}, which is no group of settings.",
                )
        if not isinstance(value, Mapping):
            level[name] = value
        elif isinstance(level.setdefault(name, {}), dict):
            level[name] |= nested(value)
        else:
            raise ConfigError(
                name, f"= {show(level[name])} is given twice, once as a group of settings."
            )
    return found


def nearest(word: object, known: tuple[object, ...] | list[str]) -> str:
    spelled = {str(own).lower().lstrip("-"): str(own) for own in known}
    found = get_close_matches(str(word).lower().lstrip("-"), spelled, 1, 0.6)
    return f" (did you mean {spelled[found[0]]}?)" if found else ""


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


def show(value: Any) -> str:
    """A value as a person would type it."""
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    if isinstance(value, tuple):
        return ",".join(map(show, value))
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


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


def to_mapping(config: Config) -> dict[str, Any]:
    """Plain values for YAML and JSON; `type(config).of(to_mapping(config)) == config`."""

    def plain(value: Any) -> Any:
        if isinstance(value, Option):
            return str(value)
        if isinstance(value, Config):
            return to_mapping(value)
        return list(value) if isinstance(value, tuple) else value

    return {f.name: plain(getattr(config, f.name)) for f in fields(config)}


def differing(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the values in which two nested mappings differ."""
    found = []
    for key in one.keys() | other.keys():
        a, b = one.get(key), other.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differing(a, b, f"{prefix}{key}.")
        elif a != b:
            found.append(prefix + key)
    return sorted(found)


def merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `change`, group by group."""
    merged = dict(base)
    for key, value in change.items():
        below = merged.get(key)
        merged[key] = (
            merge(below, value)
            if isinstance(below, Mapping) and isinstance(value, Mapping)
            else value
        )
    return merged


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        loaded = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, ValueError, RecursionError, OSError) as error:
        raise ConfigError(
            "", f"{path} cannot be read as YAML: {' '.join(str(error).split())}."
        ) from None
    if not isinstance(loaded or {}, dict):
        raise ConfigError(
            "", f"{path} must hold settings as `key: value` lines, not {show(loaded)}."
        )
    return nested(loaded or {})
