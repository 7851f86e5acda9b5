"""The soft actor-critic agent: what its policy says, and the losses of a batch.

HOW an update runs is an engine's business; what is learned is decided here.
"""

import math

import torch

from tenfold.algorithms.actor_critic import ACTOR, TEMPERATURE, ActorCriticAgent, Tensors
from tenfold.algorithms.sac_td3_settings import SAC, Auto
from tenfold.core.random import Purpose
from tenfold.core.spaces import DiscreteActions
from tenfold.nets.policy import ActorCritics
from tenfold.ops.critics import soft_value
from tenfold.ops.squashed import LOG_STD_MAX, LOG_STD_MIN, draw_squashed


class SACAgent(ActorCriticAgent):
    """Real numbers: the policy says means and logarithms of deviations [B, 2·D] of a Gaussian that
    tanh squashes. One discrete action: it says logits [B, A], and critics value all actions."""

    config: SAC
    metric_names = (*ActorCriticAgent.metric_names, "alpha", "entropy")

    def make_networks(self) -> tuple[ActorCritics, ActorCritics]:
        config, actions = self.config, self.actions
        self.discrete = isinstance(actions, DiscreteActions)
        if isinstance(actions, DiscreteActions):
            sizes, usual = self.sizes(actions.n, actions.n), 0.98 * math.log(actions.n)
        else:
            sizes, usual = self.sizes(2 * actions.reals, 1), -float(actions.reals)
            self.extra_noise = {"noise": Purpose.POLICY, "next_noise": Purpose.NEXT_POLICY}
        how = config.temperature
        learned = isinstance(how, Auto)
        self.target_entropy = usual if not learned or how.target is None else how.target
        self.actor_parts = (ACTOR, TEMPERATURE) if learned else (ACTOR,)
        online = ActorCritics(sizes, config.net, temperature=True)
        online.initialise(self.seed, how.start if isinstance(how, Auto) else how)
        return online, ActorCritics(sizes, config.net, actor=False)

    def begin_with(self, state: Tensors) -> None:
        """A temperature that is set, not learned, stays what it is set to."""
        columns = self.online.places[TEMPERATURE]
        temperature = self.online.flat[columns].clone()
        super().begin_with(state)
        if TEMPERATURE not in self.actor_parts:
            self.online.flat[columns] = temperature

    # acting

    def sample_action(
        self, output: torch.Tensor, uniform: torch.Tensor, normal: torch.Tensor
    ) -> torch.Tensor:
        if self.discrete:
            return drawn_option(output, uniform)
        mean, log_std = output.chunk(2, -1)
        return (mean + log_std.clamp(LOG_STD_MIN, LOG_STD_MAX).exp() * normal).tanh()

    def greedy_action(self, output: torch.Tensor) -> torch.Tensor:
        return output.argmax(-1) if self.discrete else output[:, : self.actions.reals].tanh()

    # learning

    @property
    def alpha(self) -> torch.Tensor:
        """The temperature, as losses other than its own take it."""
        return self.log_alpha.detach().exp()

    @property
    def log_alpha(self) -> torch.Tensor:
        return self.online.temperature.log[0]

    def soft_values(
        self, critics: ActorCritics, obs: torch.Tensor, noise: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(E[min_i Q_i(s, a) − α·log π(a|s)] [B], the policy's entropy [B]): of real numbers both
        by the draw that `noise` makes, of discrete actions by their probabilities."""
        output = self.online.policy_output(obs)
        if noise is None:
            return soft_value(output, critics(obs, None).amin(0), self.alpha)
        mean, log_std = output.chunk(2, -1)
        action, log_p = draw_squashed(mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX), noise)
        least = critics(obs, action).amin(0).squeeze(-1)
        return least - self.alpha * log_p, -log_p

    def td_target(self, batch: Tensors) -> torch.Tensor:
        """y = r + discount·(min_i Q'_i(s', a') − α·log π(a'|s'))."""
        next_obs, noise = self.to_net(batch["next_obs"]), batch.get("next_noise")
        soft, _ = self.soft_values(self.target, next_obs, noise)
        return batch["reward"] + batch["discount"] * soft

    def values(self, batch: Tensors) -> torch.Tensor:
        if not self.discrete:
            return super().values(batch)
        values = self.online(self.to_net(batch["obs"]), None)
        return values.gather(-1, batch["action"].expand(len(values), -1)[..., None]).squeeze(-1)

    def actor_loss(self, batch: Tensors) -> tuple[torch.Tensor, ...]:
        """−E[Q − α·log π] for the policy, and for a learned temperature log α·(entropy − target):
        each has a gradient by its own parameters alone. Also α and the entropy."""
        value, entropy = self.soft_values(
            self.online, self.to_net(batch["obs"]), batch.get("noise")
        )
        loss, entropy = -value.mean(), entropy.detach().mean()
        # a loss of its own, which is told as nothing
        balance = self.log_alpha * (entropy - self.target_entropy)
        return loss + balance - balance.detach(), self.alpha, entropy


def drawn_option(logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The option [B] in whose share of the probabilities the uniform number [B, 1] falls."""
    share = logits.double().softmax(-1).cumsum(-1)
    option = (share <= uniform * share[:, -1:]).sum(-1)
    return option.clamp(max=logits.shape[-1] - 1)
