"""Which engine the agents of a world learn by, and where: all in one call or one after another,
here or over several devices, balanced by measured time."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn.agent import ONLINE, TARGET, DQNAgent
from tenfold.algorithms.dqn.config import DQN, Implicit
from tenfold.algorithms.dqn.cudagraph import GraphEngine
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.algorithms.dqn.team import Apart, Placed, Team, TeamReplay
from tenfold.algorithms.kernels.dqn import FusedDQN
from tenfold.algorithms.kernels.dqn_examples import fill, updated_actions
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, Obstacle
from tenfold.core.pairs import pair
from tenfold.core.registry import algorithm
from tenfold.core.spaces import DiscreteActions, ObsLayout
from tenfold.core.timing import Clock
from tenfold.engines.choose import choose_engine
from tenfold.engines.plain import Lanes
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay

# multiplications of an agent's largest product up to which one call for all is faster
STACKED_PRODUCTS = 30_000_000
ROWS = 16  # of a memory for measuring, beyond those that complete a return and a stack of frames
TRIALS = 5  # updates that are measured; as many before them compile and fill caches


def several_devices() -> list[str]:
    """The CUDA devices, where there is more than one."""
    count = torch.cuda.device_count()
    return [f"cuda:{number}" for number in range(count)] if count > 1 else []


def balance(seconds: list[list[float]]) -> list[int]:
    """A device for every agent, from the time of an update of agent m on device d, `seconds[m][d]`:
    the longest first, each to where it would be done earliest; of equals the first."""
    load, chosen = [0.0] * len(seconds[0]), [0] * len(seconds)
    for m in sorted(range(len(seconds)), key=lambda m: -min(seconds[m])):
        chosen[m] = min(range(len(load)), key=lambda d: load[d] + seconds[m][d])
        load[chosen[m]] += seconds[m][chosen[m]]
    return chosen


def update_seconds(team: Team, device: str, kind: type[PlainEngine] = PlainEngine) -> float:
    """The median time of an update of one agent on a device, with a memory and a network that are
    thrown away."""
    layout = team.layout
    config = replace(team.config, capacity=ROWS + team.config.n_step + team.config.frames)
    agent, replay = DQNAgent(config, layout, team.actions, 0, device), Replay(config, layout, 1, 0)
    obs = np.zeros((1, *layout.shape), layout.dtype)
    lanes: Any = Lanes.showing(obs)
    no = lanes.skipped
    for _ in range(config.capacity):
        replay.add(np.zeros(1, np.int64), lanes.reward, no, no, no, obs, obs)
    engine, clock, found = kind(agent, replay, lanes), Clock(), []
    for _ in range(2 * TRIALS):
        start = perf_counter()
        engine.update(1, 0, clock)
        engine.sums.cpu()  # waits until it has happened
        found.append(perf_counter() - start)
    return median(found[TRIALS:])


def place_agents(team: Team, devices: list[str], fused: bool) -> tuple[list[str], str]:
    """A device for every agent and one sentence about it; none where the CPU, by its fused engine
    or not, would be done before the last of them."""
    here = team.members * update_seconds(team, "cpu", FusedDQN if fused else PlainEngine)
    times = [update_seconds(team, device) for device in devices]
    chosen = balance([times] * team.members)
    last = max(times[d] * chosen.count(d) for d in chosen)
    if here < last:
        return (
            [],
            f"here an update of all takes {1e3 * here:.3g} ms, over {len(devices)} devices "
            f"{1e3 * last:.3g} ms",
        )
    shares = [
        f"{device} has {chosen.count(d)} at {1e3 * times[d]:.3g} ms an update"
        for d, device in enumerate(devices)
    ]
    words = (
        f"{team.members} agents over {len(devices)} devices by measured time: {', '.join(shares)}"
    )
    return [devices[d] for d in chosen], words


def products(team: Team) -> int:
    """Multiplications of an agent's largest product in one pass over a batch. Implicit quantiles
    are a row each from where their embedding joins on."""
    config, net = team.config, team.online
    shapes = list(pairwise(net.sizes))
    counts = [config.batch_size] * len(shapes)
    if isinstance(config.distribution, Implicit):
        shapes.append((config.distribution.cosines, net.sizes[net.joins]))  # the embedding
        counts = [
            config.batch_size * (config.distribution.samples if place >= net.joins else 1)
            for place in range(len(shapes))
        ]
    return max(rows * i * o for rows, (i, o) in zip(counts, shapes, strict=True))


def choose_team_engine(
    run: Run, team: Team, replay: TeamReplay, envs: Environments
) -> tuple[Any, str]:
    """The engine of a world's agents, and one sentence about it."""
    single = f"is for a single agent, and {run.env} has {team.members}"
    if run.engine not in ("auto", "cudagraph", "fused", "plain", "parallel"):
        raise ConfigError("engine", f"= {run.engine} {single}: use auto or plain.")
    if run.verify:
        raise ConfigError("verify", f"= {run.verify} {single}: leave it at 0.")
    if run.engine == "parallel":
        if run.stack == "apart":
            raise ConfigError(
                "stack", "= apart does not fit engine = parallel, which learns by one call."
            )
        return choose_engine(run, team, replay, envs)
    obstacle, words = FusedDQN.why_not(team), ""
    if run.engine == "fused" and obstacle:
        raise ConfigError("engine", f"= fused does not fit: {obstacle}; use plain or auto.")
    if run.engine == "cudagraph" and not on_gpu(team):
        raise ConfigError(
            "engine",
            f"= cudagraph is for cuda, and the networks are on {team.device.type}: set device, or "
            "use plain or auto.",
        )
    devices = several_devices() if run.device == "auto" else []
    if devices and run.stack != "together" and run.engine != "fused":
        places, words = place_agents(team, devices, fused=run.engine == "auto" and not obstacle)
        if places:
            return Placed(team, replay, envs, places), f"plain, {words}"
    engine, choice = engine_here(run, team, replay, envs, obstacle)
    return engine, "; ".join(filter(None, [choice, words]))


