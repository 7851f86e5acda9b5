"""Adam, gradient clipping and target updates on one flat buffer [P] or [M, P] (members in front).

The references do what everyone does: a list of parameters, `torch.optim.Adam`, `clip_grad_norm_`, a
loop over pairs. The torch forms serve any device; the compiled ones, called …_numba, are parts of
the fused engine (float32, [P]).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.optim.adam import adam as torch_adam

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

BETA1, BETA2 = 0.9, 0.999
ADAM_EPS = 1e-8  # where settings do not say
# smaller numbers are subnormal, and slow: moments of units that no longer fire decay to them
TINY = np.finfo(np.float32).tiny


def split_flat(flat: torch.Tensor) -> list[torch.Tensor]:
    """The flat buffer as uneven tensors, like the layers of a network."""
    return list(flat.detach().clone().tensor_split([flat.numel() // 3, flat.numel() // 2]))


def flat_tensors(
    rng: np.random.Generator, dtype: str, count: int
) -> Iterator[tuple[torch.Tensor, ...]]:
    for size in (1, 3, 17, 1000):
        yield tuple(torch.from_numpy(rng.normal(size=size).astype(dtype)) for _ in range(count))


def adam_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for flat, grad, mean, square in flat_tensors(rng, dtype, 4):
        for step in (1, 2, 1000):
            start = (
                (torch.zeros_like(mean), torch.zeros_like(square))
                if step == 1
                else (mean * 0.1, square.square() * 0.1)
            )
            for decay in (0.0, 3.0):
                yield flat, grad, *start, step, 1e-3, 1e-8, decay


def adam_reference(flat, grad, mean, square, step, lr, eps, decay=0.0):
    parameters = [torch.nn.Parameter(p) for p in split_flat(flat)]
    options = {"lr": lr, "betas": (BETA1, BETA2), "eps": eps, "foreach": False}
    optimiser = torch.optim.AdamW(parameters, weight_decay=decay, **options)
    for p, g, m, s in zip(
        parameters, split_flat(grad), split_flat(mean), split_flat(square), strict=True
    ):
        p.grad = g
        optimiser.state[p] = {"step": torch.tensor(float(step - 1)), "exp_avg": m, "exp_avg_sq": s}
    optimiser.step()
    state = [optimiser.state[p] for p in parameters]
    return tuple(
        torch.cat([t.detach() for t in ts])
        for ts in (parameters, [s["exp_avg"] for s in state], [s["exp_avg_sq"] for s in state])
    )


@pair(adam_reference, adam_examples, rtol=1e-5, atol=1e-7, dtypes=("float32", "float64"))
def adam(
    flat: torch.Tensor,
    grad: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    step: int,
    lr: float,
    eps: float,
    decay: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Step number `step` (from 1) of Adam (Kingma & Ba, 2015), in place on all parameters at
    once."""
    decay_weights(flat, lr, decay)
    mean.lerp_(grad, 1 - BETA1)
    square.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
    root = (square.sqrt() / (1 - BETA2**step) ** 0.5).add_(eps)
    flat.addcdiv_(mean, root, value=-lr / (1 - BETA1**step))
    return flat, mean, square


def decay_weights(flat: torch.Tensor, lr: float | torch.Tensor, decay: float) -> None:
    """θ ← (1 − lr·decay)·θ, in place: in front of a step of Adam it makes AdamW (Loshchilov &
    Hutter, 2019)."""
    if decay:
        flat.mul_(1 - lr * decay)


def recorded_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for *buffers, step, lr, eps, decay in adam_examples(rng, dtype):
        yield *buffers, torch.tensor(float(step - 1)), torch.tensor(lr), eps, decay


def recorded_reference(flat, grad, mean, square, before, lr, *more):
    return adam_reference(flat, grad, mean, square, int(before) + 1, float(lr), *more)


