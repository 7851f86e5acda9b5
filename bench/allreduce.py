"""The gradient of a million parameters, summed over two learner processes by gloo: one flat buffer,
as all networks here have it, against one call for each tensor.

    python bench/allreduce.py        or        tenfold bench all-reduce --peers
"""

import json
import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from tenfold.cli.measure import timed_row

RANKS, TURNS, TIMES = 2, 15, 20
# 12 layers of weights and biases, nearly 1,000,000 numbers in all, as a policy and its value have them
SHAPES = [(256, 701), (256,), *[(256, 256), (256,)] * 4, (222, 256), (222,)] * 2


def gradient() -> tuple[torch.Tensor, list[torch.Tensor]]:
    """One buffer, and the tensors that are views of it."""
    sizes = [torch.Size(shape).numel() for shape in SHAPES]
    flat = torch.ones(sum(sizes))
    return flat, [part.view(s) for part, s in zip(flat.split(sizes), SHAPES, strict=True)]


def work(rank: int, meeting: str, talk: Connection) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    flat, tensors = gradient()

    def timed(parts: list[torch.Tensor]) -> float:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(TIMES):
            for part in parts:
                dist.all_reduce(part)
            flat.fill_(1)
        return (time.perf_counter() - start) / TIMES * 1e6

    found = [(timed([flat]), timed(tensors)) for _ in range(TURNS)][1:]
    dist.all_reduce(flat)
    talk.send((found, len(tensors), flat.numel(), bool((flat == RANKS).all())))
    dist.destroy_process_group()


def all_reduce() -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pipes = [context.Pipe(duplex=False) for _ in range(RANKS)]
        ranks = [
            context.Process(target=work, args=(rank, f"{folder}/meeting", pipes[rank][1]))
            for rank in range(RANKS)
        ]
        for process in ranks:
            process.start()
        found, tensors, numbers, equal = pipes[0][0].recv()
        for process in ranks:
            process.join()
    flat, each = (statistics.median(times) for times in zip(*found, strict=True))
    setting = {"work": "sum of gradients over 2 processes, gloo", "parameters": numbers}
    row = timed_row("all-reduce", setting, (f"{tensors} tensors", each), ("one flat buffer", flat))
    return [row | {"equal": equal}]


NAMES = {}
PEERS = {"all-reduce": all_reduce}

if __name__ == "__main__":
    print(json.dumps(all_reduce()[0]))
