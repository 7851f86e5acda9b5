"""Evaluates a colony's policy on the substrates of training or on others: success rates compared
with untrained and scripted policies, trajectories as tables and pictures."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.random import Purpose
from tenfold.domains.durotaxis.api import DurotaxisEnv
from tenfold.domains.durotaxis.arguments import Deployment
from tenfold.domains.durotaxis.baselines import (
    constant_policy,
    follower_policy,
    play,
    random_policy,
)
from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments
from tenfold.domains.durotaxis.setting import ACTIONS, COMPONENTS, read_setting
from tenfold.domains.durotaxis.substrate import Extent, Ground, SubstrateKind
from tenfold.domains.durotaxis.view import TRAJECTORY, field, heat_colours, write_trajectories
from tenfold.envs.adapter import episode_seeds
from tenfold.envs.arguments import split_name
from tenfold.evaluation.evaluate import EvaluatedRun
from tenfold.evaluation.player import Score
from tenfold.runs.charts import as_png, new_figure
from tenfold.runs.file_schema import NUMBER, TEXT, WHOLE, Schema, maybe, read_json
from tenfold.runs.page import Section, image, paragraph, table
from tenfold.runs.storage import replace_file

# far to the right, the population kept: the best constant action on monotone substrates
STEADY = (0.5, 15.0, 0.5, 0.5, 0.0)
YARDSTICK = 128  # episodes of the scripted policies
PANELS = 6
TICKS = (0, 1, 3, 10, 30, 100, 300, 1000, 10_000, 100_000, 1_000_000)  # of stiffness


def deployment_name(played: EvaluatedRun) -> str:
    """The conditions of the evaluation."""
    return Deployment.of(played.options).description


def tables_folder(played: EvaluatedRun) -> Path:
    """The folder of tables and pictures: one for every checkpoint, deployment, seed and number of
    episodes, so that no evaluation overwrites another."""
    name = (
        f"{deployment_name(played)}, step {played.step}, seed {played.seed}, "
        f"{played.episodes} episodes"
    )
    return played.path / "eval" / re.sub(r"[^\w.]+", "-", name).strip("-.")


def evaluate(played: EvaluatedRun) -> dict[str, Any]:
    """Success rates and steps to the goal, compared with the untrained policy and with scripted
    ones, which several seeds share. Writes tables, trajectories and pictures."""
    score, folder = played.score, tables_folder(played)
    trajectories = [info["trajectory"] for info in score.infos if "trajectory" in info]
    if len(trajectories) < score.episodes:
        raise UserError(
            "An episode was cut off before its end: raise episode_limit in config.yaml."
        )
    known = played.first.get("yardsticks", {})
    scripted = {name: rate for name, rate in known.items() if name != "untrained"}
    untrained = success_scores(played.play(played.untrained()))
    endings = [info["ending"] for info in score.infos]
    result: dict[str, Any] = {
        **success_scores(score),
        "endings": {
            ending: endings.count(ending) / len(endings) for ending in sorted(set(endings))
        },
        "yardsticks": {
            "untrained": untrained,
            **(scripted or yardsticks(played.env, played.seed)),
        },
        "folder": str(folder),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_trajectories(folder / "trajectories.csv", trajectories)
    episodes = [
        {
            "ending": ending,
            "success": info["success"],
            "steps": length,
            "return": ret,
            **mean_numbers(trajectory),
        }
        for trajectory, ending, info, length, ret in zip(
            trajectories, endings, score.infos, score.lengths, score.returns, strict=True
        )
    ]
    tables = {**evaluation_metadata(played), **result, "each": episodes}
    replace_file(folder / "episodes.json", json.dumps(tables, indent=1, allow_nan=False).encode())
    replace_file(folder / "paths.png", as_png(paths_figure(played, trajectories, endings)))
    return result


def evaluation_metadata(played: EvaluatedRun) -> dict[str, Any]:
    """Run, checkpoint and conditions of the evaluation."""
    setting = read_setting(**split_name(played.env)[1])
    return {
        "env": played.env,
        "where": deployment_name(played),
        "checkpoint": played.checkpoint,
        "step": played.step,
        "seed": played.seed,
        "episodes": played.episodes,
        "policy": played.policy,
        "rounding": setting.rounding,
        "weights": dict(zip(COMPONENTS, setting.component_weights.tolist(), strict=True)),
    }


def success_scores(score: Score) -> dict[str, Any]:
    return {
        "success_rate": score.success_rate,
        "steps_to_goal": score.steps_to_goal,
        "episodes": score.episodes,
    }


def pool_scores(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Success rates of several policies pooled over all of their episodes."""
    won = [result["success_rate"] * result["episodes"] for result in results]
    steps = sum(n * result["steps_to_goal"] for n, result in zip(won, results, strict=True) if n)
    episodes = sum(result["episodes"] for result in results)
    return {
        "success_rate": sum(won) / episodes,
        "steps_to_goal": steps / sum(won) if sum(won) else None,
        "episodes": episodes,
    }


