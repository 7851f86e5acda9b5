"""The networks of a policy that remembers: in front the usual layers, then a memory, then those of
`net.after` and a linear one. Policy and value have a memory each: what one has to remember is not
bent by the other's gradient, as with everything else they have."""

import math
from typing import Any, NamedTuple

import torch
from torch import nn

from tenfold.config.networks import LSTM, PolicyNet
from tenfold.nets.layers import Layer, layers_of
from tenfold.nets.policy import OUTER_GAIN, Draw, PolicyNetwork, Tower
from tenfold.ops.activations import activation_of
from tenfold.ops.recurrence import GRU_GATES, LSTM_GATES, recur


class Sequences(NamedTuple):
    """B sequences of T rows, and what was remembered in front of them."""

    rows: torch.Tensor  # as the network takes them, [T·B, …], time by time
    keep: torch.Tensor  # [T, B]: 0 where a row begins an episode, else 1
    state: torch.Tensor  # [B, S]


def sequences(rows: torch.Tensor, boundary: torch.Tensor, state: torch.Tensor) -> Sequences:
    """Of rows [T·B, …] and the ends of episodes [T, B]: what follows one begins another. States
    [B, S] are those in front of the first row, in which an end before it is seen to already."""
    keep = torch.cat([torch.ones_like(boundary[:1]), 1 - boundary[:-1]])
    return Sequences(rows, keep, state)


def one_step(rows: torch.Tensor, state: torch.Tensor) -> Sequences:
    """A row of each lane [B, …], and what is remembered there."""
    return Sequences(rows, torch.ones(1, rows.shape[0], device=rows.device), state)


class RecurrentLayer(nn.Module):
    """torch.nn.GRU or torch.nn.LSTM of one layer, which forgets where an episode begins."""

    def __init__(self, inputs: int, net: PolicyNet) -> None:
        super().__init__()
        assert net.memory
        self.size = net.memory.size
        self.gates = LSTM_GATES if isinstance(net.memory, LSTM) else GRU_GATES
        self.state_size = self.size * net.memory.kinds
        self.bound = 1 / math.sqrt(self.size)  # of torch's initial values
        rows = self.gates * self.size
        self.weight_ih = nn.Parameter(torch.zeros(rows, inputs))
        self.weight_hh = nn.Parameter(torch.zeros(rows, self.size))
        self.bias_ih = nn.Parameter(torch.zeros(rows))
        self.bias_hh = nn.Parameter(torch.zeros(rows))

    def forward(
        self, x: torch.Tensor, state: torch.Tensor, keep: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return recur(x, state, keep, *weights)


class MemoryTower(nn.Module):
    """Convolutions if the input is an image, fully connected layers with an activation behind each,
    a memory, layers behind it (`head`), of which the last is linear."""

    def __init__(self, shape: tuple[int, ...], outputs: int, net: PolicyNet) -> None:
        super().__init__()
        self.activation = activation_of(net.activation)
        self.convolutions, layers, sizes = layers_of(shape, outputs, net)
        self.layers, self.sizes = layers[:-1], sizes[:-1]
        self.memory = RecurrentLayer(self.sizes[-1], net)
        self.head = Tower((self.memory.size,), outputs, net.behind_memory)

    def draw_start(self, draw: Draw, gain: float) -> None:
        """As `Tower.draw_start`; a memory's matrices are orthogonal, and an LSTM begins by keeping
        what it holds (forget gates of bias 1: Jozefowicz et al., 2015)."""
        for layer in [*self.convolutions, *self.layers]:
            assert isinstance(layer, Layer)
            layer.bias.zero_()
            draw(layer.weight, OUTER_GAIN)
        self.head.draw_start(draw, gain)
        memory, size = self.memory, self.memory.size
        for weight in (memory.weight_ih, memory.weight_hh):
            draw(weight, 1.0)
        memory.bias_ih.zero_()
        memory.bias_hh.zero_()
        if memory.gates == LSTM_GATES:
            memory.bias_ih[size : 2 * size] = 1

    def forward(
        self, rows: torch.Tensor, state: torch.Tensor, keep: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows [T·B, …], states [B, S], keep [T, B] -> (outputs [T·B, …], states behind)."""
        x = rows
        for convolution in self.convolutions:
            x = self.activation(convolution(x))
        x = x.flatten(1)
        for layer in self.layers:
            x = self.activation(layer(x))
        h, state = self.memory(x.unflatten(0, keep.shape), state, keep)
        return self.head(h.flatten(0, 1)), state


class RecurrentNetwork(PolicyNetwork):
    """Sequences -> (logits and means [T·B, M + D], values [T·B]). A state has the policy's numbers
    in front and the value's behind."""

    policy: MemoryTower
    value: MemoryTower

    def tower(self, shape: tuple[int, ...], outputs: int, net: Any) -> MemoryTower:
        return MemoryTower(shape, outputs, net)

    @property
    def state_size(self) -> int:  # type: ignore[override]
        """Numbers that the policy remembers."""
        return self.policy.memory.state_size

    @property
    def hidden_size(self) -> int:  # type: ignore[override]
        """Numbers that both remember."""
        return self.state_size + self.value.memory.state_size

    def forward(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        output, value, _ = self.unroll(obs)
        return output, value

    def unroll(self, obs: Sequences) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(logits and means, values, the states behind the last rows)."""
        x, split = self.features(obs.rows), self.state_size
        output, policy_state = self.policy(x, obs.state[:, :split], obs.keep)
        value, value_state = self.value(x, obs.state[:, split:], obs.keep)
        return output, self.valued(value), torch.cat([policy_state, value_state], -1)

    def step(
        self, obs: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.unroll(one_step(obs, state))

    def policy_step(
        self, obs: torch.Tensor, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.policy(self.features(obs), state, one_step(obs, state).keep)

    def values(self, obs: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        value_state = state[:, self.state_size :]
        value, _ = self.value(self.features(obs), value_state, one_step(obs, state).keep)
        return self.valued(value)
