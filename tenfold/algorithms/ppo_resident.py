"""The engine for a GPU: rollouts with the environments inside, and all epochs of minibatches, as
one CUDA graph of small launches spread over the whole GPU; one agent with thousands of
environments, or hundreds of seeds side by side.

What a run holds on the host stays as it is for every engine; the GPU works on a copy of it
(`resident_ppo_seeds`), which comes back before anything is saved.
"""

from typing import Any

from tenfold.algorithms.ppo import PlainPPO, PPOAgent
from tenfold.config.run import Run
from tenfold.engines.choose import why_not_layers
from tenfold.engines.resident import why_not_resident
from tenfold.engines.together import TogetherEngine


class ResidentPPO(TogetherEngine, PlainPPO):
    """Runs whole phases by launches."""

    seeds_home = "tenfold.algorithms.kernels.resident_ppo_seeds:ResidentPolicies"
    memory = "rollout"

    @classmethod
    def why_not(cls, agent: PPOAgent, run: Any = None) -> str:
        if obstacle := why_not_layers(agent):
            return obstacle
        config, actions = agent.config, agent.actions
        if config.baseline == "counterfactual":
            return "the baseline is counterfactual"
        if agent.components:
            return "rewards come in components, each with a value of its own"
        if config.squash and config.entropy:
            return "the entropy of squashed actions has no closed form"
        return why_not_resident(agent, run, actions.options + len(actions.low))

    def prepare(self, run: Run) -> None:
        super().prepare(run)
        self.precision = run.precision
        self.words = f"whole phases as one CUDA graph, products in {run.precision}"
