"""The agents of a world over several devices: whole agents, each learning on its own device,
balanced by measured time.

The team itself stays on the CPU: what it acts by, what actors are sent and what is saved does not
know about devices.
"""

from dataclasses import replace
from statistics import median
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tenfold.algorithms.dqn.agent import ONLINE, DQNAgent
from tenfold.algorithms.dqn.fused import FusedEngine
from tenfold.algorithms.dqn.plain import PlainEngine
from tenfold.algorithms.dqn.team import Apart, Team
from tenfold.algorithms.dqn.team_replay import TeamReplay
from tenfold.core.timing import Clock
from tenfold.envs.adapter import Environments
from tenfold.memory.replay import Replay

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
    no, lanes = np.zeros(1, np.bool_), np.zeros(1)
    for _ in range(config.capacity):
        replay.add(np.zeros(1, np.int64), lanes, no, no, no, obs, obs)
    envs: Any = SimpleNamespace(
        num_envs=1, obs=obs, final_obs=obs, reward=lanes, terminated=no, truncated=no, skipped=no
    )
    engine, clock, found = kind(agent, replay, envs), Clock(), []
    for _ in range(2 * TRIALS):
        start = perf_counter()
        engine.update(1, 0, clock)
        engine.sums.cpu()  # waits until it has happened
        found.append(perf_counter() - start)
    return median(found[TRIALS:])


def place_agents(team: Team, devices: list[str], fused: bool) -> tuple[list[str], str]:
    """A device for every agent and one sentence about it; none where the CPU, by its fused engine
    or not, would be done before the last of them."""
    here = team.members * update_seconds(team, "cpu", FusedEngine if fused else PlainEngine)
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


class Placed(Apart):
    """Agent m learns on `devices[m]`. All devices have their work before any is waited for."""

    def __init__(
        self, team: Team, replay: TeamReplay, envs: Environments, devices: list[str]
    ) -> None:
        team.away = [
            DQNAgent(team.config, team.layout, team.actions, home.seed, device, home.member)
            for home, device in zip(team.agents, devices, strict=True)
        ]
        for home, away in zip(team.agents, team.away, strict=True):
            away.count = home.count
        super().__init__(team, replay, envs, PlainEngine)
        self.devices = devices
        # an agent waits for the one before it on its device: the first agents of all devices come
        # first, then the second
        turns = [devices[:m].count(device) for m, device in enumerate(devices)]
        self.order = [self.engines[m] for m in sorted(range(len(turns)), key=turns.__getitem__)]

    def update(self, count: int, step: int, clock: Clock) -> None:
        clock.start()
        for _ in range(count):
            launched = [(engine, engine.launch(step, clock)) for engine in self.order]
            for engine, errors in launched:
                engine.finish(errors)
        for home, away in zip(self.agent.agents, self.agent.away, strict=True):
            home.block[ONLINE].copy_(away.block[ONLINE])
        clock.lap("update")
