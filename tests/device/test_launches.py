"""Launches that stand for eager PyTorch on a GPU: `MaskedHeads`, `gae`, the sum tree, Adam. They are
taken by themselves, give what the eager forms give, and refuse what these refuse. Without a GPU in
Triton's interpreter."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.core.pairs import fresh
from tenfold.ops.adam import adam, clip
from tenfold.ops.device.heads import choose_kernel, evaluate, gradient_kernel
from tenfold.ops.device.language import device
from tenfold.ops.device.returns import gae_kernel
from tenfold.ops.device.sampling import find_kernel, find_leaves, put_kernel, put_leaves
from tenfold.ops.device.step import learn_step
from tenfold.ops.head_tables import cases
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.rollouts import random_rollout


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tensors on the CPU take the launches too; says for what."""
    asked: list[str] = []

    def on_gpu(tensor: Any) -> bool:
        asked.append(tuple(tensor.shape))
        return True

    monkeypatch.setattr("tenfold.ops.heads.on_gpu", on_gpu)
    return asked


@pytest.fixture(autouse=True)
def where_kernels_run() -> Iterator[None]:
    torch.set_default_device(device())
    yield
    torch.set_default_device(None)


def heads_of(*given: Any) -> MaskedHeads:
    with torch.device("cpu"):
        return MaskedHeads(*given).to(device())


def by_case(dtype: str) -> Any:
    with torch.device("cpu"):
        made = list(cases(np.random.default_rng(3), dtype, MaskedHeads))
    for heads, logits, mask in made:
        u = torch.rand(*logits.shape[:-1], heads.count, dtype=logits.dtype)
        where = u.device
        yield heads.to(where), logits.to(where), None if mask is None else mask.to(where), u


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
    heads = heads_of([3, 1, 5], "absent")
    logits = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(4, 9) < 0.7
    actions = heads.sample(logits, mask)
    assert torch.autograd.gradcheck(lambda x: evaluate(heads, x, actions, mask), (logits,))


def test_logits_that_are_part_of_a_wider_output_and_16_bit_ones_are_taken(
    as_on_a_gpu: list[str],
) -> None:
    heads, wide = heads_of([3, 4]), torch.randn(5, 11)
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
    heads, logits = heads_of([3]), torch.zeros(1, 3, requires_grad=True)
    mask = torch.tensor([[True, True, False]])
    log_prob = heads.log_prob(logits, torch.tensor([[2]]), mask)
    log_prob.sum().backward()
    assert log_prob.item() == torch.finfo(torch.float32).min and not logits.grad.any()


def test_an_empty_batch_gives_empty_results(as_on_a_gpu: list[str]) -> None:
    heads = heads_of([3, 2])
    assert heads.sample(torch.zeros(0, 5)).shape == (0, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mask": [[True, True, False, False], [False, False, True, True]]}, "row 0, component 1 has no allowed option"),
        ({"logits": [[0.0, 0, 0, 0], [0, 0, 0, np.nan]]}, r"row 1, component 1 \(option 1\) has a logit that is not finite"),
        ({"actions": [[0, 1], [0, 2]]}, "row 1, component 1 was given action 2"),
        ({"actions": [[0, 0, 0], [0, 0, 0]]}, "actions must be int64"),
        ({"mask": [[True] * 3] * 2}, "the mask must have the shape of the logits"),
        ({"logits": [[0.0] * 5] * 2}, r"the logits must be floats \(..., 4\)"),
    ],
)  # fmt: skip
def test_bad_values_are_refused_in_the_eager_forms_words(
    as_on_a_gpu: list[str], change: dict[str, Any], words: str
) -> None:
    usual = {"logits": torch.zeros(2, 4), "actions": torch.zeros(2, 2, dtype=torch.int64), "mask": None}  # fmt: skip
    with pytest.raises(ValueError, match=words):
        heads_of([2, 2]).evaluate(
            **(usual | {name: torch.tensor(value) for name, value in change.items()})
        )


