"""Whole RLlib runs, on one Ray for all of them. With our environment runner and learner: results,
checkpoints, evaluation, remote runners and Tune stay RLlib's; each part works without the other.
With the module alone: it trains and restores, for two agents too, and the example runs."""

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ragged import Ragged, Uneven, batch_of, rllib_masked_heads, small
from ray import tune
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from tenfold.integrations.rllib import (
    BulkEnvRunner,
    CriticPPOTorchLearner,
    FusedPPOTorchLearner,
    MultiHeadActionMaskRLModule,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*already in registry:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-.*:UserWarning"),
    pytest.mark.usefixtures("local_ray"),
]
logging.getLogger("ray").setLevel(logging.ERROR)


def ours(config: PPOConfig, runner: bool = True, learner: bool = True) -> PPOConfig:
    if runner:
        config = config.env_runners(env_runner_cls=BulkEnvRunner)
    return config.training(learner_class=FusedPPOTorchLearner) if learner else config


def weights(algorithm: Any) -> torch.Tensor:
    module = algorithm.learner_group._learner.module[DEFAULT_MODULE_ID]
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def trained(config: PPOConfig) -> tuple[dict[str, Any], torch.Tensor]:
    """The results and the weights after two iterations."""
    algorithm = config.build_algo()
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  # RLlib shuffles by it
    algorithm.train()
    result = algorithm.train()
    found = weights(algorithm)
    algorithm.stop()
    return result, found


@pytest.mark.parametrize(
    ("runner", "learner"),
    [
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
        (True, True),
    ],
    ids=["runner", "learner", "both"],
)
def test_training_is_that_of_rllibs_own_parts(runner: bool, learner: bool) -> None:
    """From the same seeds: the same episodes and, within rounding, the same weights; every key of
    the results but those of connectors."""
    expected, theirs = trained(small(Uneven))
    result, found = trained(ours(small(Uneven), runner, learner))
    assert torch.allclose(theirs, found, atol=1e-5)
    for part in ("env_runners", "learners"):
        missing = set(expected[part]) - set(result[part])
        assert all("connector" in key or "env_to_module" in key for key in missing), missing
    for name in ("episode_return_mean", "episode_len_max", "num_env_steps_sampled_lifetime"):
        assert expected["env_runners"][name] == result["env_runners"][name]
    losses = [result["learners"][DEFAULT_MODULE_ID] for result in (expected, result)]
    for name in ("total_loss", "policy_loss", "vf_loss", "entropy", "mean_kl_loss"):
        assert float(losses[1][name]) == pytest.approx(float(losses[0][name]), abs=1e-4), name


@pytest.mark.slow
def test_two_remote_runners_and_evaluation() -> None:
    """The environment refuses a forbidden action, and every episode is ten steps long."""
    config = (
        ours(small(Ragged))
        .env_runners(num_env_runners=2)
        .evaluation(evaluation_interval=1, evaluation_duration=4, evaluation_num_env_runners=0)
    )
    algorithm = config.build_algo()
    for iteration in range(2):
        result = algorithm.train()
        assert result["env_runners"]["num_env_steps_sampled_lifetime"] >= 100 * (iteration + 1)
    assert result["env_runners"]["episode_len_mean"] == 10
    assert result["evaluation"]["env_runners"]["num_episodes"] == 4
    assert result["evaluation"]["env_runners"]["episode_len_mean"] == 10
    algorithm.stop()


def test_a_restored_checkpoint_has_weights_and_moments_and_goes_on(tmp_path: Path) -> None:
    algorithm = ours(small(Ragged)).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path / "checkpoint")
    restored = PPO.from_checkpoint(str(tmp_path / "checkpoint"))
    assert torch.equal(weights(algorithm), weights(restored))
    optimisers = [
        a.learner_group._learner.get_optimizer(DEFAULT_MODULE_ID).state_dict()["state"]
        for a in (algorithm, restored)
    ]
    assert len(optimisers[0]) == 6
    for place, moments in optimisers[0].items():
        assert all(torch.equal(moments[name], optimisers[1][place][name]) for name in moments)
    algorithm.stop()
    later = restored.train()
    assert later["training_iteration"] == 2
    assert later["env_runners"]["num_env_steps_sampled_lifetime"] == 200
    restored.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # of environments that RLlib registers for it
def test_tune_runs_it(tmp_path: Path) -> None:
    config = ours(small(Ragged)).training(lr=tune.grid_search([1e-3, 1e-4]))
    found = tune.Tuner(
        "PPO",
        param_space=config,
        run_config=tune.RunConfig(
            stop={"training_iteration": 2}, storage_path=str(tmp_path), verbose=0
        ),
    ).fit()
    assert len(found) == 2 and not found.errors
    for one in found:
        assert one.metrics and one.metrics["training_iteration"] == 2
        assert np.isfinite(one.metrics["env_runners"]["episode_return_mean"])


@pytest.mark.slow
def test_returns_over_five_seeds_overlap_rllibs_own() -> None:
    """Ten masked heads, 15 iterations of 2,048 steps: the intervals of mean ± 2 standard errors
    over the same five seeds meet, and both learn."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(5):
        for own in found:
            config = rllib_masked_heads.configuration(seed=seed)
            algorithm = (ours(config) if own else config).build_algo()
            for _ in range(15):
                result = algorithm.train()
            found[own].append(result["env_runners"]["episode_return_mean"])
            algorithm.stop()
    means = {own: np.mean(values) for own, values in found.items()}
    errors = {own: np.std(values, ddof=1) / 5**0.5 for own, values in found.items()}
    print(found)
    assert min(means.values()) > 0.3  # a random allowed choice earns 0
    assert abs(means[True] - means[False]) < 2 * (errors[True] + errors[False])


@pytest.mark.slow
@pytest.mark.parametrize("bulk", [False, True])
def test_restored_remote_runners_are_given_the_weights_by_a_line_of_the_docs(
    bulk: bool, tmp_path: Path
) -> None:
    """RLlib may leave them with those they were made with, which depends on timing."""
    config = small(Ragged).env_runners(num_env_runners=1)
    algorithm = (ours(config) if bulk else config).build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path / "checkpoint")
    algorithm.stop()
    restored = PPO.from_checkpoint(str(tmp_path / "checkpoint"))

    def remote() -> torch.Tensor:
        (found,) = restored.env_runner_group.foreach_env_runner(
            lambda runner: runner.module.state_dict()["net.policy.weight"].clone(),
            local_env_runner=False,
        )
        return found

    learned = restored.learner_group._learner.module[DEFAULT_MODULE_ID].net.policy.weight.detach()
    restored.env_runner_group.sync_weights(
        from_worker_or_learner_group=restored.learner_group,
        inference_only=True,
        timeout_seconds=60.0,
    )
    assert torch.equal(remote(), learned)
    restored.stop()


# the module alone, in RLlib's own parts


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


def test_the_copyable_script_trains_saves_and_restores(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
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
