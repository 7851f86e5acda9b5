"""The way forward of an update of sac or td3 with wide networks, in launches of tiles
(`ops.device.wide_layers`): what an update computes before its critics learn, and the new critics'
values of the policy's action with their slope by it.

    look_kernel    the policy on the next and the current observations, the critics on the batch
    judge_kernel   the targets' values; beside them the critics' deltas for an error of 1, the
                   policy's action
    weigh_kernel   the critics, having learned, value the policy's action
    slope_kernel   and how they would have it

No program reads what another one of its launch writes: the same bits at every run. Partial sums
over slices of a layer are stored apart, and added in their order by whoever reads them.
"""

import triton.language as tl

from tenfold.algorithms.kernels.actor_critic_gpu_arrays import (
    LEAST,
    MOST,
    batch_inputs,
    draw_action,
    log_prob,
    policy_heads,
    policy_noise,
)
from tenfold.ops.device.language import gpu_kernel
from tenfold.ops.device.wide_layers import (
    ACTOR,
    CRITICS,
    TARGET_ACTOR,
    TARGETS,
    THIN,
    critic_at,
    first_deltas,
    first_layer,
    forms_at,
    load_parts,
    load_slice,
    multiply,
    parts_of,
    relu,
    store_parts,
    target_at,
    two_layers,
    wait,
)

# policy and critics on the batch


