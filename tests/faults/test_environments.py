"""An environment's mistakes are told with place and reason; a policy that diverged is told as that,
and never saved."""

from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

import tenfold as ten
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.cli.main import main
from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault, UserError
from tenfold.domains.dynamics.validation import random_recordings
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.evaluation.player import play
from tenfold.runs.checkpoint import Checkpoints
from tenfold.runs.folder import RunFolder
from tenfold.training.learners import agent_of


class Mute(Exception):
    """One whose words are a mistake as well."""

    def __str__(self) -> str:
        raise ValueError("no words")


class Mistaken(gym.Env):
    """Does wrong what `what` says, in the third step."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)

    def __init__(self, what: str) -> None:
        self.what, self.t = what, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.what == "seedless":
            raise TypeError("Old.reset() got an unexpected keyword argument 'seed'")
        if self.what == "no info":
            return np.zeros(2, np.float32), None
        if self.what == "reset":
            return np.zeros(2, np.float32)  # which could be unpacked
        return np.zeros(2, np.float32), {
            "action_mask": np.ones(2, bool)
        } if self.what == "mask" else {}

    def step(self, action: Any) -> Any:
        self.t += 1
        obs, reward = np.full(2, 0.1 * self.t, np.float32), 1.0
        if self.t == 3 and self.what == "raise":
            raise RuntimeError("the motor\nis hot")
        if self.t == 3 and self.what == "shape":
            obs = np.zeros(3, np.float32)
        if self.t == 3 and self.what == "row":
            obs = obs[None]
        if self.t == 3 and self.what in ("nan", "inf"):
            return (
                (obs, np.nan, False, False, {})
                if self.what == "nan"
                else (np.full(2, np.inf, np.float32), reward, False, False, {})
            )
        if self.t == 3 and self.what == "mute":
            raise Mute
        if self.t == 3 and self.what == "generator":
            raise GeneratorExit("done")
        if self.t == 3 and self.what in ENDS:
            return obs, reward, *ENDS[self.what], {}
        if self.t == 3 and self.what == "four":
            return obs, reward, False, {}
        return obs, "one" if self.t == 3 and self.what == "reward" else reward, False, False, {}


# of an episode, neither true nor false
ENDS = {
    "terminated nan": (np.nan, False),
    "terminated none": (None, False),
    "truncated none": (False, None),
    "truncated word": (False, "no"),
}
gym.register("Mistaken-v0", Mistaken)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "raise",
            r"environment 0, episode 0, step 3: step raised RuntimeError: the motor is hot in test_environments.py, line \d+",
        ),
        (
            "shape",
            r"episode 0, step 3: the observation has shape \(3,\), and its space says \(2,\)\.",
        ),
        (
            "row",
            r"episode 0, step 3: the observation has shape \(1, 2\), and its space says \(2,\)\.",
        ),
        ("four", "episode 0, step 3: this is an environment in the style of Gym before 0.26"),
        ("reward", r"step 3: what step returned cannot be used: ValueError"),
        ("mute", r"step 3: step raised Mute in test_environments.py, line \d+"),
        ("generator", "step 3: step raised GeneratorExit: done in test_environments.py"),
        ("terminated nan", r"step 3: terminated is nan, and must be True or False\."),
        ("terminated none", r"step 3: terminated is None, and must be True or False\."),
        ("truncated none", r"step 3: truncated is None, and must be True or False\."),
        ("truncated word", r"step 3: truncated is 'no', and must be True or False\."),
        (
            "reset",
            "episode 0, step 0: this is an environment in the style of Gym before 0.26 .* GymV21CompatibilityV0",
        ),
        ("no info", "step 0: the info that reset returned is None, and must be a dict"),
        ("seedless", "episode 0, step 0: this is an environment in the style of Gym before 0.26"),
        (
            "mask",
            r"Mistaken-v0\(what=mask\) gives an action mask with some observations and none with others",
        ),
    ],
)
def test_what_an_environment_raises_is_named_with_its_place(what: str, said: str) -> None:
    with pytest.raises(EnvironmentFault, match=said):
        place = OffPolicyLearner(Run(env=f"Mistaken-v0(what={what})"))
        for _ in range(5):
            place.round()


NUMBER, TWO = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)


class Telling(gym.Env):
    """One step an episode; gives the observation `seen`, says `success`, and cannot be closed. Its
    spaces are given."""

    def __init__(
        self, space: Any = NUMBER, seen: Any = 0.0, success: Any = None, actions: Any = TWO
    ) -> None:
        self.observation_space, self.action_space = space, actions
        self.seen, self.success = seen, success

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.seen, {}

    def step(self, action: Any) -> Any:
        return self.seen, 1.0, True, False, {"success": self.success, "each": "a user's own"}

    def close(self) -> None:
        raise RuntimeError("the window is gone")


@pytest.mark.parametrize(
    ("space", "seen", "said"),
    [
        (
            gym.spaces.Box(0, 255, (2,), np.uint8),
            np.array([0.0, 0.7]),
            r"step 0: The observation is of type float64, and its space promises whole numbers \(uint8\)",
        ),
        (
            gym.spaces.Discrete(4),
            -1,
            "step 0: The observation holds -1, and must hold one of 0 … 3",
        ),
        (
            gym.spaces.Discrete(4, start=5),
            9,
            "step 0: The observation holds 9, and must hold one of 5 … 8",
        ),
        # no first value of the second part
        (
            gym.spaces.MultiDiscrete([3, 4]),
            np.array([3, 0]),
            "step 0: The observation holds 3, and must hold one of 0 … 2",
        ),
        (gym.spaces.Box(-1, 1, (0,)), np.zeros(0), "has observations without a number in them"),
        (None, 0, "has no observation_space: set it"),
    ],
)
def test_an_observation_that_would_be_read_as_another_is_refused(
    space: Any, seen: Any, said: str
) -> None:
    with pytest.raises(EnvironmentFault, match=said):
        OffPolicyLearner(Run(env=lambda: Telling(space, seen)))  # type: ignore[arg-type]


def test_a_number_alone_is_an_observation() -> None:
    place = OffPolicyLearner(Run(env=lambda: Telling(gym.spaces.Box(-1, 1, ()), np.float32(0.5))))  # type: ignore[arg-type]
    place.round()
    assert place.envs.obs.tolist() == [[0.5]]


def test_an_environment_without_actions_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match="has no action_space: set it"):
        OffPolicyLearner(Run(env=lambda: Telling(actions=None)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("success", "rate"),
    [(True, 1.0), (np.float32(0), 0.0), (np.array([True]), 1.0), (1, 1.0), (None, None)],
)
def test_a_success_may_be_told_in_any_form_and_closing_may_fail(
    success: Any, rate: float | None
) -> None:
    gym.register("Telling-v0", lambda: Telling(seen=np.zeros(1), success=success))
    try:
        agent = agent_of(Run(env="Telling-v0"))
        assert play("Telling-v0", agent, agent.policy("greedy"), 3, 0).success_rate == rate
    finally:
        gym.registry.pop("Telling-v0")


@pytest.mark.parametrize("success", [37, 0.5, float("nan"), "yes", np.ones(2)])
def test_a_success_that_is_neither_true_nor_false_is_refused(success: Any) -> None:
    gym.register("Telling-v0", lambda: Telling(seen=np.zeros(1), success=success))
    try:
        agent = agent_of(Run(env="Telling-v0"))
        with pytest.raises(
            EnvironmentFault,
            match=r"evaluation, episode 0, step 1: info\['success'\] is .* and must be True or False",
        ):
            play("Telling-v0", agent, agent.policy("greedy"), 3, 0)
    finally:
        gym.registry.pop("Telling-v0")


class Masked(gym.Env):
    """Its observation has a part for the mask."""

    observation_space = gym.spaces.Dict(
        {"seen": gym.spaces.Box(-1, 1, (2,)), "action_mask": gym.spaces.MultiBinary(2)}
    )
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return {"seen": np.zeros(2, np.float32), "action_mask": np.ones(2, np.int8)}, {}


gym.register("Masked-v0", Masked)


def test_a_mask_in_the_observation_is_no_part_of_what_is_seen() -> None:
    learner = OffPolicyLearner(Run(env="Masked-v0"))
    assert learner.envs.layout.size == 2 and learner.agent.masked


def test_from_the_command_line_it_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "train",
                "dqn",
                "--env",
                "Mistaken-v0(what=raise)",
                "--out",
                str(tmp_path / "run"),
                "--quiet",
            ]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert "the motor is hot" in said and "Traceback" not in said


@pytest.mark.parametrize("engine", ["plain", "fused"])
def test_networks_that_diverged_are_never_saved(engine: str, tmp_path: Path) -> None:
    """The checkpoint that is left is the finite one from before, and the sentence says so."""
    run = Run.of(
        {
            "env": "tenfold/CartPole-v1",
            "engine": engine,
            "steps": 900,
            "eval_every": 900,
            "checkpoint_every": 50,
            "log_every": 10_000,
            "agent": {"name": "dqn", "lr": 1e12, "learning_starts": 100, "net": {"hidden": [16]}},
        }
    )
    with pytest.raises(
        UserError, match=r"no longer finite at step .* the last checkpoint .* is from before this"
    ):
        ten.train(run, tmp_path / "run", quiet=True)
    folder, _ = RunFolder.open(tmp_path / "run")
    state, step = Checkpoints(folder, 2).policy("last")
    assert torch.isfinite(state["online"]).all() and 0 < step <= 150
    assert not (tmp_path / "run" / "checkpoints" / "best.safetensors").exists()


def test_a_policy_that_diverged_is_not_blamed_on_the_environment(tmp_path: Path) -> None:
    run = Run.of(
        {
            "env": "tenfold/Pendulum-v1",
            "num_envs": 2,
            "steps": 2000,
            "eval_every": 0,
            "agent": {
                "name": "ppo",
                "lr": 1e18,
                "clip_norm": None,
                "horizon": 16,
                "net": {"hidden": [16]},
            },
        }
    )
    with pytest.raises(UserError, match=r"no longer finite|not finite: the network diverged"):
        ten.train(run, tmp_path / "run", quiet=True)


def test_a_reset_that_raises_is_named_with_the_episode_that_did_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    envs = ScalarEnvironments("CartPole-v1", 1, 0)
    envs.step(np.array([0]))
    monkeypatch.setattr(CartPoleEnv, "reset", lambda *_, **__: 1 / 0)
    with pytest.raises(
        EnvironmentFault,
        match="environment 0, episode 1, step 0: reset raised ZeroDivisionError",
    ):
        for _ in range(100):
            envs.step(np.array([0]))


class Late(Mistaken):
    """Fails in its second episode, which a short training does not come to; knows how many are
    open."""

    open: ClassVar[int] = 0

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.episodes, self.closed = 0, False
        Late.open += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes, self.t = self.episodes + 1, 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = (
            super().step(action) if self.episodes == 2 else Mistaken("").step(action)
        )
        return obs, reward, terminated, truncated or self.episodes == 1, info

    def close(self) -> None:
        Late.open -= not self.closed
        self.closed = True


gym.register("Late-v0", Late)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (
            "raise",
            r"Late-v0\(what=raise\), evaluation, episode 32, step 3: step raised RuntimeError: the motor is hot in test_environments.py",
        ),
        ("four", "episode 32, step 3: this is an environment in the style of Gym before 0.26"),
        ("reward", "episode 32, step 3: what step returned cannot be used: ValueError"),
        ("nan", "episode 32, step 3: the reward is not finite"),
        ("inf", "episode 32, step 3: the observation is not finite"),
    ],
)
def test_what_an_environment_raises_in_an_evaluation_is_named_and_all_are_closed(
    what: str, said: str
) -> None:
    Late.open = 0
    agent = agent_of(Run(env=f"Late-v0(what={what})"))
    with pytest.raises(EnvironmentFault, match=said):
        play(f"Late-v0(what={what})", agent, agent.policy("greedy"), 34, 0)
    assert Late.open == 0


def test_an_environment_that_fails_in_a_runs_evaluation_ends_it_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Late.open = 0
    assert (
        main(
            [
                "train",
                "dqn",
                "--env",
                "Late-v0(what=raise)",
                "--steps",
                "4",
                "--eval-every",
                "1",
                "--eval-episodes",
                "33",
                "--engine",
                "plain",
                "--out",
                str(tmp_path / "run"),
                "--quiet",
            ]
        )
        == 2
    )
    said = capsys.readouterr().err
    assert "evaluation, episode 32, step 3: step raised RuntimeError" in said and Late.open == 0


def test_recordings_of_an_environment_that_fails_end_with_a_sentence() -> None:
    class Hot(Mistaken):
        action_space = gym.spaces.Box(-1, 1, (1,))

    gym.register("Hot-v0", Hot)
    with pytest.raises(
        EnvironmentFault,
        match=r"recording 0: the environment raised RuntimeError: the motor is hot in test_env",
    ):
        random_recordings("Hot-v0(what=raise)", 2)
    with pytest.raises(EnvironmentFault, match="recording 0: an observation is not finite"):
        random_recordings("Hot-v0(what=inf)", 2)
