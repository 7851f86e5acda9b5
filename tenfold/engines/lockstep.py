"""Lockstep: updates of a fast engine repeated by the plain one from a copy of the same state, and
compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from tenfold.core.errors import UserError
from tenfold.core.system import Clock


class Mismatch(UserError):
    """A fast engine did not do what the plain one does."""


class Lockstep:
    """A plain engine beside a fast one, on a copy of everything an update changes."""

    def __init__(self, engine: Any, plain: Any, every: int) -> None:
        self.engine, self.plain, self.every = engine, plain, every
        self.folder = Path()  # where the batch of a violation goes
        self.compared = self.ties = 0
        self.largest = 0.0  # difference of parameters
        self.before = torch.empty_like(engine.agent.block)

    @property
    def due(self) -> bool:
        """Whether the next update is one of those that both engines make."""
        return (self.engine.agent.updates + 1) % self.every == 0

    def update_both(self, update: Callable[[Any, Clock], Any], lr: float, clock: Clock) -> Any:
        """One update by both engines from the same state; returns what the fast one's did."""
        fast, plain = self.engine.agent, self.plain.agent
        clock.start()
        self.before.copy_(fast.block)
        plain.block.copy_(fast.block)
        plain.count[:] = fast.count
        self.copy_memory()
        update(self.plain, Clock())
        clock.lap("verify")
        found = update(self.engine, clock)
        clock.start()
        self.compare(lr)
        clock.lap("verify")
        return found

    def copy_memory(self) -> None:
        """What else an update changes, into the plain engine's."""

    def batch(self) -> dict[str, np.ndarray]:
        """What was learned from, for the file of a violation."""
        raise NotImplementedError

    def tied(self) -> bool:
        """Whether rounding decided what was learned: then each engine may have its own result."""
        return False

    def checks(self, lr: float) -> dict[str, float]:
        """Differences in units of what is allowed. Gradients are compared by their length, of which
        float32's own error reaches 1e-4 where values are large and errors cancel; parameters by a
        hundredth of the learning rate, the size of Adam's step."""
        fast, plain = self.engine.agent.online, self.plain.agent.online
        gradient = plain.flat_grad
        apart = (fast.flat_grad - gradient).norm() / (3e-4 * gradient.norm() + 1e-6)
        return {
            "gradients": float(apart),
            "parameters": distance(fast.flat, plain.flat) / (1e-6 + 0.01 * lr),
        }

    def compare(self, lr: float) -> None:
        found = {name: np.inf if np.isnan(x) else x for name, x in self.checks(lr).items()}
        where = max(found, key=found.__getitem__)
        if found[where] <= 1:
            self.compared += 1
            apart = distance(self.engine.agent.online.flat, self.plain.agent.online.flat)
            self.largest = max(self.largest, apart)
        elif self.tied():
            self.ties += 1
        else:
            self.refuse(found[where], where)

    def refuse(self, excess: float, where: str) -> None:
        """Ends the run, with the batch and both agents' results saved."""
        fast, plain = self.engine.agent, self.plain.agent
        path = self.folder / f"mismatch-{fast.updates}.safetensors"
        results = {"before": self.before, "fast": fast.block, "plain": plain.block}
        saved = {name: block.cpu().numpy() for name, block in results.items()}
        save_file(self.batch() | saved, path)
        raise Mismatch(
            f"Update {fast.updates} of the fast engine is not the plain one's: the {where} differ "
            f"{excess:.3g} times more than allowed. The batch and both results are in {path}; "
            "please report it, and go on with `tenfold resume RUN --engine plain`."
        )

    def sentence(self) -> str:
        if not self.compared + self.ties:
            return (
                "nothing was verified: no update was made whose number is a multiple of "
                f"verify = {self.every:,}"
            )
        ties = f"; {self.ties} more held a tie between actions closer than rounding"
        return (
            f"verified: {self.compared:,} updates repeated by the plain engine, largest difference "
            f"of a parameter {self.largest:.1e}{ties if self.ties else ''}"
        )


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())
