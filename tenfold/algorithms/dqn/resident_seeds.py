"""One seed or many on the GPU: what their runs hold, as rows of the kernel's arrays.

`send` copies agents, replay memories and environments to the device and `fetch` back: checkpoints,
evaluations and reports know nothing of it.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.config import DQN, Boltzmann, Hard
from tenfold.algorithms.dqn.resident_arrays import (
    ALPHA,
    BETA,
    CLIP,
    EPS,
    EXPLORE,
    GAMMA,
    LR,
    PRIORITY_EPS,
    RULES,
    SCALE,
    TAU,
    Arrays,
    Shape,
)
from tenfold.algorithms.dqn.resident_kernel import train
from tenfold.algorithms.dqn.resident_td import ValueShape
from tenfold.core.random import Purpose
from tenfold.core.schedules import as_numbers
from tenfold.envs.adapter import Episode, StateEnvironments
from tenfold.envs.device import device_task
from tenfold.memory.replay import Replay
from tenfold.ops.adam import BETA1, BETA2
from tenfold.ops.device.language import padded, words
from tenfold.ops.device.network import NetShape
from tenfold.ops.mlp import ACTIVATIONS

MOST_ROUNDS = 4096  # of a launch
PRECISIONS = {"fp32": "bf16x6", "bf16x3": "bf16x3", "tf32": "tf32", "ieee": "ieee"}
MOST_ROWS = 64  # of a batch that are in registers at a time
OF_MEMORY = ("obs", "action", "reward", "kind", "ready", "head", "start", "tree", "top")
OF_ENVS = {"state": "states", "length": "length", "episode": "episode", "ret": "ret"}


class Seed(NamedTuple):
    """What one run holds on the host."""

    agent: DQNAgent
    replay: Replay
    envs: StateEnvironments


def rules(agent: DQNAgent) -> np.ndarray:
    """The settings that change no kernel, as numbers."""
    config, rule = agent.config, np.zeros(RULES.value)

    def put(place: Any, *values: float) -> None:
        rule[place.value : place.value + len(values)] = values

    priorities = config.priorities
    put(GAMMA, config.gamma)
    put(SCALE, agent.layout.scale)
    put(CLIP, config.clip_norm or np.inf)
    put(EPS, config.adam_eps)
    put(TAU, 0.0 if isinstance(config.target, Hard) else config.target.tau)
    put(LR, *as_numbers(config.lr))
    put(EXPLORE, *as_numbers(exploration(config)))
    if priorities:
        put(ALPHA, priorities.alpha)
        put(PRIORITY_EPS, priorities.eps)
        put(BETA, *as_numbers(priorities.beta))
    return rule


def exploration(config: DQN) -> Any:
    """The schedule that sets it."""
    how: Any = config.explore
    return how.temperature if isinstance(how, Boltzmann) else how.schedule


def shape_of(seed: Seed, precision: str) -> Shape:
    """What a kernel is compiled for."""
    agent, replay, envs = seed
    config, task = agent.config, device_task(envs.name)
    sizes = tuple(int(size) for size in agent.online.sizes)
    batch, target = config.batch_size * config.accumulate, config.target
    schedules = (config.lr, exploration(config), config.priorities.beta if config.priorities else 1)
    return Shape(
        task=task,
        sources=task.sources,
        state_width=envs.states.shape[1],
        envs=envs.num_envs,
        lanes=padded(envs.num_envs),
        net=NetShape(
            sizes,
            tuple(padded(size) for size in sizes),
            len(sizes) - 1,
            agent.online.flat.numel(),
            ACTIVATIONS[config.net.activation],
            PRECISIONS[precision],
        ),
        outputs=ValueShape(
            int(config.dueling), agent.actions.n, agent.online.atoms, config.loss == "huber"
        ),
        double=config.double,
        clips=config.clip_norm is not None,
        hard=target.every if isinstance(target, Hard) else 0,
        boltzmann=isinstance(config.explore, Boltzmann),
        prioritized=config.priorities is not None,
        schedules=tuple(int(as_numbers(each)[0]) for each in schedules),
        n_step=config.n_step,
        length=replay.lane_rows,
        leaves=replay.tree.size // 2,
        batch=batch,
        rows=min(MOST_ROWS, padded(batch)),
        starts=config.learning_starts,
        every=config.every,
        updates=config.updates,
        most=MOST_ROUNDS * envs.num_envs,
    )


def usual_warps(seeds: int, device: str, precision: str) -> int:
    """Eight; four where two programs then share a multiprocessor and products are long."""
    if device == "cpu" or precision == "tf32":
        return 8
    return 8 if seeds <= torch.cuda.get_device_properties(device).multi_processor_count else 4


class ResidentSeeds:
    """All seeds of a launch. Their settings are alike but for the seed."""

    def __init__(
        self, seeds: list[Seed], device: str = "cuda", precision: str = "fp32", warps: int = 0
    ) -> None:
        """`warps` of a program; 0: as many as were fastest."""
        self.seeds, self.device = seeds, device
        self.warps = warps or usual_warps(len(seeds), device, precision)
        self.shape = shape_of(seeds[0], precision if device != "cpu" else "ieee")
        agents, memories, envs = zip(*seeds, strict=True)
        # the seeds' own arrays that the device holds copies of
        self.held = {
            **{name: [getattr(memory, name) for memory in memories] for name in OF_MEMORY},
            **{name: [getattr(each, own) for each in envs] for name, own in OF_ENVS.items()},
        }
        keys = [
            [agent.keys[p] for p in (Purpose.REPLAY, Purpose.COIN, Purpose.ACTION)]
            for agent in agents
        ]
        room = {name: (arrays[0].dtype, arrays[0].shape) for name, arrays in self.held.items()} | {
            "block": (np.float32, tuple(agents[0].block.shape)),
            "counts": (np.int64, (6,)),
            "powers": (np.float64, (2,)),
            "sums": (np.float32, (5,)),
            "batch_row": (np.int64, (self.shape.batch,)),
            "batch_error": (np.float32, (self.shape.batch,)),
            "ended": (np.float64, (self.shape.most, 3)),
        }
        tensors = {
            name: torch.from_numpy(np.zeros((len(seeds), *shape), dtype)).to(device)
            for name, (dtype, shape) in room.items()
        }
        tensors["ready"] = tensors["ready"].view(torch.uint8)  # flags are bytes in the kernel
        self.arrays = Arrays(
            **tensors,
            rules=torch.from_numpy(rules(agents[0])).to(device),
            streams=torch.stack([words(each, device) for each in keys]),
            lane_stream=torch.stack([words(list(each.streams), device) for each in envs]),
        )

    def send(self, steps: list[int], rounds: list[int]) -> None:
        """What the seeds hold on the host, onto the device."""
        self.arrays.block.copy_(torch.stack([agent.block for agent, _, _ in self.seeds]))
        for name, arrays in self.held.items():
            getattr(self.arrays, name).copy_(torch.from_numpy(np.stack(arrays)))
        counts = [
            [step, played, agent.updates, *memory.count.tolist(), 0]
            for (agent, memory, _), step, played in zip(self.seeds, steps, rounds, strict=True)
        ]
        powers = [[BETA1**agent.updates, BETA2**agent.updates] for agent, _, _ in self.seeds]
        self.arrays.counts.copy_(torch.tensor(counts))
        self.arrays.powers.copy_(torch.tensor(powers, dtype=torch.float64))

    def fetch(self) -> None:
        """What the seeds hold on the host becomes what it is on the device."""
        self.fetch_networks()
        for name, arrays in self.held.items():
            for array, row in zip(arrays, getattr(self.arrays, name).cpu().numpy(), strict=True):
                array[...] = row
        for (_, memory, envs), counts in zip(self.seeds, self.arrays.counts.tolist(), strict=True):
            memory.count[:] = counts[3:5]
            envs.see_again()

    def fetch_networks(self) -> None:
        """Parameters and moments alone, for who acts or looks."""
        for (agent, _, _), block, count in zip(
            self.seeds, self.arrays.block, self.arrays.counts[:, 2].tolist(), strict=True
        ):
            agent.block.copy_(block)
            agent.count[0] = count

    def advance(self, rounds: int) -> None:
        """So many rounds of every seed, at most MOST_ROUNDS."""
        self.arrays.counts[:, 5] = 0
        train[(len(self.seeds),)](self.arrays, rounds, self.shape, num_warps=self.warps)

    def finished(self) -> list[list[Episode]]:
        """The episodes of each seed that ended in the last launch."""
        counts = self.arrays.counts[:, 5].tolist()
        rows = self.arrays.ended[:, : max(counts)].cpu().numpy()
        return [
            [Episode(int(lane), ret, int(length)) for lane, ret, length in own[:count].tolist()]
            for own, count in zip(rows, counts, strict=True)
        ]
