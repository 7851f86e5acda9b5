"""The agent of the twin delayed deterministic policy gradient: what its policy says, and the losses
of a batch.

HOW an update runs is an engine's business; what is learned is decided here.
"""

import torch

from tenfold.algorithms.actor_critic import ActorCriticAgent, Tensors
from tenfold.algorithms.sac_td3_settings import TD3
from tenfold.config.action_noise import ActionNoiseOption
from tenfold.config.schedules import value_at
from tenfold.core.random import Purpose
from tenfold.nets.policy import ActorCritics


class TD3Agent(ActorCriticAgent):
    """The policy says numbers [B, D] whose tanh is the action. Policy and critics have targets."""

    config: TD3
    extra_noise = {"next_noise": Purpose.NEXT_POLICY}

    def make_networks(self) -> tuple[ActorCritics, ActorCritics]:
        config = self.config
        self.delay = config.policy_delay
        sizes = self.sizes(self.actions.reals, 1)
        online, target = (ActorCritics(sizes, config.net) for _ in range(2))
        return online.initialise(self.seed), target

    # acting

    def spread(self, step: int) -> float:
        noise = self.config.noise  # what is added as an object, engines add
        return 0.0 if isinstance(noise, ActionNoiseOption) else value_at(noise, step)

    def sample_action(
        self, output: torch.Tensor, uniform: torch.Tensor, normal: torch.Tensor
    ) -> torch.Tensor:
        return (output.tanh() + normal).clamp(-1, 1)

    def greedy_action(self, output: torch.Tensor) -> torch.Tensor:
        return output.tanh()

    def exploring(self, step: int) -> dict[str, float]:
        noise = self.config.noise
        return {} if isinstance(noise, ActionNoiseOption) else {"noise": self.spread(step)}

    # learning

    def td_target(self, batch: Tensors) -> torch.Tensor:
        """y = r + discount·min_i Q'_i(s', a'), a' = μ'(s') and some noise."""
        next_obs, limit = self.to_net(batch["next_obs"]), self.config.smoothing_clip
        noise = (self.config.smoothing * batch["next_noise"]).clamp(-limit, limit)
        action = (self.target.policy_output(next_obs).tanh() + noise).clamp(-1, 1)
        least = self.target(next_obs, action).amin(0).squeeze(-1)
        return batch["reward"] + batch["discount"] * least

    def actor_loss(self, batch: Tensors) -> tuple[torch.Tensor, ...]:
        """−Q_1(s, μ(s))."""
        obs = self.to_net(batch["obs"])
        return (-self.online.first_values(obs, self.online.policy_output(obs).tanh()).mean(),)
