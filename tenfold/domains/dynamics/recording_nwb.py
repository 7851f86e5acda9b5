"""Reading NWB files (Neurodata Without Borders, version 2): spike times of units are counted in
bins of a given width, trials are episodes, and series by name are further observations, or actions.

A trial begins with its own first bin, wherever that lies on the clock; without a table of trials
the times in which units were observed are episodes, or else all from the first spike to the last. A
bin in which a unit was not observed (`obs_intervals`) is NaN there. A bin of a series has the mean
of its samples, or without samples the value between its neighbours; beyond the series' ends NaN.
NWB is HDF5 with a schema; this file implements the small part that is needed.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.system import require_memory
from tenfold.domains.dynamics.recording_table import EpisodeArrays, Selection, list_names, reading

UNITS, TRIALS, ACTIONS = "units", "intervals/trials", "--actions"
# of a bin: spikes on a border that rounding has moved still count in the bin that they begin
NUDGE = 1e-6
UNREADABLE = (OSError, KeyError, ValueError, TypeError)  # raised by h5py and NumPy
FEWEST = 2  # bins of a trial, which foretells nothing with fewer


class Series:
    """A sampled signal: moments [n] and values [n, numbers], with sums over rows: trials are many,
    and samples more."""

    def __init__(self, time: np.ndarray, values: np.ndarray) -> None:
        self.time, self.numbers = time, values.shape[1]
        known = np.isfinite(values)
        # how many samples there were before each row, and their sum, [n + 1, numbers]
        self.counts, self.sums = (
            np.concatenate((np.zeros((1, self.numbers)), np.cumsum(one, 0)))
            for one in (known, np.where(known, values, 0.0))
        )
        # moments and values of the finite samples of each number
        self.known = [(time[k], v[k]) for k, v in zip(known.T, values.T, strict=True)]


def read_nwb(path: Path, file: Any, selection: Selection) -> EpisodeArrays:
    series, width = series_in(file), selection.bin
    names = selection.observations or (UNITS,)
    if not width:
        raise UserError(
            f"{path} has spike times and signals on clocks of their own: say the width of a bin "
            "in seconds, such as --bin 0.02."
        )
    units = SpikeUnits.read(path, file) if UNITS in names else None
    places = [
        [
            find_series(path, name, series, flag)
            for name in group
            if name != UNITS or flag == ACTIONS
        ]
        for group, flag in ((names, "--observations"), (selection.actions, ACTIONS))
    ]
    observed, acted = (
        [read_series(path, file, series_path) for series_path in group] for group in places
    )
    spans, notes = episode_spans(path, file, units, [*observed, *acted])
    count = [int((stop - start) / width + NUDGE) for start, stop in spans]
    kept = [k for k, bins in enumerate(count) if bins >= FEWEST]
    if not kept:
        raise UserError(
            f"{path}: none of its {len(spans)} trials is as long as {FEWEST} bins of {width:g} s: "
            "give --bin a smaller width."
        )
    if len(kept) < len(spans):
        notes += (f"{len(spans) - len(kept)} trials of less than {FEWEST} bins",)
    numbers = (len(units.times) if units else 0) + sum(one.numbers for one in observed + acted)
    require_memory(sum(count) * numbers * 8, f"{path} in bins of {width:g} s", "--bin")
    y, a = [], []
    for k in kept:
        edges, none = spans[k][0] + width * np.arange(count[k] + 1), np.zeros((count[k], 0))
        counts = units.counted(edges) if units else none
        y.append(np.concatenate([counts, *(bin_series(one, edges) for one in observed)], 1))
        a.append(np.concatenate([none, *(bin_series(one, edges) for one in acted)], 1))
    others = tuple(
        series_path for series_path in series if series_path not in places[0] + places[1]
    )
    return EpisodeArrays(y, a, None, width, notes + others, True)


# units


class SpikeUnits(NamedTuple):
    """Sorted spike times of each unit, and the spans in which it was observed, [n, 2], apart from
    each other and in the order of time (None: always)."""

    times: list[np.ndarray]
    observed: list[np.ndarray] | None

    @classmethod
    def read(cls, path: Path, file: Any) -> "SpikeUnits":
        if UNITS not in file or "spike_times" not in file[UNITS]:
            raise UserError(
                f"{path} has no table of units with spike_times: name series of it with "
                "--observations."
            )
        times = ragged(path, file[UNITS], "spike_times")
        if not times:
            raise UserError(f"{path}: its table of units is empty.")
        for unit, moments in enumerate(times):
            if moments.ndim != 1 or not np.isfinite(moments).all():
                row = int(np.argmin(np.isfinite(moments))) if moments.ndim == 1 else 0
                raise UserError(
                    f"{path}: units/spike_times, unit {unit}, row {row} is no finite time."
                )
        observed = None
        if "obs_intervals" in file[UNITS]:
            spans = ragged(path, file[UNITS], "obs_intervals")
            observed = [np.reshape(joined_spans(one.reshape(-1, 2)), (-1, 2)) for one in spans]
        return cls([np.sort(moments) for moments in times], observed)

    def counted(self, edges: np.ndarray) -> np.ndarray:
        """Spikes [bins, units] between edges; NaN where a unit was not observed throughout."""
        near = NUDGE * (edges[1] - edges[0])
        ends = [np.searchsorted(moments, edges - near) for moments in self.times]
        counts = np.stack([np.diff(one) for one in ends], 1).astype(np.float64)
        for unit, spans in enumerate(self.observed or ()):
            # the last span that begins before a bin is the only one that can hold it
            last = np.searchsorted(spans[:, 0], edges[:-1] + near, "right") - 1
            stop = np.concatenate((spans[:, 1], [-np.inf]))[last]  # -1: none does
            counts[edges[1:] > stop + near, unit] = np.nan
        return counts


def ragged(path: Path, table: Any, name: str) -> list[np.ndarray]:
    """A column whose rows differ in length: all values, and where each row's end."""
    with reading(f"{path}: {UNITS}/{name} cannot be read", UNREADABLE):
        values = np.asarray(table[name][()], np.float64)
        ends = np.asarray(table[f"{name}_index"][()]).astype(np.int64)
    starts = np.concatenate(([0], ends[:-1]))
    if len(ends) and (ends[-1] > len(values) or (starts > ends).any() or ends[0] < 0):
        row = int(np.argmax((starts > ends) | (ends > len(values))))
        raise UserError(
            f"{path}: {UNITS}/{name}_index, row {row}, points to {ends[row]} of {len(values)} "
            "values: the file is torn."
        )
    return [values[start:end] for start, end in zip(starts, ends, strict=True)]


