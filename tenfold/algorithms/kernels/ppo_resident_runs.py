"""Runs of PPO on the GPU, a seed each: their arrays, and a phase of all of them (a rollout, then
its epochs) as one CUDA graph of small launches.

`send` copies agents, rollouts and environments to the device and `fetch` back: checkpoints,
evaluations and reports read the host's copy.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.kernels import ppo_resident_arrays as r
from tenfold.algorithms.kernels import ppo_resident_finish as ending
from tenfold.algorithms.kernels import ppo_resident_learn as learning
from tenfold.algorithms.kernels import ppo_resident_play as acting
from tenfold.algorithms.kernels.ppo_resident_arrays import PPOArrays, PPOShape
from tenfold.algorithms.ppo import PPOAgent
from tenfold.algorithms.ppo_cpu import DRAWS
from tenfold.algorithms.ppo_settings import PPO
from tenfold.core.kernels import as_numbers, side_by_side
from tenfold.engines.resident import PRECISIONS
from tenfold.engines.resident_runs import ArraySpecs, HostRun, ResidentRuns, captured
from tenfold.envs.adapter import Episode
from tenfold.envs.device import device_task
from tenfold.envs.faults import no_option
from tenfold.ops.device.language import padded
from tenfold.ops.device.network import NetShape
from tenfold.ops.device.policy import PolicyShape
from tenfold.ops.sampling import split_bits

MOST_LANES = 32  # of a program that plays
ROWS = 32  # of a minibatch that are in registers at a time
PROGRAMS = 128  # that share a minibatch, of each network and all seeds together
VALUING = 1024  # programs that find values
WARPS = 4
COLUMNS, TIME = 8, 128  # of a program that finishes rollouts
NOTED = 65536  # episodes that are noted between two questions
WITH_NEXT = ("obs", "value")  # have one more row on the device


def net_shape(network: Any, config: Any, precision: str) -> NetShape:
    sizes = tuple(int(size) for size in network.sizes)
    return NetShape.of(sizes, config.net.activation, PRECISIONS[precision])


def schedules(config: PPO) -> tuple[Any, ...]:
    """Of the learning rate, and how far ratios and values may move."""
    return config.lr, config.clip, np.inf if config.value_clip is None else config.value_clip


def shape_of(run: HostRun, seeds: int, precision: str) -> PPOShape:
    """The constants that the kernels are compiled for."""
    agent, rollout, envs = run
    config, actions, online = agent.config, agent.actions, agent.online
    network: Any = online
    task, horizon, count = device_task(envs.name), len(rollout.obs), envs.num_envs
    lanes = min(MOST_LANES, padded(count))
    blocks = -(-count // lanes)
    row_blocks = -(-int(np.diff(rollout.bounds).max()) // ROWS)
    chunks = -(-row_blocks // max(1, PROGRAMS // seeds))
    splits = -(-row_blocks // chunks)
    stretch = 64 if splits > 8 else 1024  # many splits: more programs add them
    masked = rollout.mask.shape[-1] > 0
    firsts = tuple(int(first) for first in np.cumsum([0, *actions.sizes])[:-1])
    return PPOShape(
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
        actions=PolicyShape(actions.sizes, firsts, actions.options, len(actions.low), masked),
        alone=actions.numbers == 1,
        refuses=masked and config.on_empty == "raise",
        policy_net=net_shape(network.policy, config, precision),
        value_net=net_shape(network.value, config, precision),
        parameters=online.flat.numel(),
        normalizes=agent.norm is not None,
        scales=r.SCALES[config.normalize_advantage],
        clipped_alone=config.value_clip_kind == "clipped",
        stops=config.target_kl is not None,
        schedules=tuple(int(as_numbers(schedule)[0]) for schedule in schedules(config)),
        minibatches=rollout.minibatches,
        size=config.minibatch_size or 0,
        epochs=config.epochs,
        rows=ROWS,
        chunks=chunks,
        splits=splits,
        splits_at_once=min(32, padded(splits, 1)),
        stretch=stretch,
        stretches=-(-online.flat.numel() // stretch),
        bits=split_bits(horizon * count),
        columns=COLUMNS,
        time=min(TIME, padded(horizon, 1)),
        max_noted=max(64, NOTED // (seeds * blocks)),
    )


class ResidentPPORuns(ResidentRuns):
    """All runs of a launch, some programs each."""

    Arrays, purposes = PPOArrays, DRAWS
    of_memory = ("mask", "chosen", "real", "log_p", "next_value")
    of_memory += ("reward", "discount", "boundary", "weight")

    def __init__(
        self, runs: Sequence[HostRun], device: str = "cuda", precision: str = "fp32", of: int = 0
    ) -> None:
        """`of`: as many runs share the device, these by default."""
        precision = precision if device != "cpu" else "ieee"
        super().__init__(runs, device, shape_of(runs[0], of or len(runs), precision))
        self.row = self.valued = 0  # of the rollout: steps that are there, and those with values
        self.graph: Any = None  # of a whole phase

    @staticmethod
    def pack_params(agent: PPOAgent) -> np.ndarray:
        config, norm, params = agent.config, agent.norm, np.zeros(r.LR.value)
        network: Any = agent.online
        numbers = {
            r.GAMMA: config.gamma,
            r.LAM: config.lam,
            r.REWARD_SCALE: config.reward_scale,
            r.OBS_SCALE: network.scale,
            r.VALUE_WEIGHT: config.value_weight,
            r.ENTROPY: config.entropy,
            r.CLIP_NORM: config.clip_norm or np.inf,
            r.ADAM_EPS: config.adam_eps,
            r.EPOCH_KL: config.epoch_kl_limit,
            r.MINIBATCH_KL: config.minibatch_kl_limit,
            r.NORM_CLIP: norm.clip if norm else 0.0,
            r.NORM_EPS: norm.epsilon if norm else 0.0,
        }
        for index, number in numbers.items():
            params[index.value] = number
        return np.array([*params, *side_by_side(schedules(config))])

    @classmethod
    def sizes_of(cls, run: HostRun, shape: PPOShape) -> ArraySpecs:
        s, obs, t, b = shape, shape.task.obs, shape.horizon, shape.envs
        single, double, whole = (np.dtype(kind) for kind in ("float32", "float64", "int64"))
        return {
            "count": (whole, (2,)),
            "clock": (whole, (s.blocks, 2)),
            "noted": (whole, (s.blocks,)),
            "ended": (double, (s.blocks, s.max_noted, 4)),
            "empty": (whole, (s.blocks, 2)),
            "sums": (double, (7,)),
            "norm_count": (whole, ()),
            "norm": (double, (3, obs)),
            "obs": (single, (t + 1, b, obs)),
            "final": (single, (t, b, obs)),
            "value": (single, (t + 1, b)),
            "advantage": (single, (t, b)),
            "target": (single, (t, b)),
            "order": (np.dtype("int32"), (s.epochs, t * b)),
            "moments": (double, (-(-b // s.columns), 2)),
            "partial": (single, (s.splits, s.parameters)),
            "squares": (single, (s.stretches,)),
            "statistics": (single, (s.splits, 5)),
            "going": (np.dtype("int32"), (s.epochs * s.minibatches + 1,)),
            "made": (whole, ()),
            "moved": (double, (s.epochs,)),
        }

    @classmethod
    def bytes_each(cls, run: HostRun) -> int:
        return cls.bytes_of(run, shape_of(run, 1, "fp32"))

    def warm_up(self) -> None:
        """Compiles the kernels and records a phase. What they write into empty arrays is
        overwritten here or when the seeds are sent."""
        if self.device.type == "cuda":
            self.phase()
            self.graph = captured(self.phase)
            for tensor in (self.arrays.sums, self.arrays.empty):
                tensor.zero_()
        self.compile_evaluation("greedy")

    # to the device and back

    def send(self, steps: list[int], rounds: list[int]) -> None:
        """Copies the runs' arrays to the device."""
        self.send_copies()
        a = self.arrays
        for name in WITH_NEXT:
            rows = [getattr(rollout, name) for _, rollout, _ in self.runs]
            getattr(a, name)[:, :-1] = torch.from_numpy(np.stack(rows)).to(self.device)
        a.count.copy_(torch.from_numpy(np.stack([agent.count for agent, _, _ in self.runs])))
        self.row = self.valued = int(self.runs[0].memory.count[0])
        a.clock[..., 0] = self.row
        a.clock[..., 1] = torch.tensor(rounds, device=self.device)[:, None]
        a.noted.zero_()
        if self.shape.normalizes:
            norms: list[Any] = [agent.norm for agent, _, _ in self.runs]
            a.norm.copy_(torch.from_numpy(np.stack([norm.moments for norm in norms])))
            a.norm_count.copy_(torch.tensor([int(norm.count[0]) for norm in norms]))
            self.launch(acting.norm_scale, ())

    def fetch(self) -> None:
        """Copies the runs' arrays back to the host."""
        self.find_values()
        self.fetch_networks()
        self.fetch_copies()
        for name in WITH_NEXT:
            values_of_seeds = getattr(self.arrays, name)[:, :-1].cpu().numpy()
            for (_, rollout, _), rows in zip(self.runs, values_of_seeds, strict=True):
                getattr(rollout, name)[...] = rows
        for _, rollout, _ in self.runs:
            rollout.count[0] = self.row

    def fetch_networks(self) -> None:
        """Copies parameters and moments alone back to the host."""
        self.fetch_blocks()
        a = self.arrays
        counts, norms, norm_counts = (
            a.count.cpu().numpy(),
            a.norm.cpu().numpy(),
            a.norm_count.tolist(),
        )
        for i, (agent, _, _) in enumerate(self.runs):
            agent.count[:] = counts[i]
            if agent.norm:
                agent.norm.moments[...] = norms[i]
                agent.norm.count[0] = norm_counts[i]

    # phases

    def rounded(self, rounds: int) -> int:
        """The number of rounds near this one that ends with a whole phase."""
        left = self.shape.horizon - self.row
        return left + max(rounds - left, 0) // self.shape.horizon * self.shape.horizon

    def advance(self, rounds: int) -> None:
        """Plays this many rounds of every seed; learns from a full rollout at once."""
        while rounds:
            if self.row == 0 and rounds >= self.shape.horizon:
                self.whole_phase()
                rounds -= self.shape.horizon
                continue
            count = min(rounds, self.shape.horizon - self.row)
            self.play_rows(count)
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
        self.play_rows(self.shape.horizon)
        self.value_rows(0, self.shape.horizon)
        self.learn()

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any) -> None:
        # loads of the next rows are not worth the registers that they take
        options = {"num_warps": WARPS, "num_stages": 1}
        kernel[(*grid, len(self.runs))](self.arrays, *arguments, self.shape, **options)

    def play_rows(self, count: int) -> None:
        """Plays steps of a rollout. Running statistics count each before the next."""
        grid = (self.shape.blocks,)
        if not self.shape.normalizes:
            self.launch(acting.play, grid, count)
            return
        for _ in range(count):
            self.launch(acting.play, grid, 1)
            self.launch(acting.norm_update, ())

    def find_values(self) -> None:
        """Computes the values of rows that have none yet."""
        if self.valued < self.row:
            self.value_rows(self.valued, self.row)
            self.valued = self.row

    def value_rows(self, first: int, last: int) -> None:
        """Values of the rows first … last − 1, and of what follows a full rollout."""
        s = self.shape
        if last == s.horizon:
            self.launch(acting.show, (s.blocks,))
            last += 1
        groups = max(1, min(last - first, VALUING // (s.blocks * len(self.runs))))
        self.launch(ending.values, (s.blocks, groups), first, last)

    def learn(self) -> None:
        s = self.shape
        self.launch(ending.shuffle, (-(-s.horizon * s.envs // ending.ORDERED.value), s.epochs))
        self.launch(ending.finish, (-(-s.envs // s.columns),))
        for number in range(s.epochs * s.minibatches):
            self.launch(learning.gradient, (2 * s.splits,), number)
            self.launch(learning.reduce, (s.stretches,), number)
            self.launch(learning.apply, (s.stretches,), number)
        self.launch(learning.close, ())

    def finished(self) -> list[list[Episode]]:
        """The episodes of each seed that ended since the last call, the latest of them where there
        are very many, each with the step it ended at."""
        if self.shape.refuses:
            self.refuse_empty()
        noted = self.arrays.noted.cpu().clone().numpy()
        self.arrays.noted.zero_()
        rows = self.arrays.ended[:, :, : min(self.shape.max_noted, int(noted.max()))].cpu().numpy()
        envs, episodes = self.shape.envs, []
        for of_seed, counts in zip(rows, noted, strict=True):
            ended = np.concatenate([part[:n] for part, n in zip(of_seed, counts, strict=True)])
            ended = ended[np.lexsort((ended[:, 1], ended[:, 0]))]
            episodes.append(
                [
                    Episode(int(lane), ret, int(length), step=int(rounds) * envs)
                    for rounds, lane, ret, length in ended.tolist()
                ]
            )
        return episodes

    def refuse_empty(self) -> None:
        """Raises where a component had no allowed option."""
        empty = self.arrays.empty.amax((0, 1)).tolist()
        if empty[0]:
            one = self.runs[0]
            where = f"{one.envs.name}, environment {empty[0] - 1}"
            raise no_option(where, one.agent.mask_form, empty[1] - 1)

    def launcher(self, how: str) -> Callable[..., None]:
        shapes = (acting.sampled if how == "sampled" else acting.greedy, self.episodes, self.shape)

        def launch(episodes: Any, count: int, steps: int, limit: int, grid: Any) -> None:
            acting.evaluate[grid](
                self.arrays, episodes, count, steps, limit, *shapes, num_warps=WARPS
            )

        return launch
