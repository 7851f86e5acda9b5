"""The fused engine of policy gradients: storing a step and choosing the next action is ONE compiled
call, and so are all epochs of minibatches of a learning phase.

It does what the plain engine does, from the same random numbers in the same order; `tests/engines`
holds the two in lockstep. For fully connected networks on the CPU, in float32. All parameters lie
in one buffer: deviations, policy, value.
"""

from collections.abc import Iterator
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from tenfold.algorithms.ppo.agent import GRAD, MEAN, ONLINE, SQUARE, PPOAgent, Tensors
from tenfold.algorithms.ppo.config import PPO
from tenfold.algorithms.ppo.plain import PlainPPO
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose
from tenfold.core.schedules import as_numbers, schedule_at
from tenfold.core.spaces import policy_actions
from tenfold.core.tables import B1, B2, B3, D1, F1, F2, F3, I1, I2, I3, U1, opener, table_of
from tenfold.core.timing import Clock
from tenfold.engines.fusing import PATIENCE, turn_rows, zeros
from tenfold.envs.adapter import Environments
from tenfold.envs.control import ControlEnvironments
from tenfold.envs.control_tasks import play_all
from tenfold.envs.making import make_environments
from tenfold.memory.rollout import Rollout, finish_rollout, store_step
from tenfold.nets.policy import PolicyNetwork
from tenfold.ops.adam import adam_numba, clip_numba
from tenfold.ops.mlp import ACTIVATIONS, mlp_backward, mlp_forward, parameter_count
from tenfold.ops.moments import norm_apply, norm_scale, norm_update
from tenfold.ops.policy import draw_action, shuffle
from tenfold.ops.surrogate import KL, policy_gradient, value_gradient

# parts of a round, to be added up
STORE, FINISH, UPDATE, ACT = 1, 2, 4, 8
# places in `counter`
STEP, ROUNDS, FIRST, LAST, EMPTY = range(5)
# places in `rule`, the settings as numbers; the learning rate's schedule takes four
(
    ACTIVATION,
    GAMMA,
    LAM,
    SCALE,
    NORMALIZE,
    CLIP,
    VALUE_CLIP,
    VALUE_WEIGHT,
    ENTROPY,
    CLIP_NORM,
    ADAM_EPS,
    TARGET_KL,
    MINIBATCHES,
    EPOCHS,
    OBS_SCALE,
    NORM,
    NORM_CLIP,
    NORM_EPS,
    REFUSE,
    MOVED,
) = range(20)
LR, RULES = np.int64(20), 24  # typed: one form of `schedule_at` for all schedules
# streams
COINS, NORMALS, SHUFFLES = range(3)


class Arrays(NamedTuple):
    """What a round reads and writes, but for observations, whose kind of number is the
    environment's."""

    counter: I1
    updates: I1
    rule: D1
    streams: U1
    sums: D1
    block: F2  # parameters, gradient, moments
    sizes: I1  # of the action's components
    policy_sizes: I1
    value_sizes: I1
    # of a minibatch
    inputs: F1
    hidden: F1
    delta: F1
    columns: F2
    chosen: I2
    mask: B2
    turned: F1
    # of acting
    act_inputs: F2
    act_hidden: F1
    act_scratch: F2
    seen: F2
    # running statistics of observations
    norm_count: I1
    norm_mean: D1
    norm_square: D1
    norm_inverse: D1
    # the rollout, [T, B, …]
    r_count: I1
    r_mask: B3
    r_chosen: I3
    r_real: F3
    r_log_p: F2
    r_value: F2
    r_next: F2
    r_reward: F2
    r_discount: F2
    r_boundary: F2
    r_weight: F2
    r_advantage: F2
    r_target: F2
    order: I1
    # the environments' last step
    e_reward: D1
    e_terminated: B1
    e_truncated: B1
    e_skipped: B1
    e_mask: B2


open_arrays = opener(Arrays)


@kernel
def parameter_total(sizes):
    total = 0
    for i in range(sizes.size - 1):
        total += (sizes[i] + 1) * sizes[i + 1]
    return total


