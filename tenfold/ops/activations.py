"""Functions between layers: torch's, and the same as compiled code that works in place, forward and
backward. Those from GELU on have derivatives that their values do not tell.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from tenfold.core.kernels import exp, kernel, tanh

RELU, TANH, ELU, SELU, LEAKY_RELU, GELU, SILU = range(7)
ACTIVATIONS = {
    "relu": RELU,
    "tanh": TANH,
    "elu": ELU,
    "selu": SELU,
    "leaky_relu": LEAKY_RELU,
    "gelu": GELU,
    "silu": SILU,
}
FUNCTIONS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    F.relu,
    torch.tanh,
    F.elu,
    F.selu,
    F.leaky_relu,
    F.gelu,
    F.silu,
)


def activation_of(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return FUNCTIONS[ACTIVATIONS[name]]


# slopes of SELU (Klambauer et al., 2017) above 0 and just below, and of leaky ReLU below 0
SELU_ABOVE, SELU_BELOW = np.float32(1.0507009873554805), np.float32(1.7580993408473768)
LEAK = np.float32(0.01)
HALF, ONE = np.float32(0.5), np.float32(1)
PER_ROOT_TWO, PER_ROOT_TAU = np.float32(1 / math.sqrt(2)), np.float32(1 / math.sqrt(math.tau))


@kernel
def activate(size, h, activation, kept):
    """h ← f(h); the product has done ReLU. Derivatives go so far in front, unless `kept` is 0."""
    if activation == TANH:
        for i in range(size):
            h[i] = tanh(h[i])
    elif activation == ELU:
        for i in range(size):
            h[i] = h[i] if h[i] > 0 else np.expm1(h[i])
    elif activation == SELU:
        for i in range(size):
            h[i] = SELU_ABOVE * h[i] if h[i] > 0 else SELU_BELOW * np.expm1(h[i])
    elif activation == LEAKY_RELU:
        for i in range(size):
            h[i] = h[i] if h[i] > 0 else LEAK * h[i]
    elif activation == GELU:
        for i in range(size):
            x = h[i]
            share = HALF + HALF * np.float32(math.erf(x * PER_ROOT_TWO))
            h[i] = x * share
            if kept:
                h[i - kept] = share + x * PER_ROOT_TAU * exp(-HALF * x * x)
    elif activation == SILU:
        for i in range(size):
            x = h[i]
            share = ONE / (ONE + exp(-x))
            h[i] = x * share
            if kept:
                h[i - kept] = share * (ONE + x * (ONE - share))


@kernel
def through_activation(size, delta, h, activation, kept):
    """delta ← delta · f', where f' is found from f's value h, or so far in front of it."""
    if activation == RELU:
        for i in range(size):
            delta[i] = delta[i] if h[i] > 0 else np.float32(0)
    elif activation == TANH:
        for i in range(size):
            delta[i] *= np.float32(1) - h[i] * h[i]
    elif activation == ELU:
        for i in range(size):
            delta[i] *= np.float32(1) if h[i] > 0 else h[i] + np.float32(1)
    elif activation == SELU:
        for i in range(size):
            delta[i] *= SELU_ABOVE if h[i] > 0 else h[i] + SELU_BELOW
    elif activation == LEAKY_RELU:
        for i in range(size):
            delta[i] *= ONE if h[i] > 0 else LEAK
    else:
        for i in range(size):
            delta[i] *= h[i - kept]
