"""Training many seeds at once: each is the very run it would be alone, so member i equals the run of seed i bit for bit.

A process for each core takes one seed after another. (One process that updates several members in one call would save only the
cost of the calls, some 2 µs of a round; and it could not use a second core.)
"""

import multiprocessing
import os
import signal
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenfold.config import merge, to_mapping
from tenfold.errors import ConfigError, UserError
from tenfold.places.watch import STOPS, deaf, die_with_parent
from tenfold.record.claim import Claim
from tenfold.record.display import Display, clock_face
from tenfold.record.folder import is_run, require_place
from tenfold.record.runs import destination, named_after, turn_latest
from tenfold.record.seeds import SeedsFolder, latest_row, summarise, write_seeds_report
from tenfold.settings import Run
from tenfold.training import Finished, Interrupt, prepare, ready, resume, train

POLL = 0.5  # seconds between looks at the members' progress


@dataclass(frozen=True)
class SeedsResult:
    """Several seeds that ended. `summary` is what summary.json holds; `interrupted` the signal that stopped them early, or 0."""

    path: Path
    run: Run
    seeds: tuple[int, ...]
    summary: dict[str, Any]
    interrupted: int = 0


def train_seeds(run: Run, seeds: int | tuple[int, ...], out: str | Path = "", *, name: str = "", jobs: int = 0,
                overwrite: bool = False, quiet: bool = False) -> SeedsResult:
    """Trains `run` once for each seed (a number n means 0 … n − 1) into out/seed-0, out/seed-1, …; without `out` into a new
    folder, runs/NAME, runs/NAME-2, … (the name is the environment's by default)."""
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise ConfigError("seeds", f"= {list(chosen)} cannot be: give at least one, none of them twice or below 0.")
    target = destination(out, name or named_after(run.env), overwrite)
    require_place(target, overwrite)  # here: before anything is compiled
    prepare(run)
    with ready(run, quiet):  # settings that do not fit leave nothing behind; kernels compile once, not in every process
        pass
    return carry_out(SeedsFolder.create(target, run, chosen, overwrite), jobs, quiet)


def resume_seeds(path: str | Path, steps: int | None = None, *, engine: str = "", settings: dict[str, Any] | None = None,
                 jobs: int = 0, quiet: bool = False) -> SeedsResult:
    """Goes on with those seeds that are not finished, as `resume` does with one."""
    folder = SeedsFolder.open(Path(path))
    given = ({} if steps is None else {"steps": steps}) | ({"engine": engine} if engine else {})
    with Claim(folder.path):
        folder = folder.changed(merge(settings or {}, given))
        turn_latest(folder.path)
        return carry_out(folder, jobs, quiet)


def carry_out(folder: SeedsFolder, jobs: int, quiet: bool) -> SeedsResult:
    workers = min(jobs or len(os.sched_getaffinity(0)), len(folder.seeds))
    end = folder.run.steps * len(folder.seeds)
    display = Display(f"{folder.run.agent.name} on {folder.run.env}, {len(folder.seeds)} seeds", end, done_steps(folder), quiet)
    display.say(f"{folder.run.agent.name} on {folder.run.env}, seeds {', '.join(map(str, folder.seeds))}, {workers} at a time "
                f"-> {folder.path}")
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=enter_worker, initargs=(os.getpid(),))
    members: dict[Future[dict[str, Any]], int] = {}
    try:
        with Forward(pool) as forward:
            with deaf():  # the pool starts its processes as it is given work
                for seed in folder.seeds:
                    settings = to_mapping(folder.run_of(seed))
                    members[pool.submit(train_member, settings, str(folder.member(seed)), folder.changes)] = seed
            forward.tell()
            watch(folder, members, display)
    except BrokenProcessPool:
        raise UserError(f"A training process died (out of memory?): `tenfold resume {folder.path}` goes on from the last "
                        "checkpoints.") from None
    finally:
        pool.shutdown(cancel_futures=True)
        display.close()
    for member, seed in members.items():
        if member.result()["error"]:
            raise UserError(f"Seed {seed}: {member.result()['error']}")
    if not forward.signal:
        write_seeds_report(folder)
    rate = display.rate(done_steps(folder))
    display.say(f"{len(folder.seeds)} seeds after {clock_face(display.seconds())} ({rate:,.0f} steps/s together)")
    return SeedsResult(folder.path, folder.run, folder.seeds, summarise(folder), forward.signal)


