"""Training: build the parts, run the loop, write down what happened. The loop is one screen,
`loop`."""

import math
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from tenfold.actors.actor import make_agent
from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.config.changes import (
    changed_run,
    changes,
    constant_from,
    cut_short,
    idle_from,
    never_learns,
    told_changes,
)
from tenfold.config.run import PPO, Noisy, Run, value_at
from tenfold.config.schema import merge, show, to_mapping
from tenfold.core.errors import (
    ActorFault,
    CheckpointError,
    ConfigError,
    EnvironmentFault,
    UserError,
)
from tenfold.core.given import is_object, lend
from tenfold.core.processes import Interrupt, refuse_in_child
from tenfold.core.random import Purpose
from tenfold.core.spaces import discrete_actions, observation_layout, policy_actions
from tenfold.core.system import set_threads
from tenfold.domains.durotaxis import COLONY
from tenfold.domains.dynamics.config import Explorer
from tenfold.domains.dynamics.shortfall import shortfall
from tenfold.envs.adapter import Environments
from tenfold.envs.arguments import split_name
from tenfold.envs.faults import put_away
from tenfold.envs.making import (
    is_multiagent,
    make_env,
    make_environments,
    resolve_paths,
    time_limit,
)
from tenfold.envs.masks import MaskReader
from tenfold.evaluation.player import Allowance, Stopped, play
from tenfold.memory.replay import require_memory
from tenfold.ops.mlp import parameter_count
from tenfold.runs.checkpoint import Checkpoints, set_aside
from tenfold.runs.folder import RunFolder, require_place, versions, write_settings
from tenfold.runs.metrics import WORST, Metrics, rank
from tenfold.runs.names import destination, named_after, turn_latest
from tenfold.runs.report import write_report
from tenfold.training.display import Display, clock_face
from tenfold.training.learners import Place, make_place
from tenfold.training.restore import Unfit, put_back

if TYPE_CHECKING:  # only runs of an explorer need these
    from tenfold.domains.dynamics.agent import ExplorerAgent
    from tenfold.domains.dynamics.model_metrics import Recordings, Verdict

COPIES = 5  # of the parameters while they are learned: online, target, gradient, Adam's two moments
# steps of an environment without a time limit after which its first episode may have no end
ENDLESS = 5_000
PATIENCE = 1.5  # seconds of silence while kernels load; compiling them takes longer


@dataclass(frozen=True)
class Result:
    """A run that ended. `interrupted` is the signal that stopped it early, or 0. `unsaved` says
    why, where its end could not be saved."""

    path: Path
    run: Run
    step: int
    mean_return: float | None
    best_evaluation: float | None
    seconds: float
    interrupted: int = 0
    unsaved: str = ""
    episodes: int = 0  # of the last 100 at most, whose mean `mean_return` is
    best_success: float | None = None  # of that evaluation, where the environment tells successes
    finished: bool = False  # a resume would find nothing to do


class Finished(UserError):
    """There is nothing to resume."""


def train(
    run: Run, out: str | Path = "", *, name: str = "", overwrite: bool = False, quiet: bool = False
) -> Result:
    """Trains `run` from the start into the folder `out`; without it into a new one, runs/NAME,
    runs/NAME-2, … (the name is the environment's by default)."""
    target = destination(out, name or named_after(run.env), overwrite)
    require_place(target, overwrite)  # here: before anything is compiled
    run = replace(run, env=resolve_paths(run.env))
    prepare(run)
    # the place before the folder: settings that do not fit leave nothing behind
    with (
        ready(run, quiet) as place,
        Interrupt() as interrupt,
        RunFolder.create(target, run, overwrite) as folder,
    ):
        return carry_out(
            place, folder, Checkpoints(folder, run.keep), Metrics(folder), interrupt, quiet
        )


