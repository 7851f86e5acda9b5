"""Summarises a metrics file in memory of constant size: every column over training in a few hundred
bins with their extremes, returns and lengths of episodes as histograms, the last and the best rows.
A growing file is read incrementally."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.runs.metrics import rank, row_in

Row = dict[str, Any]
BINS = 512  # of a course
BARS = 64  # of a histogram
PARTS = 4  # of a run, with a histogram each
KEPT = 256  # rows of a kind
CHUNK = 2**20  # bytes that are read at once
NUMBERS = frozenset((int, float))
UNPLOTTED = ("kind", "step")
LEAST = 1e-9  # widest bar where all episodes are alike
# an episode's row as `Metrics.plain_episode` writes it, and nine tenths of a long run's lines are
EPISODE_LINE = re.compile(
    rb'^(?:\{"kind": "episode", "step": (\d{1,18}), "env": \d{1,18}, '
    rb'"return": (-?(?:\d{1,18}(?:\.\d+)?|\d(?:\.\d+)?e[+-]\d\d)), '
    rb'"length": (\d{1,18})(?:, "success": (true|false))?\}|(.*))\n',
    re.MULTILINE,
)
SUCCESS = {b"": -1, b"false": 0, b"true": 1}  # -1: nothing is said of it


class Course:
    """A column over steps: count, sum, minimum, maximum and sum of steps in each bin. Bins are 1,
    2, 4, … steps wide, as few as fit, and so equal for all runs of the same length."""

    def __init__(self) -> None:
        self.width = 1
        self.count, self.total, self.at = (np.zeros(BINS) for _ in range(3))
        self.low, self.high = np.full(BINS, np.inf), np.full(BINS, -np.inf)

    def add(self, steps: np.ndarray, values: np.ndarray) -> None:
        if not len(steps):
            return
        begun = self.count.any()
        while steps.max() // self.width >= BINS:
            if begun:
                self.widen()
            else:
                self.width *= 2
        bins = steps // self.width
        self.count += np.bincount(bins, minlength=BINS)
        self.total += np.bincount(bins, values, BINS)
        self.at += np.bincount(bins, steps, BINS)
        if (bins[1:] < bins[:-1]).any():  # rows are in the order of their steps, but for actors'
            order = np.argsort(bins, kind="stable")
            bins, values = bins[order], values[order]
        first = np.flatnonzero(np.concatenate([[True], bins[1:] != bins[:-1]]))
        filled = bins[first]
        self.low[filled] = np.minimum(self.low[filled], np.minimum.reduceat(values, first))
        self.high[filled] = np.maximum(self.high[filled], np.maximum.reduceat(values, first))

    def widen(self) -> None:
        """Merges every two bins."""
        self.width *= 2
        for name, joined, empty in (
            ("count", np.sum, 0.0),
            ("total", np.sum, 0.0),
            ("at", np.sum, 0.0),
            ("low", np.min, np.inf),
            ("high", np.max, -np.inf),
        ):
            pairs = joined(getattr(self, name).reshape(-1, 2), axis=1)
            setattr(self, name, np.concatenate([pairs, np.full(BINS // 2, empty)]))

    def points(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Steps, means, minima and maxima of the bins that have values; a single value in a bin is
        exact."""
        filled = self.count > 0
        count = self.count[filled]
        mean = np.clip(self.total[filled] / count, self.low[filled], self.high[filled])
        return self.at[filled] / count, mean, self.low[filled], self.high[filled]


