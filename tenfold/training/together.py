"""Seeds that one device trains together: all runs in this process, a launch of a few milliseconds
for all of them at a time.

Every run has its own session, folder, metrics and checkpoints, and is driven to where it asks
(`session.Turn`); what all ask for is then done at once. Two things are rarer than for a run alone,
so that hundreds of folders cost little: the first checkpoint is left out (a run without one begins
anew), and so are those that are due less than PAUSE seconds after the last. A run's own report is
left to `tenfold report`.
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
from tenfold.training.display import Display, clock_face
from tenfold.training.learners import Unfit
from tenfold.training.loop import Finished, last_saved, pass_over
from tenfold.training.session import Session, Turn

if TYPE_CHECKING:
    from tenfold.training.many import Many, Member

PAUSE = 30.0  # seconds between checkpoints that are due at intervals
WRITES = 5.0  # seconds between writes of metrics
LOOKS = 0.25  # seconds between looks at the progress
WRITERS = 16  # checkpoints that wait for the disk at the same time
SPARED = 0.9  # of the device's free memory: the rest is for kernels and evaluations


def require_room(learner: Any, seeds: int) -> None:
    """Refuses more seeds than the device has room for, and says how many it has."""
    free, each = free_bytes(learner.agent.device), learner.engine.bytes_each(learner)
    most = int(SPARED * free) // each
    if seeds > most:
        there = f"and {free / 2**30:,.1f} GiB are free on the GPU"
        raise UserError(
            f"A seed takes {each / 2**20:,.1f} MiB on the GPU, {there}, enough for {most:,} of "
            f"{seeds:,} seeds: "
            + (f"train so many at a time with --jobs {most}." if most else "lower agent.capacity.")
        )


def require_kernels(learner: Any, seeds: int, quiet: bool) -> None:
    """Compiles what so many seeds need, and refuses what cannot be."""
    group = learner.engine.together([learner], seeds)
    try:
        learners.warm_up(group, quiet)
    except Obstacle as obstacle:
        name = learner.description.name
        raise ConfigError(
            "engine", f"= {name} does not fit: {obstacle}; use another one."
        ) from None
    group.dissolve()


def free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else 2**63


Rows = dict[str, list[dict[str, Any]]]


def train_together(many: "Many", jobs: int, quiet: bool) -> tuple[int, dict[str, str], Rows]:
    """Trains all of them, `jobs` at a time (0: all). Returns the signal that stopped them, or 0,
    the sentences of those that failed, by name (the others went on; a UserError where all did),
    and the metrics of those that were trained, without episodes."""
    end = sum(member.run.steps for member in many.members)
    steps, failed, rows = many.steps, {}, {}
    display = Display(many.title, end, sum(steps.values()), quiet)
    words = f"{many.title} ({jobs or 'all'} at a time in one process) -> {many.path}"
    display.announce(words, many.members[0].run)
    allow_files(len(many.members))
    with closing(display), Interrupt() as interrupt:
        at_a_time = jobs or len(many.members)
        for first in range(0, len(many.members), at_a_time):
            members = many.members[first : first + at_a_time]
            if not interrupt.signal:
                rows |= Cohort(many, members, display, interrupt, steps, failed).run()
        stopped = interrupt.signal
    if len(failed) == len(many.members):
        name, words = next(iter(failed.items()))
        raise UserError(f"{name[:1].upper()}{name[1:]}: {words.rstrip('.')}. {many.again}")
    display.say(
        f"{'stopped' if stopped else f'{len(many.members)} {many.what}'} after "
        f"{clock_face(display.seconds())} ({display.rate(sum(steps.values())):,.0f} steps/s "
        "together)"
    )
    return stopped, failed, rows


def allow_files(runs: int) -> None:
    """Every run holds the lock of its folder."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = soft + runs if hard == resource.RLIM_INFINITY else min(soft + runs, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def calm() -> Iterator[None]:
    """Hundreds of learners are made and kept: nothing of them is garbage to be looked for."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()


class Latch:
    """A signal as all runs hear it: in the same turn."""

    signal = 0


class Seat:
    """One of the runs, and what it asks for next."""

    def __init__(self, name: str, session: Session, metrics: Metrics, *more: Any) -> None:
        """`more` is what a session's course takes besides."""
        metrics.pause = WRITES
        self.name, self.session, self.metrics = name, session, metrics
        self.course = session.course(metrics, *more)
        self.turn: Turn | None = None
        self.error = ""

    def go(self, answer: Any = None) -> None:
        """On to where it asks again, or to its end."""
        try:
            self.turn = self.course.send(answer)
        except StopIteration as end:
            self.turn, self.error = None, end.value.unsaved
        except UserError as error:
            self.turn, self.error = None, str(error)