def resume(
    path: str | Path,
    steps: int | None = None,
    *,
    engine: str = "",
    settings: dict[str, Any] | None = None,
    quiet: bool = False,
    env: Any = None,
) -> Result:
    """Goes on from the latest whole checkpoint, as if the run had never stopped; `steps` sets a new
    end, `engine` another engine (then numbers differ in their last bits), `settings` whatever else
    can change (resuming.CHANGEABLE). `env` is the environment again, where it was an object or a
    function."""
    folder, run = RunFolder.open(Path(path))
    lend(run.env, env)
    given = ({} if steps is None else {"steps": steps}) | ({"engine": engine} if engine else {})
    with folder:
        run, refused = changed_run(run, merge(settings or {}, given)), []
        while True:
            try:
                return go_on(folder, run, quiet, refused)
            except Unfit as error:
                if len(Checkpoints(folder, run.keep).steps()) == 1:
                    raise
                set_aside(error.path)  # and the one before it is tried
                refused.append(f"{error} It was set aside as {error.path.name}.damaged.")


def go_on(folder: RunFolder, run: Run, quiet: bool, refused: list[str]) -> Result:
    """`resume` in a folder that nobody else writes to; `refused` says which checkpoints could not
    be gone on from."""
    checkpoints = Checkpoints(folder, run.keep)
    arrays, rows, note, complaints = checkpoints.latest()
    note["changed"] = changes(note["settings"], run, folder.path / "config.yaml")
    complaints = [
        *refused,
        *complaints,
        *filter(None, [constant_from(Run.of(note["settings"]), run)]),
    ]
    if note["step"] >= run.steps and not note["owes_evaluation"]:
        raise Finished(
            f"{folder.path} is finished at step {note['step']:,}: give a larger --steps to go on, "
            f"or look at it with `tenfold eval {folder.path}`."
        )
    prepare(run)
    with ready(run, quiet) as place, Interrupt() as interrupt:
        turn_latest(folder.path)
        try:
            write_settings(folder.path, run)
        except OSError as error:
            raise UserError(
                f"{folder.path} cannot be written: {error.strerror or error}."
            ) from None
        checkpoints.forget_best_after(note["step"])
        if not put_back(place, checkpoints, arrays, rows, note):
            complaints.append(
                f"{run.env} could not be restored exactly: its episodes begin anew and this resume "
                "is not exact."
            )
        complaints += [
            f"{package} was {old} when this run began and is {new} now: numbers may differ in "
            "their last bits."
            for package, old in folder.about["versions"].items()
            if (new := versions().get(package, old)) != old
        ]
        best = WORST if note["best"] is None else (note.get("best_success", 0.0), note["best"])
        metrics = Metrics(folder, note["metrics_bytes"], note["step"], best)
        return carry_out(place, folder, checkpoints, metrics, interrupt, quiet, note, complaints)


def prepare(run: Run) -> None:
    refuse_in_child()
    set_threads(run.threads)
    if run.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", "= cuda, but PyTorch sees no CUDA device here: use cpu.")
    if run.device != "cuda":
        require_networks(run)


def require_networks(run: Run) -> None:
    """Refuses hidden layers that memory cannot hold: the kernel would end the process without a
    word."""
    agent = run.agent
    if isinstance(agent, Explorer):
        return
    towers = (
        2 + (agent.baseline == "counterfactual")
        if isinstance(agent, PPO)
        else 1 + isinstance(agent.explore, Noisy)
    )
    count = towers * parameter_count(agent.net.hidden)
    try:
        require_memory(count * COPIES * 4)
    except UserError:
        raise ConfigError(
            "agent.net.hidden",
            f"= {show(agent.net.hidden)} makes {count:,} parameters, for whose learning "
            f"{count * COPIES * 4:,} bytes are needed, more than are free: make the layers "
            "narrower.",
        ) from None


@contextmanager
def ready(run: Run, quiet: bool) -> Iterator[Place]:
    """The place of a run, its kernels compiled. Its environments and actors are gone afterwards,
    whatever happens."""
    place = make_place(run)
    try:
        warm_up(place, quiet)
        yield place
    finally:
        place.close()


def warm_up(place: Place, quiet: bool) -> None:
    """Compiles the engine's kernels, and says so where they are not on disk yet."""
    words = threading.Timer(
        PATIENCE, lambda: quiet or print("compiling kernels, once …", file=sys.stderr, flush=True)
    )
    words.daemon = True
    words.start()
    place.engine.warm_up()
    words.cancel()


