"""Workers who choose among tasks: a test of masks and of credit between action heads."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenfold.core.domain import Domain

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

ASSIGN = "tenfold/Assign-v0"


class Assignments(Domain):
    """Judged by returns alone."""

    name, title = "assign", "assignments of tasks"
    registered: Mapping[str, dict[str, Any]] = {
        ASSIGN: {"entry_point": "tenfold.domains.assign.workers:AssignEnv"}
    }

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments | None":
        if not policy or env != ASSIGN:
            return None
        from tenfold.domains.assign.workers import AssignEnvironments

        return AssignEnvironments(env, num_envs, seed, first)


DOMAINS = (Assignments(),)
