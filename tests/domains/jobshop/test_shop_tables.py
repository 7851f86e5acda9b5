"""Dispatch orders, players of any shop, tables of gaps, and how runs are judged by them."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenfold as ten
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import EvalRequest
from tenfold.domains.jobshop import evaluation
from tenfold.domains.jobshop.evaluation import (
    ShopGaps,
    check_deployment,
    requested_instances,
    requested_samples,
)
from tenfold.domains.jobshop.formats import WRITERS
from tenfold.domains.jobshop.instances import Instance, lower_bound, random_shop
from tenfold.domains.jobshop.players import RULES, dispatch, rule_player
from tenfold.domains.jobshop.reading import classic
from tenfold.domains.jobshop.schedule import (
    Infeasible,
    check_schedule,
    check_starts,
    orders_of_starts,
    schedule_of_order,
    schedule_of_starts,
    starts,
    starts_of_schedule,
)
from tenfold.domains.jobshop.tables import compare_players, lines, sections

# both jobs need machine 0 first
FLOW = Instance("flow", np.array([[0, 1], [0, 1]]), np.array([[3, 2], [2, 4]]), bounds=(8, 8))
# of other lengths, with a return to machine 0 and operations that take no time
ODD = Instance.of_jobs(
    "odd", [[(0, 2), (1, 0), (0, 3), (2, 1), (0, 0)], [(1, 4)], [(2, 0), (0, 0)]]
)


def random_orders(instance: Instance, count: int, seed: int) -> np.ndarray:
    jobs = np.repeat(np.arange(instance.jobs), instance.lengths)
    return np.random.default_rng(seed).permuted(np.tile(jobs, (count, 1)), axis=1)


# orders


def test_orders_of_two_jobs_by_hand() -> None:
    assert schedule_of_order(FLOW, [1, 0, 1, 0]) == [
        (1, 0, 0, 0, 2),
        (0, 0, 0, 2, 5),
        (1, 1, 1, 2, 6),
        (0, 1, 1, 6, 8),
    ]
    # job 0 is put on machine 1 before job 1, which then waits for it
    assert starts(FLOW, [[1, 0, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]])[1].tolist() == [8, 9, 11]
    for bad, complaint in (
        (
            [[0, 1, 0]],
            r"names a job for each of its 4 operations, and these have the shape \(1, 3\)",
        ),
        ([[0, 0, 1, 1], [0, 0, 0, 1]], "order 1 of flow does not name each job once for each"),
        ([[0, 0, 1, 2]], "order 0 of flow does not"),
        ([[0, 0, 1, 1], [0, 1, 1]], "orders of flow cannot be read as rows of job numbers"),
        ([[0, 0.5, 1, 1]], "names jobs by whole numbers, and not by 0.5"),
    ):
        with pytest.raises(UserError, match=complaint):
            starts(FLOW, bad)
    with pytest.raises(UserError, match="does not name each job"):
        schedule_of_order(FLOW, [0, 0, 0, 1])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**32))
def test_schedules_of_orders_are_verified_and_found_again(
    jobs: int, machines: int, seed: int
) -> None:
    for instance in (random_shop(np.random.default_rng(seed), jobs, machines, 1, 9), ODD):
        start, makespan = starts(instance, orders := random_orders(instance, 5, seed))
        assert check_starts(instance, start).tolist() == makespan.tolist()
        for i, order in enumerate(orders):
            schedule = schedule_of_order(instance, order)
            assert check_schedule(instance, schedule) == makespan[i] >= lower_bound(instance)
            assert sorted(schedule) == sorted(schedule_of_starts(instance, start[i]))
            (order,) = orders_of_starts(instance, starts_of_schedule(instance, schedule)[None])
            again = schedule_of_order(instance, order)
            assert check_schedule(instance, again) <= makespan[i]
            assert instance is ODD or sorted(again) == sorted(schedule)


def test_the_check_of_many_names_what_the_check_of_one_does() -> None:
    good = starts(FLOW, random_orders(FLOW, 4, 0))[0]
    for job, operation, begun, complaint in (
        (1, 1, 1, "starts at 1, before the job's operation 0 ends"),
        (0, 0, 1, "On machine 0"),
        (0, 1, -2, "starts at -2, before time 0"),
    ):
        bad = good.copy()
        bad[2] = starts(FLOW, [[1, 0, 1, 0]])[0][0]
        bad[2, job, operation] = begun
        with pytest.raises(Infeasible, match=complaint):
            check_starts(FLOW, bad)
    # an operation that takes no time must not stand inside another
    inside = np.array([[[0], [2]]])
    shop = Instance("inside", np.array([[0], [0]]), np.array([[4], [0]]))
    with pytest.raises(Infeasible, match="On machine 0"):
        check_starts(shop, inside)
    assert check_starts(shop, np.array([[[0], [0]], [[0], [4]]])).tolist() == [4, 4]


# players


def test_rules_as_players_make_the_schedules_that_rules_make() -> None:
    for name in ("ft06", "orb07"):
        instance = classic(name)
        for rule in RULES:
            (orders,) = rule_player(rule)([instance], 3, 5)
            found = [check_schedule(instance, schedule_of_order(instance, o)) for o in orders]
            seeds = (5, 6, 7) if rule == "random" else (5,)
            assert found == [check_schedule(instance, dispatch(instance, rule, s)) for s in seeds]


# makespans by SPT, MOPNR and MWKR that the tests of another simulator, the package cpscheduler,
# expect
ELSEWHERE = {
    "ta01": (1462, 1438, 1491),
    "ta05": (1618, 1448, 1494),
    "ta10": (1697, 1582, 1534),
    "ta15": (1835, 1682, 1696),
    "ta20": (1710, 1622, 1689),
    "ta25": (1950, 1957, 1941),
    "ta30": (1999, 2017, 1935),
    "ta35": (2497, 2255, 2226),
    "ta40": (2301, 2028, 2205),
    "ta45": (2640, 2487, 2524),
    "ta50": (2429, 2469, 2493),
    "ta60": (3500, 3044, 3122),
    "ta70": (3801, 3590, 3482),
    "ta80": (5848, 5707, 5505),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_rules_find_what_they_find_elsewhere(name: str) -> None:
    shop = classic(name)
    orders = [rule_player(rule)([shop], 0, 0)[0][0] for rule in ("SPT", "MOPNR", "MWKR")]
    found = tuple(check_schedule(shop, schedule_of_order(shop, order)) for order in orders)
    assert found == ELSEWHERE[name]


# tables


def worse(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
    """One job after another; among samples one is the best of FLOW."""
    blocks = [np.repeat(np.arange(i.jobs), i.lengths) for i in instances]
    if not samples:
        return [[block] for block in blocks]
    return [
        [block] * (samples - 1) + [rule_player("SPT")([i], 0, 0)[0][0]]
        for i, block in zip(instances, blocks, strict=True)
    ]


def test_gaps_by_hand() -> None:
    unknown = Instance("unknown", FLOW.machine, FLOW.duration)
    table = compare_players([FLOW, unknown, ODD], worse, 3, solver=False)
    # one after the other: 0-3, 3-5; 3-5, 5-9. SPT begins with job 1: 8, which is the best known
    assert table.column("greedy").makespans[:2] == [9, 9]
    assert table.column("best of 3").makespans[:2] == [8, 8]
    assert table.gaps("greedy")[:2] == [9 / 8 - 1, 9 / 8 - 1] and table.bounds[:2] == [8, 8]
    assert table.gaps("best of 3")[0] == 0 and table.mean_gap("best of 3", [True, True, False]) == 0
    assert [c.name for c in table.columns[2:]] == [
        "SPT",
        "MWKR",
        "FIFO",
        "MOPNR",
        "random, best of 3",
        "random active, best of 3",
    ]
    assert set(table.groups()) == {"2x2", "3x3"}
    found = json.loads(json.dumps(table.as_json(schedules=True)))
    assert found["players"]["random, best of 3"] == 3 and found["size_gaps"]["2x2"]["SPT"] == 0
    assert found["instances"][0]["schedule"][0] == [1, 0, 0, 0, 2]
    text = lines(found)
    assert text[1].split()[:10] == ["flow", "2x2", "8", "8", "9", "12.5", "%", "8", "0.0", "%"]
    assert "unknown *" in text[2] and "no makespan is known" in text[-1]
    assert text[-2].split()[:2] == ["mean", "gap"]


def test_a_player_that_makes_no_schedule_is_told() -> None:
    def wrong(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
        return [[np.zeros(i.operations, int)] for i in instances]

    with pytest.raises(UserError, match="order 0 of flow does not name each job"):
        compare_players([FLOW], wrong)


def test_a_solver_is_one_more_player_where_it_is_installed() -> None:
    from tenfold.domains.jobshop.players import solve, solver_player

    for instance, best in ((classic("ft06"), 55), (ODD, 6)):
        start, bound = solve(instance, 20)
        assert start is not None and check_starts(instance, start[None]).tolist() == [best] == [
            bound
        ]
    (orders,) = solver_player(20)([FLOW], 0, 0)
    assert starts(FLOW, orders)[1].tolist() == [8]
    table = compare_players([FLOW], rule_player("random"), 4000)  # which takes it some time
    assert table.columns[-1].name == "CP-SAT" and len(table.column("CP-SAT").seconds) == 1


# what is asked for


def test_instances_and_suites_that_are_asked_for(tmp_path: Path) -> None:
    ten.write_instance(FLOW, tmp_path / "mine.json")
    words, found = requested_instances(
        {"suite": ["abz10x10"], "instance": [str(tmp_path / "mine.json"), "la02"]}
    )
    assert [i.name for i in found] == ["abz5", "abz6", "flow", "la02"]
    assert words == "abz10x10, flow, la02" and requested_instances({}) == ("", [])
    assert [i.name for i in requested_instances({"suite": "orb"})[1]][::9] == ["orb01", "orb10"]
    many = {i.name: json.loads(WRITERS["json"](i)) for i in map(classic, ten.suite("orb"))}
    (tmp_path / "many.json").write_text(json.dumps(many))
    words, found = requested_instances({"instance": tmp_path / "many.json"})
    assert len(found) == 10 and words == "orb01, orb02, orb03 and 7 others"
    assert (requested_samples({}), requested_samples({"samples": "512"})) == (64, 512)
    for bad in ("0", "x", "-3"):
        with pytest.raises(ConfigError, match="--samples"):
            requested_samples({"samples": bad})


def test_a_policy_of_one_shop_plays_that_one_and_says_why_no_other(tmp_path: Path) -> None:
    env = "tenfold/JobShop-v0(instance=ft06)"
    same = ten.write_instance("ft06", tmp_path / "again.txt", "taillard")
    assert check_deployment(env, {"instance": [same], "samples": "8"}) == env
    for options in ({"instance": ["la01"]}, {"suite": ["ft"]}):
        with pytest.raises(
            UserError, match=r"knows that shop alone, so it cannot play (la01|ft10)"
        ):
            check_deployment(env, options)


# runs


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody's run, whose policy is a rule."""
    agent = SimpleNamespace(player=lambda: rule_player("random"))

    def trained(path: Path, checkpoint: str, env: Any = None, trust: bool = False) -> Any:
        settings = SimpleNamespace(env="tenfold/JobShop-v0(random=3..4x2)", seed=4, threads=1)
        return SimpleNamespace(run=settings, agent=agent, step=1000)

    monkeypatch.setattr(evaluation, "load_run", trained)
    return tmp_path


