"""Agent and learner of an algorithm of one's own: the user's networks behind the interface of an
agent, rollouts for the user's `round`."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tenfold.actors.actor import SimpleActing
from tenfold.algorithms.agent import FlatAgent, refuse_state
from tenfold.algorithms.on_policy import RolloutLearner
from tenfold.algorithms.own import Algorithm, Draw, Rollout
from tenfold.config.options import value_at
from tenfold.core.errors import ConfigError, UserError, told_of
from tenfold.core.protocols import EnvSpec, Policy, State
from tenfold.core.random import Purpose, draw_bits, key
from tenfold.core.spaces import policy_actions
from tenfold.engines.plain import apply_gradient
from tenfold.nets.flat import FlatModule

if TYPE_CHECKING:
    from tenfold.config.run import Run


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
        kind = type(owner).__name__
        for name, value in vars(owner).items():
            if isinstance(value, nn.Module | nn.Parameter):
                setattr(self, name, value)
            elif isinstance(value, torch.optim.Optimizer):
                raise UserError(
                    f"{kind}.build made an optimiser, {name}, which no checkpoint would know of: "
                    "self.step(loss) is one, with the settings lr, clip_norm and adam_eps."
                )
            elif any(isinstance(one, nn.Module) for one in contained(value)):
                raise UserError(
                    f"{kind}.build keeps networks in {name}, a {type(value).__name__}: use "
                    "torch.nn.ModuleList or ModuleDict, so that they are trained and saved."
                )
        if not list(self.parameters()):
            raise UserError(
                f"{kind}.build made no networks: set them as attributes, such as self.policy = "
                "ten.nets.mlp(…)."
            )


def contained(value: Any) -> list[Any]:
    """What is in a list, a tuple or a dict."""
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


class OwnAgent(FlatAgent):
    """The user's networks, how they act, Adam's moments and the count of updates."""

    def __init__(self, own: Algorithm, run: "Run", spec: EnvSpec) -> None:
        self.config: Any = run.agent
        self.layout, self.seed = spec.layout, run.seed
        self.actions = policy_actions(spec.action_space, run.env)
        self.shape, _ = action_form(spec.action_space, run.env)
        self.device = torch.device("cpu" if run.device == "auto" else run.device)
        self.own = own
        self.own.spec, self.own.settings, self.own.agent = spec, self.config, self
        self.name = type(own).__name__
        if run.normalize_obs:
            self.normalise(self.layout, "mlp" if len(self.layout.net_shape) == 1 else "other")
        if not hasattr(self.config, "lr"):
            raise UserError(f"The settings of {self.name} have no lr, the learning rate of step.")
        with torch.random.fork_rng(), told_of(f"{self.name}.build"):
            torch.manual_seed(run.seed)
            self.own.build(spec, self.config)
        self.online = Networks(self.own).to(self.device)
        self.online.flatten()
        self.mean, self.square = (torch.zeros_like(self.online.flat) for _ in range(2))
        self.count, self.at = np.zeros(1, np.int64), 0  # updates; the environment step they are at

    # acting

    def explore(self, rows: np.ndarray, rounds: int) -> np.ndarray:
        """Actions for training, by the draws of round number `rounds`."""
        return self.choose(rows, rounds * len(rows) + np.arange(len(rows)))

    def choose(self, rows: np.ndarray, address: np.ndarray | None) -> np.ndarray:
        """Drawn by addresses, or the best; as the algorithm gives them."""
        draw = None
        if address is not None:
            draw = Draw(self.seed, self.member, address, self.device)
        with torch.no_grad(), told_of(f"{self.name}.act"):
            found = self.own.act(self.to_net(torch.from_numpy(rows)), draw).cpu().numpy()
        if found.shape != (len(rows), *self.shape):
            raise UserError(
                f"{self.name}.act gave actions of shape {found.shape} for {len(rows)} "
                f"observations, and must give {(len(rows), *self.shape)}."
            )
        if not self.shape and not ((found >= 0) & (found < self.actions.sizes[0])).all():
            raise UserError(
                f"{self.name}.act gave action {found.max()}, and there are "
                f"{self.actions.sizes[0]}, from 0 on."
            )
        if not np.isfinite(found).all():
            raise UserError(f"{self.name}.act gave an action that is not finite.")
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

    def act(self, obs: Any, mask: Any = None, state: None = None) -> Any:
        """The best action for one observation or a batch, in the environment's own numbers. Masks
        it cannot use, and it remembers nothing: both are None."""
        refuse_state(state)
        if mask is not None:
            raise UserError(f"{self.name} cannot use action masks: call act without one.")
        rows, single = self.layout.rows_of(obs)
        found = self.for_env(self.choose(rows, None))
        return (found[0] if self.shape else int(found[0])) if single else found

    def to_net(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [B, …] as networks take them: floats, images with their channels in front."""
        rows = self.normalised_rows(rows.to(self.device))
        if len(self.layout.net_shape) == 3 or self.layout.frame:
            rows = self.layout.to_net(rows)
        return rows.float() * (1.0 if self.norm else self.layout.scale)

    def exploring(self, step: int) -> dict[str, float]:
        return self.own.exploring(step)

    def for_actor(self, actor: int) -> "OwnAgent":
        other = copy.copy(self)
        other.member = actor
        return other

    def published(self) -> np.ndarray:
        """What every agent publishes, and behind it what else the networks keep (buffers)."""
        kept = [b.detach().cpu().float().flatten().numpy() for b in self.online.buffers()]
        return np.concatenate([super().published(), *kept]) if kept else super().published()

    def adopt(self, published: np.ndarray) -> None:
        """What another process published; parameters alone were read into their place."""
        buffers, flat = list(self.online.buffers()), self.online.flat
        kept = sum(part.numel() for part in buffers)
        usual = published[: len(published) - kept]
        super().adopt(usual)
        flat.copy_(torch.from_numpy(usual[: flat.numel()]))
        at = len(usual)
        for part in buffers:
            own = published[at : at + part.numel()]
            part.copy_(torch.from_numpy(own).view_as(part))
            at += part.numel()

    # learning

    def learn(self, loss: torch.Tensor) -> torch.Tensor:
        """One update by a loss; returns the gradient's norm before it was clipped."""
        self.online.flat_grad.zero_()
        loss.backward()
        return apply_gradient(self, value_at(self.config.lr, self.at)).squeeze()

    def set_lr(self, lr: Any) -> None:
        super().set_lr(lr)
        self.own.settings = self.config

    # state

    def policy_state(self) -> dict[str, Any]:
        buffers = {f"buffer.{name}": value for name, value in self.online.named_buffers()}
        return super().policy_state() | buffers


