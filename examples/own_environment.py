"""Train on an environment of your own, then use the agent: a corridor of ten cells with the prize
at its right end.

    python examples/own_environment.py
"""

import gymnasium as gym
import numpy as np

import tenfold as ten


class Corridor(gym.Env):
    observation_space = gym.spaces.Discrete(10)
    action_space = gym.spaces.Discrete(2)  # left, right

    def reset(self, *, seed=None, options=None):
        # every episode comes with a seed of its own: use self.np_random and runs can be repeated
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(9))
        return self.cell, {}

    def step(self, action):
        self.cell = min(max(self.cell + (1 if action else -1), 0), 9)
        arrived = self.cell == 9
        return self.cell, 1.0 if arrived else -0.1, arrived, False, {}


gym.register("Corridor-v0", Corridor, max_episode_steps=50)

if __name__ == "__main__":
    run = ten.train(
        ten.Run(
            env="Corridor-v0",
            steps=3_000,
            agent=ten.DQN(
                learning_starts=200,
                every=2,
                n_step=3,
                target=ten.Polyak(0.05),
                explore=ten.Epsilon(ten.Linear(1.0, 0.1, 1500)),
            ),
        ),
        out="runs/corridor",
        overwrite=True,
        quiet=True,
    )
    agent = ten.load(run.path)
    print(
        "actions by cell:",
        [agent.act(cell) for cell in range(9)],
        "in a batch:",
        agent.act(np.arange(9)),
    )
    print("mean return:", ten.evaluate(run, episodes=50).mean_return)
