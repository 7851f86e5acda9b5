"""The equations, worked out by hand."""

import pytest
import torch

from tenfold.ops.qlearning import action_atoms, bootstrap, dueling, item_loss


def test_dueling_by_hand() -> None:
    # V = 10, A = (1, 3): mean 2, so Q = (9, 11)
    assert dueling(torch.tensor([[[10.0], [1.0], [3.0]]])).flatten().tolist() == [9.0, 11.0]


def test_double_takes_the_online_choice_and_the_targets_value() -> None:
    reward, discount = torch.tensor([1.0]), torch.tensor([0.5])
    target_values, online_values = torch.tensor([[[4.0], [8.0]]]), torch.tensor([[[7.0], [3.0]]])
    assert bootstrap(reward, discount, target_values, target_values).item() == 1 + 0.5 * 8
    assert bootstrap(reward, discount, target_values, online_values).item() == 1 + 0.5 * 4


def test_a_terminated_step_bootstraps_nothing() -> None:
    values = torch.tensor([[[100.0], [200.0]]])
    assert bootstrap(torch.tensor([-1.0]), torch.tensor([0.0]), values, values).item() == -1


@pytest.mark.parametrize(
    ("error", "mse", "huber"), [(0.5, 0.25, 0.125), (3.0, 9.0, 2.5), (-3.0, 9.0, 2.5)]
)
def test_scalar_losses_by_hand(error: float, mse: float, huber: float) -> None:
    predicted, target = torch.zeros(1, 1), torch.full((1, 1), error)
    assert item_loss(predicted, target, "mse").item() == pytest.approx(mse)
    assert item_loss(predicted, target, "huber").item() == pytest.approx(huber)


def test_quantile_loss_by_hand() -> None:
    # N = 2, τ = (¼, ¾), θ = (0, 0), y = (−2, 0.5): Huber(−2) = 1.5, Huber(0.5) = 0.125
    # i = 0: mean(|¼ − 1|·1.5, ¼·0.125) = 0.578125; i = 1: mean(|¾ − 1|·1.5, ¾·0.125) = 0.234375
    loss = item_loss(torch.zeros(1, 2), torch.tensor([[-2.0, 0.5]]), "mse")
    assert loss.item() == pytest.approx(0.578125 + 0.234375)


def test_implicit_loss_by_hand() -> None:
    # τ = (0.1, 0.8), θ = (0, 1), y = (−2, 0.5, 3), so for i = 0: u = (−2, 0.5, 3), Huber = (1.5,
    # 0.125, 2.5), mean(0.9·1.5, 0.1·0.125, 0.1·2.5) = 1.6125/3; for i = 1: u = (−3, −0.5, 2), Huber
    # = (2.5, 0.125, 1.5), mean(0.2·2.5, 0.2·0.125, 0.8·1.5) = 1.725/3
    predicted = torch.tensor([[0.0, 1.0]], requires_grad=True)
    loss = item_loss(predicted, torch.tensor([[-2.0, 0.5, 3.0]]), "mse", torch.tensor([[0.1, 0.8]]))
    assert loss.item() == pytest.approx((1.6125 + 1.725) / 3)
    loss.sum().backward()
    # slopes of Huber are u inside ±1 and ±1 outside: i = 0: (0.9 − 0.1·0.5 − 0.1)/3; i = 1: (0.2 +
    # 0.2·0.5 − 0.8)/3
    assert predicted.grad is not None and predicted.grad[0].tolist() == pytest.approx(
        [0.75 / 3, -0.5 / 3]
    )


def test_one_drawn_fraction_is_still_a_quantile() -> None:
    # τ = 0.2, u = −3: 0.8·2.5, where a single mean would have e² = 9
    assert item_loss(
        torch.zeros(1, 1), torch.tensor([[-3.0]]), "mse", torch.tensor([[0.2]])
    ).item() == pytest.approx(2.0)


def test_quantile_regression_finds_the_quantiles() -> None:
    """Minimising the loss against samples of 0 … 99 puts two atoms near the 25th and 75th
    percentile."""
    atoms = torch.tensor([[40.0, 60.0]], requires_grad=True)
    samples = torch.arange(100.0)
    optimiser = torch.optim.Adam([atoms], lr=1.0)
    for _ in range(400):
        optimiser.zero_grad()
        item_loss(atoms.repeat(100, 1), samples[:, None].repeat(1, 2), "mse").mean().backward()
        optimiser.step()
    assert atoms[0].tolist() == pytest.approx([25, 75], abs=2)


def test_taken_keeps_the_batch_dimension_at_batch_one() -> None:
    assert action_atoms(torch.zeros(1, 3, 1), torch.tensor([2])).shape == (1, 1)
