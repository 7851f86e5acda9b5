"""What resident engines (`engines.resident`) hold on a GPU: arrays with a row for each run, copied
there and back, and evaluations of all runs by one launch. The runs differ in their seeds alone. An
algorithm adds the constants that its kernels are compiled for, its arrays and its launches."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from tenfold.core.random import Purpose, key
from tenfold.core.system import capturing
from tenfold.envs.adapter import episode_seeds
from tenfold.envs.bases import StateEnvironments
from tenfold.ops.device.episodes import EpisodeRows, EpisodeShape, Played, play
from tenfold.ops.device.language import key_tensor

ArraySpecs = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]  # of one run: types and shapes


# arrays of a run's environments, by their names on the device
OF_ENVS = {"state": "states", "length": "length", "episode": "episode", "ret": "ret"}


class HostRun(NamedTuple):
    """One run's objects on the host."""

    agent: Any
    memory: Any  # a replay memory, or a rollout
    envs: StateEnvironments


def empty_rows(runs: int, specs: ArraySpecs, device: Any) -> dict[str, torch.Tensor]:
    """Zeros for so many runs; flags are bytes in the kernels."""
    return {
        name: torch.zeros(
            runs,
            *shape,
            dtype=torch.uint8 if dtype == np.bool_ else torch.from_numpy(np.zeros(0, dtype)).dtype,
            device=device,
        )
        for name, (dtype, shape) in specs.items()
    }


def captured(work: Callable[[], None]) -> Any:
    """A CUDA graph of the launches that `work` makes; it does not run them."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with capturing(graph):
        work()
    return graph


class ResidentRuns:
    """All runs of a launch. Their settings are alike but for the seed."""

    Arrays: ClassVar[Any]  # the named tuple of the kernels' arrays
    of_memory: ClassVar[tuple[str, ...]]  # arrays of a run's memory that the device has as well
    purposes: ClassVar[tuple[Purpose, ...]]  # of the draws that kernels make

    def __init__(self, runs: Sequence[HostRun], device: str, shape: Any) -> None:
        """`shape`: the constants that the kernels are compiled for."""
        self.runs, self.device, self.shape = list(runs), torch.device(device), shape
        self.task, agent = shape.task, runs[0].agent
        self.episodes = EpisodeShape(self.task, self.task.sources)
        self.streams: dict[Any, list[list[Any]]] = {}  # of the episodes of evaluations
        # the runs' own arrays that the device has copies of
        self.copied: dict[str, list[np.ndarray]] = {
            **{name: [getattr(run.memory, name) for run in runs] for name in self.of_memory},
            **{name: [getattr(run.envs, array) for run in runs] for name, array in OF_ENVS.items()},
        }
        keys = [[run.agent.keys[purpose] for purpose in self.purposes] for run in runs]
        lane_keys = [list(run.envs.streams) for run in runs]
        self.arrays = self.Arrays(  # tensors with a row for each run
            **empty_rows(len(runs), self.specs_of(runs[0], shape), device),
            params=torch.from_numpy(self.pack_params(agent)).to(device),
            streams=torch.stack([key_tensor(row, "cpu") for row in keys]).to(device),
            lane_stream=torch.stack([key_tensor(row, "cpu") for row in lane_keys]).to(device),
        )

    @staticmethod
    def pack_params(agent: Any) -> np.ndarray:
        """Settings that kernels read as numbers."""
        raise NotImplementedError

    @classmethod
    def sizes_of(cls, run: HostRun, shape: Any) -> ArraySpecs:
        """Type and shape of a run's arrays that are no copies of the host's."""
        raise NotImplementedError

    @classmethod
    def specs_of(cls, run: HostRun, shape: Any) -> ArraySpecs:
        """Type and shape of all of a run's arrays."""
        arrays = {name: getattr(run.memory, name) for name in cls.of_memory}
        arrays |= {name: getattr(run.envs, array) for name, array in OF_ENVS.items()}
        copies = {name: (array.dtype, array.shape) for name, array in arrays.items()}
        block = (np.dtype(np.float32), tuple(run.agent.block.shape))
        return copies | {"block": block} | dict(cls.sizes_of(run, shape))

    @classmethod
    def bytes_of(cls, run: HostRun, shape: Any) -> int:
        """Memory of a run on the device, its agent's networks included."""
        specs = cls.specs_of(run, shape).values()
        return run.agent.block.nbytes + sum(d.itemsize * math.prod(size) for d, size in specs)

    @property
    def sums(self) -> torch.Tensor:
        return self.arrays.sums

    def send_copies(self) -> None:
        self.arrays.block.copy_(torch.stack([run.agent.block for run in self.runs]))
        for name, arrays in self.copied.items():
            # one by one: memories that were never written to are then never made
            for row, array in zip(getattr(self.arrays, name), arrays, strict=True):
                row.copy_(torch.from_numpy(array))

    def fetch_copies(self) -> None:
        for name, arrays in self.copied.items():
            rows = getattr(self.arrays, name).cpu().numpy()
            for array, row in zip(arrays, rows, strict=True):
                array[...] = row
        for run in self.runs:
            run.envs.see_again()

    def fetch_blocks(self) -> None:
        """Parameters and moments, in one launch for all."""
        copied: Any = torch
        blocks = [run.agent.block for run in self.runs]
        copied._foreach_copy_(blocks, list(self.arrays.block.unbind(0)))

    def play(
        self, episodes: int, limit: int, purpose: Purpose, how: str, stop: Callable[[], bool]
    ) -> list[Played] | None:
        """Episodes of every run's policy, those that an evaluation on the host plays; None if
        `stop` returned true."""
        if (episodes, purpose) not in self.streams:
            self.streams[episodes, purpose] = [
                [
                    key(start, Purpose.EPISODE)
                    for start in episode_seeds(run.agent.seed, purpose, episodes)
                ]
                for run in self.runs
            ]
        streams = self.streams[episodes, purpose]
        return play(self.launcher(how), self.task, streams, limit, self.device, stop)

    def compile_evaluation(self, how: str) -> None:
        play(self.launcher(how), self.task, [[0]], 0, self.device)

    def launcher(self, how: str) -> Callable[[EpisodeRows, int, int, int, Any], None]:
        """One launch of an evaluation's kernel."""
        raise NotImplementedError
