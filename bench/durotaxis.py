"""What colonies learn, on substrates that no training saw, into bench/results/durotaxis.json.

    python bench/durotaxis.py RUN [RUN …]      folders of trained runs, one for each seed, such as
    runs/durotaxis/seed-*

Each run's best checkpoint plays EPISODES episodes of seeds far from its own: a policy trained on
`random` substrates is tried on linear and exponential ones, one trained on `bend` on other bends;
as its settings say (greedy or sampled) and, in mode ratio, with deletions rounded down. Yardsticks:
the same network before training on the same episodes, the best constant action of a grid search and
the scripted follower. A run's rows replace those of the same substrate, mode and seed; other rows
stay.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from measure import FOLDER, write

from tenfold.core.errors import UserError
from tenfold.core.registry import domain_of
from tenfold.core.system import set_threads
from tenfold.domains.durotaxis.arguments import Deployment
from tenfold.domains.durotaxis.baselines import constant_policy, follower_policy, play
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.domains.durotaxis.evaluation import STEADY
from tenfold.envs.arguments import split_name
from tenfold.evaluation.player import play as play_agent
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import read_rows
from tenfold.training.learners import agent_of, load

EPISODES, SCRIPTED, SEED = 200, 512, 10_000
Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    folder, run = RunFolder.open(path)
    if domain_of(run.env).name != "durotaxis":
        raise UserError(f"{path} is a run on {run.env}, and this table is of colonies.")
    arguments = split_name(run.env)[1]
    trained_on, mode = arguments.get("substrate", "linear"), arguments.get("mode", "ratio")
    steps = [row for row in read_rows(folder.metrics) if row["kind"] == "train"][-1]["step"]
    players: dict[str, Any] = {"": load(path, "best"), "untrained": agent_of(run)}
    rows = []
    for substrate in ["bend"] if trained_on == "bend" else ["linear", "exponential"]:
        for floor in (False, True) if mode == "ratio" else (False,):
            env = Deployment(substrate=substrate, deterministic=floor).env(run.env)
            for yardstick, agent in players.items():
                score = play_agent(
                    env,
                    agent,
                    agent.policy(run.eval_policy),
                    EPISODES,
                    SEED,
                    limit=run.episode_limit,
                )
                row = {
                    "trained_on": trained_on,
                    "mode": mode,
                    "seed": run.seed,
                    "steps": 0 if yardstick else steps,
                    "substrate": substrate,
                    "policy": run.eval_policy,
                    "rounding": "floor" if floor else "stochastic",
                    "episodes": EPISODES,
                    "success": score.success_rate,
                    "steps_to_goal": score.steps_to_goal,
                    "env": env,
                }
                rows.append(({"yardstick": yardstick} if yardstick else {}) | row)
                print(json.dumps(rows[-1]), flush=True)
    return rows


def scripted_rows() -> list[Row]:
    rows = []
    for substrate in ("linear", "exponential", "bend"):
        for mode in ("ratio", "nodes"):
            env = f"tenfold/Durotaxis-v0(mode={mode},substrate={substrate})"
            policies = {"follower": follower_policy} | (
                {"constant": constant_policy(STEADY)} if mode == "ratio" else {}
            )
            for name, policy in policies.items():
                score = play(DurotaxisEnvironments(env, 64, SEED), policy, SCRIPTED)
                rows.append(
                    {
                        "yardstick": name,
                        "mode": mode,
                        "substrate": substrate,
                        "episodes": score.episodes,
                        "success": score.success_rate,
                        "steps_to_goal": score.steps_to_goal,
                        "env": env,
                    }
                )
    return rows


def owner(row: Row) -> tuple[Any, ...]:
    """What a row replaces rows of: a run, or a scripted policy on a substrate."""
    if "seed" in row:
        return row["trained_on"], row["mode"], row["seed"]
    return row["yardstick"], row["mode"], row["substrate"]


def merged(old: list[Row], new: list[Row]) -> list[Row]:
    """All of the new rows, and the old ones of other runs; runs by mode, substrate and seed, then
    scripted policies."""
    replaced = {owner(row) for row in new}

    def sort_key(row: Row) -> tuple[Any, ...]:
        runs = (
            (row["mode"] == "nodes", row["trained_on"] != "random", row["trained_on"], row["seed"])
            if "seed" in row
            else ()
        )
        return ("seed" not in row, *runs)

    return sorted([row for row in old if owner(row) not in replaced] + new, key=sort_key)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Plays trained colonies on substrates that no training saw; their rows in "
        "bench/results/durotaxis.json are replaced, all others stay."
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a trained run's folder, such as runs/durotaxis/seed-0",
    )
    runs = parser.parse_args().runs
    set_threads(1)
    try:
        new = [row for path in runs for row in rows_of(path)]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    file = FOLDER / "results" / "durotaxis.json"
    write(
        "durotaxis",
        merged(
            json.loads(file.read_text())["rows"] if file.exists() else [], new + scripted_rows()
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
