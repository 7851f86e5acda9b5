"""Learners that a GPU trains together: every launch plays the same number of rounds of each. One
learner is a group of one. No Triton here.

An engine that can do so is a `ResidentEngine`. An algorithm adds its arrays on the device, a row
for each learner (`DeviceRuns`; what they share is in `engines.resident_runs`). The group decides
when they are copied and how long a launch is, and answers several learners that ask for the same
after a launch by one copy or one evaluation.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from threading import Lock
from time import perf_counter
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from tenfold.core.errors import Obstacle
from tenfold.core.protocols import RoundDriver
from tenfold.core.registry import import_by_name
from tenfold.envs.adapter import Episode
from tenfold.envs.control_dynamics import KINDS
from tenfold.envs.functions import runs_on_gpu

WIDEST, DEEPEST = 128, 3  # hidden layers that fit into the registers of a multiprocessor
# Triton's names; bf16x6 is as accurate as float32, and faster than its own form of it
PRECISIONS = {"fp32": "bf16x6", "bf16x3": "bf16x3", "tf32": "tf32", "ieee": "ieee"}

LAUNCH = 0.005  # seconds of a launch, so that a run is heard of and can be stopped
FEWEST, MOST_ROUNDS = 64, 4096  # of the first launch; of any


class DeviceRuns(Protocol):
    """The arrays of a group's learners on a device."""

    sums: Any  # [learners, statistics and count] as in the engines' `sums`, since they were taken

    def warm_up(self) -> None: ...  # compiles the kernels; no side effects
    def send(self, steps: list[int], rounds: list[int]) -> None: ...  # host to device
    def fetch(self) -> None: ...  # device to host
    def fetch_networks(self) -> None: ...  # parameters and the count of updates alone
    def rounded(self, rounds: int) -> int: ...  # the number near this one that is fastest
    def advance(self, rounds: int) -> None: ...  # one launch
    # of each learner the episodes that ended in the last launch; waits for it
    def finished(self) -> list[list[Episode]]: ...
    # episodes of each learner's policy; None: stopped
    def play(
        self, episodes: int, limit: int, purpose: Any, how: str, stop: Callable[[], bool]
    ) -> list[Any] | None: ...


class Group:
    """Learners and their arrays on a device. All are at the same step."""

    def __init__(self, learners: Sequence[Any], runs: DeviceRuns) -> None:
        self.learners, self.runs = list(learners), runs
        self.sent = False  # whether the device's copy is the newer one
        self.launches = 0
        # the launches after which everything, networks and sums came back
        self.fetched = self.looked = self.summed = 0
        self.fetching = Lock()  # runs are saved in threads, and the first to come fetches for all
        self.at_once = FEWEST  # rounds of the next launch
        self.ended: list[list[Episode]] = [[] for _ in self.learners]
        self.judged: tuple[Any, Any] = (None, None)
        for learner in self.learners:
            learner.engine.group = self

    def warm_up(self) -> None:
        """Compiles the kernels; an Obstacle where they cannot be."""
        try:
            self.runs.warm_up()
        except Exception as error:  # whatever a compiler may say
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1].rstrip(".")
            raise Obstacle(f"its kernels cannot be compiled here ({reason})") from error

    def send(self) -> None:
        """Copies the learners' arrays to the device if it does not hold them."""
        if not self.sent:
            steps, rounds = zip(
                *((learner.step, learner.rounds) for learner in self.learners), strict=True
            )
            self.runs.send(list(steps), list(rounds))
            self.sent = True

    def run(self, most: int) -> int:
        """Launches a few milliseconds, at most this many rounds of every learner; returns how
        many."""
        self.send()
        count, start = max(1, min(most, self.runs.rounded(self.at_once))), perf_counter()
        self.runs.advance(count)
        for kept, ended in zip(self.ended, self.runs.finished(), strict=True):
            kept += ended
        seconds = (perf_counter() - start) / count
        self.at_once = min(max(int(LAUNCH / seconds), 1), MOST_ROUNDS, 2 * self.at_once)
        self.launches += 1
        for learner in self.learners:
            learner.step += count * learner.envs.num_envs
            learner.rounds += count
        return count

    def finished(self) -> list[list[Episode]]:
        """The episodes of each learner that ended since the last call."""
        ended, self.ended = self.ended, [[] for _ in self.learners]
        return ended

    def fetch_networks(self) -> None:
        """Copies parameters to the host, for acting there."""
        if self.looked < self.launches:
            self.looked = self.launches
            self.runs.fetch_networks()

    def fetch(self) -> None:
        """Copies the learners' arrays to the host, before a checkpoint."""
        with self.fetching:
            if self.fetched < self.launches:
                self.runs.fetch()
                self.fetched = self.looked = self.launches

    def take_sums(self) -> None:
        """Adds the statistics to the engines' sums."""
        if self.summed < self.launches:
            self.summed = self.launches
            for learner, sums in zip(self.learners, self.runs.sums.tolist(), strict=True):
                learner.engine.add_sums(sums)
            self.runs.sums.zero_()

    def evaluate(
        self,
        learner: Any,
        episodes: int,
        limit: int,
        purpose: Any,
        how: str,
        stop: Callable[[], bool] = bool,
    ) -> Any:
        """Returns, lengths and which were cut of a learner's episodes (`ops.device.episodes`); None
        if `stop` returned true."""
        request = (self.launches, episodes, limit, purpose, how)
        if self.judged[0] != request:
            self.send()
            results = self.runs.play(episodes, limit, purpose, how, stop)
            if results is None:
                return None
            self.judged = request, results
        return self.judged[1][self.learners.index(learner)]

    def renew(self) -> None:
        """The host's copy is the newer one now."""
        self.sent, self.judged = False, (None, None)

    def dissolve(self) -> None:
        """Ends the group after settings changed: the next round makes another."""
        self.fetch()
        self.take_sums()
        for learner in self.learners:
            learner.engine.group = None


