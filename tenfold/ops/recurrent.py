"""Gated recurrent units and long short-term memory over time: the equations.

A memory of H numbers is given x_t and what it held before. `keep_t` is 0 where row t begins an
episode, and what was held is forgotten there, exactly; else 1. Parameters lie as torch.nn.GRU and
torch.nn.LSTM have them: weights [gates·H, inputs] and [gates·H, H], two biases; gates in the order
r, z, n and i, f, g, o. A state is one row of numbers: h, and behind it c where there is one.
"""

import torch

GRU_GATES, LSTM_GATES = 3, 4


def gates_of(weight_hh: torch.Tensor) -> int:
    return weight_hh.shape[0] // weight_hh.shape[1]


def lstm_step(
    by_input: torch.Tensor, state: torch.Tensor, weight_hh: torch.Tensor, bias_hh: torch.Tensor
) -> torch.Tensor:
    """i, f, o = σ(…), g = tanh(…) of W x + b + U h + b';   c ← f·c + i·g,   h = o·tanh c.
    `by_input` is W x + b, [B, 4H]; state [B, 2H]."""
    h, c = state.chunk(2, -1)
    i, f, g, o = (by_input + torch.addmm(bias_hh, h, weight_hh.t())).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return torch.cat([o.sigmoid() * c.tanh(), c], -1)


def gru_step(
    by_input: torch.Tensor, state: torch.Tensor, weight_hh: torch.Tensor, bias_hh: torch.Tensor
) -> torch.Tensor:
    """r, z = σ(W x + b + U h + b'),   n = tanh(W x + b + r·(U h + b')),   h ← (1 − z)·n + z·h."""
    xr, xz, xn = by_input.chunk(3, -1)
    hr, hz, hn = torch.addmm(bias_hh, state, weight_hh.t()).chunk(3, -1)
    z = (xz + hz).sigmoid()
    n = (xn + (xr + hr).sigmoid() * hn).tanh()
    return n + z * (state - n)


def recur(
    x: torch.Tensor,
    state: torch.Tensor,
    keep: torch.Tensor,
    weight_ih: torch.Tensor,
    weight_hh: torch.Tensor,
    bias_ih: torch.Tensor,
    bias_hh: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x [T, B, inputs], state [B, S], keep [T, B] -> (h [T, B, H], the state behind the last row
    [B, S])."""
    step = lstm_step if gates_of(weight_hh) == LSTM_GATES else gru_step
    size, found = weight_hh.shape[1], []
    by_input = torch.nn.functional.linear(x, weight_ih, bias_ih)
    for t in range(x.shape[0]):
        state = step(by_input[t], state * keep[t][:, None], weight_hh, bias_hh)
        found.append(state[:, :size])
    return torch.stack(found), state
