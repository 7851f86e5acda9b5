"""`tenfold eval` and `ten.evaluate`: results of trained runs and the lines that report them. An
algorithm may have an `Evaluation` of its own; the usual one plays episodes with the run's policy
and with a random policy, and adds what the environment's domain measures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import Agent, EvalRequest, Evaluation, Policy
from tenfold.core.registry import algorithm, domain_of, domains
from tenfold.evaluation.evaluator import greedy_note
from tenfold.evaluation.player import Score, play, random_policy
from tenfold.evaluation.video import film
from tenfold.runs.archive import opened
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder, checkpoint_file, is_seeds
from tenfold.runs.metrics import rank, read_rows
from tenfold.runs.seeds import SeedsFolder, latest_row, left_out, sentence, together
from tenfold.training.learners import agent_of, load_run


@dataclass(frozen=True)
class EvaluatedRun:
    """A checkpoint of a run and the episodes it played, as domains see it."""

    path: Path
    run: Run  # as it was trained
    env: str  # the environment of the evaluation
    policy: str  # greedy or sampled
    agent: Agent
    checkpoint: str  # last, best or a step, as requested
    step: int  # at which it was saved
    seed: int
    episodes: int
    options: Mapping[str, Any]
    score: Score
    first: Mapping[str, Any]  # of several seeds the results of the first one, for the others

    @property
    def world(self) -> str:
        return replace(self.run, env=self.env).world

    def play(self, agent: Agent, how: str = "", episodes: int = 0) -> Score:
        """The same for another agent, another kind of policy or another number of episodes."""
        policy = agent.policy(how or self.policy)
        return self.play_policy(agent, policy, episodes or self.episodes)

    def play_policy(self, agent: Agent, policy: Policy, episodes: int) -> Score:
        return play(self.world, agent, policy, episodes, self.seed, limit=self.run.episode_limit)

    def untrained(self) -> Agent:
        return agent_of(self.run)  # type: ignore[return-value]


def evaluate_checkpoint(
    request: EvalRequest, env: Any = None, first: Mapping[str, Any] | None = None
) -> EvaluatedRun:
    """Plays the episodes of a request with the run's policy."""
    trained = load_run(request.path, request.checkpoint, env, request.trust)
    run, agent = trained.run, trained.agent
    seed = run.seed if request.seed is None else request.seed
    name, others = domain_of(run.env).deploy(run.env, request.options)
    deployment = replace(run, env=name, **others)
    policy = agent.policy(deployment.eval_policy)
    limit = run.episode_limit
    score = play(deployment.world, agent, policy, request.episodes, seed, limit=limit)
    return EvaluatedRun(
        request.path,
        run,
        name,
        deployment.eval_policy,
        agent,
        request.checkpoint,
        trained.step,
        seed,
        request.episodes,
        request.options,
        score,
        first or {},
    )