def test_a_uniform_number_outside_its_range_is_refused(as_on_a_gpu: list[str]) -> None:
    with pytest.raises(ValueError, match=r"row 1, component 0 was given a uniform number outside"):
        heads_of([2]).sample(torch.zeros(2, 2), None, torch.tensor([[0.5], [1.5]]))
    with pytest.raises(ValueError, match="uniform must be"):
        heads_of([2]).sample(torch.zeros(2, 2), None, torch.tensor([0.5]))


def test_steps_of_adam_in_two_launches_are_the_eager_ones() -> None:
    own = [torch.randn(3, 1500) for _ in range(2)] + [torch.zeros(3, 1500) for _ in range(2)]
    other = [tensor.clone() for tensor in own]
    lr = torch.tensor(3e-3)
    for step in range(1, 6):
        own[1] = torch.randn(3, 1500)
        other[1], lengths = clip(own[1].clone(), 20.0)
        norm = learn_step(own, torch.full((3,), step - 1.0), lr, None, 1e-8, 20.0)
        adam(*other, step, 3e-3, 1e-8)
        assert torch.allclose(norm, lengths[:, 0])
    for one, two in zip(own, other, strict=True):
        assert torch.allclose(one, two, rtol=1e-5, atol=1e-6)


def test_the_same_gradient_gives_the_same_bits() -> None:
    grad, found = torch.randn(5000), []
    for _ in range(2):
        flat, mean, square = torch.ones(5000), torch.zeros(5000), torch.zeros(5000)
        given = flat, grad.clone(), mean, square
        norm = learn_step(given, torch.tensor(0.0), torch.tensor(1e-2), None, 1e-8, 1.0)
        found.append(torch.cat([flat, mean, square, norm]))
    assert torch.equal(*found)


def test_leaves_are_written_and_drawn_again_and_again() -> None:
    tree, plain = torch.zeros(256, dtype=torch.float64), np.zeros(128)
    rng = np.random.default_rng(0)
    for size in (1, 16, 100):
        leaf, value = rng.integers(0, 128, size), rng.integers(1, 9, size).astype(np.float64)
        put_leaves(tree, torch.tensor(leaf), torch.tensor(value))
        for i, v in zip(leaf, value, strict=True):
            plain[i] = v
        assert np.array_equal(tree[128:].cpu().numpy(), plain) and tree[1].item() == plain.sum()
    drawn, priority = find_leaves(tree, torch.rand(500, dtype=torch.float64), shares=True)
    assert (priority > 0).all() and torch.equal(priority, tree[128 + drawn])


@pytest.mark.cuda
def test_on_a_gpu_gae_takes_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenfold.ops.returns.gae_scan", None)
    for shape in ({}, {"members": (2,)}, {"components": (3,)}):
        given = random_rollout(np.random.default_rng(0), "float32", 300, 37, **shape)
        expected = ten.ops.gae(*given, 0.95)
        found = ten.ops.gae(*(torch.from_numpy(a).cuda() for a in given), 0.95)
        assert found.is_cuda and np.allclose(found.cpu().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.cuda
def test_other_sizes_compile_nothing_new() -> None:
    kernels = choose_kernel, gradient_kernel, put_kernel, find_kernel, gae_kernel

    def there() -> list[int]:
        return [len(kernel.kernel.device_caches[0][0]) for kernel in kernels]

    def launch(size: int) -> None:
        heads = heads_of([3, 5], "absent")
        logits = torch.randn(size, 8, requires_grad=True)
        mask = torch.rand(size, 8) < 0.5
        evaluate(heads, logits, heads.sample(logits, mask), mask)[0].sum().backward()
        tree = torch.zeros(128, dtype=torch.float64)
        put_leaves(tree, torch.arange(size) % 64, torch.ones(size, dtype=torch.float64))
        find_leaves(tree, torch.rand(size, dtype=torch.float64), True)
        rollout = random_rollout(np.random.default_rng(0), "float32", 200, size)
        ten.ops.gae(*(torch.from_numpy(a).cuda() for a in rollout), 0.95)

    launch(64)
    before = there()
    assert min(before) > 0
    for size in (1, 2, 48, 77):
        launch(size)
    assert there() == before
