"""The module in RLlib's learner equals a loop over heads; the comparison and the page about it. What
trains is in test_rllib_whole.py."""

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ragged import FLOOR, SIZES, Ragged, batch_of, build, rllib_compare, small
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from tenfold.integrations.rllib import MultiHeadActionMaskRLModule

# RLlib registers every environment under the same name
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*Overriding environment rllib-.*-env-v0 already in registry:UserWarning"
)
logging.getLogger("ray").setLevel(logging.ERROR)


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
