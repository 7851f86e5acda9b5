"""Agent and learner of a custom algorithm: the user's networks behind the interface of an agent,
rollouts for the user's `round`."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tenfold.actors.actor import SimpleActing
from tenfold.algorithms.agent import FlatAgent, refuse_state
from tenfold.algorithms.custom import Algorithm, Draw, Rollout
from tenfold.algorithms.on_policy import OnPolicyLearner
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError, UserError, told_of
from tenfold.core.protocols import EnvSpec, Policy, State
from tenfold.core.random import Purpose, draw_bits, key
from tenfold.core.spaces import policy_actions
from tenfold.engines.plain import apply_gradient
from tenfold.nets.layers import FlatModule

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
                    "self.step(loss) is one, with the settings lr, clip_norm, adam_eps and "
                    "weight_decay."
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


class CustomAgent(FlatAgent):
    """The user's networks, how they act, Adam's moments and the count of updates."""

    def __init__(self, algorithm: Algorithm, run: "Run", spec: EnvSpec) -> None:
        self.config: Any = run.agent
        self.layout, self.seed = spec.layout, run.seed
        self.actions = policy_actions(spec.action_space, run.env)
        self.shape, _ = action_form(spec.action_space, run.env)
        self.device = torch.device("cpu" if run.device == "auto" else run.device)
        self.algorithm = algorithm
        algorithm.spec, algorithm.settings, algorithm.agent = spec, self.config, self
        self.name = type(algorithm).__name__
        if run.normalize_obs:
            self.normalise(self.layout, "mlp" if len(self.layout.net_shape) == 1 else "other")
        if not hasattr(self.config, "lr"):
            raise UserError(f"The settings of {self.name} have no lr, the learning rate of step.")
        with torch.random.fork_rng(), told_of(f"{self.name}.build"):
            torch.manual_seed(run.seed)
            algorithm.build(spec, self.config)
        self.online = Networks(algorithm).to(self.device)
        self.online.flatten()
        self.exp_avg, self.exp_avg_sq = (torch.zeros_like(self.online.flat) for _ in range(2))
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
            action = self.algorithm.act(self.to_net(torch.from_numpy(rows)), draw).cpu().numpy()
        if action.shape != (len(rows), *self.shape):
            raise UserError(
                f"{self.name}.act gave actions of shape {action.shape} for {len(rows)} "
                f"observations, and must give {(len(rows), *self.shape)}."
            )
        if not self.shape and not ((action >= 0) & (action < self.actions.sizes[0])).all():
            raise UserError(
                f"{self.name}.act gave action {action.max()}, and there are "
                f"{self.actions.sizes[0]}, from 0 on."
            )
        if not np.isfinite(action).all():
            raise UserError(f"{self.name}.act gave an action that is not finite.")
        return action.astype(np.float32 if self.shape else np.int64)

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
        action = self.for_env(self.choose(rows, None))
        return (action[0] if self.shape else int(action[0])) if single else action

    def to_net(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [B, …] as networks take them: floats, images with their channels in front."""
        rows = self.normalised_rows(rows.to(self.device))
        if len(self.layout.net_shape) == 3 or self.layout.frame:
            rows = self.layout.to_net(rows)
        return rows.float() * (1.0 if self.norm else self.layout.scale)

    def exploring(self, step: int) -> dict[str, float]:
        return self.algorithm.exploring(step)

    def for_actor(self, actor: int) -> "CustomAgent":
        other = copy.copy(self)
        other.member = actor
        return other

    def published(self) -> np.ndarray:
        """What every agent publishes, and behind it what else the networks keep (buffers)."""
        buffers = [b.detach().cpu().float().flatten().numpy() for b in self.online.buffers()]
        return np.concatenate([super().published(), *buffers])

    def adopt(self, published: np.ndarray) -> None:
        """What another process published; parameters alone were read into their place."""
        buffers, flat = list(self.online.buffers()), self.online.flat
        at = len(published) - sum(buffer.numel() for buffer in buffers)
        super().adopt(published[:at])
        flat.copy_(torch.from_numpy(published[: flat.numel()]))
        for buffer in buffers:
            values = published[at : at + buffer.numel()]
            buffer.copy_(torch.from_numpy(values).view_as(buffer))
            at += buffer.numel()

    # learning

    def learn(self, loss: torch.Tensor) -> torch.Tensor:
        """One update by a loss; returns the gradient's norm before it was clipped."""
        self.online.flat_grad.zero_()
        loss.backward()
        return apply_gradient(self, value_at(self.config.lr, self.at)).squeeze()

    def set_lr(self, lr: Any) -> None:
        super().set_lr(lr)
        self.algorithm.settings = self.config

    # state

    def policy_state(self) -> dict[str, Any]:
        buffers = {f"buffer.{name}": value for name, value in self.online.named_buffers()}
        return super().policy_state() | buffers


