"""An algorithm of one's own: networks, how they act, and what they learn from a rollout.

    class Reinforce(ten.Algorithm):
        config = Config

        def build(self, spec, config):
            self.policy = ten.nets.mlp(spec.layout.size, (64, 64), spec.options)

        def act(self, obs, draw):
            return ten.ops.categorical_sample(self.policy(obs), draw)

        def round(self, rollout):
            …
            return self.step(loss)

`tenfold train my_module:Reinforce --env CartPole-v1` trains it. Flags and help for its settings,
evaluation, checkpoints, exact resume, seeds, actors, the report and the metrics come with it.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tenfold.actors.actor import Part, episodes
from tenfold.algorithms.learner import ActorLearner
from tenfold.config.agent import AgentConfig
from tenfold.config.schedules import value_at
from tenfold.core import protocols
from tenfold.core.errors import CheckpointError, ConfigError, UserError
from tenfold.core.protocols import EnvSpec, Policy, State
from tenfold.core.random import Purpose, fill_normal, fill_uniform, key
from tenfold.core.spaces import policy_actions
from tenfold.nets.flat import FlatModule
from tenfold.ops.adam import adam, clip

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.envs.adapter import Environments, Episode

Metrics = Mapping[str, float | torch.Tensor]  # of a round, for the log
ADAM_EPS = 1e-8


@dataclass(frozen=True)
class Rollout:
    """T steps of B environments as tensors [T, B, …].

    `next_obs` is the TRUE next observation, at an episode's end its last one. `terminated` and
    `truncated` are never the same: value counts beyond a time limit. `boundary` is 1 where an
    episode ended for any reason; `weight` is 0 for rows that are no transition.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    boundary: torch.Tensor
    weight: torch.Tensor
    next_obs: torch.Tensor


class Draw:
    """Random numbers for B rows, each by its own address, so that a run can be repeated and
    resumed."""

    def __init__(self, seed: int, member: int, address: np.ndarray, device: torch.device) -> None:
        self.seed, self.member, self.address, self.device = seed, member, address, device
        self.calls = 0

    def uniform(self, size: int = 1) -> torch.Tensor:
        """[B, size] in [0, 1)."""
        return self.fill(fill_uniform, Purpose.ACTION, np.empty((len(self.address), size)))

    def normal(self, size: int = 1) -> torch.Tensor:
        """[B, size] from the standard normal distribution."""
        room = np.empty((len(self.address), size), np.float32)
        return self.fill(fill_normal, Purpose.NOISE_ACT, room)

    def fill(self, how: Any, purpose: Purpose, room: np.ndarray) -> torch.Tensor:
        stream = key(self.seed, purpose, self.member + (self.calls << 48))
        self.calls += 1  # a second call in one action draws other numbers
        for row, address in zip(room, self.address.tolist(), strict=True):
            how(stream, address * row.size, row)
        return torch.from_numpy(room).float().to(self.device)


class Algorithm:
    """Derive from it, and write `config`, `build`, `act` and `round`."""

    config: type[AgentConfig] = AgentConfig
    horizon = 128  # steps of every environment in a rollout, where the settings have no `horizon`
    spec: EnvSpec
    settings: Any
    agent: "OwnAgent"

    def build(self, spec: EnvSpec, config: Any) -> None:
        """Makes the networks, as attributes. Random numbers of torch are seeded by the run."""
        raise NotImplementedError

    def act(self, obs: torch.Tensor, draw: Draw | None) -> torch.Tensor:
        """Actions [B] (0 … n − 1) or [B, D] for observations [B, …]; without `draw` the best ones.
        The same function explores, evaluates and is loaded."""
        raise NotImplementedError

    def round(self, rollout: Rollout) -> Metrics:
        """Learns from a rollout; returns numbers for the log."""
        raise NotImplementedError

    def exploring(self, step: int) -> dict[str, float]:
        """For the log: what sets the exploration at this step."""
        return {}

    def step(self, loss: torch.Tensor, **more: float | torch.Tensor) -> Metrics:
        """One update: gradient, clipping by settings.clip_norm if there is one, Adam with
        settings.lr."""
        return {"loss": loss.detach(), "grad_norm": self.agent.learn(loss), **more}

    @classmethod
    def family(cls, name: str) -> "OwnFamily":
        """As the package sees it, under the name module:Name."""
        return OwnFamily(cls, name)


