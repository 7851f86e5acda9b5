"""The dispatcher: one policy for shops of any size, and how it learns from its own schedules."""

import gymnasium as gym
import numpy as np
import pytest
import torch

import tenfold as ten
from tenfold.cli.main import main
from tenfold.core.errors import ConfigError, EnvironmentFault, UserError
from tenfold.domains.jobshop.dispatch import (
    DispatchEnv,
    apply_dispatch,
    batch,
    empty_floor,
    makespan_bound,
    view_floor,
)
from tenfold.domains.jobshop.evaluation import ShopGaps
from tenfold.domains.jobshop.instances import (
    Instance,
    RandomShops,
    lower_bound,
    random_shop,
    reversed_shop,
)
from tenfold.domains.jobshop.players import chance_player, rule_player
from tenfold.domains.jobshop.policy import (
    DispatchNet,
    choices,
    likelihood,
    likelihood_reference,
    play_schedules,
)
from tenfold.domains.jobshop.schedule import check_schedule, schedule_of_order
from tenfold.runs.metrics import read_rows
from tenfold.training.learners import make_learner

ANY = "tenfold/JobShop-v0(random=3..5x2..4)"


def settings(**more):
    return ten.Run(
        **{"env": ANY, "steps": 64, "eval_every": 0, "checkpoint_every": 32, "threads": 1} | more,
        agent={"name": "dispatcher", "shops": 8, "samples": 8, "width": 8, "lr": 3e-3},
    )


def odd_shop():
    """Jobs of different lengths, one machine visited again, operations of no time, a machine that
    nobody needs."""
    return Instance.of_jobs(
        "odd", [[(0, 2), (1, 0), (0, 3), (2, 1), (0, 0)], [(1, 4)], [(2, 0), (0, 0)]], machines=4
    )


def net_of(width=6, seed=0):
    torch.manual_seed(seed)
    return DispatchNet(width, 2).flatten()


# what may be dispatched


def test_only_jobs_that_start_before_the_first_end_on_that_machine_may_be_dispatched():
    # next operations: job 0 on machine 0 for 5, job 1 on machine 0 for 3, job 2 on machine 1 for 4.
    # Job 1 would end first, at 3, on machine 0, where job 0 could start at 0.
    shop = Instance.of_jobs("three", [[(0, 5), (1, 1)], [(0, 3), (1, 9)], [(1, 4)]])
    shops = batch([shop])
    floor = empty_floor(shops, 1)
    assert view_floor(shops, floor).allowed[0, 0].tolist() == [True, True, False]
    # after job 1, job 0 would start at 3 and end at 8; job 2 ends at 4, alone before job 1 at 3
    floor = apply_dispatch(shops, floor, torch.tensor([[1]]))
    assert view_floor(shops, floor).allowed[0, 0].tolist() == [False, True, True]
    # what is left of job 1 starts at 3 at the earliest and takes 9
    assert makespan_bound(shops, floor).item() == max(3 + 9, 3 + 5 + 1, 0 + 1 + 9 + 4)


def test_a_job_that_could_only_start_at_that_end_has_to_wait():
    # after job 0's first operation, which ends at 4, it could start on machine 1 at 4, which is when
    # job 1 would end there
    shops = batch([Instance.of_jobs("tie", [[(0, 4), (1, 2)], [(1, 4)]])])
    floor = apply_dispatch(shops, empty_floor(shops, 1), torch.tensor([[0]]))
    assert view_floor(shops, floor).allowed[0, 0].tolist() == [False, True]


def test_an_optimal_schedule_can_be_reached():
    """All active schedules of a small shop: the shortest is the shortest of all orders."""
    from itertools import permutations

    shop = random_shop(np.random.default_rng(3), 3, 2, 1, 9)
    shops = batch([shop])

    def ends(floor, left):
        if not left:
            return [int(floor.ready.max())]
        allowed = view_floor(shops, floor).allowed[0, 0].nonzero().ravel().tolist()
        return [
            end
            for j in allowed
            for end in ends(apply_dispatch(shops, floor, torch.tensor([[j]])), left - 1)
        ]

    every = set(permutations(np.repeat(np.arange(3), 2).tolist()))
    shortest = min(max(s.end for s in schedule_of_order(shop, order)) for order in every)
    assert min(ends(empty_floor(shops, 1), shop.operations)) == shortest


