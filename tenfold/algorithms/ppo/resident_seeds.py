"""One seed or many on the GPU: what their runs hold as rows of the kernels' arrays, and a phase of
all of them (a rollout, then its epochs) as one CUDA graph of small launches.

`send` copies agents, rollouts and environments to the device and `fetch` back: checkpoints,
evaluations and reports know nothing of it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.algorithms.ppo import resident_arrays as r
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.fused_arrays import DRAWS
from tenfold.algorithms.ppo.resident_arrays import Arrays, Shape
from tenfold.algorithms.ppo.resident_learn import (
    ORDERED,
    apply,
    close,
    finish,
    gradient,
    reduce,
    shuffle,
    values,
)
from tenfold.algorithms.ppo.resident_play import norm_update, play, show
from tenfold.core.schedules import as_numbers
from tenfold.envs.adapter import Episode
from tenfold.envs.control import ControlEnvironments
from tenfold.envs.device import TASKS
from tenfold.memory.rollout import Rollout
from tenfold.ops.device.language import padded, words
from tenfold.ops.device.network import NetShape
from tenfold.ops.device.policy import PolicyShape
from tenfold.ops.mlp import ACTIVATIONS
from tenfold.ops.permutation import split_bits

PRECISIONS = {"fp32": "bf16x6", "bf16x3": "bf16x3", "tf32": "tf32", "ieee": "ieee"}
MOST_LANES = 32  # of a program that plays
ROWS = 32  # of a minibatch that are in registers at a time
PROGRAMS = 128  # that share a minibatch, of each network and all seeds together
COLUMNS, TIME = 8, 128  # of a program that finishes rollouts
TOLD = 8192  # episodes of a seed that are noted between two questions
OF_ROLLOUT = (
    "mask",
    "chosen",
    "real",
    "log_p",
    "next_value",
    "reward",
    "discount",
    "boundary",
    "weight",
)
WITH_NEXT = ("obs", "value")  # have one more row on the device
OF_ENVS = {"state": "states", "length": "length", "episode": "episode", "ret": "ret"}


class Seed(NamedTuple):
    """What one run holds on the host."""

    agent: PPOAgent
    rollout: Rollout
    envs: ControlEnvironments


def rules(agent: PPOAgent) -> np.ndarray:
    """The settings that change no kernel, as numbers."""
    config, norm, rule = agent.config, agent.norm, np.zeros(r.RULES)
    network: Any = agent.online
    given = {
        r.GAMMA: config.gamma,
        r.LAM: config.lam,
        r.REWARD_SCALE: config.reward_scale,
        r.OBS_SCALE: network.scale,
        r.CLIP: config.clip,
        r.VALUE_CLIP: config.value_clip or np.inf,
        r.VALUE_WEIGHT: config.value_weight,
        r.ENTROPY: config.entropy,
        r.CLIP_NORM: config.clip_norm or np.inf,
        r.ADAM_EPS: config.adam_eps,
        r.TARGET_KL: config.target_kl or np.inf,
        r.NORM_CLIP: norm.clip if norm else 0.0,
        r.NORM_EPS: norm.epsilon if norm else 0.0,
    }
    for place, number in given.items():
        rule[place.value] = number
    rule[r.LR.value : r.LR.value + 4] = as_numbers(config.lr)
    return rule


def net_shape(network: Any, config: Any, precision: str) -> NetShape:
    sizes = tuple(int(size) for size in network.sizes)
    return NetShape(
        sizes,
        tuple(padded(size) for size in sizes),
        len(sizes) - 1,
        sum((before + 1) * after for before, after in pairwise(sizes)),
        ACTIVATIONS[config.net.activation],
        PRECISIONS[precision],
    )


def shape_of(seed: Seed, seeds: int, precision: str) -> Shape:
    """What the kernels are compiled for."""
    agent, rollout, envs = seed
    config, actions, online = agent.config, agent.actions, agent.online
    network: Any = online
    task, horizon, count = TASKS[envs.name], len(rollout.obs), envs.num_envs
    lanes = min(MOST_LANES, padded(count))
    blocks = -(-count // lanes)
    rows = -(-horizon * count // rollout.minibatches)
    parts = min(-(-rows // ROWS), max(1, PROGRAMS // seeds))
    stretch = 64 if parts > 8 else 1024  # many parts: more programs add them
    firsts = tuple(int(first) for first in np.cumsum([0, *actions.sizes])[:-1])
    return Shape(
        task=task,
        sources=task.sources,
        state_width=envs.states.shape[1],
        envs=count,
        lanes=lanes,
        blocks=blocks,
        horizon=horizon,
        low=actions.low,
        high=actions.high,
        squash=config.squash,
        actions=PolicyShape(
            actions.sizes, firsts, actions.options, len(actions.low), rollout.mask.shape[-1] > 0
        ),
        alone=actions.numbers == 1,
        policy_net=net_shape(network.policy, config, precision),
        value_net=net_shape(network.value, config, precision),
        parameters=online.flat.numel(),
        normalizes=agent.norm is not None,
        scales=config.normalize_advantage,
        stops=config.target_kl is not None,
        schedule=int(as_numbers(config.lr)[0]),
        minibatches=rollout.minibatches,
        epochs=config.epochs,
        rows=ROWS,
        chunks=-(-rows // (parts * ROWS)),
        parts=parts,
        together=min(32, padded(parts, 1)),
        stretch=stretch,
        stretches=-(-online.flat.numel() // stretch),
        bits=split_bits(horizon * count),
        columns=COLUMNS,
        time=min(TIME, padded(horizon, 1)),
        told=max(64, TOLD // blocks),
    )


class ResidentPolicies:
    """All seeds of a launch. Their settings are alike but for the seed."""

    def __init__(
        self, seeds: Sequence[Seed], device: str = "cuda", precision: str = "fp32"
    ) -> None:
        self.seeds, self.device = list(seeds), torch.device(device)
        on_gpu = self.device.type == "cuda"
        self.shape = shape_of(self.seeds[0], len(seeds), precision if on_gpu else "ieee")
        self.warps = {play: 4, gradient: 4, values: 4, apply: 2}
        self.row = self.valued = 0  # of the rollout: steps that are there, and those with values
        self.graph: Any = None  # of a whole phase
        agents, rollouts, envs = zip(*self.seeds, strict=True)
        # the seeds' own arrays that the device holds copies of
        self.held: dict[str, list[np.ndarray]] = {
            **{name: [getattr(each, name) for each in rollouts] for name in OF_ROLLOUT},
            **{name: [getattr(each, own) for each in envs] for name, own in OF_ENVS.items()},
        }
        room = {name: (arrays[0].dtype, arrays[0].shape) for name, arrays in self.held.items()}
        room |= self.more_room(agents[0], rollouts[0])
        tensors = {
            name: torch.from_numpy(np.zeros((len(seeds), *shape), dtype)).to(self.device)
            for name, (dtype, shape) in room.items()
        }
        tensors["mask"] = tensors["mask"].view(torch.uint8)  # flags are bytes in the kernels
        keys = [[agent.keys[purpose] for purpose in DRAWS] for agent in agents]
        self.arrays = Arrays(
            **tensors,
            rules=torch.from_numpy(rules(agents[0])).to(self.device),
            streams=torch.stack([words(each, self.device) for each in keys]),
            lane_stream=torch.stack([words(list(each.streams), self.device) for each in envs]),
        )

    def more_room(self, agent: PPOAgent, rollout: Rollout) -> dict[str, Any]:
        """Types and shapes of what only the device holds, or holds otherwise."""
        s = self.shape
        obs, t, b = s.task.obs, s.horizon, s.envs
        single, double, whole = np.float32, np.float64, np.int64
        return {
            "block": (single, tuple(agent.block.shape)),
            "count": (whole, (2,)),
            "clock": (whole, (s.blocks, 2)),
            "noted": (whole, (s.blocks,)),
            "ended": (double, (s.blocks, s.told, 4)),
            "sums": (double, (7,)),
            "norm_count": (whole, ()),
            "norm": (double, (3, obs)),
            "obs": (single, (t + 1, b, obs)),
            "final": (single, (t, b, obs)),
            "value": (single, (t + 1, b)),
            "advantage": (single, (t, b)),
            "target": (single, (t, b)),
            "order": (np.int32, (s.epochs, t * b)),
            "moments": (double, (-(-b // s.columns), 2)),
            "partial": (single, (s.parts, s.parameters)),
            "squares": (single, (s.stretches,)),
            "said": (single, (s.parts, 5)),
            "going": (np.int32, (s.epochs + 1,)),
            "moved": (double, (s.epochs,)),
        }

    # to the device and back

    def send(self, rounds: int) -> None:
        """What the seeds hold on the host, onto the device; all have played so many rounds."""
        a = self.arrays
        a.block.copy_(torch.stack([agent.block for agent, _, _ in self.seeds]))
        for name, arrays in self.held.items():
            tensor = getattr(a, name)
            tensor.copy_(torch.from_numpy(np.stack(arrays)).view_as(tensor).to(tensor.dtype))
        for name in WITH_NEXT:
            rows = [getattr(rollout, name) for _, rollout, _ in self.seeds]
            getattr(a, name)[:, :-1] = torch.from_numpy(np.stack(rows)).to(self.device)
        a.count.copy_(torch.from_numpy(np.stack([agent.count for agent, _, _ in self.seeds])))
        self.row = self.valued = int(self.seeds[0].rollout.count[0])
        a.clock[..., 0], a.clock[..., 1] = self.row, rounds
        a.noted.zero_()
        if self.shape.normalizes:
            norms: list[Any] = [agent.norm for agent, _, _ in self.seeds]
            a.norm.copy_(torch.from_numpy(np.stack([norm.moments for norm in norms])))
            a.norm_count.copy_(torch.from_numpy(np.stack([norm.count[0] for norm in norms])))

    def fetch(self) -> None:
        """What the seeds hold on the host becomes what it is on the device."""
        self.find_values()
        self.fetch_networks()
        for name, arrays in self.held.items():
            own = getattr(self.arrays, name).cpu().numpy()
            for array, row in zip(arrays, own, strict=True):
                array[...] = row
        for name in WITH_NEXT:
            own = getattr(self.arrays, name)[:, :-1].cpu().numpy()
            for (_, rollout, _), rows in zip(self.seeds, own, strict=True):
                getattr(rollout, name)[...] = rows
        for _, rollout, envs in self.seeds:
            rollout.count[0] = self.row
            envs.see_again()

    def fetch_networks(self) -> None:
        """Parameters and moments alone, for who acts or looks."""
        a = self.arrays
        counts, norms = a.count.cpu().numpy(), a.norm.cpu().numpy()
        seen = a.norm_count.tolist()
        for i, (agent, _, _) in enumerate(self.seeds):
            agent.block.copy_(a.block[i])
            agent.count[:] = counts[i]
            if agent.norm:
                agent.norm.moments[...] = norms[i]
                agent.norm.count[0] = seen[i]

    # phases

    def advance(self, rounds: int) -> None:
        """So many rounds of every seed; a full rollout is learned from at once."""
        while rounds:
            if self.row == 0 and rounds >= self.shape.horizon:
                self.whole_phase()
                rounds -= self.shape.horizon
                continue
            count = min(rounds, self.shape.horizon - self.row)
            self.play(count)
            self.row += count
            rounds -= count
            if self.row == self.shape.horizon:
                self.find_values()
                self.learn()
                self.row = self.valued = 0

    def whole_phase(self) -> None:
        if self.device.type != "cuda":
            self.phase()
        elif self.graph is None:
            self.phase()  # compiles what is not compiled yet
            self.graph = captured(self.phase)
        else:
            self.graph.replay()

    def phase(self) -> None:
        self.play(self.shape.horizon)
        self.value_rows(0)
        self.learn()

    def launch(self, kernel: Any, grid: tuple[int, ...], *given: Any) -> None:
        kernel[(*grid, len(self.seeds))](
            self.arrays, *given, self.shape, num_warps=self.warps.get(kernel, 4)
        )

    def play(self, count: int) -> None:
        """Steps of a rollout. Running statistics learn from every one before the next."""
        grid = (self.shape.blocks,)
        if not self.shape.normalizes:
            self.launch(play, grid, count)
            return
        for _ in range(count):
            self.launch(play, grid, 1)
            self.launch(norm_update, ())

    def find_values(self) -> None:
        """Of the rows that have none yet."""
        if self.valued < self.row:
            self.value_rows(self.valued)
            self.valued = self.row

    def value_rows(self, first: int) -> None:
        s = self.shape
        last = s.horizon if self.row == 0 else self.row
        full = last == s.horizon
        if full:
            self.launch(show, (s.blocks,))
        rows = last + full - first
        groups = max(1, min(rows, PROGRAMS * 8 // (s.blocks * len(self.seeds))))
        self.launch(values, (s.blocks, groups), first, last + full)

    def learn(self) -> None:
        s = self.shape
        self.launch(shuffle, (-(-s.horizon * s.envs // ORDERED.value), s.epochs))
        self.launch(finish, (-(-s.envs // s.columns),))
        for number in range(s.epochs * s.minibatches):
            self.launch(gradient, (2 * s.parts,), number)
            self.launch(reduce, (s.stretches,), number)
            self.launch(apply, (s.stretches,), number)
        self.launch(close, ())

    def finished(self) -> list[list[Episode]]:
        """The episodes of each seed that ended since the last call: all, or the latest."""
        noted = self.arrays.noted.cpu().clone().numpy()
        told = self.shape.told
        self.arrays.noted.zero_()
        rows = self.arrays.ended[:, :, : min(told, int(noted.max()))].cpu().numpy()
        found = []
        for own, counts in zip(rows, noted, strict=True):
            there = [part[:count] for part, count in zip(own, counts, strict=True)]
            each = np.concatenate(there)
            each = each[np.lexsort((each[:, 1], each[:, 0]))]
            found.append(
                [Episode(int(lane), ret, int(length)) for _, lane, ret, length in each.tolist()]
            )
        return found


def captured(work: Callable[[], None]) -> Any:
    """A CUDA graph of the launches that `work` makes; it does not run them."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        work()
    return graph
