"""The pair that holds updates in tiles to the agents' own update, by autograd; and actions."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from tenfold.algorithms.kernels.actor_critic_gpu_launches import TileUpdates
from tenfold.algorithms.sac import SACAgent
from tenfold.algorithms.sac_td3_settings import SAC, TD3
from tenfold.algorithms.td3 import TD3Agent
from tenfold.core.layout import ObsLayout
from tenfold.core.pairs import pair
from tenfold.core.spaces import bounded_actions
from tenfold.engines.plain import EagerOptimiser
from tenfold.memory.staging import StagingBuffer
from tenfold.ops.device.language import available, device

Case = tuple[str, int, int, dict[str, Any]]  # the agent, numbers of an observation, of an action
CASES: tuple[Case, ...] = (
    ("sac", 5, 3, {}),
    ("sac", 17, 6, {"temperature": 0.3, "net": {"hidden": [192, 192]}}),
    ("td3", 3, 1, {}),
)
COUNT, ROOM = 2, 40  # updates; rows of the table
# after the first of them rounding decides the sign of the smallest gradients' steps
LR = 1e-3 if device() == "cpu" else 1e-5


def update_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for case in CASES:
        yield *case, int(rng.integers(100))


def example_updates(
    name: str, obs: int, reals: int, options: dict[str, Any], seed: int
) -> tuple[Any, torch.Tensor, StagingBuffer]:
    """An agent, a table of observations, and what COUNT updates are given."""
    rng = np.random.default_rng(seed)
    settings, kind = {"sac": (SAC, SACAgent), "td3": (TD3, TD3Agent)}[name]
    least = {"batch_size": 64 if device() == "cuda" else 16, "net": {"hidden": [64, 64]}}
    config = settings.of(least | options)
    layout = ObsLayout((obs,), np.dtype(np.float32), (obs,), 0.5)
    low = np.full(reals, -1, np.float32)
    actions = bounded_actions(gym.spaces.Box(low, -low), "an example", name)
    agent: Any = kind(config, layout, actions, seed, device())
    agent.target.flat.mul_(0.5)
    size = config.batch_size
    shapes: Any = {
        "places": ((2, size), np.int64),
        "action": ((size, reals), np.float32),
        **dict.fromkeys(("reward", "discount", "weight"), ((size,), np.float32)),
        **dict.fromkeys(("before", "policy_before", "lr"), ((), np.float32)),
        "number": ((), np.int64),
    }
    sent = StagingBuffer(device(), shapes, COUNT, depth=1)
    for k, arrays in enumerate(sent.open()):
        arrays["places"][:] = rng.integers(0, ROOM, (2, size))
        arrays["action"][:] = rng.uniform(-1, 1, (size, reals))
        arrays["reward"][:], arrays["weight"][:] = rng.normal(size=size), rng.uniform(0.1, 1, size)
        arrays["discount"][:] = 0.9 * rng.integers(0, 2, size)
        arrays["lr"][...], arrays["before"][...], arrays["number"][...] = LR, k, k
        arrays["policy_before"][...] = (k + 1) // agent.delay - 1
    sent.send(COUNT)
    table = torch.from_numpy(rng.normal(size=(ROOM, obs)).astype(np.float32))
    return agent, table.to(device()), sent


def updates_reference(*case: Any) -> tuple[torch.Tensor, ...]:
    """The agent's own updates, by autograd."""
    agent, table, sent = example_updates(*case)
    optimiser, sums = EagerOptimiser(agent), torch.zeros(len(agent.metric_names) + 1)
    errors = torch.zeros(0)
    for k in range(COUNT):
        obs, next_obs = table[sent.on_device[k]["places"]]
        batch = sent.on_device[k] | {"obs": obs, "next_obs": next_obs}
        batch |= {n: t.to(device()) for n, t in agent.draw_for(len(obs)).items()}
        optimiser.begin(k + 1, LR)
        errors, (metrics,) = agent.update([(batch,)], optimiser)
        agent.updates = k + 1
        sums[: len(metrics)] += metrics.cpu()
    sums[-1] = COUNT
    rows = table[:5].cpu().numpy()
    acted = agent.sample_by(agent.policy_output(rows), *agent.draws(5, 0, 0.1))
    return agent.block[: -agent.online.flat.numel()], errors, sums, torch.from_numpy(acted)


@pair(
    updates_reference,
    update_examples,
    rtol=1e-3,
    atol=2e-5,
    when=available,
    name="algorithms.kernels.sac_td3_gpu_examples.updates in tiles",
)
def updates_in_tiles(*case: Any) -> tuple[torch.Tensor, ...]:
    agent, table, sent = example_updates(*case)
    form = "fp16x3" if device() == "cuda" else "ieee"
    tiles = TileUpdates(agent, table, sent, form)
    sums = torch.zeros(len(agent.metric_names) + 1, device=device())
    tiles.draw_noise(COUNT)
    tiles.update_all(COUNT, 0, sums)
    _, normal = agent.draws(5, 0, 0.1)
    acted = tiles.act(table[:5], torch.from_numpy(normal).to(device()))
    return agent.block[: -agent.online.flat.numel()], tiles.errors, sums, acted
