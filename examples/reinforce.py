"""An algorithm of one's own: REINFORCE with a running baseline, in one file outside the package.

    tenfold train reinforce:Reinforce --env CartPole-v1 --steps 100k --seeds 3

Run it where this file is. Flags (--agent.lr), resume, evaluation, seeds and the report come with
it.
"""

import torch

import tenfold as ten


class Settings(ten.AgentConfig):
    """REINFORCE: one update from each rollout."""

    lr: ten.Schedule = 3e-3
    """learning rate of Adam"""
    gamma: float = 0.99
    """discount of the next step's reward"""
    horizon: int = 500
    """steps of every environment in a rollout"""


class Reinforce(ten.Algorithm):
    """∇ Σ_t (G_t − mean) log π(a_t | s_t), G_t the discounted return to the episode's end."""

    config = Settings

    def build(self, spec: ten.EnvSpec, config: Settings) -> None:
        self.policy = ten.nets.mlp(spec.layout.size, (64, 64), spec.options)

    def act(self, obs: torch.Tensor, draw: object) -> torch.Tensor:
        return ten.ops.categorical_sample(self.policy(obs), draw)

    def round(self, rollout: ten.Rollout) -> dict[str, torch.Tensor]:
        returns = ten.ops.discounted_return(rollout.reward, self.settings.gamma, rollout.boundary)
        better = (returns - returns.mean()) / (returns.std() + 1e-8)
        log_prob = ten.ops.categorical_log_prob(self.policy(rollout.obs), rollout.action)
        return self.step(-(better * log_prob * rollout.weight).mean())
