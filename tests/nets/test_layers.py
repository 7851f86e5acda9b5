"""Layers as CUDA graphs run them: other library functions, the same numbers."""

import pytest
import torch
from torch.nn import functional as F

from tenfold.nets.layers import convolve, layers_for_gpu


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_a_convolution_for_a_gpu_is_the_librarys(precision: str) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (128, 3, 9, 9), (8, 3, 4, 4), (8,)
    x, weight, bias = (torch.randn(*s, generator=generator).requires_grad_() for s in shapes)
    expected = F.conv2d(x, weight, bias, 2)
    with layers_for_gpu(precision):
        output = convolve(x, weight, bias, 2)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-4)
    slope = torch.randn(expected.shape, generator=generator)
    for ours, library in zip(
        torch.autograd.grad(output, (x, weight, bias), slope),
        torch.autograd.grad(expected, (x, weight, bias), slope),
        strict=True,
    ):
        torch.testing.assert_close(ours, library, rtol=1e-4, atol=1e-3)


def test_many_images_in_tf32_are_convolved_with_channels_last() -> None:
    weight, bias = torch.ones(8, 3, 4, 4), torch.zeros(8)
    with layers_for_gpu("tf32"):
        many, few = (convolve(torch.ones(n, 3, 9, 9), weight, bias, 2) for n in (128, 127))
    assert many.is_contiguous(memory_format=torch.channels_last)
    assert few.is_contiguous() and not convolve(
        torch.ones(128, 3, 9, 9), weight, bias, 2
    ).is_contiguous(memory_format=torch.channels_last)
