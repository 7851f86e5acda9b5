"""Compiled draws of masked heads: never a forbidden option, no allocation, bad input named."""

import math

import numpy as np
import pytest
import torch
from numba.core.runtime import _nrt_python, rtsys

from tenfold.integrations.masked.acting import act_on_logits, act_on_observations, draw_heads
from tenfold.ops.head_tables import HeadTables, some_mask
from tenfold.ops.heads import MaskedHeads, log_prob_reference
from tenfold.ops.mlp import RELU


def test_a_million_compiled_draws_never_return_a_forbidden_option() -> None:
    sizes, rows = (5, 3, 8), 50_000
    heads, rng = MaskedHeads(sizes), np.random.default_rng(0)
    mask = some_mask(rng, sizes, (rows,), False).numpy()
    logits = np.where(mask, rng.normal(size=mask.shape), 300).astype(np.float32)
    ends = np.array([0, 1e-45, 1 - 2**-24, 1, 0.5], np.float32)
    for _ in range(7):
        uniform = np.where(
            rng.random((rows, 3)) < 0.5, rng.choice(ends, (rows, 3)), rng.random((rows, 3))
        ).astype(np.float32)
        _, actions, log_prob = act_on_logits(heads, logits.copy(), mask, uniform)
        assert np.take_along_axis(mask, actions + heads.tables.offsets[:-1], 1).all()
        assert np.isfinite(log_prob).all() and (log_prob <= 1e-6).all()


def test_bad_input_to_the_compiled_form_is_named() -> None:
    heads = MaskedHeads((2, 3))
    good = {
        "logits": np.zeros((4, 5), np.float32),
        "mask": np.ones((4, 5), np.bool_),
        "uniform": np.zeros((4, 2), np.float32),
    }
    nan, late, half = good["logits"].copy(), good["uniform"].copy(), np.ones((4, 5))
    nan[1, 4], late[3, 0], half[2, 1] = math.nan, 1.5, 0.5
    for change, words in (
        ({"logits": nan}, "row 1, component 1 .*has a logit that is not finite"),
        ({"uniform": late}, "row 3, component 0 was given a uniform"),
        ({"mask": half}, "row 2, component 0 .*neither 0 nor 1"),
        ({"mask": np.ones((3, 5), np.bool_)}, "logits give"),
        ({"uniform": np.zeros((4, 1), np.float32)}, "uniform numbers give"),
    ):
        with pytest.raises(ValueError, match=words):
            act_on_logits(heads, **(good | change))


def test_a_layer_and_draws_in_one_call_equal_the_layer_and_the_plain_draws() -> None:
    sizes, rows = (2, 5, 1), 9
    heads, rng = MaskedHeads(sizes), np.random.default_rng(0)
    layer = torch.nn.Linear(6, 8)
    features, mask = (
        rng.normal(size=(rows, 6)).astype(np.float32),
        some_mask(rng, sizes, (rows,), False),
    )
    uniform = rng.random((rows, 3)).astype(np.float32)
    flat = torch.cat([layer.weight.detach().flatten(), layer.bias.detach()]).numpy()
    _, actions, scores = act_on_observations(
        heads, flat, np.array([6, 8]), RELU, features, mask.numpy(), uniform
    )
    logits = layer(torch.from_numpy(features)).detach()
    expected, log_prob = heads.act(logits, mask, torch.from_numpy(uniform))
    assert np.array_equal(actions, expected.numpy())
    assert np.abs(scores - heads.joint(log_prob).numpy()).max() < 1e-5
    reference = log_prob_reference(heads, logits, expected, mask)
    assert np.abs(scores - reference.sum(-1).numpy()).max() < 1e-5


def test_drawing_allocates_nothing() -> None:
    tables = HeadTables.of((2, 5, 1))
    scratch = (np.zeros(8, np.float32), np.zeros(8, np.int32))

    def allocations(rows: int) -> int:
        logits, mask = np.ones((rows, 8), np.float32), np.ones((rows, 8), np.bool_)
        uniform, scores = np.full((2, rows, 3), 0.5, np.float32)
        actions, before = np.zeros((rows, 3), np.int64), rtsys.get_allocation_stats().alloc
        for _ in range(20):
            draw_heads(
                logits, mask, uniform, tables.offsets, tables.fallback, *scratch, actions, scores
            )
        return rtsys.get_allocation_stats().alloc - before

    _nrt_python.memsys_enable_stats()
    handles, found = allocations(1), allocations(500)  # each array argument costs a handle
    _nrt_python.memsys_disable_stats()
    assert found == handles == 20 * 9
