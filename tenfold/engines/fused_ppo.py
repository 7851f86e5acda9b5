"""The fused engine of policy gradients: storing a step and choosing the next action is ONE compiled call, and so are all epochs
of minibatches of a learning phase.

It does what the plain engine does, from the same random numbers in the same order; `tests/engines` holds the two in lockstep.
For fully connected networks on the CPU, in float32. All parameters lie in one buffer: deviations, policy, value.
"""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import numpy as np

from tenfold.agents.ppo import GRAD, MEAN, ONLINE, SQUARE, PPOAgent, Tensors
from tenfold.engines.fused import PATIENCE, turn_rows, zeros
from tenfold.engines.plain_ppo import PlainPPO
from tenfold.envs.control import ControlEnvironments
from tenfold.envs.control_tasks import play_all
from tenfold.envs.vector import Environments, make_environments
from tenfold.memory.rollout import Rollout, finish_rollout, store_step
from tenfold.nets.policy import PolicyNetwork
from tenfold.ops.adam import adam_numba, clip_numba
from tenfold.ops.kernels import kernel
from tenfold.ops.mlp import ACTIVATIONS, mlp_backward, mlp_forward, parameter_count
from tenfold.ops.moments import norm_apply, norm_scale, norm_update
from tenfold.ops.pairs import pair
from tenfold.ops.policy import KL, draw_action, policy_gradient, shuffle, value_gradient
from tenfold.ops.random import Purpose
from tenfold.ops.schedule import as_numbers, schedule_at
from tenfold.record.clock import Clock
from tenfold.settings import PPO
from tenfold.spaces import policy_actions

# parts of a round, to be added up
STORE, FINISH, UPDATE, ACT = 1, 2, 4, 8
# places in `counter`
STEP, ROUNDS, FIRST, LAST, EMPTY = range(5)
# places in `rule`, the settings as numbers; the learning rate's schedule takes four
(ACTIVATION, GAMMA, LAM, SCALE, NORMALIZE, CLIP, VALUE_CLIP, VALUE_WEIGHT, ENTROPY, CLIP_NORM, ADAM_EPS, TARGET_KL, MINIBATCHES,
 EPOCHS, OBS_SCALE, NORM, NORM_CLIP, NORM_EPS, REFUSE, MOVED) = range(20)
LR, RULES = np.int64(20), 24  # typed: one form of `schedule_at` for all schedules
# streams
COINS, NORMALS, SHUFFLES = range(3)


@kernel
def values_of(obs, rule, flat, v_sizes, seen, n_mean, n_inverse, a_inputs, a_hidden):
    """Values [1, B] of observations that were not counted into the running statistics."""
    if rule[NORM]:
        norm_apply(obs, n_mean, n_inverse, rule[NORM_CLIP], seen)
        turn_rows(seen, 1.0, a_inputs)
    else:
        turn_rows(obs, rule[OBS_SCALE], a_inputs)
    return mlp_forward(flat[flat.size - parameter_total(v_sizes):], v_sizes, int(rule[ACTIVATION]), a_inputs, a_hidden)


@kernel
def parameter_total(sizes):
    total = 0
    for i in range(sizes.size - 1):
        total += (sizes[i] + 1) * sizes[i + 1]
    return total


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


