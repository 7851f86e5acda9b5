"""One run from a start or a resume to its next end: the training loop (`loop`), with setup and
teardown. It yields before rounds and checkpoints, so that several runs can be driven together."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tenfold.config.changes import advice, changes_in_words
from tenfold.config.run import Run
from tenfold.core.errors import ActorFault, EnvironmentFault, OtherWords, UserError, raised
from tenfold.core.protocols import Learner
from tenfold.core.system import versions
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder, write_settings
from tenfold.runs.metrics import WORST, Metrics
from tenfold.runs.report import write_report
from tenfold.runs.reporter import reporter_of
from tenfold.runs.storage import writing
from tenfold.training.display import Display, SeedDisplay, clock_face
from tenfold.training.learners import restore_checkpoint
from tenfold.training.recorder import Recorder

ACT = "ten.load(run.path) gives the agent, whose act(obs) gives an action"
SAVED = "the run is saved already, in its folder run.path"


@dataclass(frozen=True)
class Result(OtherWords):
    """A run that ended. `interrupted` is the signal that stopped it early, or 0. `unsaved` is the
    reason why the last checkpoint could not be saved."""

    other_words = {
        **dict.fromkeys(("act", "predict", "agent"), ACT),
        "learn": "ten.resume(run.path, steps=…) goes on with it",
        "save": SAVED,
    }
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

    def __repr__(self) -> str:
        """One line: the run's settings are in `run`."""
        score = "" if self.mean_return is None else f", mean return {self.mean_return:.2f}"
        if self.best_evaluation is not None:
            score += f", best evaluation {self.best_evaluation:.2f}"
        return (
            f"<{self.path}: {self.run.agent.name} on {self.run.env}, seed {self.run.seed}, "
            f"{self.step:,} of {self.run.steps:,} steps{score}>"
        )


class ResumePoint(NamedTuple):
    """A checkpoint to resume from, and warnings about it."""

    arrays: Any
    rows: Any
    note: dict[str, Any]
    complaints: list[str]


class YieldPoint(NamedTuple):
    """The next action of a run: rounds until a step, or a checkpoint. The run does it itself unless
    the driver sends True, which means that it is done."""

    recorder: Recorder
    until: int  # 0: a checkpoint
    last: bool = False  # it cannot be left out


RunSteps = Generator[YieldPoint, Any, Result]


def drive(generator: RunSteps) -> Result:
    """Runs one session to its end."""
    while True:
        try:
            next(generator)
        except StopIteration as end:
            return end.value


