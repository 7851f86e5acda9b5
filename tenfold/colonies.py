"""How a colony's policy does, on its own substrates and on others: successes beside policies that nobody trained, every episode's
way as tables and pictures."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.envs.durotaxis import DurotaxisEnvironments
from tenfold.envs.durotaxis_api import DurotaxisEnv
from tenfold.envs.durotaxis_baselines import constant_policy, follower_policy, play, random_policy
from tenfold.envs.durotaxis_setting import ACTIONS
from tenfold.envs.durotaxis_view import TRAJECTORY, heat_map, write_trajectories
from tenfold.envs.vector import COLONY, split_name
from tenfold.errors import UserError
from tenfold.ops.random import Purpose
from tenfold.playing import Score, episode_seeds
from tenfold.record.files import replace_file

STEADY = (0.5, 15.0, 0.5, 0.5, 0.0)  # far to the right, the population kept: the best constant action on monotone substrates
YARDSTICK = 128  # episodes of the policies that nobody trained
PANELS = 6


def is_colony(env: str) -> bool:
    return split_name(env)[0] == COLONY


@dataclass(frozen=True)
class Deployment:
    """Where a trained policy is tried: what is empty stays as in training. `deterministic` takes the most probable action and
    rounds the number of deletions down."""

    substrate: str = ""
    size: str = ""
    nodes: int | None = None
    deterministic: bool = False

    def env(self, trained_in: str) -> str:
        """The environment's name there."""
        changed = {"substrate": self.substrate, "size": self.size, "init_nodes": self.nodes,
                   "rounding": "floor" if self.deterministic else ""}
        wanted = {name: value for name, value in changed.items() if value}
        if not wanted:
            return trained_in
        if not is_colony(trained_in):
            raise UserError("--substrate, --size, --nodes and --deterministic are for colonies, and this run is on "
                            f"{trained_in}.")
        arguments = split_name(trained_in)[1]
        if self.substrate:  # its own slope and intercept, not those of the one trained on
            arguments = {name: value for name, value in arguments.items() if name not in ("slope", "intercept")}
        return f"{COLONY}({','.join(f'{name}={value}' for name, value in (arguments | wanted).items())})"

    @property
    def folder(self) -> str:
        parts = (self.substrate.replace("/", "-"), self.size, f"{self.nodes} nodes" if self.nodes else "",
                 "deterministic" if self.deterministic else "")
        return "-".join(filter(None, parts)).replace(" ", "-") or "as-trained"


def judge(env: str, score: Score, seed: int, folder: Path) -> dict[str, Any]:
    """Successes and steps to the goal beside the yardsticks', into `folder` with the way of every episode."""
    ways = [info["trajectory"] for info in score.infos if "trajectory" in info]
    if len(ways) < score.episodes:
        raise UserError("An episode was cut off before its end: raise episode_limit in config.yaml.")
    endings = [info["ending"] for info in score.infos]
    won = [length for length, info in zip(score.lengths, score.infos, strict=True) if info["success"]]
    found: dict[str, Any] = {
        "success_rate": score.success_rate, "steps_to_goal": float(np.mean(won)) if won else None,
        "endings": {ending: endings.count(ending) / len(endings) for ending in sorted(set(endings))},
        "yardsticks": yardsticks(env, seed), "folder": str(folder)}
    folder.mkdir(parents=True, exist_ok=True)
    write_trajectories(folder / "trajectories.csv", ways)
    first = TRAJECTORY.index(ACTIONS[0])
    episodes = [{"ending": ending, "success": info["success"], "steps": length, "return": ret,
                 **dict(zip(ACTIONS, np.nanmean(way[1:, first:first + len(ACTIONS)], 0).tolist(), strict=True))}
                for way, ending, info, length, ret in zip(ways, endings, score.infos, score.lengths, score.returns, strict=True)]
    replace_file(folder / "episodes.json", json.dumps({"env": env, **found, "each": episodes}, indent=1).encode())
    replace_file(folder / "paths.png", draw_paths(env, ways, seed, endings))
    return found


def yardsticks(env: str, seed: int) -> dict[str, dict[str, float | None]]:
    """Random actions, a constant one and the scripted follower of gradients, on as many episodes each."""
    policies = {"random": random_policy(seed), "follower": follower_policy}
    if split_name(env)[1].get("mode", "ratio") == "ratio":
        numbers = 1 if split_name(env)[1].get("learn") == "delete_ratio" else len(ACTIONS)
        policies["constant"] = constant_policy(STEADY[:numbers])
        if numbers == 1:
            policies = {"constant": policies["constant"]}
    scores = {name: play(DurotaxisEnvironments(env, 64, seed), policy, YARDSTICK) for name, policy in policies.items()}
    return {name: {"success_rate": score.success, "steps_to_goal": score.steps if score.success else None}
            for name, score in scores.items()}


def draw_paths(env: str, ways: list[np.ndarray], seed: int, endings: list[str]) -> bytes:
    """The centroid's way through the first episodes, each on its own substrate."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    shown = min(PANELS, len(ways))
    figure = Figure(figsize=(10, 2.6 * -(-shown // 2)), layout="constrained")
    FigureCanvasAgg(figure)
    stage = DurotaxisEnv(**split_name(env)[1])
    rules, colonies = stage.inner.rules, stage.inner.colonies
    for place, own in enumerate(episode_seeds(seed, Purpose.EVALUATE, shown)):
        stage.reset(seed=own)
        axes = figure.add_subplot(-(-shown // 2), 2, place + 1)
        axes.imshow(heat_map(rules, colonies, 0), extent=(0, rules.width, 0, rules.height), aspect="auto")
        axes.plot(ways[place][:, 2], ways[place][:, 3], ".-", color="tab:red", markersize=3)
        axes.axvline(rules.goal, color="white", linewidth=0.8)
        axes.set(title=f"episode {place}: {endings[place]} after {len(ways[place]) - 1} steps", xlim=(0, rules.width),
                 ylim=(0, rules.height))
        axes.title.set_fontsize(9)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=90)
    return content.getvalue()


def sentences(found: dict[str, Any]) -> str:
    """For a terminal."""
    def told(rate: float, steps: float | None) -> str:
        return f"{rate:7.1%}" + (f"   {steps:6.1f} steps to the goal" if steps is not None else "")
    lines = [f"  success  {told(found['success_rate'], found['steps_to_goal'])}"]
    lines += [f"  {name:<9}{told(own['success_rate'], own['steps_to_goal'])}" for name, own in found["yardsticks"].items()]
    ends = ", ".join(f"{ending} {share:.0%}" for ending, share in found["endings"].items())
    return "\n".join([*lines, f"  ended by {ends}", f"  tables   {found['folder']}: trajectories.csv, episodes.json, paths.png"])