@kernel(inline="always")
def learn_minibatch(first, last, step, updates, rule, sums, block, sizes, p_sizes, v_sizes, s_inputs, s_hidden, s_delta,
                    s_columns, s_chosen, s_mask, turned, r_obs, r_mask, r_chosen, r_real, r_log_p, r_value, r_advantage, r_target,
                    r_weight, order):
    """One gradient update from the rows order[first … last − 1]; returns its KL estimate."""
    rows, activation = last - first, int(rule[ACTIVATION])
    flat, grad = block[ONLINE], block[GRAD]
    reals, features = r_real.shape[1], p_sizes[0]
    split = reals + parameter_total(p_sizes)
    policy = flat[reals:split]
    inputs = s_inputs[:features * rows].reshape(features, rows)
    chosen, mask = s_chosen[:rows], s_mask[:rows]
    log_p, value, advantage, target, weight = (s_columns[0, :rows], s_columns[1, :rows], s_columns[2, :rows], s_columns[3, :rows],
                                               s_columns[4, :rows])
    real = s_columns[5:5 + reals].reshape(-1)[:rows * reals].reshape(rows, reals)
    factor = np.float32(rule[OBS_SCALE])
    for i in range(rows):
        place = order[first + i]
        for j in range(features):
            inputs[j, i] = r_obs[place, j] * factor
        for c in range(sizes.size):
            chosen[i, c] = r_chosen[place, c]
        for d in range(reals):
            real[i, d] = r_real[place, d]
        for k in range(r_mask.shape[1]):
            mask[i, k] = r_mask[place, k]
        log_p[i], value[i], advantage[i] = r_log_p[place], r_value[place], r_advantage[place]
        target[i], weight[i] = r_target[place], r_weight[place]
    before = sums[KL]
    # the policy
    width = 0
    for i in range(1, p_sizes.size):
        width += p_sizes[i]
    hidden, delta = s_hidden[:width * rows], s_delta[:width * rows]
    output = mlp_forward(policy, p_sizes, activation, inputs, hidden)
    by_output = delta[delta.size - output.size:].reshape(output.shape)
    policy_gradient(output, flat[:reals], sizes, chosen, real, mask, log_p, advantage, weight, rule[CLIP], rule[ENTROPY],
                    by_output, grad[:reals], sums)
    mlp_backward(policy, p_sizes, activation, inputs, hidden, delta, turned, grad[reals:split])
    # the value
    width = 0
    for i in range(1, v_sizes.size):
        width += v_sizes[i]
    hidden, delta = s_hidden[:width * rows], s_delta[:width * rows]
    guess = mlp_forward(flat[split:], v_sizes, activation, inputs, hidden)
    by_value = delta[delta.size - guess.size:].reshape(guess.shape)
    value_gradient(guess, target, value, weight, rule[VALUE_CLIP], rule[VALUE_WEIGHT], by_value, sums)
    mlp_backward(flat[split:], v_sizes, activation, inputs, hidden, delta, turned, grad[split:])
    _, norm = clip_numba(grad, rule[CLIP_NORM])
    updates[0] += 1
    adam_numba(flat, grad, block[MEAN], block[SQUARE], updates[0], schedule_at(rule, LR, step), rule[ADAM_EPS])
    sums[5] += norm
    sums[6] += 1
    return sums[KL] - before


