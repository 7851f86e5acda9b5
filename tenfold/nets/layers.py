"""Layers of networks, and networks whose parameters are views of one flat buffer. Every layer takes
an optional leading member dimension: M networks in one call.

Weights keep torch's layout, (out, in) or (M, out, in). Initial values are drawn from the
counter-based generator in the order of `parameters()`, each member from its own seed, so member i
starts as it would alone.

The optimiser's step, the target's copy, clipping, publishing and saving are each one operation on
one array: `FlatModule`. With members the buffers are [M, P], a contiguous row for each.
"""

import copy
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tenfold.config.networks import Net
from tenfold.core.pairs import pair
from tenfold.core.random import fill_uniform
from tenfold.ops.qlearning import tensor


class FlatModule(nn.Module):
    """A module whose parameters are views of ONE contiguous buffer `flat`, and whose gradients are
    views of another, `flat_grad`.

    Call `flatten()` once after construction. Moving, converting, copying and loading keep the
    property; whoever replaces a parameter by hand calls `flatten()` again.
    """

    members: int | None = None
    flat: torch.Tensor
    flat_grad: torch.Tensor

    def flatten(self, flat: torch.Tensor | None = None, grad: torch.Tensor | None = None) -> Self:
        """Moves every parameter into a buffer, in the order of `parameters()`, and makes them views
        of it.

        The buffers are new, or the given ones, which must fit.
        """
        parameters = list(self.parameters())
        lead = () if self.members is None else (self.members,)
        if lead:  # rows of [M, P] are apart by design
            warnings.filterwarnings(
                "ignore", "grad and param do not obey the gradient layout contract"
            )
        with torch.no_grad():
            values = torch.cat([p.detach().reshape(*lead, -1) for p in parameters], dim=-1)
            self.flat = values if flat is None else flat.copy_(values)
            self.flat_grad = torch.zeros_like(values) if grad is None else grad.zero_()
            start = 0
            for p in parameters:
                size = p.numel() // (self.members or 1)
                p.data = self.flat[..., start : start + size].view(p.shape)
                p.grad = self.flat_grad[..., start : start + size].view(p.shape)
                start += size
        return self

    def detached_copy(self) -> Self:
        """A copy to act by, whose parameters are tensors of their own: whoever saves one of them
        saves nothing else. It has no gradients and is not flat any more."""
        clone = copy.deepcopy(self)
        for p in clone.parameters():
            p.data, p.grad = p.data.clone(), None
            p.requires_grad_(False)
        clone.flat = clone.flat_grad = clone.flat.new_zeros(0)
        return clone

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        return self.flatten()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        result = super().load_state_dict(state_dict, strict, assign)
        if assign:
            self.flatten()
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        clone = self.__class__.__new__(self.__class__)
        memo[id(self)] = clone
        for name, value in self.__dict__.items():
            if name not in ("flat", "flat_grad"):
                clone.__dict__[name] = copy.deepcopy(value, memo)
        return clone.flatten()