@kernel
def values_of(obs, table):
    """Values [1, B] of observations that were not counted into the running statistics."""
    a = open_arrays(table)
    flat = a.block[ONLINE]
    if a.rule[NORM]:
        norm_apply(obs, a.norm_mean, a.norm_inverse, a.rule[NORM_CLIP], a.seen)
        turn_rows(a.seen, 1.0, a.act_inputs)
    else:
        turn_rows(obs, a.rule[OBS_SCALE], a.act_inputs)
    return mlp_forward(
        flat[flat.size - parameter_total(a.value_sizes) :],
        a.value_sizes,
        int(a.rule[ACTIVATION]),
        a.act_inputs,
        a.act_hidden,
    )


@kernel
def has_empty(mask, sizes):
    """Whether some component has no allowed option."""
    for b in range(mask.shape[0]):
        at = 0
        for c in range(sizes.size):
            allowed = mask.shape[1] == 0
            for k in range(at, at + sizes[c]):
                allowed = allowed or mask[b, k]
            if not allowed:
                return True
            at += sizes[c]
    return False


@kernel
def learn_minibatch(first, last, table, r_obs):
    """One gradient update from the rows order[first … last − 1]; returns its KL estimate."""
    a = open_arrays(table)
    rule, sums, p_sizes, v_sizes = a.rule, a.sums, a.policy_sizes, a.value_sizes
    rows, activation, all_rows = last - first, int(rule[ACTIVATION]), a.order.size
    flat, grad = a.block[ONLINE], a.block[GRAD]
    reals, features = a.r_real.shape[2], p_sizes[0]
    split = reals + parameter_total(p_sizes)
    policy = flat[reals:split]
    inputs = a.inputs[: features * rows].reshape(features, rows)
    chosen, mask = a.chosen[:rows], a.mask[:rows]
    log_p, value, advantage, target, weight = (
        a.columns[0, :rows],
        a.columns[1, :rows],
        a.columns[2, :rows],
        a.columns[3, :rows],
        a.columns[4, :rows],
    )
    real = a.columns[5 : 5 + reals].reshape(-1)[: rows * reals].reshape(rows, reals)
    obs, all_chosen = r_obs.reshape(all_rows, features), a.r_chosen.reshape(all_rows, a.sizes.size)
    all_real, all_masks = (
        a.r_real.reshape(all_rows, reals),
        a.r_mask.reshape(all_rows, a.r_mask.shape[2]),
    )
    all_log_p, all_values, all_advantages = (
        a.r_log_p.reshape(-1),
        a.r_value.reshape(-1),
        a.r_advantage.reshape(-1),
    )
    all_targets, all_weights = a.r_target.reshape(-1), a.r_weight.reshape(-1)
    factor = np.float32(rule[OBS_SCALE])
    for i in range(rows):
        place = a.order[first + i]
        for j in range(features):
            inputs[j, i] = obs[place, j] * factor
        for c in range(a.sizes.size):
            chosen[i, c] = all_chosen[place, c]
        for d in range(reals):
            real[i, d] = all_real[place, d]
        for k in range(all_masks.shape[1]):
            mask[i, k] = all_masks[place, k]
        log_p[i], value[i], advantage[i] = (
            all_log_p[place],
            all_values[place],
            all_advantages[place],
        )
        target[i], weight[i] = all_targets[place], all_weights[place]
    before = sums[KL]
    # the policy
    hidden, delta = outputs_of(a.hidden, p_sizes, rows), outputs_of(a.delta, p_sizes, rows)
    output = mlp_forward(policy, p_sizes, activation, inputs, hidden)
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    policy_gradient(
        output,
        flat[:reals],
        a.sizes,
        chosen,
        real,
        mask,
        log_p,
        advantage,
        weight,
        rule[CLIP],
        rule[ENTROPY],
        by_output,
        grad[:reals],
        sums,
    )
    mlp_backward(policy, p_sizes, activation, inputs, hidden, delta, a.turned, grad[reals:split])
    # the value
    hidden, delta = outputs_of(a.hidden, v_sizes, rows), outputs_of(a.delta, v_sizes, rows)
    guess = mlp_forward(flat[split:], v_sizes, activation, inputs, hidden)
    by_value = delta[delta.size - guess.size :].reshape(guess.shape)
    value_gradient(
        guess, target, value, weight, rule[VALUE_CLIP], rule[VALUE_WEIGHT], by_value, sums
    )
    mlp_backward(flat[split:], v_sizes, activation, inputs, hidden, delta, a.turned, grad[split:])
    _, norm = clip_numba(grad, rule[CLIP_NORM])
    a.updates[0] += 1
    adam_numba(
        flat,
        grad,
        a.block[MEAN],
        a.block[SQUARE],
        a.updates[0],
        schedule_at(rule, LR, a.counter[STEP]),
        rule[ADAM_EPS],
    )
    sums[5] += norm
    sums[6] += 1
    return sums[KL] - before


