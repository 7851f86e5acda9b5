"""From logits or observations to actions of masked heads, in one compiled call: what an environment
runner needs of a step.

Beside the actions there are the masked logits and the log-probability of whole actions, so that
nothing is left to compute. Masks are bool, int8, uint8 or floats of 0 and 1.
"""

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.drawing import draw_heads, heads_like, sample_numba_examples
from tenfold.ops.head_tables import FINE, LOWEST, HeadTables
from tenfold.ops.heads import log_prob_reference, sample_reference
from tenfold.ops.layout import padded_logits_reference
from tenfold.ops.mlp import ELU, RELU, TANH, mlp_forward, mlp_of, parameter_count

BAD_MASK = -2  # beside FINE and the faults of draw_heads
Acted = tuple[np.ndarray, np.ndarray, np.ndarray]


# kernels


@kernel
def choose(logits, mask, uniform, offsets, fallback, actions, joint):
    """Draws actions [B, C] from logits [B, M], writes their log-probabilities summed over heads
    into `joint` [B], and puts the finite minimum where an option is forbidden. Returns FINE,
    BAD_MASK, or as `draw_heads` where it stopped and why."""
    rows, options = logits.shape
    allowed, strange = np.empty((rows, options), np.bool_), 0
    for b in range(rows):
        for m in range(options):
            allowed[b, m] = mask[b, m] != 0
            strange += np.int32(mask[b, m] != allowed[b, m])
    if strange:
        return BAD_MASK
    log_prob = np.empty((rows, offsets.size - 1), np.float32)
    weight, bits = np.empty(options, np.float32), np.empty(options, np.int32)
    stopped = draw_heads(
        logits, allowed, uniform, offsets, fallback, weight, bits, actions, log_prob
    )
    if stopped != FINE:
        return stopped
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
    return FINE


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


# on tables


def check_width(what: str, array: np.ndarray, rows: int, width: int) -> None:
    """Compiled code does not look at bounds."""
    if array.shape != (rows, width):
        raise ValueError(
            f"{what} give {array.shape} numbers where the mask asks for {(rows, width)}"
        )


def two_forms(mask: np.ndarray) -> np.ndarray:
    """As int8 or float32, so that only two forms of the kernels are compiled."""
    return mask.view(np.int8) if mask.itemsize == 1 else mask.astype(np.float32, copy=False)


def refuse(
    tables: HeadTables, logits: np.ndarray, mask: np.ndarray, uniform: np.ndarray
) -> NoReturn:
    """Raises what `MaskedHeads` says of the same inputs: row, component and option."""
    heads_like(tables).act(
        torch.from_numpy(logits), torch.from_numpy(mask), torch.from_numpy(uniform)
    )
    raise ValueError("a logit or a mask is not usable")


def logits_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for k, (tables, logits, mask, uniform, _, _) in enumerate(sample_numba_examples(rng, dtype)):
        yield (
            tables,
            logits,
            mask.astype((np.bool_, np.int8, np.float32, np.float64)[k % 4]),
            uniform,
        )


def act_on_logits_reference(tables, logits, mask, uniform):
    heads, x, allowed = heads_like(tables), torch.from_numpy(logits), torch.from_numpy(mask != 0)
    actions = sample_reference(heads, x, allowed, torch.from_numpy(uniform))
    masked = heads.flat(padded_logits_reference(heads, x, allowed))
    return masked, actions, log_prob_reference(heads, x, actions, allowed).sum(-1)


@pair(act_on_logits_reference, logits_examples, rtol=2e-5, atol=5e-6)
def act_on_logits(
    tables: HeadTables, logits: np.ndarray, mask: np.ndarray, uniform: np.ndarray
) -> Acted:
    """The masked logits [B, M], in place of those given; actions [B, C]; the log-probability of
    whole actions [B]."""
    rows, heads, mask = len(mask), len(tables.fallback), two_forms(mask)
    check_width("logits", logits, *mask.shape)
    check_width("uniform numbers", uniform, rows, heads)
    actions, joint = np.empty((rows, heads), np.int64), np.empty(rows, np.float32)
    if choose(logits, mask, uniform, tables.offsets, tables.fallback, actions, joint) != FINE:
        refuse(tables, logits, mask, uniform)
    return logits, actions, joint


def observations_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Networks without a hidden layer, with one and with two, of every activation."""
    for k, (tables, logits, mask, uniform) in enumerate(logits_examples(rng, dtype)):
        sizes = np.array([3 + k, *(5, 9)[: k % 3], logits.shape[1]])
        flat = rng.normal(size=parameter_count(sizes)).astype(dtype)
        seen = rng.normal(size=(len(logits), sizes[0])).astype(dtype)
        yield tables, flat, sizes, (RELU, TANH, ELU)[k % 3], seen, mask, uniform


def act_on_observations_reference(tables, flat, sizes, activation, x, mask, uniform):
    logits = mlp_of(torch.from_numpy(flat), sizes, activation, torch.from_numpy(x))
    return act_on_logits_reference(tables, logits.numpy(), mask, uniform)


@pair(act_on_observations_reference, observations_examples, rtol=2e-5, atol=1e-5)
def act_on_observations(
    tables: HeadTables,
    flat: np.ndarray,
    sizes: np.ndarray,
    activation: int,
    x: np.ndarray,
    mask: np.ndarray,
    uniform: np.ndarray,
) -> Acted:
    """`act_on_logits` of the network (`ops.mlp`) on observations [B, D]."""
    rows, heads, mask = len(mask), len(tables.fallback), two_forms(mask)
    check_width("observations", x, rows, int(sizes[0]))
    check_width("uniform numbers", uniform, rows, heads)
    logits, actions, joint = (
        np.empty(mask.shape, np.float32),
        np.empty((rows, heads), np.int64),
        np.empty(rows, np.float32),
    )
    if (
        forward_and_choose(
            flat,
            sizes,
            activation,
            x,
            logits,
            mask,
            uniform,
            tables.offsets,
            tables.fallback,
            actions,
            joint,
        )
        != FINE
    ):
        refuse(tables, logits, mask, uniform)
    return logits, actions, joint
