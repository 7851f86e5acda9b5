"""Which engine the agents of a world learn by: all in one call or one after another."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from tenfold.algorithms.dqn import DQN_ONLINE, DQN_TARGET
from tenfold.algorithms.dqn_settings import DQN, Implicit
from tenfold.algorithms.dqn_team import SequentialAgents, Team, TeamReplay
from tenfold.algorithms.kernels.dqn import FusedDQN
from tenfold.algorithms.kernels.dqn_examples import fill, updated_actions
from tenfold.algorithms.kernels.dqn_gpu import CudaGraphDQN
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, Obstacle
from tenfold.core.layout import ObsLayout
from tenfold.core.pairs import pair
from tenfold.core.registry import algorithm
from tenfold.core.spaces import DiscreteActions
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.adapter import Environments, EnvViews

# multiplications of an agent's largest product up to which one call for all is faster
STACKED_PRODUCTS = 30_000_000


def products(team: Team) -> int:
    """Multiplications of an agent's largest product in one pass over a batch. Implicit quantiles
    are a row each from where their embedding joins on."""
    config, net = team.config, team.online
    shapes = list(pairwise(net.sizes))
    counts = [config.batch_size] * len(shapes)
    if isinstance(config.distribution, Implicit):
        shapes.append((config.distribution.cosines, net.sizes[net.joins]))  # the embedding
        counts = [
            config.batch_size * (config.distribution.samples if layer >= net.joins else 1)
            for layer in range(len(shapes))
        ]
    return max(rows * i * o for rows, (i, o) in zip(counts, shapes, strict=True))


def choose_team_engine(
    run: Run, team: Team, replay: TeamReplay, envs: Environments
) -> tuple[Any, str]:
    """The engine of a world's agents, and one sentence about it. The choice follows from the shapes
    alone, so that a run can be repeated."""
    single = f"is for a single agent, and {run.env} has {team.members}"
    if run.engine not in ("auto", "cudagraph", "fused", "plain"):
        raise ConfigError("engine", f"= {run.engine} {single}: use auto or plain.")
    if run.verify:
        raise ConfigError("verify", f"= {run.verify} {single}: leave it at 0.")
    obstacle = FusedDQN.why_not(team)
    if run.engine == "fused" and obstacle:
        raise ConfigError("engine", f"= fused does not fit: {obstacle}; use plain or auto.")
    if run.engine == "cudagraph" and not on_gpu(team):
        raise ConfigError(
            "engine",
            f"= cudagraph is for cuda, and the networks are on {team.device.type}: set device, or "
            "use plain or auto.",
        )
    agents = f"{team.members} agents"
    if run.stack != "together" and run.engine in ("auto", "fused") and not obstacle:
        engine = SequentialAgents(team, replay, envs, FusedDQN)
        return engine, f"fused, {agents} one after another: a compiled call each"
    why = (
        f"plain, not fused: {obstacle}" if obstacle and run.engine == "auto" else "plain, as asked"
    )
    if on_gpu(team) and run.engine in ("auto", "cudagraph"):
        try:
            return cudagraph_engine(run, team, replay, envs)
        except Obstacle as found:
            if run.engine == "cudagraph":
                sentence = f"= cudagraph does not fit: {found}; use plain or auto."
                raise ConfigError("engine", sentence) from None
            why = f"plain, not cudagraph: {found}"
    together, reason = stacked(run, team, products(team) <= STACKED_PRODUCTS)
    engine = (
        OffPolicyEngine(team, replay, envs)  # type: ignore[arg-type]
        if together
        else SequentialAgents(team, replay, envs, OffPolicyEngine)
    )
    return engine, f"{why}; {agents} {reason}"


def on_gpu(team: Team) -> bool:
    """Whether updates of a team may be CUDA graphs."""
    entry = algorithm("dqn").engines["cudagraph"]
    return entry.device in ("", team.device.type)


def stacked(run: Run, team: Team, small: bool) -> tuple[bool, str]:
    """Whether all agents are updated in one call, and why."""
    requested = run.stack != "auto"
    if run.stack == "together" or (not requested and small):
        more = "as asked" if requested else "faster than one after another while layers are small"
        return True, f"in one call, {more}"
    more = "as asked" if requested else "faster than together when layers are large"
    return False, f"one after another, {more}"


def cudagraph_engine(run: Run, team: Team, replay: TeamReplay, envs: Any) -> tuple[Any, str]:
    """Updates as CUDA graphs: of all agents in one, but for convolutions, whose groups are slow."""
    if obstacle := CudaGraphDQN.why_not(team, run):
        raise Obstacle(obstacle)
    together, reason = stacked(run, team, not team.online.convolutions)
    engine: Any = (
        CudaGraphDQN(team, replay, envs)  # type: ignore[arg-type]
        if together
        else SequentialAgents(team, replay, envs, CudaGraphDQN)
    )
    engines = [engine] if together else engine.engines
    for one in engines:
        one.prepare(run)
    as_asked = "as asked; " if run.engine == "cudagraph" else ""
    return engine, f"cudagraph, {as_asked}{engines[0].description}; {team.members} agents {reason}"


# together and one after another as a pair


def team_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for options in (
        {},
        {"double": True, "dueling": True, "n_step": 3, "replay": "prioritized", "frames": 2},
        {"distribution": "quantile(5)", "clip_norm": 0.5, "accumulate": 2},
        {"distribution": "categorical(5, -2, 2)", "dueling": True, "replay": "prioritized"},
        {
            "distribution": "implicit(samples=3, target_samples=4, cosines=8, acting=5)",
            "explore": "noisy",
        },
    ):
        yield options, int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(100))


def team_outcome(
    options: dict[str, Any], members: int, worlds: int, seed: int, together: bool
) -> tuple[np.ndarray, ...]:
    """Of agents with random memories."""
    base = {"batch_size": 6, "capacity": 60, "learning_starts": 0, "lr": 1e-2}
    config = DQN.of({**base, "net": {"hidden": [9, 8]}, **options})
    layout, rng = ObsLayout((3,), np.dtype(np.float32), (3,), 1.0), np.random.default_rng(seed)
    team = Team(config, layout, DiscreteActions(4, 0), seed, members)
    obs = rng.normal(size=(members * worlds, 3)).astype(np.float32)
    replay, lanes = TeamReplay(config, layout, worlds, seed, members), EnvViews.showing(obs)
    fill(replay, obs, 4, 30, rng)
    engine: Any = (
        OffPolicyEngine(team, replay, lanes)  # type: ignore[arg-type]
        if together
        else SequentialAgents(team, replay, lanes, OffPolicyEngine)
    )
    if config.frames > 1:
        engine.look(np.repeat(obs[:, None], config.frames, 1))
    actions, learned = updated_actions(engine, 5), team.block.numpy()[:, [DQN_ONLINE, DQN_TARGET]]
    return learned, team.count, replay.state()["leaves"], actions


def apart_outcome(
    options: dict[str, Any], members: int, worlds: int, seed: int
) -> tuple[np.ndarray, ...]:
    return team_outcome(options, members, worlds, seed, together=False)


@pair(
    apart_outcome,
    team_examples,
    rtol=1e-4,
    atol=1e-5,
    name="algorithms.dqn_team_engines.all agents in one call",
)
def together_outcome(
    options: dict[str, Any], members: int, worlds: int, seed: int
) -> tuple[np.ndarray, ...]:
    return team_outcome(options, members, worlds, seed, together=True)
