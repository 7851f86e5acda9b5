"""Runs of Q-learning on the GPU, a seed each: their arrays, and the launches of the kernels.

`send` copies agents, replay memories and environments to the device and `fetch` back: checkpoints,
evaluations and reports read the host's copy.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN, Boltzmann, Hard
from tenfold.algorithms.kernels.dqn_resident_arrays import (
    ALPHA,
    CLIP,
    EPS,
    GAMMA,
    LR,
    PRIORITY_EPS,
    SCALE,
    TAU,
    Arrays,
    Shape,
)
from tenfold.algorithms.kernels.dqn_resident_play import evaluate
from tenfold.algorithms.kernels.dqn_resident_update import train
from tenfold.core.kernels import as_numbers, side_by_side
from tenfold.core.random import Purpose
from tenfold.engines.resident import MOST_ROUNDS, PRECISIONS
from tenfold.engines.resident_runs import ArraySpecs, HostRun, ResidentRuns
from tenfold.envs.adapter import Episode
from tenfold.envs.device import device_task
from tenfold.ops.adam import BETA1, BETA2
from tenfold.ops.device.language import padded
from tenfold.ops.device.network import NetShape
from tenfold.ops.device.td import ValueShape

# Rows of a batch that are in registers at a time. With 64 Triton 3.6 takes Hopper's products of
# whole warp groups, and a program that has to spill registers then reads outside of its memory.
MOST_ROWS = 32


def exploration(config: DQN) -> Any:
    """The schedule that sets it."""
    how: Any = config.explore
    return how.temperature if isinstance(how, Boltzmann) else how.schedule


def schedules(config: DQN) -> tuple[Any, ...]:
    """Of the learning rate, the exploration and the weights' exponent."""
    return config.lr, exploration(config), config.priorities.beta if config.priorities else 0


def shape_of(run: HostRun, precision: str, moments_in_memory: bool = False) -> Shape:
    """The constants that the kernels are compiled for."""
    agent, replay, envs = run
    config, task = agent.config, device_task(envs.name)
    sizes = tuple(int(size) for size in agent.online.sizes)
    batch, target = config.batch_size * config.accumulate, config.target
    return Shape(
        task=task,
        sources=task.sources,
        state_width=envs.states.shape[1],
        envs=envs.num_envs,
        lanes=padded(envs.num_envs),
        net=NetShape.of(sizes, config.net.activation, PRECISIONS[precision]),
        outputs=ValueShape(
            int(config.dueling),
            agent.actions.n,
            agent.online.atoms,
            config.loss == "huber",
            config.double,
        ),
        clips=config.clip_norm is not None,
        hard=target.every if isinstance(target, Hard) else 0,
        boltzmann=isinstance(config.explore, Boltzmann),
        prioritized=config.priorities is not None,
        schedules=tuple(int(as_numbers(schedule)[0]) for schedule in schedules(config)),
        n_step=config.n_step,
        length=replay.lane_rows,
        leaves=replay.tree.size // 2,
        batch=batch,
        rows=min(MOST_ROWS, padded(batch)),
        moments_in_memory=moments_in_memory,
        starts=config.learning_starts,
        every=config.every,
        updates=config.updates,
        most=MOST_ROUNDS * envs.num_envs,
    )


def two_share(runs: int, batch: int, device: str, precision: str) -> bool:
    """Whether two programs of four warps to a multiprocessor are faster than one of eight after
    the other: products are long, and what a program holds is half of what there is."""
    if device == "cpu" or precision == "tf32" or batch > MOST_ROWS:
        return False
    return runs > torch.cuda.get_device_properties(device).multi_processor_count