@pair(recorded_reference, recorded_examples, rtol=1e-5, atol=1e-7)
@torch.no_grad()
def adam_recorded(
    flat: torch.Tensor,
    grad: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    before: torch.Tensor,
    lr: torch.Tensor,
    eps: float,
    decay: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`adam` for work that is recorded and repeated: what changes from step to step, how many there
    were `before` and the learning rate, are tensors, and all is one kernel. `before` [] or [M]
    counts this step afterwards."""
    decay_weights(flat, lr, decay)
    members = flat.dim() > 1
    per_member = [t.unbind() if members else [t] for t in (flat, grad, mean, square, before)]
    flats, grads, means, squares, steps = map(list, per_member)
    torch_adam(
        flats,
        grads,
        means,
        squares,
        [],
        steps,
        fused=True,
        amsgrad=False,
        beta1=BETA1,
        beta2=BETA2,
        lr=lr,
        weight_decay=0.0,
        eps=eps,
        maximize=False,
    )
    return flat, mean, square


def arrays(example: Any) -> Any:
    """The examples that `example` yields, as NumPy arrays."""

    def yield_arrays(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
        for inputs in example(rng, dtype):
            yield tuple(
                value.numpy() if isinstance(value, torch.Tensor) else value for value in inputs
            )

    return yield_arrays


def on_tensors(reference: Any) -> Any:
    return lambda *inputs: reference(
        *(torch.from_numpy(v) if isinstance(v, np.ndarray) else v for v in inputs)
    )


@pair(on_tensors(adam_reference), arrays(adam_examples), rtol=1e-5, atol=1e-7)
@kernel
def adam_numba(flat, grad, mean, square, step, lr, eps, decay):
    keep1, new1 = np.float32(BETA1), np.float32(1 - BETA1)
    keep2, new2 = np.float32(BETA2), np.float32(1 - BETA2)
    rate, keep = np.float32(lr / (1 - BETA1**step)), np.float32(1 - lr * decay)
    unbias, offset = np.float32(1 / np.sqrt(1 - BETA2**step)), np.float32(eps)
    for j in range(flat.size):
        g = grad[j]
        m = keep1 * mean[j] + new1 * g
        s = keep2 * square[j] + new2 * g * g
        m = np.float32(0) if abs(m) < TINY else m
        s = np.float32(0) if s < TINY else s
        flat[j] = keep * flat[j] - rate * m / (np.sqrt(s) * unbias + offset)
        mean[j], square[j] = m, s  # not read back: the loop is then three times as fast
    return flat, mean, square


def clip_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for (grad,) in flat_tensors(rng, dtype, 1):
        for limit in (1e-3, 0.5, 1e6):
            yield grad, limit
    yield torch.zeros(5, dtype=getattr(torch, dtype)), 1.0


def clip_reference(grad, limit):
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in split_flat(grad)]
    for p, g in zip(parameters, split_flat(grad), strict=True):
        p.grad = g
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit, foreach=False)
    return torch.cat([p.grad for p in parameters]), norm.view(1)  # type: ignore[misc]


@pair(clip_reference, clip_examples, rtol=1e-5, atol=1e-8, dtypes=("float32", "float64"))
def clip(grad: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Shortens each member's gradient to Euclidean norm `limit`, in place; also returns the norms
    before."""
    norm = grad.norm(dim=-1, keepdim=True)
    grad.mul_((limit / (norm + 1e-6)).clamp_(max=1.0))  # 1e-6: as clip_grad_norm_ does
    return grad, norm


def descend(
    flat: torch.Tensor,
    grad: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    step: int,
    lr: float,
    eps: float = ADAM_EPS,
    limit: float | None = None,
    decay: float = 0.0,
) -> torch.Tensor:
    """Step number `step` of Adam by the gradient clipped to norm `limit` (None: as it is), in
    place; returns each member's norm before that."""
    norm = clip(grad, limit)[1] if limit else grad.norm(dim=-1, keepdim=True)
    adam(flat, grad, mean, square, step, lr, eps, decay)
    return norm


def clip_array_reference(grad, limit):
    clipped, norm = on_tensors(clip_reference)(grad, limit)
    return clipped, norm[0]


@kernel(fastmath={"reassoc", "contract", "nsz"})
def sum_of_squares(x):
    total = np.float32(0)
    for j in range(x.size):
        total += x[j] * x[j]
    return total


@pair(clip_array_reference, arrays(clip_examples), rtol=1e-5, atol=1e-8)
@kernel
def clip_numba(grad, limit):
    norm = np.sqrt(sum_of_squares(grad))
    if norm + 1e-6 > limit:
        scale = np.float32(limit / (norm + 1e-6))
        for j in range(grad.size):
            grad[j] *= scale
    return grad, norm


def target_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for target, online in flat_tensors(rng, dtype, 2):
        for tau in (0.005, 0.5, 1.0):
            yield target, online, tau


def polyak_reference(target, online, tau):
    return torch.cat(
        [
            (1 - tau) * t + tau * o
            for t, o in zip(split_flat(target), split_flat(online), strict=True)
        ]
    )


@pair(polyak_reference, target_examples, rtol=1e-5, atol=1e-7, dtypes=("float32", "float64"))
def polyak(target: torch.Tensor, online: torch.Tensor, tau: float) -> torch.Tensor:
    """θ' ← θ' + τ(θ − θ'), in place. τ = 1 is the hard copy."""
    return target.lerp_(online, tau)


@pair(on_tensors(polyak_reference), arrays(target_examples), rtol=1e-5, atol=1e-7)
@kernel
def polyak_numba(target, online, tau):
    share = np.float32(tau)
    for j in range(target.size):
        target[j] += share * (online[j] - target[j])
    return target
