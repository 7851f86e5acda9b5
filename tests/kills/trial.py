"""One kill: a run is started, watched until the moment, struck, and everything that must hold
afterwards is looked at."""

import contextlib
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from draws import SIGNALS, STOPPED, TO_GROUP, Draw
from kinds import GONE, KINDS, Kind, different, learned
from watching import MARK, alive, children, heeds_signals, mapped, marked, shared_names, told

from tenfold.cli.main import main
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.metrics import latest_row
from tenfold.runs.storage import Arrays

# in the order in which they are imported
LIBRARIES = ("python", "_multiarray_umath", "libtorch_cpu", "llvmlite")
PATIENCE = 240.0  # seconds for a moment to come, and for a run to end: this machine is loaded
BAD_WORDS = (
    "Traceback",
    "Exception ignored",
    "leaked",
    "resource_tracker",
    "KeyboardInterrupt",
    "EOFError",
    "Fatal Python",
)


@dataclass
class Outcome:
    draw: Draw
    faults: list[str] = field(default_factory=list)
    late: bool = False  # the run, or the process, had ended before the moment came
    code: int | None = None
    seconds: float = 0.0  # from the signal to the end of the main process
    came_to: str = ""  # what resume made of it
    said: str = ""


class Trial:
    def __init__(self, draw: Draw, folder: Path, reference: dict[str, Arrays]) -> None:
        self.draw, self.folder, self.reference = draw, folder, reference
        self.kind: Kind = KINDS[draw.kind]
        self.out, self.mark = folder / "run", f"{os.getpid()}-{draw.number}"
        self.chance = random.Random(f"{draw.seed}:moment")
        self.outcome = Outcome(draw)
        self.shared: set[str] = set()
        self.heeded = True

    def run(self) -> Outcome:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        environment = os.environ | {MARK: self.mark, "COLUMNS": "200"}
        if self.draw.moment == "compile":
            environment["NUMBA_CACHE_DIR"] = str(self.folder / "kernels")
        with (self.folder / "out").open("wb") as out, (self.folder / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "tenfold", *self.kind.arguments(self.out)],
                stdout=out,
                stderr=err,
                env=environment,
                process_group=0,
                cwd=self.folder,
            )
            try:
                self.watch_and_strike(process)
            finally:
                self.sweep(process)
        self.outcome.said = (self.folder / "out").read_text(errors="replace") + (
            self.folder / "err"
        ).read_text(errors="replace")
        self.judge_words()
        if not self.outcome.faults:
            self.judge_resume()
        if not self.outcome.faults:
            shutil.rmtree(self.folder, ignore_errors=True)
        return self.outcome

    def fault(self, words: str) -> None:
        self.outcome.faults.append(words)

    # the moment

    def watch_and_strike(self, process: "subprocess.Popen[bytes]") -> None:
        target = self.wait_for_moment(process)
        self.heeded = heeds_signals(process.pid)
        struck = time.monotonic()
        self.shared |= shared_names(list(marked(self.mark)))
        if target is None or not self.strike(target):
            self.outcome.late = True
        try:
            self.outcome.code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.fault(f"still runs {PATIENCE:g} s after the signal")
            return
        self.outcome.seconds = time.monotonic() - struck
        end = time.monotonic() + GONE
        while (left := list(marked(self.mark))) and time.monotonic() < end:
            time.sleep(0.05)
        if left:
            self.fault(
                f"processes go on after {GONE:g} s: "
                + "; ".join(f"{pid} {told(pid)}" for pid in left)
            )
        if names := [name for name in self.shared if Path(name).exists()]:
            self.fault(f"left in /dev/shm: {', '.join(names)}")

    def wait_for_moment(self, process: "subprocess.Popen[bytes]") -> int | None:
        """The process to strike, when the moment has come; None where the run ended before."""
        draw, chance = self.draw, self.chance
        target = process.pid
        if draw.process != "main":
            count = chance.randint(1, 2)
            if not self.until(process, lambda: len(children(self.mark, process.pid)) >= count):
                return None
            target = chance.choice(children(self.mark, process.pid) or [process.pid])
        elif draw.moment in ("import", "compile") and not self.until(
            process, lambda: heeds_signals(process.pid)
        ):
            return None
        if (ready := self.condition(target)) and not self.until(process, ready):
            return None
        time.sleep(chance.random() ** 2 * self.delay())
        return target if process.poll() is None else None

    def condition(self, target: int) -> Callable[[], bool] | None:
        """What shows in the folder or in the process that the moment has come, apart from a
        delay."""
        member, moment = self.chance.choice(self.kind.members(self.out)), self.draw.moment
        steps = self.chance.randrange(1, self.kind.steps)
        if moment == "import":
            library = self.chance.choice(LIBRARIES)
            return lambda: mapped(target, library) or not alive(target)
        if moment == "compile":
            kernels = self.chance.randrange(6)
            return lambda: (
                mapped(target, "llvmlite")
                and len([*(self.folder / "kernels").rglob("*.nbi")]) >= kernels
            )
        if moment == "first steps":
            return (member / "run.json").exists
        if moment == "training":
            return lambda: latest_row(member / "metrics.jsonl").get("step", 0) >= steps
        if moment == "checkpoint":  # while the next one is written, if that can be seen
            return lambda: (
                any(saved >= steps for saved in checkpoint_steps(member))
                or (
                    latest_row(member / "metrics.jsonl").get("step", 0) >= steps - 1
                    and bool([*member.glob("*/.*.tmp")])
                )
            )
        if moment == "evaluation":  # a log row is written just before it
            due = max(steps // self.kind.evaluates, 1) * self.kind.evaluates
            return lambda: latest_row(member / "metrics.jsonl").get("step", 0) >= due
        if moment == "report":
            return lambda: any(saved >= self.kind.steps for saved in checkpoint_steps(member))
        return None

    def delay(self) -> float:
        """The most seconds after that."""
        return {
            "start": 0.3,
            "import": 0.3,
            "compile": 1.0,
            "first steps": 0.5,
            "report": 1.0,
            "checkpoint": 0.02,
        }.get(self.draw.moment, 0.1)

    def until(self, process: "subprocess.Popen[bytes]", ready: Callable[[], bool]) -> bool:
        end = time.monotonic() + PATIENCE
        while process.poll() is None:
            if ready():
                return True
            if time.monotonic() > end:
                self.fault(f"the moment did not come in {PATIENCE:g} s")
                return False
            time.sleep(0.003)
        return False

    def strike(self, target: int) -> bool:
        """False where there was nobody to strike."""
        number, times = SIGNALS[self.draw.signal]
        for count in range(times):
            if count:
                time.sleep(self.chance.random() * 0.3)
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if self.draw.signal in TO_GROUP else os.kill)(target, number)
                continue
            return count > 0
        return True

    def sweep(self, process: "subprocess.Popen[bytes]") -> None:
        """What a failed trial left must not disturb the others."""
        for pid in marked(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    # judgement

    def judge_words(self) -> None:
        said, code, draw = self.outcome.said, self.outcome.code, self.draw
        if draw.process == "main" and not self.heeded and not self.outcome.late:
            # Python's own start-up: not a line of ours has run, and a traceback is the
            # interpreter's
            if code not in (0, 1, -1, -2, -9, -15, *STOPPED):
                self.fault(f"exit code {code}")
            return
        found = [word for word in BAD_WORDS if word in said]
        if found:
            self.fault(f"printed {', '.join(found)}")
        expected, words = self.expected()
        if code not in expected:
            self.fault(f"exit code {code}, expected {' or '.join(map(str, expected))}")
        elif code and words and not any(word in said for word in words):
            self.fault(f"says none of {words}")
        if code in STOPPED:
            lines = [line for line in said.splitlines() if re.match("(tenfold: s|S)topped", line)]
            if len(lines) != 1:
                self.fault(f"{len(lines)} lines about the stop")
            steps = [checkpoint_steps(member) for member in self.kind.members(self.out)]
            if "and saved" in said and not any(steps):
                self.fault("says that it saved, and nothing is there")
            elif "and saved" in said and not all(
                f"at step {saved[-1]:,}" in said for saved in steps if saved
            ):
                self.fault(
                    f"does not name the steps that were saved: {[saved[-1:] for saved in steps]}"
                )

    def expected(self) -> tuple[list[int], list[str]]:
        """Exit codes that are right, and words of which one must be there where it is not 0."""
        number = SIGNALS[self.draw.signal][0]
        if self.outcome.late:
            return [0], []
        if self.draw.process == "main":
            # the process may have done all its work, and the interpreter's end has no handler any
            # more
            code = -9 if number == signal.SIGKILL else 128 + number
            finished = [0, -int(number)] if self.draw.moment == "report" else []
            return [code, *finished], []
        if self.draw.process in ("actor", "stepper") and number != signal.SIGKILL:
            return [0], []  # which leave signals to the learner
        words = (
            ["killed by SIGKILL"]
            if number == signal.SIGKILL
            else [f"stopped by {signal.Signals(number).name}"]
        )
        return [2, 0], words  # 0: it had no work any more

    def judge_resume(self) -> None:
        if not self.out.exists():
            self.outcome.came_to = "nothing was there"
            if left := [
                path.name
                for path in self.folder.iterdir()
                if path.name not in ("out", "err", "kernels")
            ]:
                self.fault(f"left behind: {left}")
            return
        saved = any(checkpoint_steps(member) for member in self.kind.members(self.out))
        words = io.StringIO()
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            code = main(["resume", str(self.out), "--quiet"])
        said = words.getvalue()
        if code == 2 and not saved and said.startswith("tenfold: ") and said.count("\n") == 1:
            self.outcome.came_to = "refused: nothing was saved yet"
            return
        if code and not (code == 2 and " is finished at step " in said):
            self.fault(f"resume ended with {code}: {said[-400:]}")
            return
        try:
            if names := different(learned(self.kind, self.out), self.reference):
                self.fault(f"resumed and different: {', '.join(names)}")
        except (ValueError, OSError) as error:
            self.fault(f"resumed, and {error}")
        self.outcome.came_to = "equal" if self.kind.exact else "reached its end"


def try_one(draw: Draw, folder: Path, reference: dict[str, Arrays]) -> Outcome:
    trial = Trial(draw, folder, reference)
    try:
        return trial.run()
    except Exception as error:  # the harness's own mistake is shown beside the others
        trial.fault(f"the harness failed: {type(error).__name__}: {error}")
        return trial.outcome
