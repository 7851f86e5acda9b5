"""Frozen dataclasses <-> YAML <-> flags, through ONE conversion.

A setting is a field; the string under it is its help text. Values from Python, YAML and flags go
all through `convert`, so all are refused with the same sentence. Choices with parameters are small
dataclasses (`Option`), written as calls: `polyak(0.005)`, `epsilon(linear(1, 0.05, 10k))`.
"""

import ast
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
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

from tenfold.config.notation import NUMBER, nearest, parse_call, parse_list, parse_number, show
from tenfold.core.errors import ConfigError
from tenfold.core.other_libraries import LAYERS, VALUES, names_sides
from tenfold.core.registry import OWN, import_by_name

BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
LARGEST = 2**63 - 1  # of any number in the settings: what an int64 holds


@dataclass(frozen=True)
class Limits:
    """The closed interval a number must lie in; `above` excludes the lower end."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        if not self.above and self.high < math.inf:
            return f"between {self.low:g} and {self.high:g}"
        least = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        return least if self.high == math.inf else f"{least} and at most {self.high:g}"


@dataclass(frozen=True)
class OneOf:
    """Names that are resolved when a value is checked."""

    names: Callable[[], list[str]]

    @property
    def choices(self) -> Any:
        return Literal[tuple(self.names())]  # type: ignore[valid-type]


Count = Annotated[int, Limits(1)]
Whole = Annotated[int, Limits(0)]
Share = Annotated[float, Limits(0, 1)]
Positive = Annotated[float, Limits(0, above=True)]
NotNegative = Annotated[float, Limits(0)]


class DerivedDefault:
    """A default that depends on other settings."""

    def of(self, config: "Config") -> Any:
        raise NotImplementedError


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Config:
    """A group of settings. Every value is converted and checked on construction, whatever its
    source. A derived class is a frozen dataclass, with or without the decorator."""

    def __new__(cls, *positional: Any, **named: Any) -> Self:
        """Refuses a keyword that is no field, before the dataclass's own TypeError does, and says
        what it may be called here."""
        for name, value in named.items():
            if name not in hints(cls):
                from tenfold.config.agent_config import (
                    suggest_setting,  # here: it reads this module
                )

                sides = name in ("pi", "vf", "qf") or names_sides(value)
                answer = f": {LAYERS}" if sides else suggest_setting(cls, name)
                raise ConfigError(name, f"= {show(value)} is not a setting{answer}.")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        def decided(name: str) -> bool:
            return not isinstance(getattr(self, name), DerivedDefault)

        for name, hint in sorted(hints(type(self)).items(), key=lambda one: not decided(one[0])):
            value = getattr(self, name)
            value = value.of(self) if isinstance(value, DerivedDefault) else value
            object.__setattr__(self, name, convert(value, hint, name))
        self.check()

    def check(self) -> None:
        """Checks settings against each other; raises ConfigError."""

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Self:
        """Builds the settings from a mapping (YAML, flags); an unknown key raises an error that
        names the nearest one."""
        values = {str(raw).replace("-", "_"): value for raw, value in mapping.items()}
        if len(values) < len(mapping):
            names = [str(raw).replace("-", "_") for raw in mapping]
            twice = next(name for name in names if names.count(name) > 1)
            raise ConfigError(twice, "is given twice, with - and with _.")
        return cls(**values)

    @classmethod
    def converted(cls, value: Any, key: str) -> Self:
        """Converts the value of the setting `key`, which is such a group."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Config):
            raise ConfigError(
                key, f"= {show(value)} is no {cls.__name__}: write a dict of its fields."
            )
        if not isinstance(value, Mapping):
            raise ConfigError(key, f"= {show(value)} is not a group of settings.")
        try:
            return cls.of(value)
        except ConfigError as error:
            raise error.within(key) from None


@dataclass(frozen=True)
class Option(Config):
    """A choice with parameters, written as a call of its lower-case name: `hard(every=500)`."""

    from_module: ClassVar[bool] = False  # its notation is a function's name instead, module:name

    @classmethod
    def notation(cls) -> str:
        """How it is written, for errors and help."""
        names = ", ".join(f.name for f in fields(cls))
        return f"{cls.__name__.lower()}({names})" if names else cls.__name__.lower()

    @classmethod
    def called(cls, word: str, positional: list[str], named: dict[str, str]) -> Self:
        """Builds the option from the call `word(positional, named)`."""
        names = [f.name for f in fields(cls)]
        if len(positional) > len(names):
            raise ConfigError(
                "",
                f"takes at most {len(names)} values ({', '.join(names)}), not {len(positional)}.",
            )
        values = dict(zip(names, positional, strict=False))
        if twice := [name for name in named if name in values]:
            raise ConfigError(twice[0], "is given twice.")
        values |= named
        required = [f.name for f in fields(cls) if f.default is MISSING]
        if missing := [name for name in required if name not in values]:
            raise ConfigError(missing[0], "is missing.")
        return cls.of(values)

    def __str__(self) -> str:
        word = type(self).__name__.lower()
        arguments = ", ".join(f"{f.name}={show(getattr(self, f.name))}" for f in fields(self))
        return f"{word}({arguments})" if arguments else word


@cache
def hints(cls: type) -> dict[str, Any]:
    """Types of the fields by name."""
    if "__dataclass_fields__" not in vars(cls):
        dataclass(frozen=True)(cls)
    types_by_name = get_type_hints(cls, include_extras=True)
    return {f.name: types_by_name[f.name] for f in fields(cls)}