class Cohort:
    """Runs that begin at the same time. `steps` are how far all runs are, `failed` the sentences
    of those that failed."""

    def __init__(
        self,
        many: "Many",
        members: Sequence["Member"],
        display: Display,
        interrupt: Interrupt,
        steps: dict[str, int],
        failed: dict[str, str],
    ) -> None:
        self.many, self.members, self.display = many, members, display
        self.interrupt, self.steps, self.failed = interrupt, steps, failed
        self.latch = Latch()
        self.saved = self.looked = monotonic()

    def run(self) -> Rows:
        """All of them to their ends; their metrics. A resume may find them at several steps: then
        those at the same step are trained together."""
        with ExitStack() as held, calm(), ThreadPoolExecutor(WRITERS) as self.writers:
            folders = self.writers.map(self.folder_of, self.members)
            begun = list(zip(self.members, folders, strict=True))
            seats = [seat for one in begun if (seat := self.seat(*one, held))]
            for seat in seats:
                held.callback(seat.course.close)
            self.writers.submit(new_figure, 1, 1)  # imports what the report needs meanwhile
            gc.freeze()
            gc.enable()
            seats.sort(key=step_of)
            alike = [
                part for _, those in groupby(seats, key=step_of) for part in by_rate(list(those))
            ]
            for those in alike:
                if not self.interrupt.signal:
                    self.drive(those)
            return {seat.name: seat.metrics.rows for seat in seats}

    def folder_of(self, member: "Member") -> RunFolder | UserError | None:
        """New, or that of a run that was saved; what is wrong with it, or None after a signal.
        Folders wait for the disk together."""
        if self.interrupt.signal:
            return None
        try:
            if is_run(member.path) and checkpoint_steps(member.path):
                folder = RunFolder.open(member.path, self.many.trust)[0]
                return folder.__enter__()
            initial = self.many.initial
            about = initial.about if initial else None
            return RunFolder.create(member.path, member.run, overwrite=True, init=about)
        except UserError as error:
            return error

    def seat(
        self, member: "Member", folder: RunFolder | UserError | None, held: ExitStack
    ) -> Seat | None:
        """Where a run begins or goes on; None where it is finished, or cannot."""
        try:
            if isinstance(folder, UserError):
                raise folder
            if folder and not self.interrupt.signal:
                held.push(folder)
                return self.seat_in(folder, member, held)
        except Finished:
            return None
        except UserError as error:
            self.note_failure(member.name, str(error))
        return None

    def seat_in(self, folder: RunFolder, member: "Member", held: ExitStack) -> Seat:
        run, refused = member.run, []
        if not checkpoint_steps(folder.path):
            checkpoints = Checkpoints(folder, run.keep, lazily=True)
            learner = self.learner_of(run, held)
            if self.many.initial:
                self.many.initial.give(learner)
            session = self.session_of(learner, checkpoints)
            return Seat(member.name, session, Metrics(folder), {}, [], self.many.callbacks)
        run = changed_run(read_settings(folder.path, folder.trust), self.many.change)
        while True:
            checkpoints = Checkpoints(folder, run.keep, lazily=True)
            saved = last_saved(checkpoints, run, refused)
            session = self.session_of(self.learner_of(run, held), checkpoints)
            try:
                return Seat(member.name, session, *session.restore(saved), self.many.callbacks)
            except Unfit as error:
                refused.append(pass_over(error, folder))

    def learner_of(self, run: Any, held: ExitStack) -> Any:
        learner = learners.make_learner(run)
        held.callback(learner.close)
        return learner

    def session_of(self, learner: Any, checkpoints: Checkpoints) -> Session:
        folder = checkpoints.folder
        return Session(learner, folder, checkpoints, self.latch, True, self.display)

    def note_failure(self, name: str, words: str) -> None:
        self.failed[name] = words
        self.display.say(f"{name}: {words}", always=True)

    def drive(self, seats: list[Seat]) -> None:
        """Those that are at the same step and learn at the same rate, to their ends."""
        everyone: list[Any] = [seat.session.learner for seat in seats]
        try:
            group = everyone[0].engine.together(everyone, len(self.many.members))
        except torch.OutOfMemoryError:  # somebody else took it meanwhile
            raise UserError(
                f"The GPU's memory does not hold {len(seats):,} {self.many.what}: train fewer at a "
                "time with --jobs."
            ) from None
        learners.warm_up(group, self.display.quiet)
        for seat in seats:
            seat.go()
        going = seats
        while going := self.still(going):
            self.latch.signal = self.interrupt.signal
            if saving := [seat for seat in going if seat.turn and not seat.turn.until]:
                self.save(group, saving)
                continue
            self.play(group, seats, min(seat.turn.until for seat in going if seat.turn))
            for seat in going:
                seat.go(True)
        group.dissolve()  # the device's memory is the next ones'

    def still(self, seats: list[Seat]) -> list[Seat]:
        """Those that have not ended; who failed is told of."""
        for seat in seats:
            if seat.error:
                self.note_failure(seat.name, seat.error)
        return [seat for seat in seats if seat.turn]

    def save(self, group: Any, seats: list[Seat]) -> None:
        """Checkpoints of all: they wait for the disk together."""
        last = any(seat.turn and seat.turn.last for seat in seats)
        if not last and monotonic() - self.saved < PAUSE:
            for seat in seats:
                seat.go(True)
            return
        group.fetch()  # here: the threads below then have nothing more to ask of it
        group.take_sums()
        list(self.writers.map(Seat.go, seats))
        self.saved = monotonic()

    def play(self, group: Any, seats: list[Seat], until: int) -> None:
        """Rounds of all until a step, or a signal."""
        begun = perf_counter_ns()
        first = group.learners[0]
        while first.step < until and not self.interrupt.signal:
            group.run(-((first.step - until) // first.envs.num_envs))
            self.look(seats)
        group.fetch_networks()
        passed = perf_counter_ns() - begun
        for seat, episodes in zip(seats, group.finished(), strict=True):
            if seat.turn:
                self.steps[seat.name] = first.step
                seat.session.learner.clock.spent["update"] += passed
                for episode in episodes:
                    seat.metrics.episode(first.step, episode)

    def look(self, seats: list[Seat]) -> None:
        if monotonic() - self.looked < LOOKS:
            return
        self.looked = monotonic()
        going = [seat for seat in seats if seat.turn]
        returns = [fmean(seat.metrics.returns) for seat in going if seat.metrics.returns]
        told = {"mean return": f"{fmean(returns):.1f}"} if returns else {}
        now = {seat.name: step_of(seat) for seat in going}
        done = sum((self.steps | now).values())
        self.display.show(done, {self.many.what: f"{len(going)}", **told})


def by_rate(seats: list[Seat]) -> list[list[Seat]]:
    """Those with one learning rate together, in their order: a launch has one for all."""
    found: dict[str, list[Seat]] = {}
    for seat in seats:
        found.setdefault(repr(seat.session.learner.agent.config.lr), []).append(seat)
    return list(found.values())


def step_of(seat: Seat) -> int:
    return seat.session.learner.step
