"""The RLlib module by itself: what it draws, the masks and observations it takes, its settings, its
critic."""

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from ragged import FLOOR, SIZES, WIDTH, batch_of, build
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from tenfold.core.errors import ConfigError
from tenfold.integrations.rllib import MultiHeadActionMaskRLModule
from tenfold.integrations.rllib.distribution import join_mask

# acting


@pytest.mark.parametrize("sizes", [SIZES, [4, 4, 4]], ids=["ragged", "equal"])
@pytest.mark.parametrize("on_empty", ["raise", "absent", -1])
@pytest.mark.parametrize("rows", [1, 7, 2000])
def test_the_compiled_pass_draws_what_the_plain_one_draws(
    sizes: list[int], on_empty: Any, rows: int
) -> None:
    """The same uniform numbers, the same actions; 2,000 rows go through torch's products."""
    module, batch = build(sizes=sizes, on_empty=on_empty), batch_of(rows, sizes)
    assert module.net.compiles(rows) == (rows < 2000)
    mask = batch[Columns.OBS]["action_mask"]
    if on_empty != "raise":
        mask[:, : sizes[0]] = 0
    coins = torch.rand(rows, len(sizes), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        plain, compiled = (
            module.explore_plainly(batch, mask, coins),
            module.explore_compiled(batch, mask, coins),
        )
    agree = plain[Columns.ACTIONS] == compiled[Columns.ACTIONS]
    # a number drawn within rounding of a step may fall on either side
    assert agree.float().mean() > 0.999
    same = agree.all(-1)
    for key in (Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS):
        assert torch.allclose(plain[key][same], compiled[key][same], atol=1e-5)
        assert plain[key].dtype == compiled[key].dtype and plain[key].shape == compiled[key].shape
    if on_empty != "raise":
        assert (
            compiled[Columns.ACTIONS][:, 0] == (0 if on_empty == "absent" else sizes[0] - 1)
        ).all()


def test_actions_follow_the_policy_and_never_a_forbidden_option() -> None:
    """60,000 draws of one row: frequencies within five standard deviations of the probabilities."""
    module, batch = build(), batch_of(1, seed=2)
    many = {
        Columns.OBS: {key: value.expand(60_000, -1) for key, value in batch[Columns.OBS].items()}
    }
    torch.manual_seed(0)
    actions = module.forward_exploration(many)[Columns.ACTIONS]
    frequency = module.heads.one_hot(actions).mean(0)
    logits = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    expected = module.heads.log_softmax(logits, batch[Columns.OBS]["action_mask"])[0].exp().detach()
    assert (frequency[expected == 0] == 0).all() and (expected == 0).any()
    assert (
        (frequency - expected).abs() <= 5 * (expected * (1 - expected) / 60_000).sqrt() + 1e-7
    ).all()


def test_seeded_torch_draws_the_same_actions_twice() -> None:
    module, batch = build(), batch_of(50)
    torch.manual_seed(11)
    first = module.forward_exploration(batch)[Columns.ACTIONS]
    torch.manual_seed(11)
    assert torch.equal(first, module.forward_exploration(batch)[Columns.ACTIONS])


def test_acting_sees_every_change_of_the_weights() -> None:
    """In place, by loading, in a copy, and when somebody puts another tensor into a parameter."""
    module, batch = build(), batch_of(3)

    def logits(of: Any) -> torch.Tensor:
        acted, trained = of.forward_exploration(batch), of.forward_train(batch)
        assert torch.allclose(
            acted[Columns.ACTION_DIST_INPUTS], trained[Columns.ACTION_DIST_INPUTS], atol=1e-5
        )
        return acted[Columns.ACTION_DIST_INPUTS]

    first = logits(module)
    clone = copy.deepcopy(module)
    with torch.no_grad():
        module.net.policy.bias += torch.linspace(0, 1, sum(SIZES))
    changed = logits(module)
    assert not torch.allclose(first, changed) and torch.equal(first, logits(clone))
    clone.set_state(module.get_state())
    assert torch.equal(logits(clone), changed)
    clone.net.policy.bias.data = clone.net.policy.bias.data * 2
    assert not torch.allclose(logits(clone), changed)


def test_rllibs_switches_of_mode_reach_the_layers() -> None:
    module = build()
    module.forward_train(batch_of(2))
    assert all(part.training for part in module.modules())
    module.forward_exploration(batch_of(2))
    assert all(part.training for part in module.modules())  # as it was before
    module.eval()
    assert not any(part.training for part in module.modules())


def test_an_encoder_of_ones_own_is_used_in_every_pass() -> None:
    class Doubled(MultiHeadActionMaskRLModule):
        def features(self, batch: dict[str, Any]) -> torch.Tensor:
            return 2 * super().features(batch)

    module, plain, batch = build(Doubled), build(), batch_of(4)
    acted, trained = module.forward_exploration(batch), module.forward_train(batch)
    assert torch.allclose(
        acted[Columns.ACTION_DIST_INPUTS], trained[Columns.ACTION_DIST_INPUTS], atol=1e-6
    )
    assert not torch.allclose(
        acted[Columns.ACTION_DIST_INPUTS],
        plain.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS],
    )


