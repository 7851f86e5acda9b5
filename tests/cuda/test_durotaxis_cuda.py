"""Colonies on a GPU: the compiled ones' episodes, without a wait for the device within a step."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from tenfold.domains.durotaxis.baselines import constant_policy
from tenfold.domains.durotaxis.setting import Ending, read_setting
from tenfold.domains.durotaxis.torch_features import (
    hulls_of_arrays,
    hulls_reference,
    scattered_places,
)
from tenfold.memory.graphs import pack

sys.path.append(str(Path(__file__).parent.parent / "domains" / "durotaxis"))
from colony_lockstep import assert_same, both, legal, play_both, steered, varied  # type: ignore[import-not-found]

pytestmark = pytest.mark.cuda
WORLDS = [
    ("", 7, 100),
    ("substrate=exponential, rounding=floor", 1, 60),
    ("substrate=bend", 7, 100),
    ("soft=5, max_nodes=30", 7, 100),
    ("substrate=random, size=250x60, init_nodes=1, max_nodes=20, max_steps=9", 7, 100),
    ("max_nodes=2, init_nodes=2", 1, 40),
    ("learn=delete_ratio, max_nodes=25", 7, 60),
    ("mode=nodes, substrate=bend, max_nodes=40", 7, 100),
    ("mode=nodes, max_nodes=6, init_nodes=6, soft=3", 1, 100),
    ("substrate=bend, size=250..700x60..400, init_nodes=1..30, max_nodes=30", 9, 100),
]


@contextmanager
def no_waiting() -> Iterator[None]:
    with warnings.catch_warnings(action="ignore"):  # that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("graph", [False, True], ids=["launched", "recorded"])
@pytest.mark.parametrize(("arguments", "number", "steps"), WORLDS)
def test_colonies_on_the_gpu_step_like_the_compiled_ones(
    arguments: str, number: int, steps: int, graph: bool
) -> None:
    envs, colonies = both(arguments, number, 3, "cuda", graph=graph)
    assert play_both(envs, colonies, varied(envs), steps)


@pytest.mark.parametrize("graph", [False, True], ids=["launched", "recorded"])
def test_a_thousand_colonies_follow_a_bend_to_the_goal(graph: bool) -> None:
    """So many that pairs of nodes are looked at in several parts."""
    envs, colonies = both("substrate=bend", 2000, 0, "cuda", graph=graph)
    assert set(play_both(envs, colonies, steered, 45)) == {int(Ending.GOAL)}


def test_on_an_array_where_all_ground_is_the_same() -> None:
    """Means and centroids of equal numbers are compared with them: sums must be added in the same
    order."""
    for number in (1, 7):
        envs, colonies = both(
            read_setting(substrate=np.full((60, 300), 0.7), max_nodes=25), number, 0, "cuda"
        )
        play_both(envs, colonies, varied(envs), 100)


def test_hulls_on_the_gpu_have_the_same_corners() -> None:
    for x, y, nodes in scattered_places(np.random.default_rng(0), "float64"):
        corner, area = hulls_of_arrays(x, y, nodes, "cuda")
        expected, true_area = hulls_reference(x, y, nodes)
        np.testing.assert_array_equal(corner, expected)
        np.testing.assert_allclose(area, true_area, atol=1e-8)


@pytest.mark.parametrize("graph", [False, True], ids=["launched", "recorded"])
@pytest.mark.parametrize(
    "arguments", ["substrate=bend", "substrate=random", "mode=nodes, max_nodes=20"]
)
def test_a_step_does_not_wait_for_the_gpu(arguments: str, graph: bool) -> None:
    envs, colonies = both(arguments, 64, 0, "cuda", graph=graph)
    actions = legal(envs.mask, varied(envs)(envs, 0))
    envs.step(actions)
    on_device = torch.from_numpy(actions).cuda()
    if graph:
        colonies.graph = colonies.record()  # recording waits, once
    with no_waiting():
        colonies.step(on_device)
    assert_same(envs, colonies)


def test_on_an_array_a_step_does_not_wait_either() -> None:
    envs, colonies = both(
        read_setting(substrate=np.linspace(0.5, 9, 300 * 60).reshape(300, 60).T), 8, 0, "cuda"
    )
    on_device = torch.from_numpy(constant_policy([0.5, 15.0, 0.5, 0.5, 0.1])(envs, 0)).cuda()
    with no_waiting():
        colonies.step(on_device)


def test_rows_are_packed_on_the_gpu_as_they_are() -> None:
    envs, colonies = both("substrate=bend", 7, 0, "cuda")
    play_both(envs, colonies, varied(envs), 5)
    for found, expected in zip(
        pack(colonies.obs, colonies.size),
        pack(torch.from_numpy(envs.obs), colonies.size),
        strict=True,
    ):
        assert found.is_cuda
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-6)
