"""What the value's network may have of its own: a learning rate, and a loss that is divided by the
running variance of its targets. Both are part of the gradient step, whatever the loss."""

from typing import Any

import numpy as np
import torch

from tenfold.algorithms.ppo_settings import PPO
from tenfold.config.schedules import value_at
from tenfold.core.errors import CheckpointError, ConfigError
from tenfold.core.kernels import as_numbers
from tenfold.engines.plain import apply_gradient
from tenfold.ops.adam import adam, clip
from tenfold.ops.moments import RunningNorm


class ValueStep:
    """The gradient step of an agent whose value's parameters are the last of its flat buffer, from
    `start` on."""

    def __init__(self, config: PPO, network: Any) -> None:
        self.schedule, self.lr = config.value_lr, 0.0
        self.norm = RunningNorm(1) if config.normalize_value else None
        self.start = value_start(network, config) if self.differs else 0

    @property
    def differs(self) -> bool:
        """Whether the value's part of a step differs from the policy's."""
        return self.schedule is not None or self.norm is not None

    @property
    def why_not(self) -> str:
        """What keeps engines that make other steps, in words."""
        return "the value has a learning rate or a scale of its own" if self.differs else ""

    def add(self, target: np.ndarray | torch.Tensor) -> None:
        """Counts the targets of a rollout."""
        if self.norm:
            rows = target.cpu().numpy() if isinstance(target, torch.Tensor) else target
            self.norm.update(rows.reshape(-1, 1))

    def begin(self, step: int) -> None:
        """Before the updates of a learning phase."""
        self.lr = 0.0 if self.schedule is None else value_at(self.schedule, step)

    def apply(self, agent: Any, lr: float) -> torch.Tensor:
        """One step by the gradient in the agent's buffer; returns its norm before it was
        clipped."""
        if not self.differs:
            return apply_gradient(agent, lr)
        agent.updates += 1
        config, grad = agent.config, agent.online.flat_grad
        if self.norm:
            grad[self.start :] *= float(np.float32(self.norm.inv_std[0] ** 2))
        limit = config.clip_norm
        norm = clip(grad, limit)[1] if limit else grad.norm(dim=-1, keepdim=True)
        buffers = agent.online.flat, grad, agent.exp_avg, agent.exp_avg_sq
        rates = lr, lr if self.schedule is None else self.lr
        for columns, rate in zip((slice(self.start), slice(self.start, None)), rates, strict=True):
            slices = [buffer[columns] for buffer in buffers]
            adam(*slices, agent.updates, rate, config.adam_eps, config.weight_decay)
        return norm

    def columns(self) -> dict[str, np.ndarray]:
        """As kernels read it: moments [3, 0] where the loss is not divided."""
        return {
            "value_count": self.norm.count if self.norm else np.zeros(1, np.int64),
            "value_norm": self.norm.moments if self.norm else np.zeros((3, 0)),
            "value_start": np.array([self.start, self.schedule is not None], np.int64),
            "value_lr": np.array(as_numbers(self.schedule or 0.0), np.float64),
        }

    def state(self) -> dict[str, torch.Tensor]:
        norm = self.norm.state() if self.norm else {}
        return {f"value_{name}": torch.from_numpy(value) for name, value in norm.items()}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        if self.norm:
            if "value_m2" not in state:
                raise CheckpointError(
                    "The checkpoint has no statistics of value targets: leave out "
                    "agent.normalize_value."
                )
            names = ("count", "mean", "m2")
            self.norm.load_state({name: state[f"value_{name}"].numpy() for name in names})


def value_start(network: Any, config: PPO) -> int:
    """Where the value's parameters begin in the flat buffer; refuses networks in which they are not
    apart, and the last."""
    value, flat = getattr(network, "value", None), network.flat
    parameters = [] if value is None else [*value.parameters()]
    start = min((p.data_ptr() - flat.data_ptr() for p in parameters), default=0)
    start //= flat.element_size()
    last = start + sum(p.numel() for p in parameters) == flat.numel()
    if not parameters or not last or config.net.shared_body or network.critic is not None:
        name = "value_lr" if config.value_lr is not None else "normalize_value"
        raise ConfigError(
            f"agent.{name}",
            "is for a value with a network of its own, which the agent does not have here: leave "
            "it out.",
        )
    return start
