"""log π, π and entropy of all heads at once from logits that hold the finite minimum where an
option is forbidden.

One compiled pass each way, for float32 on a CPU. A head with no option left is a certain choice of
its first one.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.integrations.masked.acting import exponentials
from tenfold.ops.head_tables import LOWEST, some_mask


class HeadTerms(NamedTuple):
    """Of all heads side by side: log π and π (..., M), and the entropy of all together (...)."""

    log_prob: torch.Tensor
    prob: torch.Tensor
    entropy: torch.Tensor


def normalise_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Ragged and equal heads, one option, one wide head, batch 1; nothing masked, empty heads;
    logits up to hundreds."""
    for sizes, rows in (((3,), 1), ((3, 5, 1, 4), 7), ((8,) * 10, 4), ((1,), 2), ((140,), 2)):
        for scale in (1.0, 100.0):
            logits = torch.from_numpy(scale * rng.normal(size=(rows, sum(sizes)))).to(
                getattr(torch, dtype)
            )
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            yield logits, offsets
            yield (
                torch.where(some_mask(rng, sizes, (rows,), empty=True), logits, float(LOWEST)),
                offsets,
            )
        yield torch.full_like(logits, float(LOWEST)), offsets


def normalise_reference(logits, offsets):
    """Row by row and head by head, a log-softmax of the allowed options. `0 *` keeps what is
    constant in autograd's graph."""
    log_prob, prob, entropy = [], [], []
    for row in logits:
        total = 0 * row[0]
        for start, stop in pairwise(offsets.tolist()):
            x = row[start:stop]
            options = (x > float(LOWEST)).nonzero().flatten()
            log_softmax = x[options].log_softmax(0)
            if len(options):
                log_prob.append(
                    torch.full_like(x, float(LOWEST)).index_put((options,), log_softmax)
                )
                prob.append(torch.zeros_like(x).index_put((options,), log_softmax.exp()))
            else:
                log_prob.append(torch.zeros_like(x))
                prob.append((torch.arange(len(x)) == 0).to(x.dtype))
            total = total - (log_softmax.exp() * log_softmax).sum()
        entropy.append(total)
    return (
        torch.cat(log_prob).view_as(logits) + 0 * logits,
        torch.cat(prob).view_as(logits) + 0 * logits,
        torch.stack(entropy),
    )


@kernel
def normalise_rows(logits, offsets, log_prob, prob, entropy):
    """Writes log π and π [B, M] and the entropy [B]. What concerns single options is done for all
    heads in one vectorised loop."""
    rows, options = logits.shape
    top, total_of, log_of = (
        np.empty(options, np.float32),
        np.empty(options, np.float32),
        np.empty(options, np.float32),
    )
    bits = np.empty(options, np.int32)
    for b in range(rows):
        x, p, log_p = logits[b], prob[b], log_prob[b]
        for i in range(offsets.size - 1):
            highest = LOWEST
            for m in range(offsets[i], offsets[i + 1]):
                highest = max(highest, x[m])
            for m in range(offsets[i], offsets[i + 1]):
                top[m] = highest
        for m in range(options):
            p[m] = x[m] - top[m]
        exponentials(p, bits)
        for i in range(offsets.size - 1):
            total = np.float32(0)
            for m in range(offsets[i], offsets[i + 1]):
                total += p[m]
            log_total = np.log(total)
            for m in range(offsets[i], offsets[i + 1]):
                total_of[m], log_of[m] = total, log_total
        for m in range(options):
            p[m] /= total_of[m]
            log_p[m] = (x[m] - top[m]) - log_of[m] if x[m] > LOWEST else LOWEST
        for i in range(offsets.size - 1):
            if top[offsets[i]] == LOWEST:
                for m in range(offsets[i], offsets[i + 1]):
                    p[m], log_p[m] = np.float32(m == offsets[i]), np.float32(0)
        total = np.float32(0)
        for m in range(options):
            total -= p[m] * log_p[m]
        entropy[b] = total