# masks and inputs


def test_masks_in_every_form_give_the_same() -> None:
    module, batch = build(), batch_of(5)
    mask = batch[Columns.OBS]["action_mask"]
    parts = list(mask.split(SIZES, -1))
    forms = [
        mask.to(kind)
        for kind in (torch.bool, torch.int8, torch.uint8, torch.int64, torch.float32, torch.float64)
    ]
    forms += [
        parts,
        tuple(parts),
        {f"head_{i}": part for i, part in reversed(list(enumerate(parts)))},
    ]
    expected = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    assert torch.equal(expected == FLOOR, mask == 0)
    for form in forms:
        other = {Columns.OBS: batch[Columns.OBS] | {"action_mask": form}}
        assert torch.equal(module.forward_train(other)[Columns.ACTION_DIST_INPUTS], expected)
        acted = module.forward_exploration(other)
        assert torch.allclose(acted[Columns.ACTION_DIST_INPUTS], expected, atol=1e-6)
        assert torch.equal(
            module.forward_inference(other)[Columns.ACTIONS],
            module.forward_inference(batch)[Columns.ACTIONS],
        )


def test_observations_without_a_mask_are_refused_by_every_pass() -> None:
    module, batch = build(), batch_of(3)
    del batch[Columns.OBS]["action_mask"]
    for forward in ("forward_train", "forward_inference", "forward_exploration"):
        with pytest.raises(ValueError, match=r'the observations have no "action_mask": give one'):
            getattr(module, forward)(batch)


def test_equal_heads_take_a_mask_with_a_row_for_each() -> None:
    mask = torch.arange(24).view(2, 3, 4) % 2 == 0
    assert torch.equal(join_mask(mask, (4, 4, 4)), mask.view(2, 12))


def test_a_single_head_takes_a_mask_of_one_row() -> None:
    """Declared as (1, 5): the shape of a batch alone would not tell the row from a time
    dimension."""
    flat = build(sizes=[5])
    module = RLModuleSpec(
        module_class=MultiHeadActionMaskRLModule,
        action_space=flat.action_space,
        model_config={"hidden": [16, 12]},
        observation_space=gym.spaces.Dict(
            {
                "observations": flat.observation_space["observations"],
                "action_mask": gym.spaces.Box(0, 1, (1, 5), np.int8),
            }
        ),
    ).build()
    module.set_state(flat.get_state())
    for shape in ((4,), (2, 2)):  # with and without a time dimension
        batch = batch_of(4, [5])
        batch = {
            Columns.OBS: {key: value.view(*shape, -1) for key, value in batch[Columns.OBS].items()}
        }
        rows = {
            Columns.OBS: batch[Columns.OBS]
            | {"action_mask": batch[Columns.OBS]["action_mask"].unsqueeze(-2)}
        }
        for forward in ("forward_train", "forward_inference"):
            one, other = getattr(module, forward)(rows), getattr(flat, forward)(batch)
            assert torch.equal(one[Columns.ACTION_DIST_INPUTS], other[Columns.ACTION_DIST_INPUTS])
        assert module.forward_exploration(rows)[Columns.ACTIONS].shape == (*shape, 1)


def test_images_of_bytes_are_scaled_as_for_tenfolds_own_agents() -> None:
    space = gym.spaces.Dict(
        {
            "observations": gym.spaces.Box(0, 255, (2, 2), np.uint8),
            "action_mask": gym.spaces.MultiBinary(4),
        }
    )
    module = RLModuleSpec(
        module_class=MultiHeadActionMaskRLModule,
        action_space=gym.spaces.MultiDiscrete([2, 2]),
        observation_space=space,
    ).build()
    seen = torch.tensor([[[0, 51], [102, 255]]], dtype=torch.uint8)
    assert torch.allclose(
        module.observations({Columns.OBS: {"observations": seen}}),
        torch.tensor([[0, 0.2, 0.4, 1.0]]),
    )


