"""The layout of masked heads: masks, actions and settings that it takes, and those it refuses by
row and component."""

import math

import pytest
import torch

from tenfold.ops.advantages import counterfactual_values
from tenfold.ops.heads import MaskedHeads


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float32, torch.bfloat16])
def test_masks_of_other_dtypes_are_read_as_bool(dtype: torch.dtype) -> None:
    heads, logits, mask = (
        MaskedHeads((2, 3), "absent"),
        torch.randn(2, 5),
        torch.tensor([[0, 0, 1, 1, 0], [1, 1, 0, 1, 1]]).bool(),
    )
    assert torch.equal(heads.entropy(logits, mask.to(dtype)), heads.entropy(logits, mask))
    assert torch.equal(heads.present(mask.to(dtype)), heads.present(mask))


def test_bad_input_is_named() -> None:
    heads, logits, mask = MaskedHeads((2, 3)), torch.zeros(4, 5), torch.ones(4, 5)
    for wrong, words in (
        (torch.ones(4, 4), "shape of the logits"),
        (torch.ones(5), "shape of the logits"),
        (mask.long(), "bool, int8, uint8 or a float"),
        (0.5 * mask, r"row 0, component 0 \(option 0\) is neither 0 nor 1"),
    ):
        with pytest.raises(ValueError, match=words):
            heads.entropy(logits, wrong)
    for number in (math.nan, math.inf, -math.inf):
        for gradient in (False, True):
            broken = logits.clone()
            broken[2, 3] = number
            broken.requires_grad_(gradient)
            for given_mask in (None, mask.bool()):
                with pytest.raises(ValueError, match=r"row 2, component 1.* not finite"):
                    heads.sample(broken, given_mask)
                with pytest.raises(ValueError, match=r"row 2, component 1.* not finite"):
                    heads.entropy(broken, given_mask)
    for wrong in (torch.zeros(4, 6), torch.zeros(4, 5, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"floats \(\.\.\., 5\)"):
            heads.entropy(wrong)
    with pytest.raises(ValueError, match="row 1, component 0 was given a uniform number"):
        heads.sample(logits, None, torch.tensor([[0, 0], [math.nan, 0], [0, 0], [0, 0]]))
    with pytest.raises(ValueError, match=r"uniform must be \(4, 2\)"):
        heads.sample(logits, None, torch.zeros(4, 3))


@pytest.mark.parametrize("action", [-1, 3, 4, 2**40])
def test_an_action_out_of_range_is_named(action: int) -> None:
    for sizes, component in (((2, 3), 1), ((3, 3), 1), ((3, 9), 0)):
        heads, actions = MaskedHeads(sizes), torch.zeros(4, 2, dtype=torch.int64)
        actions[2, component] = action
        logits = torch.zeros(4, heads.options)
        for call in (
            lambda h=heads, a=actions: h.one_hot(a),
            lambda h=heads, a=actions, x=logits: h.log_prob(x, a),
            lambda h=heads, a=actions: h.one_hot(a, torch.float64),
            lambda h=heads, a=actions, x=logits: h.evaluate(x, a),
            lambda h=heads, a=actions: counterfactual_values(
                h, torch.zeros(4, 1), torch.zeros(1, h.options), a, lambda x: x
            ),
        ):
            with pytest.raises(
                ValueError, match=f"row 2, component {component} was given action {action}.* 0 … 2"
            ):
                call()
    with pytest.raises(ValueError, match=r"int64 \(\.\.\., 2\)"):
        MaskedHeads((2, 3)).one_hot(torch.zeros(4, 2))


def test_settings_that_cannot_work_are_refused() -> None:
    for sizes, on_empty, words in (
        ((), "raise", "at least 1"),
        ((2, 0), "raise", "at least 1"),
        ((2, 3), "ignore", "on_empty"),
        ((2, 3), 2, "no option of component 0"),
    ):
        with pytest.raises(ValueError, match=words):
            MaskedHeads(sizes, on_empty)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs check=True"):
        MaskedHeads((2, 3), check=False)
    assert MaskedHeads((2, 3), "absent", check=False).entropy(
        torch.zeros(1, 5), torch.zeros(1, 5, dtype=torch.bool)
    ).tolist() == [[0.0, 0.0]]


def test_constants_follow_the_device_and_stay_out_of_checkpoints() -> None:
    heads = MaskedHeads((2, 3))
    assert not heads.state_dict() and not list(heads.parameters())
    assert heads.to("meta").offsets.device.type == "meta"


@pytest.mark.parametrize("gradient", [False, True])
def test_no_rows_are_no_error(gradient: bool) -> None:
    heads, logits, mask = (
        MaskedHeads((2, 3)),
        torch.zeros(0, 5, requires_grad=gradient),
        torch.ones(0, 5, dtype=torch.bool),
    )
    actions = heads.sample(logits, mask)
    assert (
        actions.shape
        == heads.log_prob(logits, actions, mask).shape
        == heads.entropy(logits, mask).shape
        == (0, 2)
    )
    assert heads.one_hot(actions).shape == (0, 5)


def test_one_hot_by_hand() -> None:
    heads, actions = MaskedHeads((2, 3)), torch.tensor([[[1, 0]], [[0, 2]]])
    for dtype in (torch.float32, torch.float64):
        assert heads.one_hot(actions, dtype).tolist() == [[[0, 1, 1, 0, 0]], [[1, 0, 0, 0, 1]]]
    assert heads.one_hot(actions.transpose(0, 2).transpose(0, 2)).dtype == torch.float32