@kernel
def outputs_of(room, sizes, rows):
    """The part of scratch that all layers' outputs for so many rows take."""
    width = 0
    for i in range(1, sizes.size):
        width += sizes[i]
    return room[: width * rows]


@kernel
def store_last(table, e_obs, e_final_obs):
    """The step just made, into the rollout's current row."""
    a = open_arrays(table)
    t = a.r_count[0]
    store_step(
        t,
        a.rule[GAMMA],
        a.rule[SCALE],
        a.e_reward,
        a.e_terminated,
        a.e_truncated,
        a.e_skipped,
        a.r_reward,
        a.r_discount,
        a.r_boundary,
        a.r_weight,
    )
    cut = False
    for b in range(a.e_truncated.size):
        cut |= a.e_truncated[b]
        a.counter[STEP] += not a.e_skipped[b]
    if cut:
        final = values_of(e_final_obs, table)
        for b in range(a.e_truncated.size):
            if a.e_truncated[b]:
                a.r_next[t, b] = final[0, b]
    if a.rule[NORM]:
        norm_update(a.norm_count, a.norm_mean, a.norm_square, e_obs)
        norm_scale(a.norm_count, a.norm_square, a.rule[NORM_EPS], a.norm_inverse)
    a.counter[ROUNDS] += 1
    a.r_count[0] = t + 1


@kernel
def finish_last(table, e_obs):
    """Advantages of the full rollout; every epoch's minibatches are then due."""
    a = open_arrays(table)
    last = values_of(e_obs, table)
    finish_rollout(
        a.r_reward,
        a.r_discount,
        a.r_value,
        a.r_next,
        a.r_boundary,
        a.r_weight,
        last[0],
        a.rule[LAM],
        a.rule[NORMALIZE] > 0,
        a.r_advantage,
        a.r_target,
    )
    a.r_count[0] = 0
    a.counter[FIRST], a.counter[LAST] = 0, int(a.rule[EPOCHS] * a.rule[MINIBATCHES])


