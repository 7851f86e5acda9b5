"""An actor in a Ray process: its remote methods, its rows as one array, and the learner's handle of
it."""

import contextlib
import functools
import multiprocessing
import struct
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from tenfold.actors.actor import WAIT, Actor
from tenfold.actors.child_process import ActorLost
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.ray_cluster import require_ray, versions
from tenfold.core.system import set_threads
from tenfold.memory.ring import Row, Schema, require_same

INLINE = 100_000  # bytes that Ray puts into a call or an answer itself rather than into its store
ORDER = struct.Struct("<qqq")


def packed(schema: Schema) -> np.dtype:
    """A row as one item of an array."""
    fields = [(name, np.dtype(dtype), tuple(shape)) for name, (shape, dtype) in schema.items()]
    return np.dtype(fields, align=True)


def rows_of(batch: np.ndarray) -> list[Row]:
    """The rows of a packed array, in place."""
    columns = {name: batch[name] for name in batch.dtype.names or ()}
    return [{name: column[k, ...] for name, column in columns.items()} for k in range(len(batch))]


def pack_order(count: int, step: int, version: int, weights: bytes = b"") -> bytes:
    """What a call asks for, with the weights where they are small. Of all that Ray can carry, bytes
    cost it least: it looks into everything else."""
    return ORDER.pack(count, step, version) + weights


def unpack_order(order: bytes) -> tuple[int, int, int, np.ndarray | None]:
    """Rows, step, version, and the weights as bytes, if they are in there."""
    count, step, version = ORDER.unpack_from(order)
    small = np.frombuffer(order, np.uint8, offset=ORDER.size) if len(order) > ORDER.size else None
    return count, step, version, small


def errors_as_values(method: Callable[..., Any]) -> Callable[..., Any]:
    """Exceptions are returned as text: those of an environment's own module could not be unpickled
    by the learner. Bytes are returned as they are."""

    @functools.wraps(method)
    def answer(*arguments: Any) -> Any:
        try:
            reply = method(*arguments)
            return reply if isinstance(reply, bytes) else ("well", reply)
        except UserError as error:
            return ("error", str(error), "")
        except Exception as error:
            message = " ".join("".join(traceback.format_exception_only(error)).split())
            return ("error", message, traceback.format_exc())

    return answer


class RemoteActor:
    """In a process of Ray's."""

    def __init__(self, settings: dict[str, Any], index: int, rounds: int) -> None:
        self.settings, self.index, self.rounds = settings, index, rounds
        multiprocessing.current_process().name = f"actor {index}"

    def describe_node(self) -> tuple[str, dict[str, str]]:
        """Its node, and what is installed there."""
        return require_ray().get_runtime_context().get_node_id(), versions()

    @errors_as_values
    def begin(self, schema: Schema) -> tuple[np.ndarray, np.ndarray | None]:
        """Makes its environments; what they show first."""
        run = Run.of(self.settings)
        set_threads(1)
        self.actor = actor = Actor(run, self.index)
        actor.rounds = self.rounds
        require_same(schema, actor.schema(), run.env)
        self.row = packed(schema)
        cpu_run = Run.of(self.settings | {"device": "cpu"})
        self.agent = actor.algorithm.make_agent(cpu_run, actor.envs.spec)
        actor.bind_agent(self.agent)
        self.newest, self.version, self.idle = self.agent.published(), 0, perf_counter()
        return actor.envs.obs, actor.envs.mask

    @errors_as_values
    def play(self, order: bytes, weights: np.ndarray | None = None) -> bytes | np.ndarray:
        """So many rows as the order says."""
        self.actor.seconds[WAIT] += perf_counter() - self.idle
        count, step, version, small = unpack_order(order)
        weights = weights if small is None else small.view(self.newest.dtype)
        if weights is not None:
            self.newest[...] = weights.reshape(self.newest.shape)
            self.agent.adopt(self.newest)
            self.version = version
        batch = np.zeros(count, self.row)
        for row in rows_of(batch):
            self.actor.advance(step, row, self.version)
        self.idle = perf_counter()
        # as Ray carries them for least: with its answer, or by its store without a copy
        return batch.tobytes() if batch.nbytes < INLINE else batch.view(np.uint8)

    @errors_as_values
    def state(self) -> dict[str, np.ndarray]:
        return self.actor.state()

    @errors_as_values
    def restore(self, state: dict[str, np.ndarray]) -> tuple[bool, np.ndarray, np.ndarray | None]:
        # what comes through Ray cannot be written to
        exact = self.actor.restore({name: value.copy() for name, value in state.items()})
        return exact, self.actor.envs.obs, self.actor.envs.mask

    def end(self) -> None:
        """Closes its environments and leaves: Ray could not end it where its head is gone."""
        with contextlib.suppress(Exception):
            self.actor.envs.close()
        require_ray().actor.exit_actor()


@dataclass
class RemoteHandle:
    """One actor, on the learner's side."""

    index: int
    handle: Any = None
    node: str = ""  # its address
    node_id: str = ""
    calls: deque[tuple[Any, int]] = field(default_factory=deque)  # under way, with their rows
    rows: deque[Row] = field(default_factory=deque)  # that came and were not taken yet
    rounds_taken: int = 0  # rounds whose rows the learner has
    version: int = 0  # of the weights it was given
    clock: float = np.inf  # how far its clock is behind ours, at most
    warm: bool = False  # it has played: the first row loads kernels

    @property
    def requested(self) -> int:
        """Rounds it was asked to play since the start."""
        return self.rounds_taken + len(self.rows) + sum(count for _, count in self.calls)


def answer_of(remote: RemoteHandle, ref: Any) -> Any:
    """What a call gave that has been answered; or the actor is lost."""
    import ray  # here: others need no Ray, and `require_ray` would take longer than the answer
    import ray.exceptions

    try:
        reply = ray.get(ref)
    except ray.exceptions.OutOfMemoryError:
        raise ActorLost(f"was ended by Ray, since {remote.node} ran out of memory") from None
    except ray.exceptions.RayError as error:
        raise gone(remote, error) from None
    if isinstance(reply, bytes):
        return reply
    if reply[0] == "error":
        raise ActorLost(f"stopped: {reply[1]}", reply[2])
    return reply[1] if reply[0] == "well" else reply


def gone(remote: RemoteHandle, error: Exception) -> ActorLost:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "creation task" in lines[0]:
        return ActorLost(f"could not be made by Ray: {lines[-1]}")
    alive = {node["NodeID"] for node in require_ray().nodes() if node["Alive"]}
    if remote.node_id and remote.node_id not in alive:
        return ActorLost(f"was lost with its node {remote.node}")
    return ActorLost(f"was lost: its process on {remote.node or 'its node'} died")
