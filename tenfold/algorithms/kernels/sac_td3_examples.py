"""Examples by which the fused engines of agents with an actor and critics are held to the plain
one: updates, then actions, of agents whose memories hold random transitions."""

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.algorithms.kernels.sac import FusedSAC
from tenfold.algorithms.kernels.td3 import FusedTD3
from tenfold.algorithms.sac import SACAgent
from tenfold.algorithms.sac_td3_settings import SAC, TD3
from tenfold.algorithms.td3 import TD3Agent
from tenfold.core.layout import observation_layout
from tenfold.core.pairs import pair
from tenfold.core.spaces import DiscreteActions, bounded_actions
from tenfold.core.system import Clock
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.adapter import EnvViews

LANES, TURNS, OPTIONS = 2, 90, 3
# numbers of an observation and of an action (none: one of OPTIONS), then the options
Case = tuple[int, int, dict[str, Any]]
BASE = {"batch_size": 9, "capacity": 200, "net": {"hidden": [13, 6]}, "learning_starts": 4}
DECAY = {"weight_decay": 30.0}  # so much that an update without it is another one
SHARED: tuple[Case, ...] = (
    (3, 1, {}),
    (5, 3, {"n_step": 3}),
    (3, 1, {"replay": "prioritized"}),
    (1, 2, {"batch_size": 1}),
    (4, 3, {"net": {"hidden": [7, 1, 5], "activation": "elu"}}),
    (4, 1, {"net": {"hidden": [], "activation": "tanh"}}),
    (2, 1, {"net": {"hidden": [40, 33]}, "batch_size": 33, "lr": "linear(1e-3, 1e-4, 60)"}),
    (3, 2, {"normalize_obs": True}),
    (3, 2, {"net": {"hidden": [7, 5], "value_hidden": [9], "activation": "silu"}}),
    (2, 3, {"net": {"hidden": [], "value_hidden": [6, 4], "activation": "gelu"}, **DECAY}),
    (3, 1, {"net": {"hidden": [6], "value_hidden": [], "activation": "selu", "init": "torch"}}),
)
TOGETHER = {
    "n_step": 3,
    "replay": "prioritized",
    "tau": 0.1,
    "adam_eps": 1e-5,
    "normalize_obs": True,
}


def engine_examples(*special: Case) -> Any:
    """Of the shared options, an algorithm's own, and several at once."""

    def yield_cases(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
        for features, reals, options in (*SHARED, *special, (3, 2, TOGETHER)):
            yield features, reals, options, int(rng.integers(99))

    return yield_cases


def filled_engine(kind: Any, agent: Any, config: Any, case: Case, seed: int) -> OffPolicyEngine:
    """An engine whose memory holds random transitions. `agent` and `config` are classes."""
    features, reals, options = case
    layout = observation_layout(gym.spaces.Box(-np.inf, np.inf, (features,)), "an example")
    low, high = np.full(reals, -1.5, np.float32), np.arange(1, reals + 1, dtype=np.float32)
    bounds = gym.spaces.Box(low, high)
    actions: Any = (
        bounded_actions(bounds, "an example", "this") if reals else DiscreteActions(OPTIONS, 2)
    )
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(LANES, features)).astype(np.float32)
    envs: Any = EnvViews.showing(obs)
    made = agent(config.of(BASE | options), layout, actions, seed)
    replay = made.make_replay(envs)
    replay.begin(obs)
    for _ in range(TURNS):
        (terminated, truncated), no = rng.random((2, LANES)) < 0.1, np.zeros(LANES, np.bool_)
        later, final_obs = rng.normal(size=(2, LANES, features)).astype(np.float32)
        action = rng.uniform(-1, 1, (LANES, reals)).astype(np.float32)
        if not reals:
            action = rng.integers(0, OPTIONS, LANES)
        reward = rng.normal(size=LANES)
        replay.add(action, reward, terminated, truncated, no, later, final_obs)
    if made.norm:
        made.norm.update(replay.obs[replay.ready])
    return kind(made, replay, envs)


