"""What learners share whose environments are tensors: nothing that is learned from leaves their
device. Rows are played in long rounds; episodes, faults and statistics are read once in each."""

from dataclasses import replace
from typing import Any

import numpy as np

from tenfold.algorithms.learner import BareLearner
from tenfold.config.notation import show
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.protocols import Description, State
from tenfold.core.random import Purpose, bits, key
from tenfold.core.registry import algorithm
from tenfold.engines.choose import choose_engine
from tenfold.envs.adapter import SEED_BITS, Episode
from tenfold.envs.tensor_episodes import TensorEpisodes
from tenfold.envs.tensor_sources import borrows, close_training, open_training

# settings for environments on the host, and their usual values
UNFIT: dict[str, Any] = {
    "actors": 1,
    "where": "auto",
    "members": 1,
    "share": False,
    "env_form": "auto",
    "action_repeat": 1,
    "max_episode_steps": None,
    "frames": None,
    "normalize_reward": False,
    "clip_reward": None,
    "verify": 0,
    "overlap": False,
    "env_threads": 0,
}
MISSING = (
    "the last observation of an episode that a time limit cuts has not been given so far "
    "(info['final_obs']): while it is not, the value of the observation acted on last stands for it"
)
NO_LIMITS = (
    "no time limits have been told so far (extras['time_outs']): while they are not, every end of "
    "an episode counts as one that nothing follows"
)
BORROWED = "evaluations play in training's own worlds, whose episodes they end, and begin anew"
FRESH = "evaluations play in other worlds, which the same function makes"


class TensorLearner(BareLearner):
    """Worlds, agent, memory and engine of one run. A subclass has the rounds, and makes memory and
    engine in `make_parts`."""

    tells_episodes = True
    exact_resume = False
    engine: Any
    memory: Any
    read_every: int  # steps from one reading of the episodes to the next, at most

    def __init__(self, run: Run) -> None:
        refuse_settings(run)
        self.envs = open_training(run.env, run.num_envs, run.device)
        try:
            device = self.envs.device
            require_device(run, device)
            kind = algorithm(run.agent.name)
            placed = replace(run, device=device.type)
            super().__init__(run, kind.make_agent(placed, self.envs.spec))
            require_same_gpu(run, device, self.agent.device)
            self.rounds = self.begun = 0
            self.warned = False
            self.make_parts()
            self.engine, self.engine_choice = choose_engine(
                run, self.agent, self.memory, self.envs, table=kind.tensor_engines
            )
            size = self.envs.num_envs
            self.episodes = TensorEpisodes(run.env, size, self.read_every, device)
            self.begin()
        except BaseException:
            close_training(self.envs)
            raise

    def make_parts(self) -> None:
        """Makes `memory` and says `read_every`."""
        raise NotImplementedError

    # episodes

    def begin(self) -> None:
        """Begins all episodes."""
        seed = bits(key(self.run.seed, Purpose.EPISODE), np.array([self.begun]))
        self.engine.begin(self.envs.reset(int(seed[0]) >> (64 - SEED_BITS)))
        self.engine.store_norm()
        self.begun += 1
        self.resets = self.envs.resets
        self.episodes.begin()

    def forget(self) -> None:
        """The running episodes go on nowhere."""

    def follow_resets(self) -> None:
        """Begins anew where an evaluation has played in these worlds."""
        if self.envs.resets != self.resets:
            self.forget()
            self.begin()

    def read_episodes(self, step: int) -> list[Episode]:
        """Those that ended since `step`, when they were read before."""
        episodes, incomplete = self.episodes.read(step)
        if incomplete and not self.warned:
            self.warned = True
            self.notices.append(
                f"{incomplete:,} episodes were cut by a time limit without their last observation: "
                "the value of the one acted on last stands for it"
            )
        self.engine.store_norm()
        return episodes

    # what is said, saved and changed

    @property
    def device(self) -> str:
        return str(self.envs.device)

    @property
    def description(self) -> Description:
        envs = self.envs
        notes = [BORROWED if borrows(envs.name) else FRESH] * bool(self.run.eval_every)
        notes += [MISSING] * (not envs.gives_final) + [NO_LIMITS] * (not envs.tells_limits)
        return Description(
            self.engine_choice,
            self.device,
            f"the memory takes {self.memory.bytes / 2**20:,.1f} MiB",
            f"{envs.num_envs:,} worlds of tensors",
            notes=tuple(notes),
            inexact_resume="the state of these worlds is not saved, and episodes begin anew",
        )

    def warm_up(self) -> None:
        self.engine.warm_up()

    def statistics(self) -> dict[str, float]:
        return self.engine.statistics()

    def set_lr(self, lr: Any) -> None:
        self.agent.set_lr(lr)
        self.engine.set_lr(lr)

    def begin_with(self, state: dict[str, Any]) -> None:
        """Weights of another run, and its statistics of observations."""
        super().begin_with(state)
        self.engine.load_norm()
        self.begin()

    def state(self) -> State:
        counters = {"step": self.step, "rounds": self.rounds, "begun": self.begun}
        serial = {name: np.array(count) for name, count in counters.items()}
        engine = self.engine.state()
        return {"agent": self.agent.state(), "serial": serial, "engine": engine}

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        self.agent.load_state(state["agent"])
        self.engine.load_state(state["engine"])
        self.engine.load_norm()
        serial = state["serial"]
        self.step, self.rounds, self.begun = (
            int(serial[name]) for name in ("step", "rounds", "begun")
        )
        self.load_memory(state, with_rows)
        self.forget()
        self.begin()
        return False

    def load_memory(self, state: State, with_rows: bool) -> None:
        """What is saved of the memory besides its rows."""

    def close(self) -> None:
        close_training(self.envs)


def refuse_settings(run: Run) -> None:
    """Those that are about environments on the host."""
    for name, usual in UNFIT.items():
        if (value := getattr(run, name)) != usual:
            raise ConfigError(
                name,
                f"= {show(value)} is not for environments of tensors, such as {run.env}: leave it "
                "out.",
            )
    settings: Any = run.agent
    if getattr(settings.net, "memory", None):
        raise ConfigError(
            "agent.net.memory",
            f"= {show(settings.net.memory)} is not for environments of tensors: use none.",
        )


def require_device(run: Run, device: Any) -> None:
    """Refuses networks on another device than the environment's."""
    if run.device not in ("auto", device.type):
        raise ConfigError(
            "device",
            f"= {run.device}, and the tensors of {run.env} are on {device}: make it there, or set "
            f"device to {device.type}.",
        )


def require_same_gpu(run: Run, device: Any, networks: Any) -> None:
    """Refuses tensors on another one of several GPUs than the networks."""
    if device != networks:
        raise ConfigError(
            "device",
            f"= {run.device} is {networks} here, and the tensors of {run.env} are on {device}: "
            "make them there, or choose the GPU by CUDA_VISIBLE_DEVICES.",
        )
