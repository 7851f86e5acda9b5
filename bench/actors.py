"""Actors and learner as whole systems: ours in processes, ours in one, and as commonly written
(peers/usual_actors.py).

Worlds of several agents, implicit quantiles, noisy, dueling, double, 3-step, 5 frames, 64-64, batch
32, one update of every agent per 10 environment steps, one world an actor, one thread a process;
opponent and tenfold have the same setting, network and loss, which is checked on a batch ("equal").
Actor: its turns alone, new weights every 5 of them. Learner: an update of all agents and handing
out the weights, alone. System: two actors and the learner together, in turns of a second; nobody
runs beside it.
"""

import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import interleave, timed_row
from peers.usual_actors import Player, System
from peers.usual_iqn import Learner, Setting, loss_of

from tenfold.actors.actor import Actor
from tenfold.algorithms.dqn_team import Team
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.random import Purpose
from tenfold.core.system import Clock, set_threads
from tenfold.memory.shared import SharedWeights

# turns of each system; environment steps after learning began and before the clock starts
TURNS, WARM_UP = 5, 200
FRESH = 5  # steps of one of two actors between versions of the weights
SMALL, LARGE = "tenfold/TreasureSmall-v0", "tenfold/Treasure-v0"


def run_of(setting: Setting, where: str) -> Run:
    s = setting
    agent = {
        "distribution": f"implicit({s.samples}, {s.samples}, {s.cosines}, {s.acting})",
        "dueling": True,
        "double": True,
        "explore": f"noisy({s.sigma})",
        "n_step": s.n_step,
        "frames": s.frames,
        "batch_size": s.batch,
        "every": s.every,
        "capacity": s.capacity,
        "learning_starts": s.starts,
        "gamma": s.gamma,
        "lr": s.lr,
        "target": f"polyak({s.tau})",
        "clip_norm": s.clip,
        "net": {"hidden": [s.hidden, s.hidden]},
    }
    return Run.of({"env": s.env, "actors": s.actors, "where": where, "agent": agent})


def begun(place: OffPolicyLearner, steps: int) -> OffPolicyLearner:
    while place.step < steps:
        place.round()
    return place


def going(place: OffPolicyLearner, steps: int) -> Callable[[], int]:
    """A turn of one of our systems."""

    def turn() -> int:
        first = place.step
        return begun(place, first + steps).step - first

    return turn


class Meter:
    """A turn, with the processor time that the learner's process and each actor's took: what is
    left of other people's load."""

    def __init__(self, turn: Callable[[], int], processes: list[Any]) -> None:
        self.turn, self.pids = turn, [process.pid for process in processes]
        self.found: list[list[float]] = []  # of every turn, microseconds a step

    def __call__(self) -> int:
        before = self.read()
        steps = self.turn()
        self.found.append(
            [(after - b) / steps * 1e6 for after, b in zip(self.read(), before, strict=True)]
        )
        return steps

    def read(self) -> list[float]:
        ticks = [
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
            for pid in self.pids
        ]
        return [time.process_time()] + [
            sum(map(int, both)) / os.sysconf("SC_CLK_TCK") for both in ticks
        ]

    def row(self) -> dict[str, float]:
        """Medians, the first turn aside, and what two idle cores could do a step in at best."""
        learner, *actors = np.median(self.found[1:], axis=0).tolist()
        return {
            "learner_us": round(learner),
            "actors_us": round(sum(actors)),
            "two_cores_us": round(max(learner, (learner + sum(actors)) / 2) if actors else learner),
        }


def meters(places: dict[str, OffPolicyLearner], steps: int) -> dict[str, Meter]:
    return {
        where: Meter(going(place, steps), getattr(place.pool, "processes", []))
        for where, place in places.items()
    }


def loss_difference(place: OffPolicyLearner) -> float:
    """How far the opponent's loss is from ours, of one agent on one batch under the same noise and
    fractions."""
    team, worst = place.agent, 0.0
    assert isinstance(team, Team)
    for m, agent in enumerate(team.agents):
        learner = Learner(agent.online.sizes[0], agent.actions.n, Setting(place.run.env))
        learner.online.load_state_dict(agent.online.state_dict())
        learner.target.load_state_dict(agent.target.state_dict())
        place.replay.sample()
        rows = {
            name: torch.from_numpy(getattr(place.replay.batch, name)[m])
            for name in ("obs", "action", "reward", "discount", "next_obs", "weight")
        }
        rows |= agent.draw_fractions(len(rows["action"]))
        noises = [
            agent.draw_noise(purpose, 0) for purpose in (Purpose.NOISE_ONLINE, Purpose.NOISE_TARGET)
        ]
        ours, _, _ = agent.loss(rows, *noises, len(rows["action"]))
        for net, noise in zip((learner.online, learner.target), noises, strict=True):
            assert noise is not None
            for layer, own in zip(
                net.layers,
                noise.split([sum(layer.weight.shape) for layer in net.layers]),
                strict=True,
            ):
                layer.reset_noise(own)
        flat = {
            name: value.float().flatten(1) if name in ("obs", "next_obs") else value
            for name, value in rows.items()
        }
        theirs = loss_of(
            learner.online, learner.target, flat, rows["fractions"], rows["next_fractions"]
        )
        worst = max(worst, abs(ours.item() - theirs.item()) / abs(ours.item()))
    return worst