@kernel
def fused_ppo(parts, counter, updates, rule, streams, sums, block, sizes, p_sizes, v_sizes, s_inputs, s_hidden, s_delta,
              s_columns, s_chosen, s_mask, turned, a_inputs, a_hidden, a_scratch, seen, n_count, n_mean, n_square, n_inverse,
              r_count, r_obs, r_mask, r_chosen, r_real, r_log_p, r_value, r_next, r_reward, r_discount, r_boundary, r_weight,
              r_advantage, r_target, order, e_obs, e_final_obs, e_reward, e_terminated, e_truncated, e_skipped, e_mask):
    """Store the step just made, finish the full rollout, learn from it, choose the next action: those that `parts` ask for.

    s_… is scratch of a minibatch, a_… of acting, n_… the running statistics, r_… the rollout [T, B], e_… the environments'
    last step. Arrays come one by one: Numba unpacks a tuple of them in twice the time.
    """
    steps, size = r_reward.shape
    flat, activation = block[ONLINE], int(rule[ACTIVATION])
    if parts & STORE:
        t = r_count[0]
        store_step(t, rule[GAMMA], rule[SCALE], e_reward, e_terminated, e_truncated, e_skipped, r_reward, r_discount, r_boundary,
                   r_weight)
        cut = False
        for b in range(size):
            cut |= e_truncated[b]
            counter[STEP] += not e_skipped[b]
        if cut:
            final = values_of(e_final_obs, rule, flat, v_sizes, seen, n_mean, n_inverse, a_inputs, a_hidden)
            for b in range(size):
                if e_truncated[b]:
                    r_next[t, b] = final[0, b]
        if rule[NORM]:
            norm_update(n_count, n_mean, n_square, e_obs)
            norm_scale(n_count, n_square, rule[NORM_EPS], n_inverse)
        counter[ROUNDS] += 1
        r_count[0] = t + 1
    if parts & FINISH:
        last = values_of(e_obs, rule, flat, v_sizes, seen, n_mean, n_inverse, a_inputs, a_hidden)
        finish_rollout(r_reward, r_discount, r_value, r_next, r_boundary, r_weight, last[0], rule[LAM], rule[NORMALIZE] > 0,
                       r_advantage, r_target)
        r_count[0] = 0
        counter[FIRST], counter[LAST] = 0, int(rule[EPOCHS] * rule[MINIBATCHES])
    if parts & UPDATE:
        rows, count = steps * size, int(rule[MINIBATCHES])
        for number in range(counter[FIRST], counter[LAST]):
            part = number % count
            if part == 0:
                shuffle(streams[SHUFFLES], updates[1], order)
                updates[1] += 1
                rule[MOVED] = 0
            rule[MOVED] += learn_minibatch(
                rows * part // count, rows * (part + 1) // count, counter[STEP], updates, rule, sums, block, sizes, p_sizes,
                v_sizes, s_inputs, s_hidden, s_delta, s_columns, s_chosen, s_mask, turned, r_obs.reshape(rows, -1),
                r_mask.reshape(rows, -1), r_chosen.reshape(rows, -1), r_real.reshape(rows, -1), r_log_p.reshape(-1),
                r_value.reshape(-1), r_advantage.reshape(-1), r_target.reshape(-1), r_weight.reshape(-1), order) / count
            counter[FIRST] = number + 1
            if part == count - 1 and rule[MOVED] > rule[TARGET_KL]:
                break
    if parts & ACT:
        t = r_count[0]
        if rule[NORM]:
            norm_apply(e_obs, n_mean, n_inverse, rule[NORM_CLIP], r_obs[t])
        else:
            for b in range(size):
                for j in range(e_obs.shape[1]):
                    r_obs[t, b, j] = e_obs[b, j]
        for b in range(size):
            for k in range(e_mask.shape[1]):
                r_mask[t, b, k] = e_mask[b, k]
        if rule[REFUSE] and has_empty(e_mask, sizes):
            counter[EMPTY] = 1
            return
        turn_rows(r_obs[t], rule[OBS_SCALE], a_inputs)
        reals = r_real.shape[2]
        split = reals + parameter_total(p_sizes)
        output = mlp_forward(flat[reals:split], p_sizes, activation, a_inputs, a_hidden)
        draw_action(output, flat[:reals], sizes, e_mask, streams[COINS], streams[NORMALS], counter[ROUNDS] * size,
                    a_scratch, r_chosen[t], r_real[t], r_log_p[t])
        value = mlp_forward(flat[split:], v_sizes, activation, a_inputs, a_hidden)
        for b in range(size):
            r_value[t, b] = value[0, b]


@kernel
def fused_ppo_rounds(most, kind, limit, state, length, episode, env_streams, ret, last, e_action, low, high, counter, updates,
                     rule, streams, sums, block, sizes, p_sizes, v_sizes, s_inputs, s_hidden, s_delta, s_columns, s_chosen,
                     s_mask, turned, a_inputs, a_hidden, a_scratch, seen, n_count, n_mean, n_square, n_inverse, r_count, r_obs,
                     r_mask, r_chosen, r_real, r_log_p, r_value, r_next, r_reward, r_discount, r_boundary, r_weight, r_advantage,
                     r_target, order, e_obs, e_final_obs, e_reward, e_terminated, e_truncated, e_skipped, e_mask):
    """Rounds of a compiled environment and `fused_ppo`, until an episode ends or `most` rounds are done.

    Returns what `play_all` gave: the number of episodes that ended, or less than 0 for a number that is not finite.
    """
    ended = 0
    while ended == 0 and most > 0:
        t = r_count[0]
        for b in range(e_action.size):
            e_action[b] = r_chosen[t, b, 0] if sizes.size else min(max(r_real[t, b, 0], low), high)
        ended = play_all(e_action, kind, limit, state, length, episode, env_streams, e_obs, e_final_obs, e_reward, e_terminated,
                         e_truncated, ret, last)
        if ended >= 0:
            fused_ppo(STORE | ACT, counter, updates, rule, streams, sums, block, sizes, p_sizes, v_sizes, s_inputs, s_hidden,
                      s_delta, s_columns, s_chosen, s_mask, turned, a_inputs, a_hidden, a_scratch, seen, n_count, n_mean,
                      n_square, n_inverse, r_count, r_obs, r_mask, r_chosen, r_real, r_log_p, r_value, r_next, r_reward,
                      r_discount, r_boundary, r_weight, r_advantage, r_target, order, e_obs, e_final_obs, e_reward, e_terminated,
                      e_truncated, e_skipped, e_mask)
        most -= 1
    return ended


