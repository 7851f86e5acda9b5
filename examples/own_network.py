"""A network of your own: which of six numbers is the largest? Every number is scored by the same
small layers, so that what is learned of one place holds for all of them.

    python examples/own_network.py
    tenfold train dqn --env own_network:Largest-v0 --agent.net.module own_network:Scores
"""

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import tenfold as ten

ITEMS = 6


class Largest(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (ITEMS,), np.float32)
    action_space = gym.spaces.Discrete(ITEMS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.items = self.np_random.uniform(-1, 1, ITEMS).astype(np.float32)
        return self.items, {}

    def step(self, action):
        return self.items, float(action == self.items.argmax()), True, False, {}


class Scores(nn.Module):
    """Made with the shape of an observation and the number of outputs: [B, 6] -> [B, 6]."""

    def __init__(self, shape: tuple[int, ...], outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        others = obs.amax(-1, keepdim=True).expand_as(obs)
        return self.layers(torch.stack([obs, others], -1)).squeeze(-1)


if "Largest-v0" not in gym.registry:  # read a second time, for the network's name
    gym.register("Largest-v0", Largest)


def main(steps: int = 3_000) -> float:
    settings = ten.Run(
        env="Largest-v0",
        steps=steps,
        eval_every=0,
        agent=ten.DQN(
            net=ten.Net(module="own_network:Scores"),
            learning_starts=200,
            every=2,
            lr=3e-3,
            explore=ten.Epsilon(ten.Linear(1.0, 0.05, 1_000)),
        ),
    )
    run = ten.train(settings, out="runs/own-network", overwrite=True, quiet=True)
    score = ten.evaluate(run, episodes=200)
    print(f"right in {score.mean_return:.0%} of 200 cases; by chance {1 / ITEMS:.0%}")
    return score.mean_return


if __name__ == "__main__":
    main()
