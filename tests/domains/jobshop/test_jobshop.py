"""The job shop: what its floor allows, what it pays, and that its schedules can be carried out."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.domains.jobshop.instances import Instance, lower_bound
from tenfold.domains.jobshop.players import RULES, dispatch
from tenfold.domains.jobshop.reading import read_instance
from tenfold.domains.jobshop.reference import step_once, step_reference
from tenfold.domains.jobshop.rules import BOUND
from tenfold.domains.jobshop.schedule import (
    Infeasible,
    Scheduled,
    check_schedule,
    gantt_figure,
    gantt_text,
)
from tenfold.domains.jobshop.shops import JobShopEnv, JobShopEnvironments
from tenfold.envs.making import make_env
from tenfold.runs.charts import as_png

# both jobs need machine 0 first. Job 0 first: 0-3 and 3-5, then 3-5 and 5-9. Job 1 first: 0-2 and
# 2-6, then 2-5 and 6-8.
FLOW = Instance("flow", np.array([[0, 1], [0, 1]]), np.array([[3, 2], [2, 4]]))
# job 1 is longer on both machines. Job 0 first: 0-3 and 3-5, then 3-7 and 7-11. Job 1 first: 0-4
# and 4-8, then 4-7 and 8-10.
LONG = Instance("long", np.array([[0, 1], [0, 1]]), np.array([[3, 2], [4, 4]]))
# job 0 keeps machine 0 for long, while machine 1 could wait
WAIT = Instance("wait", np.array([[0, 1], [1, 0], [1, 0]]), np.array([[5, 1], [1, 3], [2, 1]]))
# the same, but for job 2, which keeps machine 1 for so long that job 0 may come before its end
PATIENT = Instance("patient", WAIT.machine, np.array([[5, 1], [1, 3], [6, 1]]))
# an optimal schedule of ft06, which idles on machine 2 at the third decision and three times on
# machine 3
BEST_FT06 = [
    (0, 1, 2, 0, 0, 0),
    (0, 0, 0, 2, 0, 0),
    (0, 0, 6, 0, 0, 0),
    (0, 3, 1, 0, 0, 0),
    (0, 0, 0, 0, 0, 2),
    (3, 5, 4, 0, 1, 0),
    (0, 0, 0, 5, 0, 0),
    (2, 0, 0, 0, 0, 0),
    (0, 0, 0, 0, 0, 5),
    (0, 4, 3, 6, 0, 0),
    (0, 0, 0, 6, 0, 0),
    (0, 0, 0, 6, 4, 0),
    (0, 2, 0, 3, 0, 0),
    (5, 0, 0, 0, 0, 1),
    (0, 0, 0, 0, 3, 0),
    (1, 0, 0, 0, 5, 4),
    (0, 0, 5, 0, 2, 0),
    (0, 0, 0, 0, 0, 3),
    (4, 0, 0, 1, 0, 0),
    (0, 0, 0, 0, 0, 0),
    (0, 0, 0, 4, 0, 0),
]
PARTS = (
    "obs",
    "mask",
    "reward",
    "terminated",
    "truncated",
    "states",
    "length",
    "episode",
    "ret",
    "last_makespan",
    "last_states",
)


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    jobs, machines = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    routes = [draw(st.permutations(range(machines))) for _ in range(jobs)]
    durations = [[draw(st.integers(1, 12)) for _ in range(machines)] for _ in range(jobs)]
    return Instance("drawn", np.array(routes), np.array(durations))


@st.composite
def odd_instances(draw: st.DrawFn) -> Instance:
    """Jobs skip machines, come back to them, and have operations that take no time."""
    machines = draw(st.integers(1, 4))
    operation = st.tuples(st.integers(0, machines - 1), st.sampled_from((0, 0, 1, 2, 5, 12)))
    jobs = draw(st.lists(st.lists(operation, min_size=1, max_size=6), min_size=1, max_size=5))
    jobs[0][0] = (jobs[0][0][0], 3)  # something takes time
    return Instance.of_jobs("odd", jobs, machines)


def random_actions(rng: np.random.Generator, mask: np.ndarray, heads: int) -> np.ndarray:
    """Legal options of the present heads; absent ones get anything, options that do not exist
    included."""
    options = mask.reshape(-1, heads, mask.shape[-1] // heads)
    chosen = np.argmax(rng.random(options.shape) * options, -1)
    return np.where(options.any(-1), chosen, rng.integers(-3, 99, chosen.shape)).reshape(
        *mask.shape[:-1], heads
    )


def options_of(env: JobShopEnv, info: dict) -> list[list[int]]:
    return [
        np.flatnonzero(o).tolist() for o in info["action_mask"].reshape(env.instance.machines, -1)
    ]


# by hand


def test_the_better_order_of_two_jobs_step_by_step() -> None:
    env = JobShopEnv(FLOW)
    obs, info = env.reset(seed=3)
    # machine 1: its work 6 cannot begin before 2, when job 1 could be there. Machine 0: 5 and then
    # at least 2. Jobs: 5 and 6
    assert lower_bound(FLOW) == env.row[BOUND] == 8 and env.scale == 1
    assert options_of(env, info) == [[0, 1], []]
    assert obs.shape == (2 + 6 * 2 + 5 * 2 + 4 * 4,) == env.observation_space.shape
    obs, reward, done, cut, info = env.step([1, 0])
    assert (reward, done, cut, env.row[0]) == (0, False, False, 2)
    assert options_of(env, info) == [[0], [1]]  # see below, so neither may idle
    obs, reward, done, _, info = env.step([0, 1])
    # at 5 job 0 finds machine 1 busy: nothing to decide
    assert (reward, done, env.row[0]) == (0, False, 6)
    assert options_of(env, info) == [[], [0]]
    obs, reward, done, _, info = env.step([77, 0])
    assert (reward, done, info["makespan"]) == (0, True, 8) and not info["action_mask"].any()
    assert info["schedule"] == [(1, 0, 0, 0, 2), (0, 0, 0, 2, 5), (1, 1, 1, 2, 6), (0, 1, 1, 6, 8)]
    with pytest.raises(EnvironmentFault, match=r"call reset\(\)"):
        env.step([0, 0])


def test_the_worse_order_pays_when_the_bound_rises() -> None:
    env = JobShopEnv(FLOW)
    env.reset()
    assert env.step([0, 0])[1] == -1  # at 3: machine 0 needs 2 more, and job 1 then 4
    assert env.step([1, 0])[1] == 0
    _, reward, done, _, info = env.step([0, 1])
    assert (reward, done, info["makespan"]) == (0, True, 9)
    assert sorted(info["schedule"]) == [
        (0, 0, 0, 0, 3),
        (0, 1, 1, 3, 5),
        (1, 0, 0, 3, 5),
        (1, 1, 1, 5, 9),
    ]


def test_every_number_of_an_observation_by_hand() -> None:
    """WAIT at time 1, after machine 0 began job 0 (until 5) and machine 1 job 1 (until 1). The
    first bound is 9: machine 0 has 5 + 3 + 1 = 9 to do; the longest duration is 5."""
    env = JobShopEnv(WAIT)
    env.reset()
    obs, _, _, _, info = env.step([0, 1])
    assert options_of(env, info) == [[], [2]] and env.row[:2].tolist() == [1, 9]
    # earliest starts: job 0 on machine 1 at 5; job 1 on machine 0 at 5; job 2 on machine 1 at 1, on
    # machine 0 at 5
    shop = [1 / 9, 0]
    jobs = [
        [1 / 9, 1 / 2, 4 / 5, 0, 3 / 9, 1 / 5],  # ends at 6
        [3 / 9, 1 / 2, 0, 0, 1 / 9, 3 / 5],  # joined the queue now, ends at 8
        [3 / 9, 1, 0, 1 / 9, 3 / 9, 2 / 5],
    ]  # has waited since 0, ends at 6
    machines = [
        [4 / 5, 4 / 9, 1 / 3, 0, 0],  # 5 + 4 + 0 = 9
        [0, 3 / 9, 1 / 3, (9 - 4) / 9, 1],
    ]  # 1 + 3 + 0 = 4
    places = [
        [0, 0, 0, 0],
        [1, 3 / 5, 1, 4 / 9],
        [0, 0, 1, 4 / 9],
        [0, 0, 1, 4 / 9],
        [0, 0, 0, 0],
        [1, 2 / 5, 1, 0],
    ]
    assert obs == pytest.approx(np.concatenate([shop, *jobs, *machines, *places]), abs=1e-7)


def test_idling_waits_for_the_next_completion_and_is_masked_when_nothing_runs() -> None:
    env = JobShopEnv(PATIENT)
    _, info = env.reset()
    assert options_of(env, info) == [[0], [1, 2]]  # nothing runs at the start
    info = env.step([0, 1])[-1]
    # machine 0 runs, with job 1 waiting at it: an absent head
    assert env.row[0] == 1 and options_of(env, info) == [[], [2, 3]]
    info = env.step([0, 3])[-1]
    assert env.row[0] == 5 and options_of(env, info) == [[1], [0, 2]]
    for m, action in ((0, [3, 0]), (1, [1, 3])):
        with pytest.raises(
            EnvironmentFault,
            match=f"machine {m} was told to idle while nothing is worth waiting for",
        ):
            env.step(action)


@pytest.mark.parametrize(("duration", "idle"), [(2, False), (4, False), (5, True), (9, True)])
def test_a_machine_idles_only_for_a_job_that_may_come_before_another_could_have_ended(
    duration: int, idle: bool
) -> None:
    """At time 1 job 2 waits at machine 1, and would end at 1 + its duration; job 0 comes at 5."""
    env = JobShopEnv(Instance("one", WAIT.machine, np.array([[5, 1], [1, 3], [duration, 1]])))
    env.reset()
    info = env.step([0, 1])[-1]
    assert options_of(env, info) == [[], [2, 3] if idle else [2]]


def test_waiting_counts_from_when_the_job_could_have_begun() -> None:
    """Job 2 could run on machine 1 from 1 to 8. At 5 job 0 arrives there, and job 1 will at 6 at
    the earliest: idling is allowed twice. At 6 nobody else comes before 8."""
    shop = Instance.of_jobs(
        "thrice", [[(0, 5), (1, 9)], [(1, 1), (2, 5), (1, 9)], [(1, 7)], [(0, 9), (1, 1)]]
    )
    env = JobShopEnv(shop)
    env.reset()
    assert options_of(env, env.step([0, 1, 0])[-1]) == [[], [2, 4], [1]]  # at 1
    assert options_of(env, env.step([0, 4, 1])[-1]) == [[3], [0, 2, 4], []]  # at 5
    info = env.step([3, 4, 0])[-1]  # at 6
    assert env.row[0] == 6 and options_of(env, info) == [[], [0, 1, 2], []]


@pytest.mark.parametrize(
    ("instance", "rule", "makespan"),
    [
        (FLOW, "SPT", 8),
        (FLOW, "MWKR", 8),
        (FLOW, "FIFO", 9),
        (LONG, "SPT", 11),
        (LONG, "MWKR", 10),
        (LONG, "FIFO", 11),
    ],
)
def test_dispatching_rules_by_hand(instance: Instance, rule: str, makespan: int) -> None:
    assert check_schedule(instance, dispatch(instance, rule)) == makespan


def test_a_rule_that_is_none() -> None:
    with pytest.raises(UserError, match="no rule LPT: give one of SPT, MWKR, FIFO, MOPNR, random"):
        dispatch(FLOW, "LPT")


def test_first_in_first_out_serves_the_earlier_arrival() -> None:
    # machine 2 is reached by job 1 at 1, by job 0 at 2, and kept by job 2 until 3
    crossing = Instance(
        "crossing",
        np.array([[0, 2, 1], [1, 2, 0], [2, 0, 1]]),
        np.array([[2, 1, 1], [1, 9, 1], [3, 1, 1]]),
    )
    starts = {(s.job, s.operation): s.start for s in dispatch(crossing, "FIFO")}
    assert starts[1, 1] == 3 and starts[0, 1] == 12
    assert {(s.job, s.operation): s.start for s in dispatch(crossing, "SPT")}[0, 1] == 3


# the instances


@pytest.mark.parametrize(
    ("name", "shape", "best", "bound", "found"),
    [
        ("ft06", (6, 6), 55, 52, (88, 61, 65)),
        ("la01", (10, 5), 666, 666, (751, 735, 772)),
        ("ft10", (10, 10), 930, 796, (1074, 1108, 1184)),
    ],
)
def test_shipped_instances_their_optimum_and_the_rules(
    name: str, shape: tuple, best: int, bound: int, found: tuple
) -> None:
    instance = read_instance(name)
    assert (instance.jobs, instance.machines) == shape and instance.optimum == best
    assert lower_bound(instance) == bound <= best
    assert (
        tuple(check_schedule(instance, dispatch(name, rule)) for rule in ("SPT", "MWKR", "FIFO"))
        == found
    )
    assert dispatch(name, "random", 1) == dispatch(name, "random", 1) != dispatch(name, "random", 2)
    assert all(
        check_schedule(instance, dispatch(name, "random", seed)) >= best for seed in range(5)
    )


def test_the_optimum_of_ft06_can_be_played() -> None:
    env = gym.make("tenfold/JobShop-v0", instance="ft06")
    env.reset(seed=0)
    total, done, info = 0.0, False, {}
    for action in BEST_FT06:
        assert not done
        _, reward, done, _, info = env.step(np.array(action))
        total += float(reward)
    assert (
        done and info["makespan"] == check_schedule(read_instance("ft06"), info["schedule"]) == 55
    )
    assert total == -(55 - 52) / 4


def test_random_play_of_ft06_never_beats_the_optimum() -> None:
    envs, rng, spans = (
        JobShopEnvironments("tenfold/JobShop-v0", 16, 0),
        np.random.default_rng(0),
        [],
    )
    for _ in range(600):
        envs.step(random_actions(rng, envs.mask, 6))
        for episode in envs.finished:
            makespan = int(envs.last_makespan[episode.env])
            spans.append(makespan)
            assert episode.ret == -(makespan - 52) / 4
            assert check_schedule(envs.instance, envs.schedule(episode.env)) == makespan
    assert len(spans) > 300 and min(spans) >= 55
    assert np.mean(spans) < 76  # it was 80 while machines could idle for nobody


# any instance


@settings(max_examples=60, deadline=None)
@given(instances() | odd_instances(), st.integers(0, 2**32))
def test_whatever_is_played_is_feasible_and_pays_the_rise_of_the_bound(
    instance: Instance, seed: int
) -> None:
    env, rng = JobShopEnv(instance), np.random.default_rng(seed)
    obs, info = env.reset()
    first, bounds, times, rewards, done = int(env.row[BOUND]), [0], [-1], [], False
    begun = 0  # operations, before the last decision
    assert first == lower_bound(instance)
    while not done:
        options = info["action_mask"].reshape(instance.machines, -1)
        assert options[:, :-1].any() and (options[:, :-1].any(1) >= options[:, -1]).all()
        assert options[:, :-1].sum(0).max() <= 1  # a job waits at one machine only
        # time moves, or something that takes none was done
        assert env.row[0] > times[-1] or (
            env.row[0] == times[-1] and begun < env.next_op.sum() and not instance.duration.all()
        )
        assert env.row[BOUND] >= bounds[-1] and env.observation_space.contains(obs)
        begun = int(env.next_op.sum())
        times.append(int(env.row[0]))
        bounds.append(int(env.row[BOUND]))
        obs, reward, done, _, info = env.step(
            random_actions(rng, info["action_mask"], instance.machines)
        )
        rewards.append(reward)
    makespan = check_schedule(instance, info["schedule"])
    assert info["makespan"] == makespan == env.row[BOUND] == max(s.end for s in info["schedule"])
    assert bounds[-1] <= makespan <= instance.duration.sum()
    assert sum(rewards) == -(makespan - first) / env.scale  # in every bit
    assert len(rewards) <= instance.operations and env.observation_space.contains(obs)
    assert all(first <= check_schedule(instance, dispatch(instance, rule)) for rule in RULES)


@settings(max_examples=25, deadline=None)
@given(instances() | odd_instances(), st.integers(0, 2**32))
def test_lanes_the_single_environment_and_the_reference_play_the_same(
    instance: Instance, seed: int
) -> None:
    lanes, rng = 3, np.random.default_rng(seed)
    envs, singles = (
        JobShopEnvironments("shop", lanes, 5, instance),
        [JobShopEnv(instance) for _ in range(lanes)],
    )
    for i, one in enumerate(singles):
        obs, info = one.reset(seed=i)
        assert np.array_equal(obs, envs.obs[i]) and np.array_equal(
            info["action_mask"], envs.mask[i]
        )
    returns, lengths = np.zeros(lanes), np.zeros(lanes, int)
    for _ in range(12):
        actions = random_actions(rng, envs.mask, instance.machines)
        before = envs.states.copy()
        expected = step_reference(instance, before.copy(), actions)
        assert all(
            np.array_equal(f, e)
            for f, e in zip(step_once(instance, before, actions), expected, strict=True)
        )
        envs.step(actions)
        assert np.array_equal(envs.states, expected[0]) and not envs.truncated.any()
        finished = {e.env: e for e in envs.finished}
        for i, one in enumerate(singles):
            obs, reward, done, cut, info = one.step(actions[i])
            returns[i], lengths[i] = returns[i] + reward, lengths[i] + 1
            assert (reward, done, cut, i in finished) == (
                envs.reward[i],
                envs.terminated[i],
                False,
                done,
            )
            if done:
                assert np.array_equal(obs, envs.final_obs[i]) and info["schedule"] == envs.schedule(
                    i
                )
                assert (finished[i].ret, finished[i].length, envs.last_makespan[i]) == (
                    returns[i],
                    lengths[i],
                    info["makespan"],
                )
                returns[i] = lengths[i] = 0
                obs, info = one.reset()
            assert np.array_equal(obs, envs.obs[i]) and np.array_equal(
                info["action_mask"], envs.mask[i]
            )
            assert (envs.ret[i], envs.length[i]) == (returns[i], lengths[i])


# the adapter


def test_restoring_goes_on_to_the_last_bit() -> None:
    rng = np.random.default_rng(1)
    first, second = (
        JobShopEnvironments("tenfold/JobShop-v0(instance=la01)", 3, 11) for _ in range(2)
    )
    for _ in range(70):  # past an episode's end, and in the middle of one
        first.step(random_actions(rng, first.mask, 5))
    assert first.last_makespan.min() > 0 and first.length.min() > 0
    kept = first.state()
    copied = {k: v.copy() for k, v in kept.items()}
    first.step(random_actions(rng, first.mask, 5))
    # what was saved is not what is stepped
    assert all(np.array_equal(kept[k], copied[k]) for k in kept)
    assert first.restore(kept) and second.restore(kept) and second.exact_resume
    for _ in range(80):
        actions = random_actions(rng, first.mask, 5)
        for envs in (first, second):
            envs.step(actions)
        assert (
            all(np.array_equal(getattr(first, part), getattr(second, part)) for part in PARTS)
            and first.finished == second.finished
        )
        assert np.array_equal(first.final_obs[first.terminated], second.final_obs[first.terminated])
    assert not second.restore(kept | {"obs": kept["obs"] + np.float32(0.01)})


def test_a_masked_action_names_the_machine_and_moves_nothing() -> None:
    envs = JobShopEnvironments("tenfold/JobShop-v0", 2, 0)
    good = np.array([[0, 1, 0, 0, 0, 0]] * 2)
    before = envs.states.copy()
    for machine, action, why in (
        (
            1,
            0,
            "told to start job 0, which does not wait there: its options are job 1, job 3, job 5",
        ),
        (2, 6, "told to idle while nothing is worth waiting for"),
        (2, 9, "given 9, which is none of the options 0 to 6"),
        (1, -1, "given -1"),
    ):
        bad = good.copy()
        bad[1, machine] = action
        with pytest.raises(
            EnvironmentFault,
            match=f"JobShop-v0, environment 1, episode 0, step 1: machine {machine} was {why}",
        ):
            envs.step(bad)
        assert np.array_equal(envs.states, before)
    with pytest.raises(
        EnvironmentFault, match=r"\(6,\) actions do not fit lanes and machines \(2, 6\)"
    ):
        envs.step(good[0])
    envs.step(good)
    single = JobShopEnv("ft06")
    single.reset()
    with pytest.raises(EnvironmentFault, match="ft06: machine 1 was told to start job 0"):
        single.step(np.zeros(6, int))
    with pytest.raises(EnvironmentFault, match="one action for each of its 6 machines"):
        single.step(np.zeros(5, int))


def test_the_registered_environment_keeps_gymnasiums_rules() -> None:
    env = gym.make("tenfold/JobShop-v0", instance="la01")  # with Gymnasium's checker around it
    assert env.action_space == gym.spaces.MultiDiscrete([11] * 5)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=4)
    done = False
    while not done:
        assert info["action_mask"].shape == (55,) and info["action_mask"].dtype == np.bool_
        _, _, done, _, info = env.step(random_actions(rng, info["action_mask"], 5))
    assert check_schedule(read_instance("la01"), info["schedule"]) == info["makespan"]
    assert make_env("tenfold/JobShop-v0(instance=ft10)").unwrapped.instance.name == "ft10"  # type: ignore[attr-defined]
    with pytest.raises(EnvironmentFault, match="the arguments are instance, optimum and bounds"):
        JobShopEnvironments("tenfold/JobShop-v0(size=3)", 1, 0)


# schedules

GOOD = [
    Scheduled(1, 0, 0, 0, 2),
    Scheduled(0, 0, 0, 2, 5),
    Scheduled(1, 1, 1, 2, 6),
    Scheduled(0, 1, 1, 6, 8),
]


@pytest.mark.parametrize(
    ("place", "change", "complaint"),
    [
        (0, None, "operation 0 of job 1 is missing"),
        (1, {"machine": 1}, "operation 0 of job 0 runs on machine 1, and needs machine 0"),
        (1, {"end": 6}, "takes 4 from 2 to 6, and its duration is 3"),
        (0, {"start": -1, "end": 1}, "starts at -1, before time 0"),
        (
            1,
            {"start": 1, "end": 4},
            "On machine 0 the operation 0 of job 0 starts at 1, while the operation 0 of job 1 runs until 2",
        ),
        (
            3,
            {"start": 4, "end": 6},
            "operation 1 of job 0 starts at 4, before the job's operation 0 ends at 5",
        ),
        (
            3,
            {"start": 5, "end": 7},
            "On machine 1 the operation 1 of job 0 starts at 5, while the operation 1 of job 1 runs until 6",
        ),
        (3, {"operation": 2}, "no operation 2 of job 0"),
        (3, {"job": 2}, "no operation 1 of job 2"),
        (0, {"job": 0, "end": 3}, "operation 0 of job 0 is scheduled twice"),
    ],
)
def test_the_checker_names_the_first_violation(
    place: int, change: dict | None, complaint: str
) -> None:
    assert check_schedule(FLOW, GOOD) == 8
    bad = (
        GOOD[:place]
        + ([] if change is None else [GOOD[place]._replace(**change)])
        + GOOD[place + 1 :]
    )
    with pytest.raises(Infeasible, match=complaint):
        check_schedule(FLOW, bad)
    with pytest.raises(Infeasible, match=r"\(0, 1, 2\) is no row of a schedule: job, operation"):
        check_schedule(FLOW, [(0, 1, 2)])  # type: ignore[list-item]


@settings(max_examples=40, deadline=None)
@given(instances(), st.integers(0, 10**6), st.integers(-5, 5).filter(bool))
def test_the_checker_agrees_with_a_count_of_every_moment(
    instance: Instance, which: int, shift: int
) -> None:
    """One operation is moved, and the floor is looked at in each unit of time."""
    schedule = dispatch(instance, "random", which)
    s = schedule.pop(which % len(schedule))
    schedule.append(s._replace(start=s.start + shift, end=s.end + shift))
    cells = [
        (kind, number, t)
        for x in schedule
        for t in range(x.start, x.end)
        for kind, number in (("machine", x.machine), ("job", x.job))
    ]
    ordered = all(
        x.operation < y.operation or x.start > y.start
        for x in schedule
        for y in schedule
        if x.job == y.job and x is not y
    )
    if len(set(cells)) == len(cells) and ordered and s.start + shift >= 0:
        assert check_schedule(instance, schedule) == max(x.end for x in schedule)
    else:
        with pytest.raises(Infeasible):
            check_schedule(instance, schedule)


@pytest.mark.usefixtures("pictures")
def test_gantt_charts() -> None:
    chart = "machine 0 |11000···|\nmachine 1 |··111100|\n          0       8"
    assert gantt_text(GOOD, 20) == chart
    # two letters for a unit of time
    assert gantt_text(GOOD, 30).splitlines()[0] == "machine 0 |1111000000······|"
    assert all(len(line) <= 60 for line in gantt_text(dispatch("ft10", "SPT"), 60).splitlines())
    assert as_png(gantt_figure(dispatch("ft10", "SPT"), "ft10 by SPT"))[:4] == b"\x89PNG"
    env = gym.make("tenfold/JobShop-v0", instance="ft06", render_mode="rgb_array").unwrapped
    env.reset()
    empty = env.render()
    env.step(np.array(BEST_FT06[0]))
    assert (
        empty.shape[2] == 3 and empty.dtype == np.uint8 and not np.array_equal(env.render(), empty)
    )
    words = JobShopEnv(FLOW, render_mode="ansi")
    words.reset()
    assert words.render() == "nothing is scheduled yet"
    words.step([1, 0])
    assert "machine 0 |1" in words.render()


def test_a_learning_phase_with_absent_choices_is_the_same_fused_and_plain() -> None:
    from tenfold.algorithms.ppo_cpu import fused_phase, plain_phase

    options = {"horizon": 13, "epochs": 2, "minibatches": 3, "net": {"hidden": [9, 6]}}
    name = "tenfold/JobShop-v0(instance=ft06)"
    one, other = (f(name, options | {"on_empty": "absent"}, 7) for f in (plain_phase, fused_phase))
    for plain, fused in zip(one, other, strict=True):
        np.testing.assert_allclose(fused, plain, rtol=1e-3, atol=1e-4)
