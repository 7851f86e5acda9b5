"""The module inside RLlib: trains, restores, never plays a forbidden action, and equals a loop over
heads; the examples run."""

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ragged import FLOOR, SIZES, Ragged, batch_of, build, rllib_compare, rllib_masked_heads, small
from ray.rllib.algorithms.ppo import PPO
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from tenfold.integrations.rllib import CriticPPOTorchLearner, MultiHeadActionMaskRLModule

# RLlib registers every environment under the same name
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*Overriding environment rllib-.*-env-v0 already in registry:UserWarning"
)
logging.getLogger("ray").setLevel(logging.ERROR)


class Pair(MultiAgentEnv):
    """Two agents, each with a world of its own."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.worlds = {"flat": Ragged(), "named": Ragged({"by_head": True})}
        self.agents = self.possible_agents = list(self.worlds)
        self.observation_spaces = {
            name: world.observation_space for name, world in self.worlds.items()
        }
        self.action_spaces = {name: world.action_space for name, world in self.worlds.items()}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        return {name: world.reset(seed=seed)[0] for name, world in self.worlds.items()}, {}

    def step(self, action_dict: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        each = {name: self.worlds[name].step(action) for name, action in action_dict.items()}
        obs, reward, terminated, truncated = (
            {name: found[i] for name, found in each.items()} for i in range(4)
        )
        return (
            obs,
            reward,
            terminated | {"__all__": all(terminated.values())},
            truncated | {"__all__": False},
            {},
        )


# inside RLlib


@pytest.mark.usefixtures("local_ray")
def test_ppo_trains_and_a_restored_checkpoint_acts_and_values_alike(tmp_path: Path) -> None:
    algorithm = small(Ragged).build_algo()
    # the environment asserts every action
    learned = [algorithm.train()["learners"][DEFAULT_MODULE_ID] for _ in range(2)]
    for name in ("policy_loss", "vf_loss", "entropy", "mean_kl_loss"):
        assert all(np.isfinite(float(result[name])) for result in learned), name
    algorithm.save_to_path(tmp_path / "checkpoint")
    restored = PPO.from_checkpoint(str(tmp_path / "checkpoint"))
    batch = batch_of(9)
    before, after = (
        a.learner_group._learner.module[DEFAULT_MODULE_ID].unwrapped()
        for a in (algorithm, restored)
    )
    assert torch.equal(before.compute_values(batch), after.compute_values(batch))
    acting = [a.get_module() for a in (algorithm, restored)]
    assert not hasattr(acting[0], "value") and all(module.inference_only for module in acting)
    with pytest.raises(
        ValueError, match=r"an inference_only module, .* has no value: ask the learner"
    ):
        acting[0].compute_values(batch)
    # where it is: in the checkpoint's learner
    kept = tmp_path / "checkpoint" / "learner_group" / "learner" / "rl_module" / DEFAULT_MODULE_ID
    whole: Any = RLModule.from_checkpoint(kept)
    assert not whole.inference_only
    assert torch.equal(whole.compute_values(batch), before.compute_values(batch))
    found = [module.forward_inference(batch) for module in (*acting, before)]
    for other in found[1:]:
        assert torch.equal(found[0][Columns.ACTIONS], other[Columns.ACTIONS])
        assert torch.equal(found[0][Columns.ACTION_DIST_INPUTS], other[Columns.ACTION_DIST_INPUTS])
    algorithm.stop()
    restored.stop()


@pytest.mark.usefixtures("local_ray")
def test_two_agents_with_modules_of_their_own_train_and_the_critic_learns() -> None:
    """One agent's masks are flat, the other's a Dict; one module has a critic, which moves towards
    the returns."""
    specs = {
        "flat": RLModuleSpec(
            module_class=MultiHeadActionMaskRLModule, model_config={"hidden": [16], "critic": [8]}
        ),
        "named": RLModuleSpec(
            module_class=MultiHeadActionMaskRLModule, model_config={"hidden": [8]}
        ),
    }
    # the check plays random actions, forbidden ones too
    config = (
        small(Pair)
        .environment(disable_env_checking=True)
        .multi_agent(policies=set(specs), policy_mapping_fn=lambda agent, *_, **__: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        .training(learner_class=CriticPPOTorchLearner, learner_config_dict={"critic_coeff": 0.5})
    )
    algorithm = config.build_algo()
    module = algorithm.learner_group._learner.module["flat"].unwrapped()
    before = module.critic[-1].bias.clone()
    learned = algorithm.train()["learners"]
    assert np.isfinite(float(learned["flat"]["critic_loss"])) and np.isfinite(
        float(learned["named"]["policy_loss"])
    )
    assert "critic_loss" not in learned["named"] and not torch.equal(before, module.critic[-1].bias)
    algorithm.stop()


def learner_gradients(
    module_class: type, batch: dict[str, Any]
) -> tuple[torch.Tensor, dict[str, torch.Tensor], Any]:
    """RLlib's PPO learner on one batch: its loss and the gradients by parameter name."""
    config = small(Ragged).rl_module(
        rl_module_spec=RLModuleSpec(module_class=module_class, model_config={"hidden": [16, 12]})
    )
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
    return (
        losses[DEFAULT_MODULE_ID].detach(),
        {name: p.grad for name, p in module.named_parameters()},
        module,
    )


