"""Targets, losses and derivatives of actor-critic methods with several critics, as compiled code:
values are [C, B], one row a critic; of discrete actions [A, B], one row an action."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.distributions import Categorical

from tenfold.core.kernels import exp, kernel
from tenfold.core.pairs import pair

ZERO, HALF, ONE = np.float32(0), np.float32(0.5), np.float32(1)


def soft_target_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for critics, items in ((1, 1), (2, 64), (3, 7), (2, 1)):
        q, rest = rng.normal(size=(critics, items)), rng.normal(size=(2, items))
        discount = 0.9 * rng.integers(0, 2, items)
        numbers = [array.astype(dtype) for array in (q, *rest, discount)]
        for alpha in (0.0, 0.3):
            yield *numbers, np.float32(alpha), np.zeros(items, dtype)


def soft_target_reference(q, log_p, reward, discount, alpha, _y):
    """y = r + discount·(min_i Q_i(s', a') − α·log π(a' | s'))."""
    return reward + discount * (q.min(0) - alpha * log_p)


@pair(soft_target_reference, soft_target_examples, rtol=1e-5, atol=1e-6)
@kernel
def soft_target(q, log_p, reward, discount, alpha, y):
    share = np.float32(alpha)
    for b in range(y.size):
        y[b] = q[0, b]
    for c in range(1, q.shape[0]):
        for b in range(y.size):
            y[b] = min(y[b], q[c, b])
    for b in range(y.size):
        y[b] = reward[b] + discount[b] * (y[b] - share * log_p[b])
    return y


def critic_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for items in (1, 7, 64):
        q, y = 2 * rng.normal(size=(2, items)).astype(dtype)
        weight = rng.uniform(0.1, 1, items).astype(dtype)
        yield q, y, weight, 0.5, np.zeros_like(q), np.ones_like(q)


def critic_gradient_reference(q, y, weight, share, _by_q, error):
    """½·mean(w·(Q − y)²) by autograd."""
    leaf = torch.from_numpy(q).requires_grad_()
    loss = 0.5 * (torch.from_numpy(weight) * (leaf - torch.from_numpy(y)) ** 2).mean()
    loss.backward()
    return leaf.grad, error + share * np.abs(y - q), loss.detach(), q.mean()


@pair(critic_gradient_reference, critic_examples, rtol=1e-5, atol=1e-6)
@kernel
def critic_gradient(q, y, weight, share, by_q, error):
    """Of one critic: ∂loss/∂Q into `by_q`; `share` of the TD error's size is added to `error`.
    Returns these, the loss and the mean value."""
    per_item, critic_share = ONE / np.float32(q.size), np.float32(share)
    loss = mean = ZERO
    for b in range(q.size):
        td_error = q[b] - y[b]
        by_q[b] = weight[b] * td_error * per_item
        error[b] += critic_share * abs(td_error)
    for b in range(q.size):
        loss += HALF * by_q[b] * (q[b] - y[b])
        mean += q[b] * per_item
    return by_q, error, loss, mean


# which critic is the least: through it alone the actor learns


def order_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for critics, items in ((1, 5), (2, 64), (3, 9), (2, 1)):
        q = rng.normal(size=(critics, items)).astype(dtype)
        yield q, np.zeros(items, np.int64), np.zeros(critics + 1, np.int64)
    yield np.zeros((2, 3), dtype), np.zeros(3, np.int64), np.zeros(3, np.int64)


def order_by_least_reference(q, order, bounds):
    """Items in the order of the critic that values them least, and where each critic's begin. Of
    equal critics the first counts."""
    least = q.argmin(0)
    order[:] = np.argsort(least, kind="stable")
    bounds[:] = [np.sum(least < c) for c in range(len(q) + 1)]
    return order, bounds, q.min(0).mean(dtype=np.float64)


@pair(order_by_least_reference, order_examples, rtol=1e-5, atol=1e-6)
@kernel
def order_by_least(q, order, bounds):
    """Returns these and the mean of the least values."""
    position, total = 0, 0.0
    for c in range(q.shape[0]):
        bounds[c] = position
        for b in range(order.size):
            least = 0
            for other in range(1, q.shape[0]):
                least = other if q[other, b] < q[least, b] else least
            if least == c:
                order[position] = b
                position += 1
                total += q[c, b]
    bounds[q.shape[0]] = position
    return order, bounds, total / order.size


def column_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, items, picked in ((1, 1, 1), (5, 64, 30), (9, 33, 33), (4, 7, 0)):
        yield (
            rng.normal(size=rows * items).astype(dtype),
            items,
            rng.permutation(items)[:picked],
            np.zeros(rows * picked, dtype),
        )


def pick_columns_reference(matrix, items, which, _out):
    return matrix.reshape(-1, items)[:, which].ravel()


@pair(pick_columns_reference, column_examples)
@kernel
def pick_columns(matrix, items, which, out):
    """Columns of a matrix of `items` columns, as a matrix of their own."""
    if which.size:
        for row in range(out.size // which.size):
            source, target = row * items, row * which.size
            for j in range(which.size):
                out[target + j] = matrix[source + which[j]]
    return out


# discrete actions: expectations over all of them


def expectation_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Outputs of the actor and two critics; some of the policy's probabilities are tiny."""
    for actions, items, alpha in ((2, 1, 0.1), (5, 33, 0.5), (3, 8, 0.0), (1, 4, 1.0)):
        logits, first, second = rng.normal(size=(3, actions, items)).astype(dtype)
        logits[0] -= 30
        least = np.minimum(first, second)
        yield logits, least, np.float32(alpha), *np.zeros((2, items), dtype)


