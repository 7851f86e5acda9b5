"""Networks of one's own in place of ours: `--agent.net.module my_nets:MyNet`.

The class is made as `MyNet(shape, outputs)` and maps observations [B, *shape] to [B, outputs];
torch is seeded by the run before. Its parameters then lie in one flat buffer like those of ours.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tenfold.core.errors import ConfigError, UserError, described
from tenfold.core.random import Purpose, draw_bits, key
from tenfold.core.registry import own
from tenfold.nets.flat import FlatModule
from tenfold.ops.qlearning import dueling

if TYPE_CHECKING:  # a type alone
    from tenfold.algorithms.dqn_settings import DQN


def own_network(
    name: str, shape: tuple[int, ...], outputs: int, seed: int = 0, member: int = 0
) -> nn.Module:
    """The user's network, with weights that follow from the seed; one that does not fit is
    refused."""
    kind: Any = own(name)
    with torch.random.fork_rng():
        torch.manual_seed(int(draw_bits(key(seed, Purpose.INIT, member), 0)) >> 1)
        try:
            made = kind(shape, outputs)
            found = made(torch.zeros(2, *shape))
        except UserError:
            raise
        except Exception as error:  # the user's own code may complain in any way it likes
            raise ConfigError(
                "agent.net.module",
                f"= {name} cannot be used: {name.partition(':')[2]}(shape, outputs) is made with "
                f"{shape}, {outputs}, and given [2, {', '.join(map(str, shape))}] "
                f"({described(error)}).",
            ) from None
    if isinstance(made, nn.Module) and not list(made.parameters()):
        raise ConfigError(
            "agent.net.module", f"= {name} has no parameters, so there is nothing to learn."
        )
    if not isinstance(made, nn.Module) or tuple(found.shape) != (2, outputs):
        raise ConfigError(
            "agent.net.module",
            f"= {name} does not fit: it must be a torch.nn.Module that gives [B, {outputs}], and "
            f"gave {list(getattr(found, 'shape', []))} for B = 2.",
        )
    return made


class OwnQNetwork(FlatModule):
    """As `QNetwork`: observation [B, *shape] -> action values [B, A, N]."""

    noise_size, members = 0, None

    def __init__(
        self, shape: tuple[int, ...], actions: int, config: "DQN", scale: float = 1.0
    ) -> None:
        super().__init__()
        if config.implicit or config.sigma:
            raise ConfigError(
                "agent.net.module",
                "is for plain and quantile values: leave out implicit quantiles and noisy layers.",
            )
        self.name, self.shape, self.actions, self.scale = config.net.module, shape, actions, scale
        self.atoms, self.dueling = config.atoms, config.dueling
        self.outputs = (actions + self.dueling) * self.atoms
        self.sizes = (math.prod(shape), self.outputs)
        self.body = own_network(self.name, shape, self.outputs)
        self.flatten()

    def initialise(self, seeds: Sequence[int], member: int = 0) -> "OwnQNetwork":
        self.body = own_network(self.name, self.shape, self.outputs, seeds[0], member)
        return self.flatten()

    def forward(
        self,
        obs: torch.Tensor,
        noise: torch.Tensor | None = None,
        fractions: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = obs.to(self.flat.dtype)
        x = self.body(x * self.scale if self.scale != 1.0 else x)
        x = x.view(obs.shape[0], self.actions + self.dueling, self.atoms)
        return dueling(x) if self.dueling else x
