"""The fused engine's pairs: the plain engine on the same memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.algorithms.dqn.agent import GRAD, ONLINE, TARGET, DQNAgent
from tenfold.algorithms.dqn.config import DQN
from tenfold.algorithms.dqn.fused import FusedEngine
from tenfold.algorithms.dqn.fused_acting import FusedActing
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.core.pairs import pair
from tenfold.core.spaces import DiscreteActions
from tenfold.core.timing import Clock
from tenfold.envs.control import ControlEnvironments
from tenfold.memory.replay import Replay


def engine_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Settings and a seed: every option alone, then together; odd widths, batch 1, other
    activations."""
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
        {"explore": "boltzmann(0.1)"},
        together,
        together | {"distribution": "quantile(3)"},
    ):
        base = {"batch_size": 9, "capacity": 200, "target": "hard(2)", "net": {"hidden": [13, 6]}}
        yield base | options, int(rng.integers(99))


def with_memory(kind: type[PlainEngine], options: dict[str, Any], seed: int) -> PlainEngine:
    """An engine whose memory holds random transitions."""
    config, rng = DQN.of(options), np.random.default_rng(seed)
    envs = ControlEnvironments("tenfold/CartPole-v1", 2, seed)
    replay = Replay(config, envs.layout, 2, seed)
    replay.begin(envs.obs)
    for _ in range(90):
        (terminated, truncated), skipped = rng.random((2, 2)) < 0.1, np.zeros(2, np.bool_)
        obs, final_obs = rng.normal(size=(2, 2, 4)).astype(np.float32)
        replay.add(
            rng.integers(0, 2, 2),
            rng.normal(size=2),
            terminated,
            truncated,
            skipped,
            obs,
            final_obs,
        )
    return kind(DQNAgent(config, envs.layout, DiscreteActions(2, 0), seed), replay, envs)


def outcome_of(
    kind: type[PlainEngine], options: dict[str, Any], seed: int
) -> tuple[np.ndarray, ...]:
    """Three updates, then the actions of ten rounds."""
    engine = with_memory(kind, options, seed)
    engine.update(3, 50, Clock())
    actions = [engine.explore(50, rounds).copy() for rounds in range(10)]
    block = engine.agent.block.numpy()
    return (
        block[ONLINE],
        block[TARGET],
        block[GRAD],
        engine.replay.tree,
        engine.replay.batch.row,
        np.array(actions),
    )


def acting_outcome(options: dict[str, Any], seed: int, fused: bool) -> np.ndarray:
    """The actions of an actor in thirty rounds."""
    engine = with_memory(PlainEngine, options, seed)
    agent, rows = engine.agent.for_actor(1), engine.envs.obs
    act = FusedActing(agent, len(rows)) if fused else agent.explore
    return np.array([act(rows, 20 * rounds, rounds).copy() for rounds in range(30)])


def plain_acting(options: dict[str, Any], seed: int) -> np.ndarray:
    return acting_outcome(options, seed, fused=False)


@pair(plain_acting, engine_examples, name="engines.fused.act alone")
def fused_acting(options: dict[str, Any], seed: int) -> np.ndarray:
    return acting_outcome(options, seed, fused=True)


def plain_outcome(options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return outcome_of(PlainEngine, options, seed)


@pair(plain_outcome, engine_examples, rtol=1e-4, atol=1e-5, name="engines.fused.update and act")
def fused_outcome(options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return outcome_of(FusedEngine, options, seed)
