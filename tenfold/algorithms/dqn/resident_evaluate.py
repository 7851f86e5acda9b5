"""Greedy episodes of Q-learning on the GPU: all seeds and all episodes of an evaluation in one
launch."""

import triton.language as tl

from tenfold.algorithms.dqn import resident_td as td
from tenfold.algorithms.dqn.resident_arrays import SCALE, arrays_of
from tenfold.ops.device import network
from tenfold.ops.device.episodes import LANES, play_episodes, rows_of
from tenfold.ops.device.language import gpu_kernel


@gpu_kernel
def greedy(policy, state, number, length, S: tl.constexpr):
    """argmax_a Q(s, a)."""
    V: tl.constexpr = S.outputs
    layers, scale = policy
    rows = rows_of(S.task.observe(state), LANES, LANES, S.net.pads[0], S.task.obs)
    return td.best_group(td.values(layers, rows * scale, S), V) - V.duel


@gpu_kernel(do_not_specialize=["count", "steps", "limit"])
def evaluate(arrays, episodes, count, steps, limit, E: tl.constexpr, S: tl.constexpr):
    """At most so many steps of every episode of every seed."""
    seed = tl.program_id(0).to(tl.int64)
    a = arrays_of(arrays, seed, S)
    N: tl.constexpr = S.net
    policy = (network.load(a.block, N), tl.load(a.rules + SCALE).to(tl.float32))
    play_episodes(episodes, policy, seed, count, steps, limit, greedy, E, S)
