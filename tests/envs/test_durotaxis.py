"""Durotaxis: the compiled step against one node at a time, and what a colony may and may not do."""

import numpy as np
import pytest

from tenfold.envs.durotaxis_reference import play_compiled, play_reference, some_actions


@pytest.mark.parametrize(("arguments", "steps", "colonies"), [
    ("substrate=linear", 400, 8), ("substrate=exponential, rounding=floor", 250, 8), ("substrate=bend, max_nodes=60", 300, 8),
    ("substrate=random, size=250x60, init_nodes=1, max_nodes=20, max_steps=9", 200, 8), ("mode=nodes, substrate=bend, max_nodes=40", 150, 8)])
def test_compiled_colonies_step_like_one_node_at_a_time(arguments: str, steps: int, colonies: int) -> None:
    name = f"tenfold/Durotaxis-v0({arguments})"
    actions = some_actions(np.random.default_rng(1), name, steps, colonies).astype(np.float32)
    names = ("obs", "final_obs", "components", "ending", "tree")
    for what, found, expected in zip(names, play_compiled(name, 3, actions), play_reference(name, 3, actions), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=what)
