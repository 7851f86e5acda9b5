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
they are. The …_into kernels serve other compiled code: [T, B] and C-contiguous, no allocation.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

SHAPES = ((1, 1), (1, 5), (7, 1), (9, 4), (12, 33))  # T, B


def random_rollout(
    rng: np.random.Generator,
    dtype: str,
    time: int,
    batch: int,
    members: tuple[int, ...] = (),
    components: tuple[int, ...] = (),
) -> tuple[np.ndarray, ...]:
    """Reward, discount, value, next value, boundary of episodes that end both ways."""
    lead = (*members, time, batch)
    terminated, truncated = rng.random(lead) < 0.15, rng.random(lead) < 0.15
    reward, value, next_value = (
        rng.normal(size=(*lead, *components)).astype(dtype) for _ in range(3)
    )
    return (
        reward,
        (0.97 * ~terminated).astype(dtype),
        value,
        next_value,
        (terminated | truncated).astype(dtype),
    )


def rollout_examples(
    last: tuple[Any, ...],
) -> Callable[[np.random.Generator, str], Iterator[tuple[Any, ...]]]:
    """Every layout with every λ (or n) of `last`, as arrays and as tensors."""

    def examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
        for final in last:
            for time, batch in SHAPES:
                yield (*random_rollout(rng, dtype, time, batch), final)
            yield (*random_rollout(rng, dtype, 6, 3, members=(2,)), final)
            yield (*random_rollout(rng, dtype, 6, 3, components=(4,)), final)
            yield (*random_rollout(rng, dtype, 5, 2, (3,), (1,)), final)
            yield (
                *(torch.from_numpy(a) for a in random_rollout(rng, dtype, 6, 3, (2,), (2,))),
                final,
            )
            *floats, boundary = random_rollout(rng, dtype, 8, 5)
            yield (*floats, boundary.astype(bool), final)

    return examples


def everywhere(equation: Callable[..., Any]) -> Callable[..., Any]:
    """An equation for [T, B], member by member and component by component."""

    def apply(*inputs):
        *arrays, last = inputs
        reward, discount, value, next_value, boundary = (np.asarray(a) for a in arrays)
        if discount.ndim == 3:
            return np.stack([apply(*(a[m] for a in arrays), last) for m in range(len(discount))])
        if reward.ndim == 3:
            return np.stack(
                [
                    equation(
                        reward[..., k], discount, value[..., k], next_value[..., k], boundary, last
                    )
                    for k in range(reward.shape[-1])
                ],
                axis=-1,
            )
        return equation(reward, discount, value, next_value, boundary, last)

    return apply


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
    found = np.zeros_like(reward)
    for t, b in np.ndindex(*reward.shape):
        found[t, b] = partial_return(
            reward, discount, next_value, t, b, min(n, steps_left(boundary, t, b))
        )
    return found


@everywhere
def lambda_returns_reference(reward, discount, value, next_value, boundary, lam):
    """G^λ_t = (1 − λ)·Σ_{n=1}^{N−1} λⁿ⁻¹·G_{t:t+n} + λᴺ⁻¹·G_{t:t+N}, N the steps left (Sutton &
    Barto, 2018, 12.3)."""
    found = np.zeros_like(reward)
    for t, b in np.ndindex(*reward.shape):
        last = steps_left(boundary, t, b)
        partial = [
            partial_return(reward, discount, next_value, t, b, n) for n in range(1, last + 1)
        ]
        found[t, b] = (1 - lam) * sum(lam**i * partial[i] for i in range(last - 1)) + lam ** (
            last - 1
        ) * partial[-1]
    return found


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


# any layout


def prepared(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any
) -> list[np.ndarray]:
    """C-contiguous arrays of one float type (the widest given, at least float32), copied only where
    they are not; shapes checked."""
    arrays = [np.asarray(a) for a in (reward, discount, value, next_value, boundary)]
    wide = np.result_type(np.float32, *(a.dtype for a in arrays[:4] if a.dtype.kind == "f"))
    wide = wide if wide in (np.float32, np.float64) else np.dtype(np.float64)
    arrays = [np.ascontiguousarray(a, wide) for a in arrays[:4]] + [
        np.ascontiguousarray(
            arrays[4], arrays[4].dtype if arrays[4].dtype in (wide, np.bool_) else np.bool_
        )
    ]
    check_shapes(arrays)
    return arrays


def check_shapes(arrays: Any) -> None:
    names = ("reward", "discount", "value", "next_value", "boundary")
    lead, full = tuple(arrays[1].shape), tuple(arrays[0].shape)
    if (
        len(lead) not in (2, 3)
        or 0 in full
        or full[: len(lead)] != lead
        or len(full) > len(lead) + 1
    ):
        raise ValueError(
            "discount must be [T], [T, B] or [M, T, B] and reward the same or with components at "
            f"the end, none of them empty: they are {list(lead)} and {list(full)}"
        )
    for name, array, shape in zip(names, arrays, (full, lead, full, full, lead), strict=True):
        if tuple(array.shape) != shape:
            raise ValueError(
                f"{name} is {list(array.shape)} and must be {list(shape)}, with reward "
                f"{list(full)} and discount {list(lead)}"
            )


