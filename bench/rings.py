"""What actors and learner exchange: rows through a ring against a pipe, weights by version against
state dicts; and waiting.

Rows: one process writes dicts of arrays, this one reads them, as fast as both can; the pipe is
multiprocessing's. Weights: the learner's to a shared place and from there to an actor's network.
What people write: a clone of the state dict and load_state_dict on both sides; and, leaner than
most programs, without the clones. Both sides run in this process. Waiting: the CPU time of two
seconds in which nothing comes, against a loop that asks.
"""

import multiprocessing
import time
from typing import Any

import numpy as np
import torch
from measure import interleave, row, timed_row
from ring_writer import row_of, write_rows
from torch import nn

from tenfold.core.system import set_threads
from tenfold.memory.ring import Ring
from tenfold.memory.shared import SharedEvent, SharedWeights
from tenfold.nets.layers import FlatModule

# bytes of a row, rows in the ring (100 KB rows: what fits the caches), rows a turn
SIZES = ((1_000, 256, 20_000), (100_000, 8, 4_000))
HIDDEN = (64, 992)  # about 5,000 parameters, and 1,000,000, in three layers
INPUTS, OUTPUTS, WAITED = 8, 4, 2.0


def rows_between_processes() -> list[dict[str, Any]]:
    return [rows_of(*size) for size in SIZES]


def rows_of(size: int, slots: int, count: int) -> dict[str, Any]:
    spawn = multiprocessing.get_context("spawn")
    ring, by_ring, by_pipe = Ring(row_of(size), slots), SharedEvent(), SharedEvent()
    ours, theirs = spawn.Pipe(duplex=False)
    writer = spawn.Process(
        target=write_rows, args=(ring, theirs, by_ring, by_pipe, count), daemon=True
    )
    writer.start()
    out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in ring.schema.items()}

    def through_ring() -> int:
        by_ring.give()
        for _ in range(count):
            for name, view in (ring.peek() or {}).items():
                out[name][...] = view
            ring.release()
        return count

    def in_place() -> int:
        by_ring.give()
        for _ in range(count):
            ring.peek()
            ring.release()
        return count

    def through_pipe() -> int:
        by_pipe.give()
        for _ in range(count):
            received.update(ours.recv())
        return count

    received: dict[str, np.ndarray] = {}
    times = interleave({"ring": through_ring, "in place": in_place, "pipe": through_pipe}, 9)
    through_ring()
    equal = all(np.array_equal(out[name], received[name]) for name in out)
    writer.kill()
    writer.join()
    stored = sum(value.nbytes for value in out.values())
    ring.close()
    per_second = 1e6 / times["ring"]
    bar = {"bar_rows_per_second": 50_000} if size == SIZES[0][0] else {"bar_gb_per_second": 4}
    found = timed_row(
        "ring",
        {"work": f"{size / 1000:g} KB rows between two processes", "bytes": stored, "slots": slots},
        ("multiprocessing.Pipe", times["pipe"]),
        ("ring", times["ring"]),
        rows_per_second=round(per_second),
        gb_per_second=round(per_second * stored / 1e9, 2),
        in_place_us=round(times["in place"], 3),
        **bar,
    )
    return found | {"equal": equal, "max_diff": 0.0 if equal else None}


class Net(FlatModule):
    """Three layers whose parameters are one buffer."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(INPUTS, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, OUTPUTS),
        )
        self.flatten()


def weights_to_an_actor() -> list[dict[str, Any]]:
    set_threads(1)
    return [found for hidden in HIDDEN for found in weights_of(hidden)]


def weights_of(hidden: int) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    learner, place, actor, reader = (
        Net(hidden),
        Net(hidden).share_memory(),
        Net(hidden),
        Net(hidden),
    )
    weights = SharedWeights(learner.flat.numel())
    published, read = learner.flat.detach().numpy(), reader.flat.detach().numpy()

    def by_version() -> None:
        weights.publish(published, 7)
        weights.read(read)

    def by_clones() -> None:
        place.load_state_dict({name: value.clone() for name, value in learner.state_dict().items()})
        actor.load_state_dict({name: value.clone() for name, value in place.state_dict().items()})

    def without_clones() -> None:
        place.load_state_dict(learner.state_dict())
        actor.load_state_dict(place.state_dict())

    rows = []
    for name, baseline in (
        ("clone + load_state_dict on both sides", by_clones),
        ("load_state_dict twice", without_clones),
    ):
        by_version()
        baseline()
        difference = float((actor.flat - reader.flat).abs().max())
        equal = difference == 0 and torch.equal(reader.flat, learner.flat)
        setting = {
            "work": "learner to actor, one thread",
            "hidden": [hidden, hidden],
            "parameters": learner.flat.numel(),
        }
        bar = {"bar": 30 if hidden == HIDDEN[0] else 2.5} if baseline is by_clones else {}
        rows.append(
            row(
                "weights",
                setting,
                (name, baseline),
                ("publish + read", by_version),
                equal,
                difference,
                **bar,
            )
        )
    weights.close()
    return rows


def waiting() -> list[dict[str, Any]]:
    """In CPU microseconds a second waited."""
    ring = Ring(row_of(1_000), 8)

    def spent(wait: Any) -> float:
        used, start = time.process_time(), time.perf_counter()
        wait()
        return (time.process_time() - used) / (time.perf_counter() - start) * 1e6

    def asking() -> None:
        end = time.perf_counter() + WAITED
        while time.perf_counter() < end and not ring.available():
            pass

    # the clock ticks in microseconds
    loop, asleep = spent(asking), max(spent(lambda: ring.peek(timeout=WAITED)), 1.0)
    ring.close()
    return [
        timed_row(
            "waiting",
            {"work": "CPU time per second of waiting for a row", "seconds": WAITED},
            ("a loop that asks", loop),
            ("ring.peek", asleep),
            share=round(asleep / 1e6, 6),
            bar=0.01,
        )
    ]


NAMES = {"ring": rows_between_processes, "weights": weights_to_an_actor, "waiting": waiting}
