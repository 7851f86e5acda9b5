"""Advantages and returns of a rollout: generalised advantage estimation, λ-returns, n-step returns.
One pass backwards in time.

All take (reward, discount, value, next_value, boundary, λ or n), time-major [T, B]:
  discount_t    γ, or 0 where the episode terminated
  boundary_t    1 where the episode ended for any reason: nothing flows over it
  value_t       V(s_t)
  next_value_t  V of the TRUE next observation: at a time limit that of the final one, never of the
  next episode's first

`discount` and `boundary` say how many dimensions lie in front: [T, B], or [M, T, B] with members.
The other three have the same shape, or one dimension more at the end: K reward components that
share the episodes. So [T, B, K] with discount [T, B] is components, and [M, T, B] with discount [M,
T, B] is members; discount [T] is one environment. The end of the rollout cuts like a time limit.

NumPy arrays and tensors alike, without gradient; tensors that are not on the CPU are scanned where
they are, by `gae` on a GPU with Triton in one launch. The …_into kernels serve other compiled code:
[T, B] and C-contiguous, no allocation.
"""

from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.device import on_gpu
from tenfold.ops.rollouts import dispatched, everywhere, rollout_examples, time_first

EQUAL = {"rtol": 1e-5, "atol": 1e-5, "dtypes": ("float32", "float64")}
GAE_EXAMPLES = rollout_examples((0.0, 0.95, 1.0))
LAMBDA_EXAMPLES = rollout_examples((0.0, 0.9, 1.0))
N_STEP_EXAMPLES = rollout_examples((1, 3, 100))


# the definitions


@everywhere
def gae_reference(reward, discount, value, next_value, boundary, lam):
    """A_t = δ_t + λ·discount_t·(1 − boundary_t)·A_{t+1},   δ_t = r_t + discount_t·V(s'_t) −
    V(s_t)."""
    advantage = np.zeros_like(reward)
    running = np.zeros_like(reward[0])
    for t in reversed(range(len(reward))):
        delta = reward[t] + discount[t] * next_value[t] - value[t]
        running = delta + lam * discount[t] * (1 - boundary[t]) * running
        advantage[t] = running
    return advantage


def steps_left(boundary, t: int, b: int) -> int:
    """How many steps from t on belong to its episode and to the rollout; the one that ends the
    episode counts."""
    for i in range(t, len(boundary)):
        if boundary[i, b]:
            return i - t + 1
    return len(boundary) - t


def partial_return(reward, discount, next_value, t: int, b: int, n: int):
    """G_{t:t+n} = r_t + γ·r_{t+1} + … + γⁿ⁻¹·r_{t+n−1} + γⁿ·V(s_{t+n}); γ is the discount of each
    step."""
    weights = [np.prod(discount[t : t + i, b]) for i in range(n + 1)]
    return (
        sum(weights[i] * reward[t + i, b] for i in range(n)) + weights[n] * next_value[t + n - 1, b]
    )


@everywhere
def n_step_returns_reference(reward, discount, value, next_value, boundary, n):
    """G_{t:t+m}, where m is n, or fewer where the episode or the rollout ends before."""
    returns = np.zeros_like(reward)
    for t, b in np.ndindex(*reward.shape):
        returns[t, b] = partial_return(
            reward, discount, next_value, t, b, min(n, steps_left(boundary, t, b))
        )
    return returns


@everywhere
def lambda_returns_reference(reward, discount, value, next_value, boundary, lam):
    """G^λ_t = (1 − λ)·Σ_{n=1}^{N−1} λⁿ⁻¹·G_{t:t+n} + λᴺ⁻¹·G_{t:t+N}, N the steps left (Sutton &
    Barto, 2018, 12.3)."""
    returns = np.zeros_like(reward)
    for t, b in np.ndindex(*reward.shape):
        last = steps_left(boundary, t, b)
        partial = [
            partial_return(reward, discount, next_value, t, b, n) for n in range(1, last + 1)
        ]
        returns[t, b] = (1 - lam) * sum(lam**i * partial[i] for i in range(last - 1)) + lam ** (
            last - 1
        ) * partial[-1]
    return returns


