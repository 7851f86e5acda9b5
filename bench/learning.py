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

from tenfold.core.system import machine_card, versions

RESULTS = Path(__file__).parent / "results" / "learning.json"
# what the options are tried on: plain values, in larger networks and batches than the preset's
OPTIONS = {
    "--agent.distribution": "none",
    "--agent.batch-size": "128",
    "--agent.every": "64",
    "--agent.updates": "32",
    "--agent.target": "hard(128)",
    "--agent.net.hidden": "256,256",
    "--agent.lr": "linear(1e-3, 0, 50k)",
}
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
    "cartpole-novel": ("cartpole-novel", [], 490),
}
# measured and shown, not promised: n_step=1 solves some seeds and not others, why was not
# investigated
SHOWN: dict[str, tuple[str, list[str], float]] = {
    "cartpole, n_step=1": ("cartpole", ["--agent.n-step", "1"], 475),
    # what the task asks for: the same without a memory, and with one layer in its place
    "cartpole-novel, no memory": (
        "cartpole-novel",
        ["--agent.net.memory", "none", "--agent.net.hidden", "64,64"],
        490,
    ),
}


def with_options(flags: list[str]) -> list[str]:
    """The settings that options of Q-learning are tried on, but for those that a case sets."""
    return [word for pair in OPTIONS.items() if pair[0] not in flags for word in pair] + flags


def learn(name: str, seed: int) -> dict[str, object]:
    """Trains and evaluates one case in processes of their own, as a user would."""
    preset, flags, bar = (CASES | SHOWN)[name]
    if preset == "cartpole":
        flags = with_options(flags)
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
    if arguments.cases != ";".join(CASES | SHOWN):  # those of the others stay
        others = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
        rows = [row for row in others if row["case"] not in arguments.cases.split(";")] + rows
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"machine": machine_card(), "versions": versions(), "rows": rows}, indent=1)
        + "\n"
    )


if __name__ == "__main__":
    main()
