"""The derivative of PPO's loss by the networks' outputs in one launch: what autograd makes of
`nets.policy_loss` in more than a hundred. For components with masks and for Gaussian numbers that
are not squashed where their entropy counts; one value."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from tenfold.ops import gaussian
from tenfold.ops.device.language import device_pair, gpu_kernel, padded
from tenfold.ops.device.policy import log_softmax
from tenfold.ops.minibatch_loss import EPSILON, normalized_advantages, value_error
from tenfold.ops.surrogate import evaluated, surrogate_loss

ROWS = 16  # of a program
AT_ONCE = 1024  # weights that are summed at a time
TOLD = 5  # policy loss, value loss, entropy, KL divergence, share of clipped ratios
# columns of a row's numbers; behind them those of the action
LOG_P, ADVANTAGE, WEIGHT, VALUE, TARGET, REAL = range(6)
HALF_LOG_TAU, LEAST = tl.constexpr(gaussian.HALF_LOG_TAU), tl.constexpr(EPSILON)
# how values are clipped: the loss is the larger of both, or that of the clipped value alone
LARGER, CLIPPED_ALONE = 1, 2


class PolicyLossShape(NamedTuple):
    """What the kernel is compiled for."""

    sizes: tuple[int, ...]  # of the components
    reals: int
    masked: bool
    uneven: bool  # not all rows of a minibatch count
    normalized: bool  # advantages, over the minibatch
    value_clipped: int  # LARGER or CLIPPED_ALONE; 0: values are not clipped
    value_weight: float
    entropy: float


class PolicyRows(NamedTuple):
    """What was acted, of all rows of a rollout, and which of them are a minibatch."""

    index: torch.Tensor
    counts: torch.Tensor  # 1 where such a row counts; read where the shape is uneven
    numbers: torch.Tensor  # [rows, columns]
    discrete: torch.Tensor
    mask: torch.Tensor
    limits: torch.Tensor  # how far ratios and values may move


def policy_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for sizes, reals, masked, uneven, normalized, value_clipped, entropy in (
        ((2,), 0, False, False, False, 0, 0.0),
        ((3, 5, 2), 0, True, True, False, LARGER, 0.02),
        ((), 3, False, False, True, LARGER, 0.01),
        ((4, 4), 2, True, False, False, 0, 0.01),
        ((3,), 1, False, True, True, CLIPPED_ALONE, 0.0),
    ):
        rows, batch, options = 40, 21, sum(sizes)
        mask = rng.random((rows, options)) < 0.6
        mask[:, np.cumsum((0, *sizes[:-1]))[: len(sizes)]] = True
        numbers = rng.normal(size=(rows, REAL + reals)).astype(dtype)
        numbers[:, WEIGHT] = rng.random(rows) < 0.9
        numbers[:, LOG_P] = -len(sizes) - reals
        policy_rows = PolicyRows(
            torch.from_numpy(rng.permutation(rows)[:batch]),
            torch.from_numpy((np.arange(batch) < batch - 2).astype(dtype)),
            torch.from_numpy(numbers),
            torch.zeros(rows, len(sizes), dtype=torch.int64),
            torch.from_numpy(mask),
            torch.tensor([0.2, 0.15]),
        )
        output, value = rng.normal(size=(batch, options + reals)), rng.normal(size=batch)
        tensors = (
            torch.from_numpy(x.astype(dtype)) for x in (output, value, np.zeros(reals) - 0.3)
        )
        flags = masked, uneven, normalized, value_clipped
        shape = PolicyLossShape(sizes, reals, *flags, 0.5, entropy)
        yield *tensors, policy_rows, shape


def policy_derivative_reference(output, value, log_std, rows, shape):
    leaves = [x.detach().clone().requires_grad_() for x in (output, value, log_std)]
    numbers, discrete = rows.numbers[rows.index], rows.discrete[rows.index].numpy()
    mask = rows.mask[rows.index].numpy() if shape.masked else np.zeros((len(discrete), 0), bool)
    weight = numbers[:, WEIGHT] * (rows.counts if shape.uneven else 1)
    advantage = numbers[:, ADVANTAGE]
    if shape.normalized:
        advantage = normalized_advantages(advantage, weight)
    weight = weight / weight.sum().clamp(min=1)
    action = np.array(shape.sizes, np.int64), discrete, numbers[:, REAL:].numpy(), mask
    log_p, entropy = evaluated(leaves[0].T, leaves[2], *action)
    clip, value_clip = rows.limits.tolist()
    loss, kl, clipped = surrogate_loss(log_p, numbers[:, LOG_P], advantage, weight, clip)
    limited = value_clip if shape.value_clipped else None, shape.value_clipped == CLIPPED_ALONE
    error = value_error(leaves[1], numbers[:, TARGET], numbers[:, VALUE], *limited)
    of_value = 0.5 * (weight * error).sum()
    mean_entropy = (weight * entropy).sum()
    total = loss + shape.value_weight * of_value - shape.entropy * mean_entropy
    by_output, by_value, by_std = torch.autograd.grad(total, leaves, allow_unused=True)
    metrics = torch.stack([loss, of_value, mean_entropy, kl, clipped])
    return by_output, by_value, torch.zeros_like(log_std) if by_std is None else by_std, metrics


@gpu_kernel
def head_of(head, arrays, item, row, here, H: tl.constexpr):
    """One component of a block of rows: (its first column, how many options it has;
    log-probabilities and probabilities, 0 where an option is not allowed; which is the
    action's)."""
    output, discrete, mask, offsets = arrays
    start = tl.load(offsets + head)
    size = tl.load(offsets + head + 1) - start
    k = tl.arange(0, H[2])[None, :]
    inside = here[:, None] & (k < size)
    x = tl.load(output + item[:, None] * H[0] + start + k, mask=inside, other=0.0)
    if H[3]:
        inside &= tl.load(mask + row[:, None] * H[1] + start + k, mask=inside, other=0) != 0
    log_pi = tl.where(inside, log_softmax(x, inside), 0.0)
    action = tl.load(discrete + row * H[4] + head, mask=here, other=0)
    is_action = (k == action[:, None]) & inside
    return start, size, log_pi, tl.where(inside, tl.exp(log_pi), 0.0), is_action


@gpu_kernel
def weights_of(index, counts, numbers, item, here, H: tl.constexpr):
    """The rows of items of a minibatch, and their weights."""
    row = tl.load(index + item, mask=here, other=0)
    weight = tl.load(numbers + row * H[7] + 2, mask=here, other=0.0)
    if H[8]:
        weight *= tl.load(counts + item, mask=here, other=0.0)
    return row, weight


@gpu_kernel
def whole_minibatch(index, counts, numbers, batch, H: tl.constexpr, AT_ONCE: tl.constexpr):
    """(Σ of the weights of a minibatch; mean of its advantages, 1 / their deviation; 0 and 1 where
    they stay as they are)."""
    total, gain_sum, square_sum, mean, inverse = 0.0, 0.0, 0.0, 0.0, 1.0
    for first in range(0, batch, AT_ONCE):
        i = first + tl.arange(0, AT_ONCE)
        row, weight = weights_of(index, counts, numbers, i, i < batch, H)
        total += tl.sum(weight, 0)
        if H[10]:
            gain = tl.load(numbers + row * H[7] + 1, mask=i < batch, other=0.0)
            gain_sum += tl.sum(weight * gain, 0)
    if H[10]:
        middle = gain_sum / tl.maximum(total, 1.0)
        for first in range(0, batch, AT_ONCE):
            i = first + tl.arange(0, AT_ONCE)
            row, weight = weights_of(index, counts, numbers, i, i < batch, H)
            far = tl.load(numbers + row * H[7] + 1, mask=i < batch, other=0.0) - middle
            square_sum += tl.sum(weight * far * far, 0)
        deviation = tl.sqrt(square_sum / tl.maximum(total - 1.0, 1.0))
        mean = tl.where(total > 1.0, middle, 0.0)
        inverse = tl.where(total > 1.0, 1.0 / (deviation + LEAST), 1.0)
    return total, mean, inverse


@gpu_kernel
def clipped_error(value, row_numbers, item, here, value_clip, H: tl.constexpr):
    """((V − R)², clipped where values are; its derivative by V) of rows."""
    new = tl.load(value + item, mask=here, other=0.0)
    target = tl.load(row_numbers + 4, mask=here, other=0.0)
    old = tl.load(row_numbers + 3, mask=here, other=0.0)
    error, by_value = (new - target) * (new - target), 2 * (new - target)
    if H[9]:
        near = old + tl.minimum(tl.maximum(new - old, -value_clip), value_clip)
        other = (near - target) * (near - target)
        by_near = tl.where(tl.abs(new - old) <= value_clip, 2 * (near - target), 0.0)
        counts = other > error
        if H[9] == 2:
            counts = here
        by_value = tl.where(counts, by_near, by_value)
        error = tl.where(counts, other, error)
    return error, by_value


@gpu_kernel
def policy_kernel(
    output,
    value,
    log_std,
    index,
    counts,
    numbers,
    discrete,
    mask,
    offsets,
    d_output,
    d_value,
    partial,
    limits,
    batch,
    value_weight,
    entropy_weight,
    H: tl.constexpr,
    ROWS: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """A block of rows a program. H: outputs of a row, options, the widest component padded, whether
    there are masks, components, numbers of an action, these padded, columns of a row's numbers,
    whether rows may not count, how values are clipped, whether advantages are normalised."""
    program = tl.program_id(0)
    total, mean_gain, inverse = whole_minibatch(index, counts, numbers, batch, H, AT_ONCE)
    clip, value_clip = tl.load(limits), tl.load(limits + 1)
    item = program * ROWS + tl.arange(0, ROWS)
    here = item < batch
    row, weight = weights_of(index, counts, numbers, item, here, H)
    row_numbers, weight = numbers + row * H[7], weight / tl.maximum(total, 1.0)
    heads = output, discrete, mask, offsets
    log_p = tl.zeros((ROWS,), tl.float32)
    entropy = tl.zeros((ROWS,), tl.float32)
    for head in range(H[4]):
        _, _, log_pi, share, is_action = head_of(head, heads, item, row, here, H)
        log_p += tl.sum(tl.where(is_action, log_pi, 0.0), 1)
        entropy -= tl.sum(share * log_pi, 1)
    d = tl.arange(0, H[6])
    if H[5]:
        both = here[:, None] & (d < H[5])[None, :]
        spread = tl.load(log_std + d, mask=d < H[5], other=0.0)[None, :]
        mean = tl.load(output + item[:, None] * H[0] + H[1] + d[None, :], mask=both, other=0.0)
        real = tl.load(row_numbers[:, None] + 5 + d[None, :], mask=both, other=0.0)
        off = (real - mean) * tl.exp(-spread)
        log_p += tl.sum(tl.where(both, -0.5 * off * off - spread - HALF_LOG_TAU, 0.0), 1)
        entropy += tl.sum(tl.where(both, spread + 0.5 + HALF_LOG_TAU, 0.0), 1)
    change = log_p - tl.load(row_numbers, mask=here, other=0.0)
    gain = (tl.load(row_numbers + 1, mask=here, other=0.0) - mean_gain) * inverse
    ratio = tl.exp(change)
    plain = ratio * gain
    clipped_gain = tl.minimum(tl.maximum(ratio, 1 - clip), 1 + clip) * gain
    by_log_p = -weight * tl.where(plain <= clipped_gain, plain, 0.0)
    for head in range(H[4]):
        start, size, log_pi, share, is_action = head_of(head, heads, item, row, here, H)
        spread_out = -tl.sum(share * log_pi, 1)
        some = tl.sum(share, 1)[:, None]
        slope = by_log_p[:, None] * (tl.where(is_action, 1.0, 0.0) - share) * some
        slope += (entropy_weight * weight)[:, None] * share * (log_pi + spread_out[:, None])
        k = tl.arange(0, H[2])[None, :]
        cells = d_output + item[:, None] * H[0] + start + k
        tl.store(cells, slope, mask=here[:, None] & (k < size))
    if H[5]:
        slope = by_log_p[:, None] * off * tl.exp(-spread)
        tl.store(d_output + item[:, None] * H[0] + H[1] + d[None, :], slope, mask=both)
        by_spread = by_log_p[:, None] * (off * off - 1) - (entropy_weight * weight)[:, None]
        summed = tl.sum(tl.where(both, by_spread, 0.0), 0)
        tl.store(partial + program * (5 + H[5]) + 5 + d, summed, mask=d < H[5])
    error, by_value = clipped_error(value, row_numbers, item, here, value_clip, H)
    tl.store(d_value + item, value_weight * 0.5 * weight * by_value, mask=here)
    far = tl.where(tl.abs(ratio - 1) > clip, 1.0, 0.0)
    out = partial + program * (5 + H[5])
    tl.store(out, -tl.sum(weight * tl.minimum(plain, clipped_gain), 0))
    tl.store(out + 1, 0.5 * tl.sum(weight * error, 0))
    tl.store(out + 2, tl.sum(weight * entropy, 0))
    tl.store(out + 3, tl.sum(weight * (ratio - 1 - change), 0))
    tl.store(out + 4, tl.sum(weight * far, 0))


@device_pair(
    policy_derivative_reference,
    policy_examples,
    "ops.device.policy_loss.policy_derivative",
    rtol=1e-4,
    atol=2e-6,
)
def policy_derivative_of_rows(output, value, log_std, rows, shape):
    return policy_derivative(
        output, value, log_std, rows, head_offsets(shape, output.device), shape
    )


def head_offsets(shape: PolicyLossShape, where: Any) -> torch.Tensor:
    """Where each component's options begin, and where the last one's end."""
    return torch.tensor([0, *np.cumsum(shape.sizes)], dtype=torch.int64, device=where)


def policy_derivative(
    output: torch.Tensor,
    value: torch.Tensor,
    log_std: torch.Tensor,
    rows: PolicyRows,
    offsets: torch.Tensor,
    shape: PolicyLossShape,
) -> tuple[torch.Tensor, ...]:
    """(derivative of the loss by logits and means [B, M + D], by the value [B], by the deviations'
    logarithms [D], [policy loss, value loss, entropy, KL divergence, share of clipped ratios])."""
    output, value, log_std = output.detach().contiguous(), value.detach(), log_std.detach()
    batch, outputs = output.shape
    programs = triton.cdiv(batch, ROWS)
    d_output, d_value = torch.empty_like(output), output.new_empty(batch)
    partial = output.new_empty(programs, TOLD + shape.reals)
    policy_kernel[(programs,)](
        output,
        value.contiguous(),
        log_std if shape.reals else output,
        rows.index,
        rows.counts,
        rows.numbers,
        rows.discrete,
        rows.mask.view(torch.uint8) if shape.masked else output,
        offsets,
        d_output,
        d_value,
        partial,
        rows.limits,
        batch,
        shape.value_weight,
        shape.entropy,
        H=(
            outputs,
            outputs - shape.reals,
            padded(max(shape.sizes, default=1), 2),
            shape.masked,
            len(shape.sizes),
            shape.reals,
            padded(max(shape.reals, 1), 2),
            rows.numbers.shape[1],
            shape.uneven,
            shape.value_clipped,
            shape.normalized,
        ),
        ROWS=ROWS,
        AT_ONCE=min(AT_ONCE, padded(batch)),
    )
    summed = partial.sum(0)
    return d_output, d_value, summed[TOLD:], summed[:TOLD]