def applied(
    kernel: Callable[..., Any], inputs: tuple[Any, ...], last: float, out: np.ndarray | None
) -> np.ndarray:
    """The kernel on every member. Components lie side by side in the batch, for which discount and
    boundary are repeated."""
    reward, discount, value, next_value, boundary = prepared(*inputs)
    found = np.empty_like(reward) if out is None else out
    if found.shape != reward.shape or found.dtype != reward.dtype or not found.flags.c_contiguous:
        raise ValueError(
            f"out must be C-contiguous {reward.dtype} {list(reward.shape)}: it is {found.dtype} "
            f"{list(found.shape)}"
        )
    if reward.ndim > discount.ndim:
        discount, boundary = (np.repeat(a, reward.shape[-1], -1) for a in (discount, boundary))
    if reward.ndim == 2:
        return kernel(reward, discount, value, next_value, boundary, last, found)
    rows = (-1, *discount.shape[-2:])
    for member in zip(
        *(a.reshape(rows) for a in (reward, discount, value, next_value, boundary, found)),
        strict=True,
    ):
        kernel(*member[:5], last, member[5])
    return found


def dispatched(
    kernel: Callable[..., Any],
    scan: Callable[..., torch.Tensor],
    inputs: tuple[Any, ...],
    last: float,
    out: Any,
) -> Any:
    """Arrays and CPU tensors to the kernel, other tensors to the scan; what comes back is of the
    kind that came."""
    # one environment
    if np.ndim(inputs[1]) == np.ndim(inputs[4]) == 1 and all(np.ndim(a) for a in inputs):
        inputs = tuple(
            (a if isinstance(a, torch.Tensor) else np.asarray(a))[:, None] for a in inputs
        )
        found = dispatched(kernel, scan, inputs, last, None if out is None else out[:, None])
        return found[:, 0] if out is None else out
    if not isinstance(inputs[0], torch.Tensor):
        return applied(kernel, inputs, last, out)
    tensors = tuple(torch.as_tensor(a, device=inputs[0].device).detach() for a in inputs)
    tensors = tuple(t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors)
    if tensors[0].device.type == "cpu":
        found = applied(
            kernel, tuple(t.numpy() for t in tensors), last, None if out is None else out.numpy()
        )
        return torch.from_numpy(found) if out is None else out
    found = scan(*tensors, last)
    return found if out is None else out.copy_(found)


@pair(
    gae_reference,
    rollout_examples((0.0, 0.95, 1.0)),
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
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
    return dispatched(
        gae_into, gae_scan, (reward, discount, value, next_value, boundary), float(lam), out
    )


@pair(
    lambda_returns_reference,
    rollout_examples((0.0, 0.9, 1.0)),
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
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


@pair(
    n_step_returns_reference,
    rollout_examples((1, 3, 100)),
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
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


def time_first(*inputs: Any) -> list[torch.Tensor]:
    """The five as tensors with time in front; discount and boundary broadcast over components."""
    tensors = [torch.as_tensor(a) for a in inputs]
    check_shapes(tensors)
    tensors[4] = tensors[4].to(tensors[0].dtype)
    lead = tensors[1].ndim - 2
    if tensors[0].ndim > tensors[1].ndim:
        tensors[1], tensors[4] = tensors[1][..., None], tensors[4][..., None]
    return [t.movedim(lead, 0) for t in tensors]


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


@pair(
    gae_reference,
    rollout_examples((0.0, 0.95, 1.0)),
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
def gae_scan(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, lam: float
) -> torch.Tensor:
    """`gae` by a scan, on any device."""
    r, d, v, beyond, end = time_first(reward, discount, value, next_value, boundary)
    return linear_scan(r + d * beyond - v, lam * d * (1 - end)).movedim(0, discount.ndim - 2)


@pair(
    lambda_returns_reference,
    rollout_examples((0.0, 0.9, 1.0)),
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
def lambda_returns_scan(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, lam: float
) -> torch.Tensor:
    """`lambda_returns` by a scan, on any device."""
    r, d, _, beyond, end = time_first(reward, discount, value, next_value, boundary)
    flow = lam * (1 - end)
    flow[-1] = 0
    return linear_scan(r + d * (1 - flow) * beyond, d * flow).movedim(0, discount.ndim - 2)


@pair(
    n_step_returns_reference,
    rollout_examples((1, 3, 100)),
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
def n_step_returns_scan(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, n: int
) -> torch.Tensor:
    """`n_step_returns` by n sweeps, on any device: each makes m-step returns of all rows into (m +
    1)-step returns."""
    r, d, _, beyond, end = time_first(reward, discount, value, next_value, boundary)
    if n >= len(r):
        return lambda_returns_scan(reward, discount, value, next_value, boundary, 1.0)
    found = r + d * beyond
    for _ in range(n - 1):
        found = torch.cat(
            [r[:-1] + d[:-1] * torch.where(end[:-1] != 0, beyond[:-1], found[1:]), found[-1:]]
        )
    return found.movedim(0, discount.ndim - 2)


# where episodes end


def episode_edges(
    terminated: np.ndarray,
    truncated: np.ndarray,
    skipped: np.ndarray | None,
    gamma: float,
    dtype: Any = np.float32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(discount, boundary, weight) of a rollout, from the flags as they came, all of one shape.

    `skipped` marks the rows that NEXT_STEP autoreset inserts after an end: their action was
    ignored, they are no transition. Such a row gets discount 0, boundary 1 and weight 0 (its reward
    is 0): nothing flows through it, and the loss leaves it out by its weight. The row before
    bootstraps from the observation it led to, which is the final one in that mode; under SAME_STEP
    there are no skipped rows (None) and the final observation comes apart.
    """
    skipped = np.zeros_like(terminated, np.bool_) if skipped is None else skipped
    discount = np.where(terminated | skipped, 0, gamma).astype(dtype)
    return discount, (terminated | truncated | skipped).astype(dtype), (~skipped).astype(dtype)
