"""Where the time goes. Of the short stages one round in 61 (499 at most) is timed, so that timers
stay under 1 % of the run."""

import math
from time import perf_counter_ns

STAGES = (
    "act",
    "env",
    "wait",
    "store",
    "sample",
    "update",
    "publish",
    "verify",
    "evaluate",
    "save",
)
# a prime, so that it does not beat with periods of the settings such as an update every 256 steps
EVERY = 61


class Clock:
    """Nanoseconds by stage. Act, env and store are timed now and then and scaled; the others are
    timed whole."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = dict.fromkeys(STAGES, 0)
        self.before = 0

    def start(self) -> None:
        self.before = perf_counter_ns()

    def lap(self, stage: str, scale: int = 1) -> None:
        """The time since the last lap or start belongs to `stage`."""
        now = perf_counter_ns()
        self.spent[stage] += (now - self.before) * scale
        self.before = now

    def shares(self) -> dict[str, float]:
        whole = sum(self.spent.values()) or 1
        return {stage: spent / whole for stage, spent in self.spent.items() if spent}

    def sentence(self) -> str:
        return " · ".join(
            f"{stage} {share:.0%}"
            for stage, share in sorted(self.shares().items(), key=lambda s: -s[1])
        )


def clock_face(seconds: float) -> str:
    """1:02:03, or 4:05 under an hour."""
    if not math.isfinite(seconds):
        return "?"
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
