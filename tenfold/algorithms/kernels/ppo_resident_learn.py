"""Learning of the resident engine: values, advantages, and for each minibatch partial gradients →
their sum and its squares → clipping and Adam. Deterministic: sums have one order, nothing is added
to by several programs.

Grids have the seeds as their last side. Numbers of a phase that change between launches are in
`count` and `clock`, so that the launches of a phase can be one CUDA graph.
"""

import triton.language as tl

from tenfold.algorithms.kernels.ppo_resident_arrays import (
    ADAM_EPS,
    CLIP,
    CLIP_NORM,
    ENTROPY,
    EPOCHS,
    LAM,
    LR,
    OBS_SCALE,
    SHUFFLES,
    TARGET_KL,
    UPDATES,
    VALUE_CLIP,
    VALUE_WEIGHT,
    arrays_of,
    deviations,
    load_allowed,
    load_numbers,
    load_rows,
    param,
)
from tenfold.ops.device import network, policy
from tenfold.ops.device.language import gpu_kernel, schedule_at
from tenfold.ops.device.returns import follow
from tenfold.ops.device.sampling import places
from tenfold.ops.surrogate import CLIPPED, KL, POLICY_LOSS, VALUE_LOSS
from tenfold.ops.surrogate import ENTROPY as ENTROPY_INDEX

ORDERED = tl.constexpr(1024)  # rows that a program finds the order of
AT_POLICY, AT_VALUE, AT_ENTROPY, AT_KL, AT_CLIPPED = (
    tl.constexpr(index) for index in (POLICY_LOSS, VALUE_LOSS, ENTROPY_INDEX, KL, CLIPPED)
)


@gpu_kernel
def value_of(layers, rows, scale, N: tl.constexpr):
    return policy.column_of(network.forward(layers, rows * scale, N)[N.layers], 0)


@gpu_kernel(do_not_specialize=["first", "last"])
def values(arrays, first, last, S: tl.constexpr):
    """Values of the rows first … last − 1, and of final observations where a time limit cut."""
    a = arrays_of(arrays, tl.program_id(2).to(tl.int64), S)
    N: tl.constexpr = S.value_net
    layers = network.load(a.block + S.actions.reals + S.policy_net.parameters, N)
    lane = (tl.program_id(0) * S.lanes + tl.arange(0, S.lanes)).to(tl.int64)
    live, scale = lane < S.envs, param(a, OBS_SCALE)
    for row in range(first + tl.program_id(1), last, tl.num_programs(1)):
        index = row * S.envs + lane
        rows = load_rows(a.obs, index, live, S.task.obs, N.pads[0])
        tl.store(a.value + index, value_of(layers, rows, scale, N), mask=live)
        before = live & (row < S.horizon)
        cut = tl.load(a.boundary + index, mask=before, other=0.0) > 0
        cut = cut & (tl.load(a.discount + index, mask=before, other=0.0) > 0)
        if tl.sum(cut.to(tl.int32), 0) > 0:
            rows = load_rows(a.final, index, cut, S.task.obs, N.pads[0])
            tl.store(a.next_value + index, value_of(layers, rows, scale, N), mask=cut)


@gpu_kernel
def finish(arrays, S: tl.constexpr):
    """Advantages and targets of a full rollout, as `ops.advantages.finish_rollout` but for the
    scale, whose sums are noted; every minibatch is due."""
    a = arrays_of(arrays, tl.program_id(1).to(tl.int64), S)
    lane = (tl.program_id(0) * S.columns + tl.arange(0, S.columns))[None, :]
    lam, running = param(a, LAM), tl.arange(0, S.columns) * 0.0
    total = running.to(tl.float64)
    square = total
    first = tl.arange(0, S.time)[:, None] == 0
    last: tl.constexpr = (S.horizon + S.time - 1) // S.time - 1
    for chunk in range(last + 1):
        t = ((last - chunk) * S.time + tl.arange(0, S.time))[:, None]
        valid = (t < S.horizon) & (lane < S.envs)
        index = t * S.envs + lane
        value = tl.load(a.value + index, mask=valid, other=0.0)
        ends = tl.load(a.boundary + index, mask=valid, other=0.0)
        after = tl.load(a.next_value + index, mask=valid & (ends > 0), other=0.0)
        after += tl.load(a.value + index + S.envs, mask=valid & (ends == 0), other=0.0)
        discount = tl.load(a.discount + index, mask=valid, other=0.0)
        delta = tl.load(a.reward + index, mask=valid, other=0.0) + discount * after - value
        flow = lam * discount * (1 - ends)
        inner, share = tl.associative_scan((delta, flow), 0, follow, reverse=True)
        result = inner + share * running[None, :]
        running = tl.sum(tl.where(first, result, 0.0), 0)
        tl.store(a.advantage + index, result, mask=valid)
        tl.store(a.target + index, result + value, mask=valid)
        wide = tl.where(valid, result, 0.0).to(tl.float64)
        total += tl.sum(wide, 0)
        square += tl.sum(wide * wide, 0)
    tl.store(a.moments + tl.program_id(0) * 2, tl.sum(total, 0))
    tl.store(a.moments + tl.program_id(0) * 2 + 1, tl.sum(square, 0))
    tl.store(a.going, 1, mask=tl.program_id(0) == 0)