# the policy


def test_every_schedule_is_one_that_the_checker_accepts():
    rng = np.random.default_rng(0)
    shops = [odd_shop(), random_shop(rng, 4, 6), random_shop(rng, 1, 1), random_shop(rng, 9, 2)]
    agent = make_learner(settings()).agent
    for samples in (0, 3):
        found = agent.player()(shops, samples, 0)
        for shop, orders in zip(shops, found, strict=True):
            assert len(orders) == max(samples, 1)
            for order in orders:
                check_schedule(shop, schedule_of_order(shop, order))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((-1, 0), "samples must be a whole number from 0 .* on, and not -1"),
        ((1.5, 0), "samples must be .* and not 1.5"),
        ((2, -1), "seed must be a whole number from 0 on, and not -1"),
        ((2, None), "seed must be a whole number"),
    ],
)
def test_a_player_says_what_it_cannot_play(given, words):
    shops = [odd_shop()]
    for player in (make_learner(settings()).agent.player(), rule_player("random"), chance_player):
        with pytest.raises(UserError, match=words):
            player(shops, *given)
        with pytest.raises(UserError, match="is given a list of shops"):
            player("la01", 2, 0)
    with pytest.raises(UserError, match="must be a whole number from 0"):
        ten.compare_players(shops, rule_player("SPT"), *given, solver=False)


def test_chance_draws_evenly_from_the_choices_that_the_policy_has():
    """Every order keeps Giffler and Thompson's rule, in the direction in which it was made, and all
    options of the first dispatch are as likely."""
    shop = random_shop(np.random.default_rng(3), 5, 4)
    (orders,) = chance_player([shop], 5, 7)
    assert len({tuple(order) for order in orders}) > 1
    assert all(is_active(shop, order) for order in orders[:3])
    assert all(is_active(reversed_shop(shop), order[::-1]) for order in orders[3:])
    three = Instance.of_jobs("three", [[(0, 5)], [(0, 3)], [(0, 4)]])
    (orders,) = chance_player([three], 6_000, 0)
    first = np.bincount([order[0] for order in orders[:3_000]], minlength=3)
    # 1,000 of each, with a deviation of 26
    assert first == pytest.approx([1_000] * 3, abs=110)


def test_every_second_sample_is_of_the_shop_backwards():
    shops = [random_shop(np.random.default_rng(n), 5, 4) for n in range(2)]
    for shop, orders in zip(
        shops, make_learner(settings()).agent.player()(shops, 5, 7), strict=True
    ):
        assert len(orders) == 5 and len({tuple(order) for order in orders}) > 1
        # Giffler and Thompson's rule holds in the direction in which a schedule was made
        assert all(is_active(shop, order) for order in orders[:3])
        assert all(is_active(reversed_shop(shop), order[::-1]) for order in orders[3:])


def is_active(shop: Instance, order: np.ndarray) -> bool:
    """Whether each dispatch of an order was allowed."""
    shops = batch([shop])
    floor = empty_floor(shops, 1)
    for job in order.tolist():
        if not view_floor(shops, floor).allowed[0, 0, job]:
            return False
        floor = apply_dispatch(shops, floor, torch.tensor([[job]]))
    return True


def test_makespans_are_those_of_the_orders():
    rng = np.random.default_rng(1)
    instances = [random_shop(rng, 4, 3) for _ in range(3)]
    source = torch.Generator().manual_seed(0)
    makespan, order = play_schedules(net_of(), batch(instances), 5, source)
    for i, instance in enumerate(instances):
        for s in range(5):
            schedule = schedule_of_order(instance, order[:, i, s].numpy())
            assert makespan[i, s] == check_schedule(instance, schedule)


def test_a_shop_is_played_alike_alone_and_beside_larger_ones():
    rng = np.random.default_rng(2)
    small, large, net = random_shop(rng, 3, 4), random_shop(rng, 7, 6), net_of()
    alone = play_schedules(net, batch([small]), 1, None)[1][:, 0, 0]
    beside = play_schedules(net, batch([small, large]), 1, None)[1][: small.operations, 0, 0]
    assert alone.tolist() == beside.tolist()


