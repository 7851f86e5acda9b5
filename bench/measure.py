"""Interleaved timing: A/B/A/B, medians, with the machine card. Every benchmark of this folder uses it."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenfold.record.folder import machine_card, versions

RESULTS = Path(__file__).parent / "results"


def interleave(candidates: dict[str, Callable[[], int]], rounds: int = 15) -> dict[str, float]:
    """Median microseconds per item; each candidate does some work and returns how many items it was."""
    for work in candidates.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, work in candidates.items():
            start = time.perf_counter()
            items = work()
            times[name].append((time.perf_counter() - start) / items * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


def write(name: str, rows: list[dict[str, Any]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    found = {"machine": machine_card(), "versions": versions(), "rows": rows}
    (RESULTS / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    for row in rows:
        print(row)
