"""RLlib's PPO update of masked heads: all minibatches of an iteration in one compiled call.

Policy and value are one network whose last output is the value. Of a minibatch the loss is the mean
over the rows that count of

    −min(r·A, clip(r, 1 ± ε)·A) + c_V·min((V − R)², v) − c_H·H(π) + c_KL·KL(π_old‖π)

with r = π(a) / π_old(a). It differs from the loss of `tenfold.algorithms.ppo`: the squared error
itself is cut at v, is not halved, and the divergence from the acting policy is part of the loss.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.integrations.masked.normalise import (
    normalise_reference,
    normalise_rows,
    normalise_rows_backward,
)
from tenfold.ops.activations import ELU, GELU, RELU, TANH
from tenfold.ops.adam import BETA1, BETA2, adam_numba, clip_numba
from tenfold.ops.head_tables import LOWEST, some_mask
from tenfold.ops.mlp import layer_total, mlp_backward, mlp_forward, mlp_of, parameter_count

LINE = 16  # numbers in a line of the cache
# statistics of an update's last minibatch
(
    POLICY_LOSS,
    VALUE_LOSS,
    VALUE_LOSS_UNCUT,
    ENTROPY,
    KL,
    NORM,
    NOT_FINITE,  # updates of the call whose gradient was not finite, and was replaced
    FOUND,
) = range(8)


class Network(NamedTuple):
    """Parameters, their gradient and Adam's moments, each one array; widths [inputs, hidden…,
    options + 1]; columns of the heads."""

    flat: np.ndarray
    grad: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    sizes: np.ndarray
    activation: int
    offsets: np.ndarray


class TrainRows(NamedTuple):
    """A row for each step: observation [N, D]; the acting policy's masked logits [N, M], the finite
    minimum where an option is forbidden; actions [N, C] and their log-probability; advantage and
    target; whether it counts, 1 or 0."""

    obs: np.ndarray
    old: np.ndarray
    actions: np.ndarray
    log_p: np.ndarray
    advantage: np.ndarray
    target: np.ndarray
    counts: np.ndarray


class PPOParams(NamedTuple):
    """The loss's settings and the optimiser's; a limit that does not hold is infinite."""

    clip: float
    value_clip: float
    value_weight: float
    entropy_weight: float
    kl_weight: float
    clip_norm: float
    lr: float
    eps: float


def examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Ragged and single heads, empty ones, networks with and without hidden layers, limits that
    hold and that do not, the first update and later ones."""
    for k, (heads, hidden, rule) in enumerate(
        (
            ((3, 5, 1, 4), (7, 6), PPOParams(0.2, 10.0, 1.0, 0.0, 0.2, np.inf, 1e-3, 1e-8)),
            ((3, 5, 1, 4), (9,), PPOParams(0.05, 0.3, 0.5, 0.02, 0.3, 0.1, 1e-2, 1e-8)),
            ((8,) * 3, (), PPOParams(0.3, 10.0, 1.0, 0.01, 0.0, 1e6, 1e-3, 1e-5)),
            ((2,), (5, 1, 4), PPOParams(0.2, np.inf, 1.0, 0.0, 1.0, 0.5, 1e-3, 1e-8)),
        )
    ):
        rows, options, activation = 23, sum(heads), (RELU, TANH, ELU, GELU)[k]
        sizes = np.array([4, *hidden, options + 1])
        size = parameter_count(sizes)
        flat, mean, square = (rng.normal(size=size).astype(dtype) * s for s in (0.5, 0.01, 0.1))
        if not k % 2:
            mean, square = np.zeros_like(mean), np.zeros_like(square)
        offsets = np.concatenate([[0], np.cumsum(heads)])
        obs = rng.normal(size=(rows, 4)).astype(dtype)
        now = mlp_of(torch.from_numpy(flat), sizes, activation, torch.from_numpy(obs))[:, :-1]
        old = now + torch.from_numpy(0.2 * rng.normal(size=(rows, options)).astype(dtype))
        old = torch.where(some_mask(rng, heads, (rows,), empty=k == 1), old, float(LOWEST))
        log_prob, prob, _ = normalise_reference(old, offsets)
        actions = np.stack(
            [
                torch.multinomial(part, 1, generator=torch.Generator().manual_seed(k))[:, 0].numpy()
                for part in prob.split(list(heads), 1)
            ],
            1,
        )
        places = torch.from_numpy(actions + offsets[:-1])
        target, advantage = rng.normal(size=(2, rows)).astype(dtype)
        counts = (rng.random(rows) < 0.9).astype(dtype)
        yield (
            Network(flat, np.zeros_like(flat), mean, square**2, sizes, activation, offsets),
            TrainRows(
                obs,
                old.numpy(),
                actions,
                log_prob.gather(1, places).sum(1).numpy(),
                advantage,
                target,
                counts,
            ),
            np.stack([rng.permutation(rows)[:9] for _ in range(3)]),
            0 if not k % 2 else 7,
            rule,
        )