# channels, kernel, stride; nature: Mnih et al. (2015), small: Young & Tian (2019), MinAtar
CONVOLUTIONS = {"nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)), "small": ((16, 3, 1),)}
LONG = 64  # numbers of a row from which products are faster
MANY_IMAGES = 128  # in a batch, from which channels that stand last are faster


class LayerMode:
    """Which library functions layers call on a GPU; the numbers are the same but for rounding.
    By products, in float32, convolutions of small images are faster (those that can be repeated bit
    for bit much faster), and so are products over long rows without the bias. In TensorFloat32
    large batches of images are convolved faster where their channels stand last."""

    by_products = False
    channels_last = False


@contextmanager
def layers_for_gpu(precision: str) -> Iterator[None]:
    """Layers inside call what is fastest on a GPU for products of this precision."""
    before = LayerMode.by_products, LayerMode.channels_last
    LayerMode.by_products, LayerMode.channels_last = precision == "fp32", precision == "tf32"
    try:
        yield
    finally:
        LayerMode.by_products, LayerMode.channels_last = before


def linear_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for m, b, i, o in ((1, 1, 1, 1), (3, 5, 4, 2), (8, 32, 16, 7)):
        yield tensor(rng, dtype, m, b, i), tensor(rng, dtype, m, o, i), tensor(rng, dtype, m, o)


def linear_reference(x, weight, bias):
    """One member at a time."""
    return torch.stack([F.linear(x[m], weight[m], bias[m]) for m in range(len(x))])


@pair(
    linear_reference,
    linear_examples,
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2),
)
def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x·Wᵀ + b for all members at once: [M, B, in] -> [M, B, out]; without members, [B, in] -> [B,
    out]."""
    if weight.dim() == 2:
        if LayerMode.by_products and weight.shape[1] >= LONG:
            return torch.mm(x, weight.t()) + bias
        return F.linear(x, weight, bias)
    return torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))


def convolve_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for m, b, c, o, size, stride in ((1, 1, 1, 1, 3, 1), (3, 2, 2, 4, 7, 2)):
        yield (
            tensor(rng, dtype, m, b, c, size, size),
            tensor(rng, dtype, m, o, c, 3, 3),
            tensor(rng, dtype, m, o),
            stride,
        )


def convolve_reference(x, weight, bias, stride):
    return torch.stack([F.conv2d(x[m], weight[m], bias[m], stride) for m in range(len(x))])


@pair(
    convolve_reference,
    convolve_examples,
    rtol=1e-4,
    atol=1e-5,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2),
)
def convolve(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int
) -> torch.Tensor:
    """Members as groups of one convolution: [M, B, C, H, W] -> [M, B, O, H', W']."""
    if weight.dim() == 4:
        if LayerMode.by_products:
            return convolve_by_products(x, weight, bias, stride)
        if LayerMode.channels_last and len(x) >= MANY_IMAGES:
            x = x.contiguous(memory_format=torch.channels_last)
        return F.conv2d(x, weight, bias, stride)
    m, b, c = x.shape[:3]
    together = x.transpose(0, 1).reshape(b, m * c, *x.shape[3:])
    out = F.conv2d(together, weight.flatten(0, 1), bias.flatten(), stride, groups=m)
    return out.view(b, m, -1, *out.shape[2:]).transpose(0, 1)


def noisy_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, i, o in (((), 1, 1), ((), 4, 3), ((2,), 3, 5)):
        yield (
            tensor(rng, dtype, *lead, o, i),
            tensor(rng, dtype, *lead, o, i),
            tensor(rng, dtype, *lead, o),
            tensor(rng, dtype, *lead, o),
            tensor(rng, dtype, *lead, i + o),
        )


def noisy_reference(weight, weight_sigma, bias, bias_sigma, noise):
    """Fortunato et al. (2018): w_oi = μ_oi + σ_oi f(ε_o) f(ε_i), b_o = μ_o + σ_o f(ε_o), f(x) =
    sign(x)√|x|."""
    if weight.dim() == 3:
        per_member = [
            noisy_reference(*member)
            for member in zip(weight, weight_sigma, bias, bias_sigma, noise, strict=True)
        ]
        return torch.stack([w for w, _ in per_member]), torch.stack([b for _, b in per_member])
    scaled = [math.copysign(math.sqrt(abs(x)), x) for x in noise.tolist()]
    o, i = weight.shape
    w = [
        torch.stack(
            [weight[a, b] + weight_sigma[a, b] * scaled[i + a] * scaled[b] for b in range(i)]
        )
        for a in range(o)
    ]
    return torch.stack(w), torch.stack([bias[a] + bias_sigma[a] * scaled[i + a] for a in range(o)])


@pair(
    noisy_reference,
    noisy_examples,
    rtol=1e-5,
    atol=1e-6,
    dtypes=("float32", "float64"),
    gradients=(0, 1),
)
def noisy_weights(
    weight: torch.Tensor,
    weight_sigma: torch.Tensor,
    bias: torch.Tensor,
    bias_sigma: torch.Tensor,
    noise: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and biases under one noise vector [..., in + out]."""
    scaled = noise.sign() * noise.abs().sqrt()
    into, out = scaled[..., None, : weight.shape[-1]], scaled[..., weight.shape[-1] :, None]
    return weight + weight_sigma * (out * into), bias + bias_sigma * out.squeeze(-1)


