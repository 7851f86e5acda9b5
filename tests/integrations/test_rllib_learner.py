"""The learner: its update is that of RLlib's own PPO learner, from the same episodes; its state is
RLlib's; what it refuses."""

import copy
import logging
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from ragged import Ragged, Uneven, small
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from tenfold.integrations.rllib import FusedPPOTorchLearner, MultiHeadActionMaskRLModule
from tenfold.integrations.rllib.learner import (
    OUTPUTS,
    EpisodeTable,
    MinibatchPlan,
    advantages,
    minibatch_order,
    steps_of,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*already in registry:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-.*:UserWarning"),
]


@pytest.fixture(scope="module")
def rounds() -> list[list[Any]]:
    """Two samples of RLlib's own runner; episodes terminate, meet a time limit, or are cut by the
    end of the sample and go on in the next."""
    torch.manual_seed(0)
    config = small(Uneven).env_runners(num_envs_per_env_runner=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one name for every environment, in RLlib's registry
        runner = SingleAgentEnvRunner(config=config, worker_index=0)
    return [runner.sample(num_timesteps=100) for _ in range(2)]


def learner(kind: type, **settings: Any) -> Any:
    config = small(Uneven).training(learner_class=kind, **settings)
    torch.manual_seed(0)
    return config.build_learner(env=Uneven())


def updated(of: Any, episodes: list[Any], seed: int = 0) -> Any:
    """Results of an update; RLlib's connectors change episodes, so it is given copies. RLlib
    shuffles by NumPy's global generator."""
    np.random.seed(seed)  # noqa: NPY002
    return of.update(
        episodes=copy.deepcopy(episodes),
        timesteps={"num_env_steps_sampled_lifetime": 100},
        num_epochs=of.config.num_epochs,
        minibatch_size=of.config.minibatch_size,
        shuffle_batch_per_epoch=of.config.shuffle_batch_per_epoch,
    )


def weights(of: Any) -> torch.Tensor:
    module = of.module[DEFAULT_MODULE_ID]
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def moments(of: Any, name: str) -> torch.Tensor:
    state = of.get_optimizer(DEFAULT_MODULE_ID).state_dict()["state"]
    return torch.cat([state[place][name].reshape(-1) for place in sorted(state)])


SETTINGS = {
    "default": {},
    "limits that hold": {
        "grad_clip": 0.3,
        "entropy_coeff": 0.02,
        "vf_clip_param": 0.5,
        "vf_loss_coeff": 0.7,
        "kl_coeff": 0.7,
        "clip_param": 0.02,
        "lr": 1e-2,
    },
    "one minibatch": {"use_kl_loss": False, "minibatch_size": None, "num_epochs": 1},
    "minibatches beyond the end": {"minibatch_size": 47, "num_epochs": 3, "gamma": 0.9},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_an_update_is_that_of_rllibs_own_learner(
    settings: dict[str, Any], rounds: list[list[Any]]
) -> None:
    """Parameters, Adam's moments and every result, after two updates in which the divergence's
    weight adapts; the first moments are the gradients."""
    expected, found = (
        learner(kind, **settings) for kind in (PPOTorchLearner, FusedPPOTorchLearner)
    )
    before = weights(found)
    for episodes in rounds:
        results = []
        for one in (expected, found):
            results.append(updated(one, episodes, seed=5))
        for part in ("default_policy", "__all_modules__"):
            theirs, ours = (result[part] for result in results)
            assert {key for key in theirs if "connector" not in key} == set(ours)
            for key in ours:
                if not key.startswith("num_") or "trained" in key:
                    told = [float(np.asarray(one[key].peek())) for one in (theirs, ours)]
                    assert told[1] == pytest.approx(told[0], rel=1e-4, abs=1e-5), key
    assert (weights(found) - before).abs().max() > 5e-5
    assert torch.allclose(weights(expected), weights(found), atol=1e-6)
    for name in ("exp_avg", "exp_avg_sq", "step"):
        assert torch.allclose(moments(expected, name), moments(found, name), rtol=1e-4, atol=1e-6)


def test_advantages_and_targets_are_those_of_rllibs_connectors(rounds: list[list[Any]]) -> None:
    """At terminal steps, time limits and cuts alike."""
    theirs, ours = learner(PPOTorchLearner), learner(FusedPPOTorchLearner)
    batch = theirs._learner_connector(
        rl_module=theirs.module,
        batch={},
        episodes=copy.deepcopy(rounds[1]),
        shared_data={},
        metrics=theirs.metrics,
    )[DEFAULT_MODULE_ID]
    steps = steps_of(rounds[1], OUTPUTS)
    rows = ours.rows(steps)
    assert steps.terminated.sum() > 2 and steps.truncated.sum() > 3  # three of them cuts
    assert torch.equal(batch["loss_mask"], torch.from_numpy(rows.counts).bool())
    assert torch.equal(batch[Columns.OBS]["observations"], torch.from_numpy(rows.obs))
    assert torch.equal(batch[Columns.ACTIONS].long(), torch.from_numpy(rows.actions))
    for name, column in (
        (Columns.ACTION_LOGP, rows.log_p),
        (Columns.ACTION_DIST_INPUTS, rows.old),
        ("advantages", rows.advantage),
        ("value_targets", rows.target),
    ):
        assert torch.allclose(batch[name], torch.from_numpy(column), rtol=1e-5, atol=1e-6), name


def test_a_step_cut_by_a_time_limit_is_bootstrapped_from_its_own_last_observation() -> None:
    """By hand: r = 1, γ = 0.99, V = 5 and then 5: δ = 0.95; the same step terminated: δ = −4."""
    end = np.array([True, False, False, False])
    cut = np.array([False, False, True, False])
    steps = EpisodeTable(
        {}, {}, np.array([1, 0, 1, 0], np.float32), end, cut, np.float32([1, 0, 1, 0])
    )
    _, target = advantages(steps, np.float32([5, 7, 5, 5]), 0.99, 0.95)
    assert target[0] - 5 == pytest.approx(-4) and target[2] - 5 == pytest.approx(0.95)


def test_minibatches_go_on_in_the_next_epoch() -> None:
    """Five rows, two epochs, minibatches of three: the second takes the end and a new beginning."""
    order = minibatch_order(MinibatchPlan(5, 2, 3, True), lambda rows: np.arange(rows)[::-1])
    assert order.tolist() == [[0, 1, 2], [3, 4, 4], [3, 2, 1], [0, 0, 1]]
    whole = minibatch_order(MinibatchPlan(4, 1, 4, False), np.random.permutation)
    assert whole.tolist()[0] == [0, 1, 2, 3]


def test_its_state_is_rllibs_and_goes_on_in_either_learner(rounds: list[list[Any]]) -> None:
    # RLlib's state has no adapted weight of the divergence
    first = learner(FusedPPOTorchLearner, use_kl_loss=False)
    updated(first, rounds[0])
    state = copy.deepcopy(first.get_state())
    ends = []
    for kind in (FusedPPOTorchLearner, PPOTorchLearner):
        other = learner(kind, use_kl_loss=False)
        other.set_state(copy.deepcopy(state))
        updated(other, rounds[1], seed=2)
        ends.append(weights(other))
    updated(first, rounds[1], seed=2)
    assert torch.equal(weights(first), ends[0]) and torch.allclose(ends[0], ends[1], atol=1e-6)


def test_gradients_that_are_not_finite_become_zero_and_are_told_of(
    rounds: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes = copy.deepcopy(rounds[0])
    episodes[0].rewards.data[0] = np.nan
    found = learner(FusedPPOTorchLearner)
    told: list[str] = []
    monkeypatch.setattr(logging.getLogger("ray.rllib"), "warning", told.append)
    updated(found, episodes)
    assert torch.isfinite(weights(found)).all() and "`nan/inf` values" in told[0]


# what is refused


class OwnLoss(FusedPPOTorchLearner):
    def compute_loss_for_module(self, **_: Any) -> Any:
        return 0


class OwnFeatures(MultiHeadActionMaskRLModule):
    def features(self, batch: Any) -> Any:
        return super().features(batch)


def with_module(kind: type | None, **model: Any) -> Callable[[PPOConfig], PPOConfig]:
    spec = RLModuleSpec(module_class=kind, model_config=model)
    return lambda config: config.rl_module(rl_module_spec=spec)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (
            lambda c: c.multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda *_: "a"),
            "multi-agent",
        ),
        (lambda c: c.learners(learner_connector=lambda *_: FlattenObservations()), "learner_conn"),
        (lambda c: c.learners(num_learners=2), "num_learners is 2"),
        (lambda c: c.training(grad_clip=1.0, grad_clip_by="value"), "grad_clip_by is value"),
        (lambda c: c.training(use_critic=False), "use_critic"),
        (lambda c: c.training(learner_class=OwnLoss), "OwnLoss has its own"),
        (with_module(OwnFeatures, hidden=[8]), "OwnFeatures has its own features"),
        (with_module(MultiHeadActionMaskRLModule, hidden=[8], critic=[4]), "trains no critic"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(
    change: Callable[[PPOConfig], PPOConfig], names: str
) -> None:
    config = change(small(Ragged).training(learner_class=FusedPPOTorchLearner))
    config.validate = lambda: None  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=names) as refused:
        config.build_learner(env=Ragged())
    assert "RLlib's own learner takes it" in str(refused.value)


def test_modules_of_others_are_refused_by_name() -> None:
    config = PPOConfig().environment("CartPole-v1").training(learner_class=FusedPPOTorchLearner)
    with pytest.raises(ValueError, match="and this is a DefaultPPOTorchRLModule"):
        config.build_learner(env=gym.make("CartPole-v1"))
