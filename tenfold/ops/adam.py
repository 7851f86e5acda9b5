"""Adam, gradient clipping and target updates on one flat buffer [P] or [M, P] (members in front).

The references do what everyone does: a list of parameters, `torch.optim.Adam`, `clip_grad_norm_`, a loop over pairs.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.ops.pairs import pair

BETA1, BETA2 = 0.9, 0.999


def pieces(flat: torch.Tensor) -> list[torch.Tensor]:
    """The flat buffer as uneven tensors, like the layers of a network."""
    return list(flat.detach().clone().tensor_split([flat.numel() // 3, flat.numel() // 2]))


def flat_tensors(rng: np.random.Generator, dtype: str, count: int) -> Iterator[tuple[torch.Tensor, ...]]:
    for size in (1, 3, 17, 1000):
        yield tuple(torch.from_numpy(rng.normal(size=size).astype(dtype)) for _ in range(count))


def adam_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for flat, grad, mean, square in flat_tensors(rng, dtype, 4):
        for step in (1, 2, 1000):
            start = (torch.zeros_like(mean), torch.zeros_like(square)) if step == 1 else (mean * 0.1, square.square() * 0.1)
            yield flat, grad, *start, step, 1e-3, 1e-8


def adam_reference(flat, grad, mean, square, step, lr, eps):
    parameters = [torch.nn.Parameter(p) for p in pieces(flat)]
    optimiser = torch.optim.Adam(parameters, lr=lr, betas=(BETA1, BETA2), eps=eps, foreach=False)
    for p, g, m, s in zip(parameters, pieces(grad), pieces(mean), pieces(square), strict=True):
        p.grad = g
        optimiser.state[p] = {"step": torch.tensor(float(step - 1)), "exp_avg": m, "exp_avg_sq": s}
    optimiser.step()
    state = [optimiser.state[p] for p in parameters]
    return tuple(torch.cat([t.detach() for t in ts]) for ts in
                 (parameters, [s["exp_avg"] for s in state], [s["exp_avg_sq"] for s in state]))


@pair(adam_reference, adam_examples, rtol=1e-5, atol=1e-7, dtypes=("float32", "float64"))
def adam(flat: torch.Tensor, grad: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, step: int, lr: float,
         eps: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Step number `step` (from 1) of Adam (Kingma & Ba, 2015), in place on all parameters at once."""
    mean.lerp_(grad, 1 - BETA1)
    square.mul_(BETA2).addcmul_(grad, grad, value=1 - BETA2)
    root = (square.sqrt() / (1 - BETA2**step) ** 0.5).add_(eps)
    flat.addcdiv_(mean, root, value=-lr / (1 - BETA1**step))
    return flat, mean, square


def clip_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for (grad,) in flat_tensors(rng, dtype, 1):
        for limit in (1e-3, 0.5, 1e6):
            yield grad, limit
    yield torch.zeros(5, dtype=getattr(torch, dtype)), 1.0


def clip_reference(grad, limit):
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in pieces(grad)]
    for p, g in zip(parameters, pieces(grad), strict=True):
        p.grad = g
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit, foreach=False)
    return torch.cat([p.grad for p in parameters]), norm.view(1)  # type: ignore[misc]


@pair(clip_reference, clip_examples, rtol=1e-5, atol=1e-8, dtypes=("float32", "float64"))
def clip(grad: torch.Tensor, limit: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Shortens each member's gradient to Euclidean norm `limit`, in place; also returns the norms before."""
    norm = grad.norm(dim=-1, keepdim=True)
    grad.mul_((limit / (norm + 1e-6)).clamp_(max=1.0))  # 1e-6: as clip_grad_norm_ does
    return grad, norm


def target_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for target, online in flat_tensors(rng, dtype, 2):
        for tau in (0.005, 0.5, 1.0):
            yield target, online, tau


def polyak_reference(target, online, tau):
    return torch.cat([(1 - tau) * t + tau * o for t, o in zip(pieces(target), pieces(online), strict=True)])


@pair(polyak_reference, target_examples, rtol=1e-5, atol=1e-7, dtypes=("float32", "float64"))
def polyak(target: torch.Tensor, online: torch.Tensor, tau: float) -> torch.Tensor:
    """θ' ← θ' + τ(θ − θ'), in place. τ = 1 is the hard copy."""
    return target.lerp_(online, tau)


def copy_reference(target, online):
    copies = pieces(target)
    for t, o in zip(copies, pieces(online), strict=True):
        t.copy_(o)
    return torch.cat(copies)


@pair(copy_reference, lambda rng, dtype: flat_tensors(rng, dtype, 2), dtypes=("float32", "float64"), name="ops.adam.hard copy")
def hard_copy(target: torch.Tensor, online: torch.Tensor) -> torch.Tensor:
    return target.copy_(online)