class Histogram:
    """Counts of values between multiples of a power of two, as fine as so many bars allow, for each
    quarter of a run."""

    def __init__(self, exponent: int | None = None) -> None:
        self.exponent = exponent  # the bars' width is 2 to this; None: as the first values are
        self.first = 0  # the multiple at which the first bar begins
        self.counts = np.zeros((PARTS, 0), np.int64)

    def add(self, values: np.ndarray, quarters: np.ndarray, weights: Any = 1) -> None:
        """`weights`: how often each value counts."""
        if not len(values):
            return
        low, high = float(values.min()), float(values.max())
        if self.exponent is None:
            least = max((high - low) / BARS, max(abs(low), abs(high)) * LEAST, LEAST)
            self.exponent = math.floor(math.log2(least))
        if self.counts.size:
            edges = self.edges
            low, high = min(low, edges[0]), max(high, (edges[-1] + edges[-2]) / 2)
        exponent = self.exponent
        while bar_index(high, exponent) - bar_index(low, exponent) >= BARS:
            exponent += 1
        self.make_room(exponent, low, high)
        bars = np.floor(np.ldexp(values, -exponent)).astype(np.int64) - self.first
        shape = self.counts.shape
        counts = np.broadcast_to(weights, len(values))
        added = np.bincount(quarters * shape[1] + bars, counts, shape[0] * shape[1])
        self.counts += added.reshape(shape).astype(np.int64)

    def make_room(self, exponent: int, low: float, high: float) -> None:
        """Rebins the counts into bars of this width from the lowest to the highest value."""
        wider = exponent - (self.exponent or 0)
        before = (np.arange(self.counts.shape[1]) + self.first) >> wider
        self.exponent, self.first = exponent, bar_index(low, exponent)
        counts = np.zeros((PARTS, bar_index(high, exponent) - self.first + 1), np.int64)
        np.add.at(counts.T, before - self.first, self.counts.T)
        self.counts = counts

    @property
    def edges(self) -> np.ndarray:
        places = np.arange(self.counts.shape[1] + 1) + self.first
        return np.ldexp(places.astype(float), self.exponent or 0)


def bar_index(value: float, exponent: int) -> int:
    """The bar that a value falls into."""
    return math.floor(math.ldexp(value, -exponent))


def merged(histograms: Sequence[Histogram]) -> Histogram:
    """The histogram of several runs."""
    total = Histogram(
        max(
            (histogram.exponent for histogram in histograms if histogram.exponent is not None),
            default=None,
        )
    )
    for histogram in histograms:
        middles = (histogram.edges[:-1] + histogram.edges[1:]) / 2
        for part, counts in enumerate(histogram.counts):
            total.add(middles, np.full(len(middles), part), counts)
    return total


@dataclass
class Thinned:
    """At most twice KEPT of the rows of a kind, evenly spread, and the last row."""

    stride: int = 1
    count: int = 0
    rows: list[tuple[int, Row]] = field(default_factory=list)
    last: Row = field(default_factory=dict)

    def add(self, row: Row) -> None:
        if self.count % self.stride == 0:
            self.rows.append((self.count, row))
        self.count, self.last = self.count + 1, row
        if len(self.rows) > 2 * KEPT:
            self.rows, self.stride = self.rows[::2], 2 * self.stride


