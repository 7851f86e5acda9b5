"""An off-policy algorithm of one's own: deep deterministic policy gradient, in one file outside the
package.

    tenfold train ddpg:DDPG --env Pendulum-v1 --steps 20k --seeds 3

Run it where this file is. The replay memory, n-step returns, priorities, flags (--agent.lr),
resume, evaluation, seeds, the report and the export come with it.
"""

import copy

import torch

import tenfold as ten


class Settings(ten.OffPolicySettings):
    """DDPG: a policy, a critic, and slow copies of both."""

    lr: ten.Schedule = 1e-3
    """learning rate of Adam, for the policy and the critic"""
    noise: ten.Schedule = 0.1
    """deviation of the noise on actions in training, which lie between -1 and 1"""


class DDPG(ten.OffPolicy):
    """The critic learns y = r + discount·Q'(s', μ'(s')), the policy −Q(s, μ(s))."""

    config = Settings

    def build(self, spec: ten.EnvSpec, config: Settings) -> None:
        inputs, numbers, net = spec.layout.size, spec.numbers, config.net
        self.policy = ten.nets.mlp(inputs, net.hidden, numbers, net.activation)
        self.critic = ten.nets.mlp(inputs + numbers, net.hidden, 1, net.activation)
        self.slow_policy, self.slow_critic = copy.deepcopy(self.policy), copy.deepcopy(self.critic)

    def act(self, obs: torch.Tensor, draw: ten.Draw | None) -> torch.Tensor:
        action = self.policy(obs).tanh()
        if draw is None:
            return action
        noise = self.now(self.settings.noise) * draw.normal(action.shape[-1])
        return (action + noise).clamp(-1, 1)

    def update(self, batch: ten.Transitions) -> ten.Metrics:
        with torch.no_grad():
            next_action = self.slow_policy(batch.next_obs).tanh()
            next_value = value(self.slow_critic, batch.next_obs, next_action)
            td_target = batch.reward + batch.discount * next_value
        td_error = value(self.critic, batch.obs, batch.action) - td_target
        critic_loss = (batch.weight * td_error.square()).mean()
        metrics = self.step(critic_loss, self.critic, td_error=td_error)
        policy_loss = -value(self.critic, batch.obs, self.policy(batch.obs).tanh()).mean()
        self.step(policy_loss, self.policy)
        self.follow(self.slow_policy, self.policy, self.settings.tau)
        self.follow(self.slow_critic, self.critic, self.settings.tau)
        return {**metrics, "policy_loss": policy_loss}

    def exploring(self, step: int) -> dict[str, float]:
        return {"noise": self.now(self.settings.noise)}


def value(critic: torch.nn.Module, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Q(s, a) [B]."""
    return critic(torch.cat([obs, action], -1)).squeeze(-1)
