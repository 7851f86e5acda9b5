"""Policies from the command line and from Python, as a user trains, resumes, plays and judges
them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.algorithms.ppo import PPOAgent
from tenfold.cli.main import main
from tenfold.domains.jobshop.reading import read_instance
from tenfold.domains.jobshop.schedule import check_schedule
from tenfold.evaluation.player import ChosenEpisodes
from tenfold.training.learners import agent_of

SMALL = [
    "--agent.horizon",
    "16",
    "--agent.minibatches",
    "2",
    "--agent.net.hidden",
    "8",
    "--num-envs",
    "2",
    "--log-every",
    "100",
    "--checkpoint-every",
    "200",
    "--eval-every",
    "0",
    "--quiet",
]


def told(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_a_policy_is_trained_stopped_resumed_and_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, halves = str(tmp_path / "whole"), str(tmp_path / "halves")
    command = [
        "train",
        "ppo",
        "--env",
        "tenfold/CartPole-v1",
        *SMALL,
        "--agent.normalize-obs",
        "true",
    ]
    assert main([*command, "--steps", "1k", "--out", whole]) == 0
    assert main([*command, "--steps", "500", "--out", halves]) == 0
    assert main(["resume", halves, "--steps", "1k", "--quiet"]) == 0
    one, other = ten.load(whole), ten.load(halves)
    assert np.array_equal(one.online.flat.numpy(), other.online.flat.numpy())
    assert np.array_equal(one.norm.mean, other.norm.mean) and one.norm.count[0] == 1002  # type: ignore[union-attr]
    capsys.readouterr()
    assert main(["eval", whole, "--episodes", "3", "--json"]) == 0
    found = told(capsys)
    assert len(found["returns"]) == 3 and found["mean_return"] == pytest.approx(
        sum(found["lengths"]) / 3
    )
    assert (tmp_path / "whole" / "report.html").exists()
    rows = [
        json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    ]
    logged = [row for row in rows if row["kind"] == "train" and "policy_loss" in row]
    assert logged and {"value_loss", "entropy", "kl", "clipped", "grad_norm"} <= set(logged[-1])


def test_seeds_of_a_policy_equal_single_runs(tmp_path: Path) -> None:
    base = ["train", "ppo", "--env", "tenfold/CartPole-v1", *SMALL, "--steps", "400"]
    assert main([*base, "--seeds", "2", "--out", str(tmp_path / "both")]) == 0
    assert main([*base, "--seed", "1", "--out", str(tmp_path / "one")]) == 0
    assert np.array_equal(
        ten.load(tmp_path / "both" / "seed-1").online.flat.numpy(),
        ten.load(tmp_path / "one").online.flat.numpy(),
    )


@pytest.mark.usefixtures("pictures")
def test_a_job_shop_is_judged_beside_the_optimum_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "shop")
    short = ["--steps", "2k", "--num-envs", "16"]
    assert main(["train", "jobshop-ft06", *short, "--out", out, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["eval", out, "--episodes", "1", "--json"]) == 0
    found = told(capsys)
    assert found["optimum"] == 55 <= found["best_makespan"] <= found["untrained_best_makespan"] + 20
    assert found["greedy_makespan"] >= 55 and found["untrained_best_makespan"] >= 55
    # the same simulator, no policy
    assert found["rules"]["SPT"] == 88 and found["rules"]["MWKR"] == 61
    schedule = [tuple(row) for row in found["schedule"]]
    from tenfold.domains.jobshop.schedule import Scheduled
    from tenfold.domains.jobshop.tables import sections

    assert check_schedule(read_instance("ft06"), [Scheduled(*row) for row in schedule]) == min(
        found["best_makespan"], found["greedy_makespan"]
    )
    assert (tmp_path / "shop" / "gantt.png").stat().st_size > 5000
    assert main(["eval", out, "--episodes", "1"]) == 0
    words = capsys.readouterr().out
    assert "the optimum is 55" in words and "untrained" in words and "gantt.png" in words
    assert "lower bound 55" in words
    assert main(["eval", out, "--episodes", "1", "--instance", "ft06", "--samples", "3"]) == 0
    assert "best of 3 samples" in capsys.readouterr().out
    assert main(["eval", out, "--episodes", "1", "--suite", "orb"]) == 2
    assert "cannot play orb01" in capsys.readouterr().err
    assert main(["eval", out, "--episodes", "1", "--instance", "none.txt"]) == 2
    assert "no instance none.txt" in capsys.readouterr().err
    # what the last of them found is shown below
    assert main(["eval", out, "--episodes", "1"]) == 0
    assert "Schedule" not in (tmp_path / "shop" / "report.html").read_text()
    assert main(["report", out]) == 0
    page = (tmp_path / "shop" / "report.html").read_text()
    assert (
        f"<th>makespan, greedy</th><td>{found['greedy_makespan']}</td>" in page
        and "<th>rule SPT</th><td>88</td>" in page
    )
    assert page.count("data:image/png;base64,") == 1  # the chart; the curve is drawn by the page
    # of another checkpoint there is a section of its own
    step = str(found["step"])
    assert main(["eval", out, "--episodes", "1", "--checkpoint", step, "--samples", "1"]) == 0
    assert f"gantt-{step}.png" in capsys.readouterr().out
    assert [section.title for section in sections(tmp_path / "shop")] == [
        f"Schedule, checkpoint {which} (step {found['step']:,})" for which in (step, "last")
    ]


def test_seeds_of_a_job_shop_are_judged_each_and_the_best_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "shops")
    short = ["--steps", "1k", "--num-envs", "16", "--seeds", "2"]
    assert main(["train", "jobshop-ft06", *short, "--out", out, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["eval", out, "--episodes", "1", "--json"]) == 0
    each = [
        min(member["best_makespan"], member["greedy_makespan"])
        for member in told(capsys)["members"]
    ]
    assert main(["eval", out, "--episodes", "1"]) == 0
    words = capsys.readouterr().out
    assert (
        words.count("   makespan ") == 2
        and f"the best, {min(each)} by seed {each.index(min(each))}:" in words
    )
    assert (
        f"chart      {out}/seed-{each.index(min(each))}/gantt.png" in words
        and "machine 5 |" in words
    )


@pytest.mark.parametrize("env", ["tenfold/JobShop-v0(instance=ft06)", "tenfold/Pendulum-v1"])
def test_a_batch_is_sampled_by_the_draws_of_each_row_alone(env: str) -> None:
    run = ten.Run.of({"env": env, "agent": {"name": "ppo", "on_empty": "absent"}})
    agent, envs = agent_of(run), ChosenEpisodes(env, 1, [0], policy=True)
    assert isinstance(agent, PPOAgent)
    rows, mask = (
        np.concatenate([envs.obs] * 40),
        None if envs.mask is None else np.concatenate([envs.mask] * 40),
    )
    episode, step = np.arange(40) % 7, np.arange(40) // 7
    together = agent.policy("sampled")(rows, mask, episode, step)
    alone = [
        agent.sampled(rows[:1], None if mask is None else mask[:1], int(e) * 2**32 + int(s))
        for e, s in zip(episode, step, strict=True)
    ]
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-5)
    assert len(np.unique(together, axis=0)) > 3  # and they are not all one


def test_a_file_of_a_known_name_has_no_known_optimum_and_means_the_same_file_from_any_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder, long in ((here, 3), (there, 30)):
        folder.mkdir()
        (folder / "ft06.txt").write_text(f"2 2\n0 {long} 1 2\n0 2 1 4\n")
    monkeypatch.chdir(here)
    shop = [
        "train",
        "ppo",
        "--env",
        "tenfold/JobShop-v0(instance=ft06.txt)",
        "--agent.on-empty",
        "absent",
        *SMALL,
        "--quiet",
    ]
    assert main([*shop, "--steps", "200", "--out", "one"]) == 0
    assert main([*shop, "--steps", "200", "--out", "many", "--seeds", "1"]) == 0
    monkeypatch.chdir(there)
    capsys.readouterr()
    assert main(["eval", str(here / "one"), "--episodes", "1", "--json"]) == 0
    found = told(capsys)
    # job 1 first: 0-2 and 2-6, then 2-5 and 6-8
    assert found["optimum"] is None and found["best_makespan"] == 8
    for run in ("one/config.yaml", "many/config.yaml", "many/seed-0/config.yaml"):
        assert f"instance={here}/ft06.txt" in (here / run).read_text()
    (here / "ft06.txt").write_text((there / "ft06.txt").read_text())
    assert main(["resume", str(here / "one"), "--steps", "400"]) == 2
    assert "the instance is not the one this run was trained on" in capsys.readouterr().err


def test_python_trains_a_policy(tmp_path: Path) -> None:
    run = ten.Run(
        env="tenfold/Pendulum-v1",
        num_envs=2,
        steps=400,
        eval_every=0,
        agent=ten.PPO(horizon=20, net=ten.PolicyNet(hidden=(8,))),
    )
    result = ten.train(run, tmp_path / "run", quiet=True)
    assert result.step == 400
    action = ten.load(result.path).act(np.zeros(3, np.float32))
    assert action.shape == (1,) and -2 <= action[0] <= 2
    assert ten.evaluate(result, episodes=2).episodes == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--agent.capacity", "5"],
            "agent.capacity = 5 is not a setting of ppo, which this run trains: it belongs to dqn",
        ),
        (["--agent.horizn", "5"], "--agent.horizn is not a flag"),
        (["--agent.clip", "0"], "agent.clip = 0 is out of range"),
        (["--agent.name", "pppo"], "is not one of dqn, ppo"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            ["train", "ppo", "--env", "tenfold/CartPole-v1", "--out", str(tmp_path / "run"), *flags]
        )
        == 2
    )
    assert words in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agent: ppp\n", "agent.name = ppp is not one of dqn"),
        ("agent: [ppo]\n", "is not a group of settings"),
        ("agent: {name: ppo, net: [64, 64]}\n", "agent.net = [64, 64] is not a group"),
    ],
)
def test_a_group_written_otherwise_in_yaml_is_refused(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(text)
    assert main(["train", str(file)]) == 2
    assert words in capsys.readouterr().err


def test_pieces_work_alone() -> None:
    """A step cut by a time limit: δ = 1 + 0.99·5 − 5 = 0.95, from the final observation's value and
    not the next episode's."""
    one = np.ones((1, 1))
    assert ten.ops.gae(one, one * 0.99, one * 5, one * 5, one, 0.95)[0, 0] == pytest.approx(0.95)
    # [T]: δ = 1 + 2 − 2 and 1 − 4
    row = ten.ops.gae([1.0, 1.0], [0.5, 0.0], [2.0, 4.0], [4.0, 9.0], [False, True], lam=0.5)
    assert row.tolist() == [1 - 0.25 * 3, -3.0]
    out = torch.zeros(2)
    given = [
        torch.tensor(a) for a in ([1.0, 1.0], [0.5, 0.0], [2.0, 4.0], [4.0, 9.0], [False, True])
    ]
    assert ten.ops.gae(*given, lam=0.5, out=out) is out and out.tolist() == row.tolist()
    with pytest.raises(ValueError, match=r"discount must be \[T\], \[T, B\]"):
        ten.ops.gae(np.ones(2), 0.9, np.ones(2), np.ones(2), np.ones(2), 0.5)
    assert ten.ops.MaskedHeads([2, 3]).options == 5
    with pytest.raises(AttributeError):
        ten.ops.nothing  # noqa: B018