class OwnPolicy(nn.Module):
    """What the user's function does without draws, as a module to be exported."""

    def __init__(self, agent: OwnAgent, sample: bool) -> None:
        super().__init__()
        if sample:
            raise ConfigError("--sample", "is not for an algorithm of one's own: leave it out.")
        self.agent, self.online = agent, agent.online

    def forward(
        self, rows: torch.Tensor, *more: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.agent.own.act(self.agent.to_net(rows), None)
        if self.agent.shape:
            return found[:, :0].long(), found.float()
        return found.long()[:, None], found.float()[:, None][:, :0]


class OwnActing(SimpleActing):
    """How an actor acts: by the user's function."""

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        row["action"][...] = self.agent.explore(self.envs.obs, rounds)
        return self.agent.for_env(row["action"])


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
        self.note_first()

    @property
    def memory(self) -> str:
        size = sum(array.nbytes for array in self.rollout.values()) / 2**20
        return f"rollouts of {self.steps:,} x {self.envs.num_envs:,} steps take {size:,.1f} MiB"

    def statistics(self) -> dict[str, float]:
        found = {name: float(total) / self.counted for name, total in self.sums.items()}
        self.sums, self.counted = {}, 0
        return found | self.pool.report()

    def explore(self, step: int, rounds: int) -> np.ndarray:
        self.rollout["action"][self.count] = self.agent.explore(self.envs.obs, rounds)
        return self.agent.for_env(self.rollout["action"][self.count])

    @property
    def left(self) -> int:
        return self.steps - self.count

    def begin_row(self) -> None:
        self.rollout["obs"][self.count] = self.envs.obs

    def forget(self) -> None:
        self.count = 0

    def acted(self) -> dict[str, np.ndarray]:
        return {"action": self.rollout["action"][self.count]}

    def store(self) -> None:
        envs, t, rows = self.envs, self.count, self.rollout
        for name in ("reward", "terminated", "truncated", "skipped"):
            rows[name][t] = getattr(envs, name)
        rows["next_obs"][t] = envs.obs
        ended = envs.terminated | envs.truncated
        rows["next_obs"][t][ended] = envs.final_obs[ended]
        self.note_seen(envs.obs)
        self.count += 1

    def learn(self) -> None:
        self.clock.start()
        agent, rows = self.agent, {k: torch.from_numpy(v) for k, v in self.rollout.items()}
        agent.at, self.count = self.step, 0
        for name in ("obs", "next_obs"):
            rows[name] = agent.to_net(rows[name].flatten(0, 1)).unflatten(0, rows[name].shape[:2])
        for name in ("terminated", "truncated", "skipped"):
            rows[name] = rows[name].float()
        rows = {name: value.to(agent.device) for name, value in rows.items()}
        weight, boundary = 1 - rows.pop("skipped"), rows["terminated"] + rows["truncated"]
        rollout = Rollout(**rows, weight=weight, boundary=boundary.clamp(max=1))
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

    def counters(self) -> dict[str, np.ndarray]:
        more = {"count": np.array(self.count), "counted": np.array(self.counted)}
        return super().counters() | more

    def memory_state(self) -> State:
        rows = {name: array[: self.count] for name, array in self.rollout.items()}
        return {"rollout": rows, "sums": {n: np.asarray(v) for n, v in self.sums.items()}}

    def load_memory(self, state: State, with_rows: bool) -> None:
        self.count, self.counted = (int(state["serial"][name]) for name in ("count", "counted"))
        self.sums = {n: torch.as_tensor(np.array(v)) for n, v in state.get("sums", {}).items()}
        for name, array in self.rollout.items():
            if self.count:
                array[: self.count] = state["rollout"][name]
