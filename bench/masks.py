"""A million steps with masks in a world that raises when a forbidden action is taken:
epsilon-greedy, double, n-step, prioritised, by the fused engine; fewer by the plain one. Writes
bench/results/masks.json with the machine card.

    python bench/masks.py [--steps 1000000] [--out FILE]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# before anything loads a BLAS
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
sys.path.insert(0, str(Path(__file__).parent))

import tenfold as ten  # noqa: E402
from tenfold.core.system import machine_card, versions  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "masks.json"
AGENT: dict[str, Any] = {
    "name": "dqn",
    "double": True,
    "n_step": 3,
    "replay": "prioritized",
    "explore": "epsilon(linear(1, 0.1, 50k))",
    "batch_size": 32,
    "every": 4,
    "learning_starts": 1_000,
    "lr": "linear(1e-3, 0, 1M)",
    "net": {"hidden": [64, 64]},
}


def trained(steps: int, engine: str, folder: Path) -> dict[str, Any]:
    """A forbidden action would end the run with an error."""
    run = ten.Run.of(
        {
            "env": "strict_environment:Strict-v0",
            "steps": steps,
            "engine": engine,
            "agent": AGENT,
            "eval_every": 0,
            "checkpoint_every": 0,
        }
    )
    began = time.monotonic()
    ten.train(run, folder / engine, quiet=True)
    seconds = time.monotonic() - began
    score = ten.evaluate(folder / engine, episodes=200)
    return {
        "engine": engine,
        "steps": steps,
        "seconds": round(seconds, 1),
        "steps_per_second": round(steps / seconds),
        "mean_return": round(score.mean_return, 4),
        "longest_episode": max(score.lengths),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [trained(asked.steps, "fused", Path(folder))]
        rows.append(trained(min(asked.steps, 20_000), "plain", Path(folder)))
    found = {"agent": AGENT, "rows": rows, "versions": versions(), "machine": machine_card()}
    asked.out.write_text(json.dumps(found, indent=1) + "\n")
    for row in rows:
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
