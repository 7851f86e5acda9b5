"""Episodes of a policy on the GPU: all seeds and all episodes of an evaluation in one launch, by
the most probable actions or by drawn ones."""

import triton.language as tl

from tenfold.algorithms.kernels.resident_ppo_arrays import (
    COINS,
    NORMALS,
    OBS_SCALE,
    arrays_of,
    deviations,
    param,
)
from tenfold.algorithms.kernels.resident_ppo_play import allowed_of, for_task, observed
from tenfold.ops.device import network, policy
from tenfold.ops.device.episodes import LANES, play_episodes
from tenfold.ops.device.language import gpu_kernel

SPAN = tl.constexpr(2**32)  # draws between those of two episodes, as `sampled_by_step` has them


@gpu_kernel
def output_of(actor, state, S: tl.constexpr):
    """(the policy's output, which options are allowed) of states."""
    a, layers, _ = actor
    N: tl.constexpr = S.policy_net
    rows = observed(a, state, LANES, S) * param(a, OBS_SCALE)
    return network.forward(layers, rows, N)[N.layers], allowed_of(state, LANES, S)


@gpu_kernel
def greedy(actor, state, number, length, S: tl.constexpr):
    """The most probable action."""
    P: tl.constexpr = S.actions
    output, allowed = output_of(actor, state, S)
    discrete, real = policy.mode(output, allowed, P)
    return for_task(discrete, real, S)


@gpu_kernel
def sampled(actor, state, number, length, S: tl.constexpr):
    """One drawn by the episode's number and step."""
    P: tl.constexpr = S.actions
    a, _, log_std = actor
    output, allowed = output_of(actor, state, S)
    coins, normals = tl.load(a.streams + COINS), tl.load(a.streams + NORMALS)
    at = number.to(tl.int64) * SPAN + length
    discrete, real, _ = policy.draw(output, log_std, allowed, coins, normals, at, P)
    return for_task(discrete, real, S)


@gpu_kernel(do_not_specialize=["count", "steps", "limit"])
def evaluate(
    arrays, episodes, count, steps, limit, ACTS: tl.constexpr, E: tl.constexpr, S: tl.constexpr
):
    """At most so many steps of every episode of every seed, by the policy ACTS."""
    seed = tl.program_id(0).to(tl.int64)
    a = arrays_of(arrays, seed, S)
    N: tl.constexpr = S.policy_net
    actor = (a, network.load(a.block + S.actions.reals, N), deviations(a, S))
    play_episodes(episodes, actor, seed, count, steps, limit, ACTS, E, S)