# episodes


def episode_spans(
    path: Path, file: Any, units: SpikeUnits | None, series: list[Series]
) -> tuple[list[tuple[float, float]], tuple[str, ...]]:
    """Start and end of each episode, and notes about trials that are left out."""
    if TRIALS in file:
        return trials_of(path, file[TRIALS])
    if units and units.observed is not None:
        every = np.concatenate(units.observed)
        if len(every):
            return joined_spans(every), ()
    every = [*(units.times if units else ()), *(one.time for one in series)]
    times = [moments for moments in every if len(moments)]
    if not times:
        raise UserError(f"{path}: its units have no spikes.")
    return [(min(moments[0] for moments in times), max(moments[-1] for moments in times))], ()


def joined_spans(spans: np.ndarray) -> list[tuple[float, float]]:
    """The union of intervals [n, 2], in the order of time."""
    union: list[tuple[float, float]] = []
    for start, stop in sorted(map(tuple, np.asarray(spans, np.float64).tolist())):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(stop, union[-1][1]))
        else:
            union.append((start, stop))
    return union


def trials_of(path: Path, table: Any) -> tuple[list[tuple[float, float]], tuple[str, ...]]:
    """In the order of time. A trial that begins before another has ended is cut to begin there,
    since no moment may be trained on and held back."""
    missing = next((name for name in ("start_time", "stop_time") if name not in table), None)
    if missing:
        raise UserError(f"{path}: {TRIALS} has no column {missing}.")
    start, stop = (
        np.asarray(table[name][()], np.float64).ravel() for name in ("start_time", "stop_time")
    )
    if len(start) != len(stop):
        raise UserError(
            f"{path}: {TRIALS} has {len(start)} start_time and {len(stop)} stop_time: a trial "
            "needs both."
        )
    whole = np.isfinite(start) & np.isfinite(stop)
    if (start[whole] >= stop[whole]).any():
        row = int(np.argmax(whole & (start >= stop)))
        raise UserError(
            f"{path}: {TRIALS}, row {row}, stops at {stop[row]:g}, not after its start at "
            f"{start[row]:g}."
        )
    notes, spans, shorter = (), [], 0
    if not whole.all():
        notes = (f"{int((~whole).sum())} trials without start or stop",)
    for begin, end in sorted(zip(start[whole].tolist(), stop[whole].tolist(), strict=True)):
        before = spans[-1][1] if spans else -np.inf
        shorter += begin < before
        if end > before:
            spans.append((max(begin, before), end))
    if shorter:
        notes += (f"what {shorter} trials share with those before them",)
    return spans, notes


