"""A process that steps some of a run's environments: its main function, and what it shares with the
process that acts and learns.

The arrays of all lanes lie in shared memory. A worker has an ordinary adapter of its own for its
worlds, and copies what a step left in it into their lanes. A bell lets all workers step, another
one is rung by each that has; whatever else there is to say goes through a pipe between two steps.
"""

import contextlib
import hashlib
import math
import select
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from time import perf_counter, process_time
from typing import Any

import numpy as np

from tenfold.actors.actor import MASK_FIELDS, STEP_FIELDS, episode_fields, note_episodes
from tenfold.actors.child_process import errors_sent
from tenfold.core.errors import UserError
from tenfold.core.processes import within
from tenfold.core.random import Purpose, key
from tenfold.core.spaces import policy_actions
from tenfold.core.system import set_threads
from tenfold.core.user_envs import bare, bind, is_known
from tenfold.envs.adapter import Environments
from tenfold.envs.making import make_environments
from tenfold.memory.shared import SharedEvent, SharedLanes

EPISODES = "ended_"  # before the names of what is told of episodes that ended
POSITION = ("episode", "length", "ret")  # of the current episodes
MOST, LOOK = 300, 0.1  # steps that are tried, and seconds after which no more are
COMPILING = 60.0  # seconds at least for such a step, however little patience


@dataclass(frozen=True)
class LaneJob:
    """What a worker makes: the arguments of `make_environments`; the function behind a name that
    only this process knows; threads of the products in it; seconds for a step."""

    name: str
    worlds: int
    seed: int
    policy: bool
    first: int
    threads: int
    patience: float
    function: Any = None

    def make(self) -> Environments:
        if self.function is not None and not is_known(self.name):
            bind(bare(self.name), self.function)
        return make_environments(self.name, self.worlds, self.seed, self.policy, self.first)


@dataclass(frozen=True)
class LaneMemory:
    """What the processes share: `step` wakes this worker, `done` the one that waits for all."""

    shared: SharedLanes
    step: SharedEvent
    done: SharedEvent


def lane_schema(envs: Environments, worlds: int, action_bytes: int) -> dict[str, Any]:
    """The shared arrays of so many worlds like these; `note`, `rounds`: of each worker, whether
    there is something in its pipe, and the steps it has taken."""
    lanes = worlds * envs.agents
    names = STEP_FIELDS + (MASK_FIELDS if envs.mask is not None else ())
    fields: dict[str, Any] = {
        name: ((lanes, *getattr(envs, name).shape[1:]), getattr(envs, name).dtype) for name in names
    }
    fields |= {EPISODES + n: field for n, field in episode_fields(worlds, lanes).items()}
    fields |= {"episode": ((worlds,), np.int64), "length": ((worlds,), np.int64)}
    fields |= {"ret": ((lanes,), np.float64), "action": ((lanes * action_bytes,), np.uint8)}
    return fields | {"note": ((worlds,), np.bool_), "rounds": ((worlds,), np.int64)}


def world_lanes(array: np.ndarray, agents: int) -> np.ndarray:
    """An array of lanes, agent by agent, as [agents, worlds, …]."""
    return array.reshape(agents, -1, *array.shape[1:])


def shared_actions(
    shared: SharedLanes, lanes: int, shape: tuple[int, ...], dtype: str
) -> np.ndarray:
    """The actions of all lanes, in the form in which they are taken."""
    size = lanes * int(np.prod(shape)) * np.dtype(dtype).itemsize
    return shared.arrays["action"][:size].view(dtype).reshape(lanes, *shape)


def play_sample(
    envs: Environments, seed: int, patience: float, steps: int = MOST, seconds: float = LOOK
) -> tuple[list[float], str, float]:
    """Seconds of some steps by random actions, at least two; a digest of all that they showed, so
    that another process can be asked for the same; and for which share of it the processor was
    busy."""
    actions, stream = policy_actions(envs.action_space, envs.name), key(seed, Purpose.RANDOM_POLICY)
    digest, times = hashlib.sha256(envs.obs.tobytes()), list[float]()
    end, busy = perf_counter() + seconds, process_time()
    while len(times) < min(steps, 2) or (len(times) < steps and perf_counter() < end):
        address = len(times) * envs.num_envs + np.arange(envs.num_envs)
        action = actions.random(stream, address, envs.mask)
        start = perf_counter()
        with within(max(patience, COMPILING), f"{envs.name} has not finished a step"):
            envs.step(action)
        times.append(perf_counter() - start)
        for array in (envs.obs, envs.reward, envs.terminated, envs.truncated):
            digest.update(array.tobytes())
    return times, digest.hexdigest(), (process_time() - busy) / max(sum(times), 1e-9)


