"""Kernels that Numba compiles are compiled once for all tests: what is on the disk is taken, unless
a source is newer, and what one process compiles the others wait for.

`python tests/kernels.py` compiles those of rounds in a row, which most tests need, and then of all
pairs, which are nearly all there are; it needs no extra of the package for it. The tests of pairs
begin with the last one, so that both compile until they meet and neither waits for the other.
"""

import ast
import fcntl
import gc
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba.core.ccallback import CFunc
from numba.core.dispatcher import Dispatcher

import tenfold
from tenfold.config.run import Run
from tenfold.core.pairs import all_pairs, outcome
from tenfold.training.learners import make_learner

COMPILE, COMPILE_FOR_C = Dispatcher.compile, CFunc.compile
LOCKS = Path(tempfile.gettempdir()) / f"tenfold-kernels-{os.getuid()}"
BEING_COMPILED: set[str] = set()


def kernel_sources(package: Path) -> set[Path]:
    """Files with kernels, and those whose constants kernels are compiled with."""
    files = {path for path in package.rglob("*.py") if "@kernel" in path.read_text()}
    for path in tuple(files):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and any(
                name.name.isupper() and name.name not in ("DQN", "PPO") for name in node.names
            ):
                module = package.parent / f"{(node.module or '').replace('.', '/')}.py"
                files |= {module} if module.is_file() else set()
    return files | {package / "core" / "kernels.py", package / "ops" / "tiles.py"}


def forget_stale_kernels() -> None:
    """Numba's cache does not notice an edit in a function of another file: what is older than any
    source of kernels goes."""
    package = Path(tenfold.__file__).parent
    newest = max(source.stat().st_mtime for source in kernel_sources(package))
    for kernel in package.rglob("__pycache__/*.nb[ic]"):
        with suppress(FileNotFoundError):  # another run of the tests forgets them too
            if kernel.stat().st_mtime < newest:
                kernel.unlink()


def compile_once(kernel: Any, signature: Any) -> Any:
    """A kernel that one process compiles is waited for by the others, who then take it from the
    disk."""
    name = f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"
    if not name.startswith("tenfold.") or name in BEING_COMPILED:
        return COMPILE(kernel, signature)
    LOCKS.mkdir(exist_ok=True)
    with open(LOCKS / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        BEING_COMPILED.add(name)
        try:
            return COMPILE(kernel, signature)
        finally:
            BEING_COMPILED.discard(name)


def compile_for_c_once(function: Any) -> Any:
    """The same of functions that C and other threads call."""
    LOCKS.mkdir(exist_ok=True)
    with open(LOCKS / function.__qualname__.rpartition(".")[2], "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return COMPILE_FOR_C(function)


Dispatcher.compile, CFunc.compile = compile_once, compile_for_c_once


def compile_all() -> None:
    for tested in all_pairs():
        with suppress(Exception):  # which its test will tell
            for dtype in tested.dtypes:
                for inputs in tested.example(np.random.default_rng(0), dtype):
                    outcome(tested.fast, inputs, tested.gradients)


# an environment inside the call is no pair of its own: a round is, and every kind of it is played
# with compiled environments too
PLAYED = (
    ("tenfold/CartPole-v1", {"name": "dqn"}),
    ("tenfold/CartPole-v1", {"name": "ppo"}),
    ("tenfold/Pendulum-v1", {"name": "ppo"}),
    ("tenfold/CartPole-v1", {"name": "ppo", "net": {"memory": "gru(4)"}}),
    ("tenfold/CartPole-v1", {"name": "sac"}),
    ("tenfold/Pendulum-v1", {"name": "sac"}),
    ("tenfold/Pendulum-v1", {"name": "td3"}),
)


def compile_rounds() -> None:
    for env, agent in PLAYED:
        if agent["name"] != "ppo":
            agent = agent | {"learning_starts": 10, "batch_size": 4, "capacity": 100}
        learner = make_learner(Run.of({"env": env, "engine": "fused", "agent": agent}))
        while learner.step < 20:
            learner.round(20)
        learner.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    forget_stale_kernels()
    all_pairs()
    # a compiler makes objects by the million, and a seventh of its time went into looking for
    # garbage among them and all that is imported
    gc.freeze()
    gc.set_threshold(100_000)
    compile_rounds()
    compile_all()
