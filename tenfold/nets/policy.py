"""The networks of a policy on one flat buffer: with the value of the state (`PolicyNetwork`), or
with critics of state and action (`ActorCritics`)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.config.networks import Net, PolicyNet
from tenfold.core.errors import ConfigError, UserError, described
from tenfold.core.random import Purpose, draw_bits, fill_normal, key
from tenfold.core.registry import import_by_name
from tenfold.nets.layers import FlatModule, Layer, draw_uniform_start, layers_of
from tenfold.ops.activations import activation_of

Draw = Callable[[torch.Tensor, float], None]  # orthogonal weights of this gain into a tensor
# of orthogonal weights: between layers, of the last ones
OUTER_GAIN, POLICY_GAIN, VALUE_GAIN = math.sqrt(2), 0.01, 1.0


class Tower(nn.Module):
    """Convolutions if the input is an image, then fully connected layers, which read
    `extra_inputs` more numbers. As `members` towers at once it takes and gives these in front."""

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        net: Net,
        extra_inputs: int = 0,
        members: int | None = None,
    ) -> None:
        super().__init__()
        self.lead = 1 if members is None else 2
        self.activation = activation_of(net.activation)
        self.convolutions, self.layers, self.sizes = layers_of(
            shape, outputs, net, members, extra_inputs=extra_inputs
        )

    def forward(self, x: torch.Tensor, extra: torch.Tensor | None = None) -> torch.Tensor:
        for convolution in self.convolutions:
            x = self.activation(convolution(x))
        x = x.flatten(self.lead)
        x = self.layers[0](x if extra is None else torch.cat([x, extra], -1))
        return self.rest(x)

    def draw_start(self, draw: Draw, gain: float) -> None:
        """Orthogonal weights, those of the last layer times `gain`, and zero biases."""
        layers = [*self.convolutions, *self.layers]
        for layer in layers:
            assert isinstance(layer, Layer)
            layer.bias.zero_()
            draw(layer.weight, gain if layer is layers[-1] else OUTER_GAIN)

    def rest(self, x: torch.Tensor) -> torch.Tensor:
        """What follows the first fully connected layer's sums."""
        for layer in list(self.layers)[1:]:
            x = layer(self.activation(x))
        return x


