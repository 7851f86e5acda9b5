"""Seeds that one device trains together: all runs in this process, one launch of a few milliseconds
for all of them.

Every run has its own session, folder, metrics and checkpoints, and is driven to where it yields
(`session.YieldPoint`); what all of them need is then done at once. Two things are rarer than for a
run alone, so that hundreds of folders cost little: the first checkpoint is left out (a run without
one begins anew), and so are those that are due less than CHECKPOINT_EVERY seconds after the last.
A run's own report is left to `tenfold report`.
"""

import gc
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import groupby
from statistics import fmean
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

from tenfold.config.changes import changed_run
from tenfold.core.errors import ConfigError, Obstacle, UserError
from tenfold.core.processes import Interrupt
from tenfold.runs.charts import new_figure
from tenfold.runs.checkpoint import Checkpoints, checkpoint_steps
from tenfold.runs.folder import RunFolder, is_run, read_settings
from tenfold.runs.metrics import Metrics
from tenfold.training import learners
from tenfold.training.display import Display
from tenfold.training.learners import CheckpointMismatch
from tenfold.training.loop import Finished, find_resume_point, skip_checkpoint
from tenfold.training.session import Session, YieldPoint

if TYPE_CHECKING:
    from tenfold.training.run_group import GroupRun, RunGroup

CHECKPOINT_EVERY = 30.0  # seconds between checkpoints that are due at intervals
METRICS_EVERY = 5.0  # seconds between writes of metrics
PROGRESS_EVERY = 0.25  # seconds between looks at the progress
WRITER_THREADS = 16  # checkpoints that wait for the disk at the same time
MEMORY_SHARE = 0.9  # of the device's free memory: the rest is for kernels and evaluations


def require_room(learner: Any, seeds: int) -> None:
    """Refuses more seeds than fit into the device's memory, and says how many do."""
    free, seed_bytes = free_bytes(learner.agent.device), learner.engine.bytes_each(learner)
    most = int(MEMORY_SHARE * free) // seed_bytes
    if seeds > most:
        available = f"and {free / 2**30:,.1f} GiB are free on the GPU"
        raise UserError(
            f"A seed takes {seed_bytes / 2**20:,.1f} MiB on the GPU, {available}, enough for "
            f"{most:,} of {seeds:,} seeds: "
            + (f"train so many at a time with --jobs {most}." if most else "lower agent.capacity.")
        )


def require_kernels(learner: Any, seeds: int, quiet: bool) -> None:
    """Compiles the kernels for so many seeds; refuses an engine that cannot run them."""
    device_group = learner.engine.make_group([learner], seeds)
    try:
        learners.warm_up(device_group, quiet)
    except Obstacle as obstacle:
        name = learner.description.name
        raise ConfigError(
            "engine", f"= {name} does not fit: {obstacle}; use another one."
        ) from None
    device_group.dissolve()


def free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 2**63


Rows = dict[str, list[dict[str, Any]]]


def train_together(group: "RunGroup", jobs: int, quiet: bool) -> tuple[int, dict[str, str], Rows]:
    """Trains all runs of a group, `jobs` at a time (0: all). Returns the signal that stopped them,
    or 0, the errors of those that failed, by name (a UserError where all did), and the rows of
    those that were trained, without episodes."""
    end = sum(member.run.steps for member in group.members)
    steps, failed, rows = group.steps, {}, {}
    display = Display(group.title, end, sum(steps.values()), quiet)
    title = f"{group.title} ({jobs or 'all'} at a time in one process) -> {group.path}"
    display.announce(title, group.members[0].run, group.introduction)
    allow_files(len(group.members))
    with closing(display), Interrupt() as interrupt:
        at_a_time = jobs or len(group.members)
        for first in range(0, len(group.members), at_a_time):
            members = group.members[first : first + at_a_time]
            if not interrupt.signal:
                rows |= SeedBatch(group, members, display, interrupt, steps, failed).run()
        stopped = interrupt.signal
    if len(failed) == len(group.members):
        raise group.failure(*next(iter(failed.items())))
    group.say_end(display, stopped, sum(steps.values()))
    return stopped, failed, rows


