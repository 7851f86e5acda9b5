"""Stable-Baselines3's classes, arguments and files, on tenfold's engines: a script runs with its
import changed, `from tenfold.integrations.sb3 import PPO`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenfold.integrations.sb3.classes import (
        DDPG,
        DQN,
        PPO,
        QRDQN,
        SAC,
        TD3,
        MaskablePPO,
        RecurrentPPO,
    )

__all__ = ["DDPG", "DQN", "PPO", "QRDQN", "SAC", "TD3", "MaskablePPO", "RecurrentPPO"]


def __getattr__(name: str) -> Any:
    # settings and files are read without torch: the classes are imported when they are asked for
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("tenfold.integrations.sb3.classes"), name)
