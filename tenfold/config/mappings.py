"""Settings as nested mappings: of YAML files, of dotted names, of what differs."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from tenfold.config.notation import show
from tenfold.config.schema import Config, Option
from tenfold.core.errors import ConfigError


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


def to_mapping(config: Config) -> dict[str, Any]:
    """Plain values for YAML and JSON; `type(config).of(to_mapping(config)) == config`."""

    def plain(value: Any) -> Any:
        if isinstance(value, Option):
            return str(value)
        if isinstance(value, Config):
            return to_mapping(value)
        return list(value) if isinstance(value, tuple) else value

    return {f.name: plain(getattr(config, f.name)) for f in fields(config)}


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


def dotted(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The reverse of `nested`: values by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        path = prefix + str(key).replace("-", "_")
        found |= dotted(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return found


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Dotted names of the values in which two nested mappings differ."""
    a, b = dotted(one), dotted(other)
    return sorted(path for path in a.keys() | b.keys() if a.get(path) != b.get(path))
