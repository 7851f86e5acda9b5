"""One adapter over environments in several processes: each steps a slice of the worlds, and the
arrays of all lie in shared memory.

World i is seeded by f(seed, i, episode) wherever it is, so what is learned, saved and resumed is
what one process would have come to, bit for bit. A step rings a bell for each process and sleeps
until all have rung back.
"""

import atexit
import select
from collections.abc import Sequence
from itertools import pairwise
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from tenfold.actors.actor import MAKING, STEP_FIELDS, TransitionBatch, episodes
from tenfold.actors.child_process import (
    ABSENT,
    START_UP,
    ActorLost,
    ChildProcess,
    end_children,
    too_slow,
)
from tenfold.actors.env_worker import (
    COMPILING,
    EPISODES,
    POSITION,
    LaneJob,
    LaneMemory,
    kind_of,
    lane_schema,
    run_env_worker,
    shared_actions,
    world_lanes,
)
from tenfold.core.errors import (
    ActorFault,
    CheckpointError,
    EnvironmentFault,
    NoSuchName,
    UserError,
)
from tenfold.core.processes import has_guard
from tenfold.core.spaces import policy_actions
from tenfold.envs.adapter import Environments
from tenfold.memory.shared import SharedEvent, SharedLanes

DAY = 86_400.0  # seconds that one wait lasts at most
# what is known of all environments from one of them
SAMPLE_ATTRIBUTES = (
    "multiagent",
    "exact_resume",
    "unread_mask",
    "masked",
    "component_names",
    "action_names",
    "component_weights",
)


