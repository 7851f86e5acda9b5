"""A Ray of the tests' own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Four CPUs in this process and its children, without a dashboard, gone afterwards; never one
    that somebody else has started."""
    with pytest.MonkeyPatch.context() as patch:
        # the processes it starts find what the tests share
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        ray.init(
            "local", num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False
        )
        yield
        ray.shutdown()