class PolicyNetwork(FlatModule):
    """Observation [B, *shape] -> (logits and means [B, M + D], value [B], or [B, columns]).
    Parameters in this order: deviations, the body that both share (where there is one), policy,
    value, critic (of observation and one-hot action, where there is one)."""

    state_size = hidden_size = 0  # numbers that the policy, and both networks, remember

    def __init__(
        self,
        shape: tuple[int, ...],
        options: int,
        reals: int,
        net: PolicyNet,
        scale: float = 1.0,
        critic: bool = False,
        columns: int = 0,
    ) -> None:
        """`columns` of the value, where it is not one number."""
        super().__init__()
        self.scale, self.columns, self.init = scale, columns, net.init
        self.module_name = net.module
        self.activation = activation_of(net.activation)
        self.body = Tower(shape, net.hidden[0], net.body) if net.shared_body else None
        if self.body:
            shape, net = net.hidden[:1], net.behind_body
        self.shape, self.outputs = shape, options + reals
        self.policy: Any = self.tower(shape, options + reals, net)
        self.log_std = nn.Parameter(torch.zeros(reals))
        self.value: Any = self.tower(shape, columns or 1, net.of_value)
        if critic and self.module_name:
            raise ConfigError(
                "agent.net.module", "is not for counterfactual baselines: leave one of them out."
            )
        inputs = (math.prod(shape) + options,)
        self.critic = Tower(inputs, 1, net.of_value) if critic else None
        self.flatten()

    def tower(self, shape: tuple[int, ...], outputs: int, net: PolicyNet) -> Any:
        """Ours, or the user's."""
        if net.module:
            return own_network(net.module, shape, outputs)
        return Tower(shape, outputs, net)

    def initialise(self, seed: int, std: float) -> "PolicyNetwork":
        """Orthogonal weights and zero biases; a small last layer, so that the first policy is
        nearly uniform. `net.init` may ask for torch's start instead. Networks of one's own see to
        that themselves."""
        if self.module_name:
            self.policy = own_network(self.module_name, self.shape, self.outputs, seed)
            self.value = own_network(self.module_name, self.shape, self.columns or 1, seed, 1)
            with torch.no_grad():
                self.log_std.fill_(math.log(std))
            return self.flatten()
        stream = key(seed, Purpose.INIT)
        if self.init == "torch":
            draw_uniform_start(self, stream)
        else:
            self.draw_orthogonal(stream)
        with torch.no_grad():
            self.log_std.fill_(math.log(std))
        return self

    @torch.no_grad()
    def draw_orthogonal(self, stream: np.uint64) -> None:
        used = 0

        def draw(weight: torch.Tensor, gain: float) -> None:
            nonlocal used
            noise = fill_normal(stream, used, np.zeros(weight.numel()))
            used += noise.size
            matrix = orthogonal(noise.reshape(len(weight), -1)) * gain
            weight.copy_(torch.from_numpy(matrix).view_as(weight))

        gains = (OUTER_GAIN, POLICY_GAIN, VALUE_GAIN, VALUE_GAIN)
        for tower, gain in zip(
            (self.body, self.policy, self.value, self.critic), gains, strict=True
        ):
            if tower:
                tower.draw_start(draw, gain)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.features(obs)
        return self.policy(x), self.valued(self.value(x))

    # one step of each environment; a network without a memory passes the empty state on

    def step(
        self, obs: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(logits and means, values, next state) for states [B, hidden_size]."""
        return *self(obs), state

    def policy_step(
        self, obs: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The policy alone, for states [B, state_size]: (logits and means, next state)."""
        return self.policy(self.features(obs)), state

    def values(self, obs: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return self.valued(self.value(self.features(obs)))

    def valued(self, output: torch.Tensor) -> torch.Tensor:
        """The value network's output [B, 1] as [B]; columns stay."""
        return output if self.columns else output.squeeze(-1)

    def scaled(self, obs: torch.Tensor) -> torch.Tensor:
        x = obs.to(self.flat.dtype)
        return x * self.scale if self.scale != 1.0 else x

    def features(self, obs: torch.Tensor) -> torch.Tensor:
        """What policy and value read: observations, or the shared body's output."""
        x = self.scaled(obs)
        return self.activation(self.body(x)) if self.body else x


def orthogonal(matrix: np.ndarray) -> np.ndarray:
    """Orthonormal rows, or columns where there are fewer of these, by QR decomposition (Saxe et
    al., 2014)."""
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))
    return np.ascontiguousarray(q if tall is matrix else q.T)


def own_network(
    name: str, shape: tuple[int, ...], outputs: int, seed: int = 0, member: int = 0
) -> nn.Module:
    """The user's network (`--agent.net.module my_nets:MyNet`), made as `MyNet(shape, outputs)` with
    torch seeded; refused where it does not map observations [B, *shape] to [B, outputs]."""
    kind: Any = import_by_name(name)
    with torch.random.fork_rng():
        torch.manual_seed(int(draw_bits(key(seed, Purpose.INIT, member), 0)) >> 1)
        try:
            made = kind(shape, outputs)
            output = made(torch.zeros(2, *shape))
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
    if not isinstance(made, nn.Module) or tuple(output.shape) != (2, outputs):
        raise ConfigError(
            "agent.net.module",
            f"= {name} does not fit: it must be a torch.nn.Module that gives [B, {outputs}], and "
            f"gave {list(getattr(output, 'shape', []))} for B = 2.",
        )
    return made


# a policy and the critics that value its actions, on one flat buffer: policy, first critic, second
# critic, logarithm of the temperature