def test_a_run_is_judged_on_a_suite_and_its_page_shows_it(run: Path) -> None:
    asked = EvalRequest(run, options={"suite": ["ft"], "samples": "8"})
    found = ShopGaps().evaluate(asked)
    assert [row["name"] for row in found["instances"]] == ["ft06", "ft10", "ft20"]
    kept = json.loads((run / "shops/ft.json").read_text())
    assert kept["mean_gaps"] == found["mean_gaps"] and kept["samples"] == 8
    text = "\n".join(ShopGaps().lines(asked, found))
    assert "ft (3 instances), checkpoint last (step 1,000), seed 4" in text and "1165" in text
    (section,) = sections(run)
    assert section.title.startswith("Job shops: ft") and "MWKR" in section.body
    assert "gap to the best known" in section.body and "ft20" in section.body
    (run / "shops/ft.json").write_text("{}")
    assert "shops/ft.json" in sections(run)[0].body
    kept["mean_gaps"] = {}
    (run / "shops/ft.json").write_text(json.dumps(kept))
    assert "tenfold eval" in sections(run)[0].body


def test_tables_of_other_shops_do_not_take_each_others_place(run: Path) -> None:
    """Of a file that is called like a suite, of two files of one name, and of more shops than a
    table is called by; the same command writes its table anew."""
    (run / "a").mkdir()
    (run / "b").mkdir()
    asked: list[dict[str, Any]] = [
        {"suite": ["ft"]},
        {"instance": [str(ten.write_instance(FLOW, run / "a/ft.txt"))]},
        {"instance": [str(ten.write_instance(ODD, run / "b/ft.txt"))]},
        {"instance": ["la01", "la02", "la03", "la04"]},
        {"instance": ["la01", "la02", "la03", "la05"]},
    ]
    options = [one | {"samples": "2"} for one in asked]
    tables = [ShopGaps().evaluate(EvalRequest(run, options=one))["table"] for one in options]
    assert tables[0] == str(run / "shops/ft.json") and len(set(tables)) == 5
    assert ShopGaps().evaluate(EvalRequest(run, options=options[2]))["table"] == tables[2]
    assert [len(json.loads(Path(one).read_text())["instances"]) for one in tables] == [
        3,
        1,
        1,
        4,
        4,
    ]


