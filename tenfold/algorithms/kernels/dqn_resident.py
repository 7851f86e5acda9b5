"""The resident engine: whole rounds inside one Triton launch, the environments on the GPU as well.

What a run holds on the host stays as it is for every engine; the GPU works on a copy of it
(`resident_seeds`), which comes back before anything is saved.
"""

from typing import Any

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.kernels.dqn import why_not_compiled
from tenfold.config.run import Run
from tenfold.engines.plain import OffPolicyEngine
from tenfold.engines.together import TogetherEngine, why_not_resident


class ResidentDQN(TogetherEngine, OffPolicyEngine):
    """Runs all rounds by launches of many."""

    seeds_home = "tenfold.algorithms.kernels.dqn_resident_seeds:ResidentSeeds"
    memory = "replay"

    @classmethod
    def why_not(cls, agent: DQNAgent, run: Any = None) -> str:
        if obstacle := why_not_compiled(agent):
            return obstacle
        if agent.norm:
            return "observations are normalised, which is done on the CPU"
        if agent.config.categorical:
            return "the distribution is categorical"
        if agent.online.noise_size:
            return "the layers are noisy"
        if agent.masked:
            return "actions are masked"
        return why_not_resident(agent, run, agent.online.sizes[-1])

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        self.precision = run.precision
        self.words = f"whole rounds in one launch on the GPU, products in {run.precision}"
