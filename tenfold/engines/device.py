"""What runs hold on a GPU: arrays with a row for each seed, and evaluations of all of them by one
launch. Each algorithm with a resident engine has its own (`resident_seeds`)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.random import Purpose, key
from tenfold.envs.adapter import episode_seeds
from tenfold.ops.device.episodes import Episodes, EpisodeShape, Played, play

Room = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]  # of one seed: types and shapes


def bytes_of(agent: Any, room: Room) -> int:
    """What a seed takes on the device, its agent's own networks included."""
    return agent.block.nbytes + sum(
        dtype.itemsize * math.prod(shape) for dtype, shape in room.values()
    )


def empty_rows(seeds: int, room: Room, device: Any) -> dict[str, torch.Tensor]:
    """Zeros for so many seeds; flags are bytes in the kernels."""
    return {
        name: torch.zeros(
            seeds,
            *shape,
            dtype=torch.uint8 if dtype == np.bool_ else torch.from_numpy(np.zeros(0, dtype)).dtype,
            device=device,
        )
        for name, (dtype, shape) in room.items()
    }


class DeviceSeeds:
    """All seeds of a launch, each what one run holds on the host with its `agent`. Their settings
    are alike but for the seed."""

    arrays: Any  # tensors with a row for each seed
    held: dict[str, list[np.ndarray]]  # the seeds' own arrays that the device has copies of

    def __init__(self, seeds: Sequence[Any], device: str, task: Any) -> None:
        self.seeds, self.device, self.task = list(seeds), torch.device(device), task
        self.episodes = EpisodeShape(task, task.sources)
        self.streams: dict[Any, list[list[Any]]] = {}  # of the episodes of evaluations

    @property
    def sums(self) -> torch.Tensor:
        return self.arrays.sums

    def send_held(self) -> None:
        self.arrays.block.copy_(torch.stack([seed.agent.block for seed in self.seeds]))
        for name, arrays in self.held.items():
            # one by one: memories that were never written to are then never made
            for row, array in zip(getattr(self.arrays, name), arrays, strict=True):
                row.copy_(torch.from_numpy(array))

    def fetch_held(self) -> None:
        for name, arrays in self.held.items():
            rows = getattr(self.arrays, name).cpu().numpy()
            for array, row in zip(arrays, rows, strict=True):
                array[...] = row
        for seed in self.seeds:
            seed.envs.see_again()

    def fetch_blocks(self) -> None:
        """Parameters and moments, in one launch for all."""
        copied: Any = torch
        blocks = [seed.agent.block for seed in self.seeds]
        copied._foreach_copy_(blocks, list(self.arrays.block.unbind(0)))

    def play(
        self, episodes: int, limit: int, purpose: Purpose, how: str, stop: Callable[[], bool]
    ) -> list[Played] | None:
        """Episodes of every seed's policy, those that an evaluation on the host plays; None where
        `stop` said so."""
        if (episodes, purpose) not in self.streams:
            self.streams[episodes, purpose] = [
                [
                    key(start, Purpose.EPISODE)
                    for start in episode_seeds(seed.agent.seed, purpose, episodes)
                ]
                for seed in self.seeds
            ]
        streams = self.streams[episodes, purpose]
        return play(self.launcher(how), self.task, streams, limit, self.device, stop)

    def compile_evaluation(self, how: str) -> None:
        play(self.launcher(how), self.task, [[0]], 0, self.device)

    def launcher(self, how: str) -> Callable[[Episodes, int, int, int, Any], None]:
        """One launch of an evaluation's kernel."""
        raise NotImplementedError
