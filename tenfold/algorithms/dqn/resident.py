"""The resident engine: whole rounds inside one Triton launch, the environments on the GPU as well.

What a run holds on the host stays as it is for every engine; the GPU works on a copy of it
(`resident_seeds`), which comes back before anything is saved.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.fused import why_not_compiled
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.config.run import Run
from tenfold.engines.together import Group, TogetherEngine
from tenfold.envs.control_dynamics import KINDS
from tenfold.envs.functions import runs_on_gpu

WIDEST, DEEPEST = 128, 3  # hidden layers that fit into the registers of a multiprocessor


class ResidentEngine(TogetherEngine, PlainEngine):
    """Runs all rounds by launches of many."""

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

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        self.precision = run.precision
        self.words = f"whole rounds in one launch on the GPU, products in {run.precision}"

    @classmethod
    def together(cls, learners: Sequence[Any], of: int = 0) -> Group:
        from tenfold.algorithms.dqn.resident_seeds import ResidentSeeds, Seed

        seeds = [Seed(each.agent, each.replay, each.envs) for each in learners]
        first = learners[0]
        return Group(
            learners, ResidentSeeds(seeds, str(first.agent.device), first.engine.precision, of=of)
        )

    @classmethod
    def bytes_each(cls, learner: Any) -> int:
        from tenfold.algorithms.dqn.resident_seeds import Seed, bytes_of

        return bytes_of(Seed(learner.agent, learner.replay, learner.envs))
