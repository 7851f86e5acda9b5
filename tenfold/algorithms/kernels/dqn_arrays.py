"""The arrays and settings that compiled rounds of Q-learning read (`algorithms.kernels.dqn`)."""

import numpy as np

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import Boltzmann, Epsilon, Hard, Noisy
from tenfold.core.random import Purpose
from tenfold.engines.fused import (
    OWN_ITEMS,
    keys_of,
    norm_arrays,
    pack_params,
    team_for_updates,
    zeros,
)
from tenfold.ops.activations import ACTIVATIONS
from tenfold.ops.mlp import layer_total, parameter_count
from tenfold.ops.split_mlp import scratch_size

# rows of `layers`, outputs of all layers
HIDDEN, NEXT_HIDDEN, CHOOSING_HIDDEN, DELTA = range(4)
# places in `keys`
COIN, ACTION, NOISE_ACT, REPLAY, NOISE_ONLINE, NOISE_TARGET = range(6)
ACTING_PURPOSES = Purpose.COIN, Purpose.ACTION, Purpose.NOISE_ACT
LEARNING_PURPOSES = Purpose.REPLAY, Purpose.NOISE_ONLINE, Purpose.NOISE_TARGET
# rows of `perturbed`
UNDER_NOISE, TARGET_UNDER_NOISE, GRAD_UNDER_NOISE = range(3)


def dqn_params(agent: DQNAgent, lanes: int) -> dict[str, np.ndarray]:
    """The settings as kernels read them, in so many environments."""
    config, explore, exploration = agent.config, agent.config.explore, 0.0
    if isinstance(explore, Epsilon | Boltzmann):
        exploration = (
            explore.temperature if isinstance(explore, Boltzmann) else explore.schedule  # type: ignore[assignment]
        )
    target, ends = config.target, config.categorical
    return pack_params(
        agent,
        exploration,
        atoms=agent.online.atoms,
        huber=config.loss == "huber",
        uniform_warm_up=config.warms_up(-1),
        target_every=target.every if isinstance(target, Hard) else 0,
        target_rounds=target.rounds(lanes) if isinstance(target, Hard) else 0,
        tau=target.tau,
        categorical=bool(ends),
        low=ends.low if ends else 0,
        high=ends.high if ends else 0,
        boltzmann=isinstance(explore, Boltzmann),
        noisy=isinstance(explore, Noisy),
        options=agent.actions.n,
        first_option=agent.actions.start,
    )


def acting_columns(agent: DQNAgent, count: int, perturbed: int = 1) -> dict[str, np.ndarray]:
    """What `choose_actions` reads, and scratch for `count` environments and for so many sets of
    parameters under noise."""
    sizes, noise = np.array(agent.online.sizes), agent.online.noise_size
    return {
        "block": agent.block.numpy(),
        "sizes": sizes,
        "keys": keys_of(agent, *ACTING_PURPOSES, *LEARNING_PURPOSES),
        # parameters under noise, their target, gradient; without a column where there is none
        "perturbed": zeros(perturbed, parameter_count(agent.online.sizes) if noise else 0),
        "factors": zeros(2, noise),
        "y": zeros(4 * agent.online.atoms),
        "e_inputs": zeros(sizes[0], count),
        "e_hidden": zeros(count * int(sizes[1:].sum())),
        **norm_arrays(agent),
    }


def batch_columns(agent: DQNAgent, batch: int) -> dict[str, np.ndarray]:
    """The team that shares updates by batches of so many items, and scratch for them."""
    sizes, activation = np.array(agent.online.sizes), ACTIVATIONS[agent.config.net.activation]
    return {
        "team": team_for_updates(batch, sizes),
        "updates_made": agent.count,
        "inputs": zeros(2, sizes[0], batch),
        "layers": zeros(4, batch * layer_total(sizes, activation)),
        "items": np.ones((OWN_ITEMS, batch), np.float32),  # weights of uniform replay stay 1
        "scratch_t": zeros(scratch_size(sizes, batch)),
    }
