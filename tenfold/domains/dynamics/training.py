"""How the model is trained: the window of latest steps, and gradient steps up the bound on
sequences drawn from it.

A row of the window is an observation and the action that followed it. Rows are in a ring that is
allocated once: to append writes one row, to sample gathers rows once, and nothing is ever moved. A
sequence never crosses the border between two episodes: the ring keeps the ends of all whole
sequences in a queue, which an append lengthens and shortens by one at most.

Every draw of a gradient step is a function of (seed, purpose, counter), so a member sees what its
seed alone sees, and a checkpoint holds Adam's two moments and two counters. Posterior noise is
drawn into new memory each time: autograd holds it until the gradient is taken, and a second forward
pass must not write over it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.errors import UserError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import (
    Purpose,
    draw_uniform,
    fill_normal,
    fill_uniform,
    key,
    normal_torch,
    uniform_reference,
)
from tenfold.core.system import require_memory
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.elbo import BoundTerms, draws_shape, elbo_parts
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.ops.adam import descend

ARRAYS = ("obs", "action", "first", "ends", "counters")  # of a window


def append_reference(obs, action, is_reset, length, ring, actions, first, ends, counters):
    """Adds one row of every member: obs [M, Y], action [M, A], is_reset [M]. counters [M, 4]: rows
    written, age in the episode of the last one, ends found, ends that went."""
    for m in range(len(obs)):
        row, capacity = counters[m, 0], ring.shape[1]
        slot = row % capacity
        ring[m, slot], actions[m, slot], first[m, slot] = obs[m], action[m], is_reset[m]
        counters[m, 1] = 0 if is_reset[m] else counters[m, 1] + 1
        counters[m, 0] += 1
        if counters[m, 1] >= length - 1:
            ends[m, counters[m, 2] % capacity] = row
            counters[m, 2] += 1
        queue = range(counters[m, 3], counters[m, 2])
        alive = [e for e in queue if ends[m, e % capacity] - length + 1 > row - capacity]
        counters[m, 3] = alive[0] if alive else counters[m, 2]
    return ring, actions, first, ends, counters


def append_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for members, capacity, length in ((1, 5, 2), (3, 9, 4)):
        window = Window(list(range(members)), capacity, length, 2, 1)
        for row in range(3 * capacity):
            is_reset = np.full(members, row == 0 or rng.random() < 0.2)
            obs, action = (rng.normal(size=(members, k)).astype(dtype) for k in (2, 1))
            arrays = [getattr(window, name) for name in ARRAYS]
            yield obs, action, is_reset, length, *arrays
            append_reference(obs, action, is_reset, length, *arrays)


@pair(append_reference, append_examples)
@kernel
def append(obs, action, is_reset, length, ring, actions, first, ends, counters):
    capacity = ring.shape[1]
    for m in range(len(obs)):
        row = counters[m, 0]
        slot = row % capacity
        for k in range(obs.shape[1]):
            ring[m, slot, k] = obs[m, k]
        for k in range(action.shape[1]):
            actions[m, slot, k] = action[m, k]
        first[m, slot] = is_reset[m]
        counters[m, 1] = 0 if is_reset[m] else counters[m, 1] + 1
        counters[m, 0] = row + 1
        if counters[m, 1] >= length - 1:
            ends[m, counters[m, 2] % capacity] = row
            counters[m, 2] += 1
        if (
            counters[m, 3] < counters[m, 2]
            and ends[m, counters[m, 3] % capacity] - length + 1 <= row - capacity
        ):
            counters[m, 3] += 1
    return ring, actions, first, ends, counters


def gather_reference(streams, counter, length, ring, actions, ends, counters, out, acts):
    """Sequences [M, B, T] into out and acts: number b of member m ends at a whole sequence's end
    drawn by counter + b."""
    members, batch = out.shape[:2]
    for m in range(members):
        count = counters[m, 2] - counters[m, 3]
        for b, u in enumerate(uniform_reference(streams[m], counter + np.arange(batch))):
            end = ends[m, (counters[m, 3] + int(u * count)) % ring.shape[1]]
            rows = np.arange(end - length + 1, end + 1) % ring.shape[1]
            out[m, b], acts[m, b] = ring[m, rows], actions[m, rows]
    return out, acts


def gather_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for members, capacity, length in ((1, 6, 2), (3, 40, 5)):
        window = Window(list(range(members)), capacity, length, 2, 1)
        for row in range(2 * capacity):
            obs, action = (rng.normal(size=(members, k)) for k in (2, 1))
            window.append(obs, action, np.full(members, row % 11 == 0))
        out, acts = (np.zeros((members, 4, length, k), dtype) for k in (2, 1))
        rows = window.obs, window.action, window.ends, window.counters
        yield window.streams, 17, length, *rows, out, acts


@pair(gather_reference, gather_examples, dtypes=("float64",))
@kernel
def gather(streams, counter, length, ring, actions, ends, counters, out, acts):
    members, batch = out.shape[:2]
    capacity = ring.shape[1]
    for m in range(members):
        count = counters[m, 2] - counters[m, 3]
        for b in range(batch):
            drawn = int(draw_uniform(streams[m], counter + b) * count)
            first = ends[m, (counters[m, 3] + drawn) % capacity] - length + 1
            for t in range(length):
                row = (first + t) % capacity
                # rows assigned whole take Numba three seconds to compile
                for k in range(ring.shape[2]):
                    out[m, b, t, k] = ring[m, row, k]
                for k in range(actions.shape[2]):
                    acts[m, b, t, k] = actions[m, row, k]
    return out, acts


class Window:
    """The ring of every member; member m draws by its own seed."""

    def __init__(
        self, seeds: list[int], capacity: int, length: int, obs_size: int, action_size: int
    ) -> None:
        if length > capacity:
            raise UserError(
                f"agent.length = {length} is more than agent.window = {capacity}: a sequence must "
                "fit into it."
            )
        members = len(seeds)
        require_memory(
            members * capacity * (obs_size + action_size + 2) * 8,
            "The window of latest steps",
            "agent.window",
        )
        self.capacity, self.length = capacity, length
        # as they came: a small difference of large numbers may be what counts
        self.obs = np.zeros((members, capacity, obs_size))
        self.action = np.zeros((members, capacity, action_size))
        self.first = np.zeros((members, capacity), np.bool_)  # where an episode begins
        self.ends = np.zeros((members, capacity), np.int64)
        self.counters = np.zeros((members, 4), np.int64)
        self.counters[:, 1] = -1
        self.streams = np.array([key(seed, Purpose.REPLAY) for seed in seeds], np.uint64)
        self.drawn = 0

    def append(self, obs: np.ndarray, action: np.ndarray, is_reset: np.ndarray) -> None:
        """One row of every member; `is_reset` where the observation is the first one of an
        episode."""
        # one kernel, whatever comes
        obs, action = (np.ascontiguousarray(row, np.float64) for row in (obs, action))
        append(obs, action, is_reset, self.length, *(getattr(self, name) for name in ARRAYS))

    @property
    def ready(self) -> bool:
        """Whether every member has a whole sequence."""
        return bool((self.counters[:, 2] > self.counters[:, 3]).all())

    @property
    def written(self) -> int:
        """Rows of each member so far, overwritten ones included."""
        return int(self.counters[0, 0])

    def rows(self) -> np.ndarray:
        """Indices of the rows in the window, in the order of time."""
        return np.arange(max(self.written - self.capacity, 0), self.written) % self.capacity

    def sample(self, out: np.ndarray, acts: np.ndarray) -> None:
        """Fills out [M, B, T, Y] and acts [M, B, T, A] with sequences, each whole one equally
        likely."""
        rows = self.obs, self.action, self.ends, self.counters
        gather(self.streams, self.drawn, self.length, *rows, out, acts)
        self.drawn += out.shape[1]

    def state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in ARRAYS} | {"drawn": np.array(self.drawn)}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for name in ARRAYS:
            getattr(self, name)[...] = state[name]
        self.drawn = int(state["drawn"])


# gradient steps


def beta_at(config: LatentModel, update: int) -> float:
    """Weight of the KL terms in gradient step `update`, counted from 1.

    linear rises to 1 within beta_steps; cyclic does so in the first half of every beta_steps (Fu et
    al., 2019); warm-up leaves the KL terms out for beta_steps.
    """
    if config.beta == "linear":
        return min(update / config.beta_steps, 1.0)
    if config.beta == "cyclic":
        return min(2 * ((update - 1) % config.beta_steps + 1) / config.beta_steps, 1.0)
    return float(config.beta == "none" or update > config.beta_steps)


class Training:
    """State of a model's training: Adam's moments [M, P] and how much was drawn."""

    def __init__(self, network: LatentNetwork, seeds: Sequence[int]) -> None:
        self.mean, self.square = torch.zeros_like(network.flat), torch.zeros_like(network.flat)
        self.updates = self.drawn = 0
        self.posterior, self.masks = (
            [key(seed, purpose) for seed in seeds] for purpose in (Purpose.POSTERIOR, Purpose.MASK)
        )
        self.drops = [key(seed, Purpose.MASK, 1) for seed in seeds]

    def state(self) -> dict[str, torch.Tensor]:
        # the third number is what earlier versions counted
        count = torch.tensor([self.updates, self.drawn, 0])
        return {"mean": self.mean, "square": self.square, "count": count}

    def load_state(self, state: dict[str, Any]) -> None:
        self.mean.copy_(torch.as_tensor(state["mean"]))
        self.square.copy_(torch.as_tensor(state["square"]))
        self.updates, self.drawn = (int(count) for count in state["count"][:2])

    def draw(
        self, network: LatentNetwork, batch: int, length: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Standard normal numbers [M, T, S, B, D] of one bound, and which observations are visible
        [M, B, T] (None: all)."""
        shape, flat = draws_shape(network, batch, length), network.flat
        size = int(np.prod(shape))
        if flat.device.type == "cpu":
            normal = flat.new_empty(network.members, size)
            for row, stream in zip(normal.numpy(), self.posterior, strict=True):
                fill_normal(stream, self.drawn, row)
        else:
            normal = torch.stack(
                [normal_torch(stream, self.drawn, size, flat.device) for stream in self.posterior]
            ).to(flat.dtype)
        visible = None
        if network.config.mask:
            visible = kept(self.masks, self.drawn, batch * length, network.config.mask)
            visible = visible.to(flat).view(-1, batch, length)
        self.drawn += size
        return normal.view(-1, *shape), visible

    def draw_kept(self, network: LatentNetwork, y: torch.Tensor) -> torch.Tensor | None:
        """Which values of y [M, B, T, Y] coordinated dropout leaves to the encoder in a gradient
        step, by (seed, step); None without dropout."""
        share, size = network.config.coordinated_dropout, y[0].numel()
        if not share:
            return None
        return kept(self.drops, self.updates * size, size, share).view(y.shape).to(y.device)


def kept(streams: list[Any], start: int, size: int, share: float) -> torch.Tensor:
    """Which of `size` values of each member are not dropped, [M, size], where a share of them
    is."""
    drawn = [fill_uniform(stream, start, np.empty(size)) for stream in streams]
    return torch.from_numpy(np.stack(drawn) >= share)


def update(
    network: LatentNetwork,
    training: Training,
    y: torch.Tensor,
    a: torch.Tensor,
    lr: float = 1e-3,
    clip_norm: float | None = 10.0,
) -> BoundTerms:
    """One step of Adam up the bound of sequences y [M, B, T, Y] under actions a [M, B, T, A]; the
    bound's parts before it."""
    training.updates += 1
    network.flat_grad.zero_()
    drawn = training.draw(network, y.shape[1], y.shape[2])
    terms = elbo_parts(network, y, a, *drawn, training.draw_kept(network, y))
    beta = beta_at(network.config, training.updates)
    # for each step of time: rates then fit any length
    loss = (beta * terms.divergence - terms.likelihood).sum() / y.shape[2]
    loss.backward()
    moments = training.mean, training.square
    descend(network.flat, network.flat_grad, *moments, training.updates, lr, limit=clip_norm)
    return BoundTerms(*(term.detach() for term in terms))
