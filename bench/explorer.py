"""The explorer's step end to end against the same agent as it is usually written
(bench/usual_explorer.py), and what it is made of: appending to a window, copying a rollout, reading
one observation with a carried gru, seeds stacked."""

import statistics
import time
from typing import Any

import numpy as np
import torch
from measure import row, timed_row
from usual_explorer import UsualExplorer

from tenfold.config.files import named
from tenfold.core.system import set_threads
from tenfold.domains.dynamics.agent import ExplorerAgent
from tenfold.domains.dynamics.belief import Belief
from tenfold.domains.dynamics.config import Explorer, LatentModel
from tenfold.domains.dynamics.fields import FieldEnvironments
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.model_metrics import evaluate_model
from tenfold.domains.dynamics.training import Window
from tenfold.domains.dynamics.validation import random_recordings

ENV = "tenfold/LimitCycle-v0(scale=0.05)"
TURNS, STEPS = 7, 20  # turns of so many steps each, ours and theirs in turn
SEEDS, LEARNED = 6, 400  # runs, and steps of each, that are compared in what they learned


def config() -> Explorer:
    """The preset's, without what both would share, and a plan of the default size."""
    agent = named(
        "limit-cycle",
        {
            "agent": {
                "refit": 0,
                "planner": {
                    "samples": 32,
                    "iterations": 10,
                    "elites": 8,
                    "matrix": "diagonal",
                    "optimality": "d",
                },
            }
        },
    ).agent
    assert isinstance(agent, Explorer)
    return agent


class Experiment:
    """An agent and its environment."""

    def __init__(
        self, kind: type[ExplorerAgent], settings: Explorer, seeds: tuple[int, ...] = (0,)
    ) -> None:
        self.envs = FieldEnvironments(ENV, len(seeds), seeds[0], seeds=seeds)
        self.agent = kind(settings, self.envs.system.width, -np.ones(2), np.ones(2), 0.1, seeds)
        self.step = 0
        self.agent.observe(self.envs.obs, np.ones(len(seeds), np.bool_))

    def run(self, steps: int) -> "Experiment":
        for _ in range(steps):
            self.envs.step(self.agent.choose(self.step))
            self.agent.observe(self.envs.obs, self.envs.truncated)
            self.step += 1
            for _ in range(self.agent.due(self.step)):
                self.agent.train_step()
        return self


def step_times(experiments: dict[str, Experiment]) -> dict[str, float]:
    """Median microseconds of a step, turn by turn."""
    times: dict[str, list[float]] = {name: [] for name in experiments}
    for experiment in experiments.values():
        experiment.run(experiment.agent.config.learning_starts + STEPS)
    for _ in range(TURNS):
        for name, experiment in experiments.items():
            start = time.perf_counter()
            experiment.run(STEPS)
            times[name].append((time.perf_counter() - start) / STEPS * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def agent_step() -> list[dict[str, Any]]:
    set_threads(1)
    settings = config()
    times = step_times(
        {"usual": Experiment(UsualExplorer, settings), "ours": Experiment(ExplorerAgent, settings)}
    )
    setting = {
        "env": ENV,
        "plan": "32 x 10 x horizon 10, 3 models, grid 10",
        "training": "every 2 steps, 8 x 20, K = 5",
        "members": 1,
    }
    usual = "loops, clones, re-encoding"
    found = [
        timed_row(
            "explorer-step", setting, (usual, times["usual"]), ("ours", times["ours"]), **learned()
        )
    ]
    stacked = Experiment(ExplorerAgent, settings, tuple(range(8)))
    eight = step_times({"one": Experiment(ExplorerAgent, settings), "eight": stacked})
    found.append(
        timed_row(
            "explorer-members",
            setting | {"members": 8},
            ("eight runs of one", 8 * eight["one"]),
            ("eight stacked", eight["eight"]),
        )
    )
    return found


def learned() -> dict[str, Any]:
    """Errors of the field after the same steps by both, seed by seed, and the difference's 95 %
    interval."""
    settings, recordings = config(), random_recordings(ENV, 64)
    errors = {}
    for name, kind in (("usual", UsualExplorer), ("ours", ExplorerAgent)):
        found = []
        for seed in range(SEEDS):
            verdict = evaluate_model(
                Experiment(kind, settings, (seed,)).run(LEARNED).agent, recordings, arx=False
            )
            assert verdict.field_error is not None
            found.append(float(verdict.field_error[0]))
        errors[name] = np.array(found)
    apart = errors["ours"] - errors["usual"]
    drawn = np.random.default_rng(0).integers(SEEDS, size=(10_000, SEEDS))
    low, high = np.quantile(apart[drawn].mean(1), (0.025, 0.975))
    return {
        "learned": {
            "steps": LEARNED,
            "seeds": SEEDS,
            **{name: round(float(e.mean()), 4) for name, e in errors.items()},
            "difference": [round(float(n), 4) for n in (apart.mean(), low, high)],
        }
    }


def window_append() -> list[dict[str, Any]]:
    obs, action, no = (
        np.ones((1, 20), np.float32),
        np.ones((1, 2), np.float32),
        np.zeros(1, np.bool_),
    )
    windows = {capacity: Window([0], capacity, 20, 20, 2) for capacity in (20, 20_000)}
    for capacity, window in windows.items():
        for _ in range(capacity + 1):
            window.append(obs, action, no)
    tensors = {name: torch.zeros(20_000, size) for name, size in (("obs", 20), ("action", 2))}

    def rolled() -> None:
        for name, now in (("obs", obs), ("action", action)):
            tensors[name] = torch.roll(tensors[name], -1, 0)
            tensors[name][-1] = torch.from_numpy(now[0])

    def cloned() -> dict[str, torch.Tensor]:
        return {name: value.clone() for name, value in tensors.items()}

    batch = np.zeros((1, 8, 20, 20), np.float32), np.zeros((1, 8, 20, 2), np.float32)
    small, large = (lambda w=w: w.append(obs, action, no) for w in windows.values())
    both = ("full window of 20", small), ("full window of 20,000", large)
    return [
        row("window-append", {"rows": "20 | 20,000"}, *both, None, None),
        row("window-append", {"rows": 20_000}, ("torch.roll", rolled), ("ours", large), None, None),
        row(
            "window-sequences",
            {"rows": 20_000, "batch": "8 x 20"},
            ("clone per field", cloned),
            ("one gather", lambda: windows[20_000].sample(*batch)),
            None,
            None,
        ),
    ]


def encoder() -> list[dict[str, Any]]:
    """One new observation: the carried state of a gru against reading the last 20 and the last 200
    again."""
    network = LatentNetwork(20, 2, LatentModel(encoder="gru", hidden=(64,)), 0.1).initialise([0])
    found, belief, no = [], Belief(network), torch.tensor([False])
    for length in (20, 200):
        y = torch.randn(length, 20)

        def again(y: torch.Tensor = y) -> torch.Tensor:
            with torch.no_grad():
                return network.posterior(y[None, :, None])[0][:, -1]

        found.append(
            row(
                "encoder-carried",
                {"window": length, "calls a step": 1},
                ("re-encoding", again),
                ("carried state", lambda y=y: belief.correct(y[:1], no)),
                None,
                None,
            )
        )
    return found


NAMES = {"explorer-step": agent_step, "window-append": window_append, "encoder-carried": encoder}
