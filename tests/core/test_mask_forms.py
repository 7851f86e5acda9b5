"""Masks of options as they may be given: values by hand, what does not fit, and any nested space
against Gymnasium's own `sample`."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.core.masks import MaskError, MaskForm
from tenfold.core.spaces import DiscreteActions, bounded_actions, policy_actions

SPACE = spaces.Dict(
    {
        "arm": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 4])]),
        "lamps": spaces.MultiBinary(2),
        "push": spaces.Box(-1, 1, (2,)),
    }
)
FORM = MaskForm(policy_actions(SPACE, "x"))
# side by side: arm.0 (3 options), arm.1 (2 and 4), each lamp (off, on)
ALL = [1] * 13


def i8(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int8)


def natural(**changed: Any) -> dict[str, Any]:
    return {"arm": None, "lamps": None, "push": None} | changed


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (natural(), ALL),
        (natural(arm=(i8(1, 0, 1), None)), [1, 0, 1] + [1] * 10),
        (
            natural(arm=(None, (i8(0, 1), i8(1, 0, 0, 1)))),
            [1, 1, 1] + [0, 1] + [1, 0, 0, 1] + [1] * 4,
        ),
        (natural(arm=(None, (None, i8(1, 0, 0, 1)))), [1] * 5 + [1, 0, 0, 1] + [1] * 4),
        # a lamp that must be off, one that must be on; one that may be either
        (natural(lamps=i8(0, 1)), [1] * 9 + [1, 0] + [0, 1]),
        (natural(lamps=i8(2, 0)), [1] * 9 + [1, 1] + [1, 0]),
        # both options of each lamp, side by side or lamp by lamp
        (natural(lamps=i8(0, 1, 1, 1)), [1] * 9 + [0, 1, 1, 1]),
        (natural(lamps=[[False, True], [True, True]]), [1] * 9 + [0, 1, 1, 1]),
        # a part of parts as one array; a list for a tuple; numbers of any kind
        (natural(arm=np.array([1.0, 0, 1, 1, 0, 0, 1, 1, 0])), [1, 0, 1, 1, 0, 0, 1, 1, 0] + [1] * 4),
        (natural(arm=[[1, 0, 1], [[1, 0], [0, 1, 1, 0]]]), [1, 0, 1, 1, 0, 0, 1, 1, 0] + [1] * 4),
        # all options side by side
        (np.array([*ALL[:-1], 0], bool), [*ALL[:-1], 0]),
        ([*ALL[:-1], 0], [*ALL[:-1], 0]),
        (np.array([[*ALL[:-1], 0]]), [*ALL[:-1], 0]),
        # what has no options need not be named
        ({"arm": None, "lamps": None}, ALL),
    ],
)  # fmt: skip
def test_masks_worked_out_by_hand(mask: Any, expected: list[int]) -> None:
    assert FORM.read(mask).tolist() == list(map(bool, expected))
    assert FORM.read_rows([mask, natural()], 2).tolist() == [list(map(bool, expected)), [True] * 13]


WHOLE = r"a dict of masks with the keys arm, lamps, push, or an array of shape \(13,\)\."


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.ones(5), rf"the action mask has shape \(5,\); expected is {WHOLE}"),
        (np.full(13, 0.5), "the action mask holds 0.5 at place 0, and not 0 or 1; expected"),
        ((None, None, None), f"the action mask is a tuple of 3; expected is {WHOLE}"),
        (natural(leg=None), f"the action mask has a key leg; expected is {WHOLE}"),
        ({"arm": None}, r"the action mask has no key lamps \(None: without restriction\); expected"),
        (
            natural(arm=(i8(1, 0), None)),
            r"the action mask of arm\.0 has shape \(2,\); expected is an array of shape \(3,\)\.",
        ),
        (
            natural(arm=(None, (i8(1, 1), i8(1, 1, 0)))),
            r"the action mask of arm\.1\[1\] has shape \(3,\); expected is an array of shape \(4,\)",
        ),
        (
            natural(arm=(None, (i8(1, 1),))),
            r"of arm\.1 is a tuple of 1; expected is a tuple of 2 masks, of 2, 4 options, or an array of shape \(6,\)",
        ),
        (natural(arm=(None,)), r"of arm is a tuple of 1; expected is a tuple of 2 masks, or an array"),
        (natural(arm={"a": None}), "of arm is a dict with the keys a; expected is a tuple of 2 masks"),
        (natural(arm=(i8(1, 0, 2), None)), r"of arm\.0 holds 2 at place 2, and not 0 or 1"),
        (natural(arm=("all", None)), r"of arm\.0 is of type str, with 'all'; expected"),
        # booleans of that shape could mean two things
        (
            natural(lamps=np.ones(2, bool)),
            r"of lamps has booleans of shape \(2,\); expected is an array of shape \(4,\) or \(2, 2\), or \(2,\) of the whole numbers 0, 1 and 2",
        ),
        (natural(lamps=i8(3, 0)), "of lamps holds 3, and not 0, 1 or 2"),
        (natural(push=i8(1, 1)), r"of push has shape \(2,\); expected is None, since its actions are"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_in_a_sentence(mask: Any, words: str) -> None:
    with pytest.raises(MaskError, match=words):
        FORM.read(mask)


def test_batches_have_the_batch_in_front_of_every_array() -> None:
    turn, lamps = np.array([[1, 0, 1], [0, 1, 1]], np.int8), np.array([[0, 1], [2, 2]], np.int8)
    # as Gymnasium's vector environments collect infos: beside a key who gave it
    mask = natural(arm=(turn, None), lamps=lamps) | {"_arm": np.ones(2, bool)}
    one, other = FORM.read_rows(mask, 2).astype(int).tolist()
    assert one == [1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1]
    assert other == [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    collected = np.empty(2, object)
    collected[:] = [natural(lamps=lamps[0]), natural(lamps=lamps[1])]
    assert FORM.read_rows(collected, 2)[0].astype(int).tolist() == [1] * 9 + [1, 0, 0, 1]
    with pytest.raises(MaskError, match=r"arm\.0 has shape \(3, 3\); .* behind the batch's \(2,\)"):
        FORM.read_rows(natural(arm=(np.ones((3, 3)), None)), 2)
    with pytest.raises(MaskError, match="is a list of 1; expected are 2"):
        FORM.read_rows([natural()], 2)


def test_actions_of_one_kind_have_masks_too() -> None:
    assert MaskForm(DiscreteActions(3, 5)).read([1, 0, 1]).tolist() == [True, False, True]
    reals = MaskForm(bounded_actions(spaces.Box(-1, 1, (2,)), "x", "sac"))
    with pytest.raises(MaskError, match="expected is None, since its actions are real numbers"):
        reals.read([True])
    grid = MaskForm(policy_actions(spaces.MultiDiscrete([[2, 3], [2, 3]]), "x"))
    rows = ((i8(1, 0), i8(1, 0, 0)), (i8(0, 1), i8(0, 0, 1)))
    assert grid.read(rows).astype(int).tolist() == [1, 0, 1, 0, 0, 0, 1, 0, 0, 1]
    assert grid.read((*rows[0], *rows[1])).tolist() == grid.read(rows).tolist()
    assert grid.option_of(2) == "option of the action's component 1, 0"
    equal = MaskForm(policy_actions(spaces.MultiDiscrete([4, 4]), "x"))
    assert equal.read(np.eye(4)[:2]).tolist() == np.eye(4, dtype=bool)[:2].ravel().tolist()
    with pytest.raises(MaskError, match=r"has shape \(4, 2\); expected"):  # the other way round
        equal.read(np.ones((4, 2)))


def test_a_choice_without_an_option_is_found_by_its_path() -> None:
    mask = np.ones((3, 13), bool)
    assert FORM.empty(mask) is None
    mask[1, 5:9] = False
    assert FORM.empty(mask) == (1, 2)
    assert FORM.option_of(2) == "option of the action's component arm.1[1]"


# any space, against Gymnasium itself

SIMPLE = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 4), start=st.integers(-2, 2)),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.just(spaces.MultiDiscrete([[2, 3], [1, 2]])),
    st.integers(1, 3).map(spaces.MultiBinary),
    st.just(spaces.Box(-1, 1, (2,))),
)
NESTED = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=5,
)


def drawn(space: Any, rng: np.random.Generator) -> Any:
    """A mask as `space.sample` takes it, at times None."""
    if isinstance(space, spaces.Dict):
        return {key: drawn(part, rng) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(drawn(part, rng) for part in space.spaces)
    if isinstance(space, spaces.Box) or rng.random() < 0.2:
        return None
    if isinstance(space, spaces.MultiBinary):
        return rng.integers(0, 3, space.shape).astype(np.int8)
    if isinstance(space, spaces.Discrete):
        return one_of(int(space.n), rng)
    return choices(space.nvec, rng)


def choices(sizes: np.ndarray, rng: np.random.Generator) -> Any:
    if sizes.ndim:
        return tuple(choices(inner, rng) for inner in sizes)
    return one_of(int(sizes), rng)


def one_of(options: int, rng: np.random.Generator) -> np.ndarray:
    mask = rng.integers(0, 2, options).astype(np.int8)
    mask[rng.integers(options)] = 1
    return mask


def chosen_in(space: Any, action: Any) -> list[int]:
    """The option of each choice, in order."""
    if isinstance(space, spaces.Dict):
        return [o for key, part in space.items() for o in chosen_in(part, action[key])]
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, action, strict=True)
        return [o for part, own in pairs for o in chosen_in(part, own)]
    if isinstance(space, spaces.Box):
        return []
    return np.ravel(np.asarray(action) - getattr(space, "start", 0)).tolist()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(NESTED, st.integers(0, 2**31))
def test_any_mask_of_gymnasium_allows_what_it_samples_and_nothing_else(
    space: Any, seed: int
) -> None:
    rng, form = np.random.default_rng(seed), MaskForm(policy_actions(space, "x"))
    mask = drawn(space, rng)
    space.seed(seed)
    if not form.options:
        return
    allowed = form.read(mask)
    seen = np.zeros(form.options, bool)
    first = np.cumsum([0, *form.sizes[:-1]])
    for _ in range(60):
        options = chosen_in(space, space.sample(mask=mask) if mask is not None else space.sample())
        seen[first + options] = True
    assert not (seen & ~allowed).any()
    # of at most four options each is drawn in sixty goes, but once in 10⁷
    assert (seen == allowed).all()
    assert (form.read_rows([mask, mask], 2) == allowed).all()
    rows = form.read_rows(np.stack([allowed, allowed]), 2)
    assert (rows == allowed).all()
