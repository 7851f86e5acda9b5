"""Learning of the resident engine: for each minibatch partial gradients → their sum and its squares
→ clipping and Adam. Deterministic: sums have one order, nothing is added
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
    EPOCH_KL,
    EPOCHS,
    LR,
    MINIBATCH,
    MINIBATCH_KL,
    OBS_SCALE,
    PHASE,
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
from tenfold.ops.minibatch_loss import CLIPPED, EPSILON, KL, POLICY_LOSS, VALUE_LOSS
from tenfold.ops.minibatch_loss import ENTROPY as ENTROPY_INDEX

AT_ONCE = tl.constexpr(1024)  # advantages that are added at a time
LEAST = tl.constexpr(EPSILON)
AT_POLICY, AT_VALUE, AT_ENTROPY, AT_KL, AT_CLIPPED = (
    tl.constexpr(index) for index in (POLICY_LOSS, VALUE_LOSS, ENTROPY_INDEX, KL, CLIPPED)
)


@gpu_kernel
def scaling(a, number, S: tl.constexpr):
    """(mean, 1 / deviation) of all advantages of the phase or of minibatch `number`, or (0, 1)."""
    mean, inverse = 0.0, 1.0
    if S.scales == MINIBATCH:
        first, last, order = minibatch(a, number, S)
        total, square = tl.full((), 0.0, tl.float64), tl.full((), 0.0, tl.float64)
        for start in range(first, last, AT_ONCE):
            item = start + tl.arange(0, AT_ONCE)
            index = tl.load(order + item, mask=item < last, other=0)
            gain = tl.load(a.advantage + index, mask=item < last, other=0.0)
            total += tl.sum(gain.to(tl.float64), 0)
        count = (last - first).to(tl.float64)
        middle = total / count
        for start in range(first, last, AT_ONCE):
            item = start + tl.arange(0, AT_ONCE)
            index = tl.load(order + item, mask=item < last, other=0)
            gain = tl.load(a.advantage + index, mask=item < last, other=0.0).to(tl.float64)
            far = tl.where(item < last, gain - middle, 0.0)
            square += tl.sum(far * far, 0)
        deviation = tl.sqrt(square / tl.maximum(count - 1.0, 1.0))
        mean = tl.where(count > 1.0, middle, 0.0).to(tl.float32)
        inverse = tl.where(count > 1.0, 1.0 / (deviation + LEAST), 1.0).to(tl.float32)
    if S.scales == PHASE:
        programs: tl.constexpr = (S.envs + S.columns - 1) // S.columns
        total, square = tl.full((), 0.0, tl.float64), tl.full((), 0.0, tl.float64)
        for start in range(0, programs, 256):
            part = start + tl.arange(0, 256)
            total += tl.sum(tl.load(a.moments + part * 2, mask=part < programs, other=0.0), 0)
            square += tl.sum(tl.load(a.moments + part * 2 + 1, mask=part < programs, other=0.0), 0)
        count: tl.constexpr = S.horizon * S.envs
        middle = total / count
        deviation = tl.sqrt(tl.maximum(square / count - middle * middle, 0.0))
        mean, inverse = middle.to(tl.float32), (1.0 / (deviation + LEAST)).to(tl.float32)
    return mean, inverse


@gpu_kernel
def minibatch(a, number, S: tl.constexpr):
    """Minibatch `number` of the phase: its first place in an epoch's order, the one behind its last
    place, and that order."""
    all_rows: tl.constexpr = S.horizon * S.envs
    part = tl.load(a.count) * 0 + number % S.minibatches  # as wide
    if S.size:
        first = part * S.size
        last = tl.minimum(first + S.size, all_rows)
    else:
        first, last = all_rows * part // S.minibatches, all_rows * (part + 1) // S.minibatches
    return first, last, a.order + number // S.minibatches * all_rows


@gpu_kernel
def setting(a, place: tl.constexpr, KIND: tl.constexpr, S: tl.constexpr):
    """A schedule at the end of the rollout."""
    return schedule_at(a.params + place, tl.load(a.clock + 1) * S.envs, KIND)


@gpu_kernel
def drawn_rows(a, number, chunk, S: tl.constexpr):
    """Of a chunk of this program's part of minibatch `number`: (rows of the rollout, which are
    there, one row's share of a mean)."""
    first, last, order = minibatch(a, number, S)
    item = first + ((tl.program_id(0) // 2) * S.chunks + chunk) * S.rows + tl.arange(0, S.rows)
    valid = item < last
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
    mean, inverse = scaling(a, number, S)
    scale, weight = param(a, OBS_SCALE), param(a, ENTROPY)
    clip = setting(a, CLIP, S.schedules[1], S).to(tl.float32)
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
    scale, weight = param(a, OBS_SCALE), param(a, VALUE_WEIGHT)
    clip = setting(a, VALUE_CLIP, S.schedules[2], S).to(tl.float32)
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
        square = tl.maximum(error * error, other * other)
        # moved too far: it no longer counts
        counts = (tl.abs(moved) <= clip) | (other * other <= error * error)
        if S.clipped_alone:
            square, counts = other * other, tl.abs(moved) <= clip
        slope = tl.where(counts, weight * share * error, 0.0)
        delta = tl.where(column == 0, slope[:, None], 0.0)
        grads = network.sum_of(grads, network.backward(layers, outputs, delta, N), N)
        loss_sum += share * 0.5 * square
    part = tl.program_id(0) // 2
    network.store(a.partial + part * S.parameters + first, grads, N)
    tl.store(a.statistics + part * 5 + AT_VALUE, tl.sum(loss_sum, 0))


@gpu_kernel
def is_due(a, number, S: tl.constexpr):
    """Whether minibatch `number` of the phase is to be learned from."""
    due = number >= 0
    if S.stops:
        due = tl.load(a.going + number) > 0
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
def statistics_of(a, S: tl.constexpr):
    """The minibatch's statistics, and which of them is which."""
    kind, statistics = tl.arange(0, 8), tl.arange(0, 8) * 0.0
    for start in range(0, S.splits, S.splits_at_once):
        part = (start + tl.arange(0, S.splits_at_once))[:, None]
        valid = (part < S.splits) & (kind[None, :] < 5)
        statistics += tl.sum(
            tl.load(a.statistics + part * 5 + kind[None, :], mask=valid, other=0.0), 0
        )
    return statistics, kind


@gpu_kernel
def divergence(a, S: tl.constexpr):
    """The minibatch's mean KL divergence."""
    statistics, kind = statistics_of(a, S)
    return tl.sum(tl.where(kind == AT_KL, statistics, 0.0), 0).to(tl.float64)


@gpu_kernel
def add_statistics(a, number, norm, S: tl.constexpr):
    """Adds the minibatch's statistics; stores whether there is another one."""
    statistics, kind = statistics_of(a, S)
    before = tl.load(a.sums + kind, mask=kind < 5, other=0.0)
    tl.store(a.sums + kind, before + statistics.to(tl.float64), mask=kind < 5)
    tl.store(a.sums + 5, tl.load(a.sums + 5) + norm.to(tl.float64))
    tl.store(a.sums + 6, tl.load(a.sums + 6) + 1.0)
    epoch, part = number // S.minibatches, number % S.minibatches
    moved = tl.load(a.moved + epoch, mask=part > 0, other=0.0) + divergence(a, S) / S.minibatches
    tl.store(a.moved + epoch, moved)
    going = (moved <= tl.load(a.params + EPOCH_KL)) | (part < S.minibatches - 1)
    tl.store(a.going + number + 1, going.to(tl.int32))
    tl.store(a.made, (number + 1).to(tl.int64))


@gpu_kernel(do_not_specialize=["number"])
def apply(arrays, number, S: tl.constexpr):
    """Clipping by the gradient's norm, and a step of Adam, for a stretch of the parameters."""
    a = arrays_of(arrays, tl.program_id(1).to(tl.int64), S)
    due = is_due(a, number, S)
    if S.stops:
        due = due & (divergence(a, S) <= tl.load(a.params + MINIBATCH_KL))
        tl.store(a.going + number + 1, 0, mask=(tl.program_id(0) == 0) & (due == 0))
    if due:
        square = tl.full((), 0.0, tl.float32)
        for start in range(0, S.stretches, 256):
            part = start + tl.arange(0, 256)
            square += tl.sum(tl.load(a.squares + part, mask=part < S.stretches, other=0.0), 0)
        norm = tl.sqrt(square)
        shrink = tl.minimum(param(a, CLIP_NORM) / (norm + 1e-6), 1.0)
        step = (tl.load(a.count + UPDATES) + number + 1).to(tl.float64)
        lr = setting(a, LR, S.schedules[0], S)
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
        epochs += tl.load(a.going + epoch * S.minibatches)
    tl.store(a.count + UPDATES, tl.load(a.count + UPDATES) + tl.load(a.made))
    tl.store(a.count + EPOCHS, tl.load(a.count + EPOCHS) + epochs)
    for start in range(0, S.blocks, 256):
        block = start + tl.arange(0, 256)
        tl.store(a.clock + block * 2, (block * 0).to(tl.int64), mask=block < S.blocks)
