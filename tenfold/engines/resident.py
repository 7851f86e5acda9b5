"""What resident engines hold on a GPU: arrays with a row for each seed, copied there and back, and
evaluations of all seeds by one launch. An algorithm adds the constants that its kernels are
compiled for, its arrays and its launches."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from tenfold.core.random import Purpose, key
from tenfold.envs.adapter import episode_seeds
from tenfold.envs.bases import StateEnvironments
from tenfold.ops.device.episodes import Episodes, EpisodeShape, Played, play
from tenfold.ops.device.language import key_tensor

ArraySpecs = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]  # of one seed: types and shapes


# arrays of a seed's environments, by their names on the device
OF_ENVS = {"state": "states", "length": "length", "episode": "episode", "ret": "ret"}


class Seed(NamedTuple):
    """One run's objects on the host."""

    agent: Any
    memory: Any  # a replay memory, or a rollout
    envs: StateEnvironments


def empty_rows(seeds: int, specs: ArraySpecs, device: Any) -> dict[str, torch.Tensor]:
    """Zeros for so many seeds; flags are bytes in the kernels."""
    return {
        name: torch.zeros(
            seeds,
            *shape,
            dtype=torch.uint8 if dtype == np.bool_ else torch.from_numpy(np.zeros(0, dtype)).dtype,
            device=device,
        )
        for name, (dtype, shape) in specs.items()
    }


class DeviceSeeds:
    """All seeds of a launch. Their settings are alike but for the seed."""

    Arrays: ClassVar[Any]  # the named tuple of the kernels' arrays
    of_memory: ClassVar[tuple[str, ...]]  # arrays of a seed's memory that the device has as well
    purposes: ClassVar[tuple[Purpose, ...]]  # of the draws that kernels make

    def __init__(self, seeds: Sequence[Seed], device: str, shape: Any) -> None:
        """`shape`: the constants that the kernels are compiled for."""
        self.seeds, self.device, self.shape = list(seeds), torch.device(device), shape
        self.task, agent = shape.task, seeds[0].agent
        self.episodes = EpisodeShape(self.task, self.task.sources)
        self.streams: dict[Any, list[list[Any]]] = {}  # of the episodes of evaluations
        # the seeds' own arrays that the device has copies of
        self.copied: dict[str, list[np.ndarray]] = {
            **{name: [getattr(s.memory, name) for s in seeds] for name in self.of_memory},
            **{name: [getattr(s.envs, array) for s in seeds] for name, array in OF_ENVS.items()},
        }
        keys = [[s.agent.keys[purpose] for purpose in self.purposes] for s in seeds]
        lane_keys = [list(s.envs.streams) for s in seeds]
        self.arrays = self.Arrays(  # tensors with a row for each seed
            **empty_rows(len(seeds), self.specs_of(seeds[0], shape), device),
            params=torch.from_numpy(self.pack_params(agent)).to(device),
            streams=torch.stack([key_tensor(row, "cpu") for row in keys]).to(device),
            lane_stream=torch.stack([key_tensor(row, "cpu") for row in lane_keys]).to(device),
        )

    @staticmethod
    def pack_params(agent: Any) -> np.ndarray:
        """Settings that kernels read as numbers."""
        raise NotImplementedError

    @classmethod
    def sizes_of(cls, seed: Seed, shape: Any) -> ArraySpecs:
        """Type and shape of a seed's arrays that are no copies of the host's."""
        raise NotImplementedError

    @classmethod
    def specs_of(cls, seed: Seed, shape: Any) -> ArraySpecs:
        """Type and shape of all of a seed's arrays."""
        arrays = {name: getattr(seed.memory, name) for name in cls.of_memory}
        arrays |= {name: getattr(seed.envs, array) for name, array in OF_ENVS.items()}
        copies = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        block = (np.dtype(np.float32), tuple(seed.agent.block.shape))
        return copies | {"block": block} | dict(cls.sizes_of(seed, shape))

    @classmethod
    def bytes_of(cls, seed: Seed, shape: Any) -> int:
        """Memory of a seed on the device, its agent's networks included."""
        specs = cls.specs_of(seed, shape).values()
        return seed.agent.block.nbytes + sum(d.itemsize * math.prod(size) for d, size in specs)

    @property
    def sums(self) -> torch.Tensor:
        return self.arrays.sums

    def send_copies(self) -> None:
        self.arrays.block.copy_(torch.stack([seed.agent.block for seed in self.seeds]))
        for name, arrays in self.copied.items():
            # one by one: memories that were never written to are then never made
            for row, array in zip(getattr(self.arrays, name), arrays, strict=True):
                row.copy_(torch.from_numpy(array))

    def fetch_copies(self) -> None:
        for name, arrays in self.copied.items():
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
        """Episodes of every seed's policy, those that an evaluation on the host plays; None if
        `stop` returned true."""
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