def test_the_heads_of_a_dict_are_counted_as_numbers() -> None:
    """head_2 stands before head_10, whatever the order of letters is."""
    parts = {f"head_{i}": torch.full((1, 2), float(i)) for i in (10, 2, 1, 9, 11)}
    assert join_mask(parts, (2,) * 5).tolist() == [[1, 1, 2, 2, 9, 9, 10, 10, 11, 11]]


def test_a_time_dimension_changes_nothing() -> None:
    """(B, T, D) equals its rows, in values, log-probabilities and shapes."""
    module, flat = build(critic=[8]), batch_of(6)
    folded = {
        Columns.OBS: {key: value.view(2, 3, -1) for key, value in flat[Columns.OBS].items()},
        Columns.ACTIONS: flat[Columns.ACTIONS].view(2, 3, -1),
    }
    for name in ("compute_values", "q_values", "baselines"):
        one, other = getattr(module, name)(flat), getattr(module, name)(folded)
        assert other.shape[:2] == (2, 3) and torch.allclose(one, other.flatten(0, 1), atol=1e-6)
    assert module.compute_values(flat).shape == (6,)
    logits = module.forward_train(folded)[Columns.ACTION_DIST_INPUTS]
    assert torch.allclose(
        logits.flatten(0, 1), module.forward_train(flat)[Columns.ACTION_DIST_INPUTS], atol=1e-6
    )
    acted = module.forward_exploration(folded)
    assert acted[Columns.ACTIONS].shape == (2, 3, 4) and acted[Columns.ACTION_LOGP].shape == (2, 3)
    assert torch.equal(
        module.forward_inference(folded)[Columns.ACTIONS].flatten(0, 1),
        module.forward_inference(flat)[Columns.ACTIONS],
    )


def test_nested_and_discrete_observations_are_joined() -> None:
    space = gym.spaces.Dict(
        {
            "image": gym.spaces.Box(-1, 1, (2, 3), np.float32),
            "kind": gym.spaces.Discrete(4, start=1),
            "pair": gym.spaces.Tuple([gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(2)]),
        }
    )
    module = RLModuleSpec(
        module_class=MultiHeadActionMaskRLModule,
        action_space=gym.spaces.MultiDiscrete([2, 2]),
        observation_space=gym.spaces.Dict(
            {"observations": space, "action_mask": gym.spaces.MultiBinary(4)}
        ),
    ).build()
    seen = {
        "image": torch.arange(6.0).view(1, 2, 3),
        "kind": torch.tensor([3]),
        "pair": (torch.tensor([[1, 2]]), torch.tensor([[1, 0]], dtype=torch.int8)),
    }
    joined = module.observations({Columns.OBS: {"observations": seen}})
    assert joined.tolist() == [[0, 1, 2, 3, 4, 5, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 0]]


@pytest.mark.parametrize("explore", [True, False], ids=["acting", "training"])
def test_an_empty_head_is_an_error_that_names_row_and_head(explore: bool) -> None:
    module, batch = build(), batch_of(4)
    batch[Columns.OBS]["action_mask"][2, 3:8] = 0
    with pytest.raises(ValueError, match=r"row 2, component 1 has no allowed option"):
        module.forward_exploration(batch) if explore else module.forward_train(batch)


@pytest.mark.parametrize("explore", [True, False], ids=["acting", "training"])
def test_a_mask_that_is_neither_zero_nor_one_is_an_error(explore: bool) -> None:
    module, batch = build(), batch_of(4)
    batch[Columns.OBS]["action_mask"] = batch[Columns.OBS]["action_mask"].float()
    batch[Columns.OBS]["action_mask"][1, 4] = 0.5
    with pytest.raises(ValueError, match=r"row 1, component 1 .* neither 0 nor 1"):
        module.forward_exploration(batch) if explore else module.forward_train(batch)


def test_observations_of_other_rows_than_the_mask_never_reach_compiled_code() -> None:
    module, batch = build(), batch_of(4)
    for wrong in (torch.zeros(3, WIDTH), torch.zeros(4, WIDTH - 1)):
        with pytest.raises(ValueError, match="where the mask asks for"):
            module.forward_exploration({Columns.OBS: batch[Columns.OBS] | {"observations": wrong}})


def test_weights_that_diverged_are_an_error_in_acting() -> None:
    module = build()
    with torch.no_grad():
        module.net.policy.bias[4] = torch.nan
    with pytest.raises(ValueError, match=r"component 1 .*not finite"):
        module.forward_exploration(batch_of(2))


