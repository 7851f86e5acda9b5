"""The resident engine: whole rounds inside one Triton launch, the environments on the GPU as well.

What a run holds on the host stays as it is for every engine; the GPU works on a copy of it
(`resident_seeds`), which comes back before anything is saved.
"""

from importlib.util import find_spec
from time import perf_counter
from typing import Any

from tenfold.algorithms.dqn.agent import DQNAgent, Tensors
from tenfold.algorithms.dqn.fused import why_not_compiled
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.config.run import Run
from tenfold.envs.control_dynamics import KINDS
from tenfold.envs.functions import runs_on_gpu

LAUNCH = 0.005  # seconds of a launch, so that a run is heard of and can be stopped
MOST_ROUNDS = 4096  # of a launch
WIDEST, DEEPEST = 128, 3  # hidden layers that fit into the registers of a multiprocessor


class ResidentEngine(PlainEngine):
    """Runs all rounds by launches of many; the stages of a round are not to be had one by one."""

    whole_rounds, by_stages = True, False

    @classmethod
    def why_not(cls, agent: DQNAgent, run: Any = None) -> str:
        if found := why_not_compiled(agent):
            return found
        hidden, outputs = agent.config.net.hidden, agent.online.sizes[-1]
        if not runs_on_gpu(run.env):
            there = ", ".join(name for name, kind in KINDS.items() if kind.actions)
            return f"{run.env} does not run on the GPU ({there} and registered tasks do)"
        if agent.layout.size > WIDEST:
            return f"it is for observations of up to {WIDEST} numbers"
        if len(hidden) not in range(1, DEEPEST + 1) or max(hidden) > WIDEST or outputs > WIDEST:
            return f"it is for 1 to {DEEPEST} hidden layers of up to {WIDEST}, and as many outputs"
        if agent.config.net.activation not in ("relu", "tanh"):
            return f"the activation is {agent.config.net.activation}"
        if run.actors > 1 or run.where == "processes":
            return "actors act elsewhere"
        if run.verify:
            return "updates that are verified are made one by one"
        return "" if find_spec("triton") else "Triton is not installed"

    seeds: Any  # on the device

    def prepare(self, run: Run) -> None:
        self.precision = run.precision
        self.words = f"whole rounds in one launch on the GPU, products in {run.precision}"
        self.seeds = None
        self.sent = False  # whether the device's copy is what counts
        self.at_once = 64  # rounds of the next launch

    def warm_up(self) -> None:
        from tenfold.algorithms.dqn.resident_seeds import ResidentSeeds, Seed

        envs: Any = self.envs
        seed = Seed(self.agent, self.replay, envs)
        self.seeds = ResidentSeeds([seed], str(self.agent.device), self.precision)
        self.seeds.advance(0)

    def run(self, step: int, rounds: int, most: int) -> tuple[int, int]:
        """Rounds from the given counts, at most `most`; returns the counts after them."""
        if self.seeds is None:
            self.warm_up()
        seeds: Any = self.seeds
        if not self.sent:
            seeds.send([step], [rounds])
            self.sent = True
        count, start = max(1, min(most, self.at_once)), perf_counter()
        seeds.advance(count)
        (self.envs.finished,) = seeds.finished()
        seeds.fetch_networks()
        each = (perf_counter() - start) / count
        self.at_once = min(max(int(LAUNCH / each), 1), MOST_ROUNDS, 2 * self.at_once)
        return step + count * self.envs.num_envs, rounds + count

    def settle(self) -> None:
        if self.sent:
            self.seeds.fetch()

    def set_lr(self, lr: Any) -> None:
        self.settle()
        self.seeds, self.sent = None, False

    def take_sums(self) -> None:
        if self.seeds is not None:
            self.sums += self.seeds.arrays.sums[0]
            self.seeds.arrays.sums.zero_()

    def statistics(self) -> dict[str, float]:
        self.take_sums()
        return super().statistics()

    def state(self) -> Tensors:
        self.take_sums()
        return super().state()

    def load_state(self, state: Tensors) -> None:
        self.take_sums()
        super().load_state(state)
        self.sent = False
