"""Environments of one's own as functions: NumPy ones are ordinary environments, their Triton twins
do the same step by step, and the resident engine trains in them. Without a GPU in Triton's
interpreter."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import forage
import gymnasium as gym
import numpy as np
import pytest
from test_resident_engine import a_run, anywhere, last  # noqa: F401

import tenfold as ten
from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.core.pairs import PAIRS, check_pair
from tenfold.core.random import Purpose, key
from tenfold.envs.device import device_task, step_on_device
from tenfold.envs.functions import TASKS, FunctionEnvironments, Functions, register_task
from tenfold.envs.making import make_environments
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.training.loop import train

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    sys.modules.pop("docking", None)
    forget("Docking-v0")


def one_of(name: str, lanes: int, policy: bool = True) -> Any:
    return make_environments(name, lanes, 3, policy)


@pytest.mark.parametrize("name", ["docking:Docking-v0", "forage:Forage-v0", "forage:Push-v0"])
def test_whole_episodes_on_the_device_are_those_of_numpy(name: str) -> None:
    lanes = 5
    envs = one_of(name, lanes)
    task, found = device_task(name), TASKS[name.partition(":")[2]]
    state, draws, ended = envs.states.copy(), key(1, Purpose.RANDOM_POLICY), 0
    for step in range(found.limit):
        action = found.actions.random(draws, step * lanes + np.arange(lanes), envs.mask)
        given = action.reshape(lanes, -1).astype(found.kind)
        after, obs, reward, terminated, fresh, allowed = (
            array.cpu().numpy()
            for array in step_on_device(task, state, envs.episode + 1, envs.streams, given)
        )
        envs.step(action)
        over = envs.terminated | envs.truncated
        ended += int(over.sum())
        assert np.array_equal(terminated, envs.terminated)
        assert np.allclose(reward, envs.reward, rtol=1e-12, atol=1e-12)
        assert np.allclose(obs[~over], envs.obs[~over]) and np.allclose(
            obs[over], envs.final_obs[over]
        )
        if envs.mask is not None:
            assert np.array_equal(allowed[~over], envs.mask[~over]) and not envs.mask.all()
        # the device goes on from its own states, so that differences would add up
        state = np.where(over[:, None], fresh, after)
        assert np.allclose(state, envs.states, rtol=1e-9, atol=1e-9)
    assert ended >= lanes


def test_the_pair_of_a_task_finds_a_twin_that_is_wrong() -> None:
    assert check_pair(PAIRS["envs.tasks.Forage-v0"]).equal
    assert check_pair(PAIRS["envs.tasks.Push-v0"]).equal
    host = Functions(forage.place, forage.push, forage.see)
    wrong = Functions(forage.place_gpu, forage.advance_gpu, forage.see_gpu)
    try:
        register_task("Wrong-v0", host, wrong, actions=TASKS["Push-v0"].actions.space, limit=15)
        assert not check_pair(PAIRS["envs.tasks.Wrong-v0"]).equal
    finally:
        forget("Wrong-v0")


def forget(name: str) -> None:
    TASKS.pop(name, None)
    PAIRS.pop(f"envs.tasks.{name}", None)
    gym.registry.pop(name, None)


@pytest.mark.parametrize("name", ["Forage-v0", "Push-v0"])
def test_all_lanes_at_once_play_what_the_ordinary_environment_plays(name: str) -> None:
    envs, env = one_of(name, 1), gym.make(name)
    # lane 0 of seed 3 is what reset(seed=3) begins
    obs, info = env.reset(seed=3)
    draws, total, episodes = key(5, Purpose.RANDOM_POLICY), 0.0, 0
    for step in range(60):
        assert np.array_equal(obs, envs.obs[0])
        if envs.mask is not None:
            assert np.array_equal(info["action_mask"], envs.mask[0])
        action = TASKS[name].actions.random(draws, np.array([step]), envs.mask)
        obs, reward, terminated, truncated, info = env.step(action[0])
        envs.step(action)
        total += reward
        assert (reward, terminated, truncated) == (
            envs.reward[0],
            envs.terminated[0],
            envs.truncated[0],
        )
        if terminated or truncated:
            assert np.array_equal(obs, envs.final_obs[0])
            assert envs.finished[0].ret == pytest.approx(total)
            obs, info = env.reset()
            total, episodes = 0.0, episodes + 1
    assert episodes >= 3


def test_lanes_are_restored_from_their_rows() -> None:
    envs = one_of("Forage-v0", 3)
    draws, actions = key(5, Purpose.RANDOM_POLICY), TASKS["Forage-v0"].actions
    for step in range(7):
        envs.step(actions.random(draws, step * 3 + np.arange(3), envs.mask))
    other = one_of("Forage-v0", 3)
    assert other.restore(envs.state())
    assert np.array_equal(other.mask, envs.mask) and not np.array_equal(
        other.mask, one_of("Forage-v0", 3).mask
    )
    chosen = actions.random(draws, 90 + np.arange(3), envs.mask)
    envs.step(chosen)
    other.step(chosen)
    assert np.array_equal(envs.states, other.states) and np.array_equal(envs.ret, other.ret)


def test_the_resident_engine_trains_in_an_environment_of_ones_own_as_plain_does(
    anywhere: None,  # noqa: F811
    tmp_path: Path,
) -> None:
    run = a_run(engine="resident", env="docking:Docking-v0", num_envs=2, steps=24)
    for name in ("resident", "plain"):
        train(replace(run, engine=name), tmp_path / name, quiet=True)
    whole, plain = last(tmp_path / "resident"), last(tmp_path / "plain")
    assert plain.keys() == whole.keys()
    for name, value in plain.items():
        if "sums" not in name and name != "serial.due_from":
            assert np.allclose(value, whole[name], rtol=1e-3, atol=1e-5), name


def test_ppo_reads_the_masks_of_a_task_and_dqn_says_that_it_would_not(tmp_path: Path) -> None:
    agent = {"name": "ppo", "horizon": 32, "minibatches": 2, "net": {"hidden": [16]}}
    given = {"env": "forage:Forage-v0", "steps": 512, "num_envs": 4, "eval_episodes": 2}
    done = train(ten.Run.of(given | {"agent": agent}), tmp_path / "ppo", quiet=True)
    assert done.step == 512
    with pytest.raises(UserError, match="several discrete"):
        train(ten.Run.of(given | {"agent": {"name": "dqn"}}), tmp_path / "dqn", quiet=True)


def test_tenfold_check_compares_a_module_of_ones_own(here: Callable[..., Any]) -> None:
    done = here("check", "docking:Docking-v0")
    assert done.returncode == 0 and "1 of 1 fast paths equal" in done.stdout
    missing = here("check", "no_such_module:Docking-v0")
    assert missing.returncode == 2 and "no_such_module" in missing.stderr


BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"limit": 0}, "the limit is 0"),
        ({"actions": gym.spaces.Discrete(3, start=1)}, "counted from 0"),
        ({"actions": gym.spaces.MultiBinary(3)}, "must be a Discrete, MultiDiscrete or Box"),
        ({"device": Functions(forage.place_gpu, forage.push_gpu, forage.see_gpu, forage.mask_gpu)}, "both have a mask"),
        ({"host": Functions(forage.place, forage.push, lambda state: state[5])}, "observe in NumPy failed: IndexError"),
        ({"host": Functions(forage.place, forage.advance, forage.see), "actions": gym.spaces.Discrete(2)}, "advance in NumPy failed"),
        ({"host": Functions(forage.place, forage.push, forage.see, lambda state: (state[0] > 0,))}, "its mask has 1 numbers, and its actions have 0 options"),
        ({"host": Functions(forage.place, lambda s, a: (s[:1], s[0], s[0] > 0), forage.see)}, "a state of 2 numbers, and advance one of 1"),
    ],
)  # fmt: skip
def test_a_task_that_cannot_be_is_refused_in_one_sentence(
    change: dict[str, Any], words: str
) -> None:
    usual = {"host": Functions(forage.place, forage.push, forage.see), "actions": BOX, "limit": 9}
    with pytest.raises(UserError) as refused:
        register_task("Bad-v0", **(usual | change))  # type: ignore[arg-type]
    assert words in str(refused.value) and "Bad-v0" in str(refused.value)
    assert "Bad-v0" not in TASKS and "Bad-v0" not in gym.registry


def test_without_triton_a_task_is_one_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "tenfold.envs.gpu")
    monkeypatch.delattr("tenfold.envs.gpu")
    envs = one_of("docking:Docking-v0", 2, False)
    assert envs.task.device == (None, None, None, None)
    envs.step(np.array([0, 2]))
    assert (envs.length + envs.episode).tolist() == [1, 1]


def test_an_observation_that_is_not_finite_is_told_with_its_place() -> None:
    def broken(state: Any, action: Any) -> Any:
        x, y = state
        return (x + np.inf, y), x, x > 9

    try:
        register_task(
            "Broken-v0", Functions(forage.place, broken, forage.see), actions=BOX, limit=9
        )
        envs = one_of("Broken-v0", 2)
        with pytest.raises(EnvironmentFault, match=r"Broken-v0, environment 0, .*not finite"):
            envs.step(np.zeros((2, 2), np.float32))
    finally:
        forget("Broken-v0")


def test_a_task_is_stepped_by_its_functions_and_evaluated_as_any_other() -> None:
    assert isinstance(one_of("forage:Push-v0", 2), FunctionEnvironments)
    scalar = ScalarEnvironments("forage:Push-v0", 2, 0, True)
    for _ in range(15):
        scalar.step(np.zeros((2, 2), np.float32))
    assert [episode.length for episode in scalar.finished] == [15, 15]


@pytest.mark.slow
def test_the_example_is_learned_on_the_host(tmp_path: Path) -> None:
    run = ten.Run.of({"env": "docking:Docking-v0", "steps": 30_000, "agent": {"name": "dqn"}})
    assert (train(run, tmp_path / "run", quiet=True).best_evaluation or 0) > 0.8


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_the_example_is_learned_inside_the_gpu(tmp_path: Path, name: str) -> None:
    given = {"env": "docking:Docking-v0", "device": "cuda", "engine": "resident"}
    more = {"steps": 50_000} if name == "dqn" else {"steps": 200_000, "num_envs": 16}
    run = ten.Run.of(given | more | {"agent": {"name": name}})
    assert (train(run, tmp_path / "run", quiet=True).best_evaluation or 0) > 0.8
