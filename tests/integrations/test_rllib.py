"""The RLlib module inside RLlib: trains, restores, never plays a forbidden action, and equals a loop over heads."""

import copy
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import ray
import torch
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from tenfold.errors import ConfigError
from tenfold.integrations.rllib import CriticPPOTorchLearner, MaskedMultiCategorical, MultiHeadActionMaskRLModule, join_mask

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples"))
import rllib_compare
import rllib_masked_heads

sys.path.pop(0)

SIZES, WIDTH = [3, 5, 1, 4], 6
FLOOR = torch.finfo(torch.float32).min
# RLlib registers every environment under the same name
pytestmark = pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-.*-env-v0 already in registry:UserWarning")
logging.getLogger("ray").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """A Ray of two CPUs in this process and its children, without a dashboard, gone afterwards."""
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


class Ragged(gym.Env):
    """Heads of 3, 5, 1 and 4 options; a forbidden choice raises. Masks flat, or a Dict with one array for each head."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self.by_head = bool((config or {}).get("by_head"))
        self.action_space = gym.spaces.MultiDiscrete(SIZES)
        masks = [gym.spaces.MultiBinary(n) for n in SIZES]
        named = gym.spaces.Dict({f"head_{8 + i}": space for i, space in enumerate(masks)})  # 8, 9, 10, 11: not in the order of letters
        self.observation_space = gym.spaces.Dict({
            "observations": gym.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32),
            "action_mask": named if self.by_head else gym.spaces.Box(0, 1, (sum(SIZES),), np.float32)})

    def look(self) -> dict[str, Any]:
        self.masks = []
        for n in SIZES:
            mask = self.np_random.random(n) < 0.4
            mask[self.np_random.integers(n)] = True
            self.masks.append(mask)
        mask: Any = ({f"head_{8 + i}": m.astype(np.int8) for i, m in enumerate(self.masks)} if self.by_head
                     else np.concatenate(self.masks).astype(np.float32))
        return {"observations": self.np_random.normal(size=WIDTH).astype(np.float32), "action_mask": mask}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 10
        return self.look(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        assert all(mask[a] for mask, a in zip(self.masks, action, strict=True)), f"forbidden: {action}"
        self.left -= 1
        return self.look(), float(action[1]), self.left == 0, False, {}


class Pair(MultiAgentEnv):
    """Two agents, each with a world of its own."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.worlds = {"flat": Ragged(), "named": Ragged({"by_head": True})}
        self.agents = self.possible_agents = list(self.worlds)
        self.observation_spaces = {name: world.observation_space for name, world in self.worlds.items()}
        self.action_spaces = {name: world.action_space for name, world in self.worlds.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return {name: world.reset(seed=seed)[0] for name, world in self.worlds.items()}, {}

    def step(self, action_dict: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        each = {name: self.worlds[name].step(action) for name, action in action_dict.items()}
        obs, reward, terminated, truncated = ({name: found[i] for name, found in each.items()} for i in range(4))
        return obs, reward, terminated | {"__all__": all(terminated.values())}, truncated | {"__all__": False}, {}


def small(env: type, **model: Any) -> PPOConfig:
    return (PPOConfig().environment(env).env_runners(num_env_runners=0, num_envs_per_env_runner=2)
            .training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=2)
            .rl_module(rl_module_spec=RLModuleSpec(module_class=MultiHeadActionMaskRLModule, model_config={"hidden": [16]} | model))
            .debugging(seed=1, log_level="ERROR"))


def build(module_class: type = MultiHeadActionMaskRLModule, sizes: list[int] | None = None, **model: Any) -> Any:
    torch.manual_seed(3)
    sizes = sizes or SIZES
    return RLModuleSpec(
        module_class=module_class, action_space=gym.spaces.MultiDiscrete(sizes), model_config={"hidden": [16, 12]} | model,
        observation_space=gym.spaces.Dict({"observations": gym.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32),
                                           "action_mask": gym.spaces.Box(0, 1, (sum(sizes),), np.int8)})).build()


