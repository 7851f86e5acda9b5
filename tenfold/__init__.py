"""tenfold: reinforcement-learning training at the speed of the machine.

    import tenfold as ten
    run = ten.train(ten.Run(env="CartPole-v1", agent=ten.DQN(double=True), steps=50_000), out="runs/cartpole")
    ten.evaluate(run, episodes=20).mean_return
    agent = ten.load("runs/cartpole")

Names are imported when they are first used, so that the command line answers at once. Our environments are registered with
Gymnasium as soon as both are imported, in either order: `gymnasium.make("tenfold/Durotaxis-v0")`.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenfold import ops as ops
    from tenfold.compare import compare as compare
    from tenfold.explorer_settings import Explorer as Explorer
    from tenfold.explorer_settings import LatentModel as LatentModel
    from tenfold.explorer_settings import Planner as Planner
    from tenfold.judging import evaluate as evaluate
    from tenfold.recordings import fit as fit
    from tenfold.seeds import resume_seeds as resume_seeds
    from tenfold.seeds import train_seeds as train_seeds
    from tenfold.settings import (
        DQN as DQN,
    )
    from tenfold.settings import (
        PPO as PPO,
    )
    from tenfold.settings import (
        Boltzmann as Boltzmann,
    )
    from tenfold.settings import (
        Epsilon as Epsilon,
    )
    from tenfold.settings import (
        Exponential as Exponential,
    )
    from tenfold.settings import (
        Hard as Hard,
    )
    from tenfold.settings import (
        Implicit as Implicit,
    )
    from tenfold.settings import (
        Linear as Linear,
    )
    from tenfold.settings import (
        Net as Net,
    )
    from tenfold.settings import (
        Noisy as Noisy,
    )
    from tenfold.settings import (
        PolicyNet as PolicyNet,
    )
    from tenfold.settings import (
        Polyak as Polyak,
    )
    from tenfold.settings import (
        Prioritized as Prioritized,
    )
    from tenfold.settings import (
        Quantile as Quantile,
    )
    from tenfold.settings import (
        Run as Run,
    )
    from tenfold.settings import (
        Uniform as Uniform,
    )
    from tenfold.settings import (
        named as named,
    )
    from tenfold.training import load as load
    from tenfold.training import resume as resume
    from tenfold.training import train as train

__version__ = "0.1.0"

__all__ = ["DQN", "PPO", "Boltzmann", "Epsilon", "Explorer", "Exponential", "Hard", "Implicit", "LatentModel", "Linear", "Net",
           "Noisy", "Planner", "PolicyNet", "Polyak", "Prioritized", "Quantile", "Run", "Uniform", "__version__", "compare",
           "evaluate", "fit", "load", "named", "ops", "resume", "resume_seeds", "train", "train_seeds"]
HOMES = {"Explorer": "explorer_settings", "LatentModel": "explorer_settings", "Planner": "explorer_settings",
         "compare": "compare", "fit": "recordings", "train": "training", "resume": "training", "evaluate": "judging",
         "load": "training", "train_seeds": "seeds", "resume_seeds": "seeds"}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module("tenfold.ops")
    if name not in __all__:
        raise AttributeError(f"module 'tenfold' has no attribute {name!r}")
    home = import_module(f"tenfold.{HOMES.get(name, 'settings')}")
    globals()[name] = found = getattr(home, name)
    return found


class WithGymnasium:
    """Registers our environments once Gymnasium has been imported: it asks no package for its own, and importing it here would
    make `import tenfold` thirty times as long."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name == "gymnasium" else None
        if found is None or found.loader is None:
            return None
        loader: Any = found.loader
        execute = loader.exec_module

        def execute_and_register(module: Any) -> None:
            execute(module)
            import_module("tenfold.envs")
        loader.exec_module = execute_and_register
        return found


if "gymnasium" in sys.modules:
    import_module("tenfold.envs")
else:
    sys.meta_path.insert(0, WithGymnasium)
