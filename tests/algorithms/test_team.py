"""The agents of a world: each learns from its own rows, together or one after another; runs of them
are saved, resumed and judged."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.algorithms.dqn import DQN_GRAD, DQN_ONLINE, DQN_TARGET
from tenfold.algorithms.dqn_team import SequentialAgents, Team, TeamReplay
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.random import Purpose
from tenfold.core.system import Clock
from tenfold.engines.plain import OffPolicyEngine
from tenfold.memory.replay_rows import FINAL, TRUNCATED

IMPLICIT = {
    "distribution": "implicit(samples=3, target_samples=3, cosines=8, acting=4)",
    "explore": "noisy",
    "frames": 2,
}
SMALL = {
    "name": "dqn",
    "learning_starts": 40,
    "batch_size": 8,
    "every": 10,
    "capacity": 300,
    "n_step": 3,
    "clip_norm": 1.0,
    "target": "hard(5)",
    "net": {"hidden": [16]},
}


def world(env: str = "tenfold/TreasureSmall-v0", num_envs: int = 2, **more: object) -> Run:
    agent = more.pop("agent", {})
    return Run.of(
        {
            "env": env,
            "num_envs": num_envs,
            "steps": 400,
            "eval_every": 0,
            "log_every": 100,
            "checkpoint_every": 150,
            "agent": SMALL | agent,
        }
        | more
    )


def played(run: Run, steps: int) -> OffPolicyLearner:
    place = OffPolicyLearner(run)
    while place.step < steps:
        place.round()
    return place


def test_steps_are_the_worlds_and_an_update_of_all_agents_comes_every_ten() -> None:
    place = played(world(), 300)
    assert place.step == 300 and place.rounds == 150
    assert isinstance(place.agent, Team) and place.agent.members == 5
    assert place.agent.count.tolist() == [26] * 5  # from step 50 on, every tenth: 50, 60, … 300


def test_every_agent_has_its_own_network_rows_and_draws() -> None:
    place = played(world(agent=IMPLICIT), 100)
    team, replay = place.agent, place.replay
    assert isinstance(team, Team) and isinstance(replay, TeamReplay)
    flat = team.block[:, DQN_ONLINE]
    assert len({tuple(row) for row in flat.tolist()}) == 5
    for m, own in enumerate(replay.memories):
        lanes = slice(2 * m, 2 * m + 2)
        assert np.array_equal(
            own.obs[own.head % own.lane_rows + np.arange(2) * own.lane_rows], place.envs.obs[lanes]
        )
        assert np.array_equal(replay.batch.obs[m], own.batch.obs)
    assert not np.array_equal(replay.batch.row[0], replay.batch.row[1])


def test_rewards_of_n_steps_are_summed_and_the_end_of_an_epoch_is_a_truncation() -> None:
    """Epochs last 50 turns: every 51 rows of a lane hold one, the last step truncated, then its
    final observation."""
    place = played(world(num_envs=1), 120)
    assert isinstance(place.replay, TeamReplay)
    for own in place.replay.memories:
        assert (
            own.kind[49] == TRUNCATED
            and own.kind[50] == FINAL
            and own.kind[100] == TRUNCATED
            and own.kind[101] == FINAL
        )
        found = False
        for _ in range(20):
            b = own.sample()
            for item, row in enumerate(b.row):
                last = min(row + 2, next(end for end in (49, 100, 999) if row <= end))
                rewards = own.reward[row : last + 1]
                assert b.reward[item] == pytest.approx(
                    sum(0.99**j * float(r) for j, r in enumerate(rewards)), abs=1e-5
                )
                # never 0: a time limit is no end of the world
                assert b.discount[item] == pytest.approx(0.99 ** len(rewards))
                found = found or len(rewards) < 3
        assert found


def test_an_update_clips_every_agents_gradient_and_leaves_its_loss_unscaled() -> None:
    place = played(
        world(agent={"clip_norm": 0.01, "learning_starts": 10**6} | IMPLICIT, stack="together"), 200
    )
    team, engine = place.agent, place.engine
    assert isinstance(team, Team) and type(engine) is OffPolicyEngine
    engine.update(1, 200, Clock())
    assert team.block[:, DQN_GRAD].norm(dim=-1).tolist() == pytest.approx([0.01] * 5, rel=1e-3)
    # the statistics hold the mean over agents of the mean over items, each computed here by the
    # agent alone on its own batch
    losses = []
    for m, agent in enumerate(team.agents):
        agent.block.copy_(played(place.run, 1).agent.block[m])  # as it was before the update
        agent.count[:] = 0
        batch = {name: rows[m] for name, rows in engine.batch_tensors.items()}
        noise = [agent.draw_noise(p, 0) for p in (Purpose.NOISE_ONLINE, Purpose.NOISE_TARGET)]
        losses.append(agent.loss(batch, *noise, 8)[0].item())
    assert engine.statistics()["loss"] == pytest.approx(np.mean(losses), rel=1e-4)


@pytest.mark.parametrize("stack", ["together", "apart"])
def test_the_target_is_renewed_once_every_so_many_updates(stack: str) -> None:
    place = played(world(stack=stack, engine="plain", agent={"learning_starts": 10**6}), 100)
    target = place.agent.block[:, DQN_TARGET].clone()
    place.engine.update(4, 100, Clock())
    assert torch.equal(place.agent.block[:, DQN_TARGET], target)
    place.engine.update(1, 100, Clock())
    assert torch.equal(place.agent.block[:, DQN_TARGET], place.agent.block[:, DQN_ONLINE])
    assert not torch.equal(place.agent.block[:, DQN_TARGET], target)


def test_the_engine_is_chosen_by_what_fits_and_said_aloud() -> None:
    fused = OffPolicyLearner(world())
    assert (
        isinstance(fused.engine, SequentialAgents)
        and fused.description.engine == "fused, 5 agents one after another: a compiled call each"
    )
    implicit = OffPolicyLearner(world(agent=IMPLICIT))
    assert (
        type(implicit.engine) is OffPolicyEngine
        and "5 agents in one call, faster than one after another" in implicit.description.engine
    )
    # 64 * 3 * 512 * 512 > 30M
    wide = OffPolicyLearner(
        world(agent=IMPLICIT | {"net": {"hidden": [512, 512]}, "batch_size": 64})
    )
    assert (
        isinstance(wide.engine, SequentialAgents)
        and "faster than together when layers are large" in wide.description.engine
    )
    for bad in ({"engine": "compiled"}, {"verify": 5}):
        with pytest.raises(
            ConfigError, match=f"{next(iter(bad))} = .* is for a single agent, and .* has 5"
        ):
            OffPolicyLearner(world(**bad))


def test_fused_agents_do_what_plain_ones_do() -> None:
    """The same draws and rows; after some updates the same parameters within rounding."""
    fused, plain = (played(world(engine=engine), 200) for engine in ("fused", "plain"))
    assert fused.agent.updates == plain.agent.updates > 10
    assert torch.allclose(
        fused.agent.block[:, DQN_ONLINE], plain.agent.block[:, DQN_ONLINE], atol=1e-4
    )
    assert np.array_equal(fused.envs.obs, plain.envs.obs)


@pytest.mark.parametrize(
    "agent", [{}, IMPLICIT, {"replay": "prioritized"}], ids=["fused", "implicit", "prioritised"]
)
def test_a_run_of_a_team_resumes_as_if_never_stopped(agent: dict, tmp_path: Path) -> None:
    run = world(agent=agent)
    ten.train(run, tmp_path / "whole", quiet=True)
    ten.train(ten.Run.of({**to_mapping(run), "steps": 200}), tmp_path / "parts", quiet=True)
    ten.resume(tmp_path / "parts", steps=400, quiet=True)
    whole, parts = (ten.load(tmp_path / name) for name in ("whole", "parts"))
    assert torch.equal(whole.online.flat, parts.online.flat)
    # 400 steps are 8 epochs of 50 turns
    assert (tmp_path / "whole" / "metrics.jsonl").read_text().count('"each"') == 8


def test_a_team_is_loaded_acts_and_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ten.train(world(), tmp_path / "run", quiet=True)
    team = ten.load(tmp_path / "run")
    assert isinstance(team, Team)
    obs = np.random.default_rng(0).integers(0, 2, (5, 75)).astype(np.uint8)
    assert team.act(obs).tolist() == [team.agents[m].act(obs[m]) for m in range(5)]
    assert team.act(np.stack([obs, obs], 1)).shape == (5, 2)
    with pytest.raises(UserError, match="observations of 4 agents were given, and this team has 5"):
        team.act(obs[:4])
    assert (
        main(
            [
                "eval",
                str(tmp_path / "run"),
                "--episodes",
                "5",
                "--json",
                "--video",
                str(tmp_path / "film.gif"),
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert len(found["returns"]) == 5 and len(found["agents"]) == 5 and found["lengths"] == [50] * 5
    assert found["mean_return"] == pytest.approx(np.mean(found["agents"]))
    assert 45 < found["random_mean_return"] < 58 < 100 < found["scripted_mean_return"] < 112
    assert (tmp_path / "film.gif").stat().st_size > 1000 and found["frames"] == 50


def test_agents_may_share_one_network() -> None:
    place = played(world(share=True, agent={"capacity": 2000}), 200)
    assert not isinstance(place.agent, Team) and place.agent.updates == 16
    # the rows of all are its own; 200 steps end four epochs in two worlds
    assert place.replay.rows == 5 * 200
    policy = PPOLearner(
        Run.of(
            {
                "env": "tenfold/TreasureSmall-v0",
                "num_envs": 2,
                "agent": {"name": "ppo", "horizon": 16, "net": {"hidden": [16]}},
            }
        )
    )
    while policy.agent.updates == 0:
        policy.round()
    assert policy.step == 32 and policy.rollout.obs.shape[:2] == (16, 10)


def test_any_pettingzoo_world_with_equal_spaces_trains(tmp_path: Path) -> None:
    result = ten.train(
        world("pettingzoo/mpe2.simple_spread_v3(N=3)", agent={"learning_starts": 20}),
        tmp_path / "run",
        quiet=True,
    )
    team = ten.load(result.path)
    assert isinstance(team, Team) and team.members == 3 and result.step == 400
    assert ten.evaluate(result, episodes=4).mean_return < 0