# series


def series_in(file: Any) -> list[str]:
    """The paths of all time series."""
    paths: list[str] = []

    def visit(name: str, node: Any) -> None:
        timed = hasattr(node, "keys") and ("timestamps" in node or "starting_time" in node)
        if timed and "data" in node:
            paths.append(name)

    file.visititems(visit)
    return paths


def find_series(path: Path, name: str, series: list[str], flag: str) -> str:
    """The path of the series with this name, or path."""
    places = [
        series_path
        for series_path in series
        if name in (series_path, series_path.rsplit("/", 1)[-1])
    ]
    if len(places) != 1:
        several = f"several: {list_names(places)}; give the whole path"
        none = f"none, only {list_names([UNITS, *series])}: name yours with {flag}"
        raise UserError(
            f"{path}: of series with the name {name} it has {several if places else none}."
        )
    return places[0]


def read_series(path: Path, file: Any, series_path: str) -> Series:
    """In the series' own unit: values times `conversion` plus `offset`."""
    node = file[series_path]
    unreadable = (*UNREADABLE, ZeroDivisionError)
    with reading(f"{path}: {series_path} cannot be read as a series of numbers", unreadable):
        data = node["data"]
        factor, offset = (
            float(data.attrs.get(n, u)) for n, u in (("conversion", 1), ("offset", 0))
        )
        values = np.asarray(data[()], np.float64) * factor + offset
        if "timestamps" in node:
            time = np.asarray(node["timestamps"][()], np.float64).ravel()
        else:
            first = node["starting_time"]
            time = float(first[()]) + np.arange(len(values)) / float(first.attrs["rate"])
    values = values.reshape(len(values), -1)
    if len(time) != len(values):
        raise UserError(
            f"{path}: {series_path} has {len(values)} values and {len(time)} timestamps."
        )
    steps = np.diff(time)
    finite = np.isfinite(time)
    if not len(time) or not finite.all() or (steps < 0).any():
        row = 0 if finite.all() else int(np.argmin(finite))
        row = int(np.argmax(steps < 0)) + 1 if finite.all() and len(time) else row
        raise UserError(
            f"{path}: {series_path}/timestamps, row {row}, is missing or before the one above it."
        )
    return Series(time, values)


def bin_series(series: Series, edges: np.ndarray) -> np.ndarray:
    """Means [bins, numbers] of the samples in each bin; between neighbours where there is none."""
    near = NUDGE * (edges[1] - edges[0])
    ends = np.searchsorted(series.time, edges - near)
    middle = (edges[:-1] + edges[1:]) / 2
    inside = (edges[1:] > series.time[0]) & (edges[:-1] <= series.time[-1] + near)
    amount, sums = (np.diff(total[ends], axis=0) for total in (series.counts, series.sums))
    rows = np.full((len(middle), series.numbers), np.nan)
    # a bin whose samples all are missing stays missing
    empty = np.diff(ends) == 0
    for k, (time, values) in enumerate(series.known):
        if len(time):
            rows[empty, k] = np.interp(middle[empty], time, values)
    rows = np.where(amount > 0, sums / np.maximum(amount, 1), rows)
    rows[~inside] = np.nan
    return rows