# settings


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"hiden": [8]}, r"model_config\.hiden = .* is not a setting: the nearest is hidden"),
        ({"hidden": [0]}, r"model_config\.hidden = 0 is out of range"),
        ({"hidden": 64}, r"model_config\.hidden = 64 is not a list"),
        ({"activation": "cube"}, r"model_config\.activation = cube is not one of relu, tanh"),
        ({"on_empty": "skip"}, r"model_config\.on_empty = skip is not raise, absent or the index"),
        ({"on_empty": 2}, r"model_config\.on_empty = 2 is no option of some head"),
        ({"critic": [0]}, r"model_config\.critic = 0 is out of range"),
        ({"use_lstm": True}, r"model_config\.use_lstm = True means nothing"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_sentence(model: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build(**model)


def test_rllibs_own_names_are_understood() -> None:
    space = gym.spaces.Dict(
        {
            "observations": gym.spaces.Box(-1, 1, (WIDTH,)),
            "action_mask": gym.spaces.MultiBinary(sum(SIZES)),
        }
    )
    module = MultiHeadActionMaskRLModule(
        observation_space=space,
        action_space=gym.spaces.MultiDiscrete(SIZES),
        model_config={
            "fcnet_hiddens": [9],
            "fcnet_activation": "relu",
            "vf_share_layers": False,
            "use_lstm": False,
        },
    )
    assert module.settings.hidden == (9,) and module.settings.activation == "relu"


@pytest.mark.parametrize(
    ("observation", "action", "sentence"),
    [
        (
            gym.spaces.Box(-1, 1, (3,)),
            gym.spaces.MultiDiscrete([2, 2]),
            "needs a Dict observation space",
        ),
        (
            gym.spaces.Dict(
                {
                    "observations": gym.spaces.Box(-1, 1, (3,)),
                    "action_mask": gym.spaces.MultiBinary(5),
                }
            ),
            gym.spaces.MultiDiscrete([2, 2]),
            "it must be one array of 4 numbers",
        ),
        (
            gym.spaces.Dict(
                {
                    "observations": gym.spaces.Box(-1, 1, (3,)),
                    "action_mask": gym.spaces.Tuple([gym.spaces.MultiBinary(2)]),
                }
            ),
            gym.spaces.MultiDiscrete([2, 2]),
            "a Tuple or Dict with one array for each head",
        ),
        (
            gym.spaces.Dict(
                {
                    "observations": gym.spaces.Box(-1, 1, (3,)),
                    "action_mask": gym.spaces.MultiBinary(4),
                }
            ),
            gym.spaces.Discrete(4),
            "needs MultiDiscrete actions",
        ),
    ],
)
def test_a_space_that_does_not_fit_is_refused_before_training(
    observation: Any, action: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        MultiHeadActionMaskRLModule(
            observation_space=observation, action_space=action, model_config={}
        )


# the critic


def test_baselines_equal_one_call_of_the_critic_for_each_alternative() -> None:
    module, batch = build(critic=[10, 7], activation="elu"), batch_of(5)
    actions, start = batch[Columns.ACTIONS], 0
    probability = module.heads.log_softmax(
        module.forward_train(batch)[Columns.ACTION_DIST_INPUTS], batch[Columns.OBS]["action_mask"]
    ).exp()
    expected = torch.zeros(5, len(SIZES))
    for head, n in enumerate(SIZES):
        for option in range(n):
            other = actions.clone()
            other[:, head] = option
            expected[:, head] += probability[:, start + option] * module.q_values(
                {**batch, Columns.ACTIONS: other}
            )
        start += n
    found = module.baselines(batch)
    assert torch.allclose(found, expected, atol=1e-5) and not found.requires_grad
    assert torch.allclose(found[:, 2], module.q_values(batch), atol=1e-6)  # a head with one option
    assert torch.allclose(
        module.advantages(batch), module.q_values(batch)[:, None] - expected, atol=1e-5
    )
    learns = torch.tensor([False, True, True, False])
    some = module.baselines(batch, learns)
    assert torch.allclose(some[:, learns], expected[:, learns], atol=1e-5)
    assert (module.advantages(batch, learns)[:, ~learns] == 0).all()


def test_a_module_without_a_critic_says_how_to_get_one() -> None:
    with pytest.raises(ValueError, match='give model_config "critic"'):
        build().q_values(batch_of(2))
