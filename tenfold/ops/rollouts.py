"""How a rollout lies in memory, for the equations of `returns`: any layout to kernels for [T, B] or
to scans, and where its episodes end; and its rewards in the form that is learned from: divided by
the running deviation of the discounted return, clipped, or their signs alone."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.moments import CLIP, EPSILON, RunningNorm, norm_scale, norm_update

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
    returns = np.empty_like(reward) if out is None else out
    if (
        returns.shape != reward.shape
        or returns.dtype != reward.dtype
        or not returns.flags.c_contiguous
    ):
        raise ValueError(
            f"out must be C-contiguous {reward.dtype} {list(reward.shape)}: it is {returns.dtype} "
            f"{list(returns.shape)}"
        )
    if reward.ndim > discount.ndim:
        discount, boundary = (np.repeat(a, reward.shape[-1], -1) for a in (discount, boundary))
    if reward.ndim == 2:
        return kernel(reward, discount, value, next_value, boundary, last, returns)
    rows = (-1, *discount.shape[-2:])
    for member in zip(
        *(a.reshape(rows) for a in (reward, discount, value, next_value, boundary, returns)),
        strict=True,
    ):
        kernel(*member[:5], last, member[5])
    return returns


def dispatched(
    kernel: Callable[..., Any] | None,
    scan: Callable[..., torch.Tensor],
    inputs: tuple[Any, ...],
    last: float,
    out: Any,
) -> Any:
    """Arrays and CPU tensors to the kernel, other tensors to the scan; what comes back is of the
    kind that came. Without a kernel all are scanned."""
    # one environment
    if np.ndim(inputs[1]) == np.ndim(inputs[4]) == 1 and all(np.ndim(a) for a in inputs):
        inputs = tuple(
            (a if isinstance(a, torch.Tensor) else np.asarray(a))[:, None] for a in inputs
        )
        returns = dispatched(kernel, scan, inputs, last, None if out is None else out[:, None])
        return returns[:, 0] if out is None else out
    if kernel and not isinstance(inputs[0], torch.Tensor):
        return applied(kernel, inputs, last, out)
    tensors = tuple(torch.as_tensor(a, device=inputs[0].device).detach() for a in inputs)
    tensors = tuple(t.float() if t.dtype in (torch.float16, torch.bfloat16) else t for t in tensors)
    if kernel and tensors[0].device.type == "cpu":
        returns = applied(
            kernel, tuple(t.numpy() for t in tensors), last, None if out is None else out.numpy()
        )
        return torch.from_numpy(returns) if out is None else out
    returns = scan(*tensors, last)
    return returns if out is None else out.copy_(returns)


def time_first(*inputs: Any) -> list[torch.Tensor]:
    """The five as tensors with time in front; discount and boundary broadcast over components."""
    tensors = [torch.as_tensor(a) for a in inputs]
    check_shapes(tensors)
    tensors[4] = tensors[4].to(tensors[0].dtype)
    lead = tensors[1].ndim - 2
    if tensors[0].ndim > tensors[1].ndim:
        tensors[1], tensors[4] = tensors[1][..., None], tensors[4][..., None]
    return [t.movedim(lead, 0) for t in tensors]


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


# rewards in the form that is learned from

SIGN = 0.0  # as a limit: rewards are their signs


def reward_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Lanes in the middle of their episodes; every form."""
    for lanes, normalize, limit in (
        (1, True, 10.0),
        (5, True, 1.0),
        (3, False, 0.5),
        (4, False, 0),
    ):
        for count in (0, 7):
            norm, first = RunningNorm(1), rng.normal(size=lanes)
            if count:
                norm.update(rng.normal(size=(count, 1)))
            ended, skipped = rng.random((2, lanes)) < 0.3
            yield (
                first,
                norm.count,
                norm.moments,
                0.9,
                float(limit),
                normalize,
                rng.normal(size=lanes) * 3,
                ended,
                skipped,
                np.full(lanes, np.nan),
            )


def form_rewards_reference(
    returns, count, moments, gamma, limit, normalize, reward, ended, skipped, out
):
    """R ← γR + r where a lane moved; r / √(var(R) + ε) where rewards are normalised, by all returns
    so far, these included; then clipped to ±limit, or sign(r) for SIGN. R ← 0 where an episode
    ended (VecNormalize of Stable-Baselines3)."""
    moved = ~skipped
    returns[moved] = gamma * returns[moved] + reward[moved]
    if normalize and moved.any():
        norm_update(count, moments[0], moments[1], returns[moved][:, None])
        norm_scale(count, moments[1], EPSILON, moments[2])
    scaled = reward * moments[2, 0] if normalize else reward
    out[:] = np.sign(scaled) if limit == SIGN else np.clip(scaled, -limit, limit)
    returns[ended] = 0
    return returns, count, moments, out


@pair(form_rewards_reference, reward_examples, rtol=1e-9)
@kernel
def form_rewards(returns, count, moments, gamma, limit, normalize, reward, ended, skipped, out):
    mean, m2 = moments[0], moments[1]
    for i in range(reward.size):
        if skipped[i]:
            continue
        returns[i] = gamma * returns[i] + reward[i]
        if normalize:
            count[0] += 1
            away = returns[i] - mean[0]
            mean[0] += away / count[0]
            m2[0] += away * (returns[i] - mean[0])
    if normalize:
        norm_scale(count, m2, EPSILON, moments[2])
    scale = moments[2, 0] if normalize else 1.0
    for i in range(reward.size):
        x = reward[i] * scale
        out[i] = np.sign(x) if limit == SIGN else min(max(x, -limit), limit)
        if ended[i]:
            returns[i] = 0.0
    return returns, count, moments, out


class RewardForm:
    """The rewards of `lanes` environments as they are learned from, and what of it goes on from
    step to step: the running return of each lane, and the deviation of all."""

    def __init__(
        self,
        lanes: int,
        gamma: float,
        normalize: bool,
        limit: float | None = None,
        drawn: bool = False,
    ) -> None:
        """`limit`: SIGN, or what rewards are clipped to; None: not at all, or ±10 where they are
        normalised. `drawn`: they stay as they are, and have this form when a replay memory is drawn
        from."""
        self.drawn = drawn
        self.returns, self.gamma, self.normalize = np.zeros(lanes), float(gamma), normalize
        self.norm = RunningNorm(1)
        usual = CLIP if normalize else np.inf
        self.limit = usual if limit is None else float(limit)

    def put(
        self,
        reward: np.ndarray,
        ended: np.ndarray,
        skipped: np.ndarray,
        out: np.ndarray,
        lanes: Any = slice(None),
    ) -> None:
        """One step of some lanes, into `out`. A lane that did not move brought nothing."""
        returns = self.returns[lanes]
        form_rewards(
            returns,
            self.norm.count,
            self.norm.moments,
            self.gamma,
            self.limit,
            self.normalize,
            reward,
            ended,
            skipped,
            out,
        )
        self.returns[lanes] = returns
        if self.drawn:
            out[:] = reward

    def begin(self, lanes: Any = slice(None)) -> None:
        """Episodes of these lanes that were running go on nowhere."""
        self.returns[lanes] = 0

    def state(self) -> dict[str, np.ndarray]:
        return self.norm.state() | {"returns": self.returns.copy()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        self.norm.load_state(state)
        self.returns[:] = state["returns"]