class OwnFamily(protocols.Algorithm):
    """How the parts of a run are made for an algorithm of one's own."""

    on_policy = True

    def __init__(self, kind: type[Algorithm], name: str) -> None:
        self.kind, self.name, self.config = kind, name, kind.config

    def make_agent(self, run: "Run", spec: EnvSpec) -> "OwnAgent":
        return OwnAgent(self.kind, run, spec)

    def make_learner(self, run: "Run") -> "OwnLearner":
        return OwnLearner(run)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        shape, dtype = action_form(envs.action_space, run.env)
        return {"action": ((envs.num_envs, *shape), dtype)}

    def make_acting(self, run: "Run", agent: "OwnAgent", envs: "Environments") -> "OwnActing":
        return OwnActing(agent, envs)


def action_form(space: Any, env: str) -> tuple[tuple[int, ...], str]:
    """Shape and type of an environment's action as the algorithm gives it."""
    actions = policy_actions(space, env)
    if len(actions.sizes) == 1 and not actions.low:
        return (), "int64"
    if actions.low and not actions.sizes:
        return (len(actions.low),), "float32"
    raise ConfigError(
        "env",
        f"= {env} has actions of several kinds, and an algorithm of one's own takes one choice or "
        "real numbers: use ppo.",
    )


class Networks(FlatModule):
    """What the user built, its parameters in one buffer."""

    def __init__(self, owner: Algorithm) -> None:
        super().__init__()
        for name, value in vars(owner).items():
            if isinstance(value, nn.Module | nn.Parameter):
                setattr(self, name, value)
        if not list(self.parameters()):
            raise UserError(
                f"{type(owner).__name__}.build made no networks: set them as attributes, such as "
                "self.policy = ten.nets.mlp(…)."
            )


class OwnAgent:
    """The user's networks, how they act, Adam's moments and the count of updates."""

    frames, reads_masks = 1, False

    def __init__(self, kind: type[Algorithm], run: "Run", spec: EnvSpec) -> None:
        self.config: Any = run.agent
        self.layout, self.seed, self.member = spec.layout, run.seed, 0
        self.actions = policy_actions(spec.action_space, run.env)
        self.shape, _ = action_form(spec.action_space, run.env)
        self.device = torch.device("cpu" if run.device == "auto" else run.device)
        self.own = kind()
        self.own.spec, self.own.settings, self.own.agent = spec, self.config, self
        with torch.random.fork_rng():
            torch.manual_seed(run.seed)
            self.own.build(spec, self.config)
        self.online = Networks(self.own).to(self.device)
        self.online.flatten()
        self.mean, self.square = (torch.zeros_like(self.online.flat) for _ in range(2))
        self.updates, self.at = 0, 0  # gradient updates so far; the environment step they are at

    # acting

    def explore(self, rows: np.ndarray, rounds: int) -> np.ndarray:
        """Actions for training, by the draws of round number `rounds`."""
        return self.choose(rows, rounds * len(rows) + np.arange(len(rows)))

    def choose(self, rows: np.ndarray, address: np.ndarray | None) -> np.ndarray:
        """Drawn by addresses, or the best; as the algorithm gives them."""
        draw = None
        if address is not None:
            draw = Draw(self.seed, self.member, address, self.device)
        with torch.no_grad():
            found = self.own.act(self.to_net(torch.from_numpy(rows)), draw).cpu().numpy()
        if found.shape != (len(rows), *self.shape):
            raise UserError(
                f"{type(self.own).__name__}.act gave actions of shape {found.shape} for "
                f"{len(rows)} observations, and must give {(len(rows), *self.shape)}."
            )
        return found.astype(np.float32 if self.shape else np.int64)

    def for_env(self, action: np.ndarray) -> np.ndarray:
        """As the environments take them, within their bounds."""
        none = np.zeros((len(action), 0))
        if self.shape:
            return self.actions.for_env(none.astype(np.int64), action)
        return self.actions.for_env(action[:, None], none)

    def policy(self, how: str) -> Policy:
        def act(rows: np.ndarray, mask: Any, episode: np.ndarray, step: np.ndarray) -> np.ndarray:
            address = episode * 2**32 + step if how == "sampled" else None
            return self.for_env(self.choose(rows, address))

        return act

    def act(self, obs: Any, mask: Any = None) -> Any:
        """The best action for one observation or a batch, in the environment's own numbers."""
        rows, single = self.layout.rows_of(obs)
        found = self.for_env(self.choose(rows, None))
        return (found[0] if self.shape else int(found[0])) if single else found

    def to_net(self, rows: torch.Tensor) -> torch.Tensor:
        rows = rows.to(self.device)
        return rows if len(self.layout.shape) == 1 else self.layout.to_net(rows)

    def exploring(self, step: int) -> dict[str, float]:
        return self.own.exploring(step)

    def for_actor(self, index: int) -> "OwnAgent":
        other = copy.copy(self)
        other.member = index
        return other

    def published(self) -> np.ndarray:
        return self.online.flat.detach().cpu().numpy()

    def adopt(self, published: np.ndarray) -> None:
        """It was read into this agent's own parameters."""

    # learning

    def learn(self, loss: torch.Tensor) -> torch.Tensor:
        """One update by a loss; returns the gradient's norm before it was clipped."""
        self.online.flat_grad.zero_()
        loss.backward()
        longest = getattr(self.config, "clip_norm", None) or float("inf")
        _, norm = clip(self.online.flat_grad, longest)
        self.updates += 1
        lr, eps = value_at(self.config.lr, self.at), getattr(self.config, "adam_eps", ADAM_EPS)
        flat, grad = self.online.flat, self.online.flat_grad
        adam(flat, grad, self.mean, self.square, self.updates, lr, eps)
        return norm

    def set_lr(self, lr: Any) -> None:
        self.config = self.own.settings = replace(self.config, lr=lr)

    # state

    def policy_state(self) -> dict[str, Any]:
        buffers = {f"buffer.{name}": value for name, value in self.online.named_buffers()}
        return {"online": self.online.flat, **buffers}

    def state(self) -> dict[str, Any]:
        more = {"mean": self.mean, "square": self.square, "updates": torch.tensor(self.updates)}
        return self.policy_state() | more

    def load_policy(self, state: dict[str, Any]) -> None:
        for name, own in self.policy_state().items():
            if name not in state or state[name].shape != own.shape:
                raise CheckpointError(f"holds no {name} that fits the networks of this algorithm.")
            own.copy_(state[name])

    def load_state(self, state: dict[str, Any]) -> None:
        self.load_policy(state)
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.updates = int(state["updates"])


