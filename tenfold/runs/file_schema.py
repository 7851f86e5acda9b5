"""Schemas of the files in a run's folder: key -> required type. Whatever is read is checked by
`misfit`.

A table is written as a dict: a key that ends in `?` may be missing, `...` stands for all keys that
are not named (which may otherwise hold anything). A list of one kind stands for a list of any
length.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from tenfold.core.errors import UserError

MOST = 1e100  # of any number, up and down: beyond it sums and pictures overflow
LARGEST = 2**63 - 1  # of a count
SHOWN = 40  # characters of a value in a sentence
DEPTH = 50  # of tables in tables; nothing of ours comes near it


@dataclass(frozen=True)
class FieldKind:
    """A scalar type: its description and its check."""

    description: str
    fits: Callable[[Any], bool]


Schema = Union[FieldKind, "list[Schema]", "dict[Any, Schema]"]


def is_number(value: Any) -> bool:
    # neither holds for what is not a number
    return type(value) in (int, float) and -MOST <= value <= MOST


def is_plain(value: Any) -> bool:
    """Whether a setting's value is neither text nor a table; lists of such values count too."""
    if isinstance(value, list):
        return all(isinstance(one, str) or is_plain(one) for one in value)
    return value is None or isinstance(value, bool) or is_number(value)


def is_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and value not in ("", ".", "..")
        and os.path.basename(value) == value
        and "\0" not in value
    )


