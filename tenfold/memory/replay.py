"""Replay memory: every observation is stored once; next observations and n-step returns are found
by index when sampling. `replay_rows` stores and draws rows, `replay_gather` makes batches of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.layout import ObsLayout
from tenfold.core.random import Purpose, key
from tenfold.core.system import require_memory
from tenfold.memory.replay_gather import (
    drawn_returns,
    gather_masks,
    gather_rows,
    sample_indices,
    take_frames,
)
from tenfold.memory.replay_rows import add_masks, add_rows, write_priorities
from tenfold.ops.sampling import make_tree, put

ROW_BYTES = 4 + 1 + 1  # reward, kind, ready


@dataclass(frozen=True)
class ReplayBatch:
    """Arrays that every `sample` overwrites. `discount` is γⁿ, 0 where the episode terminated
    within the n steps."""

    row: np.ndarray
    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    next_obs: np.ndarray
    weight: np.ndarray
    next_mask: np.ndarray  # [B, 0] where all actions are allowed


def replay_bytes(
    config: Any, layout: ObsLayout, num_envs: int, reals: int = 0, options: int = 0
) -> int:
    """Memory the replay will take, batches aside. `reals`: numbers of an action, where it is not
    one of some; `options`: the length of a mask."""
    rows = config.lane_rows(num_envs) * num_envs
    tree = make_tree(1).itemsize * 2 * (1 << (rows - 1).bit_length()) if config.priorities else 0
    row = layout.size * layout.dtype.itemsize + 4 * max(reals, 1) + ROW_BYTES + options
    return rows * row + tree


class Replay:
    """Rows of all environments, allocated once. Uniform or prioritised, by the agent's settings."""

    def __init__(
        self,
        config: Any,
        layout: ObsLayout,
        num_envs: int,
        seed: int,
        member: int = 0,
        reals: int = 0,
        options: int = 0,
    ) -> None:
        """`member`: which agent of a world; `reals`: numbers of an action, where it is not one of
        some; `options`: the length of a mask, 0 where there is none."""
        require_memory(replay_bytes(config, layout, num_envs, reals, options))
        self.lane_rows = config.lane_rows(num_envs)
        self.n_step, self.gamma, self.layout, self.frames = (
            config.n_step,
            config.gamma,
            layout,
            config.frames,
        )
        rows, size = self.lane_rows * num_envs, config.batch_size * config.accumulate
        self.obs = np.zeros((rows, layout.size), layout.dtype)
        self.action = np.zeros((rows, reals), np.float32) if reals else np.zeros(rows, np.int32)
        self.reward = np.zeros(rows, np.float32)
        self.kind = np.zeros(rows, np.uint8)
        self.ready = np.zeros(rows, np.bool_)
        self.mask = np.ones((rows, options), np.bool_)
        # counts rows ever used; its place in the lane is head % L
        self.head = np.zeros(num_envs, np.int64)
        self.start = np.zeros(num_envs, np.int64)  # head at the start of the current episode
        self.count = np.zeros(2, np.int64)  # ready rows, batches drawn so far
        self.priorities = config.priorities
        self.tree = make_tree(rows if self.priorities else 0)
        self.top = np.ones(1)  # the largest priority so far, given to new rows
        self.writes = 0  # calls that wrote rows
        self.stream = key(seed, Purpose.REPLAY, member)
        self.form: Any = None  # in which rewards are drawn, where it is not the one they came in
        self.draw = np.zeros(size)  # scratch, as are the rows that a batch's observations lie in
        self.indices = np.zeros((2, size, config.frames), np.int64)
        shape = (
            (size, *layout.shape) if config.frames == 1 else (size, config.frames, *layout.shape)
        )
        self.use(
            ReplayBatch(
                np.zeros(size, np.int64),
                np.zeros(shape, layout.dtype),
                np.zeros((size, reals), np.float32) if reals else np.zeros(size, np.int64),
                np.zeros(size, np.float32),
                np.zeros(size, np.float32),
                np.zeros(shape, layout.dtype),
                np.ones(size, np.float32),
                np.ones((size, options), np.bool_),
            )
        )

    @property
    def memories(self) -> "list[Replay]":
        """The memories it is made of: itself."""
        return [self]

    def use(self, batch: ReplayBatch) -> None:
        """Batches are written into these arrays from now on."""
        self.batch = batch
        self.flat_obs, self.flat_next_obs = (
            array.reshape(len(array), -1) for array in (batch.obs, batch.next_obs)
        )

    def columns(self) -> dict[str, np.ndarray]:
        """For compiled rounds: all of it but observations and actions, whose kinds of number
        differ."""
        names = ("reward", "kind", "ready", "head", "start", "count", "tree", "top", "mask")
        batch = {"row": self.batch.row, "draw": self.draw, "next_mask": self.batch.next_mask}
        moments = self.form.norm.moments if self.form else np.zeros((0, 0))
        batch |= {
            "reward_moments": moments,
            "reward_limit": np.full(1, self.form.limit if self.form else 0.0),
        }
        return {f"m_{name}": getattr(self, name) for name in names} | batch

    def begin(self, obs: np.ndarray, mask: np.ndarray | None = None) -> None:
        """The first observations, one for each lane, and their masks."""
        self.writes += 1
        pending = self.head % self.lane_rows + np.arange(len(obs)) * self.lane_rows
        self.obs[pending] = obs.reshape(len(obs), -1)
        if mask is not None:
            self.mask[pending] = mask

    def add(
        self,
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        skipped: np.ndarray,
        obs: np.ndarray,
        final_obs: np.ndarray,
        *masks: np.ndarray,
        first: int = 0,
    ) -> None:
        """One step of the environments whose lanes begin with `first`: all of them, or an actor's.
        `obs` is what each acts on next; `final_obs` counts where an episode ended. `masks` are
        those of both, where there are any."""
        self.writes += 1
        if masks:
            add_masks(self.mask, self.head, first, terminated, truncated, skipped, *masks)
        add_rows(
            self.obs,
            self.action,
            self.reward,
            self.kind,
            self.ready,
            self.head,
            self.start,
            self.count,
            self.tree,
            self.top,
            self.n_step,
            self.frames,
            first,
            action,
            reward,
            terminated,
            truncated,
            skipped,
            obs.reshape(-1, self.layout.size),
            final_obs.reshape(-1, self.layout.size),
        )

    def cut(self, obs: np.ndarray, mask: np.ndarray | None = None, first: int = 0) -> None:
        """Ends the running episodes of the lanes from `first` on as if by a time limit and begins
        others at `obs` (after a resume that is not exact, or an actor's death)."""
        lanes = first + np.arange(len(obs))
        last = lanes * self.lane_rows + (self.head[lanes] - 1) % self.lane_rows
        pending = lanes * self.lane_rows + self.head[lanes] % self.lane_rows
        running = self.head[lanes] > self.start[lanes]
        self.head[lanes] -= running  # take the last step back and store it again as truncated
        self.count[0] -= int(self.ready[last][running].sum())
        self.ready[last[running]] = False
        if self.priorities:
            put(self.tree, last[running], np.zeros(int(running.sum())))
        self.add(
            self.action[last],
            self.reward[last].astype(np.float64),
            np.zeros_like(running),
            running,
            ~running,
            obs,
            self.obs[pending],
            *(() if mask is None else (mask, self.mask[pending])),
            first=first,
        )

    def sample(self, beta: float = 1.0) -> ReplayBatch:
        """A batch in the preallocated arrays; the next call overwrites it."""
        b = self.batch
        outputs = b.action, b.reward, b.discount, b.weight
        self.sample_indices(beta, 0, (self.indices, *outputs))
        take_frames(self.obs, self.indices, self.flat_obs, self.flat_next_obs)
        if self.mask.shape[1]:
            self.gather_masks(b.next_mask)
        return b

    def sample_indices(self, beta: float, first: int, outputs: Sequence[np.ndarray]) -> None:
        """The next batch without its observations. `outputs`: indices of their rows [2, B, frames],
        counted from `first`; action, reward, discount and weight."""
        sample_indices(
            self.stream,
            self.count,
            self.tree,
            beta,
            self.ready,
            self.head,
            self.draw,
            self.n_step,
            self.gamma,
            first,
            self.action,
            self.reward,
            self.kind,
            self.batch.row,
            *outputs,
        )
        self.form_returns(outputs[2])

    def reward_by(self, form: Any) -> None:
        """Rewards are drawn in this form from now on."""
        self.form = form

    def form_returns(self, out: np.ndarray) -> None:
        """The returns of the last batch by rewards in the form of now."""
        if self.form:
            stored, form = (self.reward, self.kind), self.form
            returns = self.batch.row, self.lane_rows, self.n_step, self.gamma, *stored
            drawn_returns(*returns, form.norm.moments[2, 0], form.limit, out)

    def gather(self) -> ReplayBatch:
        """The batch of the rows drawn last, gathered anew."""
        b = self.batch
        stored = self.action, self.reward, self.kind
        outputs = self.indices, b.action, b.reward, b.discount
        gather_rows(b.row, self.lane_rows, self.n_step, self.gamma, 0, *stored, *outputs)
        self.form_returns(b.reward)
        take_frames(self.obs, self.indices, self.flat_obs, self.flat_next_obs)
        return b

    def gather_masks(self, out: np.ndarray) -> None:
        """Of the states that the returns of the last batch end in."""
        gather_masks(self.batch.row, self.lane_rows, self.n_step, self.kind, self.mask, out)

    def prioritise(self, error: np.ndarray) -> None:
        """New priorities for the rows of the last batch, from their TD errors."""
        assert self.priorities
        write_priorities(
            self.tree, self.top, self.batch.row, error, self.priorities.alpha, self.priorities.eps
        )

    @property
    def rows(self) -> int:
        """Transitions that can be drawn."""
        return int(self.count[0])

    def state(self) -> dict[str, np.ndarray]:
        """Everything but observations, actions, rewards and masks, which `written` gives piece by
        piece."""
        size = self.tree.size // 2
        return {
            "kind": self.kind,
            "ready": self.ready,
            "head": self.head,
            "start": self.start,
            "count": self.count,
            "top": self.top,
            "leaves": self.tree[size:],
        }

    def written(self, since: np.ndarray) -> dict[str, np.ndarray]:
        """The rows written after the heads were at `since`, with the places they belong to."""
        places = []
        for lane, (old, new) in enumerate(zip(since, self.head, strict=True)):
            # one row further than needed at the left, since the row pending then was completed
            # later
            places.append(
                lane * self.lane_rows
                + np.arange(max(old, new - self.lane_rows + 1), new + 1) % self.lane_rows
            )
        index = np.concatenate(places)
        return {"place": index} | {name: getattr(self, name)[index] for name in self.stored}

    @property
    def stored(self) -> tuple[str, ...]:
        """The arrays of what a row holds."""
        return ("obs", "action", "reward", *(("mask",) if self.mask.shape[1] else ()))

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        self.writes += 1
        for name in self.stored:
            if name in rows:  # runs that began before masks were kept have none
                getattr(self, name)[rows["place"]] = rows[name]

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for name, array in self.state().items():
            if array.shape != state[name].shape:
                raise UserError(
                    f"The saved replay's {name} has shape {state[name].shape}, and this one's has "
                    f"{array.shape}."
                )
        for name in ("kind", "ready", "head", "start", "count", "top"):
            getattr(self, name)[:] = state[name]
        put(self.tree, np.arange(self.tree.size // 2), state["leaves"])
