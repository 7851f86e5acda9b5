"""Examples by which the fused engine of Q-learning is held to the plain one."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.algorithms.dqn import DQN_GRAD, DQN_ONLINE, DQN_TARGET, DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.algorithms.dqn_team import SequentialAgents
from tenfold.algorithms.kernels.dqn import FusedDQN
from tenfold.core.pairs import pair
from tenfold.core.spaces import DiscreteActions
from tenfold.core.system import Clock
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.adapter import EnvViews
from tenfold.envs.control import ControlEnvironments
from tenfold.memory.replay import Replay


def engine_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Settings and a seed: every option alone, then together; odd widths, batch 1, other
    activations. `masked` is no setting: the environments offer masks."""
    together = {
        "double": True,
        "dueling": True,
        "n_step": 3,
        "replay": "prioritized",
        "loss": "huber",
        "clip_norm": 0.5,
    }
    for options in (
        {},
        {"double": True},
        {"dueling": True},
        {"n_step": 3},
        {"replay": "prioritized"},
        {"loss": "huber"},
        {"distribution": "quantile(5)"},
        {"target": "polyak(0.1)"},
        {"clip_norm": 0.1},
        {"batch_size": 1},
        {"net": {"hidden": [7, 1, 5], "activation": "elu"}},
        {"net": {"hidden": [], "activation": "tanh"}},
        {"net": {"hidden": [7, 5], "activation": "gelu", "init": "torch"}, "weight_decay": 30.0},
        {"net": {"hidden": [8], "activation": "leaky_relu"}, "clip_norm": 0.1, "weight_decay": 9.0},
        {"explore": "boltzmann(0.1)"},
        {"normalize_obs": True},
        together,
        together | {"distribution": "quantile(3)"},
        {"distribution": "categorical(7, -3, 4)"},
        {"explore": "noisy", "learning_starts": 0},
        together
        | {"distribution": "categorical(5, -2, 2)", "explore": "noisy", "learning_starts": 0},
        {"masked": True, "explore": "epsilon(0.5)"},
        {"masked": True, "explore": "boltzmann(0.5)", "double": False},
        {"masked": True, "explore": "noisy(0.3)", "learning_starts": 51},
        {"masked": True, "distribution": "categorical(5, -2, 2)", "explore": "epsilon(0.1)"},
        together | {"masked": True, "distribution": "quantile(3)"},
    ):
        base = {"batch_size": 9, "capacity": 200, "target": "hard(2)", "net": {"hidden": [13, 6]}}
        yield base | options, int(rng.integers(99))


def fill(replay: Any, obs: np.ndarray, actions: int, turns: int, rng: np.random.Generator) -> None:
    """Random transitions into a memory whose lanes begin at `obs`."""
    lanes, options = len(obs), replay.memories[0].mask.shape[1]
    replay.begin(obs, *random_masks(lanes, options, 1, rng))
    for _ in range(turns):
        (terminated, truncated), skipped = rng.random((2, lanes)) < 0.1, np.zeros(lanes, np.bool_)
        later, final_obs = rng.normal(size=(2, *obs.shape)).astype(np.float32)
        action, reward = rng.integers(0, actions, lanes), rng.normal(size=lanes)
        masks = random_masks(lanes, options, 2, rng)
        if options:
            masks[1][terminated] = False  # as environments often have it
        replay.add(action, reward, terminated, truncated, skipped, later, final_obs, *masks)


def random_masks(lanes: int, options: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` masks [lanes, options] that allow something; none where there are no options."""
    masks = rng.random((count if options else 0, lanes, options)) < 0.5
    masks[..., :1] |= ~masks.any(-1, keepdims=True)
    return masks


def with_memory(kind: type[OffPolicyEngine], options: dict[str, Any], seed: int) -> OffPolicyEngine:
    """An engine whose memory holds random transitions."""
    config = DQN.of({name: value for name, value in options.items() if name != "masked"})
    envs: Any = ControlEnvironments("tenfold/CartPole-v1", 2, seed)
    layout, actions, rng = envs.layout, 2, np.random.default_rng(seed)
    if options.get("masked"):
        actions = 4
        mask, final_mask = random_masks(2, actions, 2, rng)
        envs = EnvViews.showing(envs.obs)._replace(mask=mask, final_mask=final_mask)
    replay = Replay(config, layout, 2, seed, options=actions if options.get("masked") else 0)
    fill(replay, envs.obs, actions, 90, rng)
    agent = DQNAgent(config, layout, DiscreteActions(actions, 0), seed)
    if agent.norm:
        agent.norm.update(replay.obs[replay.ready])
    return kind(agent, replay, envs)


def updated_actions(engine: OffPolicyEngine | SequentialAgents, rounds: int) -> np.ndarray:
    """Three updates, then the actions of some rounds."""
    engine.update(3, 50, Clock())
    return np.array([engine.explore(50, number).copy() for number in range(rounds)])


def outcome_of(
    kind: type[OffPolicyEngine], options: dict[str, Any], seed: int
) -> tuple[np.ndarray, ...]:
    engine = with_memory(kind, options, seed)
    actions, block = updated_actions(engine, 10), engine.agent.block.numpy()
    learned, replay = (block[DQN_ONLINE], block[DQN_TARGET], block[DQN_GRAD]), engine.replay
    return *learned, replay.tree, replay.batch.row, actions


def acting_outcome(options: dict[str, Any], seed: int, fused: bool) -> np.ndarray:
    """The actions of an actor in thirty rounds."""
    engine = with_memory(OffPolicyEngine, options, seed)
    agent, rows, mask = engine.agent.for_actor(1), engine.envs.obs, engine.envs.mask
    act = (
        FusedDQN.acting(agent, len(rows), 0 if mask is None else mask.shape[1])
        if fused
        else agent.explore
    )
    return np.array([act(rows, 20 * rounds, rounds, mask).copy() for rounds in range(30)])


def plain_acting(options: dict[str, Any], seed: int) -> np.ndarray:
    return acting_outcome(options, seed, fused=False)


@pair(plain_acting, engine_examples, name="engines.fused.act alone")
def fused_acting(options: dict[str, Any], seed: int) -> np.ndarray:
    return acting_outcome(options, seed, fused=True)


def plain_outcome(options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return outcome_of(OffPolicyEngine, options, seed)


@pair(plain_outcome, engine_examples, rtol=1e-4, atol=1e-5, name="engines.fused.update and act")
def fused_outcome(options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return outcome_of(FusedDQN, options, seed)
