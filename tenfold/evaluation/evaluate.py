"""What `tenfold eval` and `ten.evaluate` find of a run, and how it is said."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.random import Purpose
from tenfold.domains.durotaxis import evaluation as colonies
from tenfold.domains.durotaxis.evaluation import Deployment, Trial
from tenfold.domains.dynamics.reporter import fit_lines
from tenfold.domains.jobshop import evaluation as jobshops
from tenfold.domains.treasure.play import yardsticks
from tenfold.domains.treasure.rules import is_gridworld
from tenfold.evaluation.player import Score, judged_by, play, uniformly_random
from tenfold.evaluation.video import film
from tenfold.runs.checkpoint import BEST, Checkpoints
from tenfold.runs.files import replace_file
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import latest_row, rank, read_rows
from tenfold.runs.seeds import SeedsFolder, left_out
from tenfold.runs.statistics import sentence, together
from tenfold.training.learners import agent_of, load
from tenfold.training.loop import Result

if TYPE_CHECKING:  # only explorers need it
    from tenfold.domains.dynamics.model_metrics import Verdict


def is_explorer(path: Path) -> bool:
    return RunFolder.open(path)[1].agent.name == "explorer"


def evaluate(
    run: Result | str | Path,
    episodes: int = 20,
    checkpoint: str | int = "last",
    seed: int | None = None,
    *,
    substrate: str | Path = "",
    size: str | tuple[int, int] = "",
    nodes: int | None = None,
    deterministic: bool = False,
    env: Any = None,
) -> "Score | Verdict":
    """Returns of a run's policy, greedy or as its settings say; of an explorer how well its model
    fits new recordings. `env` is the run's environment again, where it was an object or a function;
    `substrate` to `deterministic` try a colony elsewhere than it was trained, as the flags of
    `tenfold eval` do."""
    path = run.path if isinstance(run, Result) else Path(run)
    if episodes < 1:
        raise ConfigError("episodes", f"= {episodes} is out of range: it must be at least 1.")
    if not isinstance(substrate, str | Path):
        raise UserError(
            "substrate must be a name (linear, exponential, random, bend) or an .npy file's: save "
            "an array with numpy.save first."
        )
    there = Deployment(
        str(substrate or ""),
        "x".join(map(str, size)) if isinstance(size, tuple) else size,
        nodes,
        deterministic,
    )
    agent, (_, settings) = load(path, checkpoint, env), RunFolder.open(path)
    seed = settings.seed if seed is None else seed
    name, how = there.env(settings.env), there.policy(settings.eval_policy)
    if not isinstance(agent, DQNAgent | PPOAgent):
        from tenfold.domains.dynamics.model_metrics import judge, random_recordings

        return judge(agent, random_recordings(settings.env, episodes, Purpose.EVALUATE, seed))
    return play(name, agent, judged_by(agent, how), episodes, seed, limit=settings.episode_limit)


def scores(
    path: Path,
    checkpoint: str,
    episodes: int,
    seed: int | None,
    video: str | None,
    there: Deployment,
    scripted: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The policy's returns, with the random policy's beside them; a colony may be tried elsewhere,
    `there`. `scripted` are a colony's scripted yardsticks, where they are known already."""
    folder, run = RunFolder.open(path)
    agent: Any = load(path, checkpoint)
    seed = run.seed if seed is None else seed
    env, how = there.env(run.env), there.policy(run.eval_policy)
    trial = Trial(
        env,
        there.words,
        checkpoint,
        Checkpoints(folder, run.keep).policy(checkpoint)[1],
        seed,
        episodes,
        how,
    )
    policy = judged_by(agent, how)
    score = play(env, agent, policy, episodes, seed, limit=run.episode_limit)
    random = play(
        env, agent, uniformly_random(agent, seed), episodes, seed, limit=run.episode_limit
    )
    found: dict[str, Any] = {
        "run": str(path),
        "env": env,
        "policy": how,
        "checkpoint": checkpoint,
        "step": trial.step,
        "seed": seed,
        "episodes": score.episodes,
        "mean_return": score.mean_return,
        "std_return": score.std_return,
        "returns": score.returns,
        "lengths": score.lengths,
        "random_mean_return": random.mean_return,
        "random_std_return": random.std_return,
    }
    if checkpoint != "best" and there == Deployment():
        best = clearly_better(folder, found | {"success_rate": score.success_rate})
        found |= {"best": best} if best else {}
    if score.cut:
        found["cut"] = score.cut
    if score.each:
        found["agents"] = [sum(own) / len(own) for own in zip(*score.each, strict=True)]
    if jobshops.is_job_shop(run.env):
        judged = jobshops.judge(run, agent, seed, path)
        # for the report
        replace_file(path / "makespans.json", json.dumps(judged, indent=1).encode())
        found |= judged
    if is_gridworld(run.env):
        found |= {f"{player}_mean_return": mean for player, mean in yardsticks(run.env).items()}
    if colonies.is_colony(env):
        tables = path / "eval" / trial.folder
        fresh: Any = agent_of(run)
        untrained = play(env, fresh, judged_by(fresh, how), episodes, seed, limit=run.episode_limit)
        found |= colonies.judge(
            trial, score, untrained, scripted or colonies.yardsticks(env, seed), tables
        )
        video = str(tables / "colony.gif") if video is None else video
    if video is not None:
        file = Path(video) if video else path / "video.gif"
        found["video"], found["frames"] = str(file), film(env, agent, policy, seed, file)
    return found


