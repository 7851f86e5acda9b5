"""What a sweep searches over, written as `SETTING=SPACE`: `agent.lr=log(1e-4, 1e-2)`,
`agent.gamma=range(0.9, 0.999)`, `agent.n_step=[1,3,5]`, `agent.horizon=int(32, 256)`. A space may
stand inside a value that is written as a call: `agent.lr=linear(log(1e-4, 1e-2), 0, 50k)`.

No torch here, so that errors appear at once.
"""

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Union, get_args, get_origin

from tenfold.config.agent_config import FieldSpec, meaning_of, misspelled_alias
from tenfold.config.files import changed
from tenfold.config.notation import (
    balanced,
    nearest,
    nested,
    parse_call,
    parse_number,
    show,
    split_list,
)
from tenfold.config.run import Run, specs_for
from tenfold.config.schema import Option, convert
from tenfold.core.errors import ConfigError, UserError

EXAMPLES = "log(1e-4,1e-2), range(0.9,0.99), int(1,8) or a list such as [1,3,5]"
# what trials are compared by is the same for all of them
FIXED = ("seed", "env", "members", "steps", "eval_every", "eval_episodes", "eval_policy")


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    def __contains__(self, value: Any) -> bool:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high


@dataclass(frozen=True)
class Choices:
    """A set of values."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    def __contains__(self, value: Any) -> bool:
        return value in self.values


Space = Interval | Choices


@dataclass(frozen=True)
class Search:
    """A setting, and its value as text and spaces to draw from."""

    path: str
    template: tuple[str | Space, ...]

    @property
    def spaces(self) -> dict[str, Space]:
        """The spaces by parameter name: the setting's own, or with a number appended."""
        drawn = [piece for piece in self.template if not isinstance(piece, str)]
        if len(drawn) == 1:
            return {self.path: drawn[0]}
        return {f"{self.path}.{number}": space for number, space in enumerate(drawn, 1)}

    def value(self, drawn: Mapping[str, Any]) -> Any:
        """The setting's value from drawn parameters."""
        for name, space in self.spaces.items():
            value = drawn[name]
            if isinstance(value, str) and value not in space:  # a study may be anybody's
                raise ConfigError(self.path, f"= {show(value)} is not among what is searched over.")
        values = iter([drawn[name] for name in self.spaces])
        filled = [piece if isinstance(piece, str) else next(values) for piece in self.template]
        return filled[0] if len(filled) == 1 else "".join(map(show, filled))


def parse_search(text: str) -> tuple[str, str]:
    """`--agent.n-step=[1,3]` -> ("agent.n_step", "[1,3]")."""
    path, equals, space = text.partition("=")
    path = path.strip().lstrip("-").replace("-", "_")
    if not (equals and path and space.strip()):
        raise UserError(
            f"--search {text} cannot be read: write SETTING=SPACE, where a space is {EXAMPLES}."
        )
    return path, space.strip()


def searches(run: Run, search: Mapping[str, Any]) -> tuple[Search, ...]:
    """The searches by settings' names; a ConfigError for settings that cannot be searched over."""
    if not search:
        raise UserError(
            'There is nothing to search over: name a setting, such as --search "agent.lr='
            'log(1e-4,1e-2)".'
        )
    specs = {spec.path: spec for spec in specs_for(run) if spec.path != "agent.name"}
    return tuple(search_of(path.replace("-", "_"), space, specs) for path, space in search.items())


def search_of(path: str, space: Any, specs: Mapping[str, FieldSpec]) -> Search:
    spec = specs.get(path)
    if spec is None:
        word = path.split(".")[-1]
        suggestion = (
            meaning_of(specs, word) or misspelled_alias(specs, word) or nearest(path, [*specs])
        )
        raise ConfigError(path, f"is not a setting that can be searched over{suggestion}.")
    if path in FIXED:
        raise ConfigError(
            path, "cannot be searched over: trials are compared by what is the same in all of them."
        )
    if isinstance(space, list | tuple):
        template: list[str | Space] = [Choices(tuple(space))]
    else:
        template = pieces_of(str(space), path)
    if all(isinstance(piece, str) for piece in template):
        raise ConfigError(
            path,
            f"= {space} leaves nothing to search over: a space is {EXAMPLES}; one value is a flag, "
            f"{spec.flag} {space}.",
        )
    if len(template) == 1:
        template = [fitted(template[0], spec)]  # type: ignore[arg-type]
    search = Search(path, tuple(template))
    for end in (0, -1):  # bounds outside the setting's limits are refused by its own sentence
        convert(search.value({n: s.ends[end] for n, s in search.spaces.items()}), spec.hint, path)
    return search