def actor_turns(
    place: OffPolicyLearner, opponent: System, player: Player, setting: Setting
) -> dict[str, Callable[[], int]]:
    """100 turns of an actor's world, ours and theirs."""
    actor = Actor(place.run, 0)
    actor.bind_agent(place.agent)
    row = {name: np.zeros(shape, dtype) for name, (shape, dtype) in actor.schema().items()}
    flat = place.agent.online.flat.numpy()
    weights, letters = (
        SharedWeights(flat.shape),
        [pickle.dumps(opponent.weights()) for _ in range(2)],
    )
    opponent.learn()
    letters[1] = pickle.dumps(opponent.weights())

    def ours() -> int:
        for turn in range(100):
            if turn % FRESH == 0:
                weights.publish(flat, 0)
            weights.read(flat)
            actor.advance(setting.starts, row, weights.version)
        return 100

    def theirs() -> int:
        for turn in range(100):
            if turn % FRESH == 0:
                player.load(pickle.loads(letters[turn // FRESH % 2]))
            player.step(False)
        return 100

    return {"ours": ours, "theirs": theirs}


def learner_turns(
    place: OffPolicyLearner, opponent: System, setting: Setting
) -> dict[str, Callable[[], int]]:
    """10 updates of all agents, ours and theirs."""
    clock, flat = Clock(), place.agent.online.flat.numpy()
    weights = SharedWeights(flat.shape)

    def ours() -> int:
        for _ in range(10):
            place.engine.update(1, place.step, clock)
            weights.publish(flat, place.step)
        return 10

    def theirs() -> int:
        for _ in range(10):
            opponent.learn()
            found = opponent.weights()
            for _ in range(setting.actors):
                pickle.dumps(found)  # what the queues do
        return 10

    return {"ours": ours, "theirs": theirs}


def per_second(
    name: str,
    setting: dict[str, Any],
    baseline: tuple[str, float],
    candidate: tuple[str, float],
    **more: Any,
) -> dict[str, Any]:
    return timed_row(
        name,
        setting,
        baseline,
        candidate,
        baseline_per_second=round(1e6 / baseline[1]),
        candidate_per_second=round(1e6 / candidate[1]),
        **more,
    )


def treasure() -> list[dict[str, Any]]:
    set_threads(1)
    setting = Setting(SMALL)
    warm = setting.starts + WARM_UP
    ours = {
        where: begun(OffPolicyLearner(run_of(setting, where)), warm)
        for where in ("processes", "serial")
    }
    opponent = System(setting).start()
    try:
        opponent.run(warm)
        parts, difference = Player(0, setting, opponent.replay), loss_difference(ours["serial"])
        actor = interleave(actor_turns(ours["serial"], opponent, parts, setting), 9)
        learner = interleave(learner_turns(ours["serial"], opponent, setting), 9)
        whole = {"opponent": Meter(lambda: opponent.run(300), opponent.processes)} | meters(
            ours, 600
        )
        systems = interleave(whole, TURNS)
        shares = {
            where: {k: round(v, 3) for k, v in place.clock.shares().items()}
            for where, place in ours.items()
        }
        spent = {who: meter.row() for who, meter in whole.items()}
    finally:
        opponent.close()
        for place in ours.values():
            place.close()
    equal = {"equal": difference < 1e-5, "max_diff": difference}
    name, what = (
        "treasure-actors",
        {"env": SMALL, "actors": 2, "batch": setting.batch, "hidden": [setting.hidden] * 2},
    )
    rows = [
        per_second(
            name,
            what | {"work": "an actor alone"},
            ("as commonly written", actor["theirs"]),
            ("tenfold", actor["ours"]),
            bar=1.3,
            goal=3,
        )
        | equal,
        timed_row(
            name,
            what | {"work": "an update of 5 agents"},
            ("as commonly written", learner["theirs"]),
            ("tenfold", learner["ours"]),
            bar=1.4,
            goal=3,
        )
        | equal,
        per_second(
            name,
            what | {"work": "2 actors and learner, in processes"},
            ("as commonly written", systems["opponent"]),
            ("tenfold", systems["processes"]),
            bar=1.35,
            goal=3,
            learner_shares=shares["processes"],
            baseline_processor=spent["opponent"],
            candidate_processor=spent["processes"],
        )
        | equal,
        per_second(
            name,
            what | {"work": "2 actors and learner, ours in one process"},
            ("as commonly written", systems["opponent"]),
            ("tenfold, serial", systems["serial"]),
            shares=shares["serial"],
            baseline_processor=spent["opponent"],
            candidate_processor=spent["serial"],
        )
        | equal,
        per_second(
            name,
            what | {"work": "2 actors and learner"},
            ("tenfold, serial", systems["serial"]),
            ("tenfold, processes", systems["processes"]),
        ),
    ]
    return [*rows, processes_against_serial(name, LARGE)]


def processes_against_serial(name: str, env: str) -> dict[str, Any]:
    setting = Setting(env)
    ours = {
        where: begun(OffPolicyLearner(run_of(setting, where)), setting.starts + WARM_UP)
        for where in ("processes", "serial")
    }
    try:
        meters_of = meters(ours, 600)
        found = interleave(dict(meters_of), TURNS)
    finally:
        for place in ours.values():
            place.close()
    what = {
        "env": env,
        "actors": 2,
        "batch": setting.batch,
        "hidden": [setting.hidden] * 2,
        "work": "2 actors and learner",
    }
    return per_second(
        name,
        what,
        ("tenfold, serial", found["serial"]),
        ("tenfold, processes", found["processes"]),
        baseline_processor=meters_of["serial"].row(),
        candidate_processor=meters_of["processes"].row(),
    )


NAMES = {"treasure-actors": treasure}
