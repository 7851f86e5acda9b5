"""Do the defaults learn? `tenfold train AGENT --env E --steps N` with nothing else, beside
Stable-Baselines3 with its own.

    python bench/defaults.py [--who tenfold,sb3] [--agents ppo,dqn] [--jobs 2] [--peers-python
    .venv-peers/bin/python]
    python bench/defaults.py --who tenfold --first 0 --rows tried.json
    --flags="--agent.normalize-obs true"   # a candidate

The measure is the greedy return of the FINAL policy, mean over 20 episodes; interquartile mean over
seeds with its 95 % bootstrap interval. Seeds of the table begin at 100: settings were chosen on
seeds below. Rows that bench/results/defaults.json holds already are replaced one by one, so that
both sides need not run in one go.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.system import machine_card, versions
from tenfold.runs.statistics import LEAST, bootstrap_interval, interquartile_mean

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "defaults.json"
FIRST = 100  # of the table's seeds
EPISODES = 20
# (agent, environment): steps, seeds; the longest first, so that no core idles at the end
TASKS: dict[tuple[str, str], tuple[int, int]] = {
    ("ppo", "BipedalWalker-v3"): (500_000, 3),
    ("ppo", "HalfCheetah-v5"): (200_000, 3),
    ("ppo", "Hopper-v5"): (200_000, 3),
    ("ppo", "LunarLander-v3"): (300_000, 5),
    ("dqn", "LunarLander-v3"): (300_000, 5),
    ("ppo", "Pendulum-v1"): (300_000, 5),
    ("ppo", "LunarLanderContinuous-v3"): (150_000, 5),
    ("dqn", "MountainCar-v0"): (150_000, 5),
    ("ppo", "Acrobot-v1"): (100_000, 5),
    ("dqn", "Acrobot-v1"): (100_000, 5),
    ("ppo", "CartPole-v1"): (100_000, 5),
    ("dqn", "CartPole-v1"): (100_000, 5),
}


def of_tenfold(agent: str, env: str, steps: int, seed: int, flags: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tenfold"]
        start = time.monotonic()
        subprocess.run(
            [
                *command,
                "train",
                agent,
                "--env",
                env,
                "--steps",
                str(steps),
                "--seed",
                str(seed),
                "--out",
                f"{folder}/run",
                "--quiet",
                *flags,
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        seconds = round(time.monotonic() - start, 1)
        done = subprocess.run(
            [
                *command,
                "eval",
                f"{folder}/run",
                "--episodes",
                str(EPISODES),
                "--seed",
                str(seed + 10_000),
                "--json",
            ],
            check=True,
            capture_output=True,
            text=True,
        )
    return {"return": json.loads(done.stdout)["mean_return"], "seconds": seconds}


def of_sb3(python: str, agent: str, env: str, steps: int, seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [
            python,
            str(HERE / "peers" / "sb3_learning.py"),
            "--agent",
            agent,
            "--env",
            env,
            "--steps",
            str(steps),
            "--seed",
            str(seed),
            "--episodes",
            str(EPISODES),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line for each task: both interquartile means with their intervals, and whether ours
    overlaps or lies above."""
    lines = []
    for (agent, env), (steps, _) in TASKS.items():
        line: dict[str, Any] = {"agent": agent, "env": env, "steps": steps}
        for who in ("tenfold", "sb3"):
            found = [
                row for row in rows if (row["who"], row["agent"], row["env"]) == (who, agent, env)
            ]
            returns = np.array([row["return"] for row in found])
            if len(returns):
                line[who] = {
                    "iqm": interquartile_mean(returns),
                    "interval": interval_or_none(returns),
                    "seeds": len(returns),
                    "seconds": sum(row["seconds"] for row in found) / len(found),
                    "returns": returns.tolist(),
                }
        if "tenfold" in line and "sb3" in line:
            ours, theirs = line["tenfold"], line["sb3"]
            highest, lowest = (ours["interval"] or [0, max(ours["returns"])])[1], theirs["interval"]
            line["at_least"] = bool(highest >= (lowest or [min(theirs["returns"])])[0])
        lines.append(line)
    return lines


def interval_or_none(returns: np.ndarray) -> list[float] | None:
    """Too few seeds carry none; then the table compares their ranges."""
    return [*map(float, bootstrap_interval(returns))] if len(returns) >= LEAST else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--who", default="tenfold,sb3")
    parser.add_argument("--agents", default="ppo,dqn")
    parser.add_argument("--envs", default="", help="only those with one of these in their name")
    parser.add_argument("--first", type=int, default=FIRST, help="the first seed")
    parser.add_argument("--seeds", type=int, help="how many, where the table has more")
    parser.add_argument(
        "--flags", default="", help="settings to try; the rows then go to --rows only"
    )
    parser.add_argument(
        "--rows", type=Path, default=RESULTS, help="the file that rows are merged into"
    )
    parser.add_argument("--missing", action="store_true", help="only what the file lacks")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--peers-python", default=".venv-peers/bin/python")
    arguments = parser.parse_args()
    if (arguments.flags or arguments.first != FIRST) and arguments.rows == RESULTS:
        parser.error("what is only tried does not belong into the table: give --rows FILE")
    wanted = [
        (who, agent, env, steps, arguments.first + seed)
        for (agent, env), (steps, count) in TASKS.items()
        for who in arguments.who.split(",")
        for seed in range(min(count, arguments.seeds or count))
        if agent in arguments.agents.split(",")
        and any(part in env for part in arguments.envs.split(","))
    ]
    wanted.sort(key=lambda job: (job[0] == "tenfold", -job[3]))  # ours are quick
    kept = json.loads(arguments.rows.read_text())["rows"] if arguments.rows.exists() else []
    rows = {(r["who"], r["agent"], r["env"], r["seed"], r["flags"]): r for r in kept}
    if arguments.missing:
        wanted = [job for job in wanted if (*job[:3], job[4], arguments.flags) not in rows]

    def learn(job: tuple[str, str, str, int, int]) -> dict[str, Any]:
        who, agent, env, steps, seed = job
        found = (
            of_sb3(arguments.peers_python, agent, env, steps, seed)
            if who == "sb3"
            else of_tenfold(agent, env, steps, seed, shlex.split(arguments.flags))
        )
        return {
            "who": who,
            "agent": agent,
            "env": env,
            "steps": steps,
            "seed": seed,
            "flags": arguments.flags,
            **found,
        }

    with ThreadPoolExecutor(arguments.jobs) as pool:
        for row in pool.map(learn, wanted):
            rows[row["who"], row["agent"], row["env"], row["seed"], row["flags"]] = row
            print(
                f"{row['who']:8} {row['agent']} {row['env']:26} seed {row['seed']}: "
                f"{row['return']:9.1f}, {row['seconds']:.0f} s {row['flags']}",
                flush=True,
            )
            listed = list(rows.values())
            arguments.rows.write_text(
                json.dumps(
                    {
                        "machine": machine_card(),
                        "versions": versions(),
                        "table": summary(listed),
                        "rows": listed,
                    },
                    indent=1,
                )
                + "\n"
            )


if __name__ == "__main__":
    main()
