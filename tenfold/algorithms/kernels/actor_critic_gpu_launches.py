"""Updates of sac and td3 with wide networks: the buffers, the launches of a graph, and the pair
that holds them to the agent's own update."""

import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import triton

from tenfold.algorithms.kernels.actor_critic_gpu_arrays import LossShape, Scratch, Sent
from tenfold.algorithms.kernels.actor_critic_gpu_forward import (
    judge_kernel,
    look_kernel,
    slope_kernel,
    weigh_kernel,
)
from tenfold.algorithms.kernels.actor_critic_gpu_learn import (
    SIDE,
    TOLD,
    blame_kernel,
    critics_kernel,
    normal_kernel,
)
from tenfold.algorithms.kernels.actor_critic_gpu_policy import (
    act_kernel,
    head_kernel,
    policy_kernel,
    tally_kernel,
)
from tenfold.algorithms.sac import SACAgent
from tenfold.algorithms.sac_td3_settings import SAC, TD3, Auto
from tenfold.algorithms.td3 import TD3Agent
from tenfold.core.layout import ObsLayout
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose
from tenfold.core.spaces import bounded_actions
from tenfold.engines.plain import EagerOptimiser
from tenfold.memory.staging import StagingBuffer
from tenfold.ops.device.language import available, device, key_tensor
from tenfold.ops.device.wide_layers import FORMS, THIN, WideShape, write_forms

ROWS, COLUMNS, UNITS, ITEMS = 64, 32, 64, 256  # the sides of tiles, at most
ROOM = 40  # rows of an example's table
BLOCK = 256  # normal numbers of a program
DRAWS = {"next_noise": Purpose.NEXT_POLICY, "noise": Purpose.POLICY}


