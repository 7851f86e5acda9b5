"""Updates of sac and td3 with wide networks on a GPU, at HalfCheetah's sizes: launches of tiles
beside the agent's own update as a CUDA graph of PyTorch's kernels, and beside updates of SAC in one
jitted JAX scan. Draws and replay memory included on all sides.

    python bench/all.py --cuda cuda-wide-updates
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from cudagraph import apart, once
from gpu_peers import PRECISIONS, jax_peer
from measure import interleave, timed_row

from tenfold.algorithms.kernels.actor_critic_gpu import CudaGraphActorCritic
from tenfold.algorithms.sac import SACAgent
from tenfold.algorithms.sac_td3_settings import SAC, TD3
from tenfold.algorithms.td3 import TD3Agent
from tenfold.config.run import Run
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import bounded_actions
from tenfold.core.system import Clock
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.adapter import EnvViews

OBS, ACT, WIDTH, BATCH, ROWS = 17, 6, 256, 256, 20_000
COUNT, TURNS, SCANNED = 400, 9, 1000  # updates of a turn, turns, updates of a scan
# of a gradient's length: float32's own rounding in sums of another order, and TF32's ten bits
TOLERANCE = {"fp32": 1e-5, "tf32": 5e-2}
KINDS = {"sac": (SAC, SACAgent), "td3": (TD3, TD3Agent)}


class RecordedActorCritic(CudaGraphActorCritic):
    """Without tiles: the agent's own update, recorded."""

    in_tiles = False  # type: ignore[assignment]


def engine(name: str, kind: Any, precision: str) -> Any:
    """One whose memory is full of noise."""
    settings, agent_class = KINDS[name]
    config = settings.of({"batch_size": BATCH, "capacity": ROWS, "net": {"hidden": [WIDTH, WIDTH]}})
    layout = ObsLayout((OBS,), np.dtype(np.float32), (OBS,), 1.0)
    box = gym.spaces.Box(-1, 1, (ACT,), np.float32)
    agent = agent_class(config, layout, bounded_actions(box, "noise", name), 0, "cuda")
    rng, no = np.random.default_rng(0), np.zeros(1, np.bool_)
    obs = rng.normal(size=(1, OBS)).astype(np.float32)
    envs: Any = EnvViews.showing(obs)
    replay = agent.make_replay(envs)
    replay.begin(obs)
    for _ in range(ROWS - 1):
        later = rng.normal(size=(1, OBS)).astype(np.float32)
        action = rng.uniform(-1, 1, (1, ACT)).astype(np.float32)
        replay.add(action, rng.normal(size=1), no, no, no, later, later)
    made = kind(agent, replay, envs)
    made.prepare(Run.of({"precision": precision}))
    return made


def updates(made: Any) -> Callable[[], int]:
    clock = Clock()

    def turn() -> int:
        made.update(COUNT, 10_000, clock)
        torch.cuda.synchronize()
        return COUNT

    return turn


def jax_updates(precision: str) -> Callable[[], int]:
    jax_sac = jax_peer("jax_sac")
    import jax

    with jax.default_matmul_precision(PRECISIONS[precision]):
        run, state = jax_sac.updates(SCANNED, BATCH), jax_sac.begin(0, OBS, ACT, WIDTH, ROWS)
        jax.block_until_ready(run(*state))  # compiled with this precision

    def turn() -> int:
        jax.block_until_ready(run(*state))
        return SCANNED

    return turn


def rows() -> list[dict[str, Any]]:
    measured = []
    for name in KINDS:
        turns: dict[str, Callable[[], int]] = {}
        off = {}
        for precision in TOLERANCE:
            fast, plain = (
                engine(name, kind, precision) for kind in (CudaGraphActorCritic, OffPolicyEngine)
            )
            off[precision] = apart(plain, fast, once)
            recorded = engine(name, RecordedActorCritic, precision)
            turns[f"tiles {precision}"] = updates(fast)
            turns[f"recorded {precision}"] = updates(recorded)
            if name == "sac":
                turns[f"jax {precision}"] = jax_updates(precision)
        times = interleave(turns, TURNS)
        for precision, least in TOLERANCE.items():
            setting = {"agent": name, "batch": BATCH, "hidden": f"{WIDTH},{WIDTH}"}
            setting |= {"products": precision, "gpu": torch.cuda.get_device_name()}
            candidate = "launches of tiles", times[f"tiles {precision}"]
            torchs = "PyTorch's kernels as a CUDA graph", times[f"recorded {precision}"]
            compared = {"equal": off[precision] < least, "max_diff": off[precision]}
            measured.append(timed_row("cuda-wide-updates", setting, torchs, candidate, **compared))
            if f"jax {precision}" in times:
                rival = "JAX, one jitted scan", times[f"jax {precision}"]
                measured.append(timed_row("cuda-wide-updates", setting, rival, candidate))
    return measured


NAMES = {}  # without a GPU
CUDA = {"cuda-wide-updates": rows}