def policy_value_reference(logits, q, alpha, _value, _log_p):
    """V = Σ_a π(a)·(Q(a) − α·log π(a)); then Σ_a π(a)·log π(a)."""
    log_pi = torch.log_softmax(torch.from_numpy(logits).double(), 0)
    expected = (log_pi.exp() * log_pi).sum(0)
    return (log_pi.exp() * torch.from_numpy(q)).sum(0) - alpha * expected, expected


@pair(policy_value_reference, expectation_examples, rtol=1e-5, atol=1e-5)
@kernel
def policy_value(logits, q, alpha, value, log_p):
    """Into `value` and `log_p`, [B]."""
    for b in range(value.size):
        most, mass = log_mass(logits, b)
        mean = expected = ZERO
        for a in range(logits.shape[0]):
            log_pi = logits[a, b] - most - mass
            pi = exp(log_pi)
            mean += pi * q[a, b]
            expected += pi * log_pi
        value[b], log_p[b] = mean - np.float32(alpha) * expected, expected
    return value, log_p


@kernel
def log_mass(logits, b):
    """The largest logit of item b, and the logarithm of Σ exp(logit − largest)."""
    most = logits[0, b]
    for a in range(1, logits.shape[0]):
        most = max(most, logits[a, b])
    total = ZERO
    for a in range(logits.shape[0]):
        total += exp(logits[a, b] - most)
    return most, np.log(total)


def discrete_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for logits, q, alpha, _, _ in expectation_examples(rng, dtype):
        yield logits, q, alpha, np.zeros_like(logits)


def discrete_actor_gradient_reference(logits, q, alpha, _delta):
    """mean_b Σ_a π(a)·(α·log π(a) − Q(a)) by autograd."""
    leaf = torch.from_numpy(logits).requires_grad_()
    log_pi = torch.log_softmax(leaf, 0)
    loss = (log_pi.exp() * (alpha * log_pi - torch.from_numpy(q))).sum(0).mean()
    loss.backward()
    return leaf.grad, loss.detach()


@pair(discrete_actor_gradient_reference, discrete_examples, rtol=1e-4, atol=1e-6)
@kernel
def discrete_actor_gradient(logits, q, alpha, delta):
    """∂L/∂logit_k = π_k·(f_k − Σ_a π_a·f_a) / B with f = α·log π − Q into `delta`; returns it and
    the loss."""
    share, per_item, loss = np.float32(alpha), ONE / np.float32(logits.shape[1]), ZERO
    for b in range(logits.shape[1]):
        most, mass = log_mass(logits, b)
        mean = ZERO
        for a in range(logits.shape[0]):
            log_pi = logits[a, b] - most - mass
            delta[a, b] = share * log_pi - q[a, b]
            mean += exp(log_pi) * delta[a, b]
        for a in range(logits.shape[0]):
            delta[a, b] = exp(logits[a, b] - most - mass) * (delta[a, b] - mean) * per_item
        loss += mean * per_item
    return delta, loss


def temperature_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for items in (1, 64):
        yield rng.normal(size=items).astype(dtype), -1.5


def temperature_gradient_reference(log_p, target):
    """∂/∂log α of −mean(log α·(log π + H̄))."""
    leaf = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (-(leaf * (torch.from_numpy(log_p).double() + target)).mean()).backward()
    return leaf.grad


@pair(temperature_gradient_reference, temperature_examples, rtol=1e-6, atol=1e-6)
@kernel
def temperature_gradient(log_p, target):
    total = 0.0
    for b in range(log_p.size):
        total += log_p[b]
    return -(total / log_p.size + target)


def soft_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for batch, options, alpha in ((1, 1, 0.5), (5, 3, 0.2), (64, 7, 1.3)):
        logits, values = rng.normal(size=(2, batch, options)).astype(dtype)
        temperature = torch.tensor(alpha, dtype=getattr(torch, dtype))
        yield 2 * torch.from_numpy(logits), torch.from_numpy(values), temperature


def soft_value_reference(logits, values, alpha):
    """Item by item: V = E[Q] + α·H."""
    soft_values = []
    for row, q in zip(logits, values, strict=True):
        policy = Categorical(logits=row)
        soft_values.append((policy.probs * q).sum() + alpha * policy.entropy())
    return torch.stack(soft_values), torch.stack(
        [Categorical(logits=row).entropy() for row in logits]
    )


@pair(
    soft_value_reference,
    soft_examples,
    gradients=(0,),
    rtol=1e-5,
    atol=2e-6,
    dtypes=("float32", "float64"),
)
def soft_value(
    logits: torch.Tensor, values: torch.Tensor, alpha: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(Σ_a π(a)·(Q(a) − α·log π(a)) [B], the policy's entropy [B]) of logits and values [B, A]."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    entropy = -(p * log_p).sum(-1)
    return (p * values).sum(-1) + alpha * entropy, entropy
