"""Kills runs by chance, and shows that nothing is left behind: no process, no segment, no
traceback, and a resume that equals never having stopped.

    python tests/kills/run.py --kills 300 --seed 0 --jobs 2 --load 2

draws for each trial the run, the process, the signal and the moment; busy processes run beside it.
`--only N` repeats trial N of the same seed. It begins no trial after --minutes. Exit code 1 where
something did not hold.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from draws import STOPPED, Draw
from kinds import KINDS, learned
from trial import Outcome, try_one

from tenfold.core.system import machine_card, versions

BUSY = "while True: pass"


def reference_run(name: str, folder: Path) -> Any:
    """What a run of this kind comes to that is never stopped."""
    kind, out, start = KINDS[name], folder / f"reference-{name.replace(' ', '-')}", time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "tenfold", *kind.arguments(out), "--quiet"],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    print(f"reference {name}: {time.monotonic() - start:.1f} s", flush=True)
    return learned(kind, out)


def tell(outcome: Outcome, seed: int) -> str:
    draw = outcome.draw
    what = f"{draw.number:4d} {draw.kind:12} {draw.process:6} {draw.signal:12} {draw.moment:11}"
    end = "late" if outcome.late else f"exit {outcome.code} after {outcome.seconds:.1f} s"
    line = f"{what} {end:22} {outcome.came_to}"
    if outcome.faults:
        line += "".join(f"\n     FAULT: {fault}" for fault in outcome.faults)
        line += f"\n     again: python tests/kills/run.py --seed {seed} --only {draw.number}\n"
        line += "".join(f"     | {words}\n" for words in outcome.said.splitlines()[-25:])
    return line


def table(outcomes: list[Outcome]) -> str:
    """How often each thing was drawn, and how often it failed."""
    lines = []
    for what in ("kind", "process", "signal", "moment"):
        drawn = Counter(getattr(outcome.draw, what) for outcome in outcomes)
        bad = Counter(getattr(outcome.draw, what) for outcome in outcomes if outcome.faults)
        late = Counter(getattr(outcome.draw, what) for outcome in outcomes if outcome.late)
        lines += [
            f"{what:8} {name:13} {count:4d} drawn {late[name]:4d} late {bad[name]:4d} failed"
            for name, count in sorted(drawn.items())
        ]
    came = Counter(outcome.came_to or "failed" for outcome in outcomes)
    lines += [f"resume   {name:32} {count:4d}" for name, count in sorted(came.items())]
    return "\n".join(lines)


def summary(
    outcomes: list[Outcome], arguments: argparse.Namespace, seconds: float
) -> dict[str, Any]:
    counts = {
        what: dict(sorted(Counter(getattr(o.draw, what) for o in outcomes).items()))
        for what in ("kind", "process", "signal", "moment")
    }
    return {
        "kills": len(outcomes),
        "failed": sum(bool(o.faults) for o in outcomes),
        "late": sum(o.late for o in outcomes),
        "seed": arguments.seed,
        "busy_processes": arguments.load,
        "jobs": arguments.jobs,
        "seconds": round(seconds),
        "drawn": counts,
        "resume": dict(sorted(Counter(o.came_to or "failed" for o in outcomes).items())),
        "longest_stop_seconds": round(
            max((o.seconds for o in outcomes if not o.late and o.code in STOPPED), default=0), 1
        ),
        "versions": versions(),
        "machine": machine_card(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=300, help="how many (300)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (0)")
    parser.add_argument("--seed", type=int, default=0, help="what is drawn (0)")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time (2)")
    parser.add_argument("--load", type=int, default=2, help="busy processes beside them (2)")
    parser.add_argument(
        "--minutes", type=float, default=60, help="no trial is begun after so many (60)"
    )
    parser.add_argument("--only", type=int, help="this trial alone")
    parser.add_argument("--kinds", default="", help="only these, such as dqn,seeds")
    parser.add_argument("--json", type=Path, help="where the counts go")
    arguments = parser.parse_args()
    numbers = (
        [arguments.only]
        if arguments.only is not None
        else range(arguments.first, arguments.first + arguments.kills)
    )
    draws = [
        draw
        for draw in (Draw.of(arguments.seed, number) for number in numbers)
        if not arguments.kinds or draw.kind in arguments.kinds.split(",")
    ]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a start then takes twice as long
    begun = time.monotonic()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="tenfold-kills-") as name:
        folder = Path(name)
        kinds = sorted({draw.kind for draw in draws})
        with ThreadPoolExecutor(arguments.jobs) as threads:
            references = dict(
                zip(
                    kinds, threads.map(lambda kind: reference_run(kind, folder), kinds), strict=True
                )
            )
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(arguments.load)]
        try:
            with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
                running = set()
                while draws or running:
                    if time.monotonic() - begun > 60 * arguments.minutes:
                        draws.clear()
                    while draws and len(running) < arguments.jobs:
                        draw = draws.pop(0)
                        running.add(
                            pool.submit(
                                try_one, draw, folder / str(draw.number), references[draw.kind]
                            )
                        )
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for one in done:
                        outcomes.append(one.result())
                        print(tell(outcomes[-1], arguments.seed), flush=True)
        finally:
            for process in busy:
                process.kill()
    failed = sum(bool(outcome.faults) for outcome in outcomes)
    print(
        f"\n{table(outcomes)}\n\n{len(outcomes)} kills, {failed} failed, {sum(o.late for o in outcomes)} came too late, in "
        f"{(time.monotonic() - begun) / 60:.0f} minutes"
    )
    if arguments.json:
        arguments.json.write_text(
            json.dumps(summary(outcomes, arguments, time.monotonic() - begun), indent=1) + "\n"
        )
    return 1 if failed or len(outcomes) == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