class FusedPPO(PlainPPO):
    """Runs rounds by one call each. Parameters, moments, rollout and statistics stay where the plain engine keeps them, so a run
    can change engines at any round."""

    def __init__(self, agent: PPOAgent, rollout: Rollout, envs: Environments) -> None:
        super().__init__(agent, rollout, envs)
        self.chosen = False  # whether the rollout's current row holds the actions for the current observations
        self.counter = np.zeros(5, np.int64)
        self.compiled = envs if isinstance(envs, ControlEnvironments) and not agent.config.squash else None
        streams = np.array([agent.keys[p] for p in (Purpose.ACTION, Purpose.NOISE_ACT, Purpose.SHUFFLE)])
        assert isinstance(agent.online, PolicyNetwork)
        p_sizes, v_sizes = (np.array(tower.sizes) for tower in (agent.online.policy, agent.online.value))
        assert parameter_count(p_sizes) + len(agent.actions.low) + parameter_count(v_sizes) == agent.online.flat.numel()
        count, features, outputs = envs.num_envs, int(p_sizes[0]), int(max(p_sizes[1:].sum(), v_sizes[1:].sum()))
        batch, widest, options = int(max(np.diff(self.bounds))), int(max(p_sizes.max(), v_sizes.max())), agent.actions.options
        r, norm = rollout, agent.norm
        self.rule = rules(agent, rollout.minibatches)
        reals, sizes = len(agent.actions.low), np.array(agent.actions.sizes, np.int64)
        statistics = (norm.count, norm.mean, norm.m2, norm.inv_std) if norm else (np.zeros(1, np.int64), *np.zeros((3, 1)))
        self.arrays: tuple[Any, ...] = (
            self.counter, agent.count, self.rule, streams, self.sums, agent.block.numpy(), sizes, p_sizes, v_sizes,
            zeros(features * batch), zeros(outputs * batch), zeros(outputs * batch), zeros(5 + reals, batch),
            np.zeros((batch, sizes.size), np.int64), np.zeros((batch, r.mask.shape[-1]), np.bool_), zeros(batch * widest),
            zeros(features, count), zeros(outputs * count), zeros(options + reals, count), zeros(count, features), *statistics,
            r.count, r.obs.reshape(*r.obs.shape[:2], -1), r.mask, r.chosen, r.real, r.log_p, r.value, r.next_value, r.reward,
            r.discount, r.boundary, r.weight, r.advantage, r.target, r.order,
            envs.obs.reshape(count, -1), envs.final_obs.reshape(count, -1), envs.reward, envs.terminated, envs.truncated,
            envs.skipped, np.zeros((count, 0), np.bool_) if envs.mask is None else envs.mask)

    def warm_up(self) -> None:
        if self.compiled:
            self.run_compiled(self.compiled, 0)
        fused_ppo(0, *self.arrays)

    def explore(self, step: int, rounds: int) -> np.ndarray:
        if not self.chosen:
            self.counter[:2] = step, rounds
            fused_ppo(ACT, *self.arrays)
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
        fused_ppo(STORE, *self.arrays)

    def finish(self) -> None:
        fused_ppo(FINISH, *self.arrays)

    def update(self, step: int, clock: Clock) -> None:
        clock.start()
        self.counter[:2] = step, 0
        fused_ppo(FINISH | UPDATE, *self.arrays)
        clock.lap("update")

    def learn(self, first: int, last: int, step: int) -> bool:
        self.counter[:4] = step, 0, first, last
        fused_ppo(UPDATE, *self.arrays)
        return last % self.rollout.minibatches > 0 or self.rule[MOVED] <= self.rule[TARGET_KL]

    def run(self, step: int, rounds: int, most: int) -> tuple[int, int]:
        """Rounds from the given counts until an episode ends, `most` or a moment; returns the counts after them."""
        if not self.chosen:
            self.explore(step, rounds)
            self.chosen = True
        self.counter[:2] = step, rounds
        if self.compiled:
            self.compiled.begin_rounds()
            self.compiled.end_rounds(self.run_compiled(self.compiled, most))
        else:
            envs, arrays, actions = self.envs, self.arrays, self.actions
            enough = monotonic() + PATIENCE
            for _ in range(most):
                envs.step(actions())
                fused_ppo(STORE | ACT, *arrays)
                if envs.finished or monotonic() > enough:
                    break
        return int(self.counter[STEP]), int(self.counter[ROUNDS])

    def run_compiled(self, envs: ControlEnvironments, most: int) -> int:
        bounds = [self.agent.actions.low[0], self.agent.actions.high[0]] if self.agent.actions.low else [0.0, 0.0]
        return fused_ppo_rounds(most, envs.kind.number, envs.kind.limit, envs.states, envs.length, envs.episode, envs.streams,
                                envs.ret, envs.last, envs.action, *bounds, *self.arrays)

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
    rule[CLIP], rule[VALUE_CLIP], rule[VALUE_WEIGHT] = config.clip, config.value_clip or np.inf, config.value_weight
    rule[ENTROPY], rule[CLIP_NORM], rule[ADAM_EPS] = config.entropy, config.clip_norm or np.inf, config.adam_eps
    rule[TARGET_KL], rule[MINIBATCHES], rule[EPOCHS] = config.target_kl or np.inf, minibatches, config.epochs
    if agent.norm:
        rule[NORM], rule[NORM_CLIP], rule[NORM_EPS] = True, agent.norm.clip, agent.norm.epsilon
    rule[REFUSE] = config.on_empty == "raise"
    rule[LR:LR + 4] = as_numbers(config.lr)
    return rule