def test_loss_and_gradients_in_rllibs_ppo_learner_equal_a_loop_over_heads(tmp_path: Path) -> None:
    rng = torch.Generator().manual_seed(5)
    batch = batch_of(64)
    allowed = batch[Columns.OBS]["action_mask"].bool()
    old = torch.randn(64, sum(SIZES), generator=rng).masked_fill(~allowed, FLOOR)
    batch |= {
        Columns.ACTION_DIST_INPUTS: old,
        "advantages": torch.randn(64, generator=rng),
        "value_targets": torch.randn(64, generator=rng),
        "file": tmp_path / "weights",
        Columns.ACTION_LOGP: TorchMultiCategorical.from_logits(old, input_lens=SIZES).logp(
            batch[Columns.ACTIONS]
        ),
    }
    expected, loops, _ = learner_gradients(rllib_compare.PerHead, batch)
    found, ours, module = learner_gradients(MultiHeadActionMaskRLModule, batch)
    assert float((expected - found).abs()) < 1e-5
    pairs = list(zip(rllib_compare.as_new(loops, module), ours.values(), strict=True))
    assert len(pairs) == 8 and max(float(e.abs().max()) for e, _ in pairs) > 1e-2
    assert max(float((e - f).abs().max()) for e, f in pairs) < 1e-5


def test_the_ratio_is_one_before_the_first_update() -> None:
    """What was drawn is evaluated with its own mask: log-probabilities of acting and of learning
    agree."""
    module, batch = build(), batch_of(200)
    acted = module.forward_exploration(batch)
    kind = module.get_train_action_dist_cls()
    learned = kind.from_logits(module.forward_train(batch)[Columns.ACTION_DIST_INPUTS])
    assert torch.allclose(
        (learned.logp(acted[Columns.ACTIONS]) - acted[Columns.ACTION_LOGP]).exp(),
        torch.ones(200),
        atol=1e-5,
    )
    assert torch.allclose(
        kind.from_logits(acted[Columns.ACTION_DIST_INPUTS]).kl(learned), torch.zeros(200), atol=1e-6
    )


# the examples


def test_the_comparison_on_a_users_own_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(
        tmp_path / "mine.npz", **rllib_compare.random_batch(np.random.default_rng(1), 16, 9, SIZES)
    )
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "compare",
            "--batch",
            str(tmp_path / "mine.npz"),
            "--hidden",
            "8",
            "--sizes",
            *map(str, SIZES),
        ],
    )
    rllib_compare.main()
    shown = capsys.readouterr().out
    apart = {line.split()[0]: float(line.split()[1]) for line in shown.splitlines()[1:5]}
    assert (
        set(apart) == {"log-probability", "entropy", "value", "gradients"}
        and max(apart.values()) < 1e-5
    )
    assert "16 rows, 4 heads, 13 options" in shown and "act" in shown


def test_the_page_shows_the_script_as_it_is() -> None:
    examples = Path(rllib_masked_heads.__file__)
    assert (
        f"```python\n{examples.read_text()}```"
        in (examples.parent.parent / "docs" / "rllib.md").read_text()
    )


def test_the_copyable_script_trains_saves_and_restores(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    local_ray: None,
) -> None:
    """In this process and with the Ray that is there: only starting and ending it are left out."""
    monkeypatch.setattr(ray, "init", lambda *_, **__: None)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(
        sys, "argv", ["script", "--iterations", "1", "--out", str(tmp_path / "saved")]
    )
    rllib_masked_heads.main()
    shown = capsys.readouterr().out
    assert (
        "iteration 0: mean return" in shown
        and f"restored from {tmp_path / 'saved'}: return" in shown
    )
