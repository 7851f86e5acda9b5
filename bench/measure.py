"""Measuring: interleaved timing A/B/A/B, medians, bytes allocated; rows with the machine card."""

import json
import os
import re
import statistics
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tenfold.core.pairs import Pair, compare, fresh, outcome
from tenfold.core.system import machine_card, version_of, versions

FOLDER = Path(__file__).parent
TURN_SECONDS = 0.02  # a candidate's turn lasts about so long
Work = Callable[[], Any]


def turns(candidates: dict[str, Callable[[], int]], rounds: int = 15) -> dict[str, list[float]]:
    """Microseconds per item of every turn; each candidate does some work and returns how many items
    it was."""
    for work in candidates.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, work in candidates.items():
            start = time.perf_counter()
            items = work()
            times[name].append((time.perf_counter() - start) / items * 1e6)
    return times


def interleave(candidates: dict[str, Callable[[], int]], rounds: int = 15) -> dict[str, float]:
    """Median microseconds per item."""
    return {name: statistics.median(times) for name, times in turns(candidates, rounds).items()}


def repeated(work: Work) -> Callable[[], int]:
    """`work` so often that a turn lasts a moment; twice before it is timed, since the first call
    may compile."""
    work()
    work()
    start = time.perf_counter()
    work()
    count = max(1, int(TURN_SECONDS / max(time.perf_counter() - start, 1e-7)))

    def turn() -> int:
        for _ in range(count):
            work()
        return count

    return turn


def allocated(work: Work) -> int:
    """Peak bytes that one call allocates, after a warm-up: Python's and NumPy's by tracemalloc,
    PyTorch's by its profiler.

    What compiled code allocates on its own is not seen; the tests count that.
    """
    work()
    tracemalloc.start()
    work()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    work()
    own = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    with (
        silent(),
        torch.profiler.profile(
            profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
        ) as profile,
    ):
        work()
    tensors = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events() or [])
    return int(own + tensors)


@contextmanager
def silent() -> Iterator[None]:
    """Without what libraries write to the standard error by themselves; the profiler does."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def row(
    name: str,
    setting: dict[str, Any],
    baseline: tuple[str, Work],
    candidate: tuple[str, Work],
    equal: bool | None,
    difference: float | None,
    rounds: int = 21,
    **more: Any,
) -> dict[str, Any]:
    """One line of a table: both absolute numbers, the ratio, and whether the two gave the same."""
    times = interleave(
        {"baseline": repeated(baseline[1]), "candidate": repeated(candidate[1])}, rounds
    )
    found = timed_row(
        name, setting, (baseline[0], times["baseline"]), (candidate[0], times["candidate"]), **more
    )
    return found | {
        "equal": equal,
        "max_diff": difference,
        "baseline_bytes": allocated(baseline[1]),
        "candidate_bytes": allocated(candidate[1]),
    }


def timed_row(
    name: str,
    setting: dict[str, Any],
    baseline: tuple[str, float],
    candidate: tuple[str, float],
    **more: Any,
) -> dict[str, Any]:
    """A line from two measured times in microseconds, where equality and memory have no meaning:
    whole programs."""
    return {
        "name": name,
        "setting": setting,
        "baseline": baseline[0],
        "candidate": candidate[0],
        "baseline_us": shortened(baseline[1]),
        "candidate_us": shortened(candidate[1]),
        "ratio": round(baseline[1] / candidate[1], 2),
        "equal": None,
        "max_diff": None,
        "baseline_bytes": None,
        "candidate_bytes": None,
        **more,
    }


def shortened(us: float) -> float:
    """To a nanosecond; what takes less, as a step of one of hundreds of seeds does, to more."""
    return round(us, 3 if us >= 1 else 6)


def pair_row(tested: Pair, rounds: int = 7) -> dict[str, Any]:
    """Reference against fast path on the largest example, equality checked on those very inputs."""
    dtype = tested.dtypes[0]
    inputs = max(tested.example(np.random.default_rng(0), dtype), key=numbers_in)
    pairs = zip(
        outcome(tested.reference, inputs, tested.gradients),
        outcome(tested.fast, inputs, tested.gradients),
        strict=True,
    )
    found = [compare(e, f, tested.rtol, tested.atol) for e, f in pairs]

    def call(function: Callable[..., Any]) -> Work:
        own = [fresh(value, False) for value in inputs]
        return lambda: function(*own)

    return row(
        tested.name,
        {"numbers": numbers_in(inputs), "dtype": dtype},
        ("reference", call(tested.reference)),
        ("fast", call(tested.fast)),
        all(excess <= 1 for _, excess in found),
        max(apart for apart, _ in found),
        rounds,
    )


def numbers_in(inputs: tuple[Any, ...]) -> int:
    return sum(
        v.numel() if isinstance(v, torch.Tensor) else v.size if isinstance(v, np.ndarray) else 0
        for v in inputs
    )


def gpu_card() -> dict[str, Any]:
    """The GPU that rows were measured on; empty where there is none."""
    if not torch.cuda.is_available():
        return {}
    found = torch.cuda.get_device_properties(0)
    return {
        "gpu": found.name,
        "gpu_memory_gb": round(found.total_memory / 2**30, 1),
        "driver": driver(),
        "cuda": torch.version.cuda,
    }


def driver() -> str:
    """NVIDIA's, as the kernel tells of it or its tool."""
    file = Path("/proc/driver/nvidia/version")
    if file.is_file() and (found := re.search(r"\b\d{3,}\.[\d.]+", file.read_text())):
        return found[0]
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return said.stdout.split("\n")[0].strip() or "unknown"


def as_json(rows: list[dict[str, Any]]) -> str:
    """Rows with the machine card."""
    gpu = gpu_card()
    more = {package: version_of(package) for package in ("triton", "jax") if gpu}
    card = {"machine": machine_card() | gpu, "versions": versions() | more, "rows": rows}
    return json.dumps(card, indent=1)


def keep_rows(name: str, rows: list[dict[str, Any]]) -> None:
    file = FOLDER / "results" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(as_json(rows) + "\n")


def write(name: str, rows: list[dict[str, Any]]) -> None:
    """Rows into bench/results/NAME.json."""
    keep_rows(name, rows)
    for found in rows:
        print(found)
