"""What the tests of RLlib share: a world of ragged masked heads, small settings for it, modules and
batches."""

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from tenfold.integrations.rllib import MultiHeadActionMaskRLModule

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples"))
import rllib_compare as rllib_compare
import rllib_masked_heads as rllib_masked_heads

sys.path.pop(0)

SIZES, WIDTH = [3, 5, 1, 4], 6
FLOOR = torch.finfo(torch.float32).min


class Ragged(gym.Env):
    """Heads of 3, 5, 1 and 4 options; a forbidden choice raises. Masks flat, or a Dict with one
    array for each head."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.by_head = bool((config or {}).get("by_head"))
        self.action_space = gym.spaces.MultiDiscrete(SIZES)
        masks = [gym.spaces.MultiBinary(n) for n in SIZES]
        # 8, 9, 10, 11: not in the order of letters
        named = gym.spaces.Dict({f"head_{8 + i}": space for i, space in enumerate(masks)})
        self.observation_space = gym.spaces.Dict(
            {
                "observations": gym.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32),
                "action_mask": named
                if self.by_head
                else gym.spaces.Box(0, 1, (sum(SIZES),), np.float32),
            }
        )

    def look(self) -> dict[str, Any]:
        self.masks = []
        for n in SIZES:
            mask = self.np_random.random(n) < 0.4
            mask[self.np_random.integers(n)] = True
            self.masks.append(mask)
        mask: Any = (
            {f"head_{8 + i}": m.astype(np.int8) for i, m in enumerate(self.masks)}
            if self.by_head
            else np.concatenate(self.masks).astype(np.float32)
        )
        return {
            "observations": self.np_random.normal(size=WIDTH).astype(np.float32),
            "action_mask": mask,
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 10
        return self.look(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        assert all(mask[a] for mask, a in zip(self.masks, action, strict=True)), (
            f"forbidden: {action}"
        )
        self.left -= 1
        return self.look(), float(action[1]), self.left == 0, False, {}


class Uneven(Ragged):
    """Episodes of one to eight steps; half of them are terminated, half cut by a time limit."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        seen, _ = super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 9))
        return seen, {"left": self.left}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        seen, reward, over, _, _ = super().step(action)
        terminated = over and bool(self.np_random.random() < 0.5)
        return seen, 0.1 * reward, terminated, over and not terminated, {"left": self.left}


def small(env: type, **model: Any) -> PPOConfig:
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=2)
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=MultiHeadActionMaskRLModule, model_config={"hidden": [16]} | model
            )
        )
        .debugging(seed=1, log_level="ERROR")
    )


def build(
    module_class: type = MultiHeadActionMaskRLModule, sizes: list[int] | None = None, **model: Any
) -> Any:
    torch.manual_seed(3)
    sizes = sizes or SIZES
    return RLModuleSpec(
        module_class=module_class,
        action_space=gym.spaces.MultiDiscrete(sizes),
        model_config={"hidden": [16, 12]} | model,
        observation_space=gym.spaces.Dict(
            {
                "observations": gym.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32),
                "action_mask": gym.spaces.Box(0, 1, (sum(sizes),), np.int8),
            }
        ),
    ).build()


def batch_of(rows: int, sizes: list[int] | None = None, seed: int = 0) -> dict[str, Any]:
    arrays = rllib_compare.random_batch(np.random.default_rng(seed), rows, WIDTH, sizes or SIZES)
    return {
        Columns.OBS: {
            key: torch.from_numpy(arrays[key]) for key in ("observations", "action_mask")
        },
        Columns.ACTIONS: torch.from_numpy(arrays["actions"]),
    }
