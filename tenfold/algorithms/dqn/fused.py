"""The fused engine: everything between two environment steps is ONE compiled call on the agent's
and the memory's own arrays.

Storing the step, drawing batches, the forward passes, the loss, the backward pass, clipping, Adam,
the target network, new priorities and the next action: no Python and no allocation in between. It
does what the plain engine does, from the same random numbers in the same order; `tests/engines`
holds the two in lockstep. For fully connected networks on the CPU, in float32.
"""

from collections.abc import Iterator
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from tenfold.algorithms.dqn.agent import GRAD, MEAN, ONLINE, SQUARE, TARGET, DQNAgent, Tensors
from tenfold.algorithms.dqn.config import DQN, Boltzmann, Epsilon, Hard, Prioritized
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform
from tenfold.core.schedules import as_numbers, schedule_at
from tenfold.core.spaces import DiscreteActions
from tenfold.core.tables import B1, D1, F1, F2, F3, I1, U1, W1, Y1, opener, table_of
from tenfold.core.timing import Clock
from tenfold.engines.fusing import PATIENCE, turn_rows, zeros
from tenfold.envs.adapter import Environments
from tenfold.envs.control import ControlEnvironments
from tenfold.envs.control_tasks import play_all
from tenfold.memory.replay import (
    Replay,
    add_rows,
    draw_prioritized,
    draw_ready,
    gather_columns,
    set_priorities,
)
from tenfold.ops.adam import adam_numba, clip_numba, polyak_numba
from tenfold.ops.mlp import ACTIVATIONS, mlp_backward, mlp_forward
from tenfold.ops.td import td_gradient, value_of

# parts of a round, to be added up
STORE, UPDATE, ACT = 1, 2, 4
# typed: Numba compiles a function once more for each literal number it is called with
WHOLE, ONE_FRAME, FIRST_LANE = np.int64(7), np.int64(1), np.int64(0)
# places in `counter`
STEP, ROUNDS, DUE = range(3)
# rows of `items` and of `layers`: numbers for each item of a batch, outputs of all layers
REWARD, DISCOUNT, WEIGHT, ERROR = range(4)
HIDDEN, NEXT_HIDDEN, CHOOSING_HIDDEN, DELTA = range(4)
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
) = range(20)
LR, EXPLORE, BETA, RULES = np.int64(20), np.int64(24), np.int64(28), 32  # typed, as above


class Arrays(NamedTuple):
    """What a round reads and writes, but for observations, whose kind of number is the
    environment's."""

    counter: I1
    updates: I1
    rule: D1
    streams: U1
    sums: F1
    block: F2  # parameters, their target, gradient, moments
    sizes: I1
    # of a batch
    inputs: F3
    layers: F2
    items: F2
    turned: F1
    y: F1
    row: I1
    action: I1
    draw: D1
    # the replay memory
    m_action: W1
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
    e_action: I1
    e_inputs: F2
    e_hidden: F1


open_arrays = opener(Arrays)


@kernel
def update_once(table, m_obs):
    """One gradient update, as `PlainEngine.update_once` does it."""
    a = open_arrays(table)
    rule, updates, sums, sizes, step = a.rule, a.updates, a.sums, a.sizes, a.counter[STEP]
    activation, online, target, grad = (
        int(rule[ACTIVATION]),
        a.block[ONLINE],
        a.block[TARGET],
        a.block[GRAD],
    )
    obs, next_obs = a.inputs[0], a.inputs[1]
    reward, discount, weight, error = (
        a.items[REWARD],
        a.items[DISCOUNT],
        a.items[WEIGHT],
        a.items[ERROR],
    )
    hidden, delta = a.layers[HIDDEN], a.layers[DELTA]
    if rule[PRIORITIZED]:
        draw_prioritized(
            a.streams[0], a.m_count, a.m_tree, schedule_at(rule, BETA, step), a.row, a.draw, weight
        )
    else:
        draw_ready(a.streams[0], a.m_count, a.m_ready, a.m_head, a.row)
    gather_columns(
        a.row,
        a.m_ready.size // a.m_head.size,
        int(rule[N_STEP]),
        rule[GAMMA],
        rule[SCALE],
        m_obs,
        a.m_action,
        a.m_reward,
        a.m_kind,
        obs,
        a.action,
        reward,
        discount,
        next_obs,
    )
    next_output = mlp_forward(target, sizes, activation, next_obs, a.layers[NEXT_HIDDEN])
    chooser = next_output
    if rule[DOUBLE]:
        chooser = mlp_forward(online, sizes, activation, next_obs, a.layers[CHOOSING_HIDDEN])
    output = mlp_forward(online, sizes, activation, obs, hidden)
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    _, _, loss, q = td_gradient(
        output,
        next_output,
        chooser,
        a.action,
        reward,
        discount,
        weight,
        int(rule[DUEL]),
        int(rule[ATOMS]),
        rule[HUBER] > 0,
        by_output,
        error,
        a.y,
    )
    mlp_backward(online, sizes, activation, obs, hidden, delta, a.turned, grad)
    _, norm = clip_numba(grad, rule[CLIP])
    updates[0] += 1
    adam_numba(
        online,
        grad,
        a.block[MEAN],
        a.block[SQUARE],
        updates[0],
        schedule_at(rule, LR, step),
        rule[ADAM_EPS],
    )
    if rule[HARD] == 0:
        polyak_numba(target, online, rule[TAU])
    elif updates[0] % int(rule[HARD]) == 0:
        for j in range(online.size):
            target[j] = online[j]
    if rule[PRIORITIZED]:
        set_priorities(a.m_tree, a.m_top, a.row, error, rule[ALPHA], rule[PRIORITY_EPS])
    sums[0] += loss
    sums[1] += q
    sums[2] += mean_size(error)
    sums[3] += norm
    sums[4] += 1


