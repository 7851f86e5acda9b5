"""Does a preset's LAST checkpoint solve its task, whatever the seed? Each seed from 0 on, which no
setting was chosen by (that was on seeds from 100 on): CartPole's greedy return over 100 episodes,
and the makespan of the one greedy schedule of a job shop, checked.

    python bench/solved.py [NAME …]     writes bench/results/solved.json
    python bench/solved.py --first 100 --seeds 8 --set agent.lr=1e-3 NAME     a candidate, shown
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from measure import FOLDER, write

import tenfold as ten
from tenfold.config.files import named
from tenfold.core.system import set_threads

# seeds, what counts as solved, whether more is better, episodes
CASES: dict[str, tuple[int, float, bool, int]] = {
    "cartpole": (32, 475, True, 100),
    "jobshop-ft06": (16, 55, False, 1),
}


def judge(name: str, seed: int, change: dict[str, Any]) -> tuple[float, float]:
    """What the last policy of a seed reaches, and the processor's seconds of its training."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = ten.train(name, Path(folder) / "run", seed=seed, quiet=True, report=False, **change)
        seconds = time.process_time() - start
        score = ten.evaluate(run, episodes=CASES[name][3])
    spans = [info["makespan"] for info in score.infos if "makespan" in info]
    return (min(spans) if spans else score.mean_return), seconds


def row(name: str, first: int, seeds: int, change: dict[str, Any]) -> dict[str, Any]:
    _, bar, more, episodes = CASES[name]
    reached, spent = [], []
    for seed in range(first, first + seeds):
        value, seconds = judge(name, seed, change)
        print(f"{name} seed {seed}: {value:.1f} in {seconds:.1f} s", flush=True)
        reached.append(round(value, 2))
        spent.append(seconds)
    solved = sum(value >= bar if more else value <= bar for value in reached)
    return {
        "name": name,
        "steps": named(name).steps,
        "episodes": episodes,
        "first_seed": first,
        "bar": bar,
        "more_is_better": more,
        "reached": reached,
        "solved": solved,
        "cpu_seconds": round(sum(spent) / seeds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(CASES), metavar="NAME")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    arguments = parser.parse_args()
    set_threads(1)
    change = dict(setting.split("=", 1) for setting in arguments.set)
    file = FOLDER / "results" / "solved.json"
    rows = {r["name"]: r for r in (json.loads(file.read_text())["rows"] if file.exists() else [])}
    for name in arguments.names:
        found = row(name, arguments.first, arguments.seeds or CASES[name][0], change)
        if change or arguments.first or arguments.seeds:
            print(json.dumps(found))
            continue
        rows[name] = found
        write("solved", [rows[n] for n in CASES if n in rows])


if __name__ == "__main__":
    main()