def allow_files(runs: int) -> None:
    """Raises the limit of open files: every run holds the lock of its folder."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = soft + runs if hard == resource.RLIM_INFINITY else min(soft + runs, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pauses the garbage collector while hundreds of learners are made, none of which is
    garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()


class SharedInterrupt:
    """A signal that all runs see at the same yield point."""

    signal = 0


class SeedSlot:
    """One of the runs, and its next yield point."""

    def __init__(self, name: str, session: Session, metrics: Metrics, *more: Any) -> None:
        """`more` are the further arguments of `Session.run_steps`."""
        metrics.pause = METRICS_EVERY
        self.name, self.session, self.metrics = name, session, metrics
        self.generator = session.run_steps(metrics, *more)
        self.yield_point: YieldPoint | None = None
        self.error = ""

    def go(self, answer: Any = None) -> None:
        """Runs to the next yield point, or to the end."""
        try:
            self.yield_point = self.generator.send(answer)
        except StopIteration as end:
            self.yield_point, self.error = None, end.value.unsaved
        except UserError as error:
            self.yield_point, self.error = None, str(error)


class SeedBatch:
    """Runs that start together. `steps` are the steps of all runs of the group, `failed` the errors
    of those that failed."""

    def __init__(
        self,
        group: "RunGroup",
        members: Sequence["GroupRun"],
        display: Display,
        interrupt: Interrupt,
        steps: dict[str, int],
        failed: dict[str, str],
    ) -> None:
        self.group, self.members, self.display = group, members, display
        self.interrupt, self.steps, self.failed = interrupt, steps, failed
        self.interrupted = SharedInterrupt()
        self.saved_at = self.shown_at = monotonic()

    def run(self) -> Rows:
        """Runs all to their ends; returns their rows. After a resume they may be at several steps:
        those at the same step are trained together."""
        with ExitStack() as stack, gc_paused(), ThreadPoolExecutor(WRITER_THREADS) as self.writers:
            folders = self.writers.map(self.folder_of, self.members)
            opened = list(zip(self.members, folders, strict=True))
            slots = [slot for one in opened if (slot := self.slot(*one, stack))]
            for slot in slots:
                stack.callback(slot.generator.close)
            self.writers.submit(new_figure, 1, 1)  # imports what the report needs meanwhile
            gc.freeze()
            gc.enable()
            slots.sort(key=step_of)
            batches = [
                part for _, batch in groupby(slots, key=step_of) for part in by_rate(list(batch))
            ]
            for batch in batches:
                if not self.interrupt.signal:
                    self.drive(batch)
            return {slot.name: slot.metrics.rows for slot in slots}

    def folder_of(self, member: "GroupRun") -> RunFolder | UserError | None:
        """A new folder, or the locked folder of a saved run; the error, or None after a signal.
        Called in threads, since folders wait for the disk."""
        if self.interrupt.signal:
            return None
        try:
            if is_run(member.path) and checkpoint_steps(member.path):
                folder = RunFolder.open(member.path, self.group.trust)[0]
                return folder.__enter__()
            initial = self.group.initial
            about = initial.about if initial else None
            return RunFolder.create(member.path, member.run, overwrite=True, init=about)
        except UserError as error:
            return error

    def slot(
        self, member: "GroupRun", folder: RunFolder | UserError | None, stack: ExitStack
    ) -> SeedSlot | None:
        """The slot of a run that starts or resumes; None where it is finished or failed."""
        try:
            if isinstance(folder, UserError):
                raise folder
            if folder and not self.interrupt.signal:
                stack.push(folder)
                return self.open_slot(folder, member, stack)
        except Finished:
            return None
        except UserError as error:
            self.note_failure(member.name, str(error))
        return None

    def open_slot(self, folder: RunFolder, member: "GroupRun", stack: ExitStack) -> SeedSlot:
        run, refused = member.run, []
        if not checkpoint_steps(folder.path):
            checkpoints = Checkpoints(folder, run.keep, lazily=True)
            learner = self.learner_of(run, stack)
            if self.group.initial:
                self.group.initial.give(learner)
            session = self.session_of(learner, checkpoints)
            return SeedSlot(member.name, session, Metrics(folder), {}, [], self.group.callbacks)
        run = changed_run(read_settings(folder.path, folder.trust), self.group.change)
        while True:
            checkpoints = Checkpoints(folder, run.keep, lazily=True)
            saved = find_resume_point(checkpoints, run, refused)
            session = self.session_of(self.learner_of(run, stack), checkpoints)
            try:
                return SeedSlot(member.name, session, *session.restore(saved), self.group.callbacks)
            except CheckpointMismatch as error:
                refused.append(skip_checkpoint(error, folder))

    def learner_of(self, run: Any, stack: ExitStack) -> Any:
        learner = learners.make_learner(run)
        stack.callback(learner.close)
        return learner

    def session_of(self, learner: Any, checkpoints: Checkpoints) -> Session:
        folder = checkpoints.folder
        return Session(learner, folder, checkpoints, self.interrupted, True, self.display)

    def note_failure(self, name: str, reason: str) -> None:
        self.failed[name] = reason
        self.display.say(f"{name}: {reason}", always=True)

    def drive(self, slots: list[SeedSlot]) -> None:
        """Drives slots at the same step and with the same learning rate to their ends."""
        everyone: list[Any] = [slot.session.learner for slot in slots]
        try:
            device_group = everyone[0].engine.make_group(everyone, len(self.group.members))
        except torch.OutOfMemoryError:  # somebody else took it meanwhile
            raise UserError(
                f"The GPU's memory does not hold {len(slots):,} {self.group.what}: train fewer at "
                "a time with --jobs."
            ) from None
        learners.warm_up(device_group, self.display.quiet)
        for slot in slots:
            slot.go()
        running = slots
        while running := self.still_running(running):
            self.interrupted.signal = self.interrupt.signal
            if saving := [
                slot for slot in running if slot.yield_point and not slot.yield_point.until
            ]:
                self.save(device_group, saving)
                continue
            self.play(
                device_group,
                slots,
                min(slot.yield_point.until for slot in running if slot.yield_point),
            )
            for slot in running:
                slot.go(True)
        device_group.dissolve()  # the device's memory is the next ones'

    def still_running(self, slots: list[SeedSlot]) -> list[SeedSlot]:
        """The slots that have not ended; reports those that failed."""
        for slot in slots:
            if slot.error:
                self.note_failure(slot.name, slot.error)
        return [slot for slot in slots if slot.yield_point]

    def save(self, device_group: Any, slots: list[SeedSlot]) -> None:
        """Saves the checkpoints of all slots in threads."""
        last = any(slot.yield_point and slot.yield_point.last for slot in slots)
        if not last and monotonic() - self.saved_at < CHECKPOINT_EVERY:
            for slot in slots:
                slot.go(True)
            return
        device_group.fetch()  # here: the threads below then have nothing more to ask of it
        device_group.take_sums()
        list(self.writers.map(SeedSlot.go, slots))
        self.saved_at = monotonic()

    def play(self, device_group: Any, slots: list[SeedSlot], until: int) -> None:
        """Runs rounds of all slots until a step or a signal."""
        opened = perf_counter_ns()
        first = device_group.learners[0]
        while first.step < until and not self.interrupt.signal:
            device_group.run(-((first.step - until) // first.envs.num_envs))
            self.show_progress(slots)
        device_group.fetch_networks()
        passed = perf_counter_ns() - opened
        for slot, episodes in zip(slots, device_group.finished(), strict=True):
            if slot.yield_point:
                self.steps[slot.name] = first.step
                slot.session.learner.clock.spent["update"] += passed
                for episode in episodes:
                    slot.metrics.episode(first.step, episode)

    def show_progress(self, slots: list[SeedSlot]) -> None:
        if monotonic() - self.shown_at < PROGRESS_EVERY:
            return
        self.shown_at = monotonic()
        running = [slot for slot in slots if slot.yield_point]
        returns = [fmean(slot.metrics.returns) for slot in running if slot.metrics.returns]
        numbers = {"mean return": f"{fmean(returns):.1f}"} if returns else {}
        now = {slot.name: step_of(slot) for slot in running}
        done = sum((self.steps | now).values())
        self.display.show(done, {self.group.what: f"{len(running)}", **numbers})


def by_rate(slots: list[SeedSlot]) -> list[list[SeedSlot]]:
    """Groups of slots with the same learning rate, in order: a launch has one rate for all."""
    groups: dict[str, list[SeedSlot]] = {}
    for slot in slots:
        groups.setdefault(repr(slot.session.learner.agent.config.lr), []).append(slot)
    return list(groups.values())


def step_of(slot: SeedSlot) -> int:
    return slot.session.learner.step