@kernel
def mean_size(error):
    total = np.float32(0)
    for b in range(error.size):
        total += abs(error[b])
    return total / np.float32(error.size)


@kernel
def choose_actions(step, rounds, rule, coin, choice, online, sizes, inputs, hidden, obs, action):
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


@kernel
def store_last(table, m_obs, e_obs, e_final_obs):
    """The step just made, into the memory; the updates that are then due."""
    a = open_arrays(table)
    rule, counter = a.rule, a.counter
    add_rows(
        m_obs,
        a.m_action,
        a.m_reward,
        a.m_kind,
        a.m_ready,
        a.m_head,
        a.m_start,
        a.m_count,
        a.m_tree,
        a.m_top,
        int(rule[N_STEP]),
        ONE_FRAME,
        FIRST_LANE,
        a.e_action,
        a.e_reward,
        a.e_terminated,
        a.e_truncated,
        a.e_skipped,
        e_obs,
        e_final_obs,
    )
    before = counter[STEP]
    for i in range(a.e_skipped.size):
        counter[STEP] += not a.e_skipped[i]
    counter[ROUNDS] += 1
    every = int(rule[EVERY])
    due = (counter[STEP] // every - before // every) * int(rule[PER_ROUND])
    counter[DUE] = due if counter[STEP] > rule[STARTS] and a.m_count[0] > 0 else 0


@kernel
def fused_round(parts, table, m_obs, e_obs, e_final_obs):
    """Store the step just made, run the updates that are due, choose the next action: those of the
    three in `parts`."""
    a = open_arrays(table)
    if parts & STORE:
        store_last(table, m_obs, e_obs, e_final_obs)
    if parts & UPDATE:
        for _ in range(a.counter[DUE]):
            update_once(table, m_obs)
        a.counter[DUE] = 0
    if parts & ACT:
        choose_actions(
            a.counter[STEP],
            a.counter[ROUNDS],
            a.rule,
            a.streams[1],
            a.streams[2],
            a.block[ONLINE],
            a.sizes,
            a.e_inputs,
            a.e_hidden,
            e_obs,
            a.e_action,
        )


@kernel
def fused_rounds(most, action, lanes, table, m_obs, e_obs, e_final_obs):
    """Rounds of a compiled environment and `fused_round`, until an episode ends or `most` rounds
    are done.

    Returns what `play_all` gave: the number of episodes that ended, or less than 0 for a number
    that is not finite.
    """
    ended = 0
    while ended == 0 and most > 0:
        ended = play_all(action, lanes)
        if ended >= 0:
            fused_round(WHOLE, table, m_obs, e_obs, e_final_obs)
        most -= 1
    return ended


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
        )

    def __call__(self, rows: np.ndarray, step: int, rounds: int) -> np.ndarray:
        """Actions [B] for rows [B, …], valid until the next call."""
        choose_actions(step, rounds, *self.before, rows.reshape(len(rows), -1), self.action)
        return self.action


