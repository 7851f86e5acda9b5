"""What is drawn for a trial: the run, the process, the signal and the moment."""

import random
import signal
from dataclasses import dataclass

from kinds import KINDS

MOMENTS = (
    "start",
    "import",
    "compile",
    "first steps",
    "training",
    "checkpoint",
    "evaluation",
    "report",
)
# what is sent, to whom, how often; "group" is what a terminal does at Ctrl-C and when it is closed
SIGNALS = {
    "INT": (signal.SIGINT, 1),
    "TERM": (signal.SIGTERM, 1),
    "HUP": (signal.SIGHUP, 1),
    "KILL": (signal.SIGKILL, 1),
    "Ctrl-C": (signal.SIGINT, 1),
    "Ctrl-C twice": (signal.SIGINT, 2),
    "TERM twice": (signal.SIGTERM, 2),
    "HUP group": (signal.SIGHUP, 1),
    "KILL group": (signal.SIGKILL, 1),
}
TO_GROUP = ("Ctrl-C", "Ctrl-C twice", "HUP group", "KILL group")
STOPPED = (130, 143, 129)  # exit codes of a run that was told to stop, and did


@dataclass(frozen=True)
class Draw:
    """What a trial's number and the harness's seed decide."""

    number: int
    kind: str
    process: str
    signal: str
    moment: str
    seed: str

    @classmethod
    def of(cls, seed: int, number: int) -> "Draw":
        chance = random.Random(f"{seed}:{number}")
        kind = chance.choice(list(KINDS))
        process = chance.choice(["main", KINDS[kind].children]) if KINDS[kind].children else "main"
        signals = (
            list(SIGNALS)
            if process == "main"
            else [name for name in SIGNALS if name not in TO_GROUP]
        )
        moments = (
            MOMENTS if process == "main" else [m for m in MOMENTS if m not in ("start", "compile")]
        )
        return cls(
            number,
            kind,
            process,
            chance.choice(signals),
            chance.choice(moments),
            f"{seed}:{number}",
        )
