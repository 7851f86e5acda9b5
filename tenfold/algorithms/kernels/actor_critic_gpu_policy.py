"""What learns of the policy in an update of sac or td3 with wide networks (`policy_kernel`): its
weights by tiles, and the temperature; what is told of all updates of a graph (`tally_kernel`); and
actions for environments, in float32 (`head_kernel`, `act_kernel`)."""

import triton.language as tl

from tenfold.algorithms.kernels.actor_critic_gpu_arrays import LEAST, MOST, squash
from tenfold.algorithms.kernels.actor_critic_gpu_learn import (
    ALPHA,
    ENTROPY,
    ERROR,
    LOSS,
    POLICY_LOSS,
    SIDE,
    TOLD,
    VALUE,
    moved,
)
from tenfold.ops.device.language import gpu_kernel
from tenfold.ops.device.wide_layers import (
    ACTOR,
    TARGET_ACTOR,
    THIN,
    critic_at,
    forms_at,
    from_place,
    load_old,
    load_parts,
    multiply,
    parts_of,
    power_below,
    rates_after,
    relu,
    step_tile,
    store_parts,
    sum_slices,
    wait,
)


@gpu_kernel
def policy_kernel(
    a, u, S: tl.constexpr, L: tl.constexpr, FIRST: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    R: tl.constexpr, CQ: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Programs: of the first layer, of biases, of the last layer, of the second layer. FIRST: their
    first place among the sums of squares."""
    H: tl.constexpr = S.h
    program = tl.program_id(0)
    rates, squares = rates_after(u.policy_before, u.lr), u.squares + FIRST + program
    if program < H // N:
        policy_first(a, program, rates, squares, S, L, N, R, PDL)
    elif program < H // N + H // SIDE:
        policy_sides(a, u, program - H // N, rates, squares, S, L, CQ, PDL)
    elif program < H // N + H // SIDE + H // K:
        policy_third(a, program - H // N - H // SIDE, rates, squares, S, L, K, R, PDL)
    else:
        tile = program - H // N - H // SIDE - H // K
        policy_second(a, tile, rates, squares, S, L, K, N, R, PDL)


@gpu_kernel
def scaled_parts(delta, S: tl.constexpr):
    """(a power of two, the parts of deltas divided by it)."""
    power = power_below(tl.max(tl.abs(delta), 1))
    return power, parts_of(delta / power, S)


@gpu_kernel
def policy_first(
    a, tile, rates, squares, S: tl.constexpr, L: tl.constexpr,
    N: tl.constexpr, R: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    B: tl.constexpr = S.b
    X: tl.constexpr = S.xm
    buffers, every = from_place(a, 0), tl.arange(0, N) >= 0
    i, n = tl.arange(0, S.xm)[:, None], tile * N + tl.arange(0, N)
    at, valid = n[None, :] * S.obs + i, (i < S.obs) & every[None, :]
    x = load_parts(a.inputs + i * B + tl.arange(0, R)[None, :], S.xm * B, S)
    old, old_bias = load_old(buffers, at, valid), load_old(buffers, S.actor[1] + n, every)
    g, g_bias = tl.zeros((X, N), tl.float32), tl.zeros((N,), tl.float32)
    wait(PDL)
    for r0 in tl.static_range(0, B, R):
        delta = tl.load(a.first_delta + n[None, :] * B + (r0 + tl.arange(0, R))[:, None])
        power, halves = scaled_parts(delta, S)
        g += power * multiply(x, halves, tl.zeros((X, N), tl.float32), S)
        g_bias += tl.sum(delta, 0)
        if r0 + R < B:
            x = load_parts(a.inputs + i * B + (r0 + R + tl.arange(0, R))[None, :], S.xm * B, S)
    g, g_bias = tl.where(valid, g / B, 0.0), g_bias / B
    w = step_tile(buffers, old, at, valid, g, rates, L.eps)
    b = step_tile(buffers, old_bias, S.actor[1] + n, every, g_bias, rates, L.eps)
    forms = forms_at(a.forms, ACTOR, S) + i * S.h + n[None, :]
    store_parts(forms, S.forms[5], w, valid, S)
    if not L.gaussian:
        w = moved(a.target, at, tl.load(a.target + at, mask=valid, other=0.0), w, valid, L)
        forms = forms_at(a.forms, TARGET_ACTOR, S) + i * S.h + n[None, :]
        store_parts(forms, S.forms[5], w, valid, S)
        moved(a.target, S.actor[1] + n, tl.load(a.target + S.actor[1] + n), b, every, L)
    tl.store(squares, tl.sum(tl.sum(g * g, 0)) + tl.sum(g_bias * g_bias))


@gpu_kernel
def policy_second(
    a, tile, rates, squares, S: tl.constexpr, L: tl.constexpr, K: tl.constexpr,
    N: tl.constexpr, R: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    H: tl.constexpr = S.h
    B: tl.constexpr = S.b
    buffers = from_place(a, 0)
    k, n = (tile // (H // N)) * K + tl.arange(0, K), (tile % (H // N)) * N + tl.arange(0, N)
    at, valid = S.actor[2] + n[None, :] * H + k[:, None], (k[:, None] >= 0) & (n[None, :] >= 0)
    below = load_parts(a.first + k[:, None] * B + tl.arange(0, R)[None, :], H * B, S)
    old = load_old(buffers, at, valid)
    g = tl.zeros((K, N), tl.float32)
    wait(PDL)
    for r0 in tl.static_range(0, B, R):
        delta = tl.load(a.second_delta + n[None, :] * B + (r0 + tl.arange(0, R))[:, None])
        if r0 + R < B:
            more = r0 + R + tl.arange(0, R)
            next_below = load_parts(a.first + k[:, None] * B + more[None, :], H * B, S)
        power, halves = scaled_parts(delta, S)
        g += power * multiply(below, halves, tl.zeros((K, N), tl.float32), S)
        if r0 + R < B:
            below = next_below
    g = g / B
    w = step_tile(buffers, old, at, valid, g, rates, L.eps)
    forms = forms_at(a.forms, ACTOR, S)
    store_parts(forms + S.forms[2] + k[:, None] * H + n[None, :], S.forms[5], w, valid, S)
    store_parts(forms + S.forms[1] + n[None, :] * H + k[:, None], S.forms[5], w, valid, S)
    if not L.gaussian:
        w = moved(a.target, at, tl.load(a.target + at), w, valid, L)
        forms = forms_at(a.forms, TARGET_ACTOR, S) + S.forms[1]
        store_parts(forms + n[None, :] * H + k[:, None], S.forms[5], w, valid, S)
    tl.store(squares, tl.sum(tl.sum(g * g, 0)))


@gpu_kernel
def policy_third(
    a, tile, rates, squares, S: tl.constexpr, L: tl.constexpr, K: tl.constexpr,
    R: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    H: tl.constexpr = S.h
    B: tl.constexpr = S.b
    HEADS: tl.constexpr = S.heads * S.ad
    buffers = from_place(a, 0)
    n, j = (tile * K + tl.arange(0, K))[:, None], tl.arange(0, HEADS)[None, :]
    at = S.actor[4] + ((j // S.ad) * S.act + j % S.ad) * H + n
    valid = (j % S.ad < S.act) & (n >= 0)
    second = load_parts(a.policy_second + n * B + tl.arange(0, R)[None, :], H * B, S)
    old = load_old(buffers, at, valid)
    g = tl.zeros((K, HEADS), tl.float32)
    wait(PDL)
    for r0 in tl.static_range(0, B, R):
        delta = tl.load(a.head_delta + j * B + (r0 + tl.arange(0, R))[:, None])
        power, halves = scaled_parts(delta, S)
        g += power * multiply(second, halves, tl.zeros((K, HEADS), tl.float32), S)
        if r0 + R < B:
            more = (r0 + R + tl.arange(0, R))[None, :]
            second = load_parts(a.policy_second + n * B + more, H * B, S)
    g = tl.where(valid, g / B, 0.0)
    w = step_tile(buffers, old, at, valid, g, rates, L.eps)
    forms = forms_at(a.forms, ACTOR, S)
    store_parts(forms + S.forms[3] + n * THIN + j, S.forms[5], w, valid, S)
    store_parts(forms + S.forms[4] + j * H + n, S.forms[5], w, valid, S)
    if not L.gaussian:
        w = moved(a.target, at, tl.load(a.target + at, mask=valid, other=0.0), w, valid, L)
        forms = forms_at(a.forms, TARGET_ACTOR, S) + S.forms[3]
        store_parts(forms + n * THIN + j, S.forms[5], w, valid, S)
    tl.store(squares, tl.sum(tl.sum(g * g, 0)))


@gpu_kernel
def policy_sides(
    a, u, tile, rates, squares, S: tl.constexpr, L: tl.constexpr, CQ: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """The second bias; the first program also the last bias, the temperature, and what is told of
    the policy."""
    B: tl.constexpr = S.b
    buffers = from_place(a, 0)
    n, r, j = tile * SIDE + tl.arange(0, SIDE), tl.arange(0, B), tl.arange(0, S.heads * S.ad)
    bias, last = S.actor[3] + n, S.actor[5] + (j // S.ad) * S.act + j % S.ad
    every, one = n >= 0, (j % S.ad < S.act) & (tile == 0)
    old_bias, old_last = load_old(buffers, bias, every), load_old(buffers, last, one)
    q = sum_slices(a.policy_value + r, B, CQ)
    loss = -tl.sum(q, 0) / B
    if L.gaussian:
        first = tl.arange(0, SIDE) == 0
        at = critic_at(2, S) + tl.arange(0, SIDE)
        valid = first & (tile == 0)
        old_log = load_old(buffers, at, valid)
        alpha = tl.exp(tl.load(a.online + critic_at(2, S)))
        log_p = tl.sum(tl.load(a.log_p + r), 0) / B
        least = tl.minimum(q, sum_slices(a.policy_value + CQ * B + r, B, CQ))
        loss = alpha * log_p - tl.sum(least, 0) / B
    wait(PDL)
    g_bias = tl.sum(tl.load(a.second_delta + n[:, None] * B + r[None, :]), 1) / B
    by_head = tl.load(a.head_delta + j[:, None] * B + r[None, :], mask=one[:, None], other=0.0)
    g_last = tl.sum(by_head, 1) / B
    b = step_tile(buffers, old_bias, bias, every, g_bias, rates, L.eps)
    w = step_tile(buffers, old_last, last, one, g_last, rates, L.eps)
    total = tl.sum(g_bias * g_bias, 0) + tl.sum(g_last * g_last, 0)
    if not L.gaussian:
        moved(a.target, bias, tl.load(a.target + bias), b, every, L)
        moved(a.target, last, tl.load(a.target + last, mask=one, other=0.0), w, one, L)
    if tile == 0:
        tl.store(u.metrics + POLICY_LOSS, loss)
        if L.gaussian:
            tl.store(u.metrics + ALPHA, alpha)
            tl.store(u.metrics + ENTROPY, -log_p)
            if L.learned:
                g = -log_p - L.entropy
                step_tile(buffers, old_log, at, valid, tl.where(first, g, 0.0), rates, L.eps)
                total += g * g
    tl.store(squares, total)


@gpu_kernel
def tally_kernel(
    sums, squares, metrics, COUNT: tl.constexpr, CRITICS: tl.constexpr, PROGRAMS: tl.constexpr,
    PAD: tl.constexpr, GAUSSIAN: tl.constexpr, TURN: tl.constexpr, DELAY: tl.constexpr,
):  # fmt: skip
    """Adds COUNT updates to the sums of metrics: [loss, value, error, norm, the policy's loss
    (DELAY times, since it is told so much rarer), α and entropy, updates]. Of PROGRAMS sums of
    squares the first CRITICS are of the critics; TURN: updates since the policy last learned."""
    i = tl.arange(0, PAD)
    for k in tl.static_range(COUNT):
        last = CRITICS
        m = metrics + k * TOLD
        if (TURN + k + 1) % DELAY == 0:
            last = PROGRAMS
            tl.store(sums + 4, tl.load(sums + 4) + DELAY * tl.load(m + POLICY_LOSS))
            if GAUSSIAN:
                tl.store(sums + 5, tl.load(sums + 5) + tl.load(m + ALPHA))
                tl.store(sums + 6, tl.load(sums + 6) + tl.load(m + ENTROPY))
        norm = tl.sqrt(tl.sum(tl.load(squares + k * PROGRAMS + i, mask=i < last, other=0.0), 0))
        tl.store(sums, tl.load(sums) + tl.load(m + LOSS) + tl.load(m + LOSS + 1))
        tl.store(sums + 1, tl.load(sums + 1) + tl.load(m + VALUE) + tl.load(m + VALUE + 1))
        tl.store(sums + 2, tl.load(sums + 2) + tl.load(m + ERROR))
        tl.store(sums + 3, tl.load(sums + 3) + norm)
    count: tl.constexpr = 7 if GAUSSIAN else 5
    tl.store(sums + count, tl.load(sums + count) + COUNT)


# acting

INPUTS = tl.constexpr(16)  # of a row that are read at once


@gpu_kernel
def head_kernel(flat, rows, head, S: tl.constexpr, N: tl.constexpr, WIDTH: tl.constexpr):
    """Partial sums of the policy's output for a row, of a slice of the second layer."""
    part, row, slices = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    k, n, j = tl.arange(0, WIDTH), part * N + tl.arange(0, N), tl.arange(0, S.heads * S.ad)
    exists = k < S.h
    h = tl.load(flat + S.actor[1] + k, mask=exists, other=0.0)
    OD: tl.constexpr = S.od
    for first in tl.static_range(0, OD, INPUTS):
        i = first + tl.arange(0, INPUTS)
        x = tl.load(rows + row * S.obs + i, mask=i < S.obs, other=0).to(tl.float32) * S.scale
        valid = exists[:, None] & (i < S.obs)[None, :]
        w = tl.load(flat + k[:, None] * S.obs + i[None, :], mask=valid, other=0.0)
        h += tl.sum(w * x[None, :], 1)
    at = flat + S.actor[2] + n[:, None] * S.h + k[None, :]
    w = tl.load(at, mask=exists[None, :], other=0.0)
    second = relu(tl.sum(w * relu(h)[None, :], 1) + tl.load(flat + S.actor[3] + n))
    valid = (j % S.ad < S.act)[:, None] & (n >= 0)[None, :]
    out = ((j // S.ad) * S.act + j % S.ad)[:, None]
    w = tl.load(flat + S.actor[4] + out * S.h + n[None, :], mask=valid, other=0.0)
    tl.store(head + (row * slices + part) * S.heads * S.ad + j, tl.sum(w * second[None, :], 1))


@gpu_kernel
def act_kernel(flat, head, noise, action, S: tl.constexpr, L: tl.constexpr, SLICES: tl.constexpr):
    """The exploring policy's actions for a row, from partial sums of its output."""
    row, j = tl.program_id(0), tl.arange(0, S.ad)
    valid = j < S.act
    width: tl.constexpr = S.heads * S.ad
    at, bias = head + row * SLICES * width + j, flat + S.actor[5] + j
    mean = sum_slices(at, width, SLICES) + tl.load(bias, mask=valid, other=0.0)
    draw = tl.load(noise + row * S.act + j, mask=valid, other=0.0)
    if L.gaussian:
        spread = sum_slices(at + S.ad, width, SLICES)
        spread += tl.load(bias + S.act, mask=valid, other=0.0)
        x = squash(mean + tl.exp(tl.minimum(tl.maximum(spread, LEAST), MOST)) * draw)
    else:
        x = tl.minimum(tl.maximum(squash(mean) + draw, -1.0), 1.0)
    tl.store(action + row * S.act + j, x, mask=valid)
