"""Updates as CUDA graphs against the plain engine on the same GPU, eager PyTorch: draws, batch,
gradients, steps and target of Q-learning, SAC and TD3; a whole learning phase of PPO, also of one
that remembers; rounds with acting and the environment. Products in float32 on both sides, and where
it says so in TF32.

All take turns. Before timing, both engines make `CHECKED` updates, each from equal state, and the
largest distance of their gradients is told, as a share of the gradient's length.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from measure import interleave, timed_row

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.algorithms.kernels.dqn_gpu import CudaGraphDQN
from tenfold.config.run import Run
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import DiscreteActions
from tenfold.core.system import Clock
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.adapter import EnvViews
from tenfold.memory.replay import Replay
from tenfold.training.learners import make_learner

CHECKED, TOLERANCE = 5, {"fp32": 1e-5, "tf32": 1e-2}
TURNS, EAGER, FAST = 9, 20, 100  # turns; updates of one
IMAGE = ObsLayout((84, 84), np.dtype(np.uint8), (1, 84, 84), 1 / 255)
Work = Callable[[], int]


def images(kind: Any, batch: int, precision: str) -> Any:
    """An engine of the usual network for images, its memory filled with noise."""
    config = DQN.of(
        {"batch_size": batch, "capacity": 4_000, "frames": 4, "lr": 1e-3, "target": "hard(1000)"}
        | {"net": {"hidden": [512], "encoder": "nature"}}
    )
    agent, replay = (
        DQNAgent(config, IMAGE, DiscreteActions(6, 0), 0, "cuda"),
        Replay(config, IMAGE, 1, 0),
    )
    rng, no = np.random.default_rng(0), np.zeros(1, np.bool_)
    seen = rng.integers(0, 256, (2, 1, 84, 84), np.uint8)
    for number in range(3_000):
        seen[number % 2, 0, number % 84] = rng.integers(0, 256, 84, np.uint8)
        ends = no | (number % 200 == 199)
        replay.add(rng.integers(0, 6, 1), rng.normal(size=1), no, ends, no, *[seen[number % 2]] * 2)
    engine = kind(agent, replay, EnvViews.showing(seen[0]))
    engine.look(np.repeat(seen[0][:, None], 4, 1))
    engine.prepare(Run.of({"precision": precision}))
    return engine


def learner(engine: str, agent: dict[str, Any], **more: Any) -> Any:
    """One whose memory is filled, or whose rollout is full."""
    settings = {"device": "cuda", "engine": engine, "steps": 10**9} | more
    found = make_learner(Run.of(settings | {"agent": agent}))
    if agent["name"] == "ppo":
        found.learn = lambda: None
        while found.rollout.left:
            found.round()
    else:
        while found.step < 1_500:
            found.round()
    return found


def updates(engine: Any, count: int) -> Work:
    """Items are updates."""
    clock = Clock()

    def turn() -> int:
        for _ in range(count):
            engine.update(1, 10_000, clock)
        torch.cuda.synchronize()
        return count

    return turn


def phases(engine: Any, count: int) -> Work:
    """Items are learning phases, from one rollout."""
    clock = Clock()

    def turn() -> int:
        for _ in range(count):
            engine.learn_from_rollout(10_000, clock)
        torch.cuda.synchronize()
        return count

    return turn


def rounds(place: Any, count: int) -> Work:
    """Items are rounds: act, step, store, update."""

    def turn() -> int:
        for _ in range(count):
            place.round()
        torch.cuda.synchronize()
        return count

    return turn


def apart(plain: Any, fast: Any, update: Callable[[Any, int], Any]) -> float:
    """The largest distance of gradients of equal updates from equal state, as a share."""
    found = 0.0
    for number in range(CHECKED):
        fast.agent.block.copy_(plain.agent.block)
        update(plain, number)
        update(fast, number)
        wanted, own = plain.agent.online.flat_grad, fast.agent.online.flat_grad
        found = max(found, float((own - wanted).norm() / wanted.norm()))
    return found


def apart_in_phase(plain: Any, fast: Any) -> float:
    """The same of minibatches of one rollout."""
    for name, rows in vars(plain.rollout).items():
        if isinstance(rows, np.ndarray):
            getattr(fast.rollout, name)[...] = rows
    for place in (plain, fast):
        place.engine.finish()
    return apart(plain.engine, fast.engine, lambda engine, n: engine.learn(n, n + 1, 10_000))


def compared(
    name: str, setting: dict[str, Any], turns: tuple[Work, Work], off: float | None
) -> Any:
    times = interleave(dict(zip(("plain", "fast"), turns, strict=True)), TURNS)
    given = setting | {"gpu": torch.cuda.get_device_name()}
    baseline, candidate = ("plain engine, CUDA", times["plain"]), ("cudagraph", times["fast"])
    least = TOLERANCE[setting.get("products", "fp32")]
    equal = {"equal": None if off is None else off < least, "max_diff": off}
    return timed_row(name, given, baseline, candidate, **equal)


def once(engine: Any, number: int) -> None:
    """An update from a replay memory."""
    engine.update(1, 10_000, Clock())


def q_rows() -> list[dict[str, Any]]:
    rows = []
    small = {"name": "dqn", "batch_size": 128, "lr": 1e-3, "learning_starts": 10**9}
    small |= {"net": {"hidden": [64, 64]}}
    env = {"env": "tenfold/CartPole-v1"}
    plain, fast = (learner(engine, small, **env) for engine in ("plain", "cudagraph"))
    off = apart(plain.engine, fast.engine, once)
    turns = updates(plain.engine, EAGER), updates(fast.engine, FAST)
    rows.append(compared("cuda-graph-dqn", {"batch": 128, "hidden": "64,64"}, turns, off))
    acting = small | {"learning_starts": 1_000}
    plain, fast = (learner(engine, acting, **env) for engine in ("plain", "cudagraph"))
    words = {"batch": 128, "hidden": "64,64", "round": "act, step, store, update"}
    turns = rounds(plain, EAGER), rounds(fast, FAST)
    rows.append(compared("cuda-graph-dqn", words, turns, None))
    return rows


def actor_critic_rows() -> list[dict[str, Any]]:
    rows = []
    env = {"env": "tenfold/Pendulum-v1"}
    for name in ("sac", "td3"):
        agent = {"name": name, "batch_size": 256, "capacity": 4_000, "learning_starts": 10**9}
        agent |= {"net": {"hidden": [256, 256]}}
        plain, fast = (learner(engine, agent, **env) for engine in ("plain", "cudagraph"))
        off = apart(plain.engine, fast.engine, once)
        turns = updates(plain.engine, EAGER), updates(fast.engine, FAST)
        words = {"agent": name, "batch": 256, "hidden": "256,256"}
        rows.append(compared("cuda-graph-sac", words, turns, off))
        acting = agent | {"learning_starts": 1_000}
        plain, fast = (learner(engine, acting, **env) for engine in ("plain", "cudagraph"))
        turns = rounds(plain, EAGER), rounds(fast, FAST)
        words |= {"round": "act, step, store, update"}
        rows.append(compared("cuda-graph-sac", words, turns, None))
    return rows


def image_rows() -> list[dict[str, Any]]:
    rows = []
    for precision in ("fp32", "tf32"):
        for batch in (32, 256):
            fast = images(CudaGraphDQN, batch, precision)
            plain = images(OffPolicyEngine, batch, precision)
            off = apart(plain, fast, once)
            words = {"batch": batch, "images": "84x84x4", "products": precision}
            turns = updates(plain, EAGER), updates(fast, FAST)
            rows.append(compared("cuda-graph-images", words, turns, off))
    return rows


def team_rows() -> list[dict[str, Any]]:
    implicit = {"distribution": "implicit", "dueling": True, "n_step": 3, "frames": 5}
    implicit |= {"explore": "noisy", "clip_norm": 1.0, "batch_size": 32, "lr": 1e-3}
    agent = {"name": "dqn", "learning_starts": 10**9, **implicit}
    given = {"env": "tenfold/TreasureSmall-v0", "num_envs": 4}
    plain, fast = (learner(engine, agent, **given) for engine in ("plain", "cudagraph"))
    off = apart(plain.engine, fast.engine, once)
    turns = updates(plain.engine, EAGER), updates(fast.engine, FAST)
    words = {"agents": 5, "batch": 32, "quantiles": "implicit"}
    return [compared("cuda-graph-team", words, turns, off)]


def policy_rows() -> list[dict[str, Any]]:
    agent = {"name": "ppo", "horizon": 64, "epochs": 4, "minibatches": 4, "lr": 1e-3}
    agent |= {"net": {"hidden": [64, 64]}}
    given = {"env": "tenfold/CartPole-v1", "num_envs": 16}
    plain, fast = (learner(engine, agent, **given) for engine in ("plain", "cudagraph"))
    off = apart_in_phase(plain, fast)
    words = {"steps": "64 x 16", "epochs": 4, "minibatches": 4, "hidden": "64,64"}
    turns = phases(plain.engine, 1), phases(fast.engine, 10)
    return [compared("cuda-graph-ppo", words, turns, off)]


def recurrent_rows() -> list[dict[str, Any]]:
    """Learning phases from whole sequences; then rounds, all of a rollout and its phase a turn."""
    rows = []
    for horizon, lanes in ((32, 8), (128, 8), (32, 64), (128, 64)):
        agent = {"name": "ppo", "horizon": horizon, "epochs": 4, "minibatches": 4, "lr": 1e-3}
        agent |= {"net": {"hidden": [64], "memory": "lstm(64)"}}
        given = {"env": "tenfold/CartPoleNoVel-v1", "num_envs": lanes}
        plain, fast = (learner(engine, agent, **given) for engine in ("plain", "cudagraph"))
        off = apart_in_phase(plain, fast)
        words = {"steps": f"{horizon} x {lanes}", "epochs": 4, "minibatches": 4, "lstm": "64"}
        turns = phases(plain.engine, 1), phases(fast.engine, 3)
        rows.append(compared("cuda-graph-recurrent", words, turns, off))
        for place in (plain, fast):
            del place.learn  # it learns again
        turns = rounds(plain, horizon), rounds(fast, horizon)
        words |= {"round": "act, step, store; a phase every rollout"}
        rows.append(compared("cuda-graph-recurrent", words, turns, None))
    return rows


NAMES = {}  # without a GPU
CUDA = {
    "cuda-graph-dqn": q_rows,
    "cuda-graph-images": image_rows,
    "cuda-graph-sac": actor_critic_rows,
    "cuda-graph-team": team_rows,
    "cuda-graph-ppo": policy_rows,
    "cuda-graph-recurrent": recurrent_rows,
}
