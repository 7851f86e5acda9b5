"""Gridworlds of several agents that look for treasure."""

import contextlib
import importlib
from typing import TYPE_CHECKING, Any

from tenfold.core.registry import Domain

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

# of worlds that are known; `rules.register` adds to them
NAMES = {"tenfold/Treasure-v0", "tenfold/TreasureSmall-v0"}


class Gridworlds(Domain):
    """Gridworlds given by rules with a name, ours and users'. Two players without a network are
    baselines."""

    name, title, multiagent = "treasure", "gridworlds", True

    def owns(self, env: str) -> bool:
        """`module:name` imports the module first, which may register worlds."""
        module, _, name = env.partition("(")[0].strip().rpartition(":")
        if module and name not in NAMES:
            with contextlib.suppress(ModuleNotFoundError):  # making the environment raises it
                importlib.import_module(module)
        return name in NAMES

    def ids(self) -> list[str]:
        return sorted(NAMES)

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments":
        from tenfold.domains.treasure.play import TreasureWorlds

        return TreasureWorlds(env, num_envs, seed, first)

    def evaluate(self, played: Any) -> dict[str, Any]:
        from tenfold.domains.treasure.play import yardsticks

        return {f"{player}_mean_return": mean for player, mean in yardsticks(played.env).items()}

    def lines(self, results: dict[str, Any]) -> list[str]:
        return [f"  scripted {results['scripted_mean_return']:10.2f}"]


DOMAINS = (Gridworlds(),)
