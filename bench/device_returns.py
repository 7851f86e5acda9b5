"""Generalised advantages on a GPU, 128 steps of 4,096 environments: one launch against the loop
over time that single-file agents write, on the same card.

Both are called as a program calls them, from Python, so many times in a row that a turn lasts some
milliseconds, and waited for. Equality is checked on the inputs timed.
"""

from collections.abc import Callable
from typing import Any

import torch
from measure import interleave, timed_row
from returns import LAMBDA, TOLERANCE, rollout, torch_loop

from tenfold.ops.returns import gae, gae_scan

TIME, BATCH, CALLS = 128, 4096, 200


def turn(work: Callable[[], Any], calls: int) -> Callable[[], int]:
    def run() -> int:
        for _ in range(calls):
            work()
        torch.cuda.synchronize()
        return calls

    return run


def advantages() -> list[dict[str, Any]]:
    given = {name: torch.from_numpy(a).cuda() for name, a in rollout(TIME, BATCH).items()}
    sides = {
        "torch loop, CUDA": (lambda: torch_loop(**given), CALLS // 40),
        "torch scan, CUDA": (lambda: gae_scan(**given, lam=LAMBDA), CALLS // 5),
        "one launch": (lambda: gae(**given, lam=LAMBDA), CALLS),
    }
    ours = gae(**given, lam=LAMBDA)
    times = interleave({name: turn(*side) for name, side in sides.items()}, 11)
    setting = {"time": TIME, "batch": BATCH, "gpu": torch.cuda.get_device_name()}
    rows = []
    for name in list(sides)[:2]:
        apart = float((sides[name][0]() - ours).abs().max())
        rows.append(
            timed_row(
                "cuda-gae",
                setting,
                (name, times[name]),
                ("one launch", times["one launch"]),
                equal=apart < TOLERANCE,
                max_diff=apart,
            )
        )
    return rows


NAMES = {}  # without a GPU
CUDA = {"cuda-gae": advantages}
