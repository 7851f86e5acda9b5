"""tenfold: reinforcement-learning training at the speed of the machine.

    import tenfold as ten
    run = ten.train(ten.Run(env="CartPole-v1", agent=ten.DQN(double=True), steps=50_000),
    out="runs/cartpole") ten.evaluate(run, episodes=20).mean_return agent =
    ten.load("runs/cartpole")

Names are imported when they are first used, so that the command line answers at once. `import
tenfold.envs` registers our environments with Gymnasium: `gymnasium.make("tenfold/Catch-v0")`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tenfold.core.errors import NoSuchName
from tenfold.core.other_libraries import name_elsewhere
from tenfold.core.registry import domain_names

if TYPE_CHECKING:
    from tenfold import nets as nets
    from tenfold import ops as ops
    from tenfold.algorithms.custom import Algorithm as Algorithm
    from tenfold.algorithms.custom import Draw as Draw
    from tenfold.algorithms.custom import Metrics as Metrics
    from tenfold.algorithms.custom import OffPolicy as OffPolicy
    from tenfold.algorithms.custom import OffPolicySettings as OffPolicySettings
    from tenfold.algorithms.custom import Rollout as Rollout
    from tenfold.algorithms.custom import Transitions as Transitions
    from tenfold.algorithms.dqn_settings import DQN as DQN
    from tenfold.algorithms.dqn_settings import Boltzmann as Boltzmann
    from tenfold.algorithms.dqn_settings import Categorical as Categorical
    from tenfold.algorithms.dqn_settings import Epsilon as Epsilon
    from tenfold.algorithms.dqn_settings import Hard as Hard
    from tenfold.algorithms.dqn_settings import Implicit as Implicit
    from tenfold.algorithms.dqn_settings import Noisy as Noisy
    from tenfold.algorithms.dqn_settings import Polyak as Polyak
    from tenfold.algorithms.dqn_settings import Prioritized as Prioritized
    from tenfold.algorithms.dqn_settings import Quantile as Quantile
    from tenfold.algorithms.dqn_settings import Uniform as Uniform
    from tenfold.algorithms.ppo_settings import PPO as PPO
    from tenfold.algorithms.sac_td3_settings import SAC as SAC
    from tenfold.algorithms.sac_td3_settings import TD3 as TD3
    from tenfold.config.agent_config import AgentConfig as AgentConfig
    from tenfold.config.files import named as named
    from tenfold.config.networks import GRU as GRU
    from tenfold.config.networks import LSTM as LSTM
    from tenfold.config.networks import ActorCriticNet as ActorCriticNet
    from tenfold.config.networks import Net as Net
    from tenfold.config.networks import PolicyNet as PolicyNet
    from tenfold.config.run import Run as Run
    from tenfold.config.schedules import Custom as Custom
    from tenfold.config.schedules import Exponential as Exponential
    from tenfold.config.schedules import Linear as Linear
    from tenfold.config.schedules import Schedule as Schedule
    from tenfold.config.schedules import Table as Table
    from tenfold.core.graph_spaces import BoundedGraph as BoundedGraph
    from tenfold.core.graph_spaces import Gated as Gated
    from tenfold.core.protocols import Callback as Callback
    from tenfold.core.protocols import EnvSpec as EnvSpec
    from tenfold.core.registry import Domain as Domain
    from tenfold.domains import *  # noqa: F403
    from tenfold.envs import register_domain as register_domain
    from tenfold.envs.functions import Functions as Functions
    from tenfold.envs.functions import register_task as register_task
    from tenfold.evaluation.evaluate import evaluate as evaluate
    from tenfold.shipping.export import export as export
    from tenfold.shipping.pack import pack as pack
    from tenfold.training.learners import load as load
    from tenfold.training.loop import resume as resume
    from tenfold.training.loop import train as train
    from tenfold.training.run_group import resume_seeds as resume_seeds
    from tenfold.training.run_group import train_seeds as train_seeds
    from tenfold.training.sweep import resume_sweep as resume_sweep
    from tenfold.training.sweep import sweep as sweep

__version__ = "0.1.0"

# where the public names live
PUBLIC = {
    "algorithms.custom": "Algorithm Draw Metrics OffPolicy OffPolicySettings Rollout Transitions",
    "core.registry": "Domain",
    "core.protocols": "Callback EnvSpec",
    "algorithms.dqn_settings": "DQN Boltzmann Categorical Epsilon Hard Implicit Noisy Polyak "
    "Prioritized Quantile Uniform",
    "algorithms.ppo_settings": "PPO",
    "algorithms.sac_td3_settings": "SAC TD3",
    "config.agent_config": "AgentConfig",
    "config.files": "named",
    "config.networks": "ActorCriticNet GRU LSTM Net PolicyNet",
    "config.run": "Run",
    "config.schedules": "Custom Exponential Linear Schedule Table",
    "core.graph_spaces": "BoundedGraph Gated",
    "envs": "register_domain",
    "envs.functions": "Functions register_task",
    "evaluation.evaluate": "evaluate",
    "shipping.export": "export",
    "shipping.pack": "pack",
    "training.learners": "load",
    "training.loop": "resume train",
    "training.run_group": "resume_seeds train_seeds",
    "training.sweep": "resume_sweep sweep",
}
HOMES = {name: home for home, names in PUBLIC.items() for name in names.split()} | domain_names()
__all__ = sorted(["__version__", "nets", "ops", *HOMES])  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in ("nets", "ops"):
        return import_module(f"tenfold.{name}")
    if name not in HOMES:
        if answer := name_elsewhere(name):
            raise NoSuchName(f"tenfold has no {name}: {answer}.")
        raise AttributeError(f"module 'tenfold' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"tenfold.{HOMES[name]}"), name)
    return value