@kernel
def learn_due(table, r_obs):
    """The minibatches counter[FIRST … LAST − 1]; the phase ends early where the policy has moved
    far enough."""
    a = open_arrays(table)
    counter, rule = a.counter, a.rule
    rows, count = a.order.size, int(rule[MINIBATCHES])
    for number in range(counter[FIRST], counter[LAST]):
        part = number % count
        if part == 0:
            shuffle(a.streams[SHUFFLES], a.updates[1], a.order)
            a.updates[1] += 1
            rule[MOVED] = 0
        rule[MOVED] += (
            learn_minibatch(rows * part // count, rows * (part + 1) // count, table, r_obs) / count
        )
        counter[FIRST] = number + 1
        if part == count - 1 and rule[MOVED] > rule[TARGET_KL]:
            break


@kernel
def choose_next(table, r_obs, e_obs):
    """Actions for the current observations, into the rollout's current row."""
    a = open_arrays(table)
    t, size, flat, activation = (
        a.r_count[0],
        e_obs.shape[0],
        a.block[ONLINE],
        int(a.rule[ACTIVATION]),
    )
    if a.rule[NORM]:
        norm_apply(e_obs, a.norm_mean, a.norm_inverse, a.rule[NORM_CLIP], r_obs[t])
    else:
        for b in range(size):
            for j in range(e_obs.shape[1]):
                r_obs[t, b, j] = e_obs[b, j]
    for b in range(size):
        for k in range(a.e_mask.shape[1]):
            a.r_mask[t, b, k] = a.e_mask[b, k]
    if a.rule[REFUSE] and has_empty(a.e_mask, a.sizes):
        a.counter[EMPTY] = 1
        return
    turn_rows(r_obs[t], a.rule[OBS_SCALE], a.act_inputs)
    reals = a.r_real.shape[2]
    split = reals + parameter_total(a.policy_sizes)
    output = mlp_forward(flat[reals:split], a.policy_sizes, activation, a.act_inputs, a.act_hidden)
    draw_action(
        output,
        flat[:reals],
        a.sizes,
        a.e_mask,
        a.streams[COINS],
        a.streams[NORMALS],
        a.counter[ROUNDS] * size,
        a.act_scratch,
        a.r_chosen[t],
        a.r_real[t],
        a.r_log_p[t],
    )
    value = mlp_forward(flat[split:], a.value_sizes, activation, a.act_inputs, a.act_hidden)
    for b in range(size):
        a.r_value[t, b] = value[0, b]


@kernel
def fused_ppo(parts, table, r_obs, e_obs, e_final_obs):
    """Store the step just made, finish the full rollout, learn from it, choose the next action:
    those that `parts` ask for."""
    if parts & STORE:
        store_last(table, e_obs, e_final_obs)
    if parts & FINISH:
        finish_last(table, e_obs)
    if parts & UPDATE:
        learn_due(table, r_obs)
    if parts & ACT:
        choose_next(table, r_obs, e_obs)


@kernel
def fused_ppo_rounds(most, low, high, action, lanes, table, r_obs, e_obs, e_final_obs):
    """Rounds of a compiled environment and `fused_ppo`, until an episode ends or `most` rounds are
    done.

    Returns what `play_all` gave: the number of episodes that ended, or less than 0 for a number
    that is not finite.
    """
    a = open_arrays(table)
    ended = 0
    while ended == 0 and most > 0:
        t = a.r_count[0]
        for b in range(action.size):
            action[b] = (
                a.r_chosen[t, b, 0] if a.sizes.size else min(max(a.r_real[t, b, 0], low), high)
            )
        ended = play_all(action, lanes)
        if ended >= 0:
            fused_ppo(STORE | ACT, table, r_obs, e_obs, e_final_obs)
        most -= 1
    return ended


class FusedPPO(PlainPPO):
    """Runs rounds by one call each. Parameters, moments, rollout and statistics stay where the
    plain engine keeps them, so a run can change engines at any round."""

    def __init__(self, agent: PPOAgent, rollout: Rollout, envs: Environments) -> None:
        super().__init__(agent, rollout, envs)
        # whether the rollout's current row holds the actions for the current observations
        self.chosen = False
        self.counter = np.zeros(5, np.int64)
        self.compiled = (
            envs if isinstance(envs, ControlEnvironments) and not agent.config.squash else None
        )
        streams = np.array(
            [agent.keys[p] for p in (Purpose.ACTION, Purpose.NOISE_ACT, Purpose.SHUFFLE)]
        )
        assert isinstance(agent.online, PolicyNetwork)
        p_sizes, v_sizes = (
            np.array(tower.sizes) for tower in (agent.online.policy, agent.online.value)
        )
        assert (
            parameter_count(p_sizes) + len(agent.actions.low) + parameter_count(v_sizes)
            == agent.online.flat.numel()
        )
        count, features, outputs = (
            envs.num_envs,
            int(p_sizes[0]),
            int(max(p_sizes[1:].sum(), v_sizes[1:].sum())),
        )
        batch, widest, options = (
            int(max(np.diff(self.bounds))),
            int(max(p_sizes.max(), v_sizes.max())),
            agent.actions.options,
        )
        r, norm = rollout, agent.norm
        self.rule = rules(agent, rollout.minibatches)
        reals, sizes = len(agent.actions.low), np.array(agent.actions.sizes, np.int64)
        empty = np.zeros(1)  # statistics that nobody asks for
        self.arrays = Arrays(
            counter=self.counter,
            updates=agent.count,
            rule=self.rule,
            streams=streams,
            sums=self.sums,
            block=agent.block.numpy(),
            sizes=sizes,
            policy_sizes=p_sizes,
            value_sizes=v_sizes,
            inputs=zeros(features * batch),
            hidden=zeros(outputs * batch),
            delta=zeros(outputs * batch),
            columns=zeros(5 + reals, batch),
            chosen=np.zeros((batch, sizes.size), np.int64),
            mask=np.zeros((batch, r.mask.shape[-1]), np.bool_),
            turned=zeros(batch * widest),
            act_inputs=zeros(features, count),
            act_hidden=zeros(outputs * count),
            act_scratch=zeros(options + reals, count),
            seen=zeros(count, features),
            norm_count=norm.count if norm else np.zeros(1, np.int64),
            norm_mean=norm.mean if norm else empty,
            norm_square=norm.m2 if norm else empty,
            norm_inverse=norm.inv_std if norm else empty,
            r_count=r.count,
            r_mask=r.mask,
            r_chosen=r.chosen,
            r_real=r.real,
            r_log_p=r.log_p,
            r_value=r.value,
            r_next=r.next_value,
            r_reward=r.reward,
            r_discount=r.discount,
            r_boundary=r.boundary,
            r_weight=r.weight,
            r_advantage=r.advantage,
            r_target=r.target,
            order=r.order,
            e_reward=envs.reward,
            e_terminated=envs.terminated,
            e_truncated=envs.truncated,
            e_skipped=envs.skipped,
            e_mask=np.zeros((count, 0), np.bool_) if envs.mask is None else envs.mask,
        )
        self.given = (
            table_of(self.arrays),
            r.obs.reshape(*r.obs.shape[:2], -1),
            envs.obs.reshape(count, -1),
            envs.final_obs.reshape(count, -1),
        )

    def warm_up(self) -> None:
        if self.compiled:
            self.run_compiled(self.compiled, 0)
        fused_ppo(0, *self.given)

    def explore(self, step: int, rounds: int) -> np.ndarray:
        if not self.chosen:
            self.counter[:2] = step, rounds
            fused_ppo(ACT, *self.given)
        self.chosen = False
        return self.actions()

    def actions(self) -> np.ndarray:
        """Those in the rollout's current row, for the environments."""
        if self.counter[EMPTY]:
            assert self.envs.mask is not None
            self.refuse_empty(self.envs.mask)
        t, rollout = int(self.rollout.count[0]), self.rollout
        return self.agent.for_env(rollout.chosen[t], rollout.real[t])

    def store(self) -> None:
        self.counter[:2] = 0
        fused_ppo(STORE, *self.given)

    def finish(self) -> None:
        fused_ppo(FINISH, *self.given)

    def update(self, step: int, clock: Clock) -> None:
        clock.start()
        self.counter[:2] = step, 0
        fused_ppo(FINISH | UPDATE, *self.given)
        clock.lap("update")

    def learn(self, first: int, last: int, step: int) -> bool:
        self.counter[:4] = step, 0, first, last
        fused_ppo(UPDATE, *self.given)
        return last % self.rollout.minibatches > 0 or self.rule[MOVED] <= self.rule[TARGET_KL]

    def run(self, step: int, rounds: int, most: int) -> tuple[int, int]:
        """Rounds from the given counts until an episode ends, `most` or a moment; returns the
        counts after them."""
        if not self.chosen:
            self.explore(step, rounds)
            self.chosen = True
        self.counter[:2] = step, rounds
        if self.compiled:
            self.compiled.begin_rounds()
            self.compiled.end_rounds(self.run_compiled(self.compiled, most))
        else:
            envs, given, actions = self.envs, self.given, self.actions
            enough = monotonic() + PATIENCE
            for _ in range(most):
                envs.step(actions())
                fused_ppo(STORE | ACT, *given)
                if envs.finished or monotonic() > enough:
                    break
        return int(self.counter[STEP]), int(self.counter[ROUNDS])

    def run_compiled(self, envs: ControlEnvironments, most: int) -> int:
        bounds = (
            [self.agent.actions.low[0], self.agent.actions.high[0]]
            if self.agent.actions.low
            else [0.0, 0.0]
        )
        return fused_ppo_rounds(most, *bounds, *envs.given, *self.given)

    def set_lr(self, lr: Any) -> None:
        self.arrays.rule[LR : LR + 4] = as_numbers(lr)

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        self.chosen = False


def rules(agent: PPOAgent, minibatches: int) -> np.ndarray:
    """The settings as numbers."""
    config, rule = agent.config, np.zeros(RULES)
    assert isinstance(agent.online, PolicyNetwork)
    rule[ACTIVATION], rule[OBS_SCALE] = ACTIVATIONS[config.net.activation], agent.online.scale
    rule[GAMMA], rule[LAM] = config.gamma, config.lam
    rule[SCALE], rule[NORMALIZE] = config.reward_scale, config.normalize_advantage
    rule[CLIP], rule[VALUE_CLIP], rule[VALUE_WEIGHT] = (
        config.clip,
        config.value_clip or np.inf,
        config.value_weight,
    )
    rule[ENTROPY], rule[CLIP_NORM], rule[ADAM_EPS] = (
        config.entropy,
        config.clip_norm or np.inf,
        config.adam_eps,
    )
    rule[TARGET_KL], rule[MINIBATCHES], rule[EPOCHS] = (
        config.target_kl or np.inf,
        minibatches,
        config.epochs,
    )
    if agent.norm:
        rule[NORM], rule[NORM_CLIP], rule[NORM_EPS] = True, agent.norm.clip, agent.norm.epsilon
    rule[REFUSE] = config.on_empty == "raise"
    rule[LR : LR + 4] = as_numbers(config.lr)
    return rule


# the pair: the plain engine on the same rollout


def phase_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Environments, settings and a seed: every option, masked heads, continuous actions,
    minibatches of unequal size."""
    base = {"horizon": 13, "epochs": 2, "minibatches": 3, "net": {"hidden": [9, 6]}}
    for env, options in (
        ("tenfold/CartPole-v1", {}),
        ("tenfold/CartPole-v1", {"value_clip": 0.1, "entropy": 0.05}),
        ("tenfold/CartPole-v1", {"clip_norm": None, "normalize_advantage": False, "clip": 0.01}),
        ("tenfold/CartPole-v1", {"normalize_obs": True, "reward_scale": 0.1, "target_kl": 1e-5}),
        (
            "tenfold/CartPole-v1",
            {"net": {"hidden": [7, 1, 5], "activation": "elu"}, "minibatches": 26},
        ),
        ("tenfold/Pendulum-v1", {"entropy": 0.01, "std": 0.5}),
        ("tenfold/Pendulum-v1", {"squash": True}),
        ("tenfold/Assign-v0", {"entropy": 0.01}),
    ):
        yield env, base | options, int(rng.integers(99))


def phase_of(
    kind: type[PlainPPO], env: str, options: dict[str, Any], seed: int
) -> tuple[np.ndarray, ...]:
    """A rollout that the plain engine filled, then a learning phase, then the next actions."""
    config, envs = (
        PPO.of({"name": "ppo", **options}),
        make_environments(env, 2, seed, "scalar", policy=True),
    )
    actions = policy_actions(envs.action_space, env)
    agent = PPOAgent(config, envs.layout, actions, seed)
    rollout = Rollout(config, envs.layout, actions, 2, envs.mask is not None)
    plain, engine = PlainPPO(agent, rollout, envs), kind(agent, rollout, envs)
    for rounds in range(config.horizon):
        envs.step(plain.explore(0, rounds))
        plain.store()
    engine.update(100, Clock())
    learned = (
        agent.block[ONLINE].numpy().copy(),
        agent.block[GRAD].numpy().copy(),
        rollout.order.copy(),
    )
    return (
        *learned,
        engine.explore(100, config.horizon),
        rollout.log_p[0].copy(),
        rollout.value[0].copy(),
        agent.count,
    )


def plain_phase(env: str, options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return phase_of(PlainPPO, env, options, seed)


@pair(
    plain_phase,
    phase_examples,
    rtol=1e-3,
    atol=1e-4,
    name="engines.fused_ppo.learning phase and act",
)
def fused_phase(env: str, options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return phase_of(FusedPPO, env, options, seed)
