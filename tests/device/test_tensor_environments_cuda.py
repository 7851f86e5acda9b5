"""Environments of tensors on a GPU: what is learned there is what the plain engine learns on the
CPU, by CUDA graphs and without, and nobody waits for the device while rows are played."""

import warnings
from pathlib import Path
from typing import Any

import drifting
import pytest
import torch

import tenfold as ten
from tenfold.core.errors import ConfigError
from tenfold.training.learners import make_learner

pytestmark = pytest.mark.cuda
NET = {"net": {"hidden": [8]}}
AGENTS: list[dict[str, Any]] = [
    {"name": "ppo", "horizon": 12, "minibatches": 3, "epochs": 2, "normalize_obs": True, **NET},
    {"name": "sac", "learning_starts": 12, "every": 6, "batch_size": 8, "capacity": 600, **NET},
    {"name": "td3", "learning_starts": 12, "every": 3, "batch_size": 8, "capacity": 600, **NET},
]


@pytest.fixture(autouse=True)
def module_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(drifting.__file__).parent))


def learner_of(agent: dict[str, Any], device: str, engine: str = "auto") -> Any:
    settings = {"env": "drifting:make", "num_envs": 6, "agent": agent}
    return make_learner(ten.Run.of(settings | {"device": device, "engine": engine}))


@pytest.mark.parametrize("engine", ["plain", "cudagraph"])
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent["name"])
def test_a_gpu_learns_what_the_cpu_does(agent: dict[str, Any], engine: str) -> None:
    learners = [learner_of(agent, "cpu", "plain"), learner_of(agent, "cuda", engine)]
    for learner in learners:
        learner.warm_up()
        while learner.step < 144:
            learner.round(144)
    first, second = (learner.agent.online.flat.cpu() for learner in learners)
    assert learners[0].agent.updates == learners[1].agent.updates
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-3)
    [learner.close() for learner in learners]


@pytest.mark.parametrize("engine", ["plain", "cudagraph"])
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent["name"])
def test_nobody_waits_for_the_gpu_while_rows_are_played(agent: dict[str, Any], engine: str) -> None:
    learner = learner_of(agent, "cuda", engine)
    learner.warm_up()
    learner.round(144)
    try:
        with warnings.catch_warnings(action="ignore"):  # that this is a prototype
            torch.cuda.set_sync_debug_mode("error")
        for _ in range(8):
            if agent["name"] == "ppo":
                step = learner.envs.step(learner.engine.act(learner.rounds))
                learner.engine.add_step(step)
                learner.episodes.add(step)
            else:
                learner.play()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    learner.close()


def test_a_run_on_the_gpu_is_evaluated_resumed_and_acts(tmp_path: Path) -> None:
    settings = {"env": "drifting:make", "num_envs": 6, "agent": AGENTS[0], "steps": 288}
    run = ten.Run.of(settings | {"device": "cuda", "eval_every": 144})
    result = ten.train(run, tmp_path / "run", quiet=True)
    assert ten.resume(result.path, steps=432, quiet=True).step == 432
    obs = torch.randn(4, 3, device="cuda")
    assert ten.load(result.path).act(obs).is_cuda
    wrong = "drifting:make(device=cpu)"
    with pytest.raises(ConfigError, match=r"device = cuda, and the tensors of .* are on cpu"):
        make_learner(ten.Run.of(settings | {"env": wrong, "device": "cuda"}))
    wrong = "drifting:make(device=cuda)"
    with pytest.raises(ConfigError, match=r"device = cpu, and the tensors of .* are on cuda:0"):
        make_learner(ten.Run.of(settings | {"env": wrong, "device": "cpu"}))