def outcome(kind: Any, agent: Any, config: Any, case: Case, seed: int) -> tuple[np.ndarray, ...]:
    """Of seven updates: parameters, targets, moments and gradients, what was drawn, priorities,
    statistics; then actions before and after learning starts."""
    engine = filled_engine(kind, agent, config, case, seed)
    engine.update(7, 50, Clock())
    actions = [engine.explore(50 * late, rounds).copy() for rounds in range(5) for late in (0, 1)]
    replay, metrics = engine.replay, engine.statistics()
    numbers = np.array(list(metrics.values()))
    block = engine.agent.block.numpy()
    return block, replay.batch.row, replay.tree, replay.count, numbers, np.array(actions)


def acting_outcome(
    kind: Any, agent: Any, config: Any, case: Case, seed: int, fused: bool
) -> np.ndarray:
    """The actions of an actor in ten rounds, before and after learning starts."""
    engine = filled_engine(OffPolicyEngine, agent, config, case, seed)
    acting, rows = engine.agent.for_actor(1), engine.envs.obs
    explore = kind.acting(acting, len(rows)) if fused else acting.explore
    return np.array([explore(rows, rounds, rounds).copy() for rounds in range(10)])


SAC_OPTIONS = (
    (3, 1, {"temperature": 0.2}),
    (3, 2, {"temperature": "auto(-0.5, 0.1)"}),
    (4, 0, {}),
    (4, 0, {"normalize_obs": True}),
    (3, 0, {"n_step": 3, "replay": "prioritized", "temperature": 0.2}),
    (2, 0, {"batch_size": 1, "net": {"hidden": [5], "activation": "elu"}}),
    (4, 0, {"net": {"hidden": [8], "value_hidden": [6, 5], "activation": "gelu"}, **DECAY}),
)


def sac_plain_outcome(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return outcome(OffPolicyEngine, SACAgent, SAC, (features, reals, options), seed)


@pair(
    sac_plain_outcome,
    engine_examples(*SAC_OPTIONS),
    rtol=1e-4,
    atol=1e-5,
    name="engines.fused.sac's update and act",
)
def sac_fused_outcome(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return outcome(FusedSAC, SACAgent, SAC, (features, reals, options), seed)


def sac_plain_acting(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return acting_outcome(FusedSAC, SACAgent, SAC, (features, reals, options), seed, fused=False)


@pair(
    sac_plain_acting,
    engine_examples(*SAC_OPTIONS),
    rtol=1e-5,
    atol=1e-6,
    name="engines.fused.sac's act alone",
)
def sac_fused_acting(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return acting_outcome(FusedSAC, SACAgent, SAC, (features, reals, options), seed, fused=True)


TD3_OPTIONS = (
    (3, 2, {"critics": 1, "policy_delay": 1, "smoothing": 0.0}),
    (3, 1, {"policy_delay": 3, "noise": "linear(1, 0.1, 100)"}),
    (2, 2, {"smoothing": 1.0, "smoothing_clip": 0.1, "noise": 0.0}),
)


def td3_plain_outcome(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return outcome(OffPolicyEngine, TD3Agent, TD3, (features, reals, options), seed)


@pair(
    td3_plain_outcome,
    engine_examples(*TD3_OPTIONS),
    rtol=1e-4,
    atol=1e-5,
    name="engines.fused.td3's update and act",
)
def td3_fused_outcome(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return outcome(FusedTD3, TD3Agent, TD3, (features, reals, options), seed)


def td3_plain_acting(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return acting_outcome(FusedTD3, TD3Agent, TD3, (features, reals, options), seed, fused=False)


@pair(
    td3_plain_acting,
    engine_examples(*TD3_OPTIONS),
    rtol=1e-5,
    atol=1e-6,
    name="engines.fused.td3's act alone",
)
def td3_fused_acting(features: int, reals: int, options: dict[str, Any], seed: int) -> Any:
    return acting_outcome(FusedTD3, TD3Agent, TD3, (features, reals, options), seed, fused=True)