def fitted(space: Space, spec: FieldSpec) -> Space:
    """The space of a whole setting, in values of its type."""
    if isinstance(space, Choices):
        values = tuple(plain(convert(value, spec.hint, spec.path)) for value in space.values)
        if len(set(values)) < max(len(values), 2):
            raise ConfigError(
                spec.path,
                f"= [{', '.join(map(show, values))}] is no choice: give two values at least, none "
                "of them twice.",
            )
        return Choices(values)
    if not is_whole(spec.hint):
        return space
    ends = tuple(convert(end, spec.hint, spec.path) for end in space.ends)
    return Interval(*ends, log=space.log, whole=True)


def plain(value: Any) -> Any:
    """A setting's value as a study stores it."""
    if isinstance(value, tuple):
        return show(value)
    return str(value) if isinstance(value, Option) else value


def is_whole(hint: Any) -> bool:
    """Whether a setting takes integers only."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return is_whole(arguments[0])
    if origin in (Union, types.UnionType):
        return all(is_whole(kind) for kind in arguments if kind is not type(None))
    return hint is int


def pieces_of(text: str, path: str) -> list[str | Space]:
    """A value with spaces in it, in the order in which they stand there."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]") and balanced(text):
        return [Choices(tuple(split_list(text[1:-1])))]
    name, positional, named = parse_call(text, path)
    if name in ("log", "range", "int") or (name == "linear" and len(positional) == 2):
        return [interval(name, text, [*positional, *named], path)]
    arguments = [pieces_of(part, path) for part in positional]
    arguments += [[f"{key}=", *pieces_of(part, path)] for key, part in named.items()]
    if all(isinstance(piece, str) for part in arguments for piece in part):
        return [text]
    filled = reduce(lambda one, other: [*one, ", ", *other], arguments)
    return [f"{name}(", *filled, ")"]


def interval(name: str, text: str, ends: list[str], path: str) -> Interval:
    numbers = [parse_number(end) for end in ends]
    if len(numbers) != 2 or None in numbers:
        raise ConfigError(
            path, f"= {text} cannot be read: write two numbers, such as {name}(1, 10)."
        )
    low, high = numbers
    if not low < high:  # type: ignore[operator]
        raise ConfigError(
            path, f"= {text} is an empty range: the first number must be below the second."
        )
    if name == "log" and low <= 0:  # type: ignore[operator]
        raise ConfigError(path, f"= {text} cannot be: a logarithmic range lies above 0.")
    if name == "int" and any(end != int(end) for end in (low, high)):  # type: ignore[arg-type]
        raise ConfigError(path, f"= {text} cannot be: the ends of int are whole numbers.")
    whole = name == "int"
    kind: Any = int if whole else float
    return Interval(kind(low), kind(high), name == "log", whole)


def drawn_run(run: Run, searches: tuple[Search, ...], drawn: Mapping[str, Any]) -> Run:
    """The run with drawn parameters; a ConfigError if settings contradict each other."""
    change = nested({search.path: search.value(drawn) for search in searches})
    return changed(run, change)


def default_drawn(run: Run, searches: tuple[Search, ...]) -> dict[str, Any] | None:
    """The parameters of the unchanged run; None if they cannot be drawn."""
    drawn = {}
    for search in searches:
        value = plain(reduce(getattr, search.path.split("."), run))
        space = next(iter(search.spaces.values()))
        if len(search.template) > 1 or value not in space:
            return None
        drawn[search.path] = value
    return drawn
