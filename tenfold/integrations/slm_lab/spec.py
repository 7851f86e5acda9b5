"""Reads a spec. A file has several by name, in JSON or YAML; ${key} stands for a value that the
command line gives. Names that begin with _ are shared pieces of YAML files."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tenfold.config.notation import nearest, parse_number, parse_yaml, show
from tenfold.core.errors import ConfigError, UserError

ENDINGS = (".json", ".yaml", ".yml")
VARIABLE = re.compile(r"\$\{(\w+)\}")
KEYS = {"agent", "env", "meta"}


@dataclass(frozen=True)
class Spec:
    """One spec of a file. `values` are its groups: agent, env, meta and, of some, search."""

    name: str
    path: Path
    values: dict[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_name(self) -> str:
        """The spec's name; with `-s env=…` also the environment's, as SLM-Lab names its runs."""
        env = self.variables.get("env", "")
        short = re.sub(r"-v\d+$", "", env.rpartition("/")[2]).lower()
        return f"{self.name}_{short}" if short else self.name


def number_written_out(text: str) -> str:
    """4e6 or 4M as 4000000: a variable stands where a whole number may be asked for."""
    number = parse_number(text)
    if number is None:
        return text
    return str(int(number)) if number == int(number) else repr(number)


def substituted(text: str, variables: Mapping[str, str], path: Path) -> str:
    """The text of a file with the variables' values; refuses a variable that it does not have."""
    if unused := [name for name in variables if f"${{{name}}}" not in text]:
        names = sorted(set(VARIABLE.findall(text)))
        has = f"it has {', '.join(names)}" if names else "it has none"
        raise UserError(
            f"-s {unused[0]}={variables[unused[0]]}: {path} has no variable ${{{unused[0]}}}"
            f"{nearest(unused[0], names)}; {has}."
        )
    return VARIABLE.sub(lambda match: variables.get(match[1], match[0]), text)


def parsed_text(text: str, path: Path) -> Any:
    try:
        if path.suffix == ".json":
            return json.loads(text)
        return parse_yaml(text)
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "YAML"
        raise UserError(
            f"{path} cannot be read as {kind}: {' '.join(str(error).split())}."
        ) from None


def is_spec(value: Any) -> bool:
    return isinstance(value, dict) and "agent" in value and "env" in value


def specs_in(loaded: Any) -> dict[str, dict[str, Any]]:
    """The specs of a file by name; empty where it is no file of specs."""
    if not isinstance(loaded, dict):
        return {}
    return {
        str(name): value
        for name, value in loaded.items()
        if is_spec(value) and not str(name).startswith("_")
    }


def looks_like_specs(path: Path) -> bool:
    """Whether a file holds specs, without complaint about one that cannot be read."""
    if path.suffix not in ENDINGS or not path.is_file():
        return False
    try:
        return bool(specs_in(parsed_text(path.read_text(), path)))
    except (UserError, OSError, ValueError):
        return path.suffix == ".json"  # no other file of ours ends so


def read_spec(path: str | Path, name: str = "", variables: Mapping[str, Any] | None = None) -> Spec:
    """The spec of this name; without a name, the only one of the file. `variables` are values for
    ${key} in its text."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path} is not there: give a file of SLM-Lab's specs.")
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}.") from None
    values = {key: number_written_out(show(value)) for key, value in (variables or {}).items()}
    specs = specs_in(parsed_text(substituted(text, values, path), path))
    if not specs:
        raise UserError(f"{path} holds no spec: one has the keys agent, env and meta.")
    if not name and len(specs) == 1:
        name = next(iter(specs))
    if name not in specs:
        problem = f"has no spec {name}{nearest(name, [*specs])}" if name else "has several specs"
        raise UserError(f"{path} {problem}: {', '.join(specs)} are in it.")
    if left := VARIABLE.findall(str(specs[name])):
        flags = " ".join(f"-s {key}=…" for key in dict.fromkeys(left))
        raise UserError(f"{path}: {name} has the variable ${{{left[0]}}}: give {flags}.")
    return Spec(name, path, single(specs[name]), values)


def single(values: dict[str, Any]) -> dict[str, Any]:
    """A spec of the older form, whose agents and environments are lists of one, as one of today's;
    refuses several."""
    values = dict(values)
    for group in ("agent", "env"):
        several = values[group]
        if isinstance(several, list):
            if len(several) != 1 or not isinstance(several[0], dict):
                raise ConfigError(
                    group, f"is a list of {len(several)}: one agent in one environment is trained."
                )
            values[group] = several[0]
        elif not isinstance(several, dict):
            raise ConfigError(group, f"= {show(several)} is not a group of keys.")
    body = values.pop("body", None)
    if body not in (None, {}, {"product": "outer", "num": 1}, {"product": "inner", "num": 1}):
        raise ConfigError("body", f"= {show(body)} is for several agents: one is trained.")
    values.setdefault("meta", {})
    return values
