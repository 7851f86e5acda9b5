"""Pieces of one's own beside the package: a network, a callback, a place for metrics, a schedule.

    tenfold train dqn --agent.net.module extending:Wide --agent.lr "extending:warm_up(1e-3, 2k)" \
        --callback extending:Patience --callback extending:Table --steps 20k

Run it where this file is. An algorithm of one's own is in reinforce.py, a domain in orchard.py.
"""

import csv
from typing import Any

import torch
from torch import nn

import tenfold as ten


class Wide(nn.Module):
    """A network of one's own: made with the shape of an observation and the number of outputs."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(shape[0], 96), nn.Linear(96, 96)
        self.last = nn.Linear(96 + shape[0], outputs)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        features = torch.relu(self.second(torch.relu(self.first(obs))))
        return self.last(torch.cat([features, obs], -1))


def warm_up(step: int, peak: float, steps: float) -> float:
    """A schedule of one's own: rises to `peak` within `steps`, then falls as 1/√t."""
    return peak * min(max(step, 1) / steps, (steps / max(step, 1)) ** 0.5)


class Patience(ten.Callback):
    """Stops a run whose evaluations no longer get better."""

    def __init__(self, patience: int = 3) -> None:
        self.patience, self.best, self.waited = patience, float("-inf"), 0

    def on_evaluate(self, training: Any, row: dict[str, Any]) -> None:
        if row["mean_return"] > self.best:
            self.best, self.waited = row["mean_return"], 0
            return
        self.waited += 1
        row["waited"] = self.waited
        if self.waited == self.patience:
            training.stop()


class Table(ten.Callback):
    """A place of one's own for metrics: every evaluation as a line of a table."""

    def on_start(self, training: Any) -> None:
        self.path = training.path / "evaluations.csv"

    def on_row(self, row: dict[str, Any]) -> None:
        if row["kind"] == "eval":
            with open(self.path, "a", newline="") as file:
                csv.writer(file).writerow([row["step"], row["mean_return"]])
