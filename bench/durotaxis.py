"""What colonies learn, on substrates that no training saw, into bench/results/durotaxis.json.

    python bench/durotaxis.py RUN [RUN …]      folders of trained runs, one for each seed, such as runs/durotaxis/seed-*

Each run's best checkpoint plays EPISODES episodes of seeds far from its own: a policy trained on `random` substrates is tried on
linear and exponential ones, one trained on `bend` on other bends; as its settings say (greedy or sampled) and, in mode ratio,
with deletions rounded down. Yardsticks: the best constant action of a grid search and the scripted follower.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tenfold.colonies import STEADY, Deployment
from tenfold.engines.fused import set_threads
from tenfold.envs.durotaxis import DurotaxisEnvironments
from tenfold.envs.durotaxis_baselines import constant_policy, follower_policy, play
from tenfold.envs.vector import split_name
from tenfold.measure import write
from tenfold.playing import judged_by
from tenfold.playing import play as play_agent
from tenfold.record.folder import RunFolder
from tenfold.record.metrics import read_rows
from tenfold.training import load

EPISODES, SEED = 200, 10_000


def rows_of(path: Path) -> list[dict[str, Any]]:
    folder, run = RunFolder.open(path)
    arguments = split_name(run.env)[1]
    agent: Any = load(path, "best")
    trained = [row for row in read_rows(folder.metrics) if row["kind"] == "train"]
    where = ["bend"] if arguments["substrate"] == "bend" else ["linear", "exponential"]
    found = []
    for substrate in where:
        for floor in (False, True) if arguments.get("mode", "ratio") == "ratio" else (False,):
            env = Deployment(substrate=substrate, deterministic=floor).env(run.env)
            score = play_agent(env, agent, judged_by(agent, run.eval_policy), EPISODES, SEED, limit=run.episode_limit)
            won = [length for length, info in zip(score.lengths, score.infos, strict=True) if info["success"]]
            found.append({"trained_on": arguments["substrate"], "mode": arguments.get("mode", "ratio"), "seed": run.seed,
                          "steps": trained[-1]["step"], "substrate": substrate, "policy": run.eval_policy,
                          "rounding": "floor" if floor else "stochastic", "success": score.success_rate,
                          "steps_to_goal": sum(won) / len(won) if won else None, "env": env})
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    set_threads(1)
    rows = [row for path in map(Path, sys.argv[1:]) for row in rows_of(path)]
    for substrate in ("linear", "exponential", "bend"):
        for mode in ("ratio", "nodes"):
            env = f"tenfold/Durotaxis-v0(mode={mode},substrate={substrate})"
            policies = {"follower": follower_policy} | ({"constant": constant_policy(STEADY)} if mode == "ratio" else {})
            for name, policy in policies.items():
                score = play(DurotaxisEnvironments(env, 64, SEED), policy, 512)
                rows.append({"yardstick": name, "mode": mode, "substrate": substrate, "success": score.success,
                             "steps_to_goal": score.steps, "env": env})
    write("durotaxis", rows)


if __name__ == "__main__":
    main()
