"""Acting as one compiled call: the settings as numbers, and the exploring policy's actions."""

import numpy as np

from tenfold.algorithms.dqn.agent import ONLINE, DQNAgent
from tenfold.algorithms.dqn.config import Boltzmann, Epsilon, Hard, Noisy
from tenfold.algorithms.fused_replay import (
    ACTIVATION,
    BEHIND,
    STARTS,
    replay_rules,
    see_rows,
    statistics,
)
from tenfold.core.kernels import as_numbers, kernel, schedule_at
from tenfold.core.random import Purpose, draw_uniform
from tenfold.engines.fusing import zeros
from tenfold.ops.mlp import mlp_forward, parameter_count
from tenfold.ops.noise import fill_factors, noisy_parameters
from tenfold.ops.td import base_of, mean_of, softmax_of, value_of

# its own places in `rule`
(
    DOUBLE,
    DUEL,
    ATOMS,
    HUBER,
    CLIP,
    HARD,
    TAU,
    BOLTZMANN,
    ACTIONS,
    NOISY,
    CATEGORICAL,
    LOW,
    HIGH,
) = range(BEHIND, BEHIND + 13)
EXPLORE, RULES = np.int64(BEHIND + 13), BEHIND + 17


def rules(agent: DQNAgent) -> np.ndarray:
    """The settings as numbers."""
    config, rule = agent.config, replay_rules(agent, RULES)
    target, how = config.target, config.explore
    values = {
        DOUBLE: config.double,
        DUEL: config.dueling,
        ATOMS: agent.online.atoms,
        HUBER: config.loss == "huber",
        CLIP: config.clip_norm or np.inf,
        HARD: target.every if isinstance(target, Hard) else 0,
        TAU: 0 if isinstance(target, Hard) else target.tau,
        BOLTZMANN: isinstance(how, Boltzmann),
        ACTIONS: agent.actions.n,
        NOISY: isinstance(how, Noisy),
    }
    if spread := config.categorical:
        values |= {CATEGORICAL: True, LOW: spread.low, HIGH: spread.high}
    if isinstance(how, Epsilon | Boltzmann):
        level = how.temperature if isinstance(how, Boltzmann) else how.schedule
        rule[EXPLORE : EXPLORE + 4] = as_numbers(level)
    rule[list(values)] = list(values.values())
    return rule


@kernel
def choose_actions(
    step,
    rounds,
    rule,
    streams,
    online,
    sizes,
    noisy,
    factors,
    y,
    inputs,
    hidden,
    norm,
    obs,
    mask,
    action,
):
    """The exploring policy's actions for the current observations, as `DQNAgent.explore` gives
    them. `streams`: of coins, actions and noise; `noisy`, `factors`, `y`: scratch for parameters
    under noise, its factors, and two distributions. `mask` [B, A] is [B, 0] where all is allowed.
    Returns a lane in which nothing is, or -1."""
    size, actions = action.size, int(rule[ACTIONS])
    level, start = schedule_at(rule, EXPLORE, step), rounds * size
    if rule[NOISY]:  # an untrained network's favourite action would fill the memory otherwise
        level = 1.0 if step < rule[STARTS] else 0.0
    greedy = 0
    for i in range(size):
        action[i] = -1
        if not rule[BOLTZMANN] and draw_uniform(streams[0], start + i) < level:
            action[i] = random_action(draw_uniform(streams[1], start + i), mask, i, actions)
            if action[i] < 0:
                return i
        greedy += action[i] < 0
    if greedy == 0:
        return -1
    parameters = online
    if rule[NOISY]:
        fill_factors(streams[2], rounds, factors)
        parameters = noisy_parameters(online, sizes, factors, noisy)
    see_rows(obs, rule, norm, inputs)
    output = mlp_forward(parameters, sizes, int(rule[ACTIVATION]), inputs, hidden)
    for i in range(size):
        if action[i] < 0:
            counter = (start + i) * actions
            action[i] = best_action(output, i, rule, actions, level, streams[1], counter, mask, y)
            if action[i] < 0:
                return i
    return -1


@kernel
def random_action(u, mask, row, actions):
    """An allowed action, each as likely as the other, by a uniform number; -1 where there is
    none."""
    if mask.shape[1] == 0:
        return int(u * actions)
    count = 0
    for a in range(actions):
        count += mask[row, a]
    left = int(u * count)
    for a in range(actions):
        if mask[row, a]:
            if left == 0:
                return a
            left -= 1
    return -1


@kernel
def best_action(output, row, rule, actions, temperature, choice, counter, mask, y):
    """argmax_a Q of what is allowed, with Gumbel noise times the temperature for Boltzmann
    exploration; -1 where nothing is."""
    best, most, atoms = -1, -np.inf, int(rule[ATOMS])
    base, own = y[:atoms], y[atoms : 2 * atoms]
    if rule[CATEGORICAL]:
        base_of(output, row, int(rule[DUEL]), atoms, actions, base)
    for a in range(actions):
        if mask.shape[1] and not mask[row, a]:
            continue
        if rule[CATEGORICAL]:
            softmax_of(output, row, a, int(rule[DUEL]), atoms, base, own)
            score = np.float64(mean_of(own, atoms, rule[LOW], rule[HIGH]))
        else:
            q = np.float32(0)
            for i in range(atoms):
                q += value_of(output, row, a, i, int(rule[DUEL]), atoms, actions)
            score = np.float64(q / np.float32(atoms))
        if rule[BOLTZMANN]:
            score -= temperature * np.log(-np.log(max(draw_uniform(choice, counter + a), 2.0**-53)))
        if score > most or best < 0:
            best, most = a, score
    return best


def noise_room(agent: DQNAgent, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Scratch for `rows` sets of parameters under noise, and the factors of two; empty where the
    layers are not noisy."""
    noise = agent.online.noise_size
    size = parameter_count(agent.online.sizes) if noise else 0
    return zeros(rows, size), zeros(2, noise)


def acting_streams(agent: DQNAgent) -> np.ndarray:
    purposes = (Purpose.COIN, Purpose.ACTION, Purpose.NOISE_ACT)
    return np.array([agent.keys[purpose] for purpose in purposes])


class FusedActing:
    """`DQNAgent.explore` as one compiled call, for an actor that does nothing else."""

    def __init__(self, agent: DQNAgent, lanes: int) -> None:
        sizes = np.array(agent.online.sizes)
        noisy, factors = noise_room(agent, 1)
        self.action = np.zeros(lanes, np.int64)
        self.free = np.zeros((lanes, 0), np.bool_)
        self.before = (
            rules(agent),
            acting_streams(agent),
            agent.block[ONLINE].numpy(),
            sizes,
            noisy[0],
            factors[0],
            zeros(2 * agent.online.atoms),
            zeros(sizes[0], lanes),
            zeros(lanes * int(sizes[1:].sum())),
            statistics(agent)["norm"],
        )

    def __call__(
        self, rows: np.ndarray, step: int, rounds: int, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Actions [B] for rows [B, …], valid until the next call."""
        allowed, flat = self.free if mask is None else mask, rows.reshape(len(rows), -1)
        choose_actions(step, rounds, *self.before, flat, allowed, self.action)
        return self.action
