"""Environments of PettingZoo with the parallel API, under the prefix `pettingzoo/`."""

from tenfold.core.registry import Domain, deferred

PREFIX = "pettingzoo/"
PACKAGES = ("pettingzoo", "mpe2")  # whose modules are environments


class PettingZoo(Domain):
    """PettingZoo's environments by their module's name; evaluated by returns alone."""

    name, title, multiagent = "pettingzoo", "worlds of PettingZoo", True
    environments = deferred("tenfold.domains.pettingzoo.worlds:ParallelWorlds")

    def owns(self, env: str) -> bool:
        return env.startswith(PREFIX)

    def modules(self, env: str) -> tuple[str, ...]:
        """The module, unless it is one of PettingZoo's own environments."""
        if not self.owns(env):
            return ()
        module, colon, _ = env.removeprefix(PREFIX).partition("(")[0].strip().partition(":")
        known = not colon and module.split(".")[0] in PACKAGES
        return () if known else (module,)


DOMAINS = (PettingZoo(),)