NUMBER = FieldKind("a finite number", is_number)
POSITIVE = FieldKind("a number from 0 on", lambda value: is_number(value) and value >= 0)
WHOLE = FieldKind(
    "a whole number from 0 on", lambda value: type(value) is int and 0 <= value <= LARGEST
)
COUNT = FieldKind(
    "a whole number from 1 on", lambda value: type(value) is int and 1 <= value <= LARGEST
)
SHARE = FieldKind("a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)
TEXT = FieldKind("text", lambda value: isinstance(value, str))
NAME = FieldKind("a file's name without a folder", is_name)
FLAG = FieldKind("true or false", lambda value: isinstance(value, bool))
PAIR = FieldKind(
    "two words, the old and the new",
    lambda value: (
        isinstance(value, list) and len(value) == 2 and all(isinstance(word, str) for word in value)
    ),
)
ANY = FieldKind("anything", lambda value: True)


def maybe(kind: FieldKind) -> FieldKind:
    return FieldKind(f"{kind.description} or null", lambda value: value is None or kind.fits(value))


def filled(kind: FieldKind) -> FieldKind:
    return FieldKind(
        f"a list, not empty, each {kind.description}",
        lambda value: isinstance(value, list) and bool(value) and all(map(kind.fits, value)),
    )


def misfit(value: Any, schema: Schema, key: str = "") -> str:
    """Describes the first value that does not fit, such as `sessions[0].from_step is [] and must be
    a whole number from 0 on`; empty if all do."""
    if isinstance(schema, FieldKind):
        if schema.fits(value):
            return ""
        return f"{key or 'it'} is {brief(value)} and must be {schema.description}"
    if isinstance(schema, list):
        if not isinstance(value, list):
            return f"{key or 'it'} is {brief(value)} and must be a list"
        return next(
            filter(None, (misfit(item, schema[0], f"{key}[{i}]") for i, item in enumerate(value))),
            "",
        )
    if not isinstance(value, dict):
        return f"{key or 'it'} is {brief(value)} and must be a table of keys and values"
    named = {name.removesuffix("?"): kind for name, kind in schema.items() if name is not ...}
    rest = schema.get(..., ANY)
    for name in (*named, *(name for name in value if name not in named)):
        if name not in value:
            if f"{name}?" not in schema:
                return f"{key}{'.' * bool(key)}{name} is missing"
            continue
        kind, item_value = named.get(name, rest), value[name]
        if isinstance(kind, FieldKind) and kind.fits(
            item_value
        ):  # as nearly all do: no words are made
            continue
        if wrong := misfit(item_value, kind, f"{key}{'.' * bool(key)}{name}"):
            return wrong
    return ""


def brief(value: Any) -> str:
    """A value shortened for an error message."""
    kind = {dict: "a table", list: "a list"}.get(type(value)) if value else None
    text = kind or json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def parsed(text: str | bytes) -> Any:
    """Parses JSON; ValueError for invalid or deeply nested text."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    levels = [value]
    opening = ("{", "[") if isinstance(text, str) else (b"{", b"[")
    if sum(text.count(bracket) for bracket in opening) <= DEPTH:  # type: ignore[arg-type]
        return value  # it cannot be any deeper
    for _ in range(DEPTH):
        levels = [
            child
            for level in levels
            if isinstance(level, dict | list)
            for child in (level.values() if isinstance(level, dict) else level)
        ]
        if not levels:
            return value
    raise ValueError("it is nested too deeply")


def read_json(path: Path, schema: Schema, advice: str) -> Any:
    """Reads a JSON file of a run's folder; UserError if it cannot be read or does not fit the
    schema."""
    try:
        value = parsed(path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror or error}): {advice}.") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged ({' '.join(str(error).split())}): {advice}.") from None
    if wrong := misfit(value, schema):
        raise UserError(f"{path}: {wrong}; {advice}.")
    return value


PRUNERS = ("median", "hyperband", "none")  # of a sweep
MOST_TRIALS = 100_000
SPACE = FieldKind(
    "a space as text, or a list of values",
    lambda value: (
        isinstance(value, str)
        or (isinstance(value, list) and all(isinstance(one, str) or is_plain(one) for one in value))
    ),
)


# settings that runs of earlier versions have, and there are no more
GONE = ("ignore_mask",)  # dqn could not use masks, and did so only where told to


def current(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run without those of earlier versions."""
    agent = settings.get("agent")
    if not isinstance(agent, dict):
        return settings
    return settings | {"agent": {name: agent[name] for name in agent if name not in GONE}}


# the files

MACHINE: Schema = {"versions": {...: TEXT}, "machine": {}}
# whose weights a run began with
INIT: Schema = {"run": TEXT, "path": TEXT, "checkpoint": TEXT, "step": WHOLE}
RUN: Schema = {
    "kind": TEXT,
    "id": TEXT,
    **MACHINE,
    "init?": INIT,
    "source?": {"form": TEXT},
    "sessions?": [
        {
            "from_step": WHOLE,
            "engine": TEXT,
            "device": TEXT,
            "where": TEXT,
            "exact_resume?": FLAG,
            "verify?": TEXT,
            "failed?": TEXT,
            "shares?": {...: NUMBER},
            "changed?": {...: PAIR},
            "notes?": [TEXT],
        }
    ],
}
SEEDS: Schema = {
    "kind": TEXT,
    "seeds": filled(WHOLE),
    **MACHINE,
    "changes?": {},
    "init?": INIT,
    "source?": {"form": TEXT},
    "shared?": FLAG,
    "ended?": TEXT,
}
SWEEP: Schema = {
    "kind": TEXT,
    **MACHINE,
    "plan": {
        "search": {...: SPACE},
        "trials": FieldKind(
            f"a whole number from 1 to {MOST_TRIALS:,}",
            lambda value: type(value) is int and 1 <= value <= MOST_TRIALS,
        ),
        "seeds": filled(WHOLE),
        "held_out": [WHOLE],
        "pruner": FieldKind(f"one of {', '.join(PRUNERS)}", lambda value: value in PRUNERS),
        "shared": FLAG,
    },
}
TRIAL: Schema = {
    "number": WHOLE,
    "state": FieldKind(
        "one of complete, pruned, fail, running, waiting",
        lambda value: value in ("complete", "pruned", "fail", "running", "waiting"),
    ),
    "params": {},
    "success?": SHARE,  # where the environment tells of successes
    "value": maybe(NUMBER),
    "successes?": {...: SHARE},  # by steps, as `values`
    "values": {...: NUMBER},
    "scores": [NUMBER],
    "why": TEXT,
}
POOLED: Schema = {
    "seeds": COUNT,
    "iqm": NUMBER,
    "interval": FieldKind(
        "two numbers, or null",
        lambda value: (
            value is None
            or (isinstance(value, list) and len(value) == 2 and all(map(is_number, value)))
        ),
    ),
}
HELD_OUT: Schema = {"success?": POOLED, "failed": {...: TEXT}}  # and what is POOLED, if any ended
SWEPT: Schema = {  # results.json
    "trials": [TRIAL],
    "winner": WHOLE,
    "importance": {...: NUMBER},
    "confirmed": {...: HELD_OUT},
    "verdict": TEXT,
}

# notes of checkpoints: `run` and `step` in all of them, the rest in those that a run goes on from
POLICY: Schema = {"run": TEXT, "step": WHOLE}
NOTE: Schema = {
    **POLICY,
    "rows": [{"file": NAME, "digest": TEXT, "heads": filled(WHOLE)}],
    "metrics_bytes": WHOLE,
    "seconds": POSITIVE,
    "best": maybe(NUMBER),
    "best_success?": NUMBER,
    "episodes?": WHOLE,
    "reached?": WHOLE,
    "owes_evaluation": FLAG,
    "evaluated?": {"digest": TEXT, "row": TEXT, "score": NUMBER},
    "settings": {},
}

# rows of metrics, by kind
ROWS: dict[str, Schema] = {
    "episode": {"step": WHOLE, "return": NUMBER, "length": WHOLE, "success?": FLAG},
    "train": {
        "step": WHOLE,
        "updates": WHOLE,
        ...: NUMBER,
        "kind": TEXT,
        "timing": {"steps_per_second?": NUMBER, "shares?": {...: NUMBER}},
    },
    "eval": {
        "step": WHOLE,
        "episodes": COUNT,
        "mean_return": NUMBER,
        "std_return": POSITIVE,
        "kind": TEXT,
        "success_rate?": SHARE,
        "steps_to_goal?": maybe(NUMBER),
        ...: NUMBER,
    },
}
