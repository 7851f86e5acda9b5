"""Training: make the learner, run the loop, write down what happened. The loop is one screen,
`loop`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tenfold.config.changes import (
    changed_run,
    changes,
    constant_from,
    cut_short,
    idle_from,
    never_learns,
    told_changes,
    unused_layers,
)
from tenfold.config.mappings import merge
from tenfold.config.run import Run
from tenfold.core.errors import ActorFault, ConfigError, EnvironmentFault, UserError
from tenfold.core.given import lend
from tenfold.core.processes import Interrupt
from tenfold.core.protocols import Learner
from tenfold.envs.making import resolve_paths
from tenfold.runs.checkpoint import Checkpoints, set_aside
from tenfold.runs.files import writing
from tenfold.runs.folder import RunFolder, require_place, versions, write_settings
from tenfold.runs.metrics import WORST, Metrics
from tenfold.runs.names import destination, named_after, turn_latest
from tenfold.runs.reporter import reporter_of, write_report
from tenfold.training.display import Display, clock_face
from tenfold.training.learners import Unfit, prepare, put_back, ready
from tenfold.training.recorder import Recorder


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
    run: Run,
    out: str | Path = "",
    *,
    name: str = "",
    overwrite: bool = False,
    quiet: bool = False,
    callbacks: Sequence[Any] = (),
) -> Result:
    """Trains `run` from the start into the folder `out`; without it into a new one, runs/NAME,
    runs/NAME-2, … (the name is the environment's by default). `callbacks` are called at moments of
    the run: see `tenfold.Callback`."""
    target = destination(out, name or named_after(run.env), overwrite)
    require_place(target, overwrite)  # here: before anything is compiled
    run = replace(run, env=resolve_paths(run.env))
    prepare(run)
    # the learner before the folder: settings that do not fit leave nothing behind
    with (
        ready(run, quiet) as learner,
        Interrupt() as interrupt,
        RunFolder.create(target, run, overwrite) as folder,
    ):
        session = Session(learner, folder, Checkpoints(folder, run.keep), interrupt, quiet)
        return session.carry_out(Metrics(folder), {}, [], callbacks)


def resume(
    path: str | Path,
    steps: int | None = None,
    *,
    engine: str = "",
    settings: dict[str, Any] | None = None,
    quiet: bool = False,
    env: Any = None,
    callbacks: Sequence[Any] = (),
) -> Result:
    """Goes on from the latest whole checkpoint, as if the run had never stopped; `steps` sets a new
    end, `engine` another engine (then numbers differ in their last bits), `settings` whatever else
    can change (config.changes.CHANGEABLE). `env` is the environment again, where it was an object
    or a function."""
    folder, run = RunFolder.open(Path(path))
    lend(run.env, env)
    given = ({} if steps is None else {"steps": steps}) | ({"engine": engine} if engine else {})
    with folder:
        run, refused = changed_run(run, merge(settings or {}, given)), []
        while True:
            try:
                return go_on(folder, run, quiet, refused, callbacks)
            except Unfit as error:
                if len(Checkpoints(folder, run.keep).steps()) == 1:
                    raise
                set_aside(error.path)  # and the one before it is tried
                refused.append(f"{error} It was set aside as {error.path.name}.damaged.")


def go_on(
    folder: RunFolder, run: Run, quiet: bool, refused: list[str], callbacks: Sequence[Any]
) -> Result:
    """`resume` in a folder that nobody else writes to; `refused` says which checkpoints could not
    be gone on from."""
    checkpoints = Checkpoints(folder, run.keep)
    arrays, rows, note, complaints = checkpoints.latest()
    note["changed"] = changes(note["settings"], run, folder.path / "config.yaml")
    before = Run.of(note["settings"])
    complaints = [*refused, *complaints, *filter(None, [constant_from(before, run)])]
    if run.steps < min(note["step"], before.steps):
        raise ConfigError(
            "steps",
            f"= {run.steps:,} is less than {folder.path} has done, {note['step']:,}: give a larger "
            "one.",
        )
    if note["step"] >= run.steps and not note["owes_evaluation"]:
        raise Finished(
            f"{folder.path} is finished at step {note['step']:,}: give a larger --steps to go on, "
            f"or look at it with `tenfold eval {folder.path}`."
        )
    prepare(run)
    with ready(run, quiet) as learner, Interrupt() as interrupt:
        turn_latest(folder.path)
        with writing(folder.path):
            write_settings(folder.path, run)
        checkpoints.forget_best_after(note["step"])
        if not put_back(learner, checkpoints, arrays, rows, note):
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
        session = Session(learner, folder, checkpoints, interrupt, quiet)
        return session.carry_out(metrics, note, complaints, callbacks)


@dataclass
class Session:
    """A learner and the folder of its run, from a start or a resume to the next end."""

    learner: Learner
    folder: RunFolder
    checkpoints: Checkpoints
    interrupt: Interrupt
    quiet: bool

    def carry_out(
        self,
        metrics: Metrics,
        note: dict[str, Any],
        complaints: list[str],
        callbacks: Sequence[Any],
    ) -> Result:
        """The loop, with what stands before and after it. `note` is the checkpoint's that the run
        goes on from, if there is one."""
        learner, folder = self.learner, self.folder
        run = learner.run
        title = f"{run.agent.name} on {run.env}, seed {run.seed}"
        display = Display(title, run.steps, learner.step, self.quiet, reporter_of(run))
        for complaint in complaints:
            display.say(f"Note: {complaint}", always=True)
        self.introduce(display, title, note)
        if learner.lockstep:
            learner.lockstep.folder = folder.path
        recorder = Recorder(
            learner, self.checkpoints, metrics, display, self.interrupt, note, callbacks
        )
        recorder.complain()
        about = self.describe(note)
        recorder.try_to("write run.json", folder.write_about)
        try:
            unsaved = self.run_loop(recorder)
        except ActorFault as fault:
            if self.checkpoints.steps():
                raise fault.adding(
                    f"`tenfold resume {folder.path}` goes on from the last checkpoint."
                ) from None
            raise
        finally:
            metrics.close()
            display.close()
        if learner.lockstep:
            about["verify"] = learner.lockstep.sentence()
            recorder.try_to("write run.json", folder.write_about)
            display.say(about["verify"], always=True)
        if not unsaved:
            recorder.try_to("draw", lambda: recorder.evaluator.draw(folder, learner))
            recorder.try_to("write the report", lambda: write_report(folder, learner.run))
        seconds = recorder.seconds()
        display.say(
            f"step {learner.step:,} after {clock_face(seconds)} "
            f"({display.rate(learner.step):,.0f} steps/s); time: {learner.clock.sentence()}"
        )
        return self.result(recorder, seconds, unsaved)

    def introduce(self, display: Display, title: str, note: dict[str, Any]) -> None:
        """What a person should know before the first step."""
        learner, run, about = self.learner, self.learner.run, self.learner.description
        onward = f", going on from step {learner.step:,}" if learner.step else ""
        display.say(f"{title}, {run.steps:,} steps -> {self.folder.path}{onward}")
        display.say(
            f"engine {about.engine}; on {about.device}; {learner.agent.online.flat.numel():,} "
            f"parameters; {about.memory}{'; ' if about.where else ''}{about.where}"
        )
        for words in filter(None, (cut_short(run), never_learns(run), unused_layers(run))):
            display.say(f"Note: {words}")
        if end := idle_from(run):
            display.say(
                f"Note: agent.lr ends at 0 at step {end:,}: nothing is learned from there on.",
                always=True,
            )
        if note.get("changed"):
            display.say(f"changed: {told_changes(note['changed'])}")
        if not learner.exact_resume:
            display.say(
                f"Note: {run.env} is not deterministic, or steps in a vector class of its own: a "
                "resume will not be exact."
            )

    def describe(self, note: dict[str, Any]) -> dict[str, Any]:
        """This session, as run.json tells of it."""
        about = self.learner.description
        session: dict[str, Any] = {
            "from_step": self.learner.step,
            "engine": about.engine,
            "device": about.device,
            "where": about.where,
        }
        session |= {"changed": note["changed"]} if note.get("changed") else {}
        self.folder.about.setdefault("sessions", []).append(session)
        return session

    def run_loop(self, recorder: Recorder) -> str:
        """The loop, and the last evaluation, checkpoint and row; why it could not be saved."""
        recorder.call("on_start")
        if recorder.step == 0:
            recorder.save()  # so that a run can be resumed from its first moment on
        if recorder.owes_evaluation:
            recorder.evaluate()
        try:
            loop(self.learner, recorder, self.interrupt)
        except EnvironmentFault:
            recorder.refuse_divergence()  # then the environment only suffers from its actions
            raise
        final = recorder.final()  # before the checkpoint, which keeps what it finds
        unsaved = recorder.save()
        if final:  # after it: a resume to a later end goes on without this row
            recorder.note(final)
        # after the checkpoint, which a resume goes on from without this row
        if recorder.step > recorder.logged:
            recorder.log()
        recorder.call("on_end")
        return unsaved

    def result(self, recorder: Recorder, seconds: float, unsaved: str) -> Result:
        metrics, run = recorder.metrics, self.learner.run
        returns, best = metrics.returns, metrics.best_row
        return Result(
            self.folder.path,
            run,
            recorder.step,
            sum(returns) / len(returns) if returns else None,
            best.get("mean_return", metrics.best_or_none()),
            seconds,
            self.interrupt.signal,
            unsaved,
            len(returns),
            best.get("success_rate"),
            recorder.step >= run.steps and not recorder.owes_evaluation,
        )


def loop(learner: Learner, recorder: Recorder, interrupt: Interrupt) -> None:
    """Rounds of act, step, store and update; at the settings' intervals log, evaluate and save, in
    this order."""
    run = learner.run
    intervals = (
        (run.log_every, recorder.log),
        (run.eval_every, recorder.evaluate),
        (run.checkpoint_every, recorder.save),
    )
    every_round = any(hasattr(callback, "on_round") for callback in recorder.callbacks)
    reached = recorder.reached
    due = next_due(reached, intervals)
    while True:
        # again where a save took rows that actors had ready, and so came past another boundary
        while learner.step >= due:
            before, reached = reached, learner.step
            for every, action in intervals:
                if every and reached // every > before // every:
                    action()
            due = next_due(reached, intervals)
        if learner.step >= run.steps or interrupt.signal or recorder.stopping:
            return
        for episode in learner.round(min(due, run.steps)):
            recorder.metrics.episode(learner.step, episode)
        if learner.notices or learner.warnings:
            recorder.tell()
        if every_round:
            recorder.call("on_round")


def next_due(step: int, intervals: Any) -> int:
    return min((step // every + 1) * every for every, _ in intervals if every)