def mean_numbers(trajectory: np.ndarray) -> dict[str, float | None]:
    """Means of the action's numbers over an episode; None where no step had one, such as gamma
    where no node spawned."""
    first = TRAJECTORY.index(ACTIONS[0])
    columns = [
        column[~np.isnan(column)] for column in trajectory[1:, first : first + len(ACTIONS)].T
    ]
    return {
        name: float(column.mean()) if column.size else None
        for name, column in zip(ACTIONS, columns, strict=True)
    }


def yardsticks(env: str, seed: int) -> dict[str, dict[str, Any]]:
    """Scores of baselines over YARDSTICK episodes: random actions, a constant one, the scripted
    follower of gradients."""
    arguments = split_name(env)[1]
    if arguments.get("learn") == "delete_ratio":
        policies = {"constant": constant_policy(STEADY[:1])}
    else:
        policies = {"random": random_policy(seed), "follower": follower_policy}
        if arguments.get("mode", "ratio") == "ratio":
            policies["constant"] = constant_policy(STEADY)
    return {
        name: success_scores(play(DurotaxisEnvironments(env, 64, seed), policy, YARDSTICK))
        for name, policy in policies.items()
    }


def paths_figure(played: EvaluatedRun, trajectories: list[np.ndarray], endings: list[str]) -> Any:
    """The centroid's path through the first episodes, each on its substrate, with one scale of
    colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import FuncNorm, ListedColormap

    panel_count = min(PANELS, len(trajectories))
    rows = -(-panel_count // 2)
    figure = new_figure(10, 2.8 * rows + 0.4)
    stage = DurotaxisEnv(**split_name(played.env)[1])
    rules, colonies = stage.inner.rules, stage.inner.colonies
    grounds, names, goals = [], [], []
    for episode_seed in episode_seeds(played.seed, Purpose.EVALUATE, panel_count):
        stage.reset(seed=episode_seed)
        grounds.append(field(rules, colonies, 0).copy())
        goals.append(float(colonies.extent[0, Extent.GOAL]))
        names.append(
            SubstrateKind(int(colonies.ground[0, Ground.KIND]))
            .name.lower()
            .replace("grid", "own substrate")
        )
    most = max(float(ground.max()) for ground in grounds) or 1.0
    # as `brightness`, but one for all panels
    scale = FuncNorm((lambda i: np.log1p(np.maximum(i, 0)), np.expm1), 0, most)
    colours = ListedColormap(heat_colours(np.linspace(0, 1, 256)) / 255)
    panels = []
    for number, (ground, name, path) in enumerate(zip(grounds, names, trajectories, strict=False)):
        axes, (height, width) = figure.add_subplot(rows, 2, number + 1), ground.shape
        axes.imshow(
            ground,
            colours,
            scale,
            extent=(0, width, 0, height),
            aspect="auto",
            origin="lower",
        )
        axes.plot(path[:, 2], path[:, 3], ".-", color="tab:red", markersize=3)
        axes.axvline(goals[number], color="white", linewidth=0.8)
        axes.set(
            title=f"episode {number}, {name}: {endings[number]} after {len(path) - 1} steps",
            xlim=(0, width),
            ylim=(0, height),
            xlabel="x",
            ylabel="y",
        )
        axes.title.set_fontsize(9)
        panels.append(axes)
    figure.colorbar(
        ScalarMappable(scale, colours),
        ax=panels,
        label="stiffness (intensity I), logarithmic",
        fraction=0.04,
        ticks=[tick for tick in TICKS if tick <= most],
    )
    figure.suptitle(
        f"{deployment_name(played)}, checkpoint of step {played.step:,}, {played.policy}",
        fontsize=10,
    )
    return figure


def lines(result: dict[str, Any]) -> list[str]:
    """The results as text."""
    return [
        *success_lines(result, result["yardsticks"]),
        f"  ended by {shares(result['endings'])}",
        f"  tables   {result['folder']}: trajectories.csv, episodes.json, paths.png",
    ]


def lines_of_seeds(members: list[dict[str, Any]]) -> list[str]:
    """The pooled results of all seeds as text."""
    untrained = pool_scores([result["yardsticks"]["untrained"] for result in members])
    return [
        *success_lines(pool_scores(members), members[0]["yardsticks"] | {"untrained": untrained}),
        "  tables   " + "\n           ".join(result["folder"] for result in members),
    ]


def success_lines(result: dict[str, Any], others: dict[str, dict[str, Any]]) -> list[str]:
    """Success rates of the trained policy and of the baselines, with the number of episodes."""
    lines = ["  reached the goal"]
    for name, score in {"trained": result, **others}.items():
        steps = "" if score["steps_to_goal"] is None else f"{score['steps_to_goal']:6.1f} steps"
        rate, episodes = score["success_rate"], score["episodes"]
        lines.append(f"    {name:<10}{rate:7.1%}   {steps:<14} of {episodes} episodes")
    return lines


def shares(endings: dict[str, float]) -> str:
    return ", ".join(f"{ending} {share:.0%}" for ending, share in endings.items())


# what a run's page shows of an evaluation


AGAIN = "`tenfold eval` writes it anew"
SUCCESSES: dict[Any, Schema] = {
    "success_rate": NUMBER,
    "episodes": WHOLE,
    "steps_to_goal": maybe(NUMBER),
}
EPISODES_JSON: Schema = {  # what `tenfold eval` leaves in episodes.json
    **SUCCESSES,
    "where": TEXT,
    "step": WHOLE,
    "seed": WHOLE,
    "policy": TEXT,
    "rounding": TEXT,
    "yardsticks": {...: SUCCESSES},
}


def sections(path: Path) -> list[Section]:
    return [evaluation_section(picture) for picture in sorted(path.glob("eval/*/paths.png"))]


def evaluation_section(drawn: Path) -> Section:
    """The section of one evaluation. Its title names the checkpoint, so that an early one is not
    mistaken for the run's result."""
    try:
        result = read_json(drawn.parent / "episodes.json", EPISODES_JSON, AGAIN)
    except UserError as error:
        return Section("", paragraph(error))
    untrained = not result["step"]
    title = (
        f"Evaluation: {result['where']}, checkpoint of step "
        f"{result['step']:,}{' (untrained)' if untrained else ''}, seed {result['seed']}, "
        f"{result['episodes']} episodes"
    )
    cells = {
        "policy": result["policy"],
        "rounding of deletions": result["rounding"],
        "untrained (step 0)" if untrained else "trained": summary(result),
        **{name: summary(score) for name, score in result["yardsticks"].items()},
    }
    picture = image(drawn.read_bytes(), "the centroid's way through several episodes")
    return Section(title, table(cells) + picture)


def summary(score: dict[str, Any]) -> str:
    """The success rate, and the steps to the goal."""
    steps = score["steps_to_goal"]
    return f"success {score['success_rate']:.1%} of {score['episodes']} episodes" + (
        "" if steps is None else f", {steps:.1f} steps to the goal"
    )
