"""Agents as files, and environments for them."""

import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from tenfold.config.run import Run
from tenfold.core.graph_spaces import BoundedGraph, Gated
from tenfold.shipping.export import onnx_bytes, policy_of, traced
from tenfold.training.learners import Trained, agent_of

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "deploy_onnx.py"


def example() -> Any:
    """The file that runs policies with onnxruntime and NumPy alone."""
    spec = importlib.util.spec_from_file_location("deploy_onnx", EXAMPLE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Sampled(gym.Env[Any, Any]):
    """Anything of its space, whatever is done."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, bool(self.np_random.random() < 0.1), False, {}


class Mixed(Sampled):
    """Observations and actions of every kind in one another; a mask among the observations."""

    observation_space = spaces.Dict(
        {
            "action_mask": spaces.MultiBinary(13),
            "far": spaces.Box(-5, 9, (3,), np.float64),
            "kind": spaces.Discrete(4, start=2),
            "more": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3)]),
            "picture": spaces.Box(0, 255, (4, 5), np.uint8),
        }
    )
    action_space = spaces.Dict(
        {
            "go": spaces.MultiDiscrete([3, 2], start=[1, 0]),
            "push": spaces.Box(
                np.array([-1, 0, -3], np.float32), np.array([1, 0.1, np.inf], np.float32)
            ),
            "then": spaces.Tuple([spaces.Discrete(4, start=-2), spaces.MultiBinary(2)]),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return some_allowed(super().reset(seed=seed)[0]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, *rest = super().step(action)
        return some_allowed(seen), *rest  # type: ignore[return-value]


def some_allowed(seen: dict[str, Any]) -> dict[str, Any]:
    """The first option of every component may be taken."""
    seen["action_mask"][np.cumsum([0, 3, 2, 4, 2])] = 1
    return seen


class Numbered(Sampled):
    """Discrete observations, actions that begin at 5."""

    observation_space = spaces.MultiDiscrete([3, 4])
    action_space = spaces.Discrete(3, start=5)


BOUNDS = -2 * np.ones((6, 2), np.float32), 2 * np.ones((6, 2), np.float32)


class Web(Sampled):
    """Graphs of up to six nodes, a choice and numbers at each."""

    observation_space = spaces.Dict(
        {
            "graph": BoundedGraph(spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,)), 6, 5),
            "time": spaces.Box(0, 1, (1,)),
        }
    )
    action_space = spaces.Dict({"choice": spaces.MultiDiscrete([3] * 6), "size": Gated(*BOUNDS, 1)})


for name, kind in (("Mixed", Mixed), ("Numbered", Numbered), ("Web", Web)):
    gym.register(f"shipping/{name}-v0", kind, max_episode_steps=50)


def agent_for(env: str, settings: dict[str, Any], seed: int = 0) -> tuple[Run, Any]:
    """With weights and statistics that no two agents share."""
    run = Run.of({"env": env, "agent": settings})
    agent = agent_of(run)
    generator = torch.Generator().manual_seed(seed)
    flat = agent.online.flat
    with torch.no_grad():
        flat.add_(0.3 * torch.randn(flat.shape, generator=generator))
    if agent.norm:
        rng = np.random.default_rng(3)
        agent.norm.update(rng.normal(2, 3, (50, agent.layout.size)))
    return run, agent


@cache
def keep_translations() -> None:
    """PyTorch makes its table of all operators in ONNX for every file anew, in a sixth of the time
    that a file takes: here the first one stays."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    ONNXRegistry.from_torchlib = staticmethod(cache(ONNXRegistry.from_torchlib))


def written(
    run: Run, agent: Any, file: Path, sample: bool = False, mask: bool | None = None
) -> Callable[..., Any]:
    """The agent as an ONNX file, read by the example."""
    keep_translations()
    trained = Trained(SimpleNamespace(id="abc"), run, agent, 5)  # type: ignore[arg-type]
    policy, about = policy_of(trained, sample, mask)
    about |= {"policy": "sampled" if sample else "greedy"}
    file.write_bytes(onnx_bytes(traced(policy), policy, about))
    return example().Policy(str(file))