class ResidentDQNRuns(ResidentRuns):
    """All runs of a launch, a program each."""

    Arrays = Arrays
    of_memory = ("obs", "action", "reward", "kind", "ready", "head", "start", "tree", "top")
    purposes = (Purpose.REPLAY, Purpose.COIN, Purpose.ACTION)

    def __init__(
        self,
        runs: list[HostRun],
        device: str = "cuda",
        precision: str = "fp32",
        warps: int = 0,
        of: int = 0,
    ) -> None:
        """`warps` of a program; 0: as many as were fastest for `of` runs, these by default."""
        config = runs[0].agent.config
        batch = config.batch_size * config.accumulate
        self.warps = warps or (4 if two_share(of or len(runs), batch, device, precision) else 8)
        precision = precision if device != "cpu" else "ieee"
        super().__init__(runs, device, shape_of(runs[0], precision, self.warps == 4))

    @staticmethod
    def pack_params(agent: DQNAgent) -> np.ndarray:
        config, params = agent.config, np.zeros(LR.value)

        def put(index: Any, *values: float) -> None:
            params[index.value : index.value + len(values)] = values

        priorities = config.priorities
        put(GAMMA, config.gamma)
        put(SCALE, agent.layout.scale)
        put(CLIP, config.clip_norm or np.inf)
        put(EPS, config.adam_eps)
        put(TAU, 0.0 if isinstance(config.target, Hard) else config.target.tau)
        if priorities:
            put(ALPHA, priorities.alpha)
            put(PRIORITY_EPS, priorities.eps)
        return np.array([*params, *side_by_side(schedules(config))])

    @classmethod
    def sizes_of(cls, run: HostRun, shape: Shape) -> ArraySpecs:
        return {
            "counts": (np.dtype(np.int64), (6,)),
            "powers": (np.dtype(np.float64), (2,)),
            "sums": (np.dtype(np.float32), (5,)),
            "batch_row": (np.dtype(np.int64), (shape.batch,)),
            "batch_error": (np.dtype(np.float32), (shape.batch,)),
            "ended": (np.dtype(np.float64), (shape.most, 3)),
        }

    @classmethod
    def bytes_each(cls, run: HostRun) -> int:
        return cls.bytes_of(run, shape_of(run, "fp32"))

    def warm_up(self) -> None:
        """Compiles the kernels; no side effects."""
        for steady in (False, True)[: 1 + self.one_a_round]:
            self.launch(0, steady)
        self.compile_evaluation("greedy")

    def send(self, steps: list[int], rounds: list[int]) -> None:
        """Copies the runs' arrays to the device."""
        self.send_copies()
        self.step = min(steps)
        empty = any(memory.count[0] == 0 for _, memory, _ in self.runs)
        self.filled = self.step + self.shape.envs * self.shape.n_step if empty else 0
        counts = [
            [step, played, agent.updates, *memory.count.tolist(), 0]
            for (agent, memory, _), step, played in zip(self.runs, steps, rounds, strict=True)
        ]
        powers = [[BETA1**agent.updates, BETA2**agent.updates] for agent, _, _ in self.runs]
        self.arrays.counts.copy_(torch.tensor(counts))
        self.arrays.powers.copy_(torch.tensor(powers, dtype=torch.float64))

    def fetch(self) -> None:
        """Copies the runs' arrays back to the host."""
        self.fetch_networks()
        self.fetch_copies()
        for (_, memory, _), counts in zip(self.runs, self.arrays.counts.tolist(), strict=True):
            memory.count[:] = counts[3:5]

    def fetch_networks(self) -> None:
        """Copies parameters and moments alone back to the host."""
        self.fetch_blocks()
        for (agent, _, _), count in zip(self.runs, self.arrays.counts[:, 2].tolist(), strict=True):
            agent.count[0] = count

    def rounded(self, rounds: int) -> int:
        """The number of rounds near this one that is fastest in one launch."""
        return rounds

    def advance(self, rounds: int) -> None:
        """Plays this many rounds of every run, at most MOST_ROUNDS."""
        self.arrays.counts[:, 5] = 0
        steady = self.steady_of(rounds)
        for count, kind in ((rounds - steady, False), (steady, True)):
            if count:
                self.launch(count, kind)
        self.step += rounds * self.shape.envs

    def launch(self, rounds: int, steady: bool) -> None:
        train[(len(self.runs),)](self.arrays, rounds, steady, self.shape, num_warps=self.warps)

    @property
    def one_a_round(self) -> bool:
        """Whether all rounds end with one update, once they end with any."""
        S = self.shape
        return S.every == S.envs and S.updates == 1 and S.length > 2 * S.n_step + 4

    def steady_of(self, rounds: int) -> int:
        """How many of the next rounds, the last ones, are each followed by one update: those that
        end after learning starts and find rows to learn from."""
        S = self.shape
        before = max((S.starts - self.step) // S.envs, -(-(self.filled - self.step) // S.envs), 0)
        return max(rounds - before, 0) if self.one_a_round else 0

    def finished(self) -> list[list[Episode]]:
        """The episodes of each run that ended in the last launch, each with the step it ended
        at."""
        counts = self.arrays.counts.tolist()
        rows = self.arrays.ended[:, : max(count[5] for count in counts)].cpu().numpy()
        envs = self.shape.envs
        episodes = []
        for of_run, (step, rounds, _, _, _, noted) in zip(rows, counts, strict=True):
            first = step - rounds * envs  # they count alike, but for what a resume began with
            episodes.append(
                [
                    Episode(
                        int(at) % envs, ret, int(length), step=first + (int(at) // envs + 1) * envs
                    )
                    for at, ret, length in of_run[:noted].tolist()
                ]
            )
        return episodes

    def launcher(self, how: str) -> Callable[..., None]:
        shapes = (self.episodes, self.shape)

        def launch(episodes: Any, count: int, steps: int, limit: int, grid: Any) -> None:
            evaluate[grid](self.arrays, episodes, count, steps, limit, *shapes, num_warps=4)

        return launch