def batch_of(rows: int, sizes: list[int] | None = None, seed: int = 0) -> dict[str, Any]:
    arrays = rllib_compare.random_batch(np.random.default_rng(seed), rows, WIDTH, sizes or SIZES)
    return {Columns.OBS: {key: torch.from_numpy(arrays[key]) for key in ("observations", "action_mask")},
            Columns.ACTIONS: torch.from_numpy(arrays["actions"])}


# inside RLlib -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("local_ray")
def test_ppo_trains_and_a_restored_checkpoint_acts_and_values_alike(tmp_path: Path) -> None:
    algorithm = small(Ragged).build_algo()
    learned = [algorithm.train()["learners"][DEFAULT_MODULE_ID] for _ in range(2)]  # the environment asserts every action
    for name in ("policy_loss", "vf_loss", "entropy", "mean_kl_loss"):
        assert all(np.isfinite(float(result[name])) for result in learned), name
    algorithm.save_to_path(tmp_path / "checkpoint")
    restored = PPO.from_checkpoint(str(tmp_path / "checkpoint"))
    batch = batch_of(9)
    before, after = (a.learner_group._learner.module[DEFAULT_MODULE_ID].unwrapped() for a in (algorithm, restored))
    assert torch.equal(before.compute_values(batch), after.compute_values(batch))
    acting = [a.get_module() for a in (algorithm, restored)]
    assert not hasattr(acting[0], "value") and all(module.inference_only for module in acting)
    found = [module.forward_inference(batch) for module in (*acting, before)]
    for other in found[1:]:
        assert torch.equal(found[0][Columns.ACTIONS], other[Columns.ACTIONS])
        assert torch.equal(found[0][Columns.ACTION_DIST_INPUTS], other[Columns.ACTION_DIST_INPUTS])
    algorithm.stop()
    restored.stop()


@pytest.mark.usefixtures("local_ray")
def test_two_agents_with_modules_of_their_own_train_and_the_critic_learns() -> None:
    """One agent's masks are flat, the other's a Dict; one module has a critic, which moves towards the returns."""
    specs = {"flat": RLModuleSpec(module_class=MultiHeadActionMaskRLModule, model_config={"hidden": [16], "critic": [8]}),
             "named": RLModuleSpec(module_class=MultiHeadActionMaskRLModule, model_config={"hidden": [8]})}
    config = (small(Pair).environment(disable_env_checking=True)  # the check plays random actions, forbidden ones too
              .multi_agent(policies=set(specs), policy_mapping_fn=lambda agent, *_, **__: agent)
              .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
              .training(learner_class=CriticPPOTorchLearner, learner_config_dict={"critic_coeff": 0.5}))
    algorithm = config.build_algo()
    module = algorithm.learner_group._learner.module["flat"].unwrapped()
    before = module.critic[-1].bias.clone()
    learned = algorithm.train()["learners"]
    assert np.isfinite(float(learned["flat"]["critic_loss"])) and np.isfinite(float(learned["named"]["policy_loss"]))
    assert "critic_loss" not in learned["named"] and not torch.equal(before, module.critic[-1].bias)
    algorithm.stop()


def learner_gradients(module_class: type, batch: dict[str, Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor], Any]:
    """RLlib's PPO learner on one batch: its loss and the gradients by parameter name."""
    config = small(Ragged).rl_module(rl_module_spec=RLModuleSpec(module_class=module_class, model_config={"hidden": [16, 12]}))
    config.training(entropy_coeff=0.01, kl_coeff=0.3, num_epochs=1)
    torch.manual_seed(0)
    learner = config.build_learner(env=Ragged())
    learner.build()
    module = learner.module[DEFAULT_MODULE_ID].unwrapped()
    if module_class is rllib_compare.PerHead:
        torch.save(module.state_dict(), Path(batch["file"]))
    else:
        old = build(rllib_compare.PerHead)
        old.load_state_dict(torch.load(batch["file"], weights_only=True))
        rllib_compare.copy_weights(old, module)
    own = {DEFAULT_MODULE_ID: {key: value for key, value in batch.items() if key != "file"}}
    losses = learner.compute_losses(fwd_out=learner.module.forward_train(own), batch=own)
    learner.compute_gradients(losses)
    return losses[DEFAULT_MODULE_ID].detach(), {name: p.grad for name, p in module.named_parameters()}, module


