"""Ray RLlib's PPO with many masked action heads: train, save, restore, act.

    python examples/rllib_masked_heads.py --iterations 10

The task: ten machines, eight orders offered to each, about half of them forbidden at any time.
Every step each machine takes one allowed order and the team is paid the mean value of what was
taken. An illegal choice raises, so a run that ends proves that none was made. Replace `Orders` by
your environment; the rest stays as it is.

What to expect: a few iterations only begin to learn. The mean return, of actions drawn from the
policy, was 0.06 at the first and about 0.2 at the sixth iteration of one run; the most likely
actions then got 1.3, which the script prints last.
"""

import argparse
import logging
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from tenfold.integrations.rllib import MultiHeadActionMaskRLModule


class Orders(gym.Env):
    """`machines` heads of `orders` options; observation: the value of every order, and which are
    allowed."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        settings = {"machines": 10, "orders": 8, "steps": 16, "mask": np.int8} | dict(config or {})
        self.machines, self.orders, self.steps = (
            settings["machines"],
            settings["orders"],
            settings["steps"],
        )
        options = self.machines * self.orders
        self.mask_type = np.dtype(settings["mask"])
        self.action_space = gym.spaces.MultiDiscrete([self.orders] * self.machines)
        self.observation_space = gym.spaces.Dict(
            {
                "observations": gym.spaces.Box(-1, 1, (options,), np.float32),
                "action_mask": gym.spaces.Box(0, 1, (options,), self.mask_type.type),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict]:
        super().reset(seed=seed)
        self.step_count = 0
        return self.offer(), {}

    def offer(self) -> dict[str, np.ndarray]:
        """New orders for all machines; at least one of each machine's is allowed."""
        shape = (self.machines, self.orders)
        self.values = self.np_random.uniform(-1, 1, shape).astype(np.float32)
        self.allowed = self.np_random.random(shape) < 0.5
        self.allowed[
            np.arange(self.machines), self.np_random.integers(0, self.orders, self.machines)
        ] = True
        return {
            "observations": self.values.ravel(),
            "action_mask": self.allowed.ravel().astype(self.mask_type),
        }

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict]:
        chosen_orders = np.arange(self.machines), np.asarray(action)
        if not self.allowed[chosen_orders].all():
            raise AssertionError(f"a forbidden order was taken: {action}")
        reward = float(self.values[chosen_orders].mean())
        self.step_count += 1
        return self.offer(), reward, False, self.step_count >= self.steps, {}


def configuration(runners: int = 0, seed: int = 0) -> PPOConfig:
    """An ordinary PPOConfig. The only line that is about masks and heads is `rl_module`."""
    return (
        PPOConfig()
        .environment(Orders)
        .env_runners(num_env_runners=runners, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=2048, minibatch_size=256, num_epochs=4, lr=1e-3)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=MultiHeadActionMaskRLModule,
                model_config={"hidden": [64, 64], "activation": "tanh"},
            )
        )
        .debugging(seed=seed, log_level="ERROR")
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=10, help="PPO iterations of 2,048 steps")
    parser.add_argument(
        "--runners", type=int, default=0, help="processes that collect experience; 0: this one"
    )
    parser.add_argument(
        "--out", type=Path, help="folder of the checkpoint; a temporary one if not given"
    )
    arguments = parser.parse_args()
    logging.getLogger("ray").setLevel(logging.ERROR)
    torch.set_num_threads(1)  # networks this small lose time on more
    ray.init(num_cpus=max(2, arguments.runners + 1), include_dashboard=False, logging_level="ERROR")

    algorithm = configuration(arguments.runners).build_algo()
    for iteration in range(arguments.iterations):
        result = algorithm.train()
        print(
            f"iteration {iteration}: mean return {result['env_runners']['episode_return_mean']:.2f}"
        )

    # a checkpoint is RLlib's own, and RLlib restores it
    folder = arguments.out.resolve() if arguments.out else Path(tempfile.mkdtemp())
    algorithm.save_to_path(folder)
    algorithm.stop()
    restored = PPO.from_checkpoint(str(folder))

    # acting: a batch in, the most likely allowed action of every head out
    env = Orders()
    observation, _ = env.reset(seed=0)
    total, ended = 0.0, False
    module = restored.get_module()
    while not ended:
        batch = {
            Columns.OBS: {key: torch.from_numpy(value)[None] for key, value in observation.items()}
        }
        action = module.forward_inference(batch)[Columns.ACTIONS][0].numpy()
        observation, reward, _, ended, _ = env.step(action)
        total += reward
    print(f"restored from {folder}: return {total:.2f} of the most likely actions")
    restored.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
