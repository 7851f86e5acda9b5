"""Small tasks: Catch, with images, and Assign, with masks and many action heads."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenfold.core.registry import Domain

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

ASSIGN = "tenfold/Assign-v0"


class SmallTasks(Domain):
    """Evaluated by returns alone."""

    name, title = "tasks", "small tasks"
    registered: Mapping[str, dict[str, Any]] = {
        "tenfold/Catch-v0": {"entry_point": "tenfold.domains.tasks.small_tasks:Catch"},
        ASSIGN: {"entry_point": "tenfold.domains.tasks.small_tasks:AssignEnv"},
    }

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments | None":
        if not policy or env != ASSIGN:
            return None
        from tenfold.domains.tasks.small_tasks import AssignEnvironments

        return AssignEnvironments(env, num_envs, seed, first)


DOMAINS = (SmallTasks(),)