@dataclass
class Session:
    """A learner and the folder of its run, from a start or a resume to the next end."""

    learner: Learner
    folder: RunFolder
    checkpoints: Checkpoints
    interrupt: Any  # its `signal` ends the run
    quiet: bool
    # where it is one of several: what shows all of them
    shared_display: Display | None = None
    report: bool = True  # at its end; `tenfold report` makes it later

    def restore(self, saved: ResumePoint) -> tuple[Metrics, dict[str, Any], list[str]]:
        """Loads a checkpoint into the learner; returns the arguments of `run_session`."""
        learner, folder, note = self.learner, self.folder, saved.note
        run, complaints = learner.run, list(saved.complaints)
        exact = restore_checkpoint(learner, self.checkpoints, saved.arrays, saved.rows, note)
        # only now: settings that the checkpoint does not fit are not written down
        with writing(folder.path):
            write_settings(folder.path, run)
        self.checkpoints.forget_best_after(note["step"], note["best"])
        if not exact:
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
        episodes = note.get("episodes")  # earlier checkpoints do not say it
        metrics = Metrics(folder, note["metrics_bytes"], note["step"], best, episodes)
        return metrics, note, complaints

    def run_session(
        self,
        metrics: Metrics,
        note: dict[str, Any],
        complaints: list[str],
        callbacks: Sequence[Any],
    ) -> Result:
        return drive(self.run_steps(metrics, note, complaints, callbacks))

    def run_steps(
        self,
        metrics: Metrics,
        note: dict[str, Any],
        complaints: list[str],
        callbacks: Sequence[Any] = (),
    ) -> RunSteps:
        """Runs the training loop with setup and teardown. `note` is that of the checkpoint the run
        resumes from, if there is one."""
        learner, folder = self.learner, self.folder
        run = learner.run
        title = f"{run.agent.name} on {run.env}, seed {run.seed}"
        display = (
            SeedDisplay(self.shared_display, f"seed {run.seed}", learner.step)
            if self.shared_display
            else Display(title, run.steps, learner.step, self.quiet, reporter_of(run))
        )
        for complaint in complaints:
            display.say(f"Note: {complaint}", always=True)
        self.introduce(display, title, note)
        if learner.lockstep:
            learner.lockstep.folder = folder.path
        recorder = Recorder(
            learner, self.checkpoints, metrics, display, self.interrupt, note, callbacks
        )
        if cost := recorder.evaluator.cost(learner):
            display.say(cost)
        recorder.emit_warnings()
        about = self.describe(note)
        if not self.shared_display:  # else at its end
            recorder.try_to("write run.json", folder.write_about)
        try:
            unsaved = yield from self.run_loop(recorder)
        except Exception as error:
            about["failed"] = str(error) if isinstance(error, UserError) else f"it {raised(error)}."
            recorder.try_to("write run.json", folder.write_about)
            if isinstance(error, ActorFault) and self.checkpoints.steps():
                raise error.adding(
                    f"`tenfold resume {folder.path}` goes on from the last checkpoint."
                ) from None
            raise
        finally:
            recorder.try_to("save the best policy", self.checkpoints.close)
            metrics.close()
            display.close()
        return self.finish(recorder, about, unsaved)

    def finish(self, recorder: Recorder, about: dict[str, Any], unsaved: str) -> Result:
        """Writes run.json and the report, and prints the closing lines."""
        learner, folder, display = self.learner, self.folder, recorder.display
        about["shares"] = learner.clock.shares()
        if learner.lockstep:
            about["verify"] = learner.lockstep.sentence()
            display.say(about["verify"], always=True)
        recorder.try_to("write run.json", folder.write_about)
        # `tenfold report` makes that of one of several
        if not self.shared_display and self.report and not unsaved:
            recorder.try_to("draw", lambda: recorder.evaluator.draw(folder, learner))
            recorder.try_to("write the report", lambda: write_report(folder, learner.run))
        seconds = recorder.seconds()
        display.say(
            f"step {learner.step:,} after {clock_face(seconds)} "
            f"({display.rate(learner.step):,.0f} steps/s); time: {learner.clock.sentence()}"
        )
        if suggestion := recorder.cores.final():
            display.say(f"Note: {suggestion}.")
        return self.result(recorder, seconds, unsaved)

    def introduce(self, display: Display, title: str, note: dict[str, Any]) -> None:
        """Prints the run's settings and notes before the first step."""
        learner, run, about = self.learner, self.learner.run, self.learner.description
        onward = f", going on from step {learner.step:,}" if learner.step else ""
        display.say(f"{title}, {run.steps:,} steps -> {self.folder.path}{onward}")
        display.say(
            f"engine {about.engine}; on {about.device}; {learner.agent.online.flat.numel():,} "
            f"parameters; {about.memory_text}{'; ' if about.where else ''}{about.where}"
        )
        for note_line in advice(run):
            display.say(f"Note: {note_line}")
        if not learner.step and (init := self.folder.about.get("init")):
            display.say(
                f"begins with the weights of {init['path']}, checkpoint {init['checkpoint']}, "
                f"step {init['step']:,}"
            )
        if note.get("changed"):
            display.say(f"changed: {changes_in_words(note['changed'])}")
        if about.inexact:
            display.say(
                f"Note: {about.inexact}: another run with this seed, and a resume, will not be "
                "exactly the same."
            )
        elif not learner.exact_resume:
            why = about.inexact_resume or f"{run.env} is not deterministic"
            display.say(f"Note: {why}: a resume will not be exact.")
        for note_line in about.notes:
            display.say(f"Note: {note_line}.")

    def describe(self, note: dict[str, Any]) -> dict[str, Any]:
        """Appends this session to the record in run.json."""
        about = self.learner.description
        session: dict[str, Any] = {
            "from_step": self.learner.step,
            "engine": about.engine,
            "device": about.device,
            "where": about.where,
            "exact_resume": self.learner.exact_resume,
        }
        session |= {"notes": list(about.notes)} if about.notes else {}
        session |= {"changed": note["changed"]} if note.get("changed") else {}
        self.folder.about.setdefault("sessions", []).append(session)
        return session

    def run_loop(self, recorder: Recorder) -> Generator[YieldPoint, Any, str]:
        """Runs the loop, then the last evaluation, checkpoint and row; returns why the checkpoint
        could not be saved, or an empty string."""
        recorder.call("on_start")
        if recorder.step == 0 and not self.shared_display:  # one of several begins anew without
            recorder.save()  # so that a run can be resumed from its first moment on
        if recorder.evaluation_pending:
            recorder.evaluate()
        try:
            yield from loop(self.learner, recorder, self.interrupt)
        except EnvironmentFault as fault:
            if not fault.certain:  # then the environment may only suffer from its actions
                recorder.refuse_divergence()
            raise
        final = recorder.final()
        finished = recorder.step >= self.learner.run.steps
        if final and finished:  # known to the checkpoint: a resume to a later end keeps the best
            recorder.record_evaluation(final)
        yield YieldPoint(recorder, 0, last=True)
        unsaved = recorder.save()
        if final and not finished:  # a resume to the same end goes on as if it had not stopped
            recorder.record_evaluation(final)
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
            recorder.step >= run.steps and not recorder.evaluation_pending,
        )


def loop(learner: Learner, recorder: Recorder, interrupt: Any) -> Iterator[YieldPoint]:
    """Rounds of act, step, store and update; at the settings' intervals log, evaluate and save, in
    this order. Yields before rounds and before a checkpoint."""
    run = learner.run
    intervals = (
        (run.log_every, recorder.log),
        (run.eval_every, recorder.evaluate),
        (run.checkpoint_every, recorder.save),
    )
    every_round = any(hasattr(callback, "on_round") for callback in recorder.callbacks)
    recorder.due = next_due(recorder.last_boundary, intervals)
    while True:
        # again where a save took rows that actors had ready, and so came past another boundary
        while learner.step >= recorder.due:
            before, reached = recorder.last_boundary, learner.step
            recorder.last_boundary = reached
            due = [
                action
                for every, action in intervals
                if every and reached // every > before // every
            ]
            for action in due:
                # a callback that saves now leaves it to whoever goes on from there
                recorder.evaluation_pending |= recorder.evaluate in due[due.index(action) + 1 :]
                if action == recorder.save and (yield YieldPoint(recorder, 0)):
                    continue
                action()
            recorder.due = next_due(reached, intervals)
        if learner.step >= run.steps or interrupt.signal or recorder.stopping:
            return
        until = min(recorder.due, run.steps)
        if not (yield YieldPoint(recorder, until)):
            recorder.play(until)
        if learner.notices or learner.warnings:
            recorder.emit_notices()
        if every_round:
            recorder.call("on_round")


def next_due(step: int, intervals: Any) -> int:
    return min((step // every + 1) * every for every, _ in intervals if every)
