"""Where the time goes. One round in 64 is timed, so that the timers stay under 1 % of the run."""

from time import perf_counter_ns

STAGES = ("act", "env", "store", "sample", "update", "evaluate", "save")
EVERY = 64


class Clock:
    """Nanoseconds by stage: sampled stages are scaled by how often they are timed, whole ones (evaluate, save) are not."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(STAGES, 0)
        self.before = 0

    def start(self) -> None:
        self.before = perf_counter_ns()

    def lap(self, stage: str, scale: int = EVERY) -> None:
        """The time since the last lap or start belongs to `stage`."""
        now = perf_counter_ns()
        self.spent[stage] += (now - self.before) * scale
        self.before = now

    def shares(self) -> dict[str, float]:
        whole = sum(self.spent.values()) or 1
        return {stage: spent / whole for stage, spent in self.spent.items() if spent}

    def sentence(self) -> str:
        return " · ".join(f"{stage} {share:.0%}" for stage, share in sorted(self.shares().items(), key=lambda s: -s[1]))
