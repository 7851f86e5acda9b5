"""Several agents in a world of your own, with a network each: two porters in a corridor must stand
at its two ends, and only see where they are.

    python examples/several_agents.py
    tenfold train dqn --env pettingzoo/several_agents:Porters --steps 8k
"""

import gymnasium as gym
import numpy as np

import tenfold as ten

CELLS, LIMIT = 7, 20


class Porters:
    """PettingZoo's parallel API, without PettingZoo: dictionaries by the agents' names."""

    possible_agents = ["left_handed", "right_handed"]
    metadata = {"name": "porters"}

    def observation_space(self, agent):
        return gym.spaces.Box(0, 1, (2 * CELLS,), np.float32)  # my cell, the other's

    def action_space(self, agent):
        return gym.spaces.Discrete(3)  # left, stay, right

    def reset(self, seed=None, options=None):
        self.agents, self.turn = list(self.possible_agents), 0
        places = np.random.default_rng(seed).integers(1, CELLS - 1, 2)
        self.places = dict(zip(self.agents, map(int, places), strict=True))
        return self.observe(), {agent: {} for agent in self.agents}

    def observe(self):
        observations = {}
        for agent in self.possible_agents:
            (other,) = set(self.possible_agents) - {agent}
            observations[agent] = np.zeros(2 * CELLS, np.float32)
            observations[agent][[self.places[agent], CELLS + self.places[other]]] = 1
        return observations

    def step(self, actions):
        self.turn += 1
        for agent, action in actions.items():
            self.places[agent] = min(max(self.places[agent] + int(action) - 1, 0), CELLS - 1)
        done = set(self.places.values()) == {0, CELLS - 1}
        now, agents = self.observe(), self.agents
        self.agents = [] if done or self.turn == LIMIT else agents
        return (
            now,
            dict.fromkeys(agents, 1.0 if done else -0.05),
            dict.fromkeys(agents, done),
            dict.fromkeys(agents, not done and self.turn == LIMIT),
            {agent: {} for agent in agents},
        )


def main(steps: int = 8_000) -> float:
    settings = ten.Run(
        env="pettingzoo/several_agents:Porters",
        steps=steps,
        eval_every=0,
        agent=ten.DQN(
            learning_starts=500,
            every=2,
            n_step=3,
            target=ten.Polyak(0.02),
            explore=ten.Epsilon(ten.Linear(1.0, 0.05, steps // 2)),
        ),
    )
    run = ten.train(settings, out="runs/porters", overwrite=True, quiet=True)
    score = ten.evaluate(run, episodes=100)
    arrived = np.mean([length < LIMIT for length in score.lengths])
    print(f"both at their ends in {arrived:.0%} of 100 episodes")
    return float(arrived)


if __name__ == "__main__":
    main()
