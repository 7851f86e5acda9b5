"""Environments of PettingZoo with the parallel API, under the prefix `pettingzoo/`."""

from typing import TYPE_CHECKING

from tenfold.core.registry import Domain

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

PREFIX = "pettingzoo/"
PACKAGES = ("pettingzoo", "mpe2")  # whose modules are environments


class PettingZoo(Domain):
    """PettingZoo's environments by their module's name; evaluated by returns alone."""

    name, title, multiagent = "pettingzoo", "worlds of PettingZoo", True

    def owns(self, env: str) -> bool:
        return env.startswith(PREFIX)

    def modules(self, env: str) -> tuple[str, ...]:
        """The module, unless it is one of PettingZoo's own environments."""
        if not self.owns(env):
            return ()
        module, colon, _ = env.removeprefix(PREFIX).partition("(")[0].strip().partition(":")
        known = not colon and module.split(".")[0] in PACKAGES
        return () if known else (module,)

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments":
        from tenfold.domains.pettingzoo.worlds import ParallelWorlds

        return ParallelWorlds(env, num_envs, seed, policy, first)


DOMAINS = (PettingZoo(),)
