"""What the fused engines' kernels work on: the settings as numbers, and all arrays as one table."""

from typing import Any, NamedTuple

import numpy as np

from tenfold.algorithms.actor_critic import ActorCriticAgent
from tenfold.algorithms.fused_replay import BEHIND, replay_rules, statistics
from tenfold.core.random import Purpose
from tenfold.core.spaces import BoundedActions
from tenfold.core.tables import B1, D1, D2, F1, F2, F3, I1, U1, Y1, opener
from tenfold.engines.fusing import zeros
from tenfold.memory.replay import Replay

# streams
REPLAY, RANDOM, ACTING, POLICY, NEXT_POLICY = range(5)
# rows of `items`: numbers for each item of a batch
REWARD, DISCOUNT, WEIGHT, ERROR, Y, LOG_P, NEXT_LOG_P, VALUE, ITEMS = range(9)
# rows of `inputs`: [s | a] and [s' | a']; of `actor_layers`
NOW, NEXT = range(2)
HIDDEN, NEXT_HIDDEN, DELTA = range(3)
# places in `rule` behind those of all agents with a replay memory
TAU, FIRST_OPTION, SINGLE = range(BEHIND, BEHIND + 3)
OWN = BEHIND + 3  # from here on an algorithm's own settings


class Arrays(NamedTuple):
    """What a round reads and writes, but for observations and actions, whose kind of number is the
    environment's."""

    counter: I1
    updates: I1
    rule: D1
    streams: U1
    sums: F1
    # parameters, their slow copy, gradient and moments
    online: F1
    target: F1
    grad: F1
    mean: F1
    square: F1
    actor_sizes: I1
    critic_sizes: I1
    # of a batch
    inputs: F3
    actor_layers: F2
    critic_layers: F2  # of each critic
    delta: F1  # of one critic's layers
    picked: F1
    noise: F3
    drawn: F2  # actions of the current policy, or their values
    by_action: F2
    q: F2
    items: F2
    turned: F1
    order: I1
    bounds: I1
    row: I1
    chosen: I1  # discrete actions
    draw: D1
    # the replay memory
    m_reward: F1
    m_kind: Y1
    m_ready: B1
    m_head: I1
    m_start: I1
    m_count: I1
    m_tree: D1
    m_top: D1
    # the environments' last step, and acting
    e_reward: D1
    e_terminated: B1
    e_truncated: B1
    e_skipped: B1
    e_inputs: F2
    e_hidden: F1
    e_noise: F2
    e_drawn: F2
    e_log_p: F1
    # the next actions in the environments' own numbers, of one of three kinds
    e_whole: I1
    e_single: F2
    e_double: D2
    low: D1  # bounds of the environments' actions
    high: D1
    # running statistics of observations; without a column where they are not normalised
    norm_count: I1
    norm: D2


open_arrays = opener(Arrays)


# the streams of random numbers, in the order in which kernels have them
DRAWS = (
    Purpose.REPLAY,
    Purpose.ACTION,
    Purpose.NOISE_ACT,
    Purpose.POLICY,
    Purpose.NEXT_POLICY,
)


def shared_rules(agent: ActorCriticAgent, size: int) -> np.ndarray:
    """The settings as numbers, with room for an algorithm's own."""
    rule = replay_rules(agent, size)
    rule[TAU] = agent.config.tau
    if isinstance(agent.actions, BoundedActions):
        rule[SINGLE] = agent.actions.space.dtype == np.float32
    else:
        rule[FIRST_OPTION] = agent.actions.start
    return rule


def batch_arrays(agent: ActorCriticAgent, batch: int) -> dict[str, np.ndarray]:
    """Parameters, and scratch for batches of `batch` items."""
    online, reals = agent.online, agent.actions.reals
    actor, critic = np.array(online.actor.sizes), np.array(online.critics[0].sizes)
    critics, outputs = len(online.critics), int(critic[1:].sum())
    said = int(actor[-1])
    assert critic[0] == actor[0] + reals
    return {
        "online": online.flat.numpy(),
        "target": agent.target.flat.numpy(),
        "grad": online.flat_grad.numpy(),
        "mean": agent.mean.numpy(),
        "square": agent.square.numpy(),
        "actor_sizes": actor,
        "critic_sizes": critic,
        "inputs": zeros(2, critic[0], batch),
        "actor_layers": zeros(3, batch * int(actor[1:].sum())),
        "critic_layers": zeros(critics, batch * outputs),
        "delta": zeros(batch * outputs),
        "picked": zeros(batch * outputs),
        "noise": zeros(2, reals, batch),
        "drawn": zeros(reals or said, batch),
        "by_action": zeros(reals, batch),
        "q": zeros(critics, batch),
        "items": np.ones((ITEMS, batch), np.float32),  # weights of uniform replay stay 1
        "turned": zeros(batch * int(max(actor.max(), critic.max()))),
        "order": np.zeros(batch, np.int64),
        "bounds": np.zeros(critics + 1, np.int64),
        "chosen": np.zeros(batch, np.int64),
    }


# of a memory, with the kinds of their numbers
MEMORY = {
    "reward": np.float32,
    "kind": np.uint8,
    "ready": np.bool_,
    "head": np.int64,
    "start": np.int64,
    "count": np.int64,
    "tree": np.float64,
    "top": np.float64,
}


def memory_arrays(replay: Replay) -> dict[str, np.ndarray]:
    found = {f"m_{name}": getattr(replay, name) for name in MEMORY}
    return found | {"row": replay.batch.row, "draw": replay.draw}


def no_memory() -> dict[str, np.ndarray]:
    """For an actor that only acts."""
    found = {f"m_{name}": np.zeros(0, kind) for name, kind in MEMORY.items()}
    return found | {"row": np.zeros(0, np.int64), "draw": np.zeros(0)}


def scaled_arrays(scaled: np.ndarray | None) -> dict[str, np.ndarray]:
    """Where the next actions go; without them, those that are asked for alone."""
    kinds = {"e_whole": np.int64, "e_single": np.float32, "e_double": np.float64}
    found = {name: np.zeros((0,) if name == "e_whole" else (0, 0), kinds[name]) for name in kinds}
    if scaled is not None:
        name = next(name for name, kind in kinds.items() if scaled.dtype == kind)
        count = len(scaled)
        found[name] = scaled if name == "e_whole" else scaled.reshape(count, -1)
    return found


def acting_arrays(
    agent: ActorCriticAgent, envs: Any, count: int, scaled: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The environments' last step, their next actions, what is known of observations, and scratch
    for acting in `count` environments."""
    sizes, actions = np.array(agent.online.actor.sizes), agent.actions
    bounded = isinstance(actions, BoundedActions)
    return {
        "e_reward": envs.reward,
        "e_terminated": envs.terminated,
        "e_truncated": envs.truncated,
        "e_skipped": envs.skipped,
        "e_inputs": zeros(sizes[0], count),
        "e_hidden": zeros(count * int(sizes[1:].sum())),
        "e_noise": zeros(actions.reals, count),
        "e_drawn": zeros(actions.reals, count),
        "e_log_p": zeros(count),
        "low": actions.low if bounded else np.zeros(0),
        "high": actions.high if bounded else np.zeros(0),
        **scaled_arrays(scaled),
        **statistics(agent),
    }
