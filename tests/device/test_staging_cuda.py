"""Pinned slots and their events on a GPU."""

import sys
from pathlib import Path

import pytest
import torch

from tenfold.memory.staging import Staging

sys.path.append(str(Path(__file__).parent.parent / "memory"))
from staging_stress import stress  # type: ignore[import-not-found]

pytestmark = pytest.mark.cuda


def test_no_batch_is_torn_on_its_way_to_the_gpu() -> None:
    for depth in (1, 2, 3):
        stress(Staging("cuda", depth), 300)


def test_rows_pass_through_pinned_memory_and_those_on_the_gpu_stay() -> None:
    staging = Staging("cuda")
    there = torch.ones(4, device="cuda")
    sent = staging.send({"obs": torch.zeros(4), "there": there})
    assert (
        sent["there"] is there
        and sent["obs"].is_cuda
        and staging.slots[0].buffers["obs"].is_pinned()
    )
