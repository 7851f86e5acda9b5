"""How good are fits behind much noise? The limit cycle whose observations err by 1 (an encoder's
reading then errs by ten times the noise of a step), and a rotation read through 40 Poisson
channels; each by the fit to beliefs alone and by the least error of predictions (Gauss-Newton).
Every row is written as it ends; a second call does what is missing. Writes bench/results/noisy.json
with the machine card.

    python bench/noisy.py [--seeds 4] [--first 200] [--minutes 9] [--out FILE]
    python bench/noisy.py --show
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

# before anything loads a BLAS
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

import tenfold as ten  # noqa: E402
from tenfold.config.files import named  # noqa: E402
from tenfold.core.system import (  # noqa: E402
    machine_card,
    set_threads,
    versions,
)
from tenfold.domains.dynamics import closed_form  # noqa: E402
from tenfold.domains.dynamics.learner import ExplorerLearner  # noqa: E402
from tenfold.domains.dynamics.model_metrics import evaluate_model  # noqa: E402
from tenfold.domains.dynamics.validation import random_recordings  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "noisy.json"
# the most coefficients for Gauss-Newton
WAYS = {"beliefs": 0, "prediction error": closed_form.MOST}
ENV, STEPS, RECORDINGS = "tenfold/LimitCycle-v0(scale=1.0)", 2_000, 128
# of the rotation: eigenvalues of a step, rows, time of a step, its noise, counts of a bin, gradient
# steps of the fit
TURN, ROWS, DT, NOISE, RATE, LOAD, UPDATES = -0.38 + 1.98j, 3_000, 0.1, 0.1, 0.2, 0.5, 1_000


def cycle(policy: str, seed: int) -> dict[str, Any]:
    """The error of the limit cycle's field after STEPS experiments."""
    run = named("limit-cycle", {"env": ENV, "seed": seed, "agent": {"planner": {"policy": policy}}})
    place = ExplorerLearner(run)
    place.warm_up()
    start, busy = time.monotonic(), time.process_time()
    while place.step < STEPS:
        place.round()
    spent = time.monotonic() - start, time.process_time() - busy
    found = evaluate_model(place.agent, random_recordings(ENV, RECORDINGS), arx=False)
    assert found.field_error is not None
    return {"error": round(float(found.field_error[0]), 4)} | seconds(spent)


def counts(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts [T, 40] of a rotation under random pushes, and these [T, 2]."""
    rng = np.random.default_rng(seed)
    step = np.eye(2) + DT * np.array([[TURN.real, -TURN.imag], [TURN.imag, TURN.real]])
    a, z = rng.uniform(-1, 1, (ROWS, 2)), np.zeros((ROWS, 2))
    for t in range(1, ROWS):
        z[t] = step @ z[t - 1] + DT * a[t - 1] + NOISE * rng.normal(size=2)
    loading = rng.normal(size=(40, 2)) / np.sqrt(2)
    return rng.poisson(RATE * np.exp(LOAD * z / z.std() @ loading.T)).astype(float), a


def rotation(seed: int) -> dict[str, Any]:
    """The eigenvalues that `ten.fit` finds, with its usual encoder and linear dynamics."""
    y, a = counts(seed)
    model = {"dynamics": "linear", "decoder": "loglinear", "noise": "poisson"}
    settings = {"steps": UPDATES, "eval_every": UPDATES, "seed": seed, "agent": {"model": model}}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counts.npz"
        np.savez(file, observations=y, actions=a, dt=DT)
        start, busy = time.monotonic(), time.process_time()
        run = ten.fit(file, Path(folder) / "run", settings=settings, quiet=True)
        spent = time.monotonic() - start, time.process_time() - busy
        agent: Any = ten.load(run.path)
        found = agent.fixed_points()[0].eigenvalues.mean[0]
    apart = abs(found.real + 1j * abs(found.imag) - TURN) / abs(TURN)
    return {
        "eigenvalue": [round(float(part), 4) for part in (found.real, abs(found.imag))],
        "apart": round(float(apart), 4),
    } | seconds(spent)


def seconds(spent: tuple[float, float]) -> dict[str, float]:
    return {"seconds": round(spent[0], 1), "busy_seconds": round(spent[1], 1)}


def show(out: Path) -> None:
    rows = json.loads(out.read_text())["rows"]
    for case in dict.fromkeys(row["case"] for row in rows):
        for way in WAYS:
            own = [row for row in rows if (row["case"], row["way"]) == (case, way)]
            if not own:
                continue
            if "error" in own[0]:
                errors = [row["error"] for row in own]
                words = f"error {np.mean(errors):.3f} ({min(errors):.3f} to {max(errors):.3f})"
            else:
                middle = np.mean([row["eigenvalue"] for row in own], 0)
                each = ", ".join("{:.2f} ± {:.2f}i".format(*row["eigenvalue"]) for row in own)
                off = max(row["apart"] for row in own)
                words = f"{middle[0]:.2f} ± {middle[1]:.2f}i ({each}), off by {off:.1%} at most"
            busy = np.mean([row["busy_seconds"] for row in own])
            print(f"{case:22} {way:17} {len(own)} seeds: {words}; {busy:.1f} s busy each")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument(
        "--first", type=int, default=200, help="settings were chosen looking at others"
    )
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--only", default="", help="cases, with commas between them")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true", help="only show what is there")
    arguments = parser.parse_args()
    if arguments.show:
        show(arguments.out)
        return
    set_threads(1)
    deadline = time.monotonic() + 60 * arguments.minutes
    cases = {
        "rotation": rotation,
        "limit-cycle active": lambda seed: cycle("active", seed),
        "limit-cycle random": lambda seed: cycle("random", seed),
    }
    rows = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
    there = {(row["case"], row["way"], row["seed"]) for row in rows}
    wanted = [
        (case, way, seed)
        for seed in range(arguments.first, arguments.first + arguments.seeds)
        for case in (arguments.only.split(",") if arguments.only else cases)
        for way in WAYS  # one after the other, so that both meet the same machine
    ]
    for case, way, seed in wanted:
        if (case, way, seed) in there or time.monotonic() > deadline:
            continue
        closed_form.MOST = WAYS[way]
        rows.append({"case": case, "way": way, "seed": seed, **cases[case](seed)})
        setting = {"env": ENV, "steps": STEPS, "recordings": RECORDINGS, "rows": ROWS, "rate": RATE}
        content = {"machine": machine_card(), "versions": versions(), "setting": setting}
        arguments.out.write_text(json.dumps(content | {"rows": rows}, indent=1) + "\n")
        print(rows[-1], flush=True)
    show(arguments.out)


if __name__ == "__main__":
    main()
