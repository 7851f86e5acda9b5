"""The last k observations of every lane, as a network that sees several frames takes them: for
whoever acts.

The learner finds them in the replay memory by the same function, `stack_frames`, so both see the
same at the same step.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.layout import ObsLayout
from tenfold.core.pairs import pair
from tenfold.memory.replay_gather import copy_frame, frame_before
from tenfold.memory.replay_rows import FINAL, PENDING, STEP, TRUNCATED, copy_row


class FrameStack:
    """What a network is shown of environments: `rows`, their observations or the last k frames of
    each."""

    def __init__(self, frames: int, envs: Any) -> None:
        """`envs`: environments, or the lanes of one agent of theirs."""
        self.envs, self.rows = envs, envs.obs
        self.frames = FrameRing(frames, envs.layout, envs.num_envs) if frames > 1 else None
        if self.frames:
            self.rows = self.frames.stacked
            self.frames.begin(envs.obs)

    def step(self) -> None:
        """After a step of the environments."""
        if self.frames:
            envs = self.envs
            self.frames.push(
                envs.terminated | envs.truncated, envs.skipped, envs.obs, envs.final_obs
            )

    def state(self) -> dict[str, np.ndarray]:
        return self.frames.state() if self.frames else {}

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        """`exact`: the environments are where they were; otherwise they began anew."""
        if self.frames and exact:
            self.frames.load_state(state)
        elif self.frames:
            self.frames.begin(self.envs.obs)


class FrameRing:
    """A ring of a few rows for each lane, and `stacked` [B, k, *shape], oldest frame first; an
    episode's first frame stands also for those before it."""

    def __init__(self, frames: int, layout: ObsLayout, lanes: int) -> None:
        # the last step of an episode adds its final observation and the next one's first
        self.frames, rows = frames, frames + 2
        self.obs = np.zeros((lanes * rows, layout.size), layout.dtype)
        self.kind = np.zeros(lanes * rows, np.uint8)
        self.head = np.zeros(lanes, np.int64)
        self.stacked = np.zeros((lanes, frames, *layout.shape), layout.dtype)
        self.flat = self.stacked.reshape(lanes, -1)

    def begin(self, obs: np.ndarray) -> None:
        """New episodes in all lanes."""
        never = np.zeros(len(obs), np.bool_)
        self.kind[:] = PENDING
        self.push(never, ~never, obs, obs)

    def push(
        self, ended: np.ndarray, skipped: np.ndarray, obs: np.ndarray, final_obs: np.ndarray
    ) -> None:
        """One step of every lane, as the replay memory is given it."""
        lanes = len(obs)
        push_frames(
            self.obs,
            self.kind,
            self.head,
            self.frames,
            ended,
            skipped,
            obs.reshape(lanes, -1),
            final_obs.reshape(lanes, -1),
            self.flat,
        )

    def state(self) -> dict[str, np.ndarray]:
        return {"obs": self.obs, "kind": self.kind, "head": self.head, "seen": self.stacked}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for name, array in self.state().items():
            array[...] = state[name]


def push_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Lanes in the middle of their episodes, of which some end and some do not move."""
    for lanes, frames, steps in ((1, 1, 3), (1, 5, 2), (3, 4, 30), (2, 3, 11)):
        memory = FrameRing(frames, ObsLayout((2,), np.dtype(dtype), (2,), 1.0), lanes)
        memory.begin(rng.integers(0, 99, (lanes, 2)).astype(dtype))
        for left in range(steps, -1, -1):
            step = (
                rng.random(lanes) < 0.2,
                rng.random(lanes) < 0.2,
                rng.integers(0, 99, (lanes, 2)).astype(dtype),
                rng.integers(0, 99, (lanes, 2)).astype(dtype),
            )
            if left:
                memory.push(*step)
            else:
                yield memory.obs, memory.kind, memory.head, frames, *step, memory.flat


def push_reference(obs, kind, head, frames, ended, skipped, new_obs, final_obs, stacked):
    """What was seen moves on by one frame; where an episode ended there is only its successor's
    first; where nothing moved the latest frame is another."""
    for lane in range(len(head)):
        old = np.split(stacked[lane], frames)
        if skipped[lane]:  # an episode with one frame so far begins with the other one
            alone = kind[lane * (frames + 2) + (head[lane] - 1) % (frames + 2)] in (FINAL, PENDING)
            window = [new_obs[lane]] * frames if alone else [*old[:-1], new_obs[lane]]
        elif ended[lane]:
            window = [new_obs[lane]] * frames
        else:
            window = [*old[1:], new_obs[lane]]
        stacked[lane] = np.concatenate(window)
    return stacked


@pair(push_reference, push_examples, dtypes=("float32", "uint8"))
@kernel
def push_frames(obs, kind, head, frames, ended, skipped, new_obs, final_obs, stacked):
    """Stores one step of every lane and writes what each sees then into `stacked` [B, k·size]."""
    length = frames + 2
    for lane in range(head.size):
        base, h = lane * length, head[lane]
        if not skipped[lane]:
            kind[base + h % length] = TRUNCATED if ended[lane] else STEP
            h += 1
            if ended[lane]:
                copy_row(obs, base + h % length, final_obs, lane)
                kind[base + h % length] = FINAL
                h += 1
            kind[base + h % length] = PENDING
            head[lane] = h
        copy_row(obs, base + h % length, new_obs, lane)
        row = base + h % length
        for j in range(frames - 1, -1, -1):
            copy_frame(obs, row, stacked, lane, j)
            if j:
                row = frame_before(kind, base, length, row)
    return stacked