@dataclass(frozen=True)
class Sizes:
    """Sizes of the inputs and outputs of the networks."""

    shape: tuple[int, ...]  # of an observation
    policy_outputs: int  # numbers the policy gives for one
    reals: int  # of an action, which critics read beside it
    values: int  # that a critic has for one
    critics: int = 2
    scale: float = 1.0  # of observations


class Temperature(nn.Module):
    """What entropy is worth, by its logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(1))


class ActorCritics(FlatModule):
    """Observation [B, *shape] and action [B, reals] -> the critics' values [critics, B, values];
    `policy_output`: observation -> [B, policy_outputs]. A target may have critics alone."""

    def __init__(
        self, sizes: Sizes, net: Net, actor: bool = True, temperature: bool = False
    ) -> None:
        super().__init__()
        self.size = sizes
        self.actor: Any = Tower(sizes.shape, sizes.policy_outputs, net) if actor else None
        self.critics = nn.ModuleList(
            Tower(sizes.shape, sizes.values, net.of_value, sizes.reals)
            for _ in range(sizes.critics)
        )
        self.temperature: Any = Temperature() if temperature else None
        self.flatten()
        lengths = [
            (name, sum(p.numel() for p in part.parameters()))
            for name, part in self.named_children()
        ]
        ends = np.cumsum([length for _, length in lengths]).tolist()
        # where each part lies in the flat buffer
        self.places = {
            name: slice(end - length, end)
            for (name, length), end in zip(lengths, ends, strict=True)
        }

    def initialise(self, seed: int, temperature: float = 1.0) -> "ActorCritics":
        """Weights and biases uniform within ±1/√inputs (torch's default)."""
        draw_uniform_start(self, key(seed, Purpose.INIT))
        if self.temperature:
            with torch.no_grad():
                self.temperature.log.fill_(math.log(temperature))
        return self

    def forward(self, obs: torch.Tensor, action: torch.Tensor | None) -> torch.Tensor:
        """The critics' values."""
        x = self.scaled(obs)
        return torch.stack([critic(x, action) for critic in self.critics])

    def policy_output(self, obs: torch.Tensor) -> torch.Tensor:
        """The policy's."""
        return self.actor(self.scaled(obs))

    def first_values(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Those of the first critic alone [B, values]."""
        return self.critics[0](self.scaled(obs), action)

    def scaled(self, obs: torch.Tensor) -> torch.Tensor:
        x = obs.to(self.flat.dtype)
        return x * self.size.scale if self.size.scale != 1.0 else x


class StackedTowers(FlatModule):
    """Towers of one shape as one, on a buffer that holds one after another."""

    def __init__(self, network: ActorCritics, net: Net) -> None:
        super().__init__()
        size, critics = network.size, network.places["critics"]
        self.members = self.many = size.critics
        self.towers = Tower(size.shape, size.values, net.of_value, size.reals, size.critics)
        buffers = (
            flat[critics].view(size.critics, -1) for flat in (network.flat, network.flat_grad)
        )
        flat, grad = buffers
        kept = flat.clone()
        self.towers.to(flat.device)
        self.flatten(flat, grad).flat.copy_(kept)

    def forward(self, x: torch.Tensor, action: torch.Tensor | None) -> torch.Tensor:
        inputs = (None if t is None else t.expand(self.many, *t.shape) for t in (x, action))
        return self.towers(*inputs)


class Stacked(nn.Module):
    """`ActorCritics` on the very same buffers, whose critics are one product a layer: fewer kernels
    on a GPU."""

    def __init__(self, network: ActorCritics, net: Net) -> None:
        super().__init__()
        self.network, self.critics = network, StackedTowers(network, net)
        self.actor, self.temperature = network.actor, network.temperature
        self.policy_output = network.policy_output

    def forward(self, obs: torch.Tensor, action: torch.Tensor | None) -> torch.Tensor:
        return self.critics(self.network.scaled(obs), action)

    def first_values(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.network.first_values(obs, action)