class LaneWorker:
    """Some worlds, `here` among all that are shared."""

    def __init__(self, index: int, envs: Environments, shared: SharedLanes, here: slice) -> None:
        self.index, self.envs, self.shared = index, envs, shared
        self.here, arrays = here, shared.arrays
        schema = episode_fields(envs.worlds, envs.num_envs)
        self.row = {name: np.zeros(shape, dtype) for name, (shape, dtype) in schema.items()}
        self.dead_end = envs.dead_end
        names = [name for name in STEP_FIELDS + MASK_FIELDS if name in arrays]
        # pairs of what is copied after a step, shared lanes and our own
        self.copies = [(self.lanes(arrays[n]), self.world_lanes(getattr(envs, n))) for n in names]
        self.copies += [
            (self.lanes(arrays[EPISODES + name]), self.world_lanes(array))
            if len(array) == envs.num_envs
            else (arrays[EPISODES + name][self.here], array)
            for name, array in self.row.items()
        ]

    def world_lanes(self, array: np.ndarray) -> np.ndarray:
        return world_lanes(array, self.envs.agents)

    def lanes(self, array: np.ndarray) -> np.ndarray:
        """Our lanes in an array of all, [agents, worlds, …]."""
        return self.world_lanes(array)[:, self.here]

    def take_actions(self, lanes: int, shape: tuple[int, ...], dtype: str) -> None:
        """Actions come in this form from now on."""
        self.action = self.lanes(shared_actions(self.shared, lanes, shape, dtype))
        self.shape = (self.envs.num_envs, *shape)

    def publish(self) -> None:
        """Copies what the adapter's arrays hold into the shared ones."""
        envs, arrays = self.envs, self.shared.arrays
        note_episodes(self.row, envs)
        for ours, value in self.copies:
            ours[...] = value
        arrays["episode"][self.here], arrays["length"][self.here] = envs.episode, envs.length
        self.lanes(arrays["ret"])[...] = np.reshape(envs.ret, (envs.agents, -1))

    def step(self) -> tuple[str, str, str] | None:
        """Steps all worlds; returns what there is to tell besides: a fault, or a dead end."""
        note = None
        try:
            self.envs.step(self.action.reshape(self.shape))
        except UserError as error:
            note = "fault", type(error).__name__, str(error)
        self.publish()
        if not note and self.envs.dead_end != self.dead_end:
            self.dead_end = self.envs.dead_end
            note = "dead end", "", self.dead_end
        self.shared.arrays["rounds"][self.index] += 1
        return note

    def state(self) -> dict[str, np.ndarray]:
        return self.envs.state()

    def restore(self, state: dict[str, np.ndarray]) -> bool:
        try:
            return self.envs.restore(state)
        finally:
            self.publish()

    def answer(self, what: str, *arguments: Any) -> tuple[Any, ...]:
        """The reply to a request: its name, a fault's class and sentence or nothing, the result."""
        known = {"state": self.state, "restore": self.restore, "take_actions": self.take_actions}
        try:
            return what, None, known[what](*arguments)
        except UserError as error:
            return what, (type(error).__name__, str(error)), None


def run_env_worker(
    talk: Connection, index: int, job: LaneJob, here: slice, memory: LaneMemory, sample: int
) -> None:
    """Main function of a worker's process, which has `here` of the job's worlds. First it plays so
    many steps of a `sample` when it is told to, at the same time as the others."""
    envs = None
    with errors_sent(talk):
        set_threads(job.threads)
        with contextlib.closing(replace(job, worlds=1).make()) as alone:
            talk.send(("ready",))
            talk.recv()
            _, digest, _ = play_sample(alone, job.seed, job.patience, sample, math.inf)
            talk.send(("tried", digest))
        worlds = here.stop - here.start
        envs = replace(job, worlds=worlds, first=job.first + here.start).make()
        worker = LaneWorker(index, envs, memory.shared, here)
        worker.publish()
        talk.send(("begin", kind_of(envs)))
        serve_lanes(worker, memory, talk)
    if envs:
        with contextlib.suppress(Exception):
            envs.close()


def kind_of(envs: Environments) -> tuple[Any, ...]:
    """In what environments of one name may differ from one another."""
    return envs.masked, envs.unread_mask, envs.exact_resume


def serve_lanes(worker: LaneWorker, memory: LaneMemory, talk: Connection) -> None:
    """Steps whenever the bell rings, and answers requests between steps, until the pipe ends."""
    poll = select.poll()
    for number in (memory.step.fileno(), talk.fileno()):
        poll.register(number, select.POLLIN)
    while True:
        if memory.step.fileno() in [number for number, _ in poll.poll()]:
            memory.step.take()
            note = worker.step()
            memory.shared.arrays["note"][worker.index] = note is not None
            memory.done.give()
            if note:  # which may be more than a pipe holds, and then somebody must be reading
                talk.send(("note", note))
            continue
        try:
            request = talk.recv()
        except (EOFError, OSError):
            return
        talk.send(worker.answer(*request))
