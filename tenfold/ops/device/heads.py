"""`ops.heads.MaskedHeads` in one launch: what is drawn, its log-probability and the entropy of
every component; and their gradient in another.

Where the kernels meet bad values, the eager form says where they are and what is wrong with them.
"""

from typing import Any

import torch
import triton.language as tl

from tenfold.ops.device.language import LaunchedKernel, device_pair, padded
from tenfold.ops.device.policy import drawn, load_component
from tenfold.ops.heads import (
    EQUAL,
    MaskedHeads,
    entropy_reference,
    log_prob_examples,
    log_prob_reference,
    policies,
    sample_examples,
    sample_reference,
)

CELLS, WIDEST = 1024, 8192  # of a program; of a component


# kernels: a program takes some rows of one component


@LaunchedKernel
def choose_kernel(
    logits,
    mask,
    offsets,
    limits,
    fallback,
    uniform,
    actions,
    log_prob,
    entropy,
    bad,
    rows,
    count,
    logits_stride,
    mask_stride,
    widest,
    MASKED: tl.constexpr,
    ABSENT: tl.constexpr,
    RAISES: tl.constexpr,
    CHECK: tl.constexpr,
    DRAWS: tl.constexpr,
    TAKES: tl.constexpr,
    LOWEST: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """DRAWS: actions are written, from uniform numbers; TAKES: they are read. Without either there
    is the entropy alone."""
    arrays = (logits, mask, offsets, limits, fallback)
    sizes = (rows, logits_stride, mask_stride, widest)
    row, valid, option, cell, empty, x, allowed, log_pi, weight = load_component(
        arrays, sizes, MASKED, WIDE, ROWS
    )
    slot = row.to(tl.int64) * count + tl.program_id(1)
    wrong = tl.max((cell & (x - x != 0)).to(tl.int32), 1)
    if RAISES:
        wrong = tl.maximum(wrong, empty.to(tl.int32))
    if DRAWS:
        u = tl.load(uniform + slot, mask=valid, other=0.0)
        wrong = tl.maximum(wrong, ((u < 0) | (u > 1) | (u != u)).to(tl.int32))
        action = drawn(weight, u, option, WIDE)
        tl.store(actions + slot, action.to(tl.int64), mask=valid)
    if TAKES:
        action = tl.load(actions + slot, mask=valid, other=0)
        size = tl.load(limits + tl.program_id(1))
        wrong = tl.maximum(wrong, ((action < 0) | (action >= size)).to(tl.int32))
    if DRAWS or TAKES:
        is_action = allowed & (option == action[:, None])
        lowest = tl.full((ROWS,), LOWEST, x.dtype)
        of_action = tl.maximum(tl.sum(tl.where(is_action, log_pi, 0.0), 1), lowest)
        of_action = tl.where(tl.max(is_action.to(tl.int32), 1) > 0, of_action, lowest)
        if ABSENT:
            of_action = tl.where(empty, 0.0, of_action)
        tl.store(log_prob + slot, of_action, mask=valid)
    p_log_p = tl.where(weight > 0, weight * log_pi, 0.0)
    tl.store(entropy + slot, -tl.sum(p_log_p, 1), mask=valid)
    if CHECK:
        if tl.max(tl.where(valid, wrong, 0), 0) > 0:
            tl.store(bad, 1)


@LaunchedKernel
def gradient_kernel(
    logits,
    mask,
    offsets,
    limits,
    fallback,
    actions,
    by_log_prob,
    by_entropy,
    gradient,
    rows,
    count,
    logits_stride,
    mask_stride,
    widest,
    whole,
    MASKED: tl.constexpr,
    OF_ACTION: tl.constexpr,
    OF_ENTROPY: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Σ over both results of what a logit adds, times the derivative by each: ∂ log π(a) / ∂ x_k =
    [k = a] − π_k,   ∂ H / ∂ x_k = −π_k (log π_k + H). A fallback is a constant."""
    arrays = (logits, mask, offsets, limits, fallback)
    sizes = (rows, logits_stride, mask_stride, widest)
    row, valid, option, cell, empty, _, allowed, log_pi, weight = load_component(
        arrays, sizes, MASKED, WIDE, ROWS
    )
    slot = row.to(tl.int64) * count + tl.program_id(1)
    slope = weight * 0.0
    if OF_ACTION:
        is_action = allowed & (option == tl.load(actions + slot, mask=valid, other=0)[:, None])
        by = tl.load(by_log_prob + slot, mask=valid, other=0.0)
        by = tl.where(tl.max(is_action.to(tl.int32), 1) > 0, by, 0.0)
        slope += by[:, None] * (is_action.to(weight.dtype) - weight)
    if OF_ENTROPY:
        p_log_p = tl.where(weight > 0, weight * log_pi, 0.0)
        by = tl.load(by_entropy + slot, mask=valid, other=0.0)
        slope -= by[:, None] * (p_log_p - weight * tl.sum(p_log_p, 1)[:, None])
    learned = allowed & (empty.to(tl.int32) == 0)[:, None]
    at = row.to(tl.int64)[:, None] * whole + tl.load(offsets + tl.program_id(1)) + option
    tl.store(gradient + at, tl.where(learned, slope, 0.0), mask=cell)


# launches


def rows_of(tensor: torch.Tensor) -> torch.Tensor:
    """[..., M] as [rows, M], a view where a row's numbers lie side by side."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(1) == 1 else rows.contiguous()


def fits(heads: MaskedHeads, logits: torch.Tensor) -> bool:
    return logits.numel() > 0 and heads.widest <= WIDEST


class Launch:
    """What the kernels take of heads, and of logits and mask as rows."""

    def __init__(self, heads: MaskedHeads, logits: torch.Tensor, mask: torch.Tensor | None) -> None:
        self.heads, self.logits = heads, logits
        self.mask = logits if mask is None else mask
        wide = padded(heads.widest, 2)
        self.size = wide, max(1, min(64, CELLS // wide))
        self.masked, self.rows = mask is not None, len(logits)
        self.grid = (-(-self.rows // self.size[1]), heads.count, 1)

    @property
    def places(self) -> tuple[torch.Tensor, ...]:
        heads = self.heads
        return self.logits, self.mask, heads.offsets, heads.limits, heads.fallback

    @property
    def integers(self) -> tuple[int, ...]:
        strides = self.logits.stride(0), self.mask.stride(0)
        return self.rows, self.heads.count, *strides, self.heads.widest

    def choose(
        self, uniform: torch.Tensor | None, actions: torch.Tensor | None
    ) -> tuple[torch.Tensor, ...]:
        """(actions, log-probability, entropy), [rows, C]; the first two are what they are where
        nothing is drawn or taken."""
        heads, nothing = self.heads, self.logits
        shape = (self.rows, heads.count)
        log_prob, entropy = (
            torch.empty(shape, dtype=nothing.dtype, device=nothing.device) for _ in "12"
        )
        chosen_actions = (
            torch.empty(shape, dtype=torch.int64, device=nothing.device)
            if actions is None
            else actions
        )
        bad = torch.zeros(1, dtype=torch.int32, device=nothing.device) if heads.check else entropy
        drawn_from = nothing if uniform is None else uniform
        arguments = (
            *self.places,
            drawn_from,
            chosen_actions,
            log_prob,
            entropy,
            bad,
            *self.integers,
        )
        flags = (self.masked, heads.tables.absent, heads.raises, heads.check)
        ways = (uniform is not None, actions is not None, torch.finfo(nothing.dtype).min)
        choose_kernel(self.grid, arguments, (*flags, *ways, *self.size))
        if heads.check and bad.item():
            self.raise_bad_values(uniform, actions)
        return chosen_actions, log_prob, entropy

    def raise_bad_values(self, uniform: torch.Tensor | None, actions: torch.Tensor | None) -> None:
        """The eager form says where and why."""
        mask = self.mask if self.masked else None
        shaped, _ = self.heads.shaped_plainly(self.logits, mask)
        if actions is not None:
            self.heads.check_actions(actions)
        if uniform is not None:
            self.heads.drawn(shaped.log_softmax(-1), uniform, None)

    def gradient(
        self,
        actions: torch.Tensor | None,
        by_log_prob: torch.Tensor | None,
        by_entropy: torch.Tensor | None,
    ) -> torch.Tensor:
        nothing, shape = self.logits, self.logits.shape
        by_logits = torch.empty(shape, dtype=nothing.dtype, device=nothing.device)
        results = (actions, by_log_prob, by_entropy)
        inputs = (nothing if tensor is None else tensor.contiguous() for tensor in results)
        ways = (self.masked, by_log_prob is not None, by_entropy is not None)
        gradient_kernel(
            self.grid,
            (*self.places, *inputs, by_logits, *self.integers, self.heads.options),
            (*ways, *self.size),
        )
        return by_logits


class Evaluate(torch.autograd.Function):
    """Log-probability of actions, where there are any, and entropy, of rows [rows, M]."""

    @staticmethod
    def forward(ctx: Any, logits: Any, mask: Any, actions: Any, heads: Any) -> Any:
        ctx.heads = heads
        ctx.save_for_backward(logits, mask, actions)
        ctx.set_materialize_grads(False)
        return Launch(heads, logits, mask).choose(None, actions)[1:]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_log_prob: Any, by_entropy: Any) -> Any:
        logits, mask, actions = ctx.saved_tensors
        by_logits = Launch(ctx.heads, logits, mask).gradient(actions, by_log_prob, by_entropy)
        return by_logits, None, None, None


def prepared(
    heads: MaskedHeads, logits: torch.Tensor, mask: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Shapes and types looked at, rows [rows, M] of at least 32 bits."""
    heads.check_logits(logits, values=False)
    if mask is not None:
        mask = rows_of(heads.as_bool(mask, logits.shape))
    rows = rows_of(logits)
    return rows.float() if rows.dtype.itemsize < 4 else rows, mask


def evaluate(
    heads: MaskedHeads,
    logits: torch.Tensor,
    actions: torch.Tensor | None,
    mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`MaskedHeads.evaluate`, with a gradient; without actions the first of the two means
    nothing."""
    rows, allowed = prepared(heads, logits, mask)
    if actions is not None:
        shape = (*logits.shape[:-1], heads.count)
        if actions.shape != shape or actions.dtype != torch.int64:
            raise ValueError(
                f"actions must be int64 {tuple(shape)}; they are {actions.dtype} "
                f"{tuple(actions.shape)}"
            )
        actions = actions.reshape(-1, heads.count).contiguous()
    outputs = Evaluate.apply(rows, allowed, actions, heads)
    log_prob, entropy = (output.view(*logits.shape[:-1], heads.count) for output in outputs)  # type: ignore[union-attr]
    return log_prob, entropy


@torch.no_grad()
def draw(
    heads: MaskedHeads,
    logits: torch.Tensor,
    mask: torch.Tensor | None,
    uniform: torch.Tensor | None,
    generator: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(actions, log-probability, entropy) of what is drawn."""
    rows, allowed = prepared(heads, logits, mask)
    shape = (*logits.shape[:-1], heads.count)
    if uniform is None:
        uniform = torch.rand(shape, generator=generator, dtype=rows.dtype, device=rows.device)
    elif uniform.shape != shape:
        raise ValueError(f"uniform must be {tuple(shape)}; it is {tuple(uniform.shape)}")
    u = uniform.to(rows.dtype).reshape(-1, heads.count).contiguous()
    actions, log_prob, entropy = Launch(heads, rows, allowed).choose(u, None)
    return actions.view(shape), log_prob.view(shape), entropy.view(shape)


# the pairs


@device_pair(
    log_prob_reference,
    log_prob_examples,
    "ops.device.heads.log_prob",
    gradients=(1,),
    **EQUAL,
)
def log_prob(heads, logits, actions, mask):
    return evaluate(heads, logits, actions, mask)[0]


@device_pair(entropy_reference, policies, "ops.device.heads.entropy", gradients=(1,), **EQUAL)
def entropy(heads, logits, mask):
    return evaluate(heads, logits, None, mask)[1]


def act_reference(heads, logits, mask, uniform):
    actions = sample_reference(heads, logits, mask, uniform)
    log_prob = log_prob_reference(heads, logits, actions, mask)
    return actions, log_prob, entropy_reference(heads, logits, mask)


device_pair(act_reference, sample_examples, "ops.device.heads.act", **EQUAL)(draw)