def test_a_policy_no_better_than_chance_is_spoken_of(run: Path) -> None:
    """The rule that idles no machine is not a policy's chance: it is better."""
    asked = EvalRequest(run, options={"suite": ["la10x5"], "samples": "4"})
    found = ShopGaps().evaluate(asked)
    names = ("best of 4", "random active, best of 4")
    assert found["mean_gaps"][names[0]] < found["mean_gaps"][names[1]]
    assert "no better than chance" not in "\n".join(ShopGaps().lines(asked, found))
    found["mean_gaps"][names[0]] = found["mean_gaps"][names[1]]
    (words,) = [line for line in ShopGaps().lines(asked, found) if "no better than chance" in line]
    assert "1,000 steps" in words and "train longer" in words


def test_without_a_suite_a_run_is_judged_on_shops_like_those_it_was_trained_on(run: Path) -> None:
    found = ShopGaps().evaluate(EvalRequest(run, episodes=5, options={"samples": "4"}))
    assert len(found["instances"]) == 5 and found["shops"] == "random 3..4x2"
    assert {row["jobs"] for row in found["instances"]} == {3, 4} and found["seed"] == 4
    assert all(row["machines"] == 2 and row["best_known"] is None for row in found["instances"])
    # seed 4 again: the same shops
    again = ShopGaps().score(EvalRequest(run, episodes=5, seed=4, options={"samples": "4"}))
    assert [i["lower_bound"] for i in found["instances"]] == again.bounds


@pytest.mark.usefixtures("pictures")
def test_one_shop_has_its_schedule_and_a_picture(run: Path) -> None:
    asked = EvalRequest(run, options={"instance": ["ft06"], "samples": "30"})
    found = ShopGaps().evaluate(asked)
    (row,) = found["instances"]
    best = min(row["makespans"]["greedy"], row["makespans"]["best of 30"])
    assert check_schedule(classic("ft06"), row["schedule"]) == best
    assert (run / "gantt.png").read_bytes()[:4] == b"\x89PNG"
    assert "machine 0 |" in "\n".join(ShopGaps().lines(asked, found))
    last = (run / "shops/ft06.json").read_bytes()
    best = ShopGaps().evaluate(EvalRequest(run, "best", options=asked.options))
    assert best["table"] == str(run / "shops/ft06-best.json")
    assert best["gantt"] == str(run / "gantt-best.png")
    assert (run / "shops/ft06.json").read_bytes() == last
    assert [section.title for section in sections(run)] == [
        f"Job shops: ft06, checkpoint {which} (step 1,000), seed 4" for which in ("best", "last")
    ]