@gpu_kernel
def look_kernel(
    a, u, S: tl.constexpr, L: tl.constexpr, DUE: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Roles: the policy on next and on current observations, two critics; then the first layers
    once more, to be kept. DUE: whether the policy learns."""
    C: tl.constexpr = S.h // N
    program, role = tl.program_id(0), tl.program_id(1)
    if (role < 4) & (program < (S.b // R) * C):
        rows = (program // C) * R + tl.arange(0, R)
        columns = (program % C) * N + tl.arange(0, N)
        if role >= 2:
            see_values(a, u, role - 2, rows, columns, program, S, R, N, K, PDL)
        elif role == 0:
            see_policy(a, u, 0, rows, columns, program % C, S, L, R, N, K, PDL)
        elif DUE:
            see_policy(a, u, 1, rows, columns, program % C, S, L, R, N, K, PDL)
    elif (role >= 5) & (program < (S.b // R) * (S.h // THIN)):
        keep_first(a, u, program, role - 4, S, R, PDL)
    elif DUE:
        if (role == 4) & (program < (S.b // R) * (S.h // THIN)):
            keep_first(a, u, program, ACTOR, S, R, PDL)


@gpu_kernel
def see_policy(
    a, u, which: tl.constexpr, rows, columns, c, S: tl.constexpr, L: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Partial sums of the policy's output, of next observations or (`which` 1) of current ones,
    whose second layer is kept."""
    HEADS: tl.constexpr = S.heads * S.ad
    j = tl.arange(0, THIN)
    x = parts_of(batch_inputs(a, u, rows, 1 - which, False, S), S)
    flat, forms = a.online, forms_at(a.forms, ACTOR, S)
    if not L.gaussian and which == 0:
        flat, forms = a.target, forms_at(a.forms, TARGET_ACTOR, S)
    wait(PDL)
    bias = flat + S.actor[1]
    w1, b1, w2 = load_slice(forms, bias, tl.arange(0, K), columns, S)
    b2 = tl.load(flat + S.actor[3] + columns)
    at = forms + S.forms[3] + columns[:, None] * THIN + j[None, :]
    w3 = load_parts(at, S.forms[5], S)
    h = two_layers(x, forms, bias, w1, b1, w2, b2, columns, S, R, N, K)
    out = multiply(parts_of(h, S), w3, tl.zeros((R, THIN), tl.float32), S)
    at = a.head + ((which * (S.h // N) + c) * HEADS + j)[None, :] * S.b + rows[:, None]
    tl.store(at, out, mask=j[None, :] < HEADS)
    if which == 1:
        at = a.policy_second + columns[None, :] * S.b + rows[:, None]
        store_parts(at, S.h * S.b, h, rows[:, None] >= 0, S)
        on = a.policy_on + rows[:, None] * S.h + columns[None, :]
        tl.store(on, (h > 0).to(tl.int8))


@gpu_kernel
def see_values(
    a, u, c, rows, columns, program, S: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Partial sums of a critic's value, its second layer, and what that adds to the value."""
    C: tl.constexpr = S.h // N
    x = parts_of(batch_inputs(a, u, rows, 0, True, S), S)
    flat, forms = a.online + critic_at(c, S), forms_at(a.forms, CRITICS + c, S)
    wait(PDL)
    bias = flat + S.critic[1]
    w1, b1, w2 = load_slice(forms, bias, tl.arange(0, K), columns, S)
    b2, w3 = tl.load(flat + S.critic[3] + columns), tl.load(flat + S.critic[4] + columns)
    b3 = tl.load(flat + S.critic[5])
    h = two_layers(x, forms, bias, w1, b1, w2, b2, columns, S, R, N, K)
    at = a.value_slope + c * S.pl * S.b * S.h + rows[:, None] * S.h + columns[None, :]
    store_parts(at, S.b * S.h, tl.where(h > 0, w3[None, :], 0.0), rows[:, None] >= 0, S)
    tl.store(a.second + (c * S.h + columns)[None, :] * S.b + rows[:, None], h)
    value = tl.sum(h * w3[None, :], 1) + tl.where(program % C == 0, b3, 0.0)
    tl.store(a.value + (c * C + program % C) * S.b + rows, value)
    tl.store(a.value_weight + c * S.h + columns, w3, mask=program < C)


@gpu_kernel
def keep_first(a, u, program, net, S: tl.constexpr, R: tl.constexpr, PDL: tl.constexpr):
    """The first layer of policy or critics as (unit, row), and the batch's inputs."""
    thin: tl.constexpr = S.h // THIN
    rows = (program // thin) * R + tl.arange(0, R)
    unit, column = (program % thin) * THIN + tl.arange(0, THIN), tl.arange(0, S.od)
    x = batch_inputs(a, u, rows, 0, net > ACTOR, S)
    flat = a.online + tl.where(net == ACTOR, S.actor[1], critic_at(net - CRITICS, S) + S.critic[1])
    wait(PDL)
    at = forms_at(a.forms, net, S) + column[:, None] * S.h + unit[None, :]
    w1 = load_parts(at, S.forms[5], S)
    h = relu(first_layer(parts_of(x, S), w1, tl.load(flat + unit), S, R, THIN))
    at = a.first + net * S.pl * S.h * S.b + unit[None, :] * S.b + rows[:, None]
    store_parts(at, S.h * S.b, h, rows[:, None] >= 0, S)
    at = a.inputs + column[None, :] * S.b + rows[:, None]
    store_parts(at, S.xm * S.b, x, (net == CRITICS) & (program % thin == 0), S)


# targets


@gpu_kernel
def judge_kernel(
    a, u, S: tl.constexpr, L: tl.constexpr, DUE: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Roles: two target critics, the deltas of two critics, then items of the targets and the
    policy's actions. C: slices of `look_kernel`'s layers."""
    slices: tl.constexpr = S.h // N
    program, role = tl.program_id(0), tl.program_id(1)
    rows = (program // slices) * R + tl.arange(0, R)
    columns = (program % slices) * N + tl.arange(0, N)
    in_tiles = program < (S.b // R) * slices
    if (role < 2) & in_tiles:
        target_values(a, u, role, program % slices, rows, columns, S, L, R, N, K, C, PDL)
    elif (role < 4) & in_tiles:
        c = role - 2
        forms = forms_at(a.forms, role - 1, S)
        at = forms + S.forms[2] + columns[None, :] * S.h + tl.arange(0, K)[:, None]
        t2 = load_parts(at, S.forms[5], S)
        wait(PDL)
        at = a.first + (role - 1) * S.pl * S.h * S.b + columns[None, :] * S.b + rows[:, None]
        on = tl.load(at) > 0
        second = a.value_slope + c * S.pl * S.b * S.h
        delta = first_deltas(second, forms, t2, columns, rows, S, R, N, K)
        at = a.unit_delta + (c * S.h + columns)[None, :] * S.b + rows[:, None]
        tl.store(at, tl.where(on, delta, 0.0))
    elif (role == 4) & (program < 2 * (S.b // 16)):
        if program < S.b // 16:
            target_base(a, u, program * 16 + tl.arange(0, 16), S, L, C, PDL)
        elif DUE:
            policy_actions(a, u, (program - S.b // 16) * 16 + tl.arange(0, 16), S, L, C, PDL)


@gpu_kernel
def target_values(
    a, u, c, slice_index, rows, columns, S: tl.constexpr, L: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, C: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Partial sums of a target critic's value of the policy's next action. The first layer's sums
    over observations do not wait for that action."""
    H: tl.constexpr = S.h
    T: tl.constexpr = not L.gaussian
    flat, forms = a.target + target_at(c, T, S), forms_at(a.forms, TARGETS + c, S)
    k, ia = tl.arange(0, K), tl.arange(0, S.ad)
    w1, b1, w2 = load_slice(forms, flat + S.critic[1], k, columns, S)
    at = forms + (S.obs + ia)[:, None] * H + k[None, :]
    by_action = load_parts(at, S.forms[5], S)
    x = parts_of(batch_inputs(a, u, rows, 1, False, S), S)
    b2, w3 = tl.load(flat + S.critic[3] + columns), tl.load(flat + S.critic[4] + columns)
    b3 = tl.load(flat + S.critic[5])
    noise = policy_noise(u, 0, rows, S)
    sums = first_layer(x, w1, b1, S, R, K)
    wait(PDL)
    bias = (a.target if T else a.online) + S.actor[5]
    mean, spread = policy_heads(a, bias, 0, rows, S, C)
    action, _, _ = draw_action(mean, spread, noise, True, S, L)
    y = parts_of(action, S)
    total = tl.zeros((R, N), tl.float32)
    for k0 in tl.static_range(0, H, K):
        if k0 + K < H:
            k = k0 + K + tl.arange(0, K)
            next1, next_b1, next2 = load_slice(forms, flat + S.critic[1], k, columns, S)
            at = forms + (S.obs + ia)[:, None] * H + k[None, :]
            next_by_action = load_parts(at, S.forms[5], S)
        total = multiply(parts_of(relu(multiply(y, by_action, sums, S)), S), w2, total, S)
        if k0 + K < H:
            sums = first_layer(x, next1, next_b1, S, R, K)
            w2, by_action = next2, next_by_action
    h = relu(total + b2[None, :])
    value = tl.sum(h * w3[None, :], 1) + tl.where(slice_index == 0, b3, 0.0)
    tl.store(a.target_value + (c * (H // N) + slice_index) * S.b + rows, value)


@gpu_kernel
def target_base(a, u, rows, S: tl.constexpr, L: tl.constexpr, C: tl.constexpr, PDL: tl.constexpr):
    """What of the target does not wait for the critics: r − discount·α·log π(a'|s'), and the
    discount."""
    reward, discount = tl.load(u.reward + rows), tl.load(u.discount + rows)
    noise = policy_noise(u, 0, rows, S)
    if L.gaussian:
        alpha = tl.exp(tl.load(a.online + critic_at(2, S)))
        wait(PDL)
        mean, spread = policy_heads(a, a.online + S.actor[5], 0, rows, S, C)
        _, _, raw = draw_action(mean, spread, noise, True, S, L)
        reward = reward - discount * alpha * log_prob(raw, spread, noise, S)
    else:
        wait(PDL)
    tl.store(a.base + rows, reward)
    tl.store(a.base + S.b + rows, discount)


@gpu_kernel
def policy_actions(
    a, u, rows, S: tl.constexpr, L: tl.constexpr, C: tl.constexpr, PDL: tl.constexpr
):
    """The policy's action beside its observation, and what its gradient needs."""
    io, ia = tl.arange(0, S.od)[None, :], tl.arange(0, S.ad)[None, :]
    x = batch_inputs(a, u, rows, 0, False, S)
    noise = policy_noise(u, 1, rows, S)
    wait(PDL)
    mean, spread = policy_heads(a, a.online + S.actor[5], 1, rows, S, C)
    action, move, raw = draw_action(mean, spread, noise, False, S, L)
    at = a.action_inputs + rows[:, None] * S.od
    tl.store(at + io, x, mask=io < S.obs)
    tl.store(at + S.obs + ia, action, mask=ia < S.act)
    at = a.action + rows[:, None] * S.ad + ia
    tl.store(at, action)
    if L.gaussian:
        free = (spread >= LEAST) & (spread <= MOST) & (ia < S.act)
        tl.store(at + S.b * S.ad, move)
        tl.store(at + 2 * S.b * S.ad, free.to(tl.float32))
        tl.store(a.log_p + rows, log_prob(raw, spread, noise, S))


# the critics that have learned, on the policy's action


@gpu_kernel
def weigh_kernel(
    a, S: tl.constexpr, R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PDL: tl.constexpr
):
    """Roles: critics, as many as the policy's loss asks; then whether their first layers fire."""
    C: tl.constexpr = S.h // N
    thin: tl.constexpr = S.h // THIN
    program, role, critics = tl.program_id(0), tl.program_id(1), tl.num_programs(1) // 2
    c, column = role % critics, tl.arange(0, S.od)
    flat, forms = a.online + critic_at(c, S), forms_at(a.forms, CRITICS + c, S)
    if (role < critics) & (program < (S.b // R) * C):
        rows = (program // C) * R + tl.arange(0, R)
        columns = (program % C) * N + tl.arange(0, N)
        x = parts_of(tl.load(a.action_inputs + rows[:, None] * S.od + column[None, :]), S)
        wait(PDL)
        bias = flat + S.critic[1]
        w1, b1, w2 = load_slice(forms, bias, tl.arange(0, K), columns, S)
        b2, w3 = tl.load(flat + S.critic[3] + columns), tl.load(flat + S.critic[4] + columns)
        b3 = tl.load(flat + S.critic[5])
        h = two_layers(x, forms, bias, w1, b1, w2, b2, columns, S, R, N, K)
        at = a.policy_value_slope + c * S.pl * S.b * S.h + rows[:, None] * S.h + columns[None, :]
        store_parts(at, S.b * S.h, tl.where(h > 0, w3[None, :], 0.0), rows[:, None] >= 0, S)
        value = tl.sum(h * w3[None, :], 1) + tl.where(program % C == 0, b3, 0.0)
        tl.store(a.policy_value + (c * C + program % C) * S.b + rows, value)
    elif (role >= critics) & (program < (S.b // R) * thin):
        rows = (program // thin) * R + tl.arange(0, R)
        unit = (program % thin) * THIN + tl.arange(0, THIN)
        x = parts_of(tl.load(a.action_inputs + rows[:, None] * S.od + column[None, :]), S)
        wait(PDL)
        w1 = load_parts(forms + column[:, None] * S.h + unit[None, :], S.forms[5], S)
        h = first_layer(x, w1, tl.load(flat + S.critic[1] + unit), S, R, THIN)
        at = a.first_on + (c * S.b + rows)[:, None] * S.h + unit[None, :]
        tl.store(at, (h > 0).to(tl.int8))


@gpu_kernel
def slope_kernel(
    a, S: tl.constexpr, R: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PDL: tl.constexpr
):
    """Partial sums of ∂Q/∂a."""
    C: tl.constexpr = S.h // N
    program, c, j = tl.program_id(0), tl.program_id(1), tl.arange(0, THIN)
    rows = (program // C) * R + tl.arange(0, R)
    columns = (program % C) * N + tl.arange(0, N)
    forms = forms_at(a.forms, CRITICS + c, S)
    at = forms + S.forms[2] + columns[None, :] * S.h + tl.arange(0, K)[:, None]
    t2 = load_parts(at, S.forms[5], S)
    at = forms + S.forms[3] + columns[:, None] * THIN + j[None, :]
    by_action = load_parts(at, S.forms[5], S)
    wait(PDL)
    on = tl.load(a.first_on + (c * S.b + rows)[:, None] * S.h + columns[None, :]) > 0
    second = a.policy_value_slope + c * S.pl * S.b * S.h
    delta = tl.where(on, first_deltas(second, forms, t2, columns, rows, S, R, N, K), 0.0)
    out = multiply(parts_of(delta, S), by_action, tl.zeros((R, THIN), tl.float32), S)
    at = a.action_slope + ((c * C + program % C) * S.b + rows)[:, None] * S.ad + j[None, :]
    tl.store(at, out, mask=j[None, :] < S.ad)
