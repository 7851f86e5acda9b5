"""What stands before a run: threads, device and memory, and a learner with its kernels compiled."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tenfold.config.notation import show
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.processes import refuse_in_child
from tenfold.core.protocols import Learner
from tenfold.core.registry import algorithm
from tenfold.core.system import require_memory, set_threads
from tenfold.ops.mlp import parameter_count
from tenfold.training.learners import make_learner

COPIES = 5  # of the parameters while they are learned: online, target, gradient, Adam's two moments
PATIENCE = 1.5  # seconds of silence while kernels load; compiling them takes longer


def prepare(run: Run) -> None:
    refuse_in_child()
    set_threads(run.threads)
    if run.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", "= cuda, but PyTorch sees no CUDA device here: use cpu.")
    if run.device != "cuda":
        require_networks(run)


def require_networks(run: Run) -> None:
    """Refuses hidden layers that memory cannot hold: the kernel would end the process without a
    word."""
    settings: Any = run.agent
    networks = algorithm(run.agent.name).networks(settings)
    if not networks:
        return
    count = networks * parameter_count(settings.net.hidden)
    try:
        require_memory(count * COPIES * 4)
    except UserError:
        raise ConfigError(
            "agent.net.hidden",
            f"= {show(settings.net.hidden)} makes {count:,} parameters, for whose learning "
            f"{count * COPIES * 4:,} bytes are needed, more than are free: make the layers "
            "narrower.",
        ) from None


@contextmanager
def ready(run: Run, quiet: bool) -> Iterator[Learner]:
    """The learner of a run, its kernels compiled. Its environments and actors are gone afterwards,
    whatever happens."""
    learner = make_learner(run)
    try:
        warm_up(learner, quiet)
        yield learner
    finally:
        learner.close()


def warm_up(learner: Learner, quiet: bool) -> None:
    """Compiles the engine's kernels, and says so where they are not on disk yet."""
    words = threading.Timer(
        PATIENCE, lambda: quiet or print("compiling kernels, once …", file=sys.stderr, flush=True)
    )
    words.daemon = True
    words.start()
    learner.warm_up()
    words.cancel()