def carry_out(
    place: Place,
    folder: RunFolder,
    checkpoints: Checkpoints,
    metrics: Metrics,
    interrupt: Interrupt,
    quiet: bool,
    note: dict[str, Any] | None = None,
    complaints: list[str] | None = None,
) -> Result:
    """The loop, with what stands before and after it. `note` is the checkpoint's that the run goes
    on from."""
    run = place.run
    display = Display(
        f"{run.agent.name} on {run.env}, seed {run.seed}", run.steps, place.step, quiet
    )
    for complaint in complaints or []:
        display.say(f"Note: {complaint}", always=True)
    onward = f", going on from step {place.step:,}" if place.step else ""
    display.say(
        f"{run.agent.name} on {run.env}, seed {run.seed}, {run.steps:,} steps -> "
        f"{folder.path}{onward}"
    )
    display.say(
        f"engine {place.engine_choice}; on {place.device}; {place.agent.online.flat.numel():,} "
        f"parameters; {place.memory}{'; ' if place.where else ''}{place.where}"
    )
    for words in filter(None, (cut_short(run), never_learns(run))):
        display.say(f"Note: {words}")
    if end := idle_from(run):
        display.say(
            f"Note: agent.lr ends at 0 at step {end:,}: nothing is learned from there on.",
            always=True,
        )
    if note and note["changed"]:
        display.say(f"changed: {told_changes(note['changed'])}")
    if not place.envs.exact_resume:
        display.say(
            f"Note: {run.env} is not deterministic, or steps in a vector class of its own: a "
            "resume will not be exact."
        )
    if place.lockstep:
        place.lockstep.folder = folder.path
    recorder = Recorder(place, checkpoints, metrics, display, interrupt, note or {})
    recorder.complain()
    session = {
        "from_step": place.step,
        "engine": place.engine_choice,
        "device": place.device,
        "where": place.where,
    }
    session |= {"changed": note["changed"]} if note and note["changed"] else {}
    folder.about.setdefault("sessions", []).append(session)
    recorder.try_to("write run.json", folder.write_about)
    try:
        if place.step == 0:
            recorder.save()  # so that a run can be resumed from its first moment on
        if recorder.owes_evaluation:
            recorder.evaluate()
        try:
            loop(place, recorder, interrupt)
        except EnvironmentFault:
            recorder.refuse_divergence()  # then the environment only suffers from its actions
            raise
        final = recorder.final_verdict()  # before the checkpoint, which keeps what it finds
        unsaved = recorder.save()
        if final:  # after it: a resume to a later end goes on without this row
            recorder.note_verdict(final)
        # after the checkpoint, which a resume goes on from without this row
        if place.step > recorder.logged:
            recorder.log()
    except ActorFault as fault:
        if checkpoints.steps():
            raise fault.adding(
                f"`tenfold resume {folder.path}` goes on from the last checkpoint."
            ) from None
        raise
    finally:
        metrics.close()
        display.close()
    seconds = recorder.seconds()
    if place.lockstep:
        session["verify"] = place.lockstep.sentence()
        recorder.try_to("write run.json", folder.write_about)
        display.say(session["verify"], always=True)
    if not unsaved:
        if isinstance(run.agent, Explorer):
            recorder.try_to("draw the field", lambda: draw_portrait(folder, run, place))
        recorder.try_to("write the report", lambda: write_report(folder, run))
    display.say(
        f"step {place.step:,} after {clock_face(seconds)} ({display.rate(place.step):,.0f} "
        f"steps/s); time: {place.clock.sentence()}"
    )
    returns = metrics.returns
    return Result(
        folder.path,
        run,
        place.step,
        sum(returns) / len(returns) if returns else None,
        metrics.best_row.get("mean_return", metrics.best_or_none()),
        seconds,
        interrupt.signal,
        unsaved,
        len(returns),
        metrics.best_row.get("success_rate"),
        place.step >= run.steps and not recorder.owes_evaluation,
    )


def loop(place: Place, recorder: "Recorder", interrupt: Interrupt) -> None:
    """Rounds of act, step, store and update; at the settings' intervals log, evaluate and save, in
    this order."""
    run = place.run
    intervals = (
        (run.log_every, recorder.log),
        (run.eval_every, recorder.evaluate),
        (run.checkpoint_every, recorder.save),
    )
    reached = recorder.reached
    due = next_due(reached, intervals)
    while True:
        # again where a save took rows that actors had ready, and so came past another boundary
        while place.step >= due:
            before, reached = reached, place.step
            for every, action in intervals:
                if every and reached // every > before // every:
                    action()
            due = next_due(reached, intervals)
        if place.step >= run.steps or interrupt.signal:
            return
        for episode in place.round(min(due, run.steps)):
            recorder.metrics.episode(place.step, episode)
        if place.remarks or (place.crew and place.crew.words):
            recorder.remark()