def watch(folder: SeedsFolder, members: "dict[Future[dict[str, Any]], int]", display: Display) -> None:
    """Shows the progress until all are done; an error of one ends the others' queue."""
    waiting = set(members)
    while waiting:
        done, waiting = wait(waiting, POLL, FIRST_COMPLETED)
        if any(member.result()["error"] for member in done):
            for member in waiting:
                member.cancel()
            waiting = {member for member in waiting if not member.cancelled()}
        display.show(done_steps(folder), {"done": f"{len(members) - len(waiting)} of {len(members)} seeds", **progress(folder)})


def progress(folder: SeedsFolder) -> dict[str, str]:
    """Every seed's latest number, by what it is called: returns, or how well a hidden system is known."""
    explorer = folder.run.agent.name == "explorer"
    rows = [latest_row(folder.member(seed) / "metrics.jsonl", "fit" if explorer else "train") for seed in folder.seeds]
    if not explorer:
        return {"returns": " ".join(f"{row['return']:.0f}" if "return" in row else "–" for row in rows)}
    known = any("field_error" in row for row in rows)
    shown = [f"{row['field_error']:.3f}" if "field_error" in row else f"{row['r2'][-1]:.3f}" if "r2" in row else "–"
             for row in rows]
    return {"errors of the field" if known else "R²": " ".join(shown)} if any(rows) else {}


def done_steps(folder: SeedsFolder) -> int:
    return sum(latest_row(folder.member(seed) / "metrics.jsonl").get("step", 0) for seed in folder.seeds)


# inside a worker --------------------------------------------------------------------------------------------------------


def enter_worker(parent: int) -> None:
    """A worker ends with its parent, whatever happens to that, and hears Ctrl-C only from it, exactly once; one that came
    while it started waited until here."""
    os.setpgrp()
    die_with_parent(parent)
    for number in STOPS:
        signal.signal(number, remember_stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def remember_stop(number: int, frame: Any) -> None:
    Interrupt.earlier = number


def train_member(settings: dict[str, Any], path: str, change: dict[str, Any]) -> dict[str, Any]:
    """One seed from its start, or from where it stopped, then with the settings that changed since."""
    if Interrupt.earlier:
        return {"error": ""}
    try:
        if is_run(Path(path)) and any((Path(path) / "checkpoints").glob("step-*")):
            result = resume(path, settings=change, quiet=True)
        else:
            result = train(Run.of(settings), path, overwrite=True, quiet=True)
        Interrupt.earlier = Interrupt.earlier or result.interrupted
        return {"error": result.unsaved}
    except Finished:
        return {"error": ""}
    except UserError as error:
        return {"error": str(error)}


class Forward:
    """Passes Ctrl-C and SIGTERM on to the workers, once to each."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self.pool, self.signal = pool, 0
        self.told: set[int] = set()

    def __enter__(self) -> "Forward":
        self.before = {}
        if threading.current_thread() is threading.main_thread():
            self.before = {s: signal.signal(s, self.pass_on) for s in STOPS}
        return self

    def pass_on(self, number: int, frame: Any) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        self.tell()

    def tell(self) -> None:
        """If there was a signal: to those workers that have not heard of it."""
        for worker in set(self.pool._processes) - self.told if self.signal else ():
            self.told.add(worker)
            os.kill(worker, signal.SIGINT)

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
