"""Environments handed over from Python: a function that makes one, or an object, train as those
with a name do."""

import multiprocessing
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest

import tenfold as ten
from tenfold.config.schema import to_mapping
from tenfold.core import user_envs as lent
from tenfold.core.errors import ConfigError, EnvironmentFault, UserError
from tenfold.core.processes import require_guard
from tenfold.envs.making import make_env
from tenfold.envs.tensor_sources import is_tensors


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent, "registered", {})
    monkeypatch.setattr(lent, "made", {})


@pytest.fixture(scope="module")
def named(small_run: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[float]]:
    result = ten.train(small_run(), tmp_path_factory.mktemp("own") / "named", quiet=True)
    return result, ten.evaluate(result, episodes=3).returns


@pytest.mark.parametrize("kind", ["function", "object"])
def test_the_run_is_the_one_by_name(
    kind: str, named: tuple[Any, list[float]], small_run: Any, tmp_path: Path
) -> None:
    """Evaluations in the middle of an episode borrow an object from training, and change nothing
    there."""
    made = []

    def pole() -> gym.Env:
        made.append(gym.make("CartPole-v1"))
        return made[-1]

    env = pole if kind == "function" else gym.make("CartPole-v1")
    run = small_run(env=env)
    assert (
        run.env == ("own/pole" if kind == "function" else "own/CartPoleEnv")
        and ten.Run.of(to_mapping(run)) == run
    )
    result = ten.train(run, tmp_path / "run", quiet=True)
    assert (result.mean_return, result.best_evaluation, result.episodes) == (
        named[0].mean_return,
        named[0].best_evaluation,
        named[0].episodes,
    )
    assert ten.evaluate(result, episodes=3).returns == named[1]
    # training, three evaluations of two, spaces, three episodes
    assert len(made) == (0 if kind == "object" else 1 + 3 * 2 + 1 + 3)

    lent.registered.clear()  # as in another process
    with pytest.raises(
        EnvironmentFault,
        match="was handed over as an object or a function, which this process does not have: pass it as env= to",
    ):
        ten.load(result.path)
    assert ten.evaluate(result.path, episodes=3, env=env).returns == named[1]
    assert ten.resume(result.path, steps=700, env=env, quiet=True).step == 700


def test_what_cannot_work_is_refused_with_a_sentence(named: tuple[Any, list[float]]) -> None:
    pole = gym.make("CartPole-v1")
    sentence = (
        "= own/CartPoleEnv is one object, and {} needs several environments: give a function that "
        "makes one"
    )
    for several, what in (
        ({"num_envs": 2}, "num_envs = 2"),
        ({"actors": 3}, "actors = 3"),
        ({"agent": ten.Explorer()}, "agent explorer"),
    ):
        with pytest.raises(ConfigError, match=sentence.format(what)):
            ten.Run(env=pole, **several)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError,
        match="env = 3 is neither a name, an environment, nor a function that makes one",
    ):
        ten.Run(env=3)  # type: ignore[arg-type]
    name = ten.Run(env=lambda: pole).env  # type: ignore[arg-type]
    assert make_env(name) is pole
    with pytest.raises(
        EnvironmentFault, match="own/lambda: the function gave the same environment twice"
    ):
        make_env(name)
    name = ten.Run(env=lambda: SimpleNamespace()).env  # type: ignore[arg-type]
    with pytest.raises(
        EnvironmentFault, match=r"own/lambda-2 is a types.SimpleNamespace and no gymnasium.Env"
    ):
        make_env(name)
    with pytest.raises(
        ConfigError, match="env is not needed here: the run's environment has a name, CartPole-v1"
    ):
        ten.load(named[0].path, env=pole)


def test_a_function_is_called_as_often_as_environments_are_needed() -> None:
    """To see whether it makes many worlds in one object it is called once, and what it made then is
    the next that is needed. An environment may be callable itself."""
    made = []

    class Callable(gym.Wrapper[Any, Any, Any, Any]):
        def __call__(self) -> None: ...

    def pole() -> gym.Env:
        made.append(Callable(gym.make("CartPole-v1")))
        return made[-1]

    name = ten.Run(env=pole).env  # type: ignore[arg-type]
    assert not is_tensors(name) and not is_tensors(name) and len(made) == 1
    assert make_env(name) is made[0] and make_env(name) is made[1] and len(made) == 2
    sized = ten.Run(env=lambda num_envs: 1 / 0).env  # type: ignore[arg-type]
    assert is_tensors(sized)  # by its parameter: it is not called for that


def test_a_film_asks_a_function_for_pictures_where_it_takes_a_render_mode() -> None:
    name = ten.Run(
        env=lambda render_mode=None: gym.make("CartPole-v1", render_mode=render_mode)
    ).env  # type: ignore[arg-type]
    assert (
        make_env(name, render_mode="rgb_array").render_mode == "rgb_array"
        and make_env(name).render_mode is None
    )


def test_an_environment_that_only_the_first_process_knows_is_told_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())
    with pytest.raises(
        EnvironmentFault,
        match=r'what a notebook or a script registered: do so in a module .* write env="my_module:Mine-v7"',
    ):
        make_env("Mine-v7")


@pytest.mark.parametrize(
    ("script", "fine"),
    [
        ("import tenfold\ntenfold.train_seeds()\n", False),
        ("if __name__ == '__main__': pass\n", True),
        (None, True),
    ],
)
def test_a_script_without_a_guard_is_refused_before_processes_start(
    script: str | None, fine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    if script:
        (tmp_path / "mine.py").write_text(script)
        main.__file__ = str(tmp_path / "mine.py")
    monkeypatch.setitem(sys.modules, "__main__", main)
    if fine:
        require_guard()
    else:
        with pytest.raises(
            UserError,
            match=r"^mine.py trains in several processes, .*: put what it does below `if __name__ == ",
        ):
            require_guard()
