"""A group of settings of which there are several kinds: a run's agent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from tenfold.config.notation import nearest, show
from tenfold.config.schema import Config, hints
from tenfold.core.errors import ConfigError, UserError

Kind = TypeVar("Kind", bound="Family")


@dataclass(frozen=True)
class Family(Config):
    """A group of settings of which there are several kinds, told apart by `name`."""

    usual: ClassVar[str] = ""  # the kind where no name is given

    name: str = ""
    """which kind"""

    @classmethod
    def kinds(cls) -> Mapping[str, type[Self]]:
        """Those that are known, by their names."""
        raise NotImplementedError

    @classmethod
    def kind(cls, name: str) -> type[Self]:
        """A kind by its name, also one that is not known before; raises UserError."""
        raise NotImplementedError

    @classmethod
    def converted(cls, value: Any, key: str) -> Self:
        """Of the kind that its `name` says."""
        if isinstance(value, cls):
            kind = kind_named(value.name, cls, key)
            if type(value) is not kind:
                raise ConfigError(
                    f"{key}.name",
                    f"= {value.name} has settings of its own, {kind.__name__}, and these are "
                    f"{type(value).__name__}.",
                )
            return value
        if not isinstance(value, Mapping):
            known = isinstance(value, str) and value in cls.kinds()
            hint = f": write {key}: {{name: {value}}}" if known else ""
            raise ConfigError(key, f"= {show(value)} is not a group of settings{hint}.")
        name = str(value.get("name", cls.usual))
        kind = kind_named(name, cls, key)
        refuse_others(value, name, kind, cls, key)
        try:
            return kind.of({"name": name, **value})
        except ConfigError as error:
            raise error.within(key) from None


def kind_named(name: str, family: type[Kind], key: str) -> type[Kind]:
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


def refuse_others(
    value: Mapping[str, Any], name: str, kind: type[Family], family: type[Family], key: str
) -> None:
    """Refuses a setting of another kind, and says whose it is."""
    from tenfold.config.leaves import known_here  # here: it reads this module

    for raw, given in value.items():
        word = str(raw).replace("-", "_")
        owners = [other for other, those in family.kinds().items() if word in hints(those)]
        if owners and word not in hints(kind) and not known_here(kind, word):
            raise ConfigError(
                f"{key}.{raw}",
                f"= {show(given)} is not a setting of {name}, which this run trains: it belongs to "
                f"{', '.join(owners)}.",
            )
