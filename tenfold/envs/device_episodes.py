"""Episodes of device environments (`ops.device.episodes`) against the compiled tasks, by a policy
that leans on a weighted sum of what it sees."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton.language as tl

from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key
from tenfold.envs import control_dynamics as c
from tenfold.envs.device import TASKS
from tenfold.ops.device.episodes import LANES, EpisodeShape, play, play_episodes, rows_of
from tenfold.ops.device.language import available, device, gpu_kernel

WIDE = 16
WIDTH = tl.constexpr(WIDE)  # of what the policy sees


@gpu_kernel
def lean(policy, state, number, length, E: tl.constexpr):
    """The second action where the sum is positive."""
    rows = rows_of(E.task.observe(state), LANES, LANES, WIDTH, E.task.obs)
    return (tl.sum(rows * policy[None, :], 1) > 0).to(tl.int32)


@gpu_kernel(do_not_specialize=["count", "steps", "limit"])
def lean_kernel(weights, episodes, count, steps, limit, E: tl.constexpr):
    seed = tl.program_id(0).to(tl.int64)
    policy = tl.load(weights + seed * WIDTH + tl.arange(0, WIDTH))
    play_episodes(episodes, policy, seed, count, steps, limit, lean, E, E)


def examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Two seeds of each task with actions, more episodes than a program plays, few steps."""
    for name, kind in c.KINDS.items():
        if kind.actions:
            weights = np.zeros((2, WIDE), np.float32)
            weights[:, : kind.obs_size] = rng.normal(size=(2, kind.obs_size))
            streams = [
                [key(int(s), Purpose.EPISODE) for s in row]
                for row in rng.integers(99, size=(2, 18))
            ]
            yield name, weights, streams, 12


def episodes_reference(
    name: str, weights: np.ndarray, streams: list[list[Any]], limit: int
) -> tuple[np.ndarray, ...]:
    """One step after another."""
    kind, shape = c.KINDS[name], (len(streams), len(streams[0]))
    returns, lengths, cut = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    row, obs = np.zeros(c.STATES), np.zeros(kind.obs_size, np.float32)
    for seed, of_seed in enumerate(streams):
        for number, stream in enumerate(of_seed):
            c.begin(kind.number, row, stream, 0)
            for length in range(1, limit + 1):
                c.observe(kind.number, row, obs)
                action = int((obs * weights[seed, : kind.obs_size]).sum() > 0)
                reward, terminated = c.advance(kind.number, row, action)
                returns[seed, number] += reward
                lengths[seed, number] = length
                if terminated or length == kind.limit:
                    break
            cut[seed, number] = not terminated and lengths[seed, number] < kind.limit
    return returns, lengths, cut


@pair(
    episodes_reference, examples, rtol=1e-9, atol=1e-9, when=available, name="envs.device.episodes"
)
def episodes_on_device(
    name: str, weights: np.ndarray, streams: list[list[Any]], limit: int
) -> tuple[np.ndarray, ...]:
    task, policy = TASKS[name], torch.from_numpy(weights).to(device())
    shape = EpisodeShape(task, task.sources)

    def launch(episodes: Any, count: int, steps: int, limit: int, grid: Any) -> None:
        lean_kernel[grid](policy, episodes, count, steps, limit, shape)

    played = play(launch, task, streams, limit, device()) or []
    return tuple(np.stack(part) for part in zip(*played, strict=True))
