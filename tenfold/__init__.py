"""tenfold: reinforcement-learning training at the speed of the machine.

    import tenfold as ten
    run = ten.train(ten.Run(env="CartPole-v1", agent=ten.DQN(double=True), steps=50_000), out="runs/cartpole")
    ten.evaluate(run, episodes=20).mean_return
    agent = ten.load("runs/cartpole")

Names are imported when they are first used, so that the command line answers at once. `import tenfold.envs` registers our
environments with Gymnasium: `gymnasium.make("tenfold/Durotaxis-v0")`.
"""

from importlib import import_module
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
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module("tenfold.ops")
    if name not in __all__:
        raise AttributeError(f"module 'tenfold' has no attribute {name!r}")
    home = import_module(f"tenfold.{HOMES.get(name, 'settings')}")
    globals()[name] = found = getattr(home, name)
    return found