class CustomPolicy(nn.Module):
    """What the user's function does without draws, as a module to be exported."""

    def __init__(self, agent: CustomAgent, sample: bool) -> None:
        super().__init__()
        if sample:
            raise ConfigError("--sample", "is not for an algorithm of one's own: leave it out.")
        self.agent, self.online = agent, agent.online

    def forward(
        self, rows: torch.Tensor, *more: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        action = self.agent.algorithm.act(self.agent.to_net(rows), None)
        if self.agent.shape:
            return action[:, :0].long(), action.float()
        return action.long()[:, None], action.float()[:, None][:, :0]


class CustomActing(SimpleActing):
    """How an actor acts: by the user's function."""

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        row["action"][...] = self.agent.explore(self.envs.obs, rounds)
        return self.agent.for_env(row["action"])


class StepArrays:
    """A rollout for the user's `round`: T steps of B environments."""

    def __init__(self, horizon: int, envs: Any, action: tuple[tuple[int, ...], str]) -> None:
        size, (shape, dtype) = (horizon, envs.num_envs), action
        self.horizon, self.count = horizon, 0
        self.arrays = {
            "obs": np.zeros((*size, *envs.layout.shape), envs.layout.dtype),
            "next_obs": np.zeros((*size, *envs.layout.shape), envs.layout.dtype),
            "action": np.zeros((*size, *shape), dtype),
            "reward": np.zeros(size, np.float32),
            **{name: np.zeros(size, np.bool_) for name in ("terminated", "truncated", "skipped")},
        }

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def left(self) -> int:
        return self.horizon - self.count

    def begin_row(self, obs: np.ndarray, mask: np.ndarray | None) -> None:
        self.arrays["obs"][self.count] = obs

    def acted(self) -> dict[str, np.ndarray]:
        return {"action": self.arrays["action"][self.count]}

    def forget(self) -> None:
        self.count = 0

    def store(self, envs: Any) -> None:
        """What a step brought."""
        t, arrays = self.count, self.arrays
        for name in ("reward", "terminated", "truncated", "skipped"):
            arrays[name][t] = getattr(envs, name)
        arrays["next_obs"][t] = envs.obs
        ended = envs.terminated | envs.truncated
        arrays["next_obs"][t][ended] = envs.final_obs[ended]
        self.count += 1

    def state(self) -> dict[str, np.ndarray]:
        return {name: array[: self.count] for name, array in self.arrays.items()}

    def load_state(self, state: dict[str, np.ndarray], count: int) -> None:
        self.count = count
        for name, array in self.arrays.items() if count else ():
            array[:count] = state[name]


class CustomLearner(OnPolicyLearner):
    """Fills a rollout with what the actors bring, and gives it to the user's `round`."""

    agent: CustomAgent
    rollout: StepArrays
    engine_choice = "plain, the algorithm's own"

    def __init__(self, run: "Run") -> None:
        super().__init__(run)
        if run.engine not in ("auto", "plain") or run.verify:
            raise ConfigError(
                "engine",
                f"= {run.engine}, verify = {run.verify}: an algorithm of one's own has "
                "the plain engine only; leave them out.",
            )
        horizon = getattr(run.agent, "horizon", type(self.agent.algorithm).horizon)
        action = action_form(self.envs.action_space, run.env)
        self.rollout = StepArrays(horizon, self.envs, action)
        self.sums: dict[str, torch.Tensor] = {}  # of the numbers that rounds returned
        self.counted = 0
        self.begin()

    def statistics(self) -> dict[str, float]:
        means = {name: float(total) / self.counted for name, total in self.sums.items()}
        self.sums, self.counted = {}, 0
        return means | self.pool.report()

    def explore(self, step: int, rounds: int) -> np.ndarray:
        action = self.rollout.acted()["action"]
        action[...] = self.agent.explore(self.envs.obs, rounds)
        return self.agent.for_env(action)

    def store(self) -> None:
        self.rollout.store(self.envs)
        self.note_seen(self.envs.obs)

    def learn(self) -> None:
        self.clock.start()
        agent, arrays = self.agent, self.rollout.arrays
        rows = {name: torch.from_numpy(array) for name, array in arrays.items()}
        agent.at, self.rollout.count = self.step, 0
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
            metrics = agent.algorithm.round(rollout)
        if not isinstance(metrics, Mapping):
            raise UserError(f"{agent.name}.round returned {metrics!r:.40}, and must return a dict.")
        for name, value in metrics.items():
            with told_of(f"What {agent.name}.round returned as {name} is no number: it"):
                number = torch.as_tensor(value).detach().cpu().reshape(())
            self.sums[name] = self.sums.get(name, torch.zeros(())) + number
        self.counted += 1
        self.clock.lap("update")

    def counters(self) -> dict[str, np.ndarray]:
        more = {"count": np.array(self.rollout.count), "counted": np.array(self.counted)}
        return super().counters() | more

    def memory_state(self) -> State:
        return super().memory_state() | {
            "sums": {name: np.asarray(total) for name, total in self.sums.items()}
        }

    def load_memory(self, state: State, with_rows: bool) -> None:
        count, self.counted = (int(state["serial"][name]) for name in ("count", "counted"))
        self.sums = {n: torch.as_tensor(np.array(v)) for n, v in state.get("sums", {}).items()}
        self.rollout.load_state(state.get("rollout", {}), count)