def backward_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Each derivative alone, then all three."""
    for k, (logits, offsets) in enumerate(normalise_examples(rng, dtype)):
        outputs = normalise_reference(logits, offsets)
        by = [
            rng.normal(size=f.shape).astype(dtype) * (k % 4 in (part, 3))
            for part, f in enumerate(outputs)
        ]
        yield (
            logits.numpy(),
            offsets,
            outputs[0].numpy(),
            outputs[1].numpy(),
            *by,
            np.full_like(logits.numpy(), np.nan),
        )


def normalise_rows_backward_reference(
    logits, offsets, log_prob, prob, by_log_prob, by_prob, by_entropy, grad
):
    """By autograd through the reference."""
    x = torch.from_numpy(logits).requires_grad_()
    torch.autograd.backward(
        normalise_reference(x, offsets),
        [torch.from_numpy(by) for by in (by_log_prob, by_prob, by_entropy)],
    )
    return x.grad


@pair(normalise_rows_backward_reference, backward_examples, rtol=2e-5, atol=1e-5)
@kernel
def normalise_rows_backward(
    logits, offsets, log_prob, prob, by_log_prob, by_prob, by_entropy, grad
):
    """∂/∂x_j = g_j − π_j Σg + π_j (h_j − Σπh) − e·π_j (log π_j + H), for derivatives g, h, e by
    log π, π and H; 0 where forbidden. π·log π is formed first: e times the finite minimum may
    overflow."""
    rows, options = logits.shape
    common = np.empty(options, np.float32)
    for b in range(rows):
        x, p, log_p, g, h, e = (
            logits[b],
            prob[b],
            log_prob[b],
            by_log_prob[b],
            by_prob[b],
            by_entropy[b],
        )
        for i in range(offsets.size - 1):
            total = np.float32(0)
            for m in range(offsets[i], offsets[i + 1]):
                total += (
                    (g[m] if x[m] > LOWEST else np.float32(0)) + p[m] * h[m] - e * (p[m] * log_p[m])
                )
            for m in range(offsets[i], offsets[i + 1]):
                common[m] = total
        for m in range(options):
            grad[b, m] = (
                g[m] + p[m] * (h[m] - common[m]) - e * (p[m] * log_p[m])
                if x[m] > LOWEST
                else np.float32(0)
            )
    return grad


class Normalise(torch.autograd.Function):
    """torch's log_softmax over a last dimension of eight takes four times as long as all of this,
    and its exp at the finite minimum six times as long as elsewhere."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, offsets: np.ndarray) -> tuple[torch.Tensor, ...]:
        log_prob, prob, entropy = (
            torch.empty_like(logits),
            torch.empty_like(logits),
            logits.new_empty(len(logits)),
        )
        normalise_rows(logits.numpy(), offsets, log_prob.numpy(), prob.numpy(), entropy.numpy())
        ctx.save_for_backward(logits, log_prob, prob)
        ctx.offsets = offsets
        return log_prob, prob, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, by_log_prob: Any, by_prob: Any, by_entropy: Any
    ) -> tuple[torch.Tensor, None]:
        logits, log_prob, prob = (saved.detach().numpy() for saved in ctx.saved_tensors)
        by = [derivative.contiguous().numpy() for derivative in (by_log_prob, by_prob, by_entropy)]
        grad = np.empty_like(logits)
        normalise_rows_backward(logits, ctx.offsets, log_prob, prob, by[0], by[1], by[2], grad)
        return torch.from_numpy(grad), None


@pair(normalise_reference, normalise_examples, rtol=2e-5, atol=2e-5, gradients=(0,))
def normalise(logits: torch.Tensor, offsets: np.ndarray) -> HeadTerms:
    """Of rows (B, M), contiguous float32 on a CPU; differentiable. Head i has the columns
    offsets[i] … offsets[i + 1] − 1."""
    return HeadTerms(*Normalise.apply(logits, offsets))  # type: ignore[misc]
