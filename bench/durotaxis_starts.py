"""How far a colony's policy carries: from 1 to 60 nodes at the start, on small and on large
substrates, into bench/results/durotaxis-starts.json.

    python bench/durotaxis_starts.py RUN [RUN …]          folders of trained runs, one for each seed
    python bench/durotaxis_starts.py RUN --into a.json    into a file of its own, on another machine
    python bench/durotaxis_starts.py a.json b.json        gathered from such files

Each run's best checkpoint plays EPISODES episodes of seeds far from its own in every cell of NODES
and SIZES, on new substrates of the kind that it was trained on, as its settings say (greedy or
sampled), and as it was trained. Beside them stand scripted policies: the follower of gradients and
the best constant action. A run's rows replace those of the same environment and seed; other rows
stay.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
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
from tenfold.evaluation.player import Score
from tenfold.evaluation.player import play as play_agent
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import read_rows
from tenfold.training.learners import load

EPISODES, SCRIPTED, SEED = 200, 512, 20_000
NODES = (1, 5, 20, 60)
SIZES = ("300x200", "600x400", "900x300")
RESULTS = FOLDER / "results" / "durotaxis-starts.json"
Row = dict[str, Any]


def metrics(score: Score) -> Row:
    return {
        "episodes": score.episodes,
        "success": score.success_rate,
        "steps_to_goal": score.steps_to_goal,
        "endings": dict(Counter(info["ending"] for info in score.infos)),
    }


def cells() -> list[Row]:
    return [{"size": size, "nodes": nodes} for size in SIZES for nodes in NODES]


def rows_of(path: Path, checkpoint: str, episodes: int) -> Iterator[Row]:
    folder, run = RunFolder.open(path)
    if domain_of(run.env).name != "durotaxis":
        raise UserError(f"{path} is a run on {run.env}, and this table is of colonies.")
    arguments = split_name(run.env)[1]
    steps = [row for row in read_rows(folder.metrics) if row["kind"] == "train"][-1]["step"]
    agent = load(path, checkpoint)
    policy = agent.policy(run.eval_policy)
    for cell in [{}, *cells()]:
        env = Deployment(**cell).env(run.env)
        score = play_agent(env, agent, policy, episodes, SEED, limit=run.episode_limit)
        row = {
            "env": run.env,
            "substrate": arguments.get("substrate", "linear"),
            "mode": arguments.get("mode", "ratio"),
            "seed": run.seed,
            "steps": steps,
            "policy": run.eval_policy,
            "size": "as trained",
            "nodes": "as trained",
        }
        yield row | cell | metrics(score)


def scripted_rows(substrate: str) -> list[Row]:
    rows = []
    for cell in cells():
        env = Deployment(**cell).env(f"tenfold/Durotaxis-v0(substrate={substrate})")
        for name, policy in (("follower", follower_policy), ("constant", constant_policy(STEADY))):
            score = play(DurotaxisEnvironments(env, 64, SEED), policy, SCRIPTED)
            rows.append({"yardstick": name, "substrate": substrate, **cell, **metrics(score)})
    return rows


def owner(row: Row) -> tuple[Any, ...]:
    """What a row replaces rows of: a run, or a scripted policy on a substrate."""
    if "seed" in row:
        return row["env"], row["seed"]
    return row["yardstick"], row["substrate"]


def merged(old: list[Row], new: list[Row]) -> list[Row]:
    """All of the new rows, and the old ones of other runs; by environment and seed, scripted
    policies last."""
    replaced = {owner(row) for row in new}
    kept = [row for row in old if owner(row) not in replaced]
    return sorted(kept + new, key=lambda row: ("seed" not in row, *owner(row)))


def rows_in(file: Path) -> list[Row]:
    try:
        return json.loads(file.read_text())["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{file} holds no rows of this benchmark.") from None


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Plays trained colonies from 1 to 60 nodes on small and large substrates."
    )
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a trained run's folder, such as runs/durotaxis/seed-0, or a file of --into",
    )
    parser.add_argument("--checkpoint", default="best", help="best (the default), last or a step")
    parser.add_argument("--episodes", type=int, default=EPISODES, help=f"in each cell ({EPISODES})")
    parser.add_argument(
        "--into", type=Path, metavar="FILE.json", help="the runs' rows alone, into this file"
    )
    options = parser.parse_args()
    set_threads(1)
    try:
        new: list[Row] = []
        for path in options.runs:
            if path.is_file():
                new += rows_in(path)
                continue
            for row in rows_of(path, options.checkpoint, options.episodes):
                print(json.dumps(row), flush=True)
                new.append(row)
                if options.into:  # row by row: what a time limit cuts off is not lost
                    options.into.write_text(json.dumps({"rows": new}, indent=1))
        if options.into:
            return 0
        for substrate in sorted({row["substrate"] for row in new}):
            new += scripted_rows(substrate)
        write("durotaxis-starts", merged(rows_in(RESULTS) if RESULTS.exists() else [], new))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