def test_act_takes_the_mask_that_comes_with_the_observation_and_batches_as_vector_environments_give_them(
    tmp_path: Path,
) -> None:
    """The key `action_mask` counts as in training; one observation, a list of them, or leaves with
    the batch in front."""
    from gymnasium import spaces

    from tenfold.algorithms.ppo import PPOAgent
    from tenfold.algorithms.ppo_settings import PPO
    from tenfold.core.layout import observation_layout
    from tenfold.core.spaces import policy_actions

    seen = spaces.Dict(
        {
            "values": spaces.Box(-1, 1, (3, 2)),
            "kind": spaces.Discrete(3),
            "flags": spaces.MultiBinary(2),
        }
    )
    actions = policy_actions(spaces.MultiDiscrete([4, 4]), "shop")
    agent = PPOAgent(PPO(), observation_layout(seen, "shop"), actions, 0)
    rng = np.random.default_rng(0)
    observations = []
    for _ in range(20):
        mask = rng.random((2, 4)) < 0.4
        mask[np.arange(2), rng.integers(0, 4, 2)] = True
        observations.append({**seen.sample(), "action_mask": mask.ravel().astype(np.int8)})
    chosen = np.array([agent.act(one) for one in observations])
    allowed = np.array(
        [
            one["action_mask"].reshape(2, 4)[np.arange(2), action]
            for one, action in zip(observations, chosen, strict=True)
        ]
    )
    assert allowed.all()
    assert (
        np.array(
            [
                agent.act({k: v for k, v in one.items() if k != "action_mask"})
                for one in observations
            ]
        )
        != chosen
    ).any()
    assert np.array_equal(agent.act(observations), chosen)
    together = {key: np.stack([one[key] for one in observations]) for key in observations[0]}
    assert np.array_equal(agent.act(together), chosen)
    assert np.array_equal(
        agent.act(observations[0], mask=observations[0]["action_mask"].reshape(2, 4)), chosen[0]
    )