@gpu_kernel
def scaling(a, S: tl.constexpr):
    """(mean, 1 / deviation) of all advantages of the phase, or (0, 1)."""
    mean, inverse = 0.0, 1.0
    if S.scales:
        programs: tl.constexpr = (S.envs + S.columns - 1) // S.columns
        total, square = tl.full((), 0.0, tl.float64), tl.full((), 0.0, tl.float64)
        for start in range(0, programs, 256):
            part = start + tl.arange(0, 256)
            total += tl.sum(tl.load(a.moments + part * 2, mask=part < programs, other=0.0), 0)
            square += tl.sum(tl.load(a.moments + part * 2 + 1, mask=part < programs, other=0.0), 0)
        count: tl.constexpr = S.horizon * S.envs
        middle = total / count
        deviation = tl.sqrt(tl.maximum(square / count - middle * middle, 0.0))
        mean, inverse = middle.to(tl.float32), (1.0 / (deviation + 1e-8)).to(tl.float32)
    return mean, inverse


@gpu_kernel
def shuffle(arrays, S: tl.constexpr):
    """The order of the rows in every epoch of the phase."""
    a = arrays_of(arrays, tl.program_id(2).to(tl.int64), S)
    all_rows: tl.constexpr = S.horizon * S.envs
    epoch = tl.program_id(1)
    item = tl.program_id(0) * ORDERED + tl.arange(0, ORDERED)
    valid = item < all_rows
    stream, number = tl.load(a.streams + SHUFFLES), tl.load(a.count + EPOCHS) + epoch
    result = places(tl.where(valid, item, 0), stream, number, all_rows, S.bits[0], S.bits[1])
    tl.store(a.order + epoch * all_rows + item, result.to(tl.int32), mask=valid)