class Digest:
    """The summary of a run's metrics; `steps` is the planned length of the run."""

    def __init__(self, path: Path, steps: int = 1) -> None:
        self.path, self.steps = path, max(steps, 1)
        self.begin()

    def begin(self) -> None:
        self.offset = self.damaged = self.episodes = 0
        self.courses: dict[tuple[str, str], Course] = {}
        self.returns, self.lengths = Histogram(), Histogram()
        self.thinned: dict[str, Thinned] = {}
        self.best: Row = {}
        self.news: list[Row] = []  # of the latest reading: rows of evaluations

    @property
    def file(self) -> Path:
        return self.path / "metrics.jsonl"

    def read(self, known: Sequence[Row] | None = None) -> "Digest":
        """Reads what was written since the last call. `known` are the rows other than episodes,
        where they are in memory."""
        self.news = []
        if not self.file.is_file():
            return self
        with self.file.open("rb") as file:
            if file.seek(0, 2) < self.offset:  # a resume has cut it back
                self.begin()
            file.seek(self.offset)
            rest = b""
            while chunk := file.read(CHUNK):
                whole, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    self.take(whole + newline, known is None)
                    self.offset += len(whole) + 1
        if known is not None:
            for start in range(0, len(known), KEPT):
                self.add_rows(known[start : start + KEPT])
        return self

    def take(self, content: bytes, others: bool) -> None:
        """Parses whole lines."""
        lines = EPISODE_LINE.findall(content)
        if plain := [line for line in lines if line[0]]:
            step, ret, length, success, _ = zip(*plain, strict=True)
            self.add_episodes(
                np.array([*map(int, step)]),
                np.array([*map(float, ret)]),
                np.array([*map(int, length)]),
                np.array([SUCCESS[word] for word in success]),
            )
        if others:
            rows = [row_in(line[4]) for line in lines if not line[0]]
            self.damaged += rows.count(None)
            self.add_rows([row for row in rows if row])

    def add_episodes(
        self, step: np.ndarray, ret: np.ndarray, length: np.ndarray, success: np.ndarray
    ) -> None:
        self.episodes += len(step)
        quarters = np.minimum(step * PARTS // self.steps, PARTS - 1)
        self.course("episode", "return").add(step, ret)
        self.course("episode", "length").add(step, length)
        known = success >= 0
        if known.any():
            self.course("episode", "success").add(step[known], success[known])
        self.returns.add(ret, quarters)
        self.lengths.add(length.astype(float), quarters)

    def course(self, kind: str, column: str) -> Course:
        return self.courses.setdefault((kind, column), Course())

    def add_rows(self, rows: Sequence[Row]) -> None:
        by_kind: dict[str, list[Row]] = {}
        for row in rows:
            by_kind.setdefault(row["kind"], []).append(row)
        for kind, group in by_kind.items():
            if kind == "episode":  # with more to tell than most
                self.add_episodes(
                    np.array([row["step"] for row in group]),
                    np.array([row["return"] for row in group], float),
                    np.array([row["length"] for row in group]),
                    np.array([row.get("success", -1) for row in group], np.int64),
                )
                continue
            self.keep(kind, group)
            for column, (steps, values) in columns_of(group).items():
                self.course(kind, column).add(steps, values)

    def keep(self, kind: str, rows: Iterable[Row]) -> None:
        thinned = self.thinned.setdefault(kind, Thinned())
        for row in rows:
            thinned.add(row)
            if kind != "train":
                self.news.append(row)
                if not self.best or rank(row) >= rank(self.best):
                    self.best = row

    @property
    def last(self) -> Row:
        """The last row of training."""
        return self.thinned["train"].last if "train" in self.thinned else {}

    @property
    def rows(self) -> list[Row]:
        """Rows of all kinds but episodes, in the order of their steps: a selection where there are
        many, including the last of each kind and the best evaluation."""
        kept: dict[int, Row] = {}
        for thinned in self.thinned.values():
            kept |= {id(row): row for _, row in thinned.rows} | {id(thinned.last): thinned.last}
        kept |= {id(self.best): self.best} if self.best else {}
        return sorted(kept.values(), key=lambda row: row["step"])

    def names(self, kind: str = "train") -> list[str]:
        return [column for of_kind, column in self.courses if of_kind == kind]


def columns_of(rows: Sequence[Row]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Steps and values of every numeric column; of the timing the steps per second."""
    shapes = dict.fromkeys(map(tuple, rows))
    names = dict.fromkeys(name for shape in shapes for name in shape if name not in UNPLOTTED)
    rates = [row.get("timing", {}).get("steps_per_second") for row in rows]
    columns = {name: [row.get(name) for row in rows] for name in names}
    steps, columns_found = [row["step"] for row in rows], {}
    for name, values in (*columns.items(), ("steps_per_second", rates)):
        if not NUMBERS.issuperset(map(type, values)):
            numeric = [k for k, value in enumerate(values) if type(value) in NUMBERS]
            values = [values[k] for k in numeric]
            own_steps = [steps[k] for k in numeric]
        else:
            own_steps = steps
        if values:
            columns_found[name] = np.array(own_steps), np.array(values, float)
    return columns_found


def aligned(courses: Sequence[Course]) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and values [runs, T] of several runs on a common grid: the steps of the run with
    the fewest, up to the last common step, interpolated."""
    every = [course.points()[:2] for course in courses]
    if not all(len(steps) for steps, _ in every):
        return np.zeros(0), np.zeros((len(courses), 0))
    grid = min((steps for steps, _ in every), key=len)
    # logs of actors in processes are a few steps apart
    slack = np.median(np.diff(grid)) / 2 if len(grid) > 1 else np.inf
    end = min(steps[-1] for steps, _ in every) + slack
    start = max(steps[0] for steps, _ in every) - slack
    grid = grid[(grid <= end) & (grid >= start)]
    return grid, np.array([np.interp(grid, *course) for course in every])
