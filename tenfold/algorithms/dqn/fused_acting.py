"""Acting as one compiled call: the settings as numbers, and the exploring policy's actions."""

import numpy as np

from tenfold.algorithms.dqn.agent import ONLINE, DQNAgent
from tenfold.algorithms.dqn.config import Boltzmann, Epsilon, Hard, Prioritized
from tenfold.core.kernels import kernel
from tenfold.core.random import Purpose, draw_uniform
from tenfold.core.schedules import as_numbers, schedule_at
from tenfold.engines.fusing import turn_rows, zeros
from tenfold.ops.mlp import ACTIVATIONS, mlp_forward
from tenfold.ops.moments import norm_columns
from tenfold.ops.td import value_of

# places in `rule`, the settings as numbers; a schedule takes four
(
    ACTIVATION,
    DOUBLE,
    DUEL,
    ATOMS,
    HUBER,
    CLIP,
    ADAM_EPS,
    HARD,
    TAU,
    PRIORITIZED,
    ALPHA,
    PRIORITY_EPS,
    N_STEP,
    GAMMA,
    SCALE,
    STARTS,
    EVERY,
    PER_ROUND,
    BOLTZMANN,
    ACTIONS,
    NORM_CLIP,
) = range(21)
# typed: Numba compiles a function once more for each literal number it is called with
LR, EXPLORE, BETA, RULES = np.int64(21), np.int64(25), np.int64(29), 33


def rules(agent: DQNAgent) -> np.ndarray:
    """The settings as numbers."""
    config, rule = agent.config, np.zeros(RULES)
    target, priorities, how = config.target, config.replay, config.explore
    values = {
        ACTIVATION: ACTIVATIONS[config.net.activation],
        DOUBLE: config.double,
        DUEL: config.dueling,
        ATOMS: agent.online.atoms,
        HUBER: config.loss == "huber",
        CLIP: config.clip_norm or np.inf,
        ADAM_EPS: config.adam_eps,
        HARD: target.every if isinstance(target, Hard) else 0,
        TAU: 0 if isinstance(target, Hard) else target.tau,
        N_STEP: config.n_step,
        GAMMA: config.gamma,
        SCALE: 1.0 if agent.norm else agent.layout.scale,
        ACTIONS: agent.actions.n,
        STARTS: config.learning_starts,
        EVERY: config.every,
        PER_ROUND: config.updates,
        BOLTZMANN: isinstance(how, Boltzmann),
        NORM_CLIP: agent.norm.clip if agent.norm else 0,
    }
    if isinstance(priorities, Prioritized):
        values |= {PRIORITIZED: True, ALPHA: priorities.alpha, PRIORITY_EPS: priorities.eps}
        rule[BETA : BETA + 4] = as_numbers(priorities.beta)
    if isinstance(how, Epsilon | Boltzmann):
        level = how.temperature if isinstance(how, Boltzmann) else how.schedule
        rule[EXPLORE : EXPLORE + 4] = as_numbers(level)
    rule[LR : LR + 4] = as_numbers(config.lr)
    rule[list(values)] = list(values.values())
    return rule


def statistics(agent: DQNAgent) -> np.ndarray:
    """Of observations, [3, features]; [3, 0] where they are not normalised."""
    return agent.norm.moments if agent.norm else np.zeros((3, 0))


@kernel
def choose_actions(
    step, rounds, rule, coin, choice, online, sizes, inputs, hidden, norm, obs, action
):
    """The exploring policy's actions for the current observations, as `DQNAgent.explore` gives
    them."""
    size, actions = action.size, int(rule[ACTIONS])
    level, start = schedule_at(rule, EXPLORE, step), rounds * size
    greedy = 0
    for i in range(size):
        action[i] = -1
        if not rule[BOLTZMANN] and draw_uniform(coin, start + i) < level:
            action[i] = int(draw_uniform(choice, start + i) * actions)
        greedy += action[i] < 0
    if greedy == 0:
        return
    turn_rows(obs, rule[SCALE], inputs)
    if norm.shape[1]:
        norm_columns(inputs, norm, rule[NORM_CLIP])
    output = mlp_forward(online, sizes, int(rule[ACTIVATION]), inputs, hidden)
    for i in range(size):
        if action[i] < 0:
            action[i] = best_action(output, i, rule, actions, level, choice, (start + i) * actions)


@kernel
def best_action(output, row, rule, actions, temperature, choice, counter):
    """argmax_a Q, with Gumbel noise times the temperature for Boltzmann exploration."""
    best, most, atoms = 0, -np.inf, int(rule[ATOMS])
    for a in range(actions):
        q = np.float32(0)
        for i in range(atoms):
            q += value_of(output, row, a, i, int(rule[DUEL]), atoms, actions)
        score = np.float64(q / np.float32(atoms))
        if rule[BOLTZMANN]:
            score -= temperature * np.log(-np.log(max(draw_uniform(choice, counter + a), 2.0**-53)))
        if score > most:
            best, most = a, score
    return best


class FusedActing:
    """`DQNAgent.explore` as one compiled call, for an actor that does nothing else."""

    def __init__(self, agent: DQNAgent, lanes: int) -> None:
        sizes = np.array(agent.online.sizes)
        self.action = np.zeros(lanes, np.int64)
        self.before = (
            rules(agent),
            agent.keys[Purpose.COIN],
            agent.keys[Purpose.ACTION],
            agent.block[ONLINE].numpy(),
            sizes,
            zeros(sizes[0], lanes),
            zeros(lanes * int(sizes[1:].sum())),
            statistics(agent),
        )

    def __call__(self, rows: np.ndarray, step: int, rounds: int) -> np.ndarray:
        """Actions [B] for rows [B, …], valid until the next call."""
        choose_actions(step, rounds, *self.before, rows.reshape(len(rows), -1), self.action)
        return self.action
