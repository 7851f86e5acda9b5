"""The arrays and settings that the compiled rounds of an actor with critics read
(`algorithms.kernels.actor_critic`): parameters, scratch, and where actions go."""

from typing import Any

import numpy as np

from tenfold.algorithms.actor_critic import ActorCriticAgent
from tenfold.core.random import Purpose
from tenfold.core.spaces import BoundedActions
from tenfold.engines.fused import (
    OWN_ITEMS,
    keys_of,
    norm_arrays,
    pack_params,
    team_for_updates,
    zeros,
)
from tenfold.ops.activations import ACTIVATIONS
from tenfold.ops.exploration_noise import ActionNoise
from tenfold.ops.mlp import layer_total
from tenfold.ops.split_mlp import scratch_size

# places in `keys`
REPLAY, RANDOM, ACTING, POLICY, NEXT_POLICY, EXTRA = range(6)
DRAWS = (
    Purpose.REPLAY,
    Purpose.ACTION,
    Purpose.NOISE_ACT,
    Purpose.POLICY,
    Purpose.NEXT_POLICY,
    Purpose.ACTION_NOISE,
)
# rows of `items`, behind those of all algorithms
Y, LOG_P, NEXT_LOG_P, VALUE, ITEMS = range(OWN_ITEMS, OWN_ITEMS + 5)
# rows of `inputs`: [s | a] and [s' | a']; of `actor_layers`
NOW, NEXT = range(2)
HIDDEN, NEXT_HIDDEN, DELTA = range(3)
NOISE = "noise_rule", "noise_values", "noise_at"


def actor_critic_params(agent: ActorCriticAgent, **more: Any) -> dict[str, np.ndarray]:
    """The settings as kernels read them."""
    actions = agent.actions
    if isinstance(actions, BoundedActions):
        more["single"] = actions.space.dtype == np.float32
    else:
        more["first_option"] = actions.start
    return pack_params(agent, **more)


def acting_columns(agent: ActorCriticAgent, count: int) -> dict[str, np.ndarray]:
    """What choosing actions reads but for the settings, and scratch for `count` environments."""
    sizes, reals = np.array(agent.online.actor.sizes), agent.actions.reals
    return {
        "online": agent.online.flat.numpy(),
        "actor_sizes": sizes,
        "keys": keys_of(agent, *DRAWS),
        "e_inputs": zeros(sizes[0], count),
        "e_hidden": zeros(count * int(sizes[1:].sum())),
        "e_noise": zeros(reals, count),
        "e_drawn": zeros(reals, count),
        "e_log_p": zeros(count),
        **norm_arrays(agent),
    }


def noise_columns(noise: ActionNoise | None) -> dict[str, np.ndarray]:
    """Of noise that is added to actions; empty where there is none."""
    if noise is None:
        empty = np.zeros((0, 0)), np.zeros((2, 0, 0)), np.zeros(1, np.int64)
        return dict(zip(NOISE, empty, strict=True))
    return dict(zip(NOISE, (noise.rule, noise.values, noise.at), strict=True))


def batch_columns(agent: ActorCriticAgent, batch: int) -> dict[str, np.ndarray]:
    """Parameters, the team that shares the work, and scratch for batches of `batch` items."""
    online, reals = agent.online, agent.actions.reals
    actor, critic = np.array(online.actor.sizes), np.array(online.critics[0].sizes)
    critics, activation = len(online.critics), ACTIVATIONS[agent.config.net.activation]
    room = batch * layer_total(critic, activation)
    assert critic[0] == actor[0] + reals
    scratch = max(scratch_size(actor, batch), critics * scratch_size(critic, batch))
    return {
        "team": team_for_updates(batch, actor, critic),
        "updates_made": agent.count,
        "target": agent.target.flat.numpy(),
        "grad": online.flat_grad.numpy(),
        "mean": agent.exp_avg.numpy(),
        "square": agent.exp_avg_sq.numpy(),
        "critic_sizes": critic,
        "inputs": zeros(2, critic[0], batch),
        "actor_layers": zeros(3, batch * layer_total(actor, activation)),
        "critic_layers": zeros(critics, room),  # of each critic
        "delta": zeros(critics, room),
        "picked": zeros(room),
        "noise": zeros(2, reals, batch),
        # actions of the current policy, or their values
        "drawn": zeros(reals or int(actor[-1]), batch),
        "by_action": zeros(reals, batch),
        "q": zeros(critics, batch),
        "items": np.ones((ITEMS, batch), np.float32),  # weights of uniform replay stay 1
        "scratch_t": zeros(scratch),
        "squares": zeros(critics),
        "order": np.zeros(batch, np.int64),
        "bounds": np.zeros(critics + 1, np.int64),
        # of discrete actions; of numbers all 0, which picks a critic's only output
        "options_taken": np.zeros(batch, np.int64),
    }


def scaled_columns(agent: ActorCriticAgent, scaled: np.ndarray) -> dict[str, np.ndarray]:
    """Where the next actions go as the environments take them, one of three kinds of numbers, and
    their bounds."""
    kinds = {"e_whole": np.int64, "e_single": np.float32, "e_double": np.float64}
    rows = {name: np.zeros((0,) if name == "e_whole" else (0, 0), kinds[name]) for name in kinds}
    name = next(name for name, kind in kinds.items() if scaled.dtype == kind)
    rows[name] = scaled if name == "e_whole" else scaled.reshape(len(scaled), -1)
    actions: Any = agent.actions
    bounded = isinstance(actions, BoundedActions)
    bounds = (actions.low, actions.high) if bounded else (np.zeros(0), np.zeros(0))
    return rows | dict(zip(("action_low", "action_high"), bounds, strict=True))
