"""Memories over time: worked out by hand, and against torch's own, episode by episode."""

import math
from itertools import pairwise

import pytest
import torch

from tenfold.ops.recurrence import recur


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def numbers(values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


ONE_LANE = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)[:, None, None]  # x, three steps
BORDER = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)[:, None]  # the third begins an episode


def test_an_lstm_of_one_cell_forgets_at_the_border_and_nowhere_else() -> None:
    """W = (1, 0, 2, 0) for i, f, g, o; U = (0, 0, 1, 0); biases of W (0, 1, 0, 0); of U 0."""
    weight_ih, weight_hh = numbers([1, 0, 2, 0]), numbers([0, 0, 1, 0])
    bias_ih, bias_hh = torch.tensor([0.0, 1, 0, 0]).double(), torch.zeros(4).double()
    start = torch.tensor([[0.3, 0.4]], dtype=torch.float64)  # h, c
    found, last = recur(ONE_LANE, start, BORDER, weight_ih, weight_hh, bias_ih, bias_hh)
    c1 = sigmoid(1) * 0.4 + sigmoid(1) * math.tanh(2 * 1 + 0.3)
    h1 = 0.5 * math.tanh(c1)
    c2 = sigmoid(1) * c1 + sigmoid(-2) * math.tanh(2 * -2 + h1)
    h2 = 0.5 * math.tanh(c2)
    c3 = sigmoid(0.5) * math.tanh(2 * 0.5)  # neither c2 nor h2
    h3 = 0.5 * math.tanh(c3)
    assert found.flatten().tolist() == pytest.approx([h1, h2, h3], rel=1e-12)
    assert last.flatten().tolist() == pytest.approx([h3, c3], rel=1e-12)
    carried = sigmoid(1) * c2 + sigmoid(0.5) * math.tanh(1 + h2)
    assert abs(0.5 * math.tanh(carried) - h3) > 0.03  # what a missing reset would have given


def test_a_gru_of_one_unit_forgets_at_the_border_and_nowhere_else() -> None:
    """W = (1, -1, 2) for r, z, n; U = (0.5, 0, 3); biases of W 0; of U (0, 0, 0.1)."""
    weight_ih, weight_hh = numbers([1, -1, 2]), numbers([0.5, 0, 3])
    bias_ih, bias_hh = torch.zeros(3).double(), torch.tensor([0, 0, 0.1], dtype=torch.float64)
    start = torch.tensor([[0.3]], dtype=torch.float64)
    found, last = recur(ONE_LANE, start, BORDER, weight_ih, weight_hh, bias_ih, bias_hh)

    def step(x: float, h: float) -> float:
        r, z = sigmoid(x + 0.5 * h), sigmoid(-x)
        return (1 - z) * math.tanh(2 * x + r * (3 * h + 0.1)) + z * h

    h1 = step(1, 0.3)
    h2 = step(-2, h1)
    h3 = step(0.5, 0)
    assert found.flatten().tolist() == pytest.approx([h1, h2, h3], rel=1e-12)
    assert last.item() == pytest.approx(h3, rel=1e-12)
    assert abs(step(0.5, h2) - h3) > 0.1


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM])
def test_outputs_and_gradients_are_torchs_own_of_every_episode_alone(kind: type) -> None:
    """In double precision: episodes end at other times in every lane; torch's module is run on each
    of them by itself, from what was remembered or from nothing."""
    torch.manual_seed(3)
    steps, lanes, inputs, size = 9, 4, 3, 5
    own = kind(inputs, size).double()
    weights = [p.detach().clone().requires_grad_() for p in own.parameters()]
    x = torch.randn(steps, lanes, inputs, dtype=torch.float64, requires_grad=True)
    kinds = 2 if kind is torch.nn.LSTM else 1
    state = torch.randn(lanes, kinds * size, dtype=torch.float64, requires_grad=True)
    keep = (torch.rand(steps, lanes) > 0.3).double()
    keep[0] = 1
    found, last = recur(x, state, keep, *weights)
    outputs, ends = [], []
    for lane in range(lanes):
        cuts = [0, *(t for t in range(1, steps) if keep[t, lane] == 0), steps]
        for first, end in pairwise(cuts):
            row = state[lane] if first == 0 else torch.zeros_like(state[lane])
            given = tuple(part[None] for part in row.chunk(kinds))
            outputs.append(own(x[first:end, lane], given if kinds == 2 else given[0]))
        ends.append(
            torch.cat([part[0] for part in outputs[-1][1]]) if kinds == 2 else outputs[-1][1][0]
        )
        outputs[len(outputs) - len(cuts) + 1 :] = [
            torch.cat([h for h, _ in outputs[len(outputs) - len(cuts) + 1 :]])
        ]
    expected = torch.stack(outputs, 1)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert torch.allclose(last, torch.stack(ends), rtol=1e-12, atol=1e-12)
    by = torch.randn_like(found)
    leaves = [x, state, *weights]
    ours = torch.autograd.grad((found * by).sum() + last.square().sum(), leaves)
    theirs = torch.autograd.grad(
        (expected * by).sum() + torch.stack(ends).square().sum(), [x, state, *own.parameters()]
    )
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)
