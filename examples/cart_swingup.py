"""A cart that swings up its pole, written in torch for thousands of worlds at once: an environment
of tensors, on the CPU or a GPU.

    tenfold train ppo --env cart_swingup:make --num-envs 64 --steps 250k --agent.horizon 64
    tenfold train sac --env cart_swingup:make --num-envs 16 --steps 60k --agent.every 8 \
        --agent.lr 1e-3 --agent.net.hidden 64,64 --agent.learning-starts 1k
"""

import math

import torch
from gymnasium.spaces import Box

GRAVITY, DT, LIMIT = 9.81, 0.04, 200  # m/s², seconds of a step, steps of an episode
CART, POLE, LENGTH = 1.0, 0.1, 0.5  # kg, kg, metres to the pole's centre
FORCE, TRACK = 10.0, 3.0  # newtons at action 1, metres to either side


class CartSwingUp:
    """The pole begins anywhere. Reward is 1 where it stands upright over the middle; an episode
    ends where the cart leaves its track, and is cut after `LIMIT` steps."""

    max_episode_length = LIMIT  # so that evaluations know how many steps they take

    def __init__(self, num_envs: int, device: str) -> None:
        self.num_envs, self.device = num_envs, torch.device(device)
        self.single_observation_space = Box(-math.inf, math.inf, (5,))
        self.single_action_space = Box(-1.0, 1.0, (1,))
        self.random = torch.Generator(self.device)
        self.state = torch.zeros(4, num_envs, device=self.device)  # x, speed, angle, its speed
        self.age = torch.zeros(num_envs, device=self.device)

    def reset(self, seed: int | None = None) -> torch.Tensor:
        if seed is not None:
            self.random.manual_seed(seed)
        self.state, self.age = self.fresh(), torch.zeros_like(self.age)
        return self.observation(self.state)

    def fresh(self) -> torch.Tensor:
        """States of episodes that begin, for all worlds."""
        u = torch.rand(4, self.num_envs, generator=self.random, device=self.device)
        spread = torch.tensor([1.0, 0.2, math.pi, 0.2], device=self.device)
        return (2 * u - 1) * spread[:, None]

    def observation(self, state: torch.Tensor) -> torch.Tensor:
        x, speed, angle, turning = state
        return torch.stack([x, speed, angle.cos(), angle.sin(), turning / 5], 1)

    def step(self, action: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(obs, reward, terminated, truncated, last observations of the episodes that ended)."""
        x, speed, angle, turning = self.state
        sin, cos = angle.sin(), angle.cos()
        push = (FORCE * action[:, 0].clamp(-1, 1) + POLE * LENGTH * turning**2 * sin) / (
            CART + POLE
        )
        twist = (GRAVITY * sin - cos * push) / (LENGTH * (4 / 3 - POLE * cos**2 / (CART + POLE)))
        speed = speed + DT * (push - POLE * LENGTH * twist * cos / (CART + POLE))
        turning = turning + DT * twist
        state = torch.stack([x + DT * speed, speed, angle + DT * turning, turning])
        self.age = self.age + 1

        reward = (0.5 + 0.5 * state[2].cos()) * torch.exp(-state[0].square() / 2)
        terminated = state[0].abs() > TRACK
        truncated = ~terminated & (self.age >= LIMIT)
        ended, last = terminated | truncated, self.observation(state)
        self.state = torch.where(ended, self.fresh(), state)
        self.age = self.age.masked_fill(ended, 0)
        return self.observation(self.state), reward, terminated, truncated, last


def make(num_envs: int = 64, device: str = "cpu") -> CartSwingUp:
    """`num_envs` worlds: tenfold makes a few more for evaluations."""
    return CartSwingUp(num_envs, device)