# compiled
# Rows are walked through flat views with unsigned indices: a signed one might count from the end,
# and the test for that triples the time. Row t is [t·B, (t + 1)·B), and what came later lies B
# further on.


@kernel
def gae_into(reward, discount, value, next_value, boundary, lam, out):
    """`gae` for [T, B] into `out`, which must not overlap the rest."""
    number, batch = out.dtype.type, np.uint64(out.shape[1])
    keep, one = number(lam), number(1)
    r, d, v, beyond = (
        reward.reshape(-1),
        discount.reshape(-1),
        value.reshape(-1),
        next_value.reshape(-1),
    )
    end, a = boundary.reshape(-1), out.reshape(-1)
    row = np.uint64(a.size) - batch
    for i in range(row, row + batch):
        a[i] = r[i] + d[i] * beyond[i] - v[i]
    while row > 0:
        row -= batch
        for i in range(row, row + batch):
            a[i] = r[i] + d[i] * (beyond[i] + keep * (one - number(end[i])) * a[i + batch]) - v[i]
    return out


@kernel
def lambda_returns_into(reward, discount, value, next_value, boundary, lam, out):
    """`lambda_returns` for [T, B] into `out`: G_t = r_t + discount_t·((1 − f)·V' + f·G_{t+1}), f =
    λ·(1 − boundary_t)."""
    number, batch = out.dtype.type, np.uint64(out.shape[1])
    keep, one = number(lam), number(1)
    r, d, beyond, end, g = (
        reward.reshape(-1),
        discount.reshape(-1),
        next_value.reshape(-1),
        boundary.reshape(-1),
        out.reshape(-1),
    )
    row = np.uint64(g.size) - batch
    for i in range(row, row + batch):
        g[i] = r[i] + d[i] * beyond[i]
    while row > 0:
        row -= batch
        for i in range(row, row + batch):
            flow = keep * (one - number(end[i]))
            g[i] = r[i] + d[i] * ((one - flow) * beyond[i] + flow * g[i + batch])
    return out


@kernel
def n_step_returns_into(reward, discount, value, next_value, boundary, n, out):
    """`n_step_returns` for [T, B] into `out`: Horner's rule over n steps for each t, or one pass
    where n reaches the end."""
    time, batch = out.shape[0], np.uint64(out.shape[1])
    if n >= time:
        return lambda_returns_into(reward, discount, value, next_value, boundary, 1.0, out)
    number = out.dtype.type
    one = number(1)
    r, d, beyond, end, g = (
        reward.reshape(-1),
        discount.reshape(-1),
        next_value.reshape(-1),
        boundary.reshape(-1),
        out.reshape(-1),
    )
    for t in range(time):
        row, ahead = np.uint64(t) * batch, np.uint64(min(n, time - t) - 1) * batch
        for i in range(row, row + batch):
            g[i] = r[i + ahead] + d[i + ahead] * beyond[i + ahead]
        while ahead > 0:
            ahead -= batch
            for i in range(row, row + batch):
                k = i + ahead
                ends = number(end[k])
                g[i] = r[k] + d[k] * (ends * beyond[k] + (one - ends) * g[i])
    return out


@pair(gae_reference, GAE_EXAMPLES, **EQUAL)
def gae(
    reward: Any,
    discount: Any,
    value: Any,
    next_value: Any,
    boundary: Any,
    lam: float,
    out: Any = None,
) -> Any:
    """A_t = δ_t + λ·discount_t·(1 − boundary_t)·A_{t+1},   δ_t = r_t + discount_t·V(s'_t) − V(s_t)
    (Schulman et al., 2016).

    Shapes [T, B], [M, T, B] with members, or [T] of one environment; `discount` is γ, or 0 where
    the episode terminated; `boundary` is 1 where it ended for any reason; `next_value` is that of
    the true next observation.
    """
    if on_gpu(reward):
        from tenfold.ops.device.returns import gae_on_gpu

        return gae_on_gpu(reward, discount, value, next_value, boundary, float(lam), out)
    return dispatched(
        gae_into, gae_scan, (reward, discount, value, next_value, boundary), float(lam), out
    )


