"""tenfold: reinforcement-learning training at the speed of the machine.

    import tenfold as ten
    run = ten.train(ten.Run(env="CartPole-v1", agent=ten.DQN(double=True), steps=50_000), out="runs/cartpole")
    ten.evaluate(run, episodes=20).mean_return
    agent = ten.load("runs/cartpole")

Names are imported when they are first used, so that the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenfold import ops as ops
    from tenfold.settings import (
        DQN as DQN,
        Boltzmann as Boltzmann,
        Epsilon as Epsilon,
        Exponential as Exponential,
        Hard as Hard,
        Linear as Linear,
        Net as Net,
        Noisy as Noisy,
        Polyak as Polyak,
        Prioritized as Prioritized,
        Quantile as Quantile,
        Run as Run,
        Uniform as Uniform,
        named as named,
    )
    from tenfold.training import evaluate as evaluate, load as load, resume as resume, train as train

__version__ = "0.1.0"

SETTINGS = ("DQN", "Boltzmann", "Epsilon", "Exponential", "Hard", "Linear", "Net", "Noisy", "Polyak", "Prioritized", "Quantile",
            "Run", "Uniform", "named")
HOME = dict.fromkeys(SETTINGS, "tenfold.settings") | dict.fromkeys(("train", "resume", "evaluate", "load"), "tenfold.training")

__all__ = ["__version__", "ops", *HOME]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module("tenfold.ops")
    if name not in HOME:
        raise AttributeError(f"module 'tenfold' has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(HOME[name]), name)
    return found