def next_due(step: int, intervals: Any) -> int:
    return min((step // every + 1) * every for every, _ in intervals if every)


class Recorder:
    """What happens at intervals."""

    def __init__(
        self,
        place: Place,
        checkpoints: Checkpoints,
        metrics: Metrics,
        display: Display,
        interrupt: Interrupt,
        note: dict[str, Any],
    ) -> None:
        self.place, self.checkpoints, self.metrics = place, checkpoints, metrics
        self.display, self.interrupt = display, interrupt
        self.seconds_before = note.get("seconds", 0.0)
        # that a model of the world is judged on, once they are made
        self.recordings: Recordings | None = None
        self.noticed = False
        self.logged = place.step
        # what was due up to this step is done; a save may end beyond it
        self.reached = note.get("reached", place.step)
        # interrupted in one: it is made up for on resume
        self.owes_evaluation = note.get("owes_evaluation", False)

    def seconds(self) -> float:
        return self.seconds_before + self.display.seconds()

    def log(self) -> None:
        place = self.place
        self.logged = place.step
        exploring = place.agent.exploring(place.step)
        statistics = place.engine.statistics()
        if not all(map(math.isfinite, statistics.values())):
            raise self.diverged()
        timing = {
            "seconds": self.seconds(),
            "steps_per_second": self.display.rate(place.step),
            "shares": place.clock.shares(),
        }
        self.metrics.add(
            {
                "kind": "train",
                "step": place.step,
                "updates": place.agent.updates,
                **self.metrics.recent(),
                "lr": value_at(place.run.agent.lr, place.step),
                **exploring,
                **statistics,
                **(place.crew.report() if place.crew else {}),
                "timing": timing,
            }
        )
        self.metrics.flush()
        self.complain()
        self.notice_endless()
        self.display.update(place.step, self.metrics, place.clock, exploring)

    def evaluate(self) -> None:
        place = self.place
        place.clock.start()
        if isinstance(place.agent, DQNAgent | PPOAgent):
            with borrowed(place):
                self.play()
        else:
            self.note_verdict(self.judged(place.agent))
        place.clock.lap("evaluate")

    def judged(self, agent: "ExplorerAgent") -> "Verdict":
        """How well the model of the world fits recordings that it was not trained on."""
        from tenfold.domains.dynamics.model_metrics import judge, random_recordings

        run = self.place.run
        self.recordings = self.recordings or random_recordings(run.env, run.eval_episodes)
        self.refuse_divergence()
        return judge(agent, self.recordings)

    def final_verdict(self) -> "Verdict | None":
        """Of a model of the world whose run is over, unless its end has been judged already."""
        place, every = self.place, self.place.run.eval_every
        if (
            isinstance(place.agent, DQNAgent | PPOAgent)
            or place.step < place.run.steps
            or not every
            or place.step % every == 0
        ):
            return None
        place.clock.start()
        found = self.judged(place.agent)
        place.clock.lap("evaluate")
        return found

    def note_verdict(self, verdict: "Verdict") -> None:
        row = {"kind": "fit", "step": self.place.step, **verdict.row()}
        best = rank(row) > self.metrics.best
        self.metrics.add(row)
        if self.place.step >= self.place.run.steps and (words := shortfall(row)):
            self.display.say(f"Warning: {words}", always=True)
        if best:
            state = self.place.agent.policy_state()
            self.try_to(
                "save the best model",
                lambda: self.checkpoints.save_best(state, self.place.step, verdict.score),
            )

    def play(self) -> None:
        """Episodes of the greedy policy."""
        place, run = self.place, self.place.run
        assert isinstance(place.agent, DQNAgent | PPOAgent)
        try:
            policy = place.agent.policy(run.eval_policy)
            length = time_limit(run.env) or math.ceil(fmean(self.metrics.lengths or [0]))
            score = play(
                run.env,
                place.agent,
                policy,
                run.eval_episodes,
                run.seed,
                Purpose.SELECT,
                run.episode_limit,
                lambda: bool(self.interrupt.signal),
                Allowance(run.evaluation_steps, min(length, run.episode_limit)),
            )
        except Stopped:
            self.owes_evaluation = True
            return
        self.owes_evaluation = False
        self.refuse_divergence()  # before such a policy counts as the best
        told = (
            {}
            if score.success_rate is None
            else {
                "success_rate": score.success_rate,
                "merit": score.merit,
                "mean_length": sum(score.lengths) / score.episodes,
            }
        )
        told |= {} if score.steps_to_goal is None else {"steps_to_goal": score.steps_to_goal}
        told |= {"cut": score.cut} if score.cut else {}
        row = {
            "kind": "eval",
            "step": place.step,
            "episodes": score.episodes,
            "mean_return": score.mean_return,
            "std_return": score.std_return,
            **told,
        }
        best = rank(row) > self.metrics.best
        self.metrics.add(row)
        if score.cut or score.episodes < run.eval_episodes:
            self.notice(
                f"an evaluation takes at most {run.evaluation_steps:,} steps (--eval-steps): this "
                f"one played {score.episodes} of {run.eval_episodes} episodes"
                + f", {score.cut} of them cut"
                * (score.cut > 0)
            )
        if best:
            state = place.agent.policy_state()
            self.try_to(
                "save the best policy",
                lambda: self.checkpoints.save_best(state, place.step, score.merit),
            )

    def notice_endless(self) -> None:
        """Of an environment without a time limit whose episodes do not end."""
        run, each = (
            self.place.run,
            self.place.step // (self.place.run.num_envs * self.place.run.actors),
        )
        if each >= ENDLESS and not (
            self.metrics.episodes or isinstance(run.agent, Explorer) or time_limit(run.env)
        ):
            example = f"{split_name(run.env)[0]}(max_episode_steps=1000)"
            self.notice(
                f"no episode of {run.env} has ended in {each:,} steps, and it has no time limit: "
                "there are no returns to "
                f'show, and evaluations are cut; give it one, such as --env "{example}"'
            )

    def notice(self, words: str) -> None:
        """About episodes that are long or have no end, once."""
        if not self.noticed:
            self.display.say(f"Note: {words}.")
        self.noticed = True

    def save(self) -> str:
        """A checkpoint. A disk that refuses does not end the run: the previous one stays, and the
        next attempt may succeed. Networks that diverged are never saved."""
        self.refuse_divergence()
        self.place.clock.start()
        self.reached = self.place.step
        for episode in self.place.settle():
            self.metrics.episode(self.place.step, episode)
        self.remark()
        note = {
            "metrics_bytes": self.metrics.flush(),
            "seconds": self.seconds(),
            "best": self.metrics.best_or_none(),
            "best_success": self.metrics.best[0],
            "owes_evaluation": self.owes_evaluation,
            "reached": self.reached,
            "settings": to_mapping(self.place.run),
        }
        failed = self.metrics.complaint if self.metrics.waiting else ""
        failed = failed or self.try_to(
            "save a checkpoint", lambda: self.checkpoints.save(self.place, note)
        )
        self.complain()
        self.place.clock.lap("save")
        return failed

    def refuse_divergence(self) -> None:
        if not bool(torch.isfinite(self.place.agent.online.flat).all()):
            raise self.diverged()

    def diverged(self) -> UserError:
        return UserError(
            f"The loss is no longer finite at step {self.place.step:,}: lower agent.lr or set "
            f"agent.clip_norm; the last checkpoint in {self.checkpoints.folder.path} is from "
            "before this."
        )

    def remark(self) -> None:
        """Says what happened that a person may want to know, and what one must not miss."""
        step = self.place.step
        for words in self.place.remarks:
            self.display.say(f"step {step:,}: {words}")
        self.place.remarks.clear()
        if self.place.crew:
            for words in self.place.crew.words:
                self.display.say(
                    f"Warning: at step {step:,} {words}; training goes on.", always=True
                )
            self.place.crew.words.clear()

    def try_to(self, what: str, action: Any) -> str:
        try:
            action()
        except OSError as error:
            reason = f"cannot {what} at step {self.place.step:,} ({error.strerror or error})"
            self.display.say(
                f"Warning: {reason}; training goes on, and what was saved before is untouched.",
                always=True,
            )
            return reason
        return ""

    def complain(self) -> None:
        if self.metrics.complaint:
            self.display.say(f"Warning: {self.metrics.complaint}; training goes on.", always=True)
            self.metrics.complaint = ""


@contextmanager
def borrowed(place: Place) -> Iterator[None]:
    """An environment that is there only once is played with, and then led back to where training
    left it."""
    if not is_object(place.run.env):
        yield
        return
    assert isinstance(place.envs, Environments)
    left = place.envs.state()
    yield
    if not place.envs.restore(left):
        raise EnvironmentFault(
            f"{place.run.env} is one object, which evaluations borrow, and its episode could not "
            "be repeated afterwards: give a function that makes one, such as env=lambda: MyEnv(), "
            "or set eval_every to 0."
        )


def draw_portrait(folder: RunFolder, run: Run, place: Place) -> None:
    """What the report of an explorer shows, as arrays beside it."""
    from tenfold.domains.dynamics.agent import ExplorerAgent
    from tenfold.domains.dynamics.portrait import write_portrait

    assert isinstance(place.agent, ExplorerAgent)
    if place.step:  # one that was stopped before it saw anything has nothing to show
        write_portrait(folder.path, place.agent, run.env, run.eval_episodes)


def load(
    path: str | Path, checkpoint: str | int = "last", env: Any = None
) -> "DQNAgent | PPOAgent | ExplorerAgent":
    """The trained agent of a run, ready to act: `checkpoint` is last, best or a step; `env` is the
    run's environment again, where it was an object or a function."""
    folder, run = RunFolder.open(Path(path))
    lend(run.env, env)
    state, _ = Checkpoints(folder, run.keep).policy(str(checkpoint))
    agent = agent_of(run)
    if state["online"].shape != agent.online.flat.shape:
        raise CheckpointError(
            f"The checkpoint of {path} holds {state['online'].numel():,} parameters and its "
            f"settings ask for {agent.online.flat.numel():,}: config.yaml was changed after "
            "training."
        )
    learned = isinstance(run.agent, Explorer)
    if not learned and {name for name in state if name.startswith("norm_")} != set(
        agent.policy_state()
    ) - {"online"}:
        raise CheckpointError(
            f"The checkpoint of {path} and its settings disagree about normalize_obs: config.yaml "
            "was changed after training."
        )
    try:
        agent.load_state(state if learned else {name: state[name] for name in agent.policy_state()})
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"The checkpoint of {path} holds something else than its settings ask for "
            f"({type(error).__name__}: {' '.join(str(error).split())})."
        ) from None
    return agent


def agent_of(run: Run) -> "DQNAgent | PPOAgent | ExplorerAgent":
    """The agent of a run, untrained."""
    if isinstance(run.agent, Explorer):
        from tenfold.domains.dynamics.recording import is_recording

        if is_recording(run.env):
            from tenfold.domains.dynamics.offline import offline_agent

            return offline_agent(replace(run, device="cpu"))
        from tenfold.domains.dynamics.learner import make_explorer, make_members

        return make_explorer(replace(run, device="cpu"), make_members(run))
    if is_multiagent(run.env):
        envs = make_environments(run.env, 1, run.seed, "scalar", isinstance(run.agent, PPO))
        envs.close()
        return make_agent(replace(run, device="cpu"), envs)
    env = make_env(run.env)
    seen, actions = env.observation_space, env.action_space
    put_away(env)
    if isinstance(run.agent, PPO):
        chosen = policy_actions(actions, run.env)
        layout = observation_layout(MaskReader(seen, chosen).observation_space, run.env)
        # an id of one's own steps through the usual adapter, which knows no components, whatever it
        # is made of
        components = (
            getattr(env.unwrapped, "component_names", ())
            if split_name(run.env)[0] == COLONY
            else ()
        )
        return PPOAgent(run.agent, layout, chosen, run.seed, components=len(components))
    return DQNAgent(
        run.agent, observation_layout(seen, run.env), discrete_actions(actions, run.env), run.seed
    )