def clearly_better(folder: RunFolder, played: dict[str, Any]) -> dict[str, Any] | None:
    """The evaluation that chose the best checkpoint, where what was `played`, of another step, is
    clearly worse than it: by more than two standard errors, and by more than a tenth of the range
    of what the run has been through."""
    rows = [row for row in read_rows(folder.metrics) if row["kind"] == "eval"]
    best = max(rows, key=rank, default=played)
    if best["step"] == played["step"] or not (folder.checkpoints / BEST).exists():
        return None
    if "success_rate" in best:
        p, q = best["success_rate"], played.get("success_rate") or 0.0
        gain, variances, spread = p - q, (p * (1 - p), q * (1 - q)), 1.0
    else:
        means = [played["mean_return"], *(row["mean_return"] for row in rows)]
        gain, spread = best["mean_return"] - played["mean_return"], max(means) - min(means)
        variances = best["std_return"] ** 2, played["std_return"] ** 2
    error = math.sqrt(variances[0] / best["episodes"] + variances[1] / played["episodes"])
    return best if gain > max(2 * error, spread / 10) else None


def evaluations(result: Result) -> str:
    """The last and the best of a run that ended, and which of its policies to take where they are
    far apart."""
    last = latest_row(result.path / "metrics.jsonl", "eval")
    told = "" if result.best_success is None else f", success {result.best_success:.1%}"
    found = f"last {last['mean_return']:.2f}, " if last else ""
    line = f"evaluations ({result.run.eval_policy}): {found}best {result.best_evaluation:.2f}{told}"
    if last and clearly_better(RunFolder.open(result.path)[0], last):
        line += (
            "\nNote: the last policy is clearly worse than the best one: "
            f"tenfold eval {result.path} --checkpoint best"
        )
    return line