def test_names_of_jobs_and_machines_mean_nothing():
    rng = np.random.default_rng(4)
    shop, net = random_shop(rng, 5, 4), net_of()
    job, machine = rng.permutation(5), rng.permutation(4)
    renamed = Instance("renamed", machine[shop.machine[job]], shop.duration[job])
    ends = [play_schedules(net, batch([one]), 1, None)[0].item() for one in (shop, renamed)]
    assert ends[0] == ends[1]


def test_samples_are_as_likely_as_the_policy_says():
    shop = Instance.of_jobs("three", [[(0, 5)], [(0, 3)], [(0, 4)]])
    shops, net = batch([shop]), net_of(seed=5)
    first = play_schedules(net, shops, 20_000, torch.Generator().manual_seed(0))[1][0, 0]
    shares = torch.bincount(first, minlength=3) / len(first)
    wanted = choices(net, shops, empty_floor(shops, 1))[0, 0].exp()
    torch.testing.assert_close(shares, wanted.detach(), atol=0.015, rtol=0)


@pytest.mark.parametrize("sizes", [[(1, 1)], [(4, 3), (4, 3)], [(2, 5), (6, 2)]])
def test_likelihood_and_its_gradient_are_those_step_by_step(sizes):
    rng = np.random.default_rng(0)
    shops = batch([random_shop(rng, *size) for size in sizes])
    shops = type(shops)(*(t.double() if t.is_floating_point() else t for t in shops))
    net = net_of().double().flatten()
    order = play_schedules(net, shops, 1, torch.Generator().manual_seed(1))[1][:, :, 0]
    gradients = []
    for how in (likelihood, likelihood_reference):
        net.flat_grad.zero_()
        value = how(net, shops, order)
        if value.requires_grad:
            value.backward()
        gradients.append((value.detach(), net.flat_grad.clone()))
    torch.testing.assert_close(*(g[0] for g in gradients), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(*(g[1] for g in gradients), atol=1e-12, rtol=1e-10)


# learning


def test_schedules_get_shorter():
    learner = make_learner(settings(steps=400))
    while learner.step < 80:
        learner.round()
    early = learner.statistics()["gap_mean"]
    while learner.step < 400:
        learner.round()
        if learner.step == 320:
            learner.statistics()
    late = learner.statistics()
    assert late["gap_mean"] < early - 0.02
    assert late["gap_best"] < late["gap_mean"]


def test_the_shortest_schedule_becomes_more_likely():
    learner = make_learner(settings())
    learner.set_lr(0.0)
    learner.round()  # the same shops and draws as the next learner's, and nothing learned
    again = make_learner(settings())
    shops = again.draw(8)
    again.source.manual_seed(learner.source.initial_seed())
    makespan, order = play_schedules(again.agent.online, shops, 8, again.source)
    best = order[:, torch.arange(8), makespan.argmin(1)]
    before = likelihood(again.agent.online, shops, best)
    again.round()
    assert likelihood(again.agent.online, shops, best) > before


def test_a_resumed_run_goes_on_bit_for_bit(tmp_path):
    whole = ten.train(settings(), tmp_path / "whole", quiet=True, report=False)
    ten.train(settings(steps=32), tmp_path / "half", quiet=True, report=False)
    ten.resume(tmp_path / "half", steps=64, quiet=True, report=False)
    ends = [ten.load(path).online.flat for path in (whole.path, tmp_path / "half")]
    assert torch.equal(*ends)


def test_looking_more_often_changes_nothing(tmp_path):
    ends = []
    for name, every in (("often", 5), ("seldom", 64)):
        looked = {"log_every": every, "eval_every": every, "eval_episodes": 1}
        run = ten.train(settings(**looked), tmp_path / name, quiet=True, report=False)
        ends.append(ten.load(run.path).online.flat)
    assert torch.equal(*ends)


def test_evaluation_while_it_trains_is_of_new_shops_with_returns_below_0(tmp_path):
    run = ten.train(settings(eval_every=32, eval_episodes=3), tmp_path / "run", report=False)
    rows = [row for row in read_rows(run.path / "metrics.jsonl") if row["kind"] == "eval"]
    assert [row["step"] for row in rows] == [32, 64]
    assert all(row["episodes"] == 3 and row["mean_return"] <= 0 for row in rows)
    last, best = -rows[-1]["mean_return"], -max(row["mean_return"] for row in rows)
    (line,) = ShopGaps().conclusion(run)
    assert line.endswith(f"(greedy) above their lower bounds: last {last:.1f} %, best {best:.1f} %")


def test_a_run_is_judged_by_gaps(tmp_path, capsys):
    run = ten.train(settings(), tmp_path / "run", quiet=True, report=False)
    table = ten.evaluate(run, episodes=3)
    assert len(table.instances) == 3 and min(table.gaps("greedy")) >= 0
    assert main(["eval", str(run.path), "--instance", "ft06", "--samples", "4"]) == 0
    said = capsys.readouterr().out
    assert "ft06" in said and "best of 4" in said and "MWKR" in said
    assert main(["eval", str(run.path), "--episodes", "1", "--video"]) == 2
    assert "--video films episodes, and schedules have none." in capsys.readouterr().err


# the environment


def test_the_return_is_minus_the_percent_above_the_lower_bound():
    env = gym.make(ANY.partition("(")[0], random="2..4x2..3")
    obs, info = env.reset(seed=3)
    assert obs.shape == env.observation_space.shape == (4 * (22 + 2 + 2 * 3),)
    total, done = 0.0, False
    while not done:
        job = int(np.flatnonzero(info["action_mask"])[0])
        obs, reward, done, _, info = env.step(job)
        total += reward
    bound = lower_bound(info["instance"])
    assert check_schedule(info["instance"], info["schedule"]) == info["makespan"]
    assert total == pytest.approx(-100 * (info["makespan"] / bound - 1))


def test_episodes_have_other_shops_and_a_seed_repeats_them():
    env = DispatchEnv("4x3")
    first, second = (env.reset(seed=s)[0] for s in (1, 2))
    assert not np.array_equal(first, second)
    assert np.array_equal(env.reset(seed=1)[0], first)


def test_a_job_that_may_not_be_dispatched_is_refused():
    env = DispatchEnv("3x2")
    _, info = env.reset(seed=0)
    wrong = int(np.flatnonzero(~info["action_mask"])[0])
    with pytest.raises(EnvironmentFault, match=f"job {wrong} cannot be dispatched now"):
        env.step(wrong)


def test_the_policy_of_the_environment_is_the_player():
    agent, env = make_learner(settings()).agent, DispatchEnv("3..5x2..4")
    obs, info = env.reset(seed=7)
    shop, order, done = env.instance, [], False
    while not done:
        order.append(agent.act(obs, info["action_mask"]))
        obs, _, done, _, info = env.step(order[-1])
    assert order == agent.player()([shop], 0, 0)[0][0].tolist()


def test_other_agents_play_random_shops_too(tmp_path):
    run = ten.Run(
        env="tenfold/JobShop-v0(random=2..3x2)",
        steps=64,
        eval_every=0,
        threads=1,
        agent={"name": "ppo", "horizon": 32, "net": {"hidden": [8]}},
    )
    assert ten.train(run, tmp_path / "ppo", quiet=True, report=False).step == 64


# what does not fit


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": "tenfold/JobShop-v0(instance=ft06)"}, "learns from random ones"),
        ({"env": "CartPole-v1"}, "CartPole-v1 is no job shop"),
        ({"env": "tenfold/JobShop-v0(radnom=3x3)"}, "random and routes"),
        ({"env": "tenfold/JobShop-v0(random=3x3,routes=straight)"}, "must be uniform or mixed"),
        ({"env": "tenfold/JobShop-v0(instance=ft06,routes=mixed)"}, "or random and routes"),
        ({"env": "tenfold/JobShop-v0(random=ten)"}, "cannot be read"),
        ({"num_envs": 4}, "draws its shops itself"),
        ({"engine": "fused"}, "leave it out"),
        (
            {"env": "tenfold/JobShop-v0(random=5..1000x100)"},
            r"A round of 8 shops of 5..1000x100 needs [\d,]{15,} bytes .*: lower agent.shops",
        ),
    ],
)
def test_what_does_not_fit_is_said(change, words):
    with pytest.raises((ConfigError, EnvironmentFault, UserError), match=words):
        make_learner(settings(**change))


def test_a_size_range_must_make_sense():
    for text, words in (("5..3x2", "smaller one first"), ("0x2", "from 1"), ("x", "cannot be")):
        with pytest.raises(EnvironmentFault, match=words):
            RandomShops.parse(text)
