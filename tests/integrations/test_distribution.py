"""The action distribution for RLlib equals RLlib's own and its plain form, masks and empty heads
included."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from ragged import FLOOR, SIZES, batch_of
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical

from tenfold.integrations.rllib import MaskedMultiCategorical


def test_the_distribution_equals_rllibs_own_in_values_and_gradients() -> None:
    rng = torch.Generator().manual_seed(0)
    batch = batch_of(32)
    forbidden = batch[Columns.OBS]["action_mask"] == 0
    results = []
    for kind in (TorchMultiCategorical, MaskedMultiCategorical):
        logits = [
            torch.randn(32, sum(SIZES), generator=rng.manual_seed(i)).requires_grad_()
            for i in (1, 2)
        ]
        old, new = (
            kind.from_logits(x.masked_fill(forbidden, FLOOR), input_lens=SIZES) for x in logits
        )
        values = [new.logp(batch[Columns.ACTIONS]), new.entropy(), old.kl(new)]
        sum((value * torch.linspace(0.5, 1, 32)).sum() for value in values).backward()
        results.append([*values, new.to_deterministic().sample(), *(x.grad for x in logits)])
    for expected, found in zip(*results, strict=True):
        assert expected.shape == found.shape and torch.allclose(expected, found, atol=1e-5)
    assert all((results[1][i][forbidden] == 0).all() for i in (-1, -2))


@pytest.mark.parametrize(
    "sizes", [SIZES, [8] * 10, [1], [1400]], ids=["ragged", "equal", "one", "wide"]
)
def test_the_compiled_normalisation_equals_the_plain_one_in_values_and_gradients(
    sizes: list[int],
) -> None:
    """All three outputs, and the gradient of a weighted sum of each; heads with nothing allowed,
    logits of hundreds, a sequence."""
    rng = torch.Generator().manual_seed(1)
    options = sum(sizes)
    forbidden = torch.rand(3, 7, options, generator=rng) < 0.5
    forbidden[0, 0] = True
    for scale in (1.0, 300.0):
        raw = scale * torch.randn(3, 7, options, generator=rng)
        for part in range(3):
            found = []
            for plain in (True, False):
                logits = raw.clone().requires_grad_()
                made = MaskedMultiCategorical.from_logits(
                    logits.masked_fill(forbidden, FLOOR), input_lens=sizes
                )
                outputs = made.normalise_plainly() if plain else made.normalise_compiled()
                chosen = outputs[part] if part else torch.where(forbidden, 0, outputs[part])
                (chosen * torch.linspace(-1, 2, chosen.numel()).view_as(chosen)).sum().backward()
                found.append([*outputs, logits.grad])
            for expected, ours in zip(*found, strict=True):
                assert torch.allclose(
                    expected,
                    ours,
                    rtol=1e-5,
                    atol=1e-5 * max(1, float(expected.detach()[expected > FLOOR].abs().max())),
                )
            assert (found[1][-1][forbidden] == 0).all()


def test_half_and_double_precision_take_the_plain_path() -> None:
    logits = torch.randn(4, sum(SIZES), generator=torch.Generator().manual_seed(2))
    actions = torch.zeros(4, len(SIZES), dtype=torch.int32)
    expected = MaskedMultiCategorical.from_logits(logits, input_lens=SIZES).logp(actions)
    for dtype, near in ((torch.float64, 1e-6), (torch.bfloat16, 5e-2)):
        found = MaskedMultiCategorical.from_logits(logits.to(dtype), input_lens=SIZES).logp(actions)
        assert torch.allclose(found.float(), expected, atol=near)


def test_an_action_out_of_range_is_not_read_as_its_neighbours() -> None:
    made = MaskedMultiCategorical.from_logits(torch.zeros(2, 5), input_lens=[3, 2])
    with pytest.raises(ValueError, match=r"row 1, component 0 was given action 3"):
        made.logp(torch.tensor([[0, 0], [3, 0]]))


def test_a_large_weight_of_the_entropy_leaves_gradients_finite() -> None:
    """In RLlib's own distribution a weight above 1 times the finite minimum overflows, and the
    gradient is NaN."""
    grads = []
    for kind in (TorchMultiCategorical, MaskedMultiCategorical):
        logits = torch.tensor([[1.0, 0.0, 2.0]], requires_grad=True)
        (
            2
            * kind.from_logits(
                logits.masked_fill(torch.tensor([False, False, True]), FLOOR), input_lens=[3]
            ).entropy()
        ).backward()
        grads.append(logits.grad)
    p = 1 / (1 + np.exp(-1))
    assert torch.isnan(grads[0]).any()
    # dH/dx = −p(1 − p)(x₀ − x₁)
    assert grads[1].tolist()[0] == pytest.approx([-2 * p * (1 - p), 2 * p * (1 - p), 0], abs=1e-6)


def test_samples_of_the_distribution_are_allowed_and_come_in_any_shape() -> None:
    batch = batch_of(6)
    allowed = batch[Columns.OBS]["action_mask"].bool()
    kind = MaskedMultiCategorical.get_partial_dist_cls(input_lens=SIZES)
    drawn = kind.from_logits(torch.randn(6, sum(SIZES)).masked_fill(~allowed, FLOOR))
    assert isinstance(drawn, MaskedMultiCategorical) and type(drawn) is kind
    actions, logp = drawn.sample(sample_shape=(500,), return_logp=True)
    assert actions.shape == (500, 6, 4) and logp.shape == (500, 6) and actions.dtype == torch.int64
    assert allowed.expand(500, -1, -1).gather(-1, actions + torch.tensor([0, 3, 8, 9])).all()
    assert torch.allclose(logp[3], drawn.logp(actions[3])) and drawn.sample().shape == (6, 4)
    assert MaskedMultiCategorical.required_input_dim(gym.spaces.MultiDiscrete(SIZES)) == 13


def test_a_head_with_nothing_allowed_is_certain() -> None:
    """Log-probability, entropy and divergence 0, no gradient; never a uniform draw over forbidden
    options."""
    logits = torch.randn(2, 5, requires_grad=True)
    masked = logits.masked_fill(torch.tensor([True, True, True, False, False]), FLOOR)
    both = MaskedMultiCategorical.from_logits(masked, input_lens=[3, 2])
    alone = MaskedMultiCategorical.from_logits(logits[:, 3:], input_lens=[2])
    actions = torch.tensor([[0, 1], [0, 0]])
    assert torch.allclose(both.logp(actions), alone.logp(actions[:, 1:])) and torch.allclose(
        both.entropy(), alone.entropy()
    )
    assert (
        torch.allclose(both.kl(both), torch.zeros(2))
        and (both.sample(sample_shape=(100,))[..., 0] == 0).all()
    )
    both.entropy().sum().backward()
    assert (
        logits.grad is not None
        and (logits.grad[:, :3] == 0).all()
        and (logits.grad[:, 3:] != 0).all()
    )


def test_temperatures_flatten_the_allowed_options_only() -> None:
    logits = torch.tensor([[0.0, 2.0, FLOOR, 1.0, 3.0]])
    warm = MaskedMultiCategorical.from_logits(logits, input_lens=[3, 2], temperatures=[2.0, 1.0])
    assert torch.allclose(
        warm.logp(torch.tensor([[1, 1]])),
        torch.tensor([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-2))]).log().sum().float(),
    )
    assert float(warm.logp(torch.tensor([[2, 0]]))) == FLOOR
    with pytest.raises(ValueError, match="numbers above 0"):
        MaskedMultiCategorical.from_logits(logits, input_lens=[3, 2], temperatures=[0.0, 1.0])


def test_logits_that_do_not_fit_and_foreign_divergences_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 5 logits, not 4"):
        MaskedMultiCategorical.from_logits(torch.zeros(1, 4), input_lens=[3, 2])
    one, other = (
        kind.from_logits(torch.zeros(1, 5), input_lens=[3, 2])
        for kind in (MaskedMultiCategorical, TorchMultiCategorical)
    )
    with pytest.raises(TypeError, match="both must be MaskedMultiCategorical"):
        one.kl(other)
    with pytest.raises(NotImplementedError, match="no reparametrised sample"):
        one.rsample()
