"""The machine: what it is, how many of its threads are used, what its memory can hold; where the
time of a run goes; and how CUDA graphs are recorded.

Every stage is timed: by the learner where it makes rounds of stages, by the compiled call itself
where that makes whole ones. Timers stay under 1 % of a run.
"""

import contextlib
import gc
import math
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from tenfold.core.errors import UserError

PACKAGES = ("tenfold", "torch", "numpy", "numba", "scipy", "gymnasium", "safetensors")


def set_threads(count: int) -> None:
    """Threads of PyTorch; 0: one. The BLAS inside compiled code, which is SciPy's and has a pool of
    its own, keeps to one: by more its sums would differ, and threads of a team call it too."""
    import torch

    torch.set_num_threads(max(count, 1))
    import scipy.linalg.blas  # noqa: F401  it must be loaded to be told
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, "blas")


def require_memory(
    required: int, what: str = "The replay memory", setting: str = "agent.capacity"
) -> None:
    """Refuses what memory cannot hold, and says which setting makes it smaller: the kernel would
    end the process without a word."""
    free, whose = room()
    if required > free:
        raise UserError(
            f"{what} needs {required:,} bytes and {free:,} are free {whose}: lower {setting}."
        )


def room() -> tuple[int, str]:
    """Bytes that are free, and by whose account: the machine's or the container's, whichever is
    less."""
    accounts = [(machine_room(), "on this machine"), (container_room(), "in this container")]
    return min((free, whose) for free, whose in accounts if free is not None)


def machine_room() -> int:
    meminfo = Path("/proc/meminfo")
    for line in meminfo.read_text().splitlines() if meminfo.exists() else []:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def container_room(
    proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """What the control groups above this process leave (version 2 or 1); None where there is no
    limit to read."""
    limits: list[int] = []
    with contextlib.suppress(OSError):
        for line in proc.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                top, limit, usage, reclaimable = (
                    root,
                    "memory.max",
                    "memory.current",
                    "inactive_file",
                )
            elif "memory" in controllers.split(","):
                top, limit, usage, reclaimable = (
                    root / "memory",
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    "total_inactive_file",
                )
            else:
                continue
            group = top / path.lstrip("/")
            # inside a container the path may be the host's: then only the top is there
            for folder in {group, *group.parents, top}:
                if folder == top or top in folder.parents:
                    with contextlib.suppress(OSError, ValueError):
                        most = int((folder / limit).read_text())  # "max" is no number: no limit
                        stat = dict(
                            s.split() for s in (folder / "memory.stat").read_text().splitlines()
                        )
                        limits.append(
                            most - int((folder / usage).read_text()) + int(stat.get(reclaimable, 0))
                        )
    return min(limits, default=None)


STAGES = (
    "act",
    "env",
    "wait",
    "store",
    "sample",
    "update",
    "publish",
    "verify",
    "evaluate",
    "save",
)


class Clock:
    """Nanoseconds by stage."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = dict.fromkeys(STAGES, 0)
        self.before = 0

    def start(self) -> None:
        self.before = perf_counter_ns()

    def lap(self, stage: str) -> None:
        """The time since the last lap or start belongs to `stage`."""
        now = perf_counter_ns()
        self.spent[stage] += now - self.before
        self.before = now

    def share(self, known: Mapping[str, int], stage: str) -> None:
        """The same, but for what is `known` of other stages. Some of it is known of samples, and
        may be more than there was."""
        before = self.before
        self.lap(stage)
        whole, reported = self.before - before, sum(known.values())
        for name, spent in known.items():
            self.spent[name] += spent * min(whole, reported) // max(reported, 1)
        self.spent[stage] -= min(whole, reported)

    def shares(self) -> dict[str, float]:
        whole = sum(self.spent.values()) or 1
        return {stage: spent / whole for stage, spent in self.spent.items() if spent}

    def sentence(self) -> str:
        return " · ".join(
            f"{stage} {share:.0%}"
            for stage, share in sorted(self.shares().items(), key=lambda s: -s[1])
        )


def clock_face(seconds: float) -> str:
    """1:02:03, or 4:05 under an hour."""
    if not math.isfinite(seconds):
        return "?"
    # a run that played a little more than its steps has nothing left
    hours, rest = divmod(round(max(seconds, 0)), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


@cache
def machine_card() -> dict[str, Any]:
    """The machine a number was measured on."""
    model = platform.processor() or platform.machine()
    memory = 0
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(
            (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
            model,
        )
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    return {package: version_of(package) for package in PACKAGES}


@cache  # reading a package's metadata takes milliseconds, and a resume asks for all of them
def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


# CUDA graphs


@contextmanager
def capturing(graph: Any, pool: Any = None) -> Iterator[None]:
    """What is launched inside becomes `graph`. Python collects no garbage meanwhile: an older graph
    that was freed while another is recorded would end the process."""
    import torch

    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            yield
    finally:
        if collects:
            gc.enable()
