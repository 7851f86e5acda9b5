"""Gymnasium's CartPole, position and angle alone, for whoever steps it from Python. Imported before
`peer`, which hides this folder."""

from typing import Any


def make() -> Any:
    import gymnasium as gym

    class WithoutVelocities(gym.ObservationWrapper):
        def __init__(self) -> None:
            super().__init__(gym.make("CartPole-v1", disable_env_checker=True))
            own: Any = self.env.observation_space
            self.observation_space = gym.spaces.Box(own.low[[0, 2]], own.high[[0, 2]])

        def observation(self, observation: Any) -> Any:
            return observation[[0, 2]]

    return WithoutVelocities()
