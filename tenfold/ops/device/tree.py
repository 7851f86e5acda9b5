"""The sum tree of `ops.sumtree` in Triton: leaves written together, found together, level by
level."""

import triton.language as tl

from tenfold.ops.device.language import gpu_kernel


@gpu_kernel
def put(tree, half: tl.constexpr, leaf, value, there):
    """Sets leaves, and the sums above them anew. Of equal leaves at most one may be `there`."""
    node, level = half + leaf, tl.full((), half, tl.int32)
    tl.store(tree + node, value, mask=there)
    while level > 1:
        tl.debug_barrier()
        node, level = node // 2, level // 2
        left = tl.load(tree + 2 * node, mask=there, other=0.0)
        right = tl.load(tree + 2 * node + 1, mask=there, other=0.0)
        tl.store(tree + node, left + right, mask=there)
    tl.debug_barrier()


@gpu_kernel
def find(tree, half: tl.constexpr, mass):
    """The leaf i with Σ_{j<i} p_j ≤ mass < Σ_{j≤i} p_j; a subtree of zero mass is never
    entered."""
    node, level = (mass * 0.0).to(tl.int32) + 1, tl.full((), half, tl.int32)
    while level > 1:
        left = tl.load(tree + 2 * node)
        right = (mass >= left) & (tl.load(tree + 2 * node + 1) > 0)
        mass = tl.where(right, mass - left, mass)
        node, level = 2 * node + right.to(tl.int32), level // 2
    return node - half


@gpu_kernel
def is_last(leaf, there, SIZE: tl.constexpr):
    """Whether no later item has the same leaf."""
    i = tl.arange(0, SIZE)
    same = (leaf[:, None] == leaf[None, :]) & (i[None, :] > i[:, None]) & there[None, :]
    return tl.sum(same.to(tl.int32), 1) == 0
