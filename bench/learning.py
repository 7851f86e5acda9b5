"""Does it learn? The presets, and each option of the agent on CartPole, over several seeds: greedy
return of the FINAL checkpoint over 100 episodes. Writes bench/results/learning.json with the
machine card.

    python bench/learning.py [--cases NAME,…] [--seeds 3] [--jobs 2]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tenfold.runs.folder import machine_card, versions

RESULTS = Path(__file__).parent / "results" / "learning.json"
# name -> preset, flags on top, the return that counts as solved
CASES: dict[str, tuple[str, list[str], float]] = {
    "cartpole (double, n_step=3)": ("cartpole", [], 475),
    "cartpole, dueling": ("cartpole", ["--agent.dueling"], 475),
    "cartpole, prioritized": ("cartpole", ["--agent.replay", "prioritized"], 475),
    "cartpole, quantile": (
        "cartpole",
        ["--agent.distribution", "quantile(10)", "--agent.lr", "linear(2e-3, 0, 50k)"],
        475,
    ),
    "cartpole, implicit": (
        "cartpole",
        [
            "--agent.distribution",
            "implicit",
            "--agent.lr",
            "linear(2e-3, 0, 50k)",
            "--agent.net.hidden",
            "128,128",
            "--agent.batch-size",
            "64",
        ],
        475,
    ),
    "cartpole, noisy": (
        "cartpole",
        ["--agent.explore", "noisy", "--agent.learning-starts", "5k"],
        475,
    ),
    "cartpole, boltzmann": (
        "cartpole",
        ["--agent.explore", "boltzmann(exponential(2, 0.02, 20k))"],
        475,
    ),
    "catch": ("catch", [], 0.95),
    "pendulum-sac": ("pendulum-sac", [], -165),
}
# measured and shown, not promised: it solves some seeds and not others; why was not investigated
SHOWN: dict[str, tuple[str, list[str], float]] = {
    "cartpole, n_step=1": ("cartpole", ["--agent.n-step", "1"], 475)
}


def learn(name: str, seed: int) -> dict[str, object]:
    """Trains and evaluates one case in processes of their own, as a user would."""
    preset, flags, bar = (CASES | SHOWN)[name]
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        tenfold = [sys.executable, "-m", "tenfold"]
        start = time.monotonic()
        subprocess.run(
            [*tenfold, "train", preset, *flags, "--seed", str(seed), "--out", out, "--quiet"],
            check=True,
            capture_output=True,
        )
        seconds = time.monotonic() - start
        done = subprocess.run(
            [*tenfold, "eval", out, "--episodes", "100", "--json"],
            check=True,
            capture_output=True,
            text=True,
        )
    found = json.loads(done.stdout)
    return {
        "case": name,
        "preset": preset,
        "flags": flags,
        "seed": seed,
        "mean_return": found["mean_return"],
        "std_return": found["std_return"],
        "random_mean_return": found["random_mean_return"],
        "bar": bar,
        "solved": found["mean_return"] >= bar,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", default=";".join(CASES | SHOWN), help="names, separated by semicolons"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    wanted = [
        (name, seed) for name in arguments.cases.split(";") for seed in range(arguments.seeds)
    ]
    rows = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(lambda job: learn(*job), wanted):
            rows.append(row)
            verdict = "solved" if row["solved"] else "NOT SOLVED"
            print(
                f"{row['case']:26} seed {row['seed']}: {row['mean_return']:8.2f} (bar "
                f"{row['bar']}, random {row['random_mean_return']:.2f}) {row['seconds']:.0f} s "
                f"{verdict}",
                flush=True,
            )
    if arguments.cases == ";".join(CASES | SHOWN):
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(
            json.dumps({"machine": machine_card(), "versions": versions(), "rows": rows}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
