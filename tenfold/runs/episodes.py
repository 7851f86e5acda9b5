"""Rows of episodes out of a metrics file's bytes: nine tenths of a long run's lines, and all of
them alike. Other lines are left to JSON."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.runs.schema import LARGEST, MOST

# what stands before, between and behind the numbers of such a line (`Metrics.plain_episode`, and
# JSON where the environment tells of successes)
HEAD = np.frombuffer(b'{"kind": "episode", "step": ', np.uint8)
ENV = np.frombuffer(b', "env": ', np.uint8)
RETURN = np.frombuffer(b', "return": ', np.uint8)
LENGTH = np.frombuffer(b', "length": ', np.uint8)
TAILS = tuple(
    np.frombuffer(tail, np.uint8)
    for tail in (b"}\n", b', "success": false}\n', b', "success": true}\n')
)
KEYS = (["kind", "step", "env", "return", "length"], "success")
DIGITS = 18  # that a whole number of 64 bits holds
UNTOLD = -1  # where nothing is said of success


def episodes_reference(content: np.ndarray) -> tuple[np.ndarray, ...]:
    """Steps, returns, lengths and successes of the episodes in whole lines, and where the other
    lines begin and end."""
    found, others, at = [], [], 0
    for line in content.tobytes().splitlines(keepends=True):
        row = plain(line)
        if row:
            success = row.get("success", UNTOLD)
            found.append((row["step"], row["return"], row["length"], success))
        else:
            others.append((at, at + len(line)))
        at += len(line)
    columns = np.array(found, np.float64).reshape(-1, 4).T
    whole = [columns[k].astype(np.int64) for k in (0, 2, 3)]
    return whole[0], columns[1], whole[1], whole[2], np.array(others, np.int64).reshape(-1, 2)


def plain(line: bytes) -> dict[str, Any]:
    """The row in a line that is of just this form."""
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(row, dict) or row.get("kind") != "episode":
        return {}
    keys = list(row)
    if keys not in (KEYS[0], [*KEYS[0], KEYS[1]]) or json.dumps(row).encode() + b"\n" != line:
        return {}
    return row if abs(row["return"]) <= MOST and max(row["step"], row["length"]) <= LARGEST else {}


def some_lines(rng: np.random.Generator, dtype: str) -> Iterator[tuple[np.ndarray]]:
    """Of episodes, of others, torn ones, and none."""
    for count in (0, 1, 200):
        lines = []
        for _ in range(count):
            row = {
                "kind": "episode",
                "step": int(rng.integers(2**40)),
                "env": int(rng.integers(9)),
                "return": float(rng.normal() * 10.0 ** rng.integers(-20, 20)),
                "length": int(rng.integers(500)),
            }
            row |= {"success": bool(rng.integers(2))} if rng.integers(2) else {}
            row |= {"each": [1.0, 2.0]} if rng.integers(4) == 0 else {}
            line = json.dumps(row)
            torn = line[: rng.integers(len(line))] if rng.integers(4) == 0 else line
            lines += [torn, '{"kind": "train", "step": 1}', "", line.replace('": ', '":')]
        text = "".join(line + "\n" for line in lines)
        yield (np.frombuffer(bytearray(text.encode()), np.uint8),)


@kernel
def follows(content, at, word):
    """Whether a word stands here."""
    if at + len(word) > len(content):
        return False
    for k in range(len(word)):  # noqa: SIM110
        if content[at + k] != word[k]:
            return False
    return True


@kernel
def digits(content, at):
    """Where a row of digits ends, and their value; -1 where they are more than a number holds."""
    value, start, counted = np.int64(0), at, 0
    while at < len(content) and 48 <= content[at] <= 57:
        value = value * 10 + np.int64(content[at] - 48)
        counted += value > 0  # zeros in front are not
        if counted > DIGITS:
            return at, np.int64(-1)
        at += 1
    return at, value if at > start else np.int64(-1)


@kernel
def fraction(content, at):
    """Where a number ends, and its value; the same place where there is none."""
    start, sign, power = at, 1.0, 0
    if content[at] == 45:
        sign, at = -1.0, at + 1
    first = at
    at, value = digits(content, at)
    if value < 0:
        return start, 0.0
    if content[at] == 46:
        point = at + 1
        at, behind = digits(content, point)
        power = point - at
        if behind < 0 or (value > 0 and at - first > DIGITS):  # the point is among them
            return start, 0.0
        value = value * np.int64(10) ** np.int64(-power) + behind
    if content[at] == 101:
        at += 1
        down = content[at] == 45
        if down or content[at] == 43:
            at += 1
        at, exponent = digits(content, at)
        if exponent < 0 or exponent > 99:
            return start, 0.0
        power += -exponent if down else exponent
    number = sign * np.float64(value)
    return at, number / 10.0**-power if power < 0 else number * 10.0**power


@kernel
def episode_at(content, at):
    """Step, return, length and success of an episode's line, and where it ends; 0 where there is
    none."""
    nothing = (np.int64(0), 0.0, np.int64(0), UNTOLD, 0)
    if not follows(content, at, HEAD):
        return nothing
    at, step = digits(content, at + len(HEAD))
    if step < 0 or not follows(content, at, ENV):
        return nothing
    at, env = digits(content, at + len(ENV))
    if env < 0 or not follows(content, at, RETURN):
        return nothing
    number = at + len(RETURN)
    at, ret = fraction(content, number)
    if at == number or abs(ret) > MOST or not follows(content, at, LENGTH):
        return nothing
    at, length = digits(content, at + len(LENGTH))
    if length < 0:
        return nothing
    for told in range(len(TAILS)):
        if follows(content, at, TAILS[told]):
            return step, ret, length, told - 1, at + len(TAILS[told])
    return nothing


@pair(episodes_reference, some_lines, name="runs.episodes.episodes", rtol=1e-15)
@kernel
def episodes(content):
    """The same, in a pass over the bytes."""
    lines = 0
    for byte in content:
        lines += byte == 10
    step, length = np.empty(lines, np.int64), np.empty(lines, np.int64)
    ret, success = np.empty(lines), np.empty(lines, np.int64)
    others = np.empty((lines, 2), np.int64)
    at = found = rest = 0
    while at < len(content):
        step[found], ret[found], length[found], success[found], end = episode_at(content, at)
        if end:
            found += 1
        else:
            end = at
            while content[end] != 10:
                end += 1
            end += 1
            others[rest, 0], others[rest, 1] = at, end
            rest += 1
        at = end
    return step[:found], ret[:found], length[:found], success[:found], others[:rest]