class FusedEngine(PlainEngine):
    """Runs rounds by one call each. Parameters, moments, memory and statistics stay where the plain
    engine keeps them, so a run can change engines at any round."""

    def __init__(self, agent: DQNAgent, replay: Replay, envs: Environments) -> None:
        super().__init__(agent, replay, envs)
        self.chosen = False  # whether `action` is the action for the current observations
        self.scale = 1  # of the time of an update: how many rounds a timed one stands for
        self.counter = np.zeros(3, np.int64)
        streams = np.array(
            [agent.keys[purpose] for purpose in (Purpose.REPLAY, Purpose.COIN, Purpose.ACTION)]
        )
        sizes, batch, count = np.array(agent.online.sizes), len(replay.draw), envs.num_envs
        outputs = int(sizes[1:].sum())
        self.compiled = envs if isinstance(envs, ControlEnvironments) else None
        # the environments' next
        self.action = self.compiled.action if self.compiled else np.zeros(count, np.int64)
        self.items = np.ones((4, batch), np.float32)  # weights of uniform replay stay 1
        self.arrays = Arrays(
            counter=self.counter,
            updates=agent.count,
            rule=rules(agent),
            streams=streams,
            sums=self.sums.numpy(),
            block=agent.block.numpy(),
            sizes=sizes,
            inputs=zeros(2, sizes[0], batch),
            layers=zeros(4, batch * outputs),
            items=self.items,
            turned=zeros(batch * int(sizes.max())),
            y=zeros(agent.online.atoms),
            row=replay.batch.row,
            action=replay.batch.action,
            draw=replay.draw,
            m_action=replay.action,
            m_reward=replay.reward,
            m_kind=replay.kind,
            m_ready=replay.ready,
            m_head=replay.head,
            m_start=replay.start,
            m_count=replay.count,
            m_tree=replay.tree,
            m_top=replay.top,
            e_reward=envs.reward,
            e_terminated=envs.terminated,
            e_truncated=envs.truncated,
            e_skipped=envs.skipped,
            e_action=self.action,
            e_inputs=zeros(sizes[0], count),
            e_hidden=zeros(count * outputs),
        )
        self.given = (
            table_of(self.arrays),
            replay.obs,
            envs.obs.reshape(count, -1),
            envs.final_obs.reshape(count, -1),
        )

    def warm_up(self) -> None:
        if self.compiled:
            self.run_compiled(self.compiled, 0)
        fused_round(0, *self.given)
        e, no = self.envs, slice(0, 0)  # storing alone, which timed rounds do, of no environment
        self.replay.add(
            self.action[no],
            e.reward[no],
            e.terminated[no],
            e.truncated[no],
            e.skipped[no],
            e.obs[no],
            e.final_obs[no],
        )

    def at(self, step: int, rounds: int, due: int = 0) -> None:
        self.counter[:] = step, rounds, due

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the current observations."""
        self.at(step, rounds)
        fused_round(ACT, *self.given)
        self.chosen = False
        return self.action

    def update(self, count: int, step: int, clock: Clock) -> None:
        clock.start()
        self.at(step, 0, count)
        fused_round(UPDATE, *self.given)
        self.chosen = False
        clock.lap("update", self.scale)

    def run(self, step: int, rounds: int, most: int) -> tuple[int, int]:
        """Whole rounds from the given counts until an episode ends, `most` or a moment; returns the
        counts after them."""
        if not self.chosen:
            self.explore(step, rounds)
            self.chosen = True
        if self.compiled:
            self.compiled.begin_rounds()
            self.compiled.end_rounds(self.run_compiled(self.compiled, most))
        else:
            envs, given, action, start = (
                self.envs,
                self.given,
                self.action,
                self.agent.actions.start,
            )
            enough = monotonic() + PATIENCE
            for _ in range(most):
                envs.step(action + start if start else action)
                fused_round(WHOLE, *given)
                if envs.finished or monotonic() > enough:
                    break
        return int(self.counter[STEP]), int(self.counter[ROUNDS])

    def run_compiled(self, envs: ControlEnvironments, most: int) -> int:
        return fused_rounds(most, *envs.given, *self.given)

    def set_lr(self, lr: Any) -> None:
        self.arrays.rule[LR : LR + 4] = as_numbers(lr)

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        self.chosen = False


def rules(agent: DQNAgent) -> np.ndarray:
    """The settings as numbers."""
    config, rule = agent.config, np.zeros(RULES)
    target, priorities, how = config.target, config.replay, config.explore
    rule[ACTIVATION] = ACTIVATIONS[config.net.activation]
    rule[DOUBLE], rule[DUEL], rule[ATOMS], rule[HUBER] = (
        config.double,
        config.dueling,
        agent.online.atoms,
        config.loss == "huber",
    )
    rule[CLIP], rule[ADAM_EPS] = config.clip_norm or np.inf, config.adam_eps
    rule[HARD], rule[TAU] = (target.every, 0) if isinstance(target, Hard) else (0, target.tau)
    rule[N_STEP], rule[GAMMA], rule[SCALE], rule[ACTIONS] = (
        config.n_step,
        config.gamma,
        agent.layout.scale,
        agent.actions.n,
    )
    rule[STARTS], rule[EVERY], rule[PER_ROUND] = (
        config.learning_starts,
        config.every,
        config.updates,
    )
    rule[LR : LR + 4] = as_numbers(config.lr)
    if isinstance(priorities, Prioritized):
        rule[PRIORITIZED], rule[ALPHA], rule[PRIORITY_EPS] = True, priorities.alpha, priorities.eps
        rule[BETA : BETA + 4] = as_numbers(priorities.beta)
    if isinstance(how, Epsilon | Boltzmann):
        rule[BOLTZMANN] = isinstance(how, Boltzmann)
        rule[EXPLORE : EXPLORE + 4] = as_numbers(
            how.temperature if isinstance(how, Boltzmann) else how.schedule
        )
    return rule


# the pairs: the plain engine on the same memory


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