@gpu_kernel
def drawn_rows(a, number, chunk, S: tl.constexpr):
    """Of a chunk of this program's part of minibatch `number`: (rows of the rollout, which are
    there, one row's share of a mean)."""
    all_rows: tl.constexpr = S.horizon * S.envs
    part = tl.load(a.count) * 0 + number % S.minibatches  # as wide
    first, last = all_rows * part // S.minibatches, all_rows * (part + 1) // S.minibatches
    item = first + ((tl.program_id(0) // 2) * S.chunks + chunk) * S.rows + tl.arange(0, S.rows)
    valid = item < last
    order = a.order + number // S.minibatches * all_rows
    index = tl.load(order + item, mask=valid, other=0)
    return index, valid, tl.where(valid, 1.0 / (last - first).to(tl.float32), 0.0)


@gpu_kernel
def policy_part(a, number, S: tl.constexpr):
    """The policy's gradient of a part of a minibatch, deviations in front."""
    N: tl.constexpr = S.policy_net
    P: tl.constexpr = S.actions
    reals: tl.constexpr = P.reals
    layers, log_std = network.load(a.block + P.reals, N), deviations(a, S)
    grads, by_std = network.zeros_like(layers, N), ()
    nothing = tl.arange(0, S.rows) * 0.0
    for _ in tl.static_range(reals):
        by_std = by_std + (nothing,)
    loss_sum, entropy_sum, kl_sum, clipped_sum = nothing, nothing, nothing, nothing
    mean, inverse = scaling(a, S)
    scale, clip, weight = param(a, OBS_SCALE), param(a, CLIP), param(a, ENTROPY)
    for chunk in range(S.chunks):
        index, valid, share = drawn_rows(a, number, chunk, S)
        rows = load_rows(a.obs, index, valid, S.task.obs, N.pads[0])
        outputs = network.forward(layers, rows * scale, N)
        discrete = load_numbers(a.chosen, index, valid, len(P.sizes))
        real = load_numbers(a.real, index, valid, P.reals)
        allowed = load_allowed(a, index, valid, S)
        old = tl.load(a.log_p + index, mask=valid, other=0.0)
        gain = (tl.load(a.advantage + index, mask=valid, other=0.0) - mean) * inverse
        output = outputs[N.layers]
        log_p, entropy, per_head = policy.probability(output, log_std, discrete, real, allowed, P)
        change = tl.where(valid, log_p - old, 0.0)
        ratio = tl.exp(change)
        limited = tl.minimum(tl.maximum(ratio, 1.0 - clip), 1.0 + clip)
        slope = tl.where(ratio * gain <= limited * gain, -ratio * gain * share, 0.0)
        delta, more = policy.slopes(
            output, log_std, discrete, real, per_head, slope, weight * share, P
        )
        grads = network.sum_of(grads, network.backward(layers, outputs, delta, N), N)
        added = ()
        for d in tl.static_range(reals):
            added = added + (by_std[d] + more[d],)
        by_std = added
        loss_sum -= share * tl.minimum(ratio * gain, limited * gain)
        entropy_sum += share * entropy
        kl_sum += share * (ratio - 1.0 - change)
        clipped_sum += tl.where(tl.abs(ratio - 1.0) > clip, share, 0.0)
    part = tl.program_id(0) // 2
    target, statistics = a.partial + part * S.parameters, a.statistics + part * 5
    network.store(target + P.reals, grads, N)
    for d in tl.static_range(reals):
        tl.store(target + d, tl.sum(by_std[d], 0))
    tl.store(statistics + AT_POLICY, tl.sum(loss_sum, 0))
    tl.store(statistics + AT_ENTROPY, tl.sum(entropy_sum, 0))
    tl.store(statistics + AT_KL, tl.sum(kl_sum, 0))
    tl.store(statistics + AT_CLIPPED, tl.sum(clipped_sum, 0))


@gpu_kernel
def value_part(a, number, S: tl.constexpr):
    """The value network's gradient of a part of a minibatch."""
    N: tl.constexpr = S.value_net
    first = S.actions.reals + S.policy_net.parameters
    layers = network.load(a.block + first, N)
    grads, loss_sum = network.zeros_like(layers, N), tl.arange(0, S.rows) * 0.0
    scale, clip, weight = param(a, OBS_SCALE), param(a, VALUE_CLIP), param(a, VALUE_WEIGHT)
    column = tl.arange(0, N.pads[len(N.pads) - 1])[None, :]
    for chunk in range(S.chunks):
        index, valid, share = drawn_rows(a, number, chunk, S)
        rows = load_rows(a.obs, index, valid, S.task.obs, N.pads[0])
        outputs = network.forward(layers, rows * scale, N)
        value = policy.column_of(outputs[N.layers], 0)
        target = tl.load(a.target + index, mask=valid, other=0.0)
        old = tl.load(a.value + index, mask=valid, other=0.0)
        error, moved = value - target, value - old
        other = old + tl.minimum(tl.maximum(moved, -clip), clip) - target
        # moved too far: it no longer counts
        counts = (tl.abs(moved) <= clip) | (other * other <= error * error)
        slope = tl.where(counts, weight * share * error, 0.0)
        delta = tl.where(column == 0, slope[:, None], 0.0)
        grads = network.sum_of(grads, network.backward(layers, outputs, delta, N), N)
        loss_sum += share * 0.5 * tl.maximum(error * error, other * other)
    part = tl.program_id(0) // 2
    network.store(a.partial + part * S.parameters + first, grads, N)
    tl.store(a.statistics + part * 5 + AT_VALUE, tl.sum(loss_sum, 0))


@gpu_kernel
def is_due(a, number, S: tl.constexpr):
    """Whether minibatch `number` of the phase is to be learned from."""
    due = number >= 0
    if S.stops:
        due = tl.load(a.going + number // S.minibatches) > 0
    return due


@gpu_kernel(do_not_specialize=["number"])
def gradient(arrays, number, S: tl.constexpr):
    """Partial gradients of minibatch `number` of the phase: even programs the policy's, odd ones
    the value's."""
    a = arrays_of(arrays, tl.program_id(1).to(tl.int64), S)
    if is_due(a, number, S):
        if tl.program_id(0) % 2 == 0:
            policy_part(a, number, S)
        else:
            value_part(a, number, S)


@gpu_kernel(do_not_specialize=["number"])
def reduce(arrays, number, S: tl.constexpr):
    """A stretch of the gradient from its splits, and the sum of its squares."""
    a = arrays_of(arrays, tl.program_id(1).to(tl.int64), S)
    if is_due(a, number, S):
        j = tl.program_id(0) * S.stretch + tl.arange(0, S.stretch)
        valid = j < S.parameters
        together: tl.constexpr = S.splits_at_once
        stretch: tl.constexpr = S.stretch
        total = tl.zeros((together, stretch), tl.float32)
        for start in range(0, S.splits, S.splits_at_once):
            part = (start + tl.arange(0, S.splits_at_once))[:, None]
            mask = valid[None, :] & (part < S.splits)
            total += tl.load(a.partial + part * S.parameters + j[None, :], mask=mask, other=0.0)
        grad = tl.sum(total, 0)
        tl.store(a.block + 3 * S.parameters + j, grad, mask=valid)
        tl.store(a.squares + tl.program_id(0), tl.sum(grad * grad, 0))


@gpu_kernel
def add_statistics(a, number, norm, S: tl.constexpr):
    """Adds the minibatch's statistics; stores whether there is another epoch."""
    kind, statistics = tl.arange(0, 8), tl.arange(0, 8) * 0.0
    for start in range(0, S.splits, S.splits_at_once):
        part = (start + tl.arange(0, S.splits_at_once))[:, None]
        valid = (part < S.splits) & (kind[None, :] < 5)
        statistics += tl.sum(
            tl.load(a.statistics + part * 5 + kind[None, :], mask=valid, other=0.0), 0
        )
    before = tl.load(a.sums + kind, mask=kind < 5, other=0.0)
    tl.store(a.sums + kind, before + statistics.to(tl.float64), mask=kind < 5)
    kl = tl.sum(tl.where(kind == AT_KL, statistics, 0.0), 0)
    tl.store(a.sums + 5, tl.load(a.sums + 5) + norm.to(tl.float64))
    tl.store(a.sums + 6, tl.load(a.sums + 6) + 1.0)
    epoch, part = number // S.minibatches, number % S.minibatches
    moved = tl.load(a.moved + epoch, mask=part > 0, other=0.0) + kl.to(tl.float64) / S.minibatches
    tl.store(a.moved + epoch, moved)
    going = moved <= tl.load(a.params + TARGET_KL)
    tl.store(a.going + epoch + 1, going.to(tl.int32), mask=part == S.minibatches - 1)


@gpu_kernel(do_not_specialize=["number"])
def apply(arrays, number, S: tl.constexpr):
    """Clipping by the gradient's norm, and a step of Adam, for a stretch of the parameters."""
    a = arrays_of(arrays, tl.program_id(1).to(tl.int64), S)
    if is_due(a, number, S):
        square = tl.full((), 0.0, tl.float32)
        for start in range(0, S.stretches, 256):
            part = start + tl.arange(0, 256)
            square += tl.sum(tl.load(a.squares + part, mask=part < S.stretches, other=0.0), 0)
        norm = tl.sqrt(square)
        shrink = tl.minimum(param(a, CLIP_NORM) / (norm + 1e-6), 1.0)
        step = (tl.load(a.count + UPDATES) + number + 1).to(tl.float64)
        lr = schedule_at(a.params + LR, tl.load(a.clock + 1) * S.envs, S.schedule)
        rate, unbias = network.adam_rates(lr, step)
        j = tl.program_id(0) * S.stretch + tl.arange(0, S.stretch)
        valid, flat = j < S.parameters, a.block + j
        grad = tl.load(flat + 3 * S.parameters, mask=valid, other=0.0) * shrink
        mean = tl.load(flat + S.parameters, mask=valid, other=0.0)
        square = tl.load(flat + 2 * S.parameters, mask=valid, other=0.0)
        x = tl.load(flat, mask=valid, other=0.0)
        eps = param(a, ADAM_EPS)
        x, mean, square = network.adam_step(x, mean, square, grad, rate, unbias, eps)
        tl.store(flat, x, mask=valid)
        tl.store(flat + S.parameters, mean, mask=valid)
        tl.store(flat + 2 * S.parameters, square, mask=valid)
        if tl.program_id(0) == 0:
            add_statistics(a, number, norm, S)


@gpu_kernel
def close(arrays, S: tl.constexpr):
    """The phase is over: counts what it learned, and the rollout begins anew."""
    a = arrays_of(arrays, tl.program_id(0).to(tl.int64), S)
    epochs = tl.load(a.count) * 0
    for epoch in range(S.epochs):
        epochs += tl.load(a.going + epoch, mask=epochs == epoch, other=0)
    tl.store(a.count + UPDATES, tl.load(a.count + UPDATES) + epochs * S.minibatches)
    tl.store(a.count + EPOCHS, tl.load(a.count + EPOCHS) + epochs)
    for start in range(0, S.blocks, 256):
        block = start + tl.arange(0, 256)
        tl.store(a.clock + block * 2, (block * 0).to(tl.int64), mask=block < S.blocks)