@pair(lambda_returns_reference, LAMBDA_EXAMPLES, **EQUAL)
def lambda_returns(
    reward: Any,
    discount: Any,
    value: Any,
    next_value: Any,
    boundary: Any,
    lam: float,
    out: Any = None,
) -> Any:
    """G^λ_t, the mean of all n-step returns weighted by (1 − λ)·λⁿ⁻¹; the last one before an end
    has all the weight that is left.

    Inputs as for `gae`. `value` is not used: the three functions take the same, so that one can
    stand for another.
    """
    return dispatched(
        lambda_returns_into,
        lambda_returns_scan,
        (reward, discount, value, next_value, boundary),
        float(lam),
        out,
    )


@pair(n_step_returns_reference, N_STEP_EXAMPLES, **EQUAL)
def n_step_returns(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, n: int, out: Any = None
) -> Any:
    """G_{t:t+n}: n rewards and the value after them; fewer where the episode or the rollout ends
    before. Inputs as for `gae`; `value` is not used."""
    if n < 1:
        raise ValueError(f"n is {n}: a return has at least one step")
    return dispatched(
        n_step_returns_into,
        n_step_returns_scan,
        (reward, discount, value, next_value, boundary),
        int(n),
        out,
    )


# tensors wherever they are


def linear_scan(constant: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """x_t = constant_t + factor_t·x_{t+1} for all t in log₂ T steps, each of which doubles how far
    every row has looked."""
    factor, reach = factor.expand_as(constant), 1
    while reach < len(constant):
        constant = torch.cat(
            [constant[:-reach] + factor[:-reach] * constant[reach:], constant[-reach:]]
        )
        factor = torch.cat([factor[:-reach] * factor[reach:], torch.zeros_like(factor[-reach:])])
        reach *= 2
    return constant


@pair(gae_reference, GAE_EXAMPLES, **EQUAL)
def gae_scan(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, lam: float
) -> torch.Tensor:
    """`gae` by a scan, on any device."""
    r, d, v, beyond, end = time_first(reward, discount, value, next_value, boundary)
    return linear_scan(r + d * beyond - v, lam * d * (1 - end)).movedim(0, discount.ndim - 2)


@pair(lambda_returns_reference, LAMBDA_EXAMPLES, **EQUAL)
def lambda_returns_scan(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, lam: float
) -> torch.Tensor:
    """`lambda_returns` by a scan, on any device."""
    r, d, _, beyond, end = time_first(reward, discount, value, next_value, boundary)
    flow = lam * (1 - end)
    flow[-1] = 0
    return linear_scan(r + d * (1 - flow) * beyond, d * flow).movedim(0, discount.ndim - 2)


@pair(n_step_returns_reference, N_STEP_EXAMPLES, **EQUAL)
def n_step_returns_scan(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, n: int
) -> torch.Tensor:
    """`n_step_returns` by n sweeps, on any device: each makes m-step returns of all rows into (m +
    1)-step returns."""
    r, d, _, beyond, end = time_first(reward, discount, value, next_value, boundary)
    if n >= len(r):
        return lambda_returns_scan(reward, discount, value, next_value, boundary, 1.0)
    returns = r + d * beyond
    for _ in range(n - 1):
        returns = torch.cat(
            [r[:-1] + d[:-1] * torch.where(end[:-1] != 0, beyond[:-1], returns[1:]), returns[-1:]]
        )
    return returns.movedim(0, discount.ndim - 2)


def discounted_return(reward: torch.Tensor, gamma: float, boundary: torch.Tensor) -> torch.Tensor:
    """G_t = r_t + γ·(1 − boundary_t)·G_{t+1}, all [T, B]: the advantage of a value that is 0
    everywhere, with λ = 1."""
    nothing = torch.zeros_like(reward)
    return gae(reward, torch.full_like(reward, gamma), nothing, nothing, boundary, 1.0)
