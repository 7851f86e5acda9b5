"""What `tenfold eval` finds of one run, and how it says it."""

import json
from pathlib import Path
from typing import Any

from tenfold import colonies, jobshops
from tenfold.colonies import Deployment
from tenfold.envs.recording import is_recording
from tenfold.envs.treasure_play import yardsticks
from tenfold.envs.treasure_rules import is_gridworld
from tenfold.playing import film, judged_by, play, uniformly_random
from tenfold.record.files import replace_file
from tenfold.record.folder import RunFolder
from tenfold.training import Result, load


def is_explorer(path: Path) -> bool:
    return RunFolder.open(path)[1].agent.name == "explorer"


def scores(path: Path, checkpoint: str, episodes: int, seed: int | None, video: str | None, there: Deployment) -> dict[str, Any]:
    """The policy's returns, with the random policy's beside them; a colony may be tried elsewhere, `there`."""
    _, run = RunFolder.open(path)
    agent: Any = load(path, checkpoint)
    seed = run.seed if seed is None else seed
    env, how = there.env(run.env), "greedy" if there.deterministic else run.eval_policy
    policy = judged_by(agent, how)
    score = play(env, agent, policy, episodes, seed, limit=run.episode_limit)
    random = play(env, agent, uniformly_random(agent, seed), episodes, seed, limit=run.episode_limit)
    found: dict[str, Any] = {
        "run": str(path), "env": env, "policy": how, "checkpoint": checkpoint, "episodes": score.episodes,
        "mean_return": score.mean_return, "std_return": score.std_return, "returns": score.returns, "lengths": score.lengths,
        "random_mean_return": random.mean_return, "random_std_return": random.std_return}
    if score.infos[0].get("each"):
        found["agents"] = [sum(own) / len(own) for own in zip(*(info["each"] for info in score.infos), strict=True)]
    if jobshops.is_job_shop(run.env):
        judged = jobshops.judge(run, agent, seed, path)
        replace_file(path / "makespans.json", json.dumps(judged, indent=1).encode())  # for the report
        found |= judged
    if is_gridworld(run.env):
        found |= {f"{player}_mean_return": mean for player, mean in yardsticks(run.env).items()}
    if colonies.is_colony(env):
        folder = path / "eval" / there.folder
        found |= colonies.judge(env, score, seed, folder)
        video = str(folder / "colony.gif") if video is None else video
    if video is not None:
        file = Path(video) if video else path / "video.gif"
        found["video"], found["frames"] = str(file), film(env, agent, policy, seed, file)
    return found


def tell(found: dict[str, Any]) -> None:
    print(f"{found['env']}, checkpoint {found['checkpoint']}, {found['episodes']} episodes, {found['policy']}")
    print(f"  trained  {found['mean_return']:10.2f} ± {found['std_return']:.2f}   (least {min(found['returns']):.2f}, "
          f"most {max(found['returns']):.2f})")
    print(f"  random   {found['random_mean_return']:10.2f} ± {found['random_std_return']:.2f}")
    if "scripted_mean_return" in found:
        print(f"  scripted {found['scripted_mean_return']:10.2f}")
    if "agents" in found:
        print(f"  each     {'  '.join(f'{mean:.2f}' for mean in found['agents'])}")
    if "yardsticks" in found:
        print(colonies.sentences(found))
    if "optimum" in found:
        print(jobshops.sentences(found))
    if "video" in found:
        print(f"  video    {found['video']} ({found['frames']} frames)")


def onward(result: Result) -> str:
    """What can be done with a run that ended."""
    if is_recording(result.run.env):  # where nothing is played
        return f'judge it: tenfold eval {result.path}   ask it: tenfold.load("{result.path}").field(z)'
    return f"play it: tenfold eval {result.path}"


def tell_fit(row: dict[str, Any], where: str = "") -> None:
    """How well a model of the world fits, and on what."""
    if where:
        print(f"{where}:")
    if "field_error" in row:
        each = "  ".join(f"{error:.3f}" for error in row["field_errors"])
        print(f"error of the field: {row['field_error']:.3f} (0 is perfect, 1 a field of zeros)"
              + (f"; of each seed {each}" if len(row["field_errors"]) > 1 else ""))
    print(f"R² of observations 1 to {len(row['r2'])} steps ahead: {'  '.join(f'{value:.3f}' for value in row['r2'])}")
    if "arx_r2" in row:
        print(f"R² of ARX on the same data: {'  '.join(f'{value:.3f}' for value in row['arx_r2'])}")
    print(f"evidence bound: {row['elbo']:.3f} for each step")