def loss_reference(
    network: Network, rows: TrainRows, rule: PPOParams, parameters: torch.Tensor, places: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of the rows at `places`, and its terms as POLICY_LOSS … KL number them."""
    obs, old, actions, log_p, advantage, target, counts = (
        torch.from_numpy(column[places]) for column in rows
    )
    output = mlp_of(parameters, network.sizes, network.activation, obs)
    logits = torch.where(old > float(LOWEST), output[:, :-1], float(LOWEST))
    before, prob_before, _ = normalise_reference(old, network.offsets)
    now, _, entropy = normalise_reference(logits, network.offsets)
    of_action = now.gather(1, actions + torch.from_numpy(network.offsets[:-1])).sum(1)
    ratio = (of_action - log_p).exp()
    gain = torch.min(ratio * advantage, ratio.clamp(1 - rule.clip, 1 + rule.clip) * advantage)
    error = (output[:, -1] - target) ** 2
    cut = error.clamp(0, rule.value_clip)
    divergence = torch.where(prob_before > 0, prob_before * (before - now), 0.0).sum(1)

    def mean(x: torch.Tensor) -> torch.Tensor:
        return (counts * x).sum() / counts.sum()

    terms = torch.stack([-mean(gain), mean(cut), mean(error), mean(entropy), mean(divergence)])
    weights = [1, rule.value_weight, 0, -rule.entropy_weight, rule.kl_weight]
    return (terms * torch.tensor(weights)).sum(), terms.detach()


def learn_heads_reference(network, rows, order, step, rule):
    """By autograd and torch.optim.Adam, minibatch by minibatch."""
    flat, mean, square = (
        torch.from_numpy(array.copy()) for array in (network.flat, network.mean, network.square)
    )
    parameters = torch.nn.Parameter(flat)
    adam = torch.optim.Adam([parameters], rule.lr, (BETA1, BETA2), rule.eps)
    adam.state[parameters] = {
        "step": torch.tensor(float(step)),
        "exp_avg": mean,
        "exp_avg_sq": square,
    }
    stats = torch.zeros(FOUND)
    values = torch.zeros(order.shape[1])
    for places in order:
        adam.zero_grad()
        with torch.no_grad():
            obs = torch.from_numpy(rows.obs[places])
            values = mlp_of(parameters, network.sizes, network.activation, obs)[:, -1].clone()
        loss, terms = loss_reference(network, rows, rule, parameters, places)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([parameters], rule.clip_norm)
        stats[:NORM], stats[NORM] = terms, norm
        adam.step()
    return flat, mean, square, stats, values


@kernel
def gather_inputs(rows, places, inputs):
    """Observations of the rows at `places` into [D, S]; a line of the cache at a time."""
    for start in range(0, places.size, LINE):
        for j in range(inputs.shape[0]):
            for i in range(start, min(start + LINE, places.size)):
                inputs[j, i] = rows.obs[places[i], j]


@kernel
def gather_logits(before, places, output, logits):
    """The network's output [M + 1, S] as masked logits [S, M]."""
    for start in range(0, places.size, LINE):
        for m in range(logits.shape[1]):
            for i in range(start, min(start + LINE, places.size)):
                logits[i, m] = output[m, i]
    for i in range(places.size):
        p, row = before[places[i]], logits[i]
        for m in range(row.size):
            row[m] = row[m] if p[m] >= 0 else LOWEST


@kernel
def merge_gradients(by_logits, by_value, by_output):
    """Derivatives by logits [S, M] and values [S] as those by the network's output [M + 1, S]."""
    for i in range(by_value.size):
        for m in range(by_logits.shape[1]):
            by_output[m, i] = by_logits[i, m]
        by_output[by_logits.shape[1], i] = by_value[i]


@kernel(fastmath={"reassoc", "contract", "nsz"})
def cross_entropy(prob, log_prob, by_log_prob, factor):
    """Σ p·log π over the allowed options, and factor·p as its derivative by log π."""
    total = np.float32(0)
    for m in range(prob.size):
        p = max(prob[m], np.float32(0))
        by_log_prob[m] = factor * p
        # a forbidden option's log π is the finite minimum, and its p is 0
        total += p * log_prob[m]
    return total


@kernel
def loss_gradients(rows, places, offsets, rule, value, policy, acting, by, stats):
    """The loss's derivatives by log π, by the entropy and by the value, and its terms."""
    log_prob, entropy = policy
    before, old_entropy = acting
    by_log_prob, by_entropy, by_value = by
    total = np.float32(0)
    for i in range(places.size):
        total += rows.counts[places[i]]
    narrow, most = np.float32(rule.clip), np.float32(rule.value_clip)
    kl_weight, value_weight = np.float32(rule.kl_weight), np.float32(rule.value_weight)
    stats[:NORM] = 0
    for i in range(places.size):
        index = places[i]
        share = rows.counts[index] / total
        cross = cross_entropy(before[index], log_prob[i], by_log_prob[i], -kl_weight * share)
        log_p = np.float32(0)
        for c in range(offsets.size - 1):
            log_p += log_prob[i, offsets[c] + rows.actions[index, c]]
        ratio, gain = np.exp(log_p - rows.log_p[index]), rows.advantage[index]
        bounded = min(max(ratio, np.float32(1) - narrow), np.float32(1) + narrow)
        # NaN stays NaN, and shows in the gradient
        slope = np.float32(0) if ratio * gain > bounded * gain else -ratio * gain * share
        for c in range(offsets.size - 1):
            by_log_prob[i, offsets[c] + rows.actions[index, c]] += slope
        by_entropy[i] = -np.float32(rule.entropy_weight) * share
        error = value[i] - rows.target[index]
        slope = np.float32(2) * error * value_weight * share
        by_value[i] = np.float32(0) if error * error > most else slope
        stats[POLICY_LOSS] -= share * min(ratio * gain, bounded * gain)
        stats[VALUE_LOSS] += share * min(error * error, most)
        stats[VALUE_LOSS_UNCUT] += share * error * error
        stats[ENTROPY] += share * entropy[i]
        stats[KL] -= share * (old_entropy[index] + cross)


@kernel
def space(rows, columns):
    return np.empty((rows, columns), np.float32)


@kernel
def replace_nonfinite(grad):
    """As torch.nan_to_num: no number becomes 0, an infinite one the largest."""
    largest = np.finfo(np.float32).max
    for j in range(grad.size):
        if np.isnan(grad[j]):
            grad[j] = 0
        elif np.isinf(grad[j]):
            grad[j] = largest if grad[j] > 0 else -largest


@pair(learn_heads_reference, examples, rtol=1e-3, atol=2e-5)
@kernel
def learn_heads(network, rows, order, step, rule):
    """Updates from the rows order[u] [U, S], one after another, in place; `step` updates were made
    before. Returns parameters, moments, statistics of the last minibatch, and its values."""
    flat, grad, sizes, offsets = network.flat, network.grad, network.sizes, network.offsets
    count, options, size = rows.old.shape[0], rows.old.shape[1], order.shape[1]
    old_log, old_prob = space(count, options), space(count, options)
    old_entropy = np.empty(count, np.float32)
    normalise_rows(rows.old, offsets, old_log, old_prob, old_entropy)
    # −1 where an option is forbidden: one array to look into instead of two
    before = np.where(rows.old > LOWEST, old_prob, np.float32(-1))
    hidden = np.empty(layer_total(sizes, network.activation) * size, np.float32)
    delta, turned = np.empty_like(hidden), np.empty(size * sizes.max(), np.float32)
    inputs = np.empty((sizes[0], size), np.float32)
    logits, by_logits = space(size, options), space(size, options)
    log_prob, prob = space(size, options), space(size, options)
    by_log_prob = space(size, options)
    by_prob = np.zeros(
        (size, options), np.float32
    )  # the loss names no probability but by its logarithm
    entropy, by_entropy = np.empty(size, np.float32), np.empty(size, np.float32)
    by_value = np.empty(size, np.float32)
    by_output = delta[delta.size - (options + 1) * size :].reshape(options + 1, size)
    stats, values = np.zeros(FOUND), np.empty(size, np.float32)
    for u in range(order.shape[0]):
        places = order[u]
        gather_inputs(rows, places, inputs)
        output = mlp_forward(flat, sizes, network.activation, inputs, hidden)
        gather_logits(before, places, output, logits)
        for i in range(size):
            values[i] = output[options, i]
        normalise_rows(logits, offsets, log_prob, prob, entropy)
        policy, acting = (log_prob, entropy), (before, old_entropy)
        by = by_log_prob, by_entropy, by_value
        loss_gradients(rows, places, offsets, rule, values, policy, acting, by, stats)
        normalise_rows_backward(
            logits, offsets, log_prob, prob, by_log_prob, by_prob, by_entropy, by_logits
        )
        merge_gradients(by_logits, by_value, by_output)
        mlp_backward(flat, sizes, network.activation, inputs, hidden, delta, turned, grad)
        stats[NORM] = clip_numba(grad, rule.clip_norm)[1]
        if not np.isfinite(stats[NORM]):
            replace_nonfinite(grad)
            stats[NOT_FINITE] += 1
        moments = network.mean, network.square
        adam_numba(flat, grad, *moments, step + u + 1, rule.lr, rule.eps, 0.0)
    return flat, network.mean, network.square, stats, values
