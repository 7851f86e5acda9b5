"""From logits or observations to actions of masked heads, in one compiled call: what an environment
runner needs of a step.

Beside the actions there are the masked logits and the log-probability of whole actions, so that
nothing is left to compute. Masks are bool, int8, uint8 or floats of 0 and 1.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.integrations.masked.drawing import draw_heads
from tenfold.ops.head_layout import padded_logits_reference
from tenfold.ops.head_tables import LOWEST
from tenfold.ops.heads import MaskedHeads, log_prob_reference, policies, sample_reference
from tenfold.ops.mlp import ELU, RELU, TANH, mlp_forward, mlp_of, parameter_count

Acted = tuple[np.ndarray, np.ndarray, np.ndarray]


@kernel
def choose(logits, mask, uniform, offsets, fallback, actions, joint):
    """Draws actions [B, C] from logits [B, M], writes their log-probabilities summed over heads
    into `joint` [B], and puts the finite minimum where an option is forbidden. False where that
    cannot be done."""
    rows, options = logits.shape
    allowed, strange = np.empty((rows, options), np.bool_), 0
    for b in range(rows):
        for m in range(options):
            allowed[b, m] = mask[b, m] != 0
            strange += np.int32(mask[b, m] != allowed[b, m])
    log_prob = np.empty((rows, offsets.size - 1), np.float32)
    weight, bits = np.empty(options, np.float32), np.empty(options, np.int32)
    if strange or not draw_heads(
        logits, allowed, uniform, offsets, fallback, weight, bits, actions, log_prob
    ):
        return False
    for b in range(rows):
        for m in range(options):
            logits[b, m] = logits[b, m] if allowed[b, m] else LOWEST
        total = np.float32(0)
        for i in range(offsets.size - 1):
            total += log_prob[b, i]
            place = offsets[i] + actions[b, i]
            # the fallback of an empty head
            logits[b, place] = logits[b, place] if allowed[b, place] else np.float32(0)
        joint[b] = total
    return True


@kernel
def forward_and_choose(
    flat, sizes, activation, x, logits, mask, uniform, offsets, fallback, actions, joint
):
    """`choose` on the logits of observations [B, D]."""
    inputs = np.ascontiguousarray(x.T)
    output = mlp_forward(
        flat, sizes, activation, inputs, np.empty(x.shape[0] * sizes[1:].sum(), np.float32)
    )
    for b in range(logits.shape[0]):
        for m in range(logits.shape[1]):
            logits[b, m] = output[m, b]
    return choose(logits, mask, uniform, offsets, fallback, actions, joint)


def check_width(what: str, array: np.ndarray, rows: int, width: int) -> None:
    """Compiled code does not look at bounds."""
    if array.shape != (rows, width):
        raise ValueError(
            f"{what} give {array.shape} numbers where the mask asks for {(rows, width)}"
        )


def drawn(
    heads: MaskedHeads,
    kernel: Any,
    network: tuple[Any, ...],
    logits: np.ndarray,
    mask: np.ndarray,
    uniform: np.ndarray,
) -> Acted:
    """The results of `choose`, or of `forward_and_choose` with its `network` in front."""
    # int8 or float32, so that only two forms of the kernels are compiled
    mask = mask.view(np.int8) if mask.itemsize == 1 else mask.astype(np.float32, copy=False)
    check_width("logits", logits, *mask.shape)
    check_width("uniform numbers", uniform, len(mask), heads.count)
    actions, joint = np.empty(uniform.shape, np.int64), np.empty(len(mask), np.float32)
    offsets, fallback, _ = heads.tables
    if not kernel(*network, logits, mask, uniform, offsets, fallback, actions, joint):
        # says what is wrong: row, component and option
        heads.act(torch.from_numpy(logits), torch.from_numpy(mask), torch.from_numpy(uniform))
        raise ValueError("a logit or a mask is not usable")
    return logits, actions, joint


def logits_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for k, (heads, logits, mask) in enumerate(policies(rng, dtype)):
        rows = logits.reshape(-1, heads.options).numpy()
        allowed = np.ones(rows.shape) if mask is None else mask.reshape(rows.shape).numpy()
        kind = (np.bool_, np.int8, np.float32, np.float64)[k % 4]
        yield heads, rows, allowed.astype(kind), rng.random((len(rows), heads.count)).astype(dtype)


def act_on_logits_reference(heads, logits, mask, uniform):
    x, allowed = torch.from_numpy(logits), torch.from_numpy(mask != 0)
    actions = sample_reference(heads, x, allowed, torch.from_numpy(uniform))
    masked = heads.flat(padded_logits_reference(heads, x, allowed))
    return masked, actions, log_prob_reference(heads, x, actions, allowed).sum(-1)


@pair(act_on_logits_reference, logits_examples, rtol=2e-5, atol=5e-6)
def act_on_logits(
    heads: MaskedHeads, logits: np.ndarray, mask: np.ndarray, uniform: np.ndarray
) -> Acted:
    """The masked logits [B, M], in place of those given; actions [B, C]; the log-probability of
    whole actions [B]."""
    return drawn(heads, choose, (), logits, mask, uniform)


def observations_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Networks without a hidden layer, with one and with two, of every activation."""
    for k, (heads, logits, mask, uniform) in enumerate(logits_examples(rng, dtype)):
        sizes = np.array([3 + k, *(5, 9)[: k % 3], logits.shape[1]])
        flat = rng.normal(size=parameter_count(sizes)).astype(dtype)
        seen = rng.normal(size=(len(logits), sizes[0])).astype(dtype)
        yield heads, flat, sizes, (RELU, TANH, ELU)[k % 3], seen, mask, uniform


def act_on_observations_reference(heads, flat, sizes, activation, x, mask, uniform):
    logits = mlp_of(torch.from_numpy(flat), sizes, activation, torch.from_numpy(x))
    return act_on_logits_reference(heads, logits.numpy(), mask, uniform)


@pair(act_on_observations_reference, observations_examples, rtol=2e-5, atol=1e-5)
def act_on_observations(
    heads: MaskedHeads,
    flat: np.ndarray,
    sizes: np.ndarray,
    activation: int,
    x: np.ndarray,
    mask: np.ndarray,
    uniform: np.ndarray,
) -> Acted:
    """`act_on_logits` of the network (`ops.mlp`) on observations [B, D]."""
    check_width("observations", x, len(mask), int(sizes[0]))
    logits = np.empty(mask.shape, np.float32)
    return drawn(heads, forward_and_choose, (flat, sizes, activation, x), logits, mask, uniform)
