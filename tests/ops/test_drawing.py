"""Compiled draws of masked heads: never a forbidden option, no allocation, bad input named."""

import math

import numpy as np
import pytest
import torch
from numba.core.runtime import _nrt_python, rtsys

from tenfold.ops.drawing import (
    draw_heads,
    linear_draw_heads,
    linear_sample_numba,
    sample_numba,
    score_heads,
)
from tenfold.ops.head_tables import HeadTables, some_mask
from tenfold.ops.heads import MaskedHeads, log_prob_reference


def test_a_million_compiled_draws_never_return_a_forbidden_option() -> None:
    sizes, rows = (5, 3, 8), 50_000
    tables, rng = HeadTables.of(sizes), np.random.default_rng(0)
    mask = some_mask(rng, sizes, (rows,), False).numpy()
    logits = np.where(mask, rng.normal(size=mask.shape), 300).astype(np.float32)
    actions, log_prob = np.zeros((rows, 3), np.int64), np.zeros((rows, 3), np.float32)
    ends = np.array([0, 1e-45, 1 - 2**-24, 1, 0.5], np.float32)
    for _ in range(7):
        uniform = np.where(
            rng.random((rows, 3)) < 0.5, rng.choice(ends, (rows, 3)), rng.random((rows, 3))
        ).astype(np.float32)
        sample_numba(tables, logits, mask, uniform, actions, log_prob)
        assert np.take_along_axis(mask, actions + tables.offsets[:-1], 1).all()
        assert np.isfinite(log_prob).all() and (log_prob <= 1e-6).all()


def test_bad_input_to_the_compiled_form_is_named() -> None:
    heads, shape = MaskedHeads((2, 3)), (4, 2)
    good = {
        "logits": np.zeros((4, 5), np.float32),
        "mask": np.ones((4, 5), np.bool_),
        "uniform": np.zeros(shape, np.float32),
        "actions": np.zeros(shape, np.int64),
        "log_prob": np.zeros(shape, np.float32),
    }
    nan, late = good["logits"].copy(), good["uniform"].copy()
    nan[1, 4], late[3, 0] = math.nan, 1.5
    for change, words in (
        ({"logits": nan}, "row 1, component 1 has a logit that is not finite"),
        ({"uniform": late}, "row 3, component 0 was given a uniform"),
        ({"mask": np.ones((4, 5))}, "bool mask"),
        ({"mask": np.ones((3, 5), np.bool_)}, "bool mask"),
        ({"actions": np.zeros((4, 1), np.int64)}, "one number a component"),
    ):
        with pytest.raises(ValueError, match=words):
            sample_numba(heads.tables, **(good | change))


def test_the_linear_form_writes_into_given_arrays_and_equals_the_layers() -> None:
    sizes, rows = (2, 5, 1), 9
    heads, rng = MaskedHeads(sizes), np.random.default_rng(0)
    layer = torch.nn.Linear(6, 8)
    features, mask = (
        rng.normal(size=(rows, 6)).astype(np.float32),
        some_mask(rng, sizes, (rows,), False),
    )
    uniform, logits = rng.random((rows, 3)).astype(np.float32), np.zeros((rows, 8), np.float32)
    actions, scores = np.zeros((rows, 3), np.int64), np.zeros((rows, 3), np.float32)
    found = linear_sample_numba(
        heads.tables,
        features,
        layer.weight.detach().numpy(),
        layer.bias.detach().numpy(),
        mask.numpy(),
        uniform,
        logits,
        actions,
        scores,
    )
    assert found[0] is actions and found[1] is scores
    expected, log_prob = heads.act(
        layer(torch.from_numpy(features)), mask, torch.from_numpy(uniform)
    )
    assert (
        np.array_equal(actions, expected.numpy()) and np.abs(scores - log_prob.numpy()).max() < 1e-5
    )
    reference = log_prob_reference(heads, torch.from_numpy(logits), expected, mask)
    assert np.abs(scores - reference.numpy()).max() < 1e-5


def test_the_compiled_forms_allocate_nothing() -> None:
    t = HeadTables.of((2, 5, 1))
    constants, scratch = (t.offsets, t.fallback), (t.weight, t.bits)

    def arrays(rows: int) -> list[np.ndarray]:
        shape = (rows, 3)
        return [
            np.ones((rows, 4), np.float32),
            np.ones((rows, 8), np.float32),
            np.ones((rows, 8), np.bool_),
            np.full(shape, 0.5, np.float32),
            np.zeros(shape, np.int64),
            np.zeros(shape, np.float32),
        ]

    weight, bias = np.ones((8, 4), np.float32), np.ones(8, np.float32)

    def allocations(rows: int) -> int:
        features, logits, mask, uniform, actions, scores = arrays(rows)
        before = rtsys.get_allocation_stats().alloc
        for _ in range(20):
            draw_heads(logits, mask, uniform, *constants, *scratch, actions, scores)
            score_heads(logits, mask, actions, *constants, t.absent, *scratch, scores)
            linear_draw_heads(
                features, weight, bias, mask, uniform, *constants, *scratch, logits, actions, scores
            )
        return rtsys.get_allocation_stats().alloc - before

    _nrt_python.memsys_enable_stats()
    handles, found = allocations(1), allocations(500)  # each array argument costs a handle
    _nrt_python.memsys_disable_stats()
    assert found == handles == 20 * (9 + 8 + 12)
