"""Job shops."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.domain import Domain
from tenfold.core.protocols import Algorithm
from tenfold.domains.jobshop.config import Dispatcher

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Learner
    from tenfold.envs.adapter import Environments
    from tenfold.runs.page import Section

SHOP = "tenfold/JobShop-v0"


class Dispatching(Algorithm):
    """The dispatcher: one policy for shops of any size, from its own best schedules."""

    name = "dispatcher"
    config = Dispatcher
    reads_masks = True

    def make_agent(self, run: "Run", spec: "EnvSpec") -> Any:
        from tenfold.domains.jobshop.dispatcher import DispatchAgent

        return DispatchAgent(run, spec)

    def make_learner(self, run: "Run") -> "Learner":
        from tenfold.domains.jobshop.labelling import make_learner

        return make_learner(run)


class JobShops(Domain):
    """One instance, scheduled by a policy; judged by makespans."""

    name, title = "jobshop", "job shops"
    registered: Mapping[str, dict[str, Any]] = {
        SHOP: {
            "entry_point": "tenfold.domains.jobshop.shops:make_env",
        }
    }

    def resolve_paths(self, env: str) -> str:
        from tenfold.domains.jobshop.shops import resolve_instance

        return resolve_instance(env)

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments | None":
        from tenfold.domains.jobshop.shops import JobShopEnvironments, is_random

        if not policy or is_random(env):
            return None

        return JobShopEnvironments(env, num_envs, seed, first=first)

    def evaluate(self, played: Any) -> dict[str, Any]:
        from tenfold.domains.jobshop.evaluation import judge

        return judge(played)

    def lines(self, found: dict[str, Any]) -> list[str]:
        gap = "" if found["optimum"] is None else f", the optimum is {found['optimum']}"
        rules = ", ".join(f"{rule} {makespan}" for rule, makespan in found["rules"].items())
        samples = f"best of {found['samples']}"
        return [
            f"  makespan   {samples} samples {found['best_makespan']}, "
            f"greedy {found['greedy_makespan']}{gap}",
            f"  untrained  {samples} samples {found['untrained_best_makespan']}",
            f"  rules      {rules} (random: {samples})",
            found["picture"],
            f"  chart      {found['gantt']}",
        ]

    def member_words(self, found: dict[str, Any]) -> str:
        return f"   makespan {found['best_makespan']}, greedy {found['greedy_makespan']}"

    def lines_of_seeds(self, members: dict[int, dict[str, Any]]) -> list[str]:
        best, seed = min(
            (min(found["best_makespan"], found["greedy_makespan"]), seed)
            for seed, found in members.items()
        )
        return [f"the best, {best} by seed {seed}:", *self.lines(members[seed])]

    def sections(self, path: Path, rows: list[dict[str, Any]]) -> "list[Section]":
        from tenfold.domains.jobshop.page import sections

        return sections(path)


ALGORITHMS = (Dispatching(),)
DOMAINS = (JobShops(),)
