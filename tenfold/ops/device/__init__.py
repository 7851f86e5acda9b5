"""Triton functions that the GPU engines are made of, and launches that stand for eager PyTorch
where tensors are on a GPU. None of the files here is imported without Triton."""

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def on_gpu(tensor: Any) -> bool:
    """Whether a Triton function may be launched for it; not while torch.compile traces."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.is_cuda
        and not torch.compiler.is_compiling()
        and has_triton()
    )