def on_gpu(team: Team) -> bool:
    """Whether updates of a team may be CUDA graphs."""
    entry = algorithm("dqn").engines["cudagraph"]
    return entry.device in ("", team.device.type)


def engine_here(
    run: Run, team: Team, replay: TeamReplay, envs: Any, obstacle: str
) -> tuple[Any, str]:
    """The same where the team is. The choice follows from the shapes alone, so that a run can be
    repeated."""
    agents = f"{team.members} agents"
    if run.stack != "together" and run.engine in ("auto", "fused") and not obstacle:
        engine = Apart(team, replay, envs, FusedDQN)
        return engine, f"fused, {agents} one after another: a compiled call each"
    why = (
        f"plain, not fused: {obstacle}" if obstacle and run.engine == "auto" else "plain, as asked"
    )
    if on_gpu(team) and run.engine in ("auto", "cudagraph"):
        try:
            return graph_engine(run, team, replay, envs)
        except Obstacle as found:
            if run.engine == "cudagraph":
                sentence = f"= cudagraph does not fit: {found}; use plain or auto."
                raise ConfigError("engine", sentence) from None
            why = f"plain, not cudagraph: {found}"
    together, reason = stacked(run, team, products(team) <= STACKED_PRODUCTS)
    engine = (
        PlainEngine(team, replay, envs)  # type: ignore[arg-type]
        if together
        else Apart(team, replay, envs, PlainEngine)
    )
    return engine, f"{why}; {agents} {reason}"


def stacked(run: Run, team: Team, small: bool) -> tuple[bool, str]:
    """Whether all agents are updated in one call, and why."""
    asked = run.stack != "auto"
    if run.stack == "together" or (not asked and small):
        more = "as asked" if asked else "faster than one after another while layers are small"
        return True, f"in one call, {more}"
    more = "as asked" if asked else "faster than together when layers are large"
    return False, f"one after another, {more}"


def graph_engine(run: Run, team: Team, replay: TeamReplay, envs: Any) -> tuple[Any, str]:
    """Updates as CUDA graphs: of all agents in one, but for convolutions, whose groups are slow."""
    if found := GraphEngine.why_not(team, run):
        raise Obstacle(found)
    together, reason = stacked(run, team, not team.online.convolutions)
    engine: Any = (
        GraphEngine(team, replay, envs)  # type: ignore[arg-type]
        if together
        else Apart(team, replay, envs, GraphEngine)
    )
    each = [engine] if together else engine.engines
    for one in each:
        one.prepare(run)
    asked = "as asked; " if run.engine == "cudagraph" else ""
    return engine, f"cudagraph, {asked}{each[0].words}; {team.members} agents {reason}"


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
    replay, lanes = TeamReplay(config, layout, worlds, seed, members), Lanes.showing(obs)
    fill(replay, obs, 4, 30, rng)
    engine: Any = (
        PlainEngine(team, replay, lanes)  # type: ignore[arg-type]
        if together
        else Apart(team, replay, lanes, PlainEngine)
    )
    if config.frames > 1:
        engine.look(np.repeat(obs[:, None], config.frames, 1))
    actions, learned = updated_actions(engine, 5), team.block.numpy()[:, [ONLINE, TARGET]]
    return learned, team.count, replay.state()["leaves"], actions


def apart_outcome(
    options: dict[str, Any], members: int, worlds: int, seed: int
) -> tuple[np.ndarray, ...]:
    return team_outcome(options, members, worlds, seed, together=False)


@pair(
    apart_outcome, team_examples, rtol=1e-4, atol=1e-5, name="engines.team.all agents in one call"
)
def together_outcome(
    options: dict[str, Any], members: int, worlds: int, seed: int
) -> tuple[np.ndarray, ...]:
    return team_outcome(options, members, worlds, seed, together=True)