# the pair: the plain engine on the same rollout ------------------------------------------------------------------------


def phase_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Environments, settings and a seed: every option, masked heads, continuous actions, minibatches of unequal size."""
    base = {"horizon": 13, "epochs": 2, "minibatches": 3, "net": {"hidden": [9, 6]}}
    for env, options in (("tenfold/CartPole-v1", {}), ("tenfold/CartPole-v1", {"value_clip": 0.1, "entropy": 0.05}),
                         ("tenfold/CartPole-v1", {"clip_norm": None, "normalize_advantage": False, "clip": 0.01}),
                         ("tenfold/CartPole-v1", {"normalize_obs": True, "reward_scale": 0.1, "target_kl": 1e-5}),
                         ("tenfold/CartPole-v1", {"net": {"hidden": [7, 1, 5], "activation": "elu"}, "minibatches": 26}),
                         ("tenfold/Pendulum-v1", {"entropy": 0.01, "std": 0.5}), ("tenfold/Pendulum-v1", {"squash": True}),
                         ("tenfold/Assign-v0", {"entropy": 0.01}), ("tenfold/JobShop-v0(instance=ft06)", {"on_empty": "absent"})):
        yield env, base | options, int(rng.integers(99))


def phase_of(kind: type[PlainPPO], env: str, options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    """A rollout that the plain engine filled, then a learning phase, then the next actions."""
    config, envs = PPO.of({"name": "ppo", **options}), make_environments(env, 2, seed, "scalar", policy=True)
    actions = policy_actions(envs.action_space, env)
    agent = PPOAgent(config, envs.layout, actions, seed)
    rollout = Rollout(config, envs.layout, actions, 2, envs.mask is not None)
    plain, engine = PlainPPO(agent, rollout, envs), kind(agent, rollout, envs)
    for rounds in range(config.horizon):
        envs.step(plain.explore(0, rounds))
        plain.store()
    engine.update(100, Clock())
    learned = agent.block[ONLINE].numpy().copy(), agent.block[GRAD].numpy().copy(), rollout.order.copy()
    return *learned, engine.explore(100, config.horizon), rollout.log_p[0].copy(), rollout.value[0].copy(), agent.count


def plain_phase(env: str, options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return phase_of(PlainPPO, env, options, seed)


@pair(plain_phase, phase_examples, rtol=1e-3, atol=1e-4, name="engines.fused_ppo.learning phase and act")
def fused_phase(env: str, options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return phase_of(FusedPPO, env, options, seed)