class EpisodeEvaluation:
    """The usual `Evaluation`: episodes of the run's policy."""

    def score(self, request: EvalRequest, env: Any = None) -> Score:
        """Returns of the run's policy."""
        return evaluate_checkpoint(request, env).score

    def evaluate(
        self, request: EvalRequest, first: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The policy's returns, and those of a random policy."""
        evaluated = evaluate_checkpoint(request, first=first)
        domain, agent, score = domain_of(evaluated.run.env), evaluated.agent, evaluated.score
        chance = random_policy(agent, evaluated.seed)
        random = evaluated.play_policy(agent, chance, request.episodes)
        results: dict[str, Any] = {
            "run": str(request.path),
            "env": evaluated.env,
            "policy": evaluated.policy,
            "checkpoint": request.checkpoint,
            "step": evaluated.step,
            "seed": evaluated.seed,
            "episodes": score.episodes,
            "mean_return": score.mean_return,
            "std_return": score.std_return,
            "returns": score.returns,
            "lengths": score.lengths,
            "random_mean_return": random.mean_return,
            "random_std_return": random.std_return,
        }
        if request.checkpoint != "best" and not request.options:
            folder = RunFolder.open(request.path, request.trust)[0]
            evaluation = results | {"success_rate": score.success_rate}
            best = much_better_checkpoint(folder, evaluation)
            results |= {"best": best} if best else {}
        if score.cut:
            results["cut"] = score.cut
        if score.agent_returns:
            results["agents"] = [
                sum(returns) / len(returns) for returns in zip(*score.agent_returns, strict=True)
            ]
        results |= domain.evaluate(evaluated)
        usual = checkpoint_file(request.path / "video.gif", request.checkpoint)
        usual = domain.film(evaluated) if request.video is None else usual
        if file := Path(request.video) if request.video else usual:
            policy = agent.policy(evaluated.policy)
            results["video"] = str(file)
            results["frames"] = film(evaluated.world, agent, policy, evaluated.seed, file)
        return results

    def lines(self, request: EvalRequest, results: dict[str, Any]) -> list[str]:
        lines = [
            f"{results['env']}, checkpoint {results['checkpoint']} (step {results['step']:,}), "
            f"{results['episodes']} episodes, {results['policy']}",
            f"  trained  {results['mean_return']:10.2f} ± {results['std_return']:.2f}   (least "
            f"{min(results['returns']):.2f}, most {max(results['returns']):.2f})",
            f"  random   {results['random_mean_return']:10.2f} ± "
            f"{results['random_std_return']:.2f}",
        ]
        if "cut" in results:
            lines.append(
                f"  Note: {results['cut']} of {results['episodes']} episodes had not ended after "
                f"{max(results['lengths']):,} steps and were cut there (episode_limit)."
            )
        lines += domain_of(results["env"]).lines(results)
        if "agents" in results:
            lines.append(f"  each     {'  '.join(f'{mean:.2f}' for mean in results['agents'])}")
        if "best" in results:
            best = results["best"]
            success = f", success {best['success_rate']:.1%}" if "success_rate" in best else ""
            lines.append(
                f"  Note: the best checkpoint (step {best['step']:,}) was clearly better when it "
                f"was evaluated: {best['mean_return']:.2f}{success}. --checkpoint best plays it."
            )
        if "video" in results:
            lines.append(f"  video    {results['video']} ({results['frames']} frames)")
        return lines

    def evaluate_seeds(self, request: EvalRequest) -> dict[str, Any]:
        """The results of every member of a folder of seeds, and the summary of their returns."""
        folder, members = SeedsFolder.open(request.path, request.trust), []
        if request.video is not None:
            raise UserError(
                "--video films one agent: name a seed's folder, for example "
                f"{folder.member(folder.seeds[0])}."
            )
        ready = folder.ready(request.checkpoint)
        for seed in ready:
            first = members[0] if members else None
            members.append(self.evaluate(replace(request, path=folder.member(seed)), first))
        joined = together([member["mean_return"] for member in members])
        return {
            "run": str(request.path),
            "env": members[0]["env"],
            "mean_return": joined["mean"],
            **joined,
            "members": members,
            "played": list(ready),
            "left_out": [seed for seed in folder.seeds if seed not in ready],
        }

    def lines_of_seeds(self, request: EvalRequest, results: dict[str, Any]) -> list[str]:
        members = dict(zip(results["played"], results["members"], strict=True))
        first, domain = results["members"][0], domain_of(results["env"])
        steps_differ = len({member["step"] for member in members.values()}) > 1  # while they train
        step = "" if steps_differ else f" (step {first['step']:,})"
        lines = [
            f"{first['env']}, checkpoint {first['checkpoint']}{step}, {first['episodes']} episodes "
            f"each, {first['policy']}"
        ]
        for seed, member in members.items():
            more = domain.member_words(member) + (
                f"   (step {member['step']:,})" if steps_differ else ""
            )
            lines.append(
                f"  seed {seed:<4} {member['mean_return']:10.2f} ± {member['std_return']:.2f}{more}"
            )
        if results["left_out"]:
            lines.append(f"  {left_out(results['left_out'])}")
        if better := [str(seed) for seed, member in members.items() if "best" in member]:
            lines.append(
                f"  Note: of seed{'s' * (len(better) > 1)} {', '.join(better)} the best checkpoint "
                "was clearly better when it was evaluated: --checkpoint best plays it."
            )
        lines.append(f"  trained   {sentence(results)}")
        lines.append(f"  random    {first['random_mean_return']:10.2f}")
        return lines + domain.lines_of_seeds(members)

    def conclusion(self, result: Any) -> list[str]:
        """Lines about the last and the best evaluation of a run, and which policy to use where they
        differ much."""
        if result.best_evaluation is None:
            return []
        last = latest_row(result.path / "metrics.jsonl", "eval")
        success = "" if result.best_success is None else f", success {result.best_success:.1%}"
        judged = f"best {result.best_evaluation:.2f}{success}"
        now = bool(last) and last["step"] == result.step
        if last:
            played = f"{last['episodes']} episode{'s' * (last['episodes'] != 1)}"
            when = "" if now else f" at step {last['step']:,}"
            judged = f"last {last['mean_return']:.2f} ({played}{when}), {judged}"
        lines = [f"evaluations ({result.run.eval_policy}): {judged}"]
        if not now:  # of a policy that was not evaluated nothing is known
            return lines
        if hint := greedy_note(result, last):
            lines.append(hint)
        folder, _ = RunFolder.open(result.path, trust=True)  # what it names was imported to train
        if much_better_checkpoint(folder, last):
            lines.append(
                "Note: the last policy is clearly worse than the best one: "
                f"tenfold eval {result.path} --checkpoint best"
            )
        return lines

    def next_steps(self, path: Path, many: bool = False) -> str:
        return f"play {'them' if many else 'it'}: tenfold eval {path}"


def much_better_checkpoint(folder: RunFolder, played: dict[str, Any]) -> dict[str, Any] | None:
    """The evaluation of the best checkpoint, if `played`, of another step, is clearly worse: by
    more than two standard errors, and by more than a tenth of the range of all returns."""
    rows = [row for row in read_rows(folder.metrics, episodes=False) if row["kind"] == "eval"]
    saved = Checkpoints(folder, 1).best_step()  # a disk may have refused a better one
    best = max((row for row in rows if row["step"] == saved), key=rank, default=played)
    if best["step"] == played["step"]:
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


def evaluation_of(run: Any) -> Evaluation:
    """The evaluation of a run's algorithm."""
    return algorithm(run.agent.name).evaluation() or EpisodeEvaluation()


def evaluate(
    run: Any,
    episodes: int = 20,
    checkpoint: str | int = "last",
    seed: int | None = None,
    *,
    env: Any = None,
    trust: bool = False,
    **options: Any,
) -> Any:
    """How good a run is, given by its folder or archive or by what `ten.train` returned: the
    returns of its policy, greedy or as its settings say, or what its algorithm judges itself by.
    `env` is the run's environment again, where it was an object or a function; `trust` allows
    modules that somebody else's run names to be imported; `options` are those that its domain adds
    to `tenfold eval`."""
    if episodes < 1:
        raise ConfigError("episodes", f"= {episodes} is out of range: it must be at least 1.")
    with opened(Path(getattr(run, "path", run))) as path:
        settings = RunFolder.open(path, trust)[1]
        known_options = known(options, settings)
        request = EvalRequest(path, str(checkpoint), episodes, seed, None, known_options, trust)
        return evaluation_of(settings).score(request, env)


def known(options: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """The options that are set; refuses those of another domain than the run's environment."""
    every = {name: domain for domain in domains() for name in domain.flags}
    options_set = {
        name: value
        for name, value in options.items()
        if not (value is None or value is False or (isinstance(value, str) and not value))
    }
    for name in options:
        if name not in every:
            raise TypeError(f"evaluate() got an unexpected keyword argument {name!r}")
    for name in options_set:
        if every[name] is not domain_of(run.env):
            flags = [f"--{flag}" for flag in every[name].flags]
            raise UserError(
                f"{', '.join(flags[:-1])} and {flags[-1]} are for {every[name].title}, and this "
                f"run is on {run.env}, played by its {run.eval_policy} policy (which `tenfold "
                "train --eval-policy greedy|sampled` chooses)."
            )
    return options_set


def scores(
    path: Path,
    checkpoint: str = "last",
    episodes: int = 20,
    seed: int | None = None,
    video: str | None = None,
    options: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """The results of `tenfold eval` for a run or a folder of seeds, as JSON and as lines of
    text."""
    many = is_seeds(path)
    run = SeedsFolder.open(path, trust).run if many else RunFolder.open(path, trust)[1]
    request = EvalRequest(path, checkpoint, episodes, seed, video, known(options or {}, run), trust)
    how = evaluation_of(run)
    if many:
        results = how.evaluate_seeds(request)
        return results, how.lines_of_seeds(request, results)
    results = how.evaluate(request)
    return results, how.lines(request, results)
