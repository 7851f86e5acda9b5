"""Acting of an actor with critics inside compiled code: its network's output for the environments'
observations, and actions as the memory and as the environments take them."""

import numpy as np

from tenfold.algorithms.fused_arrays import FIRST_OPTION, SINGLE, open_arrays
from tenfold.algorithms.fused_replay import ACTIVATION, see_rows
from tenfold.core.kernels import kernel
from tenfold.core.random import draw_uniform
from tenfold.ops.mlp import mlp_forward, parameter_total


@kernel
def acting_output(flat, sizes, rule, norm, obs, inputs, hidden):
    """Of the actor for observations [B, …]."""
    see_rows(obs, rule, norm, inputs)
    return mlp_forward(flat[: parameter_total(sizes)], sizes, int(rule[ACTIVATION]), inputs, hidden)


@kernel
def random_actions(stream, start, options, action):
    """Uniform ones: of `options`, or numbers between −1 and 1."""
    if action.ndim == 1:
        for i in range(action.size):
            action[i] = int(draw_uniform(stream, start + i) * options)
    else:
        for i in range(action.shape[0]):
            for d in range(action.shape[1]):
                counter = start + i * action.shape[1] + d
                action[i, d] = 2 * draw_uniform(stream, counter) - 1


@kernel
def draw_options(logits, stream, start, action):
    """The option in whose share of the probabilities the uniform number falls."""
    options = logits.shape[0]
    for i in range(action.size):
        most, total, below = -np.inf, 0.0, 0.0
        for k in range(options):
            most = max(most, np.float64(logits[k, i]))
        for k in range(options):
            total += np.exp(np.float64(logits[k, i]) - most)
        limit, found = draw_uniform(stream, start + i) * total, 0
        for k in range(options):
            below += np.exp(np.float64(logits[k, i]) - most)
            found += below <= limit
        action[i] = min(found, options - 1)


@kernel
def put_rows(drawn, action):
    """Columns [D, B] as rows [B, D]."""
    for i in range(action.shape[0]):
        for d in range(action.shape[1]):
            action[i, d] = drawn[d, i]


@kernel
def scale_actions(table, action):
    """As the environments take them: whole numbers from the first on, or numbers within their
    bounds, rounded as `BoundedActions.for_env` does."""
    a = open_arrays(table)
    low, high = a.low, a.high
    if action.ndim == 1:
        for i in range(action.size):
            a.e_whole[i] = action[i] + int(a.rule[FIRST_OPTION])
    else:
        for i in range(action.shape[0]):
            for d in range(action.shape[1]):
                share = (np.float64(action[i, d]) + 1) / 2
                found = min(max(low[d] + share * (high[d] - low[d]), low[d]), high[d])
                if a.e_single.size:
                    a.e_single[i, d] = found
                else:
                    a.e_double[i, d] = np.float64(np.float32(found)) if a.rule[SINGLE] else found
