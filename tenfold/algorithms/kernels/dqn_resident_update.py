"""Q-learning of one seed as ONE Triton program: act, environment, replay, forward, backward, clip,
Adam, target network, for thousands of rounds a launch (`train`). Networks stay in registers; the
replay memory and the counters are in the GPU's memory, each seed's own.

Here is learning: a batch drawn from the replay memory, its gradient, clipping, Adam, the target
network, new priorities. It does what the plain engine does, from the same random numbers in the
same order.
"""

import triton.language as tl

from tenfold.algorithms.kernels.dqn_resident_arrays import (
    ALPHA,
    BETA,
    CLIP,
    EPS,
    GAMMA,
    LR,
    PRIORITY_EPS,
    REPLAY,
    SCALE,
    TAU,
    Counts,
    Nets,
    arrays_of,
    load_counts,
    load_envs,
    load_nets,
    store_counts,
    store_envs,
    store_nets,
)
from tenfold.algorithms.kernels.dqn_resident_play import (
    IS_STEP,
    IS_TERMINATED,
    choose,
    next_position,
    play,
)
from tenfold.memory.replay_rows import ATTEMPTS
from tenfold.ops.device import network, sampling, td
from tenfold.ops.device.language import gpu_kernel, schedule_at, uniform

TRIES = tl.constexpr(ATTEMPTS)
NORM_EVERY = tl.constexpr(16)  # updates


@gpu_kernel
def draw_ready(a, first, item, valid, most, S: tl.constexpr):
    """Rows drawn uniformly from those that are ready; `first` counts draws before these, `most` is
    the furthest head."""
    used = tl.minimum(most + 1, S.length).to(tl.int32)
    stream, attempt = tl.load(a.streams + REPLAY), 0
    row = drawn_row(stream, first, item, attempt, used, S)
    wanting = valid & (tl.load(a.ready + row, mask=valid, other=1) == 0)
    while tl.max(wanting.to(tl.int32), 0) > 0:
        attempt += 1
        choice = drawn_row(stream, first, item, attempt, used, S)
        choice = tl.where(attempt < TRIES, choice, (row + 1) % (S.length * S.envs))
        row = tl.where(wanting, choice, row)
        wanting = wanting & (tl.load(a.ready + row, mask=wanting, other=1) == 0)
    return row


@gpu_kernel
def drawn_row(stream, first, item, attempt, used, S: tl.constexpr):
    """Of the `used` rows of all lanes, whether they are ready or not."""
    u = uniform(stream, (first + item) * TRIES + attempt)
    choice = (u * used.to(tl.float64) * S.envs).to(tl.int32)
    if S.envs > 1:
        choice = choice // used * S.length + choice % used
    return choice


@gpu_kernel
def draw_prioritized(a, first, item, valid, S: tl.constexpr):
    """(rows, their priorities): item i falls into the i-th of `batch` equal parts of the mass."""
    u = uniform(tl.load(a.streams + REPLAY), first + item)
    mass = (item.to(tl.float64) + u) / S.batch * tl.load(a.tree + 1)
    row = sampling.find(a.tree, S.leaves, tl.where(valid, mass, 0.0))
    return row, tl.load(a.tree + S.leaves + row)


