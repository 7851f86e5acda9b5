"""Is a model as good in any unit? One recording of a FitzHugh-Nagumo oscillator (two channels with
noise, pushed at random), as it is and in other units, each fitted by `ten.fit` with its usual
settings: R² 1 and 10 steps ahead on steps that judge, beside ARX on the same data. Writes
bench/results/units.json with the machine card; ends with 1 where a variant is off by more than
0.01.

    python bench/units.py [--steps 3000] [--seeds 1] [--only "as it is" "x 100"] [--out FILE]
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

import numpy as np  # noqa: E402

import tenfold as ten  # noqa: E402
from tenfold.core.system import machine_card, versions  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "units.json"
EPISODES, STEPS, DT = 10, 400, 0.2
NEAR = 0.01  # how far a variant's R² may be from the original's
AHEAD = (1, 10)


def recording() -> tuple[np.ndarray, np.ndarray]:
    """Observations [E, T, 2] and actions [E, T, 1] of dv = (v − v³/3 − w + 0.5 + a)·dt, dw =
    0.08·(v + 0.7 − 0.8·w)·dt; a push lasts 20 steps; noise of 0.03 and, for w, 0.02 in what is
    seen."""
    rng = np.random.default_rng(0)
    v, w = rng.uniform(-2, 2, EPISODES), rng.uniform(-0.5, 1.5, EPISODES)
    a = np.repeat(rng.uniform(-0.5, 0.5, (EPISODES, STEPS // 20, 1)), 20, 1)
    seen = np.zeros((EPISODES, STEPS, 2))
    for t in range(STEPS):
        seen[:, t] = np.stack((v, w), 1)
        for _ in range(10):
            v, w = (
                v + DT / 10 * (v - v**3 / 3 - w + 0.5 + a[:, t, 0]),
                w + DT / 10 * 0.08 * (v + 0.7 - 0.8 * w),
            )
    return seen + rng.normal(size=seen.shape) * [0.03, 0.02], a


# what becomes of observations, of actions, and of the time of a step
VARIANTS: dict[str, tuple[Any, Any, float]] = {
    "as it is": (lambda y: y, 1.0, 1.0),
    "x 100": (lambda y: 100 * y, 1.0, 1.0),
    "x 0.01": (lambda y: 0.01 * y, 1.0, 1.0),
    "+ 1,000": (lambda y: y + 1_000, 1.0, 1.0),
    "time in ms": (lambda y: y, 1.0, 1_000.0),
    "x 1e-6": (lambda y: 1e-6 * y, 1.0, 1.0),
    "channels x 1e-4 and 1e4": (lambda y: y * [1e-4, 1e4], 1.0, 1.0),
    "channels x 1e4 and 1e-4": (lambda y: y * [1e4, 1e-4], 1.0, 1.0),
    "actions x 1,000": (lambda y: y, 1_000.0, 1.0),
    "all at once": (lambda y: y * [1e-4, 1e4] + [1e-3, -1e6], 1e-3, 1e3),
}


def fitted(variant: str, steps: int, seeds: int, folder: Path) -> dict[str, Any]:
    """R² of every seed [seeds, ahead], and of ARX."""
    observed, pushed, clock = VARIANTS[variant]
    y, a = recording()
    file = folder / "recording.npz"
    np.savez(file, observations=observed(y), actions=pushed * a, dt=DT * clock)
    began = time.monotonic()
    result = ten.fit(
        file,
        folder / "run",
        settings={"steps": steps, "members": seeds},
        overwrite=True,
        quiet=True,
    )
    verdict: Any = ten.evaluate(result)
    k = [ahead - 1 for ahead in AHEAD]
    found = {
        "r2": verdict.r2[:, k],
        "mean_r2": verdict.r2[:, k].mean(0),
        "arx_r2": verdict.arx_r2[0, k],
    }
    return {
        "variant": variant,
        **{name: np.round(values, 5).tolist() for name, values in found.items()},
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=VARIANTS,
        default=list(VARIANTS),
        help="others are held to the first",
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for variant in arguments.only:
            rows.append(fitted(variant, arguments.steps, arguments.seeds, Path(folder)))
            rows[-1]["off"] = float(
                np.round(np.abs(np.subtract(rows[-1]["mean_r2"], rows[0]["mean_r2"])).max(), 5)
            )
            print(
                f"{variant:26} R² {rows[-1]['mean_r2']}  off by {rows[-1]['off']:.5f}  "
                f"{rows[-1]['seconds']:.0f} s",
                flush=True,
            )
    setting = {
        "steps": arguments.steps,
        "seeds": arguments.seeds,
        "episodes": EPISODES,
        "rows": STEPS,
        "dt": DT,
        "ahead": AHEAD,
    }
    arguments.out.write_text(
        json.dumps(
            {
                "machine": machine_card(),
                "versions": versions(),
                "setting": setting,
                "near": NEAR,
                "rows": rows,
            },
            indent=1,
        )
        + "\n"
    )
    return int(max(row["off"] for row in rows) > NEAR)


if __name__ == "__main__":
    sys.exit(main())
