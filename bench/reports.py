"""A page of many long runs: how long `tenfold report` takes, from the start of the process, how
large the page is, and how much memory it took. Runs of three lengths: what the memory does not grow
with.

    python bench/reports.py [FOLDER]     # also leaves the page there
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import write

from tenfold.config.run import Run
from tenfold.runs.folder import RunFolder
from tenfold.runs.seeds import SeedsFolder

SEEDS, STEPS = 64, 20_000_000
SIZES = (1_000, 10_000, 100_000)  # episodes of a run
LOGS, EVALUATIONS = 2_000, 100
SECONDS, MEGABYTES = 20.0, 5.0


def write_metrics(path: Path, seed: int, episodes: int) -> None:
    """As a run of Q-learning writes them."""
    rng = np.random.default_rng(seed)
    steps = np.linspace(200, STEPS, episodes).astype(int)
    returns = 500 / (1 + np.exp(-(steps / STEPS * 10 - 4))) + rng.normal(0, 40, episodes)
    lines = [
        (
            step,
            f'{{"kind": "episode", "step": {step}, "env": 0, "return": {value!r}, '
            f'"length": {int(abs(value))}}}',
        )
        for step, value in zip(steps.tolist(), returns.tolist(), strict=True)
    ]
    for step in np.linspace(STEPS // LOGS, STEPS, LOGS).astype(int).tolist():
        shares = {"act": 0.1, "env": 0.2, "store": 0.1, "update": 0.5, "evaluate": 0.1}
        row = {
            "kind": "train",
            "step": step,
            "updates": step // 4,
            "episodes": int(step / STEPS * episodes),
            "return": float(returns[: max(int(step / STEPS * episodes), 1)][-100:].mean()),
            "lr": 1e-3 * (1 - step / STEPS),
            "epsilon": max(1 - step / 1e6, 0.05),
            "loss": float(rng.gamma(2.0) * np.exp(-step / STEPS)),
            "q": float(rng.normal(20)),
            "td_error": float(rng.gamma(2.0)),
            "grad_norm": float(rng.gamma(3.0)),
            "timing": {"seconds": step / 1e4, "steps_per_second": 1e4, "shares": shares},
        }
        lines.append((step, json.dumps(row)))
    for step in np.linspace(STEPS // EVALUATIONS, STEPS, EVALUATIONS).astype(int).tolist():
        mean = float(500 / (1 + np.exp(-(step / STEPS * 10 - 3))) + rng.normal(0, 10))
        row = {"kind": "eval", "step": step, "episodes": 10, "mean_return": mean, "std_return": 9.0}
        lines.append((step, json.dumps(row)))
    lines.sort(key=lambda line: line[0])
    (path / "metrics.jsonl").write_text("".join(text + "\n" for _, text in lines))


def make_runs(path: Path, episodes: int) -> int:
    """A folder of seeds with as many episodes each; how many bytes of metrics that is."""
    run = Run(env="CartPole-v1", steps=STEPS)
    folder = SeedsFolder.create(path, run, tuple(range(SEEDS)))
    for seed in folder.seeds:
        RunFolder.create(folder.member(seed), folder.run_of(seed)).__exit__()
        write_metrics(folder.member(seed), seed, episodes)
    return sum((member / "metrics.jsonl").stat().st_size for member in folder.members)


def measured(path: Path) -> dict[str, float]:
    """Of a process of its own: seconds, those of its processor, megabytes of the page and of memory
    at most."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "tenfold", "report", str(path)]
    child = os.spawnv(os.P_NOWAIT, sys.executable, command)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "page_mb": round((path / "report.html").stat().st_size / 1e6, 2),
        "memory_mb": round(usage.ru_maxrss * 1024 / 1e6),
    }


def main() -> None:
    rows = []
    # kernels are compiled once on a machine, and are on disk afterwards
    subprocess.run([sys.executable, "-c", "import tenfold.runs.digest"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for episodes in SIZES:
            path = Path(sys.argv[1] if len(sys.argv) > 1 else folder) / f"{episodes}"
            read = make_runs(path, episodes)
            rows.append(
                {
                    "name": f"report of {SEEDS} seeds x {episodes:,} episodes",
                    "setting": {"seeds": SEEDS, "episodes": episodes, "logs": LOGS},
                    "read_mb": round(read / 1e6),
                    **measured(path),
                    "bar_seconds": SECONDS,
                    "bar_mb": MEGABYTES,
                }
            )
            print(rows[-1])
    write("reports", rows)


if __name__ == "__main__":
    main()
