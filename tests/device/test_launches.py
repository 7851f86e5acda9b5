"""Launches that stand for eager PyTorch on a GPU: `MaskedHeads`, `gae`, the sum tree, Adam. They are
taken by themselves, give what the eager forms give, and refuse what these refuse. Without a GPU in
Triton's interpreter."""

from typing import Any

import numpy as np
import pytest
import torch

from tenfold.core.pairs import fresh
from tenfold.ops.device.language import device
from tenfold.ops.head_tables import cases
from tenfold.ops.heads import MaskedHeads


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tensors on the CPU take the launches too; says for what."""
    asked: list[str] = []

    def on_gpu(tensor: Any) -> bool:
        asked.append(tuple(tensor.shape))
        return True

    monkeypatch.setattr("tenfold.ops.heads.on_gpu", on_gpu)
    return asked


def by_case(dtype: str) -> Any:
    for heads, logits, mask in cases(np.random.default_rng(3), dtype, MaskedHeads):
        u = torch.rand(*logits.shape[:-1], heads.count, dtype=logits.dtype)
        yield heads, logits, mask, u


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_heads_choose_and_judge_in_a_launch_what_they_do_eagerly(
    as_on_a_gpu: list[str], monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    for heads, logits, mask, u in by_case(dtype):
        found, expected = [], []
        for results in (found, expected):
            own = fresh(logits, True)
            actions, log_prob = heads.act(own, mask, u)
            assert torch.equal(actions, heads.sample(own, mask, u))
            each, entropy = heads.evaluate(own, actions, mask)
            (each.square().sum() + 3 * entropy.square().sum()).backward()
            results += [actions, log_prob, each, entropy, own.grad]
            results += [heads.log_prob(logits, actions, mask), heads.entropy(logits, mask)]
            monkeypatch.setattr("tenfold.ops.heads.on_gpu", lambda tensor: False)
        assert as_on_a_gpu
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            assert torch.allclose(one.double(), other.double(), rtol=2e-5, atol=5e-6)
        monkeypatch.undo()
        monkeypatch.setattr("tenfold.ops.heads.on_gpu", lambda tensor: True)


def test_gradients_stand_finite_differences() -> None:
    from tenfold.ops.device.heads import evaluate

    heads = MaskedHeads([3, 1, 5], "absent")
    logits = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(4, 9) < 0.7
    actions = heads.sample(logits, mask)
    assert torch.autograd.gradcheck(lambda x: evaluate(heads, x, actions, mask), (logits,))


def test_logits_that_are_part_of_a_wider_output_and_16_bit_ones_are_taken(
    as_on_a_gpu: list[str],
) -> None:
    heads, wide = MaskedHeads([3, 4]), torch.randn(5, 11)
    actions = heads.sample(wide[:, 2:9])
    assert torch.equal(
        heads.log_prob(wide[:, 2:9], actions), heads.log_prob(wide[:, 2:9].clone(), actions)
    )
    half = wide[:, 2:9].to(torch.bfloat16).requires_grad_()
    log_prob = heads.log_prob(half, actions)
    log_prob.sum().backward()
    assert log_prob.dtype == torch.float32 and half.grad is not None
    assert half.grad.dtype == torch.bfloat16 and half.grad.abs().sum() > 0


def test_a_forbidden_action_has_the_lowest_log_probability_and_no_gradient(
    as_on_a_gpu: list[str],
) -> None:
    heads, logits = MaskedHeads([3]), torch.zeros(1, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    log_prob = heads.log_prob(logits, torch.tensor([[2]]), mask)
    log_prob.sum().backward()
    assert log_prob.item() == torch.finfo(torch.float32).min and not logits.grad.any()


def test_an_empty_batch_gives_empty_results(as_on_a_gpu: list[str]) -> None:
    heads = MaskedHeads([3, 2])
    assert heads.sample(torch.zeros(0, 5)).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1]]).bool()}, "row 0, component 1 has no allowed option"),
        ({"logits": torch.tensor([[0.0, 0, 0, 0], [0, 0, 0, np.nan]])}, r"row 1, component 1 \(option 1\) has a logit that is not finite"),
        ({"actions": torch.tensor([[0, 1], [0, 2]])}, "row 1, component 1 was given action 2"),
        ({"actions": torch.zeros(2, 3, dtype=torch.int64)}, "actions must be int64"),
        ({"mask": torch.ones(2, 3).bool()}, "the mask must have the shape of the logits"),
        ({"logits": torch.zeros(2, 5)}, r"the logits must be floats \(..., 4\)"),
    ],
)  # fmt: skip
def test_bad_values_are_refused_in_the_eager_forms_words(
    as_on_a_gpu: list[str], change: dict[str, Any], words: str
) -> None:
    usual = {"logits": torch.zeros(2, 4), "actions": torch.zeros(2, 2, dtype=torch.int64), "mask": None}  # fmt: skip
    with pytest.raises(ValueError, match=words):
        MaskedHeads([2, 2]).evaluate(**(usual | change))


def test_a_uniform_number_outside_its_range_is_refused(as_on_a_gpu: list[str]) -> None:
    with pytest.raises(ValueError, match=r"row 1, component 0 was given a uniform number outside"):
        MaskedHeads([2]).sample(torch.zeros(2, 2), None, torch.tensor([[0.5], [1.5]]))
    with pytest.raises(ValueError, match="uniform must be"):
        MaskedHeads([2]).sample(torch.zeros(2, 2), None, torch.tensor([0.5]))


def test_where_the_kernels_run_is_here() -> None:
    assert device() == ("cuda" if torch.cuda.is_available() else "cpu")
