"""Updates of an actor and two critics with wide networks: their buffers, and the launches of a
graph."""

import math
from typing import Any

import torch
import triton

from tenfold.algorithms.actor_critic import TEMPERATURE
from tenfold.algorithms.kernels.actor_critic_gpu_arrays import LossShape, Sent, TileBuffers
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
from tenfold.core.random import Purpose
from tenfold.memory.staging import StagingBuffer
from tenfold.ops.device.language import key_tensor
from tenfold.ops.device.wide_layers import FORMS, THIN, WideShape, write_forms

ROWS, COLUMNS, UNITS, ITEMS = 64, 32, 64, 256  # the sides of tiles, at most
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
            TEMPERATURE in agent.actor_parts,
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
        count = len(sent.on_device)
        self.keys = key_tensor([agent.keys[purpose] for purpose in DRAWS.values()], device)
        self.noise = torch.zeros(count, len(DRAWS), b, S.act, device=device)
        self.squares = torch.zeros(count, self.programs, device=device)
        self.metrics = torch.zeros(count, TOLD.value, device=device)
        self.errors = torch.zeros(b, device=device)
        self.buffers = make_buffers(agent, table, S, C)
        self.updates = [self.given_to(k) for k in range(count)]

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
        a = self.buffers
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
        a, S, delay = self.buffers, self.shape, self.agent.delay
        if delay > 1:  # what does not learn has no gradient
            a.grad[: S.actor[6]].zero_()
        write_forms(a.online, a.target, a.forms, S)
        for k in range(count):
            self.update(self.updates[k], (turn + k + 1) % delay == 0)
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
        more = {"launch_pdl": True} if self.pdl else {}
        kernel[grid](
            *arguments,
            S=self.shape,
            **constants,
            PDL=self.pdl,
            num_warps=warps,
            num_stages=1,
            **more,
        )

    def update(self, u: Sent, due: bool) -> None:
        """One update; the policy learns where it is `due`."""
        a, L, h, b = self.buffers, self.loss, self.shape.h, self.shape.b
        (R, N), C = self.tile, self.slices
        thin, tiles = (b // R) * (h // THIN.value), (b // R) * C
        widest, forward = max(tiles, thin), {"R": R, "N": N, "K": self.depth}
        self.launch(look_kernel, (widest, 7), a, u, L=L, DUE=due, **forward)
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
        slices, flat = S.h // SIDE.value, self.buffers.online
        head = flat.new_empty(count, slices, S.heads * S.ad)
        action = flat.new_empty(count, S.act)
        width = triton.next_power_of_2(S.h)
        head_kernel[(slices, count)](flat, rows, head, S=S, N=SIDE.value, WIDTH=width)
        act_kernel[(count,)](flat, head, normal, action, S=S, L=self.loss, SLICES=slices)
        return action


def make_buffers(agent: Any, table: torch.Tensor, S: WideShape, slices: int) -> TileBuffers:
    """`slices` of a layer's units are programs of their own."""
    h, b, heads, halves, networks = S.h, S.b, S.heads * S.ad, S.pl, 5 + (S.heads == 1)

    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=agent.device)

    def in_form(*shape: int) -> torch.Tensor:
        return zeros(*shape, dtype=FORMS[S.form][0])

    return TileBuffers(
        online=agent.online.flat,
        grad=agent.online.flat_grad,
        mean=agent.exp_avg,
        square=agent.exp_avg_sq,
        target=agent.target.flat,
        forms=in_form(networks, halves, S.forms[5]),
        table=table,
        inputs=in_form(halves, S.xm, b),
        first=in_form(3, halves, h, b),
        second=zeros(2, h, b),
        policy_second=in_form(halves, h, b),
        policy_on=zeros(b, h, dtype=torch.int8),
        value_slope=in_form(2, halves, b, h),
        policy_value_slope=in_form(2, halves, b, h),
        first_on=zeros(2, b, h, dtype=torch.int8),
        head=zeros(2, slices, heads, b),
        value=zeros(2, slices, b),
        target_value=zeros(2, slices, b),
        policy_value=zeros(2, slices, b),
        value_weight=zeros(2, h),
        base=zeros(2, b),
        unit_delta=zeros(2, h, b),
        action_inputs=zeros(b, S.od),
        action=zeros(3, b, S.ad),
        log_p=zeros(b),
        action_slope=zeros(2, slices, b, S.ad),
        head_delta=zeros(heads, b),
        first_delta=zeros(h, b),
        second_delta=zeros(h, b),
    )
