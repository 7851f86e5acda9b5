"""What learns in an update of sac or td3 with wide networks, in launches of tiles
(`ops.device.wide_layers`): a tile of a weight's gradient, Adam on it, the target's share and the
forms that products read, by one program.

    critics_kernel  the critics
    blame_kernel    from the values' slopes by the action to the policy's deltas
    policy_kernel   the policy and the temperature
    tally_kernel    what is told of all updates of a graph
"""

import triton.language as tl

from tenfold.ops.device.language import gpu_kernel
from tenfold.ops.device.policy import normal
from tenfold.ops.device.wide_layers import (
    ACTOR,
    CRITICS,
    TARGETS,
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
    step_tile,
    store_parts,
    sum_slices,
    target_at,
    wait,
)

SIDE = tl.constexpr(16)  # units of a program that learns biases
# what an update tells: two numbers of the critics each, then single ones
LOSS, VALUE, ERROR, POLICY_LOSS, ALPHA, ENTROPY, TOLD = (
    tl.constexpr(i) for i in (0, 2, 4, 5, 6, 7, 8)
)


@gpu_kernel
def normal_kernel(number, keys, noise, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """The normal numbers [updates, draws, B·actions] of updates from `number` on, by their keys."""
    draw, k = tl.program_id(1), tl.program_id(2)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counter = (tl.load(number) + k) * SIZE + i
    at = noise + (k * tl.num_programs(1) + draw) * SIZE + i
    tl.store(at, normal(tl.load(keys + draw), counter).to(tl.float32), mask=i < SIZE)


# the critics


@gpu_kernel
def td_errors(a, c, rows, S: tl.constexpr, CV: tl.constexpr, CT: tl.constexpr):
    """(Q_c − y, Q_c), from partial sums of CV and CT slices."""
    q = sum_slices(a.value + c * CV * S.b + rows, S.b, CV)
    first = sum_slices(a.target_value + rows, S.b, CT)
    second = sum_slices(a.target_value + CT * S.b + rows, S.b, CT)
    discount = tl.load(a.base + S.b + rows)
    return q - (tl.load(a.base + rows) + discount * tl.minimum(first, second)), q


@gpu_kernel
def moved(target, at, old, w, valid, L: tl.constexpr):
    """Moves a target towards the new parameters; what it is then."""
    new = old + L.tau * (w - old)
    tl.store(target + at, new, mask=valid)
    return new


@gpu_kernel
def critics_kernel(
    a, u, S: tl.constexpr, L: tl.constexpr, DUE: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
    R: tl.constexpr, CV: tl.constexpr, CT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Programs: of the first layer, of biases and the last layer, of the second layer. Targets move
    when the policy learns too (DUE)."""
    H: tl.constexpr = S.h
    program, c = tl.program_id(0), tl.program_id(1)
    rates = rates_after(u.before, u.lr)
    squares = u.squares + c * tl.num_programs(0) + program
    if program < H // N:
        critic_first(a, u, c, program, rates, squares, S, L, DUE, N, R, CV, CT, PDL)
    elif program < H // N + H // SIDE:
        critic_sides(a, u, c, program - H // N, rates, squares, S, L, DUE, CV, CT, PDL)
    else:
        tile = program - H // N - H // SIDE
        critic_second(a, u, c, tile, rates, squares, S, L, DUE, K, N, R, CV, CT, PDL)


@gpu_kernel
def critic_first(
    a, u, c, tile, rates, squares, S: tl.constexpr, L: tl.constexpr, DUE: tl.constexpr,
    N: tl.constexpr, R: tl.constexpr, CV: tl.constexpr, CT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    H: tl.constexpr = S.h
    B: tl.constexpr = S.b
    X: tl.constexpr = S.xm
    inputs: tl.constexpr = S.obs + S.act
    T: tl.constexpr = not L.gaussian
    buffers, target = from_place(a, critic_at(c, S)), a.target + target_at(c, T, S)
    i, n = tl.arange(0, S.xm)[:, None], tile * N + tl.arange(0, N)
    at, valid = n[None, :] * inputs + i, (i < inputs) & (n[None, :] >= 0)
    bias, every = S.critic[1] + n, n >= 0
    x = load_parts(a.inputs + i * B + tl.arange(0, R)[None, :], S.xm * B, S)
    old, old_bias = load_old(buffers, at, valid), load_old(buffers, bias, every)
    old_target = tl.load(target + at, mask=valid, other=0.0)
    old_target_bias = tl.load(target + bias)
    g, g_bias = tl.zeros((X, N), tl.float32), tl.zeros((N,), tl.float32)
    wait(PDL)
    for r0 in tl.static_range(0, B, R):
        r = r0 + tl.arange(0, R)
        error, _ = td_errors(a, c, r, S, CV, CT)
        error = error * tl.load(u.weight + r)
        power = power_below(error)
        delta = tl.load(a.unit_delta + (c * H + n)[None, :] * B + r[:, None])
        delta = delta * (error / power)[:, None]
        g += power * multiply(x, parts_of(delta, S), tl.zeros((X, N), tl.float32), S)
        g_bias += power * tl.sum(delta, 0)
        if r0 + R < B:
            x = load_parts(a.inputs + i * B + (r0 + R + tl.arange(0, R))[None, :], S.xm * B, S)
    g, g_bias = tl.where(valid, g / B, 0.0), g_bias / B
    w = step_tile(buffers, old, at, valid, g, rates, L.eps)
    w_bias = step_tile(buffers, old_bias, bias, every, g_bias, rates, L.eps)
    forms = forms_at(a.forms, CRITICS + c, S)
    store_parts(forms + i * H + n[None, :], S.forms[5], w, valid, S)
    thin = forms + S.forms[3] + n[None, :] * THIN + i - S.obs
    store_parts(thin, S.forms[5], w, valid & (i >= S.obs), S)
    if DUE:
        w = moved(target, at, old_target, w, valid, L)
        store_parts(forms_at(a.forms, TARGETS + c, S) + i * H + n[None, :], S.forms[5], w, valid, S)
        moved(target, bias, old_target_bias, w_bias, every, L)
    tl.store(squares, tl.sum(tl.sum(g * g, 0)) + tl.sum(g_bias * g_bias))


@gpu_kernel
def critic_second(
    a, u, c, tile, rates, squares, S: tl.constexpr, L: tl.constexpr, DUE: tl.constexpr,
    K: tl.constexpr, N: tl.constexpr, R: tl.constexpr,
    CV: tl.constexpr, CT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    H: tl.constexpr = S.h
    B: tl.constexpr = S.b
    T: tl.constexpr = not L.gaussian
    buffers, target = from_place(a, critic_at(c, S)), a.target + target_at(c, T, S)
    k, n = (tile // (H // N)) * K + tl.arange(0, K), (tile % (H // N)) * N + tl.arange(0, N)
    r = tl.arange(0, R)
    at, valid = S.critic[2] + n[None, :] * H + k[:, None], (k[:, None] >= 0) & (n[None, :] >= 0)
    first = a.first + (CRITICS + c) * S.pl * H * B
    second = a.second + c * H * B
    below = load_parts(first + k[:, None] * B + r[None, :], H * B, S)
    h = tl.load(second + n[None, :] * B + r[:, None])
    old, old_target = load_old(buffers, at, valid), tl.load(target + at)
    w3 = tl.load(a.value_weight + c * H + n)
    g = tl.zeros((K, N), tl.float32)
    wait(PDL)
    for r0 in tl.static_range(0, B, R):
        r = r0 + tl.arange(0, R)
        error, _ = td_errors(a, c, r, S, CV, CT)
        error = error * tl.load(u.weight + r)
        power = power_below(error)
        if r0 + R < B:
            more = r0 + R + tl.arange(0, R)
            next_below = load_parts(first + k[:, None] * B + more[None, :], H * B, S)
            next_h = tl.load(second + n[None, :] * B + more[:, None])
        delta = tl.where(h > 0, (error / power)[:, None] * w3[None, :], 0.0)
        g += power * multiply(below, parts_of(delta, S), tl.zeros((K, N), tl.float32), S)
        if r0 + R < B:
            below, h = next_below, next_h
    g = g / B
    w = step_tile(buffers, old, at, valid, g, rates, L.eps)
    forms = forms_at(a.forms, CRITICS + c, S)
    store_parts(forms + S.forms[2] + k[:, None] * H + n[None, :], S.forms[5], w, valid, S)
    store_parts(forms + S.forms[1] + n[None, :] * H + k[:, None], S.forms[5], w, valid, S)
    if DUE:
        w = moved(target, at, old_target, w, valid, L)
        forms = forms_at(a.forms, TARGETS + c, S) + S.forms[1]
        store_parts(forms + n[None, :] * H + k[:, None], S.forms[5], w, valid, S)
    tl.store(squares, tl.sum(tl.sum(g * g, 0)))


@gpu_kernel
def critic_sides(
    a, u, c, tile, rates, squares, S: tl.constexpr, L: tl.constexpr, DUE: tl.constexpr,
    CV: tl.constexpr, CT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """The second bias and the last layer's weights; the first program also the last bias, and what
    is told of the critics."""
    H: tl.constexpr = S.h
    B: tl.constexpr = S.b
    T: tl.constexpr = not L.gaussian
    buffers, target = from_place(a, critic_at(c, S)), a.target + target_at(c, T, S)
    n, r, z = tile * SIDE + tl.arange(0, SIDE), tl.arange(0, B), tl.arange(0, SIDE)
    every, one = n >= 0, (z == 0) & (tile == 0)
    h = tl.load(a.second + (c * H + n)[:, None] * B + r[None, :])
    w3 = tl.load(a.value_weight + c * H + n)
    weight = tl.load(u.weight + r)
    bias, last, final = S.critic[3] + n, S.critic[4] + n, S.critic[5] + z
    old_bias, old_last = load_old(buffers, bias, every), load_old(buffers, last, every)
    old_final = load_old(buffers, final, one)
    target_bias, target_last = tl.load(target + bias), tl.load(target + last)
    target_final = tl.load(target + final, mask=one, other=0.0)
    wait(PDL)
    td_error, q = td_errors(a, c, r, S, CV, CT)
    error = td_error * weight
    g_bias = w3 * tl.sum(tl.where(h > 0, error[None, :], 0.0), 1) / B
    g_last = tl.sum(h * error[None, :], 1) / B
    g_final = tl.where(one, tl.sum(error, 0) / B, 0.0)
    w_bias = step_tile(buffers, old_bias, bias, every, g_bias, rates, L.eps)
    w_last = step_tile(buffers, old_last, last, every, g_last, rates, L.eps)
    w_final = step_tile(buffers, old_final, final, one, g_final, rates, L.eps)
    if DUE:
        moved(target, bias, target_bias, w_bias, every, L)
        moved(target, last, target_last, w_last, every, L)
        moved(target, final, target_final, w_final, one, L)
    tl.store(squares, tl.sum(g_bias * g_bias + g_last * g_last + g_final * g_final, 0))
    if tile == 0:
        tl.store(u.metrics + LOSS + c, 0.5 * tl.sum(error * td_error, 0) / B)
        tl.store(u.metrics + VALUE + c, tl.sum(q, 0) / (2 * B))
        if c == 0:
            other, _ = td_errors(a, 1, r, S, CV, CT)
            both = 0.5 * (tl.abs(td_error) + tl.abs(other))
            tl.store(u.errors + r, both)
            tl.store(u.metrics + ERROR, tl.sum(both, 0) / B)


# the policy


@gpu_kernel
def head_slope(
    a, rows, S: tl.constexpr, L: tl.constexpr, CQ: tl.constexpr, CS: tl.constexpr, PDL: tl.constexpr
):
    """The loss's derivative by the policy's output [rows, heads·actions], times the items."""
    j = tl.arange(0, S.heads * S.ad)
    ia = (j % S.ad)[None, :]
    at = a.action + rows[:, None] * S.ad + ia
    action = tl.load(at)
    if L.gaussian:
        move, free = tl.load(at + S.b * S.ad), tl.load(at + 2 * S.b * S.ad)
        alpha = tl.exp(tl.load(a.online + critic_at(2, S)))
        first = sum_slices(a.policy_value + rows, S.b, CQ)
        second = sum_slices(a.policy_value + CQ * S.b + rows, S.b, CQ)
        least = tl.where(first <= second, 0, 1) * CS * S.b + rows
        wait(PDL)
        by_action = sum_slices(a.action_slope + least[:, None] * S.ad + ia, S.b * S.ad, CS)
        g = 2 * alpha * action - by_action * (1 - action * action)
        return tl.where(j[None, :] < S.ad, g, (g * move - alpha) * free)
    else:
        wait(PDL)
        by_action = sum_slices(a.action_slope + rows[:, None] * S.ad + ia, S.b * S.ad, CS)
        return -by_action * (1 - action * action)


@gpu_kernel
def blame_kernel(
    a, S: tl.constexpr, L: tl.constexpr, R: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    CQ: tl.constexpr, CS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Roles: the policy's deltas of the first layer, and of the second."""
    program, role = tl.program_id(0), tl.program_id(1)
    forms = forms_at(a.forms, ACTOR, S)
    if (role == 0) & (program < (S.b // R) * (S.h // N)):
        policy_first_deltas(a, forms, program, S, L, R, N, K, CQ, CS, PDL)
    elif (role == 1) & (program < (S.b // R) * (S.h // THIN)):
        policy_second_deltas(a, forms, program, S, L, R, CQ, CS, PDL)


@gpu_kernel
def policy_first_deltas(
    a, forms, program, S: tl.constexpr, L: tl.constexpr, R: tl.constexpr, N: tl.constexpr,
    K: tl.constexpr, CQ: tl.constexpr, CS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    H: tl.constexpr = S.h
    rows = (program // (H // N)) * R + tl.arange(0, R)
    columns = (program % (H // N)) * N + tl.arange(0, N)
    j, k = tl.arange(0, S.heads * S.ad), tl.arange(0, K)
    t2_at, t3_at = forms + S.forms[2] + columns[None, :] * H, forms + S.forms[4] + j[:, None] * H
    on_at = a.policy_on + rows[:, None] * H
    t2 = load_parts(t2_at + k[:, None], S.forms[5], S)
    t3 = load_parts(t3_at + k[None, :], S.forms[5], S)
    on = tl.load(on_at + k[None, :])
    fires = tl.load(a.first + columns[None, :] * S.b + rows[:, None]) > 0
    slope = head_slope(a, rows, S, L, CQ, CS, PDL)
    power = power_below(tl.max(tl.abs(slope), 1))
    delta = parts_of(slope / power, S)
    total = tl.zeros((R, N), tl.float32)
    for k0 in tl.static_range(0, H, K):
        if k0 + K < H:
            k = k0 + K + tl.arange(0, K)
            next_t2 = load_parts(t2_at + k[:, None], S.forms[5], S)
            next_t3 = load_parts(t3_at + k[None, :], S.forms[5], S)
            next_on = tl.load(on_at + k[None, :])
        second = multiply(delta, t3, tl.zeros((R, K), tl.float32), S) * on.to(tl.float32)
        total = multiply(parts_of(second, S), t2, total, S)
        if k0 + K < H:
            t2, t3, on = next_t2, next_t3, next_on
    at = a.first_delta + columns[None, :] * S.b + rows[:, None]
    tl.store(at, tl.where(fires, power * total, 0.0))


@gpu_kernel
def policy_second_deltas(
    a, forms, program, S: tl.constexpr, L: tl.constexpr, R: tl.constexpr,
    CQ: tl.constexpr, CS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    thin: tl.constexpr = S.h // THIN
    rows = (program // thin) * R + tl.arange(0, R)
    k = (program % thin) * THIN + tl.arange(0, THIN)
    j = tl.arange(0, S.heads * S.ad)
    at = forms + S.forms[4] + j[:, None] * S.h + k[None, :]
    t3 = load_parts(at, S.forms[5], S)
    on = tl.load(a.policy_on + rows[:, None] * S.h + k[None, :])
    slope = head_slope(a, rows, S, L, CQ, CS, PDL)
    power = power_below(tl.max(tl.abs(slope), 1))
    second = multiply(parts_of(slope / power, S), t3, tl.zeros((R, THIN), tl.float32), S)
    at = a.second_delta + k[None, :] * S.b + rows[:, None]
    tl.store(at, power * second * on.to(tl.float32))
    at = a.head_delta + j[None, :] * S.b + rows[:, None]
    tl.store(at, slope, mask=program % thin == 0)
