"""The agent of an algorithm of one's own: the user's networks behind the interface of an agent."""

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from tenfold.algorithms.own import Algorithm, Draw
from tenfold.config.schedules import value_at
from tenfold.core.errors import CheckpointError, ConfigError, UserError, told_of
from tenfold.core.protocols import EnvSpec, Policy
from tenfold.core.spaces import policy_actions
from tenfold.nets.flat import FlatModule
from tenfold.ops.adam import adam, clip

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.envs.adapter import Environments

ADAM_EPS = 1e-8


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


class OwnAgent:
    """The user's networks, how they act, Adam's moments and the count of updates."""

    frames, reads_masks = 1, False

    def __init__(self, own: Algorithm, run: "Run", spec: EnvSpec) -> None:
        self.config: Any = run.agent
        self.layout, self.seed, self.member = spec.layout, run.seed, 0
        self.actions = policy_actions(spec.action_space, run.env)
        self.shape, _ = action_form(spec.action_space, run.env)
        self.device = torch.device("cpu" if run.device == "auto" else run.device)
        self.own = own
        self.own.spec, self.own.settings, self.own.agent = spec, self.config, self
        self.name = type(own).__name__
        if not hasattr(self.config, "lr"):
            raise UserError(f"The settings of {self.name} have no lr, the learning rate of step.")
        with torch.random.fork_rng(), told_of(f"{self.name}.build"):
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

    def act(self, obs: Any, mask: Any = None) -> Any:
        """The best action for one observation or a batch, in the environment's own numbers."""
        rows, single = self.layout.rows_of(obs)
        found = self.for_env(self.choose(rows, None))
        return (found[0] if self.shape else int(found[0])) if single else found

    def to_net(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [B, …] as networks take them: floats, images with their channels in front."""
        rows = rows.to(self.device)
        if len(self.layout.shape) == 3:
            rows = self.layout.to_net(rows)
        return rows.float() * self.layout.scale

    def exploring(self, step: int) -> dict[str, float]:
        return self.own.exploring(step)

    def for_actor(self, index: int) -> "OwnAgent":
        other = copy.copy(self)
        other.member = index
        return other

    def published(self) -> np.ndarray:
        """Parameters, and behind them what else the networks keep (buffers)."""
        flat = self.online.flat.detach().cpu().numpy()
        kept = [b.detach().cpu().float().flatten().numpy() for b in self.online.buffers()]
        return np.concatenate([flat, *kept]) if kept else flat

    def adopt(self, published: np.ndarray) -> None:
        """What another process published; without buffers it was read into the parameters."""
        parts = [self.online.flat, *self.online.buffers()]
        if len(parts) > 1:
            ends = np.cumsum([part.numel() for part in parts])
            for part, own in zip(parts, np.split(published, ends[:-1]), strict=True):
                part.copy_(torch.from_numpy(own).view_as(part))

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