class SplitEnvironments(Environments):
    """As one adapter of all worlds, in every bit; their states are each other's."""

    def __init__(
        self, sample: Environments, job: LaneJob, workers: int, steps: int = 0, digest: str = ""
    ) -> None:
        """`sample`: an adapter of one such environment, which played so many steps with this
        digest, if it can be told; `job`: of all worlds. Raises ActorLost where a process cannot do
        the same. What they took for it all at once are the `sample_seconds`."""
        spaces = sample.observation_space, sample.action_space
        super().__init__(sample.name, job.worlds, job.seed, *spaces, job.first, sample.agents)
        for name in SAMPLE_ATTRIBUTES:
            setattr(self, name, getattr(sample, name))
        self.sample_spec, self.limit = sample.spec, sample.time_limit
        self.job, self.patience = job, job.patience
        numbers = policy_actions(sample.action_space, sample.name).numbers
        self.shared = SharedLanes(lane_schema(sample, job.worlds, 8 * numbers), "environments")
        arrays = self.shared.arrays
        for name in (*STEP_FIELDS, *POSITION):
            setattr(self, name, arrays[name])
        self.mask, self.final_mask = arrays.get("mask"), arrays.get("final_mask")
        self.notes, self.rounds_played = arrays["note"], arrays["rounds"]
        self.rows: dict[str, np.ndarray] = {
            name.removeprefix(EPISODES): array
            for name, array in arrays.items()
            if name.startswith(EPISODES)
        }
        self.rounds, self.action, self.done = 0, np.zeros(0), SharedEvent()
        bounds = np.linspace(0, job.worlds, workers + 1).astype(int).tolist()
        self.slices = [slice(*ends) for ends in pairwise(bounds)]
        self.bells = [SharedEvent() for _ in self.slices]
        self.children = [ChildProcess(f"worker {index}") for index in range(workers)]
        atexit.register(self.kill)  # before multiprocessing's own, which would wait for them
        try:
            self.start(steps)
            self.connect(steps, digest, kind_of(sample))
        except BaseException:
            self.close()
            raise

    def start(self, steps: int) -> None:
        """Starts all processes."""
        reads_script = has_guard()
        for index, (child, here) in enumerate(zip(self.children, self.slices, strict=True)):
            memory = LaneMemory(self.shared, self.bells[index], self.done)
            arguments = index, self.job, here, memory, steps
            child.start(run_env_worker, *arguments, reads_script=reads_script)

    def connect(self, steps: int, digest: str, kind: tuple[Any, ...]) -> None:
        """Lets all processes play the sample's steps at once, and waits until each has made its
        environments, which must be like the sample."""
        patience = max(self.patience, MAKING)
        for child in self.children:
            child.recv("awake", START_UP, "started")
            child.recv("ready", 2 * patience, f"made {self.name}")
        start = perf_counter()
        for child in self.children:
            child.send("try")
        seconds = max(self.patience, COMPILING) * max(steps, 1)
        digests = [child.recv("tried", seconds, "taken a step")[1] for child in self.children]
        self.sample_seconds = perf_counter() - start
        if digest and {*digests} != {digest}:
            raise ActorLost("saw something else by the same actions")
        for child in self.children:
            _, its_kind = child.recv("begin", patience * (self.worlds + 1), f"made {self.name}")
            if its_kind != kind:
                raise ActorLost("made environments that are not all alike")
            child.connected = True
        self.poll = select.poll()
        for number in (self.done.fileno(), *(child.process.sentinel for child in self.children)):
            self.poll.register(number, select.POLLIN)

    # what the sample said

    @property
    def spec(self) -> Any:
        return self.sample_spec

    @property
    def step_time(self) -> float | None:
        return self.sample_spec.step_time

    @property
    def time_limit(self) -> int | None:
        return self.limit

    @property
    def envs(self) -> Any:
        raise NoSuchName(
            f"The environments of {self.name} are in {len(self.children)} processes of their own, "
            "and cannot be reached from here: set env_threads to 1 to keep them in this one."
        )

    # steps

    def step(self, actions: np.ndarray) -> None:
        self.send(actions)
        self.recv()

    def send(self, actions: np.ndarray) -> None:
        """Lets every process step its environments; `recv` waits for them."""
        if actions.dtype != self.action.dtype or actions.shape != self.action.shape:
            form = len(actions), actions.shape[1:], actions.dtype.str
            self.action = shared_actions(self.shared, *form)
            self.request_all("take_actions", [form] * len(self.children), START_UP, "answered")
        self.action[...] = actions
        self.rounds += 1
        for bell in self.bells:
            bell.give()

    def recv(self) -> None:
        """Waits until every process has stepped; what went wrong in the first of them is raised."""
        missing, end = len(self.children), monotonic() + self.step_seconds
        while missing:
            before = monotonic()
            left = min(max(end - before, 0.0), DAY)
            ready = [number for number, _ in self.poll.poll(1000 * left)]
            if self.done.fileno() in ready:
                missing -= self.done.count()
            elif ready:
                dead = next(c for c in self.children if c.process.sentinel in ready)
                raise self.fault(dead, dead.exit_reason())
            elif monotonic() - before > left + ABSENT:
                end = monotonic() + self.step_seconds
            elif monotonic() >= end:
                late = int(np.argmin(self.rounds_played[: len(self.children)]))
                slow = too_slow(f"finished a step of {self.name}", self.step_seconds)
                raise self.fault(self.children[late], slow)
        self.finished = []
        if self.rows["length"].any():
            self.finished = list(episodes(TransitionBatch(0, 0, self.rows), self.agents))
        if self.notes.any():
            self.read_notes()

    @property
    def step_seconds(self) -> float:
        """For a step of the environments of one process, which come one after another; the first
        may compile."""
        one = self.patience if self.rounds > 1 else max(self.patience, MAKING)
        return one * -(-self.worlds // len(self.slices))

    def read_notes(self) -> None:
        """Dead ends and faults of the last step: the first fault is raised."""
        children = [self.children[index] for index in np.flatnonzero(self.notes)]
        for (kind, error, sentence), *_ in self.replies("note", children, START_UP, "answered"):
            if kind == "fault":
                raise user_error(error, sentence)
            self.dead_end = sentence

    def fault(self, child: ChildProcess, loss: ActorLost) -> ActorFault:
        """Of a process that is gone: which environments were in it, and how it ended."""
        here = self.slices[self.children.index(child)]
        first, last = self.first + here.start, self.first + here.stop - 1
        which = f"environment {first}" if first == last else f"environments {first} to {last}"
        return ActorFault(
            f"The process that steps {which} {loss.how.rstrip('.')}: the run stops.", loss.trace
        )

    # requests, between steps

    def request_all(
        self, what: str, arguments: Sequence[tuple[Any, ...]], seconds: float, deed: str
    ) -> list[Any]:
        """Every process's reply; the first fault of one is raised."""
        for child, values in zip(self.children, arguments, strict=True):
            child.send(what, *values)
        replies = self.replies(what, self.children, seconds, deed)
        for error, _ in replies:
            if error:
                raise user_error(*error)
        return [reply for _, reply in replies]

    def replies(
        self, what: str, children: Sequence[ChildProcess], seconds: float, deed: str
    ) -> list[Any]:
        """What these processes have to say of this kind."""
        replies = []
        for child in children:
            try:
                replies.append(child.recv(what, seconds, deed)[1:])
            except ActorLost as loss:
                raise self.fault(child, loss) from None
        return replies

    def state(self) -> dict[str, np.ndarray]:
        nothing = [()] * len(self.children)
        states = self.request_all("state", nothing, max(START_UP, self.patience), "told its state")
        return {name: self.joined([state[name] for state in states], name) for name in states[0]}

    def joined(self, arrays: list[np.ndarray], name: str) -> np.ndarray:
        """One array of those of all processes: of worlds, or of lanes; actions are as long as the
        longest episode."""
        if name == "obs":
            lanes = [world_lanes(array, self.agents) for array in arrays]
            return np.concatenate(lanes, 1).reshape(self.obs.shape)
        if name == "actions":
            length = max(array.shape[1] for array in arrays)
            padded = np.zeros((self.worlds, length, *arrays[0].shape[2:]), arrays[0].dtype)
            for here, array in zip(self.slices, arrays, strict=True):
                padded[here, : array.shape[1]] = array
            return padded
        return np.concatenate(arrays)

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        """Every process replays its current episodes."""
        steps = int(state["length"].sum())
        exact = self.request_all(
            "restore",
            [(self.sliced(state, here),) for here in self.slices],
            max(START_UP, self.patience) + self.patience * steps,
            f"restored {self.name}",
        )
        return all(exact)

    def sliced(self, state: dict[str, np.ndarray], here: slice) -> dict[str, np.ndarray]:
        """The state of some worlds."""
        lanes = world_lanes(state["obs"], self.agents)[:, here]
        worlds = {name: state[name][here] for name in ("episode", "length", "actions")}
        return worlds | {"obs": lanes.reshape(-1, *lanes.shape[2:])}

    # the end

    def kill(self) -> None:
        for child in self.children:
            child.dismiss()

    def close(self) -> None:
        """Lets every process close its environments, and frees the shared memory."""
        try:
            for child in self.children:
                if child.connected:
                    child.talk.close()  # whose end each of them sees between two steps
            end_children(self.children)
        finally:
            self.kill()
            atexit.unregister(self.kill)
            self.children = []
            for event in (self.done, *self.bells):
                event.close()
            self.shared.close()


def user_error(name: str, sentence: str) -> UserError:
    """What an environment did wrong in another process, as it would have been raised in this
    one."""
    kinds = {kind.__name__: kind for kind in (EnvironmentFault, CheckpointError)}
    return kinds.get(name, UserError)(sentence)
