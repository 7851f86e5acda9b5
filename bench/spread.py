"""Three agents that cover three landmarks (mpe2.simple_spread_v3): the preset `simple-spread`, one
network for all agents by ppo, beside dqn with its defaults, a network for each agent, and random
actions.

    python bench/spread.py [--who ppo,dqn] [--seeds 0,1,2,3,4] [--missing]

Both train for the preset's steps; the measure is the mean return of an agent over 200 greedy
episodes that no training saw, by seed. Settings were chosen on seeds from 100 on. Rows that
bench/results/spread.json holds already are replaced one by one.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tenfold as ten
from tenfold.config.files import named
from tenfold.core.random import Purpose
from tenfold.core.system import machine_card, versions
from tenfold.evaluation.player import play, random_policy
from tenfold.runs.statistics import bootstrap_interval

FILE = Path(__file__).parent / "results" / "spread.json"
PRESET, EPISODES, JUDGED = "simple-spread", 200, 10_000  # the last: seed of the episodes
COMMANDS = {
    "ppo": "tenfold train simple-spread",
    "dqn": 'tenfold train dqn --env "pettingzoo/mpe2.simple_spread_v3(N=3)" --steps 100k',
}


def learn(who: str, seed: int) -> dict[str, Any]:
    preset = named(PRESET)
    # evaluations in between choose nothing here, and cost time
    common: dict[str, Any] = {"seed": seed, "eval_every": 0}
    with tempfile.TemporaryDirectory() as folder:
        start, out = time.monotonic(), Path(folder) / "run"
        if who == "ppo":
            ten.train(PRESET, out, quiet=True, report=False, **common)
        else:
            more = {"env": preset.env, "steps": preset.steps}
            ten.train(who, out, quiet=True, report=False, **more, **common)
        minutes = (time.monotonic() - start) / 60
        agent = ten.load(out)
    policy = agent.policy("greedy")
    score = play(preset.env, agent, policy, EPISODES, JUDGED, Purpose.EVALUATE)
    chance = play(preset.env, agent, random_policy(agent, JUDGED), EPISODES, JUDGED)
    return {
        "who": who,
        "seed": seed,
        "command": f"{COMMANDS[who]} --seed {seed}",
        "steps": preset.steps,
        "return": score.mean_return,
        "random": chance.mean_return,
        "episodes": EPISODES,
        "minutes": round(minutes, 2),
    }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = []
    for who in COMMANDS:
        own = sorted((row for row in rows if row["who"] == who), key=lambda row: row["seed"])
        if own:
            returns = np.array([row["return"] for row in own])
            low, high = bootstrap_interval(returns)
            random = float(np.mean([row["random"] for row in own]))
            lines.append(
                {
                    "who": who,
                    "command": COMMANDS[who],
                    "seeds": [row["seed"] for row in own],
                    "returns": returns.tolist(),
                    "mean": float(returns.mean()),
                    "interval": [float(low), float(high)],
                    "random": random,
                    "gain": float(returns.mean()) - random,
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--who", default="ppo,dqn")
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--missing", action="store_true", help="only what the file lacks")
    parser.add_argument("--out", type=Path, default=FILE)
    arguments = parser.parse_args()
    kept = json.loads(arguments.out.read_text())["rows"] if arguments.out.exists() else []
    rows = {(row["who"], row["seed"]): row for row in kept}
    for seed in map(int, arguments.seeds.split(",")):
        for who in arguments.who.split(","):
            if arguments.missing and (who, seed) in rows:
                continue
            rows[who, seed] = row = learn(who, seed)
            print(
                f"{who} seed {seed}: {row['return']:.2f} (random {row['random']:.2f}), "
                f"{row['minutes']:.1f} minutes",
                flush=True,
            )
            listed = sorted(rows.values(), key=lambda row: (row["who"], row["seed"]))
            found = {"machine": machine_card(), "versions": versions()}
            found |= {"table": summary(listed), "rows": listed}
            arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
