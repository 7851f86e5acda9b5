"""Layers by other functions of the library, to the same numbers but for rounding, where those are
faster: on a GPU, in float32, convolutions of small images are faster as products (those that can be
repeated bit for bit much faster), and products over long rows without the bias."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from tenfold.core.pairs import pair
from tenfold.ops.qlearning import tensor

LONG = 64  # numbers of a row


class Layers:
    """How layers run now."""

    by_products = False


@contextmanager
def products_instead(wanted: bool = True) -> Iterator[None]:
    """Layers inside run that way."""
    before, Layers.by_products = Layers.by_products, wanted
    try:
        yield
    finally:
        Layers.by_products = before


def convolve_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for b, c, o, side, size, stride in ((1, 1, 1, 3, 3, 1), (3, 2, 4, 9, 3, 2), (2, 3, 5, 8, 4, 4)):
        x, weight = tensor(rng, dtype, b, c, side, side), tensor(rng, dtype, o, c, size, size)
        yield x, weight, tensor(rng, dtype, o), stride


@pair(
    F.conv2d,
    convolve_examples,
    rtol=1e-4,
    atol=1e-5,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2),
)
def convolve_by_products(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int
) -> torch.Tensor:
    """A convolution as one product, [B, C, H, W] -> [B, O, H', W']: what each place of the output
    sees is a row."""
    size = weight.shape[-1]
    seen = x.unfold(2, size, stride).unfold(3, size, stride).permute(0, 2, 3, 1, 4, 5)
    batch, height, width = seen.shape[:3]
    rows = seen.reshape(batch * height * width, -1)
    found = torch.addmm(bias, rows, weight.flatten(1).t())
    return found.view(batch, height, width, -1).permute(0, 3, 1, 2)
