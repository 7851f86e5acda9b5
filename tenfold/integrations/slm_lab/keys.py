"""Reads the keys of a spec one by one, so that none is passed over: a key that nobody asked for is
refused by its name."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, NoReturn

from tenfold.config.notation import nearest, parse_number, show
from tenfold.core.errors import ConfigError

MISSING = object()


class Keys:
    """A group of a spec. `notes` collects what differs from SLM-Lab, for all groups of a spec."""

    def __init__(self, values: Any, path: str = "", notes: list[str] | None = None) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(path, f"= {show(values)} is not a group of keys.")
        self.values, self.path = {str(key): value for key, value in values.items()}, path
        self.notes: list[str] = [] if notes is None else notes
        self.unread = dict.fromkeys(self.values)

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def key(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def take(self, name: str, default: Any = None) -> Any:
        """The value of a key, or `default` where it is missing or null."""
        self.unread.pop(name, None)
        value = self.values.get(name)
        return default if value is None else value

    def require(self, name: str) -> Any:
        value = self.take(name, MISSING)
        if value is MISSING:
            misspelt = [key for key in self.unread if nearest(key, (name,))]
            hint = f" (did you mean it by {misspelt[0]}?)" if misspelt else ""
            raise ConfigError(self.key(name), f"is missing{hint}.")
        return value

    def number(self, name: str, default: Any = MISSING) -> Any:
        """A number, in the file or in a variable; `default` where there is none."""
        value = self.require(name) if default is MISSING else self.take(name)
        if value is None:
            return default
        number = parse_number(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ConfigError(self.key(name), f"= {show(value)} is not a number.")
        if isinstance(number, float) and not isfinite(number):
            raise ConfigError(self.key(name), f"= {show(value)} is not finite.")
        return number

    def whole(self, name: str, default: Any = MISSING) -> Any:
        value = self.number(name, default)
        if value is None or value is default:
            return value
        if value != int(value):
            raise ConfigError(self.key(name), f"= {show(value)} is not a whole number.")
        return int(value)

    def word(self, name: str, default: Any = MISSING) -> str:
        value = self.require(name) if default is MISSING else self.take(name, default)
        if not isinstance(value, str):
            self.refuse(name, "is not text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise ConfigError(self.key(name), f"= {show(value)} is not true or false.")
        return value

    def choice(self, name: str, options: Mapping[str, Any], default: Any = MISSING) -> Any:
        """What `options` has for a key's value."""
        value = self.require(name) if default is MISSING else self.take(name)
        if value is None:
            return default
        if not isinstance(value, str) or value not in options:
            self.refuse(name, f"is not in tenfold: use {' or '.join(map(show, options))}")
        return options[value]

    def group(self, name: str, default: Any = MISSING) -> "Keys":
        value = self.require(name) if default is MISSING else self.take(name, default)
        return Keys(value, self.key(name), self.notes)

    def refuse(self, name: str, why: str) -> NoReturn:
        """Refuses the value of a key."""
        raise ConfigError(self.key(name), f"= {short(self.values.get(name))} {why}.")

    def refuse_set(self, names: Iterable[str], why: str) -> None:
        """Refuses keys whose value is not null or false."""
        for name in names:
            if self.take(name) not in (None, False):
                self.refuse(name, why)

    def note(self, name: str, difference: str) -> None:
        """Notes that a key does not mean the same here."""
        text = f"{self.key(name)} = {short(self.values.get(name))}: {difference}"
        if text not in self.notes:
            self.notes.append(text)

    def done(self) -> None:
        """Refuses a key that was not asked for."""
        for name in self.unread:
            if self.values[name] is not None:
                self.refuse(name, "is not a key that tenfold reads: leave it out")


def short(value: Any) -> str:
    text = show(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
