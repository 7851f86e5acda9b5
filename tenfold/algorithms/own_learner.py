"""The learner of an algorithm of one's own: rollouts for the user's `round`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.actors.actor import Part
from tenfold.algorithms.learner import RolloutLearner
from tenfold.algorithms.own import Rollout
from tenfold.algorithms.own_agent import OwnAgent, action_form
from tenfold.core.errors import ConfigError, UserError, told_of
from tenfold.core.protocols import State
from tenfold.core.random import Purpose, draw_bits, key

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.envs.adapter import Episode


class OwnLearner(RolloutLearner):
    """Fills a rollout with what the actors bring, and gives it to the user's `round`."""

    agent: OwnAgent
    engine_choice = "plain, the algorithm's own"

    def __init__(self, run: "Run") -> None:
        super().__init__(run)
        if run.engine not in ("auto", "plain") or run.verify:
            raise ConfigError(
                "engine",
                f"= {run.engine}, verify = {run.verify}: an algorithm of one's own has "
                "the plain engine only; leave them out.",
            )
        envs, kind = self.envs, type(self.agent.own)
        steps = getattr(run.agent, "horizon", kind.horizon)
        shape, dtype = action_form(envs.action_space, run.env)
        size = (steps, envs.num_envs)
        self.rollout = {
            "obs": np.zeros((*size, *envs.layout.shape), envs.layout.dtype),
            "next_obs": np.zeros((*size, *envs.layout.shape), envs.layout.dtype),
            "action": np.zeros((*size, *shape), dtype),
            "reward": np.zeros(size, np.float32),
            **{name: np.zeros(size, np.bool_) for name in ("terminated", "truncated", "skipped")},
        }
        self.steps, self.count = steps, 0
        self.sums: dict[str, torch.Tensor] = {}  # of the numbers that rounds returned
        self.counted = 0
        self.pool.follow(self.agent, self.explore)

    @property
    def memory(self) -> str:
        size = sum(array.nbytes for array in self.rollout.values()) / 2**20
        return f"rollouts of {self.steps:,} x {self.envs.num_envs:,} steps take {size:,.1f} MiB"

    def warm_up(self) -> None:
        """There is nothing to compile."""

    def set_lr(self, lr: Any) -> None:
        self.agent.set_lr(lr)

    def statistics(self) -> dict[str, float]:
        found = {name: float(total) / self.counted for name, total in self.sums.items()}
        self.sums, self.counted = {}, 0
        return found | self.pool.report()

    def explore(self, step: int, rounds: int) -> np.ndarray:
        self.rollout["action"][self.count] = self.agent.explore(self.envs.obs, rounds)
        return self.agent.for_env(self.rollout["action"][self.count])

    def round(self, until: int | None = None, most: int | None = None) -> "list[Episode]":
        """Act, step, store, and learn when the rollout is full."""
        wait, clock = self.until_timed(), self.clock
        scale = 0 if wait else self.timed_every
        if scale:
            clock.start()
        self.rollout["obs"][self.count] = self.envs.obs
        left = min(self.steps - self.count, self.pool.rounds_until(self.step, self.next_save()))
        finished, whole = self.collect(min(left, most or left), scale)
        if not whole:
            return finished
        self.store()
        if scale:
            clock.lap("store", scale)
        if self.count == self.steps:
            self.learn()
            self.pool.publish(self.agent, self.step, clock)
        return finished

    def forget(self) -> None:
        self.count = 0

    def take(self, part: Part) -> None:
        """What an actor brought, into the current row and the latest step of all."""
        envs: Any = self.envs
        own = envs.lanes(self.rollout["action"][self.count], part.first, len(part.row["length"]))
        own[...] = part.row["action"].reshape(own.shape)
        for name in ("reward", "terminated", "truncated", "skipped", "final_obs"):
            envs.put(part.first, name, part.row[name])

    def store(self) -> None:
        envs, t, rows = self.envs, self.count, self.rollout
        for name in ("reward", "terminated", "truncated", "skipped"):
            rows[name][t] = getattr(envs, name)
        rows["next_obs"][t] = envs.obs
        ended = envs.terminated | envs.truncated
        rows["next_obs"][t][ended] = envs.final_obs[ended]
        self.step += self.steps_of(envs.skipped, envs.worlds)
        self.rounds += 1
        self.count += 1

    def learn(self) -> None:
        self.clock.start()
        agent, rows = self.agent, {k: torch.from_numpy(v) for k, v in self.rollout.items()}
        agent.at, self.count = self.step, 0
        seen = {
            name: agent.to_net(rows[name].flatten(0, 1)).unflatten(0, rows[name].shape[:2])
            for name in ("obs", "next_obs")
        }
        others = {name: rows[name].to(agent.device).float() for name in ("terminated", "truncated")}
        boundary = torch.maximum(others["terminated"], others["truncated"])
        weight = 1.0 - rows["skipped"].to(agent.device).float()
        action, reward = rows["action"].to(agent.device), rows["reward"].to(agent.device)
        rollout = Rollout(
            action=action, reward=reward, boundary=boundary, weight=weight, **seen, **others
        )
        # torch's own random numbers in a round follow from the run's seed, also after a resume
        with torch.random.fork_rng(), told_of(f"{agent.name}.round"):
            torch.manual_seed(int(draw_bits(key(agent.seed, Purpose.SHUFFLE), self.rounds)) >> 1)
            found = agent.own.round(rollout)
        if not isinstance(found, Mapping):
            raise UserError(f"{agent.name}.round returned {found!r:.40}, and must return a dict.")
        for name, value in found.items():
            with told_of(f"What {agent.name}.round returned as {name} is no number: it"):
                number = torch.as_tensor(value).detach().cpu().reshape(())
            self.sums[name] = self.sums.get(name, torch.zeros(())) + number
        self.counted += 1
        self.clock.lap("update")

    def state(self) -> State:
        rows = {name: array[: self.count] for name, array in self.rollout.items()}
        sums = {name: np.asarray(value) for name, value in self.sums.items()}
        counters = {"count": np.array(self.count), "counted": np.array(self.counted)}
        return {
            "agent": self.agent.state(),
            "rollout": rows,
            "sums": sums,
            "serial": self.counters() | counters,
            **self.pool.state(),
        }

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        self.agent.load_state(state["agent"])
        self.load_counters(state)
        self.count, self.counted = (int(state["serial"][name]) for name in ("count", "counted"))
        self.sums = {n: torch.as_tensor(np.array(v)) for n, v in state.get("sums", {}).items()}
        for name, array in self.rollout.items():
            if self.count:
                array[: self.count] = state["rollout"][name]
        exact = self.pool.restore(state, self.agent, self.step)
        if not exact:
            self.forget()  # its last episodes go on nowhere
        return exact