@cache
def docs(cls: type) -> dict[str, str]:
    """Field name -> the string literal under it in the source."""
    help_texts: dict[str, str] = {}
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
                help_texts[node.target.id] = " ".join(str(after.value.value).split())  # type: ignore[union-attr]
    return help_texts


def convert(value: Any, hint: Any, key: str) -> Any:
    """`value` as the type `hint`, or a ConfigError that says what is allowed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # a number of NumPy's or torch's
    if origin is Annotated and isinstance(arguments[1], OneOf):
        return convert(value, arguments[1].choices, key)
    if origin is Annotated:
        value = convert(value, arguments[0], key)
        for limits in arguments[1:]:
            if value is not None and value not in limits:
                raise ConfigError(key, f"= {show(value)} is out of range: it must be {limits}.")
        return value
    if origin is Literal:
        if value in arguments:
            return value
        meant = VALUES.get(str(value).lower(), value)
        raise ConfigError(
            key,
            f"= {show(value)} is not one of "
            f"{', '.join(map(str, arguments))}{nearest(meant, arguments)}.",
        )
    if origin in (Union, types.UnionType):
        return convert_union(value, arguments, key)
    if origin is tuple:
        if names_sides(value):
            raise ConfigError(key, f"= {show(value)} is not {describe(hint)}: {LAYERS}.")
        items = parse_list(value) if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ConfigError(key, f"= {show(value)} is not {describe(hint)}.")
        return tuple(convert(item, arguments[0], key) for item in items)
    if isinstance(hint, type) and issubclass(hint, Option):
        return convert_union(value, (hint,), key)
    if isinstance(hint, type) and issubclass(hint, Config):
        return hint.converted(value, key)
    return convert_scalar(value, hint, key)


def convert_scalar(value: Any, hint: type, key: str) -> Any:
    wrong = ConfigError(key, f"= {show(value)} is not {describe(hint)}.")
    if hint is bool and isinstance(value, str):
        value = BOOLEANS.get(value.lower())
    if hint in (bool, str):
        if isinstance(value, hint):
            return value
        raise wrong
    number = parse_number(value) if isinstance(value, str) else value
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or not -math.inf < number < math.inf
    ):
        raise wrong
    if abs(number) > LARGEST:
        raise ConfigError(key, f"= {show(value)} is out of range: no number here is beyond 9.2e18.")
    if hint is int:
        if number != int(number):
            raise wrong
        return int(number)
    return float(number)


def convert_union(value: Any, choices: tuple[Any, ...], key: str) -> Any:
    """`none`, a number, or one of several Options in call notation."""
    value = None if isinstance(value, str) and value.strip().lower() == "none" else value
    if value is None and type(None) in choices:
        return None
    kinds = [c for c in choices if isinstance(c, type) and issubclass(c, Option)]
    literals = [word for c in choices if get_origin(c) is Literal for word in get_args(c)]
    if isinstance(value, tuple(kinds)) or value in literals:
        return value
    options = {c.__name__.lower(): c for c in kinds if not c.from_module}
    custom = next((c for c in kinds if c.from_module), None)
    value = importable(value, key) if custom and callable(value) else value
    allowed = " or ".join(describe(c) for c in choices)
    plain = [c for c in choices if c not in (type(None), *kinds) and get_origin(c) is not Literal]
    lists = value is not None and not kinds and [get_origin(c) for c in plain] == [tuple]
    if lists or (plain == [bool] and str(value).lower() in BOOLEANS):
        return convert(value, plain[0], key)
    if isinstance(value, str) and not NUMBER.fullmatch(value.strip()):
        name, positional, named = parse_call(value, key)
        option = custom if ":" in name else options.get(name)
        if option:
            try:
                return option.called(name, positional, named)
            except ConfigError as error:
                raise error.within(f"{key}, {name}") from None
        raise ConfigError(key, f"= {show(value)} is not {allowed}{nearest(name, tuple(options))}.")
    if len(plain) == 1 and value is not None:
        return convert(value, plain[0], key)
    raise ConfigError(key, f"= {show(value)} is not {allowed}.")


def importable(thing: Any, key: str) -> str:
    """The name of a function or class as module:name, which other processes can import. One in
    `__main__` is found by processes that run the same program."""
    module = getattr(thing, "__module__", "")
    name = f"{module}:{getattr(thing, '__qualname__', '')}"
    if not OWN.fullmatch(name) or import_by_name(name) is not thing:
        what = "class" if isinstance(thing, type) else "function"
        raise ConfigError(
            key,
            f"= {thing!r:.60} cannot be written into the run's settings: put the {what} into a "
            "module of its own and write my_module:its_name.",
        )
    return name


def describe(hint: Any) -> str:
    """The values that a field accepts, for errors and help."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated and isinstance(arguments[1], OneOf):
        return describe(arguments[1].choices)
    if origin is Annotated:
        return f"{describe(arguments[0])} ({arguments[1]})"
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(describe(a) for a in arguments)
    if origin is tuple:
        return "a list such as 64,64"
    if isinstance(hint, type) and issubclass(hint, Option):
        return hint.notation()
    names = {
        int: "a whole number such as 32, 300k or 1.5M",
        float: "a number such as 0.99 or 1e-3",
        bool: "true or false",
        type(None): "none",
    }
    return names.get(hint, "text")


def to_mapping(config: Config) -> dict[str, Any]:
    """Plain values for YAML and JSON; `type(config).of(to_mapping(config)) == config`."""

    def plain(value: Any) -> Any:
        if isinstance(value, Option):
            return str(value)
        if isinstance(value, Config):
            return to_mapping(value)
        return list(value) if isinstance(value, tuple) else value

    return {f.name: plain(getattr(config, f.name)) for f in fields(config)}
