"""The compiled engine in lockstep with the plain one, where the fused engine cannot go:
convolutions and noisy layers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.engines.compiled import CompiledOffPolicy, compiled
from tenfold.training.learners import make_learner

# torch.compile itself uses what PyTorch has deprecated
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


CONVOLUTION: dict[str, object] = {"net": {"encoder": "small", "hidden": [16]}}
IMPLICIT: dict[str, object] = {
    "net": {"encoder": "mlp", "hidden": [16]},
    "distribution": "implicit(5, 4, cosines=8, acting=6)",
}


CATEGORICAL: dict[str, object] = {
    "net": {"encoder": "mlp", "hidden": [16]},
    "distribution": "categorical(5, -1, 1)",
}


# what C++ makes of a graph is PyTorch's, and takes long
@pytest.mark.parametrize(
    ("backend", "option"),
    [
        ("aot_eager", IMPLICIT),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("aot_eager", CONVOLUTION),
                ("aot_eager", CATEGORICAL),
                ("inductor", IMPLICIT),
                ("inductor", CONVOLUTION),
            )
        ),
    ],
    ids=str,
)
def test_an_update_equals_the_plain_engines(
    option: dict[str, object], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    agent = {
        "batch_size": 8,
        "capacity": 500,
        "learning_starts": 100,
        **option,
        "explore": "noisy",
        "replay": "prioritized",
        "clip_norm": 0.5,
        "double": True,
        "dueling": True,
        "accumulate": 2,
        "target": "polyak(0.1)",
        "lr": "linear(1e-3, 1e-4, 300)",
    }
    place = OffPolicyLearner(
        Run.of({"env": "tenfold/Catch-v0", "engine": "compiled", "verify": 1, "agent": agent})
    )
    assert (
        isinstance(place.engine, CompiledOffPolicy) and "torch.compile" in place.description.engine
    )
    while place.agent.updates < 60:
        place.round()
    assert place.lockstep is not None
    assert place.lockstep.compared + place.lockstep.ties == 60 and place.lockstep.ties <= 1
    assert place.lockstep.largest < 1e-5
    assert set(place.engine.statistics()) == {"loss", "q", "td_error", "grad_norm"}


@pytest.mark.parametrize(
    ("backend", "name", "env"),
    [
        ("aot_eager", "td3", "tenfold/Pendulum-v1"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("aot_eager", "sac", "tenfold/Pendulum-v1"),
                ("inductor", "sac", "tenfold/Pendulum-v1"),
                ("inductor", "sac", "tenfold/Catch-v0"),
                ("inductor", "td3", "tenfold/Pendulum-v1"),
            )
        ),
    ],
    ids=str,
)
def test_an_update_with_critics_equals_the_plain_engines(
    backend: str, name: str, env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """td3's policy learns every second time, by a graph of its own."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    agent = {"name": name, "batch_size": 8, "capacity": 500, "learning_starts": 50, "tau": 0.1}
    agent |= {"replay": "prioritized", "n_step": 2, "lr": "linear(1e-3, 1e-4, 300)"}
    agent |= {"weight_decay": 9.0}
    run = {
        "env": env,
        "engine": "compiled",
        "verify": 1,
        "agent": agent | {"net": {"hidden": [16], "value_hidden": [8], "activation": "gelu"}},
    }
    place = make_learner(Run.of(run))
    assert isinstance(place.engine, CompiledOffPolicy)
    place.warm_up()
    assert place.agent.updates == 0 and place.engine.statistics() == {}
    while place.agent.updates < 40:
        place.round()
    assert place.lockstep.compared + place.lockstep.ties == 40 and place.lockstep.ties <= 1
    assert place.lockstep.largest < 1e-5
    assert {"critic_loss", "actor_loss"} <= set(place.engine.statistics())


def test_without_a_compiler_it_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ConfigError, match=r"C\+\+ compiler"):
        OffPolicyLearner(Run.of({"engine": "compiled"}))


def test_a_process_may_have_any_number_of_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one function's code torch.compile keeps eight forms."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))

    def engine(number: int) -> Callable[..., Any]:
        layer = torch.nn.Linear(2, 2)

        def update(x: torch.Tensor) -> torch.Tensor:
            return layer(x) * 0 + number

        return compiled(update)  # type: ignore[arg-type]

    for number in range(10):
        assert (engine(number)(torch.ones(1, 2)) == number).all()
