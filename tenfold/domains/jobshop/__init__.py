"""Job shops. Read the files in this order:

instances           what a shop is; a lower bound; random ones
formats, classics   files of three formats; the instances everybody compares with
reading             instances by name or from files, and back
schedule            schedules, dispatching rules, an independent check
rules, shops        the floor as an environment with one head for each machine
reference           the same in plain Python
orders, players     schedules as orders of jobs; rules as players of any shop
chance              chance among the choices of a policy of any shop, as a player
solver              CP-SAT as a player
tables, judging     gaps of players to the best known; how policies of any size are judged
evaluation          how policies of one shop are judged
charts, page        Gantt charts; what a run's page shows
dispatch            any shop, one dispatch after another, many at once; what is seen of it
dispatch_reference  the same in plain Python
dispatching         random shops as an environment
config, policy      settings of the dispatcher; its network
dispatcher          its agent: a policy of environments, and a player of instances
labelling           how it learns: from its own best schedules
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.domain import Domain
from tenfold.core.protocols import Algorithm
from tenfold.domains.jobshop.config import Dispatcher

if TYPE_CHECKING:
    import argparse

    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Evaluation, Learner
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

    def evaluation(self) -> "Evaluation":
        from tenfold.domains.jobshop.judging import ShopGaps

        return ShopGaps()


class JobShops(Domain):
    """One instance, scheduled by a policy; judged by makespans."""

    name, title = "jobshop", "job shops"
    registered: Mapping[str, dict[str, Any]] = {
        SHOP: {
            "entry_point": "tenfold.domains.jobshop.shops:make_env",
        }
    }

    flags = ("instance", "suite", "samples")

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

    def add_flags(self, parser: "argparse.ArgumentParser") -> None:
        group = parser.add_argument_group("job shops, and the gap to their best known makespans")
        group.add_argument(
            "--instance",
            nargs="+",
            metavar="FILE|NAME",
            help="shops to play: files (standard format, Taillard's, JSON) or names such as la01",
        )
        group.add_argument(
            "--suite",
            nargs="+",
            metavar="SUITE",
            help="classic instances: ft, la, abz, orb, ta, or those of one size, such as ta15x15",
        )
        group.add_argument(
            "--samples", metavar="N", help="schedules drawn from the policy, best of N (64)"
        )

    def deploy(self, env: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        from tenfold.domains.jobshop.evaluation import deployed

        return deployed(env, options), {}

    def evaluate(self, played: Any) -> dict[str, Any]:
        from tenfold.domains.jobshop.evaluation import judge

        return judge(played)

    def lines(self, found: dict[str, Any]) -> list[str]:
        if "rules" not in found:
            return []
        best = found["best_known"]
        known = "" if best is None else f", best known {best}"
        known = known if found["optimum"] is None else f", the optimum is {best}"
        gap = f"{known}, lower bound {found['lower_bound']}"
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
        if "rules" not in found:
            return ""
        return f"   makespan {found['best_makespan']}, greedy {found['greedy_makespan']}"

    def lines_of_seeds(self, members: dict[int, dict[str, Any]]) -> list[str]:
        if not all("rules" in found for found in members.values()):
            return []
        best, seed = min(
            (min(found["best_makespan"], found["greedy_makespan"]), seed)
            for seed, found in members.items()
        )
        return [f"the best, {best} by seed {seed}:", *self.lines(members[seed])]

    def sections(self, path: Path, rows: list[dict[str, Any]]) -> "list[Section]":
        from tenfold.domains.jobshop.page import sections

        return sections(path)


# names that `import tenfold as ten` gives, by the file they are in
PUBLIC = {
    "classics": "suite",
    "instances": "Instance lower_bound random_shop",
    "orders": "schedule_of_order",
    "reading": "read_instance read_instances write_instance",
    "schedule": "check_schedule dispatch",
    "tables": "ShopTable compare_players",
}
ALGORITHMS = (Dispatching(),)
DOMAINS = (JobShops(),)
