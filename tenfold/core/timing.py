"""Where the time goes: every stage is timed, by the learner where it makes rounds of stages, by the
compiled call itself where that makes whole ones. Timers stay under 1 % of a run."""

import math
from collections.abc import Mapping
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


class Clock:
    """Nanoseconds by stage."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = dict.fromkeys(STAGES, 0)
        self.before = 0

    def start(self) -> None:
        self.before = perf_counter_ns()

    def lap(self, stage: str) -> None:
        """The time since the last lap or start belongs to `stage`."""
        now = perf_counter_ns()
        self.spent[stage] += now - self.before
        self.before = now

    def share(self, known: Mapping[str, int], stage: str) -> None:
        """The same, but for what is `known` of other stages. Some of it is known of samples, and
        may be more than there was."""
        before = self.before
        self.lap(stage)
        whole, told = self.before - before, sum(known.values())
        for name, spent in known.items():
            self.spent[name] += spent * min(whole, told) // max(told, 1)
        self.spent[stage] -= min(whole, told)

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