def tell(found: dict[str, Any]) -> None:
    print(
        f"{found['env']}, checkpoint {found['checkpoint']} (step {found['step']:,}), "
        f"{found['episodes']} episodes, {found['policy']}"
    )
    print(
        f"  trained  {found['mean_return']:10.2f} ± {found['std_return']:.2f}   (least "
        f"{min(found['returns']):.2f}, most {max(found['returns']):.2f})"
    )
    print(f"  random   {found['random_mean_return']:10.2f} ± {found['random_std_return']:.2f}")
    if "cut" in found:
        print(
            f"  Note: {found['cut']} of {found['episodes']} episodes had not ended after "
            f"{max(found['lengths']):,} steps and were cut there (episode_limit)."
        )
    if "scripted_mean_return" in found:
        print(f"  scripted {found['scripted_mean_return']:10.2f}")
    if "agents" in found:
        print(f"  each     {'  '.join(f'{mean:.2f}' for mean in found['agents'])}")
    if "yardsticks" in found:
        print(colonies.sentences(found))
    if "optimum" in found:
        print(jobshops.sentences(found))
    if "best" in found:
        told = (
            f", success {found['best']['success_rate']:.1%}"
            if "success_rate" in found["best"]
            else ""
        )
        print(
            f"  Note: the best checkpoint (step {found['best']['step']:,}) was clearly better when "
            f"it was evaluated: {found['best']['mean_return']:.2f}{told}. --checkpoint best plays "
            "it."
        )
    if "video" in found:
        print(f"  video    {found['video']} ({found['frames']} frames)")


def scores_of_seeds(
    path: Path, checkpoint: str, episodes: int, seed: int | None, there: Deployment
) -> dict[str, Any]:
    """The same for every member of a folder of seeds, and their returns together."""
    folder, members, scripted = SeedsFolder.open(path), [], None
    ready = folder.ready(checkpoint)
    for own in ready:
        members.append(
            scores(folder.member(own), checkpoint, episodes, seed, None, there, scripted)
        )
        told = members[0].get("yardsticks", {})
        scripted = {name: rate for name, rate in told.items() if name != "untrained"} or None
    joined = together([member["mean_return"] for member in members])
    return {
        "run": str(path),
        "env": members[0]["env"],
        "mean_return": joined["mean"],
        **joined,
        "members": members,
        "played": list(ready),
        "left_out": [seed for seed in folder.seeds if seed not in ready],
    }


def tell_seeds(found: dict[str, Any]) -> None:
    members, seeds = found["members"], found["played"]
    first = members[0]
    apart = len({member["step"] for member in members}) > 1  # while they train
    step = "" if apart else f" (step {first['step']:,})"
    print(
        f"{first['env']}, checkpoint {first['checkpoint']}{step}, {first['episodes']} episodes "
        f"each, {first['policy']}"
    )
    shop = "greedy_makespan" in first
    for seed, member in zip(seeds, members, strict=True):
        more = (
            f"   makespan {member['best_makespan']}, greedy {member['greedy_makespan']}"
            if shop
            else ""
        )
        if "yardsticks" in member:
            steps = member["steps_to_goal"]
            more = f"   success {member['success_rate']:.1%}"
            more += "" if steps is None else f", {steps:.1f} steps to the goal"
        more += f"   (step {member['step']:,})" if apart else ""
        print(f"  seed {seed:<4} {member['mean_return']:10.2f} ± {member['std_return']:.2f}{more}")
    if found["left_out"]:
        print(f"  {left_out(found['left_out'])}")
    if better := [
        str(seed) for seed, member in zip(seeds, members, strict=True) if "best" in member
    ]:
        print(
            f"  Note: of seed{'s' * (len(better) > 1)} {', '.join(better)} the best checkpoint was "
            "clearly better when it was evaluated: --checkpoint best plays it."
        )
    print(f"  trained   {sentence(found)}\n  random    {first['random_mean_return']:10.2f}")
    if "yardsticks" in first:
        untrained = colonies.pooled([member["yardsticks"]["untrained"] for member in members])
        print(
            colonies.beside(
                colonies.pooled(members), first["yardsticks"] | {"untrained": untrained}
            )
        )
        print("  tables   " + "\n           ".join(member["folder"] for member in members))
    if shop:
        best, own = min(
            (min(m["best_makespan"], m["greedy_makespan"]), s)
            for s, m in zip(seeds, members, strict=True)
        )
        print(f"the best, {best} by seed {own}:\n{jobshops.sentences(members[seeds.index(own)])}")


def tell_fit(row: dict[str, Any], where: str = "") -> None:
    """How well a model of the world fits, and on what."""
    print("\n".join(fit_lines(row, where)))