class OwnActing:
    """How an actor acts: by the user's function."""

    def __init__(self, agent: OwnAgent, envs: "Environments") -> None:
        self.agent, self.envs = agent, envs

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        row["action"][...] = self.agent.explore(self.envs.obs, rounds)
        return self.agent.for_env(row["action"])

    def stepped(self) -> None:
        """It sees what the environments show."""

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        """There is nothing to restore."""


class OwnLearner(ActorLearner):
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
        finished, again = [], False
        for part in self.pool.collect(
            self.step, self.rounds, min(left, most or left), clock, scale
        ):
            again = again or part.begins
            if part.row and not part.begins:
                self.take(part)
            finished += episodes(part, self.envs.agents)
        if again:  # an actor was replaced, and its episode goes on nowhere
            self.count = 0
            return finished
        self.store()
        if scale:
            clock.lap("store", scale)
        if self.count == self.steps:
            self.learn()
            self.pool.publish(self.agent, self.step, clock)
        return finished

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
        found = agent.own.round(
            Rollout(
                action=action, reward=reward, boundary=boundary, weight=weight, **seen, **others
            )
        )
        for name, value in found.items():
            self.sums[name] = self.sums.get(name, torch.zeros(())) + torch.as_tensor(value).cpu()
        self.counted += 1
        self.clock.lap("update")

    def next_save(self) -> int:
        """The step up to which actors may go: there nobody is to be ahead of the others."""
        every, end = self.run.checkpoint_every, self.run.steps
        return min((self.step // every + 1) * every, end) if every else end

    def settle(self) -> "list[Episode]":
        """Before the state is saved: goes on until all actors have come as far as the furthest."""
        finished: list[Episode] = []
        while ahead := self.pool.hold():
            for left in range(ahead, 0, -1):
                finished += self.round(most=left)
        if any(part.begins for part in self.pool.settle()):
            self.count = 0
        return finished

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
            self.count = 0  # its last episodes go on nowhere
        return exact