class Layer(nn.Module):
    """Fully connected (`kernel` 0) or convolutional, plain or noisy."""

    def __init__(
        self,
        into: int,
        out: int,
        members: int | None,
        kernel: int = 0,
        stride: int = 1,
        sigma: float = 0.0,
    ) -> None:
        super().__init__()
        lead = () if members is None else (members,)
        shape = (*lead, out, into, kernel, kernel) if kernel else (*lead, out, into)
        self.stride, self.bound = stride, 1 / math.sqrt(into * max(kernel, 1) ** 2)
        self.weight, self.bias = (
            nn.Parameter(torch.zeros(shape)),
            nn.Parameter(torch.zeros(*lead, out)),
        )
        self.sigma = sigma
        self.noise_size = into + out if sigma else 0
        if sigma:
            self.weight_sigma, self.bias_sigma = (
                nn.Parameter(torch.zeros(shape)),
                nn.Parameter(torch.zeros(*lead, out)),
            )

    def forward(self, x: torch.Tensor, noise: torch.Tensor | None = None) -> torch.Tensor:
        weight, bias = self.weight, self.bias
        if self.sigma and noise is not None:
            weight, bias = noisy_weights(weight, self.weight_sigma, bias, self.bias_sigma, noise)
        if self.stride:
            return convolve(x, weight, bias, self.stride)
        return linear(x, weight, bias)


def draw_uniform_start(network: FlatModule, stream: np.uint64) -> None:
    """Weights and biases uniform within ±1/√inputs, and those of a memory of H numbers within ±1/√H
    (torch's default)."""
    numbers = fill_uniform(stream, 0, np.empty(network.flat.numel()))
    with torch.no_grad():
        network.flat.copy_(torch.from_numpy(numbers))
        for module in network.modules():
            bound: Any = getattr(module, "bound", None)
            for parameter in module.parameters(recurse=False) if bound else ():
                parameter.mul_(2).sub_(1).mul_(bound)


def layers_of(
    shape: tuple[int, ...],
    outputs: int,
    net: Net,
    members: int | None = None,
    sigma: float = 0.0,
    extra_inputs: int = 0,
) -> tuple[nn.ModuleList, nn.ModuleList, tuple[int, ...]]:
    """Convolutions if the input is an image, then fully connected layers, and the sizes of these.
    `extra_inputs`: numbers that the first of them reads besides."""
    convolutions, width = [], math.prod(shape)
    if len(shape) == 3:
        channels, *sides = shape
        for out, kernel, stride in CONVOLUTIONS[net.encoder]:
            convolutions.append(Layer(channels, out, members, kernel, stride))
            channels, sides = out, [(side - kernel) // stride + 1 for side in sides]
        width = channels * math.prod(sides)
    sizes = (width + extra_inputs, *net.hidden, outputs)
    connected = (Layer(i, o, members, stride=0, sigma=sigma) for i, o in pairwise(sizes))
    return nn.ModuleList(convolutions), nn.ModuleList(connected), sizes


def patch_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for b, c, o, side, size, stride in ((1, 1, 1, 3, 3, 1), (3, 2, 4, 9, 3, 2), (2, 3, 5, 8, 4, 4)):
        x, weight = tensor(rng, dtype, b, c, side, side), tensor(rng, dtype, o, c, size, size)
        yield x, weight, tensor(rng, dtype, o), stride


@pair(
    F.conv2d,
    patch_examples,
    rtol=1e-4,
    atol=1e-5,
    dtypes=("float32", "float64"),
    gradients=(0, 1, 2),
)
def convolve_by_products(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int
) -> torch.Tensor:
    """A convolution as one product, [B, C, H, W] -> [B, O, H', W']: each patch of the image is a
    row."""
    size = weight.shape[-1]
    patches = x.unfold(2, size, stride).unfold(3, size, stride).permute(0, 2, 3, 1, 4, 5)
    batch, height, width = patches.shape[:3]
    rows = patches.reshape(batch * height * width, -1)
    output = torch.addmm(bias, rows, weight.flatten(1).t())
    return output.view(batch, height, width, -1).permute(0, 3, 1, 2)