class ResidentEngine:
    """Mixin: list it before the plain engine. Its rounds are a group's; a round has no separate
    stages."""

    rounds_by: RoundDriver = "device"
    group: Group | None = None
    sums: Any

    runs_home: ClassVar[str]  # module:Class of the `ResidentRuns`, which need Triton
    memory_attribute: ClassVar[str]  # what a learner calls what is learned from

    @classmethod
    def host_run(cls, learner: Any) -> Any:
        from tenfold.engines.resident_runs import HostRun  # here: it needs Triton

        return HostRun(learner.agent, getattr(learner, cls.memory_attribute), learner.envs)

    @classmethod
    def make_group(cls, learners: Sequence[Any], of: int = 0) -> Group:
        """A group of these learners, whose settings are alike but for the seed. They may be some
        of the `of` seeds of an experiment, all of which are trained alike."""
        first, kind = learners[0], import_by_name(cls.runs_home)
        runs = [cls.host_run(learner) for learner in learners]
        device, precision = str(first.agent.device), first.engine.precision
        return Group(learners, kind(runs, device, precision, of=of))

    @classmethod
    def bytes_each(cls, learner: Any) -> int:
        """Memory of a learner on the device."""
        return import_by_name(cls.runs_home).bytes_each(cls.host_run(learner))

    def run_rounds(self, learner: Any, most: int, until: int | None) -> list[Episode]:
        """Rounds of a learner by a group of its own, not beyond step `until`; returns the episodes
        that ended."""
        if until is not None:
            most = min(most, -((learner.step - until) // learner.envs.num_envs))
        learner.clock.start()
        group = self.group or self.make_group([learner])
        group.run(most)
        group.fetch_networks()
        (finished,) = group.finished()
        learner.clock.lap("update")
        return finished

    def prepare(self, run: Any) -> None:
        # here: they come from the device for all learners at once
        self.sums = torch.as_tensor(self.sums).cpu().numpy()

    def settle(self) -> None:
        if self.group:
            self.group.fetch()

    def set_lr(self, lr: Any) -> None:
        if self.group:
            self.group.dissolve()

    def add_sums(self, more: list[float]) -> None:
        self.sums += np.array(more, self.sums.dtype)

    def take_sums(self) -> None:
        if self.group:
            self.group.take_sums()

    def statistics(self) -> dict[str, float]:
        self.take_sums()
        return super().statistics()  # type: ignore[misc]

    def state(self) -> Any:
        self.take_sums()
        return super().state()  # type: ignore[misc]

    def load_state(self, state: Any) -> None:
        self.take_sums()
        super().load_state(state)  # type: ignore[misc]
        if self.group:
            self.group.renew()


def why_not_resident(agent: Any, run: Any, outputs: int) -> str:
    """Why a resident engine does not fit an agent with fully connected layers."""
    net = agent.config.net
    layers = {net.hidden, net.of_value.hidden}
    if not runs_on_gpu(run.world):
        names = ", ".join(KINDS)
        return f"{run.world} does not run on the GPU ({names} and registered tasks do)"
    if agent.layout.frames > 1:
        return "the network sees several frames"
    if run.shapes_rewards:
        return "rewards are normalised or clipped"
    if agent.layout.size > WIDEST:
        return f"it is for observations of up to {WIDEST} numbers"
    fits = all(0 < len(hidden) <= DEEPEST and max(hidden) <= WIDEST for hidden in layers)
    if not fits or outputs > WIDEST:
        return f"it is for 1 to {DEEPEST} hidden layers of up to {WIDEST}, and as many outputs"
    if net.activation not in ("relu", "tanh"):
        return f"the activation is {net.activation}"
    if agent.config.weight_decay:
        return f"weights decay (agent.weight_decay = {agent.config.weight_decay:g})"
    if run.actors > 1 or run.where in ("processes", "ray"):
        return "actors act elsewhere"
    if run.verify or run.overlap:
        return "updates that are verified, or overlap with environments, are made one by one"
    return "" if find_spec("triton") else "Triton is not installed"
