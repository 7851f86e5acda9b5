"""Masked heads: what a mask promises, equality with the loop over heads, empty components,
counterfactual baselines."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical

from tenfold.integrations.masked.acting import act_on_logits
from tenfold.ops.advantages import (
    counterfactual_advantages,
    counterfactual_baselines,
    counterfactual_values,
)
from tenfold.ops.head_tables import some_mask
from tenfold.ops.heads import MaskedHeads

LOG = math.log
DTYPES = (torch.float32, torch.bfloat16, torch.float64)
quick = settings(max_examples=25, deadline=None)


@st.composite
def situations(
    draw: st.DrawFn, empty: bool = False
) -> tuple[tuple[int, ...], torch.Tensor, torch.Tensor]:
    """Sizes, logits and mask: ragged, equal, single options, batch 1 or sequences, three dtypes,
    logits up to ±60."""
    sizes = tuple(
        draw(
            st.one_of(
                st.lists(st.integers(1, 9), min_size=1, max_size=6),
                st.just([4, 4, 4]),
                st.just([1]),
            ),
            label="sizes",
        )
    )
    rows = draw(st.sampled_from([(1,), (5,), (2, 3)]), label="rows")
    rng = np.random.default_rng(draw(st.integers(0, 2**32), label="seed"))
    scale = draw(st.sampled_from([0.1, 2.0, 20.0]), label="scale")
    logits = torch.from_numpy(scale * rng.normal(size=(*rows, sum(sizes)))).to(
        draw(st.sampled_from(DTYPES), label="dtype")
    )
    return sizes, logits, some_mask(rng, sizes, rows, empty)


def head_loop(
    sizes: tuple[int, ...], logits: torch.Tensor, mask: torch.Tensor
) -> list[Categorical]:
    """What people write: a masked Categorical for each head. With the dtype's minimum in place of
    −1e30 some of its gradients are NaN."""
    wide = logits.float() if logits.dtype == torch.bfloat16 else logits
    masked = torch.where(mask, wide, -1e30)
    return [Categorical(logits=part) for part in masked.split(list(sizes), -1)]


def close(
    found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, scale: float = 1.0
) -> None:
    """Log-probabilities of logits up to `scale` lose that many last digits; bfloat16 gradients keep
    three digits."""
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 1e-2}[dtype] * max(
        1, scale
    )
    torch.testing.assert_close(
        found, expected.to(found.dtype), rtol=max(tolerance, 1e-5), atol=tolerance
    )


# 1. a forbidden option


@quick
@given(situations(), st.integers(0, 2**32))
def test_a_forbidden_option_has_no_probability_and_no_gradient(situation: Any, seed: int) -> None:
    sizes, logits, mask = situation
    heads = MaskedHeads(sizes)
    logits.requires_grad_()
    actions = heads.sample(logits, mask, generator=torch.Generator().manual_seed(seed))
    assert (heads.log_softmax(logits, mask).exp()[~mask] == 0).all()
    assert mask.gather(-1, actions + heads.offsets).all()
    other = logits.detach() + torch.linspace(-1, 1, logits.shape[-1], dtype=logits.dtype)
    for objective in (
        heads.log_prob(logits, actions, mask),
        heads.entropy(logits, mask),
        heads.kl(logits, other, mask),
        heads.kl(other, logits, mask),
        heads.joint(heads.log_prob(logits, actions, mask)),
        heads.log_softmax(logits, mask)[mask],
    ):
        (grad,) = torch.autograd.grad(objective.sum(), logits)
        assert grad.isfinite().all()
        assert (grad[~mask] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gradient", [False, True])
def test_a_million_draws_never_return_a_forbidden_option(
    dtype: torch.dtype, gradient: bool
) -> None:
    # forbidden options hold by far the largest logits; u covers both ends as closely as floats can
    sizes, rows = (5, 3, 8), 50_000
    heads = MaskedHeads(sizes)
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=(rows, 16))).to(dtype)
    mask = some_mask(rng, sizes, (rows,), False)
    logits = torch.where(mask, logits, logits + 300).requires_grad_(gradient)
    ends = torch.tensor([0.0, 1e-45, 1e-30, 1 - 2**-24, 1 - 2**-53, 1.0, 0.5], dtype=torch.float64)
    for trial in range(7):
        generator = torch.Generator().manual_seed(trial)
        uniform = torch.rand(rows, 3, generator=generator, dtype=torch.float64)
        uniform[::2] = ends[torch.randint(0, len(ends), (rows // 2, 3), generator=generator)]
        assert mask.gather(1, heads.sample(logits, mask, uniform) + heads.offsets).all()


def test_a_sum_rounded_in_another_order_does_not_let_a_forbidden_option_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # a parallel sum may step up, or down, where nothing was added
    heads, logits, mask = (
        MaskedHeads((4,)),
        torch.zeros(1, 4),
        torch.tensor([[False, True, False, True]]),
    )
    rounding, plain = torch.tensor([[[1e-7, 0.0, 2e-7, -1e-7]]]), torch.Tensor.cumsum
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda self, dim: plain(self, dim) + rounding)
    for u in (0.0, 1e-8, 0.5, 0.5000001, 1 - 1e-7, 1.0):
        assert heads.sample(logits, mask, torch.tensor([[u]])).item() in (1, 3)


def test_logits_at_the_end_of_the_range_do_not_let_a_forbidden_option_in() -> None:
    low = torch.finfo(torch.float32).min
    heads, mask = MaskedHeads((3,)), torch.tensor([[False, True, True]])
    for logits in (
        torch.full((1, 3), low),
        torch.tensor([[-low, low, low / 2]]),
        torch.tensor([[0.0, -low, low]]),
    ):
        assert heads.log_softmax(logits, mask).exp()[0, 0] == 0
        for u in (0.0, 0.5, 1.0):
            assert heads.sample(logits, mask, torch.tensor([[u]])).item() > 0
        for found in (
            heads.entropy(logits, mask),
            heads.kl(logits, logits, mask),
            heads.kl(logits, torch.zeros(1, 3), mask),
        ):
            assert found.isfinite().all()


def test_draws_follow_the_policy() -> None:
    # π = (½, ¼, ¼) without the forbidden second option
    heads, n = MaskedHeads((4,)), 100_000
    logits, mask = (
        torch.tensor([LOG(2), 7.0, 0.0, 0.0]).expand(n, 4),
        torch.tensor([True, False, True, True]).expand(n, 4),
    )
    actions = heads.sample(logits, mask, generator=torch.Generator().manual_seed(0))
    expected = np.array([0.5, 0, 0.25, 0.25])
    assert np.abs(
        np.bincount(actions.flatten().numpy(), minlength=4) / n - expected
    ).max() < 4.5 * 0.5 / math.sqrt(n)


def test_draws_by_hand() -> None:
    # π = (¼, 0, ½, ¼): the sum passes u at the first option whose end lies above it
    heads = MaskedHeads((4,))
    u = torch.tensor([0.0, 0.249, 0.251, 0.749, 0.751, 0.9999])[:, None]
    logits, mask = (
        torch.tensor([0.0, 9.0, LOG(2), 0.0]).expand(6, 4),
        torch.tensor([True, False, True, True]).expand(6, 4),
    )
    assert heads.sample(logits, mask, u).flatten().tolist() == [0, 0, 2, 2, 3, 3]
    assert heads.mode(logits, mask).flatten().tolist() == [2] * 6
    _, found, scores = act_on_logits(heads, logits.numpy().copy(), mask.numpy().copy(), u.numpy())
    assert found.flatten().tolist() == [0, 0, 2, 2, 3, 3]
    assert np.exp(scores.flatten()) == pytest.approx([0.25, 0.25, 0.5, 0.5, 0.25, 0.25], rel=1e-6)


# 2. equality with the loop over heads


@quick
@given(situations())
def test_all_heads_at_once_equal_the_loop_in_values_and_gradients(situation: Any) -> None:
    sizes, logits, mask = situation
    heads, scale = MaskedHeads(sizes), float(logits.abs().max())
    actions = heads.sample(logits, mask, generator=torch.Generator().manual_seed(0))
    new = (logits + torch.linspace(-1, 1, logits.shape[-1], dtype=logits.dtype)).requires_grad_()
    logits.requires_grad_()
    policies, others = head_loop(sizes, logits, mask), head_loop(sizes, new, mask)
    found = (
        heads.log_prob(logits, actions, mask),
        heads.entropy(logits, mask),
        heads.kl(new, logits, mask),
    )
    expected = (
        torch.stack([p.log_prob(a) for p, a in zip(policies, actions.unbind(-1), strict=True)], -1),
        torch.stack([p.entropy() for p in policies], -1),
        torch.stack(
            [
                (o.probs * (o.logits - p.logits)).sum(-1)
                for o, p in zip(others, policies, strict=True)
            ],
            -1,
        ),
    )
    for f, e in zip(found, expected, strict=True):
        close(f, e, torch.float32 if logits.dtype == torch.bfloat16 else logits.dtype, scale)
        weight = torch.linspace(0.5, 1.5, f.numel(), dtype=f.dtype).view_as(f)
        close(
            torch.autograd.grad((f * weight).sum(), logits)[0],
            torch.autograd.grad((e * weight).sum(), logits, retain_graph=True)[0],
            logits.dtype,
            scale,
        )
    for one, i in (
        (heads.evaluate(logits, actions, mask)[0], 0),
        (heads.evaluate(logits, actions, mask)[1], 1),
    ):
        assert torch.equal(one, found[i])
    assert (
        torch.equal(
            heads.mode(logits, mask), torch.stack([p.probs.argmax(-1) for p in policies], -1)
        )
        or scale > 30
    )


@quick
@given(situations(empty=True), st.sampled_from(["absent", -1, 0]))
def test_the_way_without_gradient_gives_the_same(situation: Any, on_empty: Any) -> None:
    sizes, logits, mask = situation
    heads, leaf = MaskedHeads(sizes, on_empty), logits.clone().requires_grad_()
    uniform = torch.rand(
        *logits.shape[:-1], heads.count, generator=torch.Generator().manual_seed(0)
    )
    for name in ("padded_logits", "masked_logits", "log_softmax", "entropy", "mode"):
        method = getattr(heads, name)
        assert torch.equal(method(logits, mask), method(leaf, mask)), name
    actions, log_prob = heads.act(logits, mask, uniform)
    assert torch.equal(actions, heads.sample(logits, mask, uniform))
    assert torch.equal(log_prob, heads.log_prob(leaf, actions, mask))


@quick
@given(situations())
def test_a_row_gets_what_it_gets_alone_in_whatever_layout(situation: Any) -> None:
    sizes, logits, mask = situation
    heads = MaskedHeads(sizes)
    wide = torch.stack([logits, -logits], -1)[..., 0]  # every second number of its memory
    spread_mask = torch.stack([mask, ~mask], -1)[..., 0]
    assert wide.numel() == 1 or not wide.is_contiguous()
    whole = heads.entropy(logits, mask)
    assert torch.equal(heads.entropy(wide, spread_mask), whole)
    first = (0,) * (logits.dim() - 1)
    torch.testing.assert_close(heads.entropy(logits[first], mask[first]), whole[first])
    torch.testing.assert_close(
        heads.entropy(logits[first][None], mask[first][None])[0], whole[first]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(1400,), (700, 3, 697), (1, 1399), (140,) * 10])
def test_fourteen_hundred_options(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    heads, rng = MaskedHeads(sizes), np.random.default_rng(0)
    logits = torch.from_numpy(2 * rng.normal(size=(6, 1400))).to(dtype).requires_grad_()
    mask = some_mask(rng, sizes, (6,), False)
    actions = heads.sample(logits, mask, generator=torch.Generator().manual_seed(0))
    policies = head_loop(sizes, logits, mask)
    found = heads.log_prob(logits, actions, mask)
    expected = torch.stack(
        [p.log_prob(a) for p, a in zip(policies, actions.unbind(-1), strict=True)], -1
    )
    close(found, expected, torch.float32, 10)
    close(
        heads.entropy(logits, mask),
        torch.stack([p.entropy() for p in policies], -1),
        torch.float32,
        10,
    )
    (grad,), (by_loop,) = (
        torch.autograd.grad(found.sum(), logits),
        torch.autograd.grad(expected.sum(), logits),
    )
    close(grad, by_loop, dtype)
    assert (grad[~mask] == 0).all() and mask.gather(1, actions + heads.offsets).all()


def test_log_probability_entropy_and_divergence_by_hand() -> None:
    # components of 2, 3 and 1 options; the middle one may not do its last: π = (¾, ¼), (½, ½, 0),
    # (1)
    heads = MaskedHeads((2, 3, 1))
    logits = torch.tensor([[LOG(3), 0.0, 1.0, 1.0, 50.0, -4.0]])
    mask = torch.tensor([[True, True, True, True, False, True]])
    log_prob = heads.log_prob(logits, torch.tensor([[1, 0, 0]]), mask)
    assert log_prob[0].tolist() == pytest.approx([LOG(0.25), LOG(0.5), 0.0])
    assert heads.joint(log_prob).item() == pytest.approx(LOG(0.125))
    assert heads.entropy(logits, mask)[0].tolist() == pytest.approx(
        [2 * LOG(2) - 0.75 * LOG(3), LOG(2), 0.0]
    )
    # against (½, ½), (½, ½, 0), (1): ¾ log(3/2) + ¼ log(1/2) = ¾ log 3 − log 2
    assert heads.kl(logits, torch.zeros(1, 6), mask)[0].tolist() == pytest.approx(
        [0.75 * LOG(3) - LOG(2), 0.0, 0.0], abs=1e-7
    )
    assert heads.masked_logits(logits, mask)[0].tolist() == pytest.approx(
        [LOG(3), 0.0, 1.0, 1.0, torch.finfo(torch.float32).min, -4.0]
    )


def test_one_option_has_log_probability_and_entropy_zero() -> None:
    heads, logits = MaskedHeads((1, 1)), torch.tensor([[3.0, -80.0]], requires_grad=True)
    log_prob, entropy = heads.evaluate(logits, torch.zeros(1, 2, dtype=torch.int64))
    assert log_prob.tolist() == [[0.0, 0.0]] and entropy.abs().max() == 0
    log_prob.sum().backward()
    assert logits.grad is not None and logits.grad.abs().max() == 0


# 3. empty components

# sizes 2 and 3
EMPTY_FIRST = torch.tensor([[False, False, True, True, False], [True, True, False, True, True]])


@pytest.mark.parametrize("gradient", [False, True])
def test_an_empty_component_is_an_error_that_names_row_and_component(gradient: bool) -> None:
    heads, mask = MaskedHeads((2, 3)), torch.ones(4, 5, dtype=torch.bool)
    mask[3, 2:] = False
    for call in (heads.sample, heads.mode, heads.entropy, heads.log_softmax, heads.masked_logits):
        with pytest.raises(ValueError, match="row 3, component 1 has no allowed option"):
            call(torch.zeros(4, 5, requires_grad=gradient), mask)
    with pytest.raises(ValueError, match=r"row \(1, 1\), component 1 has no allowed option"):
        heads.entropy(torch.zeros(2, 2, 5, requires_grad=gradient), mask.view(2, 2, 5))
    with pytest.raises(ValueError, match="row 3, component 1 has no allowed option"):
        act_on_logits(
            heads, np.zeros((4, 5), np.float32), mask.numpy(), np.zeros((4, 2), np.float32)
        )


@pytest.mark.parametrize("action", [0, 1])
def test_an_absent_component_is_out_of_everything(action: int) -> None:
    heads, logits = (
        MaskedHeads((2, 3), "absent"),
        torch.tensor([[5.0, 1.0, 0.0, 0.0, 2.0]] * 2, requires_grad=True),
    )
    actions = torch.tensor([[action, 0], [0, 1]])
    log_prob, entropy = heads.evaluate(logits, actions, EMPTY_FIRST)
    kl = heads.kl(logits, torch.zeros(2, 5), EMPTY_FIRST)
    assert log_prob[0, 0] == entropy[0, 0] == kl[0, 0] == 0
    assert log_prob[0, 1].item() == pytest.approx(LOG(0.5)) and heads.joint(log_prob)[
        0
    ].item() == pytest.approx(LOG(0.5))
    assert heads.present(EMPTY_FIRST).tolist() == [[False, True], [True, True]]
    for u in (0.0, 0.5, 1.0):
        assert heads.sample(logits, EMPTY_FIRST, torch.full((2, 2), u))[0, 0] == 0
    (log_prob.sum() + entropy.sum() + kl.sum()).backward()
    assert (
        logits.grad is not None
        and (logits.grad[0, :2] == 0).all()
        and (logits.grad[1, :2] != 0).all()
    )


@pytest.mark.parametrize(("noop", "does"), [(0, 0), (1, 1), (-1, 1)])
def test_an_empty_component_does_its_no_op(noop: int, does: int) -> None:
    heads, logits = (
        MaskedHeads((2, 3), noop),
        torch.tensor([[5.0, 1.0, 0.0, 0.0, 2.0]] * 2, requires_grad=True),
    )
    assert (
        heads.sample(logits, EMPTY_FIRST)[0, 0] == does
        and heads.mode(logits, EMPTY_FIRST)[0, 0] == does
    )
    log_prob, entropy = heads.evaluate(logits, torch.tensor([[does, 0], [0, 1]]), EMPTY_FIRST)
    assert log_prob[0, 0] == 0 and entropy[0, 0] == 0
    other = torch.tensor([[1 - does, 0], [0, 1]])
    low = torch.finfo(torch.float32).min
    assert heads.log_prob(logits, other, EMPTY_FIRST)[0, 0] == low
    assert heads.joint(heads.log_prob(logits, other, EMPTY_FIRST)).isfinite().all()
    (log_prob.sum() + entropy.sum()).backward()
    assert logits.grad is not None and (logits.grad[0, :2] == 0).all()


@quick
@given(situations(empty=True), st.sampled_from(["absent", -1]), st.booleans())
def test_empty_components_never_give_nan_nor_a_uniform_choice(
    situation: Any, on_empty: Any, nothing: bool
) -> None:
    sizes, logits, mask = situation
    mask = torch.zeros_like(mask) if nothing else mask
    heads, leaf = MaskedHeads(sizes, on_empty), logits.clone().requires_grad_()
    actions, log_prob = heads.act(logits, mask)
    found = (
        heads.log_prob(leaf, actions, mask),
        heads.entropy(leaf, mask),
        heads.kl(leaf, -leaf, mask),
    )
    assert all(value.isfinite().all() for value in found)
    empty = ~heads.present(mask)
    assert all((value[empty] == 0).all() for value in (*found, log_prob))
    option = 0 if on_empty == "absent" else heads.limits - 1
    assert ((actions == option) | ~empty).all()
    torch.stack(found).sum().backward()
    assert leaf.grad is not None and leaf.grad.isfinite().all()
    assert (leaf.grad[~mask] == 0).all()


# 4. counterfactual values and baselines


def critic(heads: MaskedHeads, rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """A state's part of the first pre-activation, the one-hot's columns and the layers that
    follow."""
    generator = torch.Generator().manual_seed(seed)
    state, weight = (
        torch.randn(rows, 12, generator=generator),
        torch.randn(12, heads.options, generator=generator),
    )
    second = torch.randn(1, 12, generator=generator)
    return state, weight, lambda x: torch.tanh(x / 3) @ second.T


def test_counterfactual_values_by_hand() -> None:
    # Q = 10·(state + a one-hot's weights): state 1, weights 1, 2 | 4, 5, 6. Done: (1, 0), so h = 1
    # + 2 + 4 = 7.
    heads = MaskedHeads((2, 3))
    weight = torch.tensor([[1.0, 2.0, 4.0, 5.0, 6.0]])
    values = counterfactual_values(
        heads, torch.tensor([[7.0]]), weight, torch.tensor([[1, 0]]), lambda x: 10 * x
    )
    assert values.tolist() == [[60.0, 70.0, 70.0, 80.0, 90.0]]
    # π = (½, ½), (0, ½, ½): b = (65, 85), A = (5, −15)
    mask = torch.tensor([[True, True, False, True, True]])
    baselines = counterfactual_baselines(heads, torch.zeros(1, 5), values, mask)
    assert baselines.tolist() == [[65.0, 85.0]]
    assert counterfactual_advantages(torch.tensor([70.0]), baselines).tolist() == [[5.0, -15.0]]


@quick
@given(situations())
def test_the_baseline_does_not_change_with_the_action_and_centres_the_values(
    situation: Any,
) -> None:
    sizes, logits, mask = situation
    heads, logits, mask = (
        MaskedHeads(sizes),
        logits.reshape(-1, sum(sizes)).float().requires_grad_(),
        mask.reshape(-1, sum(sizes)),
    )
    state, weight, rest = critic(heads, len(logits))
    actions = heads.sample(logits, mask)
    values = counterfactual_values(
        heads, state + heads.one_hot(actions) @ weight.T, weight, actions, rest
    )
    baselines = counterfactual_baselines(heads, logits, values, mask)
    assert not values.requires_grad and not baselines.requires_grad
    for i in range(heads.count):
        other = actions.clone()
        other[:, i] = (other[:, i] + 1) % sizes[i]
        again = counterfactual_values(
            heads, state + heads.one_hot(other) @ weight.T, weight, other, rest
        )
        torch.testing.assert_close(
            counterfactual_baselines(heads, logits, again, mask)[:, i],
            baselines[:, i],
            rtol=1e-4,
            atol=2e-5,
        )
    centred = heads.log_softmax(logits, mask).exp() * (
        values - baselines.repeat_interleave(heads.limits, 1)
    )
    assert (
        heads.padded(centred.detach()).masked_fill(heads.padding != 0, 0).sum(-1).abs().max() < 5e-5
    )


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4, 1)])
@pytest.mark.parametrize("per_row", [False, True])
def test_components_that_do_not_learn_are_not_evaluated_and_have_no_advantage(
    sizes: tuple[int, ...], per_row: bool
) -> None:
    heads, rows = MaskedHeads(sizes), 6
    state, weight, rest = critic(heads, rows)
    calls = []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return rest(x)

    actions = heads.sample(
        torch.zeros(rows, heads.options), generator=torch.Generator().manual_seed(0)
    )
    hidden = state + heads.one_hot(actions) @ weight.T
    learns = torch.zeros(heads.count, dtype=torch.bool)
    learns[0] = True
    if per_row:
        learns = learns.repeat(rows, 1)
        learns[1:3] = False
    values = counterfactual_values(heads, hidden, weight, actions, counted, learns)
    # Q(s, a), and the alternatives of what learns
    assert sum(calls) == rows + (rows - 2 * per_row) * sizes[0]
    whole, taken = (
        counterfactual_values(heads, hidden, weight, actions, rest),
        rest(hidden),
    )
    chosen = learns.expand(rows, heads.count)[:, heads.component]
    torch.testing.assert_close(values, torch.where(chosen, whole, taken), rtol=1e-5, atol=1e-5)
    advantages = counterfactual_advantages(
        taken[:, 0],
        counterfactual_baselines(heads, torch.zeros(rows, heads.options), values),
        learns,
    )
    assert (advantages[~learns.expand_as(advantages)] == 0).all() and advantages.abs().max() > 0


@pytest.mark.parametrize("sizes", [(2, 5), (4, 4)])
def test_chunks_do_not_change_the_values(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = MaskedHeads(sizes)
    state, weight, rest = critic(heads, 23)
    actions = heads.sample(torch.zeros(23, heads.options))
    whole = counterfactual_values(heads, state, weight, actions, rest)
    monkeypatch.setattr("tenfold.ops.advantages.CHUNK_NUMBERS", 300)
    torch.testing.assert_close(
        counterfactual_values(heads, state, weight, actions, rest),
        whole,
        rtol=1e-5,
        atol=1e-6,
    )


# 5. entropy and divergence count allowed options only


@quick
@given(situations(), st.floats(-50, 50))
def test_forbidden_logits_change_nothing(situation: Any, shift: float) -> None:
    sizes, logits, mask = situation
    heads, moved = MaskedHeads(sizes), torch.where(mask, logits, logits * 0 + shift)
    assert torch.equal(heads.entropy(moved, mask), heads.entropy(logits, mask))
    assert torch.equal(heads.kl(moved, -moved, mask), heads.kl(logits, -logits, mask))
    allowed = heads.padded(mask) & (heads.padding == 0)
    assert (heads.entropy(logits, mask) <= allowed.sum(-1).to(torch.float64).log() + 1e-5).all()
    assert (heads.kl(logits, -logits, mask) >= -1e-5).all()