@gpu_kernel
def least_priority(a, first, S: tl.constexpr):
    """Of the rows that are drawn for a batch."""
    least = tl.full((), float("inf"), tl.float64)
    for chunk in range((S.batch + S.rows - 1) // S.rows):
        item = chunk * S.rows + tl.arange(0, S.rows)
        _, priority = draw_prioritized(a, first, item, item < S.batch, S)
        least = tl.minimum(tl.min(tl.where(item < S.batch, priority, float("inf")), 0), least)
    return least


@gpu_kernel
def ahead(a, row, valid, S: tl.constexpr):
    """(n-step return, discount after it, row of the observation there)."""
    lane = row * 0
    if S.envs > 1:
        lane = row // S.length * S.length
    total, discount = row.to(tl.float64) * 0.0, row.to(tl.float64) * 0.0 + 1.0
    gamma, going = tl.load(a.params + GAMMA), valid
    for _ in range(S.n_step):
        total += tl.where(going, discount * tl.load(a.reward + row, mask=going, other=0.0), 0.0)
        kind = tl.load(a.kind + row, mask=going, other=IS_STEP)
        discount = tl.where(going, discount * gamma, discount)
        discount = tl.where(going & (kind == IS_TERMINATED), 0.0, discount)
        row = tl.where(going, tl.where(row + 1 == lane + S.length, lane, row + 1), row)
        going = going & (kind == IS_STEP)
    return total.to(tl.float32), discount.to(tl.float32), row


@gpu_kernel
def load_obs(a, row, valid, scale, S: tl.constexpr):
    column = tl.arange(0, S.net.pads[0])[None, :]
    mask = valid[:, None] & (column < S.task.obs)
    return scale * tl.load(a.obs + row[:, None] * S.task.obs + column, mask=mask, other=0.0)


@gpu_kernel
def gradient(a, nets, first, chunk, most, least, beta, S: tl.constexpr):
    """(gradient; loss, Q and |TD error| of each row) of a part of the batch."""
    N: tl.constexpr = S.net
    V: tl.constexpr = S.outputs
    item = chunk * S.rows + tl.arange(0, S.rows)
    valid = item < S.batch
    weight = tl.where(valid, 1.0, 0.0)
    if S.prioritized:
        row, priority = draw_prioritized(a, first, item, valid, S)
        ratio = tl.where(valid, least / priority, 1.0)
        weight = tl.where(valid, tl.exp(tl.log(ratio) * beta), 0.0).to(tl.float32)
    else:
        row = draw_ready(a, first, item, valid, most, S)
    reward, discount, beyond = ahead(a, row, valid, S)
    scale = tl.load(a.params + SCALE).to(tl.float32)
    obs, next_obs = load_obs(a, row, valid, scale, S), load_obs(a, beyond, valid, scale, S)
    next_values = td.values(nets.target, next_obs, S)
    chooser = next_values
    if V.double:
        chooser = td.values(nets.online, next_obs, S)
    outputs = network.forward(nets.online, obs, N)
    delta, error, loss, q = td.gradient(
        td.joined(outputs[N.layers], S),
        next_values,
        chooser,
        tl.load(a.action + row, mask=valid, other=0),
        reward,
        discount,
        weight,
        S.batch,
        V,
    )
    grads = network.backward(nets.online, outputs, td.parted(delta, S), N)
    if S.prioritized:
        tl.store(a.batch_row + item, row, mask=valid)
        tl.store(a.batch_error + item, error, mask=valid)
    return grads, loss, q, tl.abs(error)


@gpu_kernel
def gradient_of_batch(a, nets, counts, most, S: tl.constexpr):
    """What `gradient` returns, of the whole batch."""
    N: tl.constexpr = S.net
    first = counts.batches * S.batch
    least = tl.full((), 0.0, tl.float64)
    beta = schedule_at(a.params + BETA, counts.step, S.schedules[2])
    if S.prioritized:
        least = least_priority(a, first, S)
    if S.batch <= S.rows:
        return gradient(a, nets, first, 0, most, least, beta, S)
    else:
        nothing = tl.arange(0, S.rows) * 0.0
        grads, loss, q, error = network.zeros_like(nets.online, N), nothing, nothing, nothing
        for chunk in range((S.batch + S.rows - 1) // S.rows):
            part, more, more_q, more_error = gradient(a, nets, first, chunk, most, least, beta, S)
            grads = network.sum_of(grads, part, N)
            loss, q, error = loss + more, q + more_q, error + more_error
        return grads, loss, q, error


@gpu_kernel
def prioritise(a, top, S: tl.constexpr):
    """New priorities for the rows of the last batch; of equal rows the last one counts. Returns the
    largest so far."""
    tl.debug_barrier()
    alpha, eps = tl.load(a.params + ALPHA), tl.load(a.params + PRIORITY_EPS)
    for chunk in range((S.batch + S.rows - 1) // S.rows):
        item = chunk * S.rows + tl.arange(0, S.rows)
        valid = item < S.batch
        row = tl.load(a.batch_row + item, mask=valid, other=-1)
        error = tl.load(a.batch_error + item, mask=valid, other=0.0).to(tl.float64)
        value = tl.exp(alpha * tl.log(tl.abs(error) + eps))
        top = tl.maximum(top, tl.max(tl.where(valid, value, 0.0), 0))
        sampling.put(a.tree, S.leaves, row, value, valid & sampling.is_last(row, valid, S.rows))
    return top


@gpu_kernel
def update(a, nets, counts, sums, most, S: tl.constexpr):
    """One gradient update, as the plain engine makes it."""
    N: tl.constexpr = S.net
    grads, loss, q, error = gradient_of_batch(a, nets, counts, most, S)
    shrink, norm, norms = 1.0, 0.0, 0.0
    if S.clips:
        norm, norms = tl.sqrt(network.sum_of_squares(grads, N)), 1.0
        shrink = tl.minimum(tl.load(a.params + CLIP).to(tl.float32) / (norm + 1e-6), 1.0)
    elif counts.updates % NORM_EVERY == 0:  # for the metrics: it takes as long as a product
        norm, norms = tl.sqrt(network.sum_of_squares(grads, N)), 1.0
    power1, power2 = counts.power1 * network.KEEP1, counts.power2 * network.KEEP2
    mean, square, moments = nets.mean, nets.square, a.block + 2 * N.parameters
    if S.moments_in_memory:
        mean, square = network.load(moments, N), network.load(moments + N.parameters, N)
        tl.debug_barrier()  # every thread has read what one of them is about to write
    online, mean, square = network.adam(
        nets.online,
        grads,
        mean,
        square,
        shrink,
        power1,
        power2,
        schedule_at(a.params + LR, counts.step, S.schedules[0]),
        tl.load(a.params + EPS).to(tl.float32),
        N,
    )
    updates = counts.updates + 1
    if S.hard:
        target = network.where(updates.to(tl.int32) % S.hard == 0, online, nets.target, N)
    else:
        tau = tl.load(a.params + TAU).to(tl.float32)
        target = network.moved_towards(nets.target, online, tau, N)
    top = counts.top
    if S.prioritized:
        top = prioritise(a, top, S)
    counts = Counts(
        counts.step,
        counts.rounds,
        updates,
        counts.ready,
        counts.batches + 1,
        counts.noted,
        power1,
        power2,
        top,
    )
    sums = (
        sums[0] + loss,
        sums[1] + q,
        sums[2] + error,
        sums[3] + norm,
        sums[4] + norms,
    )
    if S.moments_in_memory:
        network.store(moments, mean, N)
        network.store(moments + N.parameters, square, N)
        mean, square = 0, 0
    return Nets(online, target, mean, square), counts, sums


# rounds


@gpu_kernel
def store_sums(a, sums, made, S: tl.constexpr):
    """Of the statistics since they were last asked for, and of how many updates; the gradient's
    norm is that of a sample."""
    mean = sums[3] / tl.maximum(sums[4], 1.0)
    tl.store(a.sums, tl.load(a.sums) + tl.sum(sums[0], 0))
    tl.store(a.sums + 1, tl.load(a.sums + 1) + tl.sum(sums[1], 0) / S.batch)
    tl.store(a.sums + 2, tl.load(a.sums + 2) + tl.sum(sums[2], 0) / S.batch)
    tl.store(a.sums + 3, tl.load(a.sums + 3) + mean * made.to(tl.float32))
    tl.store(a.sums + 4, tl.load(a.sums + 4) + made.to(tl.float32))


@gpu_kernel
def due_after(step, ready, S: tl.constexpr):
    """Updates after the round that began at `step` and left so many rows ready."""
    after = step + S.envs
    due = (after // S.every - step // S.every) * S.updates
    return tl.where((after > S.starts) & (ready > 0), due, 0)


@gpu_kernel(do_not_specialize=["rounds"])
def train(arrays, rounds, STEADY: tl.constexpr, S: tl.constexpr):
    """So many rounds of every seed, one program each. STEADY: every round is followed by one
    update; without a loop inside the loop a third fewer instructions do it."""
    a = arrays_of(arrays, tl.program_id(0).to(tl.int64), S)
    nets, lanes, counts = load_nets(a, S), load_envs(a, S), load_counts(a)
    scale = tl.load(a.params + SCALE).to(tl.float32)
    nothing, before = tl.arange(0, S.rows) * 0.0, counts.updates
    sums = (nothing, nothing, nothing, 0.0, 0.0)
    for _ in range(rounds):
        coming = lanes.lane * S.length + next_position(lanes.position, 1, S)
        ready_next = tl.load(a.ready + coming, mask=lanes.live, other=0)
        values = td.values(nets.online, lanes.obs * scale, S)
        action = choose(a, values, counts, lanes.lane, S)
        lanes, ready, noted = play(a, lanes, counts, action, ready_next, S)
        due = due_after(counts.step, ready, S)
        counts = Counts(
            counts.step + S.envs,
            counts.rounds + 1,
            counts.updates,
            ready,
            counts.batches,
            noted,
            counts.power1,
            counts.power2,
            counts.top,
        )
        most = lanes.head
        if S.envs > 1:
            most = tl.max(tl.where(lanes.live, most, 0), 0)
        if STEADY:
            nets, counts, sums = update(a, nets, counts, sums, most, S)
        else:
            for _update in range(due):
                nets, counts, sums = update(a, nets, counts, sums, most, S)
    store_nets(a, nets, S)
    store_envs(a, lanes, S)
    store_counts(a, counts)
    store_sums(a, sums, counts.updates - before, S)