class TileUpdates:
    """The launches of updates on an agent's own buffers. `table` holds the observations of the
    replay memory, `sent` what each update of a graph is given."""

    def __init__(self, agent: Any, table: torch.Tensor, sent: StagingBuffer, form: str) -> None:
        config, actions, device = agent.config, agent.actions, agent.device
        gaussian, (h, _), b = (
            config.name == "sac",
            config.net.hidden,
            sent.on_device[0]["reward"].numel(),
        )
        self.agent, self.sent, self.pdl = agent, sent, device.type == "cuda"
        self.shape = S = WideShape.of(
            agent.layout.size, actions.reals, h, b, 1 + gaussian, agent.layout.scale, form
        )
        self.loss = LossShape(
            gaussian,
            gaussian and isinstance(config.temperature, Auto),
            agent.target_entropy if gaussian else 0.0,
            getattr(config, "smoothing", 0.0),
            getattr(config, "smoothing_clip", 0.0),
            config.tau,
            config.adam_eps,
        )
        self.launches = 7
        self.tile = min(ROWS, b), COLUMNS
        # units of a layer, and items of a batch, that a program takes at once: as many as leave no
        # number without a register
        self.depth, self.blame_depth = math.gcd(256 if S.pl == 1 else 128, h), math.gcd(128, h)
        self.items, self.policy_items = min(ITEMS, b), min(ITEMS // S.pl, b)
        self.slices = C = h // COLUMNS
        self.learning = h // COLUMNS + h // SIDE.value + (h // UNITS) * (h // COLUMNS)
        self.programs = 2 * self.learning + self.learning + h // UNITS
        parts, heads, count = S.pl, S.heads * S.ad, len(sent.on_device)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        def in_parts(*shape: int) -> torch.Tensor:
            return zeros(*shape, dtype=FORMS[form][0])

        self.keys = key_tensor([agent.keys[purpose] for purpose in DRAWS.values()], device)
        self.noise, self.errors = zeros(count, len(DRAWS), b, S.act), zeros(b)
        self.squares, self.metrics = zeros(count, self.programs), zeros(count, TOLD.value)
        self.scratch = Scratch(
            online=agent.online.flat,
            grad=agent.online.flat_grad,
            mean=agent.exp_avg,
            square=agent.exp_avg_sq,
            target=agent.target.flat,
            forms=in_parts(5 + (not gaussian), parts, S.forms[5]),
            table=table,
            inputs=in_parts(parts, S.xm, b),
            first=in_parts(3, parts, h, b),
            second=zeros(2, h, b),
            policy_second=in_parts(parts, h, b),
            policy_on=zeros(b, h, dtype=torch.int8),
            value_slope=in_parts(2, parts, b, h),
            policy_value_slope=in_parts(2, parts, b, h),
            first_on=zeros(2, b, h, dtype=torch.int8),
            head=zeros(2, C, heads, b),
            value=zeros(2, C, b),
            target_value=zeros(2, C, b),
            policy_value=zeros(2, C, b),
            value_weight=zeros(2, h),
            base=zeros(2, b),
            unit_delta=zeros(2, h, b),
            action_inputs=zeros(b, S.od),
            action=zeros(3, b, S.ad),
            log_p=zeros(b),
            action_slope=zeros(2, C, b, S.ad),
            head_delta=zeros(heads, b),
            first_delta=zeros(h, b),
            second_delta=zeros(h, b),
        )
        self.given = [self.given_to(k) for k in range(count)]

    def given_to(self, k: int) -> Sent:
        sent = self.sent.on_device[k]
        return Sent(
            places=sent["places"],
            action=sent["action"],
            reward=sent["reward"],
            discount=sent["discount"],
            weight=sent["weight"],
            before=sent["before"],
            policy_before=sent["policy_before"],
            lr=sent["lr"],
            noise=self.noise[k],
            squares=self.squares[k],
            metrics=self.metrics[k],
            errors=self.errors,
        )

    def noise_of(self, k: int) -> dict[str, torch.Tensor]:
        """The draws of update k, by their names in a batch."""
        return dict(zip(DRAWS, self.noise[k], strict=True))

    def largest(self) -> float:
        """Of the numbers that the latest update's products took."""
        a = self.scratch
        kept = a.online, a.inputs, a.first, a.policy_second, a.unit_delta
        return float(torch.stack([x.abs().max().float() for x in kept]).max())

    def draw_noise(self, count: int) -> None:
        """Normal numbers for so many updates."""
        size = self.shape.b * self.shape.act
        grid = triton.cdiv(size, BLOCK), len(DRAWS), count
        number = self.sent.on_device[0]["number"]
        normal_kernel[grid](number, self.keys, self.noise, SIZE=size, BLOCK=BLOCK)

    def update_all(self, count: int, turn: int, sums: torch.Tensor) -> None:
        """So many updates, of which the first is number `turn` since the policy learned."""
        a, S, delay = self.scratch, self.shape, self.agent.delay
        write_forms(a.online, a.target, a.forms, S)
        for k in range(count):
            self.update(self.given[k], (turn + k + 1) % delay == 0, first=k == 0)
        tally_kernel[(1,)](
            sums,
            self.squares,
            self.metrics,
            COUNT=count,
            CRITICS=2 * self.learning,
            PROGRAMS=self.programs,
            PAD=triton.next_power_of_2(self.programs),
            GAUSSIAN=self.loss.gaussian,
            TURN=turn,
            DELAY=delay,
        )

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        """A launch that starts while the one before it still runs, where a GPU can."""
        warps = constants.pop("warps", 4)
        early = constants.pop("early", True)
        more = {"launch_pdl": True} if self.pdl and early else {}
        kernel[grid](
            *arguments,
            S=self.shape,
            **constants,
            PDL=self.pdl,
            num_warps=warps,
            num_stages=1,
            **more,
        )

    def update(self, u: Sent, due: bool, first: bool = False) -> None:
        """One update; the policy learns where it is `due`."""
        a, L, h, b = self.scratch, self.loss, self.shape.h, self.shape.b
        (R, N), C = self.tile, self.slices
        thin, tiles = (b // R) * (h // THIN.value), (b // R) * C
        widest, forward = max(tiles, thin), {"R": R, "N": N, "K": self.depth}
        if not due:
            a.grad[: self.shape.actor[6]].zero_()
        self.launch(
            look_kernel, (widest, 7), a, u, L=L, DUE=due, **forward, early=due and not first
        )
        judge = max(tiles, b // 8), 5
        self.launch(judge_kernel, judge, a, u, L=L, DUE=due, C=C, **forward)
        slices = {"CV": C, "CT": C}
        learning = {"K": UNITS, "N": N, "R": self.items, "warps": 8}
        self.launch(critics_kernel, (self.learning, 2), a, u, L=L, DUE=due, **learning, **slices)
        if not due:
            return
        critics = 2 if L.gaussian else 1
        self.launch(weigh_kernel, (widest, 2 * critics), a, **forward)
        self.launch(slope_kernel, (tiles, critics), a, **forward)
        forward["K"] = self.blame_depth
        self.launch(blame_kernel, (widest, 2), a, L=L, CQ=C, CS=C, **forward)
        critics_programs = 2 * self.learning
        programs = (self.programs - critics_programs,)
        learning["R"] = self.policy_items
        self.launch(policy_kernel, programs, a, u, L=L, FIRST=critics_programs, CQ=C, **learning)

    def act(self, rows: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
        """The exploring policy's actions for encoded rows, by these normal numbers."""
        S, count = self.shape, len(rows)
        parts, flat = S.h // SIDE.value, self.scratch.online
        head = flat.new_empty(count, parts, S.heads * S.ad)
        action = flat.new_empty(count, S.act)
        width = triton.next_power_of_2(S.h)
        head_kernel[(parts, count)](flat, rows, head, S=S, N=SIDE.value, WIDTH=width)
        act_kernel[(count,)](flat, head, normal, action, S=S, L=self.loss, SLICES=parts)
        return action


# the pair

Case = tuple[str, int, int, dict[str, Any]]  # the agent, numbers of an observation, of an action
CASES: tuple[Case, ...] = (
    ("sac", 5, 3, {}),
    ("sac", 17, 6, {"temperature": 0.3, "batch_size": 64, "net": {"hidden": [128, 128]}}),
    ("td3", 3, 1, {}),
)
COUNT = 3  # updates
# after the first of them rounding decides the sign of the smallest gradients' steps
LR = 1e-3 if device() == "cpu" else 1e-5


def update_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for case in CASES:
        yield *case, int(rng.integers(100))


def example_updates(
    name: str, obs: int, reals: int, options: dict[str, Any], seed: int
) -> tuple[Any, torch.Tensor, StagingBuffer]:
    """An agent, a table of observations, and what COUNT updates are given."""
    rng = np.random.default_rng(seed)
    settings, kind = {"sac": (SAC, SACAgent), "td3": (TD3, TD3Agent)}[name]
    least = {"batch_size": 64 if device() == "cuda" else 16, "net": {"hidden": [64, 64]}}
    config = settings.of(least | options)
    layout = ObsLayout((obs,), np.dtype(np.float32), (obs,), 0.5)
    low = np.full(reals, -1, np.float32)
    actions = bounded_actions(gym.spaces.Box(low, -low), "an example", name)
    agent: Any = kind(config, layout, actions, seed, device())
    agent.target.flat.mul_(0.5)
    size = config.batch_size
    shapes: Any = {
        "places": ((2, size), np.int64),
        "action": ((size, reals), np.float32),
        **dict.fromkeys(("reward", "discount", "weight"), ((size,), np.float32)),
        **dict.fromkeys(("before", "policy_before", "lr"), ((), np.float32)),
        "number": ((), np.int64),
    }
    sent = StagingBuffer(device(), shapes, COUNT, depth=1)
    for k, arrays in enumerate(sent.open()):
        arrays["places"][:] = rng.integers(0, ROOM, (2, size))
        arrays["action"][:] = rng.uniform(-1, 1, (size, reals))
        arrays["reward"][:], arrays["weight"][:] = rng.normal(size=size), rng.uniform(0.1, 1, size)
        arrays["discount"][:] = 0.9 * rng.integers(0, 2, size)
        arrays["lr"][...], arrays["before"][...], arrays["number"][...] = LR, k, k
        arrays["policy_before"][...] = (k + 1) // agent.delay - 1
    sent.send(COUNT)
    table = torch.from_numpy(rng.normal(size=(ROOM, obs)).astype(np.float32))
    return agent, table.to(device()), sent


def updates_reference(*case: Any) -> tuple[torch.Tensor, ...]:
    """The agent's own updates, by autograd."""
    agent, table, sent = example_updates(*case)
    optimiser, sums = EagerOptimiser(agent), torch.zeros(len(agent.metric_names) + 1)
    errors = torch.zeros(0)
    for k in range(COUNT):
        obs, next_obs = table[sent.on_device[k]["places"]]
        batch = sent.on_device[k] | {"obs": obs, "next_obs": next_obs}
        batch |= {n: t.to(device()) for n, t in agent.draw_for(len(obs)).items()}
        optimiser.begin(k + 1, LR)
        errors, (metrics,) = agent.update([(batch,)], optimiser)
        agent.updates = k + 1
        sums[: len(metrics)] += metrics.cpu()
    sums[-1] = COUNT
    rows = table[:5].cpu().numpy()
    acted = agent.sample_by(agent.policy_output(rows), *agent.draws(5, 0, 0.1))
    return agent.block[: -agent.online.flat.numel()], errors, sums, torch.from_numpy(acted)


@pair(
    updates_reference,
    update_examples,
    rtol=1e-3,
    atol=2e-5,
    when=available,
    name="algorithms.kernels.actor_critic_gpu_launches.updates in tiles",
)
def updates_in_tiles(*case: Any) -> tuple[torch.Tensor, ...]:
    agent, table, sent = example_updates(*case)
    form = "fp16x3" if device() == "cuda" else "ieee"
    tiles = TileUpdates(agent, table, sent, form)
    sums = torch.zeros(len(agent.metric_names) + 1, device=device())
    tiles.draw_noise(COUNT)
    tiles.update_all(COUNT, 0, sums)
    _, normal = agent.draws(5, 0, 0.1)
    acted = tiles.act(table[:5], torch.from_numpy(normal).to(device()))
    return agent.block[: -agent.online.flat.numel()], tiles.errors, sums, acted
