"""Rows that belong together by an index: sum, mean, maximum and softmax of every segment in one
pass; and packed graphs.

`index[i]` says which of `count` segments row i belongs to, in any order; a segment may be empty
(sum, mean and maximum are 0).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.pairs import pair

EQUAL: Any = {"rtol": 1e-5, "atol": 1e-6, "dtypes": ("float32", "float64"), "gradients": (0,)}


class Graphs(NamedTuple):
    """A batch of graphs of different sizes: the rows of all nodes, then of all edges, one graph
    after another.

    Graph b has the nodes ptr[b] … ptr[b + 1] − 1. Links are pairs of such rows, (source, target)
    [2, E].
    """

    nodes: torch.Tensor  # [N, F]
    ptr: torch.Tensor  # [B + 1]
    owner: torch.Tensor  # [N]: the graph of each node
    links: torch.Tensor  # [2, E]
    edges: torch.Tensor  # [E, F']
    whole: torch.Tensor  # [B, G]

    @property
    def batch(self) -> int:
        return self.ptr.shape[0] - 1  # len() would be one number to whoever traces it

    def places(self, room: int) -> torch.Tensor:
        """Where each node lies in an array with `room` places for every graph."""
        return torch.arange(self.owner.shape[0], device=self.owner.device) + (
            self.owner * room - self.ptr[self.owner]
        )


def rows(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """x[index]; its gradient is one index_add, a fifth of what brackets cost."""
    return x.index_select(0, index)


def segment_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size, width, count in (
        (1, (1,), 1),
        (7, (3,), 4),
        (5, (2,), 9),
        (40, (4, 3), 6),
        (200, (8,), 64),
    ):
        index = torch.from_numpy(rng.integers(0, count, size))
        yield torch.from_numpy(rng.normal(size=(size, *width)).astype(dtype)), index, count


def members(x, index, count):
    return [x[index == s] for s in range(count)]


def segment_sum_reference(x, index, count):
    return torch.stack([own.sum(0) for own in members(x, index, count)])


@pair(segment_sum_reference, segment_examples, **EQUAL)
def segment_sum(x: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    if torch.compiler.is_compiling() and not torch.compiler.is_dynamo_compiling():
        # traced for a file: ONNX Runtime adds in several threads what `index_add` becomes there
        # (ScatterND), without a lock, and in one what this becomes (ScatterElements)
        wide = index.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)
        return x.new_zeros(count, *x.shape[1:]).scatter_add(0, wide, x)
    return x.new_zeros(count, *x.shape[1:]).index_add_(0, index, x)


def segment_max_reference(x, index, count):
    return torch.stack(
        [own.amax(0) if len(own) else own.sum(0) for own in members(x, index, count)]
    )


@pair(segment_max_reference, segment_examples, **EQUAL)
def segment_max(x: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    wide = index.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)
    return x.new_zeros(count, *x.shape[1:]).scatter_reduce(0, wide, x, "amax", include_self=False)


def segment_softmax_reference(x, index, count):
    found = torch.zeros_like(x)
    for s in range(count):
        if (index == s).any():
            found = found.index_put((torch.where(index == s)[0],), x[index == s].softmax(0))
    return found


@pair(segment_softmax_reference, segment_examples, **EQUAL)
def segment_softmax(x: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    """exp(x) / Σ exp(x) within each segment, in every column. The largest is taken out first, so
    that no exponent overflows."""
    high = segment_max(x.detach(), index, count)
    scaled = (x - rows(high, index)).exp()
    return scaled / rows(segment_sum(scaled, index, count), index)
