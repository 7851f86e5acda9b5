"""Logs, evaluates and saves at intervals of a run, and prints its notices."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tenfold.config.run import Run
from tenfold.config.schedules import value_at
from tenfold.config.schema import to_mapping
from tenfold.core.errors import UserError, told_of
from tenfold.core.processes import Interrupt
from tenfold.core.protocols import Evaluated, Learner
from tenfold.evaluation.evaluator import episode_end, evaluator_of
from tenfold.runs.checkpoint import Checkpoints, flat_state
from tenfold.runs.folder import write_settings
from tenfold.runs.metrics import Metrics, rank, row_in
from tenfold.training.callbacks import callback_of, require_row
from tenfold.training.display import Display
from tenfold.training.profiling import CoreUse

# steps of an environment without a time limit after which its first episode may have no end
ENDLESS = 5_000


def policy_digest(learner: Learner) -> str:
    """A digest of everything an evaluation depends on: the policy and the evaluation settings."""
    run = learner.run
    how = run.eval_policy, run.evaluation_episodes, run.evaluation_steps, run.episode_limit
    digest = blake2b(repr(how).encode(), digest_size=16)
    for name, array in sorted(flat_state({"agent": learner.agent.policy_state()}).items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class Recorder:
    """One run under way, as callbacks see it: `learner`, `run`, `step`; `stop()`, `evaluate()`,
    `set_lr(…)`."""

    def __init__(
        self,
        learner: Learner,
        checkpoints: Checkpoints,
        metrics: Metrics,
        display: Display,
        interrupt: Interrupt,
        note: dict[str, Any],
        callbacks: Sequence[Any] = (),
    ) -> None:
        self.learner, self.checkpoints, self.metrics = learner, checkpoints, metrics
        self.display, self.interrupt = display, interrupt
        self.callbacks = callbacks = [callback_of(callback) for callback in callbacks]
        self.evaluator: Any = evaluator_of(learner.run)
        self.seconds_before = note.get("seconds", 0.0)
        self.cores = CoreUse(learner)
        self.noticed = self.stopping = self.hurried = False
        self.logged = learner.step
        # what was due up to this step is done, or being done, and the next is due at `due`; a save
        # may end beyond it
        self.last_boundary = note.get("reached", learner.step)
        self.due = 0
        # interrupted in one: it is made up for on resume
        self.evaluation_pending = note.get("owes_evaluation", False)
        self.keep_row: Callable[[], None] | None = None  # of one that callbacks are being shown
        self.saving = False
        # the last evaluation that the metrics have: `digest`, `row`, `score`
        self.evaluated: dict[str, Any] = note.get("evaluated", {})
        self.evaluated_policy = self.evaluated.get("digest", "")  # what was evaluated last
        metrics.sinks = [one for one in callbacks if hasattr(one, "on_row")]

    @property
    def run(self) -> Run:
        return self.learner.run

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.checkpoints.folder.path

    @property
    def step(self) -> int:
        return self.learner.step

    def seconds(self) -> float:
        return self.seconds_before + self.display.seconds()

    # the user's

    def call(self, moment: str, *rows: Any) -> None:
        """Calls the callbacks that have this hook, such as on_log."""
        self.call_each(self.callbacks, moment, *rows)

    def call_each(self, callbacks: Iterable[Any], moment: str, *rows: Any) -> None:
        for callback in callbacks:
            if action := getattr(callback, moment, None):
                name = f"{type(callback).__name__}.{moment}"
                before = [dict(row) for row in rows]
                with told_of(name):
                    action(self, *rows)
                    json.dumps(rows)  # what was added to a row can be kept
                for was, row in zip(before, rows, strict=True):
                    require_row(name, was, row)

    def show_row(self, moment: str, row: dict[str, Any], keep: Callable[[], None]) -> None:
        """Passes a row to the callbacks, which may add numbers to it, then calls `keep`. Where one
        of them saves the run, the others are called first, so that the saved row is complete."""
        rest, outer = iter(self.callbacks), self.keep_row

        def finish() -> None:
            self.call_each(rest, moment, row)
            if self.keep_row is finish:
                self.keep_row = outer
                keep()

        self.keep_row = finish
        try:
            finish()
        finally:
            self.keep_row = outer

    def stop(self, evaluate: bool = True) -> None:
        """Ends the run after this round, evaluated and saved as at its end; it can be resumed."""
        self.stopping, self.hurried = True, not evaluate

    def set_lr(self, lr: Any) -> None:
        """Sets the learning rate, a number or a schedule, from the next update on; also in the
        run's settings."""
        learner, settings = self.learner, replace(self.run.agent, lr=lr)
        learner.run = replace(self.run, agent=settings)
        learner.set_lr(learner.run.agent.lr)  # type: ignore[attr-defined]
        path = self.checkpoints.folder.path
        self.try_to("write the settings", lambda: write_settings(path, learner.run))

    def play(self, until: int) -> None:
        """Runs one round, not beyond a step."""
        for episode in self.learner.round(until):
            self.metrics.episode(self.step, episode)

    # at intervals

    def log(self) -> None:
        learner = self.learner
        self.logged = learner.step
        exploring, lr = learner.agent.exploring(learner.step), getattr(self.run.agent, "lr", None)
        statistics = learner.statistics()
        if not all(map(math.isfinite, statistics.values())):
            raise self.diverged()
        timing = {
            "seconds": self.seconds(),
            "steps_per_second": self.display.rate(learner.step),
            "shares": learner.clock.shares(),
        }
        row = {
            "kind": "train",
            "step": learner.step,
            "updates": learner.agent.updates,
            **self.metrics.recent(),
            **({} if lr is None else {"lr": value_at(lr, learner.step)}),
            **exploring,
            **statistics,
            "timing": timing,
        }

        def keep() -> None:
            self.metrics.add(row)
            self.metrics.flush_if_due()
            self.emit_warnings()
            self.notice_endless()
            if hint := self.cores.early():
                self.display.say(f"Note: {hint}.")
            self.display.update(learner.step, self.metrics, learner.clock, exploring)

        self.show_row("on_log", row, keep)

    def evaluate(self) -> None:
        if self.is_evaluated():  # by a callback: one row of a step is enough
            self.evaluation_pending = False
        elif evaluation := self.run_evaluation():
            self.record_evaluation(evaluation)

    def run_evaluation(self) -> Evaluated | None:
        """Evaluates without writing a row; None if interrupted. The result of an unchanged
        policy is reused."""
        clock = self.learner.clock
        clock.start()
        self.refuse_divergence()
        row = row_in(self.evaluated.get("row", ""))
        if row and self.evaluated["digest"] == policy_digest(self.learner):
            result = Evaluated(row | {"step": self.step}, self.evaluated["score"])
        else:
            lengths = list(self.metrics.lengths)
            stop = lambda: bool(self.interrupt.signal)  # noqa: E731
            result = self.evaluator.evaluate(self.learner, lengths, stop)
        self.evaluation_pending = result is None
        if result:  # evaluating a model aligns it with the truth: it is not what it was before
            self.evaluated_policy = policy_digest(self.learner)
        clock.lap("evaluate")
        return result

    def is_evaluated(self) -> bool:
        """Whether the current policy has an evaluation row of this step."""
        row = row_in(self.evaluated.get("row", "")) or {}
        same = row.get("step") == self.step
        return same and self.evaluated["digest"] == policy_digest(self.learner)

    def final(self) -> Evaluated | None:
        """The evaluation at the end of a run; None if the policy was evaluated already or the run
        was interrupted."""
        hurried = self.hurried or self.interrupt.signal
        judged = not self.step or self.evaluated_policy == policy_digest(self.learner)
        return None if hurried or judged or not self.run.eval_every else self.run_evaluation()

    def record_evaluation(self, evaluation: Evaluated) -> None:
        """Writes the row of an evaluation; saves the policy if it is the best so far."""
        self.refuse_divergence()  # before such a policy counts as the best
        row = json.dumps(evaluation.row)  # as text: a note's keys are sorted
        self.evaluated = {"digest": self.evaluated_policy, "row": row, "score": evaluation.score}
        self.show_row("on_evaluate", evaluation.row, lambda: self.keep_evaluation(evaluation))

    def keep_evaluation(self, evaluation: Evaluated) -> None:
        best = rank(evaluation.row) > self.metrics.best
        self.metrics.add(evaluation.row)
        self.checkpoints.saved = None  # a checkpoint of this step does not know of it
        if evaluation.warning:
            # of a quiet run, one of many perhaps, nothing else says which it is
            whose = f"seed {self.run.seed}: " if self.display.quiet else ""
            self.display.say(f"Warning: {whose}{evaluation.warning}", always=True)
        if evaluation.notice:
            self.notice(evaluation.notice)
        if best:
            state, step = self.learner.agent.policy_state(), self.step
            self.try_to(
                "save the best policy",
                lambda: self.checkpoints.save_best(state, step, evaluation.score),
            )

    def save(self) -> str:
        """Saves a checkpoint. A full disk does not end the run: the previous checkpoint stays, and
        the next attempt may succeed. Networks that diverged are never saved."""
        if self.saving:  # a callback asks for it at on_checkpoint
            return ""
        learner = self.learner
        while self.keep_row:
            self.keep_row()
        self.refuse_divergence()
        learner.clock.start()
        reached = learner.step if learner.step < self.due else self.last_boundary
        for episode in learner.settle():
            self.metrics.episode(learner.step, episode)
        self.emit_notices()
        note = {
            "metrics_bytes": self.metrics.flush(),
            "seconds": self.seconds(),
            "best": self.metrics.best_or_none(),
            "best_success": self.metrics.best[0],
            "episodes": self.metrics.episodes,
            "owes_evaluation": self.evaluation_pending,
            **({"evaluated": self.evaluated} if self.evaluated else {}),
            "reached": reached,
            "settings": to_mapping(learner.run),
        }
        failed = self.metrics.complaint if self.metrics.waiting else ""
        failed = failed or self.try_to(
            "save a checkpoint", lambda: self.checkpoints.save(learner, note)
        )
        self.emit_warnings()
        self.saving = True
        try:
            self.call("on_checkpoint")
        finally:
            self.saving = False
        learner.clock.lap("save")
        return failed

    # words

    def notice_endless(self) -> None:
        """Prints a notice where no episode of an environment without a time limit ends."""
        run = self.run
        envs = getattr(self.learner, "envs", None)
        played = self.step // getattr(envs, "worlds", run.num_envs * run.actors)
        if played < ENDLESS or self.metrics.episodes or not self.learner.tells_episodes:
            return
        if not episode_end(self.learner):
            self.notice(
                f"no episode of {run.env} has ended in {played:,} steps, and it has no time "
                "limit: there are no returns to show, and evaluations are cut; give it one, such "
                "as --max-episode-steps 1000"
            )

    def notice(self, text: str) -> None:
        """Prints a notice about long or endless episodes, once."""
        if not self.noticed:
            self.display.say(f"Note: {text}.")
        self.noticed = True

    def refuse_divergence(self) -> None:
        if not bool(torch.isfinite(self.learner.agent.online.flat).all()):
            raise self.diverged()

    def diverged(self) -> UserError:
        return UserError(
            f"The loss is no longer finite at step {self.step:,}: lower agent.lr or set "
            f"agent.clip_norm; the last checkpoint in {self.checkpoints.folder.path} is from "
            "before this."
        )

    def emit_notices(self) -> None:
        """Prints the learner's notices and warnings."""
        for text in self.learner.notices:
            self.display.say(f"step {self.step:,}: {text}")
        self.learner.notices.clear()
        for text in self.learner.warnings:
            self.display.say(
                f"Warning: at step {self.step:,} {text}; training goes on.", always=True
            )
        self.learner.warnings.clear()

    def try_to(self, what: str, action: Callable[[], Any]) -> str:
        try:
            action()
        except OSError as error:
            reason = f"cannot {what} at step {self.step:,} ({error.strerror or error})"
            self.display.say(
                f"Warning: {reason}; training goes on, and what was saved before is untouched.",
                always=True,
            )
            return reason
        return ""

    def emit_warnings(self) -> None:
        if self.metrics.complaint:
            self.display.say(f"Warning: {self.metrics.complaint}; training goes on.", always=True)
            self.metrics.complaint = ""