def test_loss_and_gradients_in_rllibs_ppo_learner_equal_a_loop_over_heads(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(5)
    batch = batch_of(64)
    allowed = batch[Columns.OBS]["action_mask"].bool()
    old = torch.randn(64, sum(SIZES), generator=rng).masked_fill(~allowed, FLOOR)
    batch |= {Columns.ACTION_DIST_INPUTS: old, "advantages": torch.randn(64, generator=rng),
              "value_targets": torch.randn(64, generator=rng), "file": tmp_path / "weights",
              Columns.ACTION_LOGP: TorchMultiCategorical.from_logits(old, input_lens=SIZES).logp(batch[Columns.ACTIONS])}
    expected, loops, _ = learner_gradients(rllib_compare.PerHead, batch)
    found, ours, module = learner_gradients(MultiHeadActionMaskRLModule, batch)
    assert float((expected - found).abs()) < 1e-5
    pairs = list(zip(rllib_compare.as_new(loops, module), ours.values(), strict=True))
    assert len(pairs) == 8 and max(float(e.abs().max()) for e, _ in pairs) > 1e-2
    assert max(float((e - f).abs().max()) for e, f in pairs) < 1e-5


def test_the_ratio_is_one_before_the_first_update() -> None:
    """What was drawn is evaluated with its own mask: log-probabilities of acting and of learning agree."""
    module, batch = build(), batch_of(200)
    acted = module.forward_exploration(batch)
    kind = module.get_train_action_dist_cls()
    learned = kind.from_logits(module.forward_train(batch)[Columns.ACTION_DIST_INPUTS])
    assert torch.allclose((learned.logp(acted[Columns.ACTIONS]) - acted[Columns.ACTION_LOGP]).exp(), torch.ones(200), atol=1e-5)
    assert torch.allclose(kind.from_logits(acted[Columns.ACTION_DIST_INPUTS]).kl(learned), torch.zeros(200), atol=1e-6)


# acting -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [SIZES, [4, 4, 4]], ids=["ragged", "equal"])
@pytest.mark.parametrize("on_empty", ["raise", "absent", -1])
@pytest.mark.parametrize("rows", [1, 7, 2000])
def test_the_compiled_pass_draws_what_the_plain_one_draws(sizes: list[int], on_empty: Any, rows: int) -> None:
    """The same uniform numbers, the same actions; 2,000 rows go through torch's products."""
    module, batch = build(sizes=sizes, on_empty=on_empty), batch_of(rows, sizes)
    assert module.net.compiles(rows) == (rows < 2000)
    mask = batch[Columns.OBS]["action_mask"]
    if on_empty != "raise":
        mask[:, :sizes[0]] = 0
    coins = torch.rand(rows, len(sizes), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        plain, compiled = module.explore_plainly(batch, mask, coins), module.explore_compiled(batch, mask, coins)
    agree = plain[Columns.ACTIONS] == compiled[Columns.ACTIONS]
    assert agree.float().mean() > 0.999  # a number drawn within rounding of a step may fall on either side
    same = agree.all(-1)
    for key in (Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS):
        assert torch.allclose(plain[key][same], compiled[key][same], atol=1e-5)
        assert plain[key].dtype == compiled[key].dtype and plain[key].shape == compiled[key].shape
    if on_empty != "raise":
        assert (compiled[Columns.ACTIONS][:, 0] == (0 if on_empty == "absent" else sizes[0] - 1)).all()


def test_actions_follow_the_policy_and_never_a_forbidden_option() -> None:
    """60,000 draws of one row: frequencies within five standard deviations of the probabilities."""
    module, batch = build(), batch_of(1, seed=2)
    many = {Columns.OBS: {key: value.expand(60_000, -1) for key, value in batch[Columns.OBS].items()}}
    torch.manual_seed(0)
    actions = module.forward_exploration(many)[Columns.ACTIONS]
    frequency = module.heads.one_hot(actions).mean(0)
    logits = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    expected = module.heads.log_softmax(logits, batch[Columns.OBS]["action_mask"])[0].exp().detach()
    assert (frequency[expected == 0] == 0).all() and (expected == 0).any()
    assert ((frequency - expected).abs() <= 5 * (expected * (1 - expected) / 60_000).sqrt() + 1e-7).all()


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
        assert torch.allclose(acted[Columns.ACTION_DIST_INPUTS], trained[Columns.ACTION_DIST_INPUTS], atol=1e-5)
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
    assert torch.allclose(acted[Columns.ACTION_DIST_INPUTS], trained[Columns.ACTION_DIST_INPUTS], atol=1e-6)
    assert not torch.allclose(acted[Columns.ACTION_DIST_INPUTS], plain.forward_exploration(batch)[Columns.ACTION_DIST_INPUTS])


# masks and inputs ---------------------------------------------------------------------------------------------------------


def test_masks_in_every_form_give_the_same() -> None:
    module, batch = build(), batch_of(5)
    mask = batch[Columns.OBS]["action_mask"]
    parts = list(mask.split(SIZES, -1))
    forms = [mask.to(kind) for kind in (torch.bool, torch.int8, torch.uint8, torch.int64, torch.float32, torch.float64)]
    forms += [parts, tuple(parts), {f"head_{i}": part for i, part in reversed(list(enumerate(parts)))}]
    expected = module.forward_train(batch)[Columns.ACTION_DIST_INPUTS]
    assert torch.equal(expected == FLOOR, mask == 0)
    for form in forms:
        other = {Columns.OBS: batch[Columns.OBS] | {"action_mask": form}}
        assert torch.equal(module.forward_train(other)[Columns.ACTION_DIST_INPUTS], expected)
        acted = module.forward_exploration(other)
        assert torch.allclose(acted[Columns.ACTION_DIST_INPUTS], expected, atol=1e-6)
        assert torch.equal(module.forward_inference(other)[Columns.ACTIONS], module.forward_inference(batch)[Columns.ACTIONS])


def test_equal_heads_take_a_mask_with_a_row_for_each() -> None:
    mask = torch.arange(24).view(2, 3, 4) % 2 == 0
    assert torch.equal(join_mask(mask, (4, 4, 4)), mask.view(2, 12))


def test_the_heads_of_a_dict_are_counted_as_numbers() -> None:
    """head_2 stands before head_10, whatever the order of letters is."""
    parts = {f"head_{i}": torch.full((1, 2), float(i)) for i in (10, 2, 1, 9, 11)}
    assert join_mask(parts, (2,) * 5).tolist() == [[1, 1, 2, 2, 9, 9, 10, 10, 11, 11]]


def test_a_time_dimension_changes_nothing() -> None:
    """(B, T, D) equals its rows, in values, log-probabilities and shapes."""
    module, flat = build(critic=[8]), batch_of(6)
    folded = {Columns.OBS: {key: value.view(2, 3, -1) for key, value in flat[Columns.OBS].items()},
              Columns.ACTIONS: flat[Columns.ACTIONS].view(2, 3, -1)}
    for name in ("compute_values", "q_values", "baselines"):
        one, other = getattr(module, name)(flat), getattr(module, name)(folded)
        assert other.shape[:2] == (2, 3) and torch.allclose(one, other.flatten(0, 1), atol=1e-6)
    assert module.compute_values(flat).shape == (6,)
    logits = module.forward_train(folded)[Columns.ACTION_DIST_INPUTS]
    assert torch.allclose(logits.flatten(0, 1), module.forward_train(flat)[Columns.ACTION_DIST_INPUTS], atol=1e-6)
    acted = module.forward_exploration(folded)
    assert acted[Columns.ACTIONS].shape == (2, 3, 4) and acted[Columns.ACTION_LOGP].shape == (2, 3)
    assert torch.equal(module.forward_inference(folded)[Columns.ACTIONS].flatten(0, 1), module.forward_inference(flat)[Columns.ACTIONS])


def test_nested_and_discrete_observations_are_joined() -> None:
    space = gym.spaces.Dict({"image": gym.spaces.Box(-1, 1, (2, 3), np.float32), "kind": gym.spaces.Discrete(4, start=1),
                             "pair": gym.spaces.Tuple([gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(2)])})
    module = RLModuleSpec(module_class=MultiHeadActionMaskRLModule, action_space=gym.spaces.MultiDiscrete([2, 2]),
                          observation_space=gym.spaces.Dict({"observations": space, "action_mask": gym.spaces.MultiBinary(4)})).build()
    seen = {"image": torch.arange(6.0).view(1, 2, 3), "kind": torch.tensor([3]),
            "pair": (torch.tensor([[1, 2]]), torch.tensor([[1, 0]], dtype=torch.int8))}
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


# settings -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "sentence"), [
    ({"hiden": [8]}, r"model_config\.hiden = .* is not a setting: the nearest is hidden"),
    ({"hidden": [0]}, r"model_config\.hidden = 0 is out of range"),
    ({"hidden": 64}, r"model_config\.hidden = 64 is not a list"),
    ({"activation": "gelu"}, r"model_config\.activation = gelu is not one of tanh, relu, elu"),
    ({"on_empty": "skip"}, r"model_config\.on_empty = skip is not raise, absent or the index"),
    ({"on_empty": 2}, r"model_config\.on_empty = 2 is no option of some head"),
    ({"critic": [0]}, r"model_config\.critic = 0 is out of range"),
    ({"use_lstm": True}, r"model_config\.use_lstm = True means nothing"),
])
def test_a_wrong_setting_is_refused_with_a_sentence(model: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build(**model)


def test_rllibs_own_names_are_understood() -> None:
    space = gym.spaces.Dict({"observations": gym.spaces.Box(-1, 1, (WIDTH,)), "action_mask": gym.spaces.MultiBinary(sum(SIZES))})
    module = MultiHeadActionMaskRLModule(observation_space=space, action_space=gym.spaces.MultiDiscrete(SIZES), model_config={
        "fcnet_hiddens": [9], "fcnet_activation": "relu", "vf_share_layers": False, "use_lstm": False})
    assert module.settings.hidden == (9,) and module.settings.activation == "relu"


@pytest.mark.parametrize(("observation", "action", "sentence"), [
    (gym.spaces.Box(-1, 1, (3,)), gym.spaces.MultiDiscrete([2, 2]), "needs a Dict observation space"),
    (gym.spaces.Dict({"observations": gym.spaces.Box(-1, 1, (3,)), "action_mask": gym.spaces.MultiBinary(5)}),
     gym.spaces.MultiDiscrete([2, 2]), "it must be one array of 4 numbers"),
    (gym.spaces.Dict({"observations": gym.spaces.Box(-1, 1, (3,)), "action_mask": gym.spaces.Tuple([gym.spaces.MultiBinary(2)])}),
     gym.spaces.MultiDiscrete([2, 2]), "a Tuple or Dict with one array for each head"),
    (gym.spaces.Dict({"observations": gym.spaces.Box(-1, 1, (3,)), "action_mask": gym.spaces.MultiBinary(4)}),
     gym.spaces.Discrete(4), "needs MultiDiscrete actions"),
])
def test_a_space_that_does_not_fit_is_refused_before_training(observation: Any, action: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        MultiHeadActionMaskRLModule(observation_space=observation, action_space=action, model_config={})


# the critic ---------------------------------------------------------------------------------------------------------------


def test_baselines_equal_one_call_of_the_critic_for_each_alternative() -> None:
    module, batch = build(critic=[10, 7], activation="elu"), batch_of(5)
    actions, start = batch[Columns.ACTIONS], 0
    probability = module.heads.log_softmax(module.forward_train(batch)[Columns.ACTION_DIST_INPUTS], batch[Columns.OBS]["action_mask"]).exp()
    expected = torch.zeros(5, len(SIZES))
    for head, n in enumerate(SIZES):
        for option in range(n):
            other = actions.clone()
            other[:, head] = option
            expected[:, head] += probability[:, start + option] * module.q_values({**batch, Columns.ACTIONS: other})
        start += n
    found = module.baselines(batch)
    assert torch.allclose(found, expected, atol=1e-5) and not found.requires_grad
    assert torch.allclose(found[:, 2], module.q_values(batch), atol=1e-6)  # a head with one option
    assert torch.allclose(module.advantages(batch), module.q_values(batch)[:, None] - expected, atol=1e-5)
    learns = torch.tensor([False, True, True, False])
    some = module.baselines(batch, learns)
    assert torch.allclose(some[:, learns], expected[:, learns], atol=1e-5)
    assert (module.advantages(batch, learns)[:, ~learns] == 0).all()


def test_a_module_without_a_critic_says_how_to_get_one() -> None:
    with pytest.raises(ValueError, match='give model_config "critic"'):
        build().q_values(batch_of(2))


# the distribution ---------------------------------------------------------------------------------------------------------


def test_the_distribution_equals_rllibs_own_in_values_and_gradients() -> None:
    rng = torch.Generator().manual_seed(0)
    batch = batch_of(32)
    forbidden = batch[Columns.OBS]["action_mask"] == 0
    results = []
    for kind in (TorchMultiCategorical, MaskedMultiCategorical):
        logits = [torch.randn(32, sum(SIZES), generator=rng.manual_seed(i)).requires_grad_() for i in (1, 2)]
        old, new = (kind.from_logits(x.masked_fill(forbidden, FLOOR), input_lens=SIZES) for x in logits)
        values = [new.logp(batch[Columns.ACTIONS]), new.entropy(), old.kl(new)]
        sum((value * torch.linspace(0.5, 1, 32)).sum() for value in values).backward()
        results.append([*values, new.to_deterministic().sample(), *(x.grad for x in logits)])
    for expected, found in zip(*results, strict=True):
        assert expected.shape == found.shape and torch.allclose(expected, found, atol=1e-5)
    assert all((results[1][i][forbidden] == 0).all() for i in (-1, -2))


@pytest.mark.parametrize("sizes", [SIZES, [8] * 10, [1], [1400]], ids=["ragged", "equal", "one", "wide"])
def test_the_compiled_normalisation_equals_the_plain_one_in_values_and_gradients(sizes: list[int]) -> None:
    """All three outputs, and the gradient of a weighted sum of each; heads with nothing allowed, logits of hundreds, a sequence."""
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
                made = MaskedMultiCategorical.from_logits(logits.masked_fill(forbidden, FLOOR), input_lens=sizes)
                outputs = made.normalise_plainly() if plain else made.normalise_compiled()
                chosen = outputs[part] if part else torch.where(forbidden, 0, outputs[part])
                (chosen * torch.linspace(-1, 2, chosen.numel()).view_as(chosen)).sum().backward()
                found.append([*outputs, logits.grad])
            for expected, ours in zip(*found, strict=True):
                assert torch.allclose(expected, ours, rtol=1e-5, atol=1e-5 * max(1, float(expected.detach()[expected > FLOOR].abs().max())))
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
    """In RLlib's own distribution a weight above 1 times the finite minimum overflows, and the gradient is NaN."""
    grads = []
    for kind in (TorchMultiCategorical, MaskedMultiCategorical):
        logits = torch.tensor([[1.0, 0.0, 2.0]], requires_grad=True)
        (2 * kind.from_logits(logits.masked_fill(torch.tensor([False, False, True]), FLOOR), input_lens=[3]).entropy()).backward()
        grads.append(logits.grad)
    p = 1 / (1 + np.exp(-1))
    assert torch.isnan(grads[0]).any()
    assert grads[1].tolist()[0] == pytest.approx([-2 * p * (1 - p), 2 * p * (1 - p), 0], abs=1e-6)  # dH/dx = −p(1 − p)(x₀ − x₁)


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
    """Log-probability, entropy and divergence 0, no gradient; never a uniform draw over forbidden options."""
    logits = torch.randn(2, 5, requires_grad=True)
    masked = logits.masked_fill(torch.tensor([True, True, True, False, False]), FLOOR)
    both = MaskedMultiCategorical.from_logits(masked, input_lens=[3, 2])
    alone = MaskedMultiCategorical.from_logits(logits[:, 3:], input_lens=[2])
    actions = torch.tensor([[0, 1], [0, 0]])
    assert torch.allclose(both.logp(actions), alone.logp(actions[:, 1:])) and torch.allclose(both.entropy(), alone.entropy())
    assert torch.allclose(both.kl(both), torch.zeros(2)) and (both.sample(sample_shape=(100,))[..., 0] == 0).all()
    both.entropy().sum().backward()
    assert logits.grad is not None and (logits.grad[:, :3] == 0).all() and (logits.grad[:, 3:] != 0).all()


def test_temperatures_flatten_the_allowed_options_only() -> None:
    logits = torch.tensor([[0.0, 2.0, FLOOR, 1.0, 3.0]])
    warm = MaskedMultiCategorical.from_logits(logits, input_lens=[3, 2], temperatures=[2.0, 1.0])
    assert torch.allclose(warm.logp(torch.tensor([[1, 1]])), torch.tensor([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(-2))]).log().sum().float())
    assert float(warm.logp(torch.tensor([[2, 0]]))) == FLOOR
    with pytest.raises(ValueError, match="numbers above 0"):
        MaskedMultiCategorical.from_logits(logits, input_lens=[3, 2], temperatures=[0.0, 1.0])


def test_logits_that_do_not_fit_and_foreign_divergences_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 5 logits, not 4"):
        MaskedMultiCategorical.from_logits(torch.zeros(1, 4), input_lens=[3, 2])
    one, other = (kind.from_logits(torch.zeros(1, 5), input_lens=[3, 2]) for kind in (MaskedMultiCategorical, TorchMultiCategorical))
    with pytest.raises(TypeError, match="both must be MaskedMultiCategorical"):
        one.kl(other)
    with pytest.raises(NotImplementedError, match="no reparametrised sample"):
        one.rsample()


# the examples -------------------------------------------------------------------------------------------------------------


def test_the_comparison_on_a_users_own_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "mine.npz", **rllib_compare.random_batch(np.random.default_rng(1), 16, 9, SIZES))
    monkeypatch.setattr(sys, "argv", ["compare", "--batch", str(tmp_path / "mine.npz"), "--hidden", "8", "--sizes", *map(str, SIZES)])
    rllib_compare.main()
    shown = capsys.readouterr().out
    apart = {line.split()[0]: float(line.split()[1]) for line in shown.splitlines()[1:5]}
    assert set(apart) == {"log-probability", "entropy", "value", "gradients"} and max(apart.values()) < 1e-5
    assert "16 rows, 4 heads, 13 options" in shown and "act" in shown


def test_the_page_shows_the_script_as_it_is() -> None:
    examples = Path(rllib_masked_heads.__file__)
    assert f"```python\n{examples.read_text()}```" in (examples.parent.parent / "docs" / "rllib.md").read_text()


def test_the_copyable_script_trains_saves_and_restores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                       local_ray: None) -> None:
    """In this process and with the Ray that is there: only starting and ending it are left out."""
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(sys, "argv", ["script", "--iterations", "1", "--out", str(tmp_path / "saved")])
    rllib_masked_heads.main()
    shown = capsys.readouterr().out
    assert "iteration 0: mean return" in shown and f"restored from {tmp_path / 'saved'}: return" in shown
