"""Job shops. Read the files in this order:

instances           what a shop is; a lower bound; random ones
formats, reading    files of three formats; instances by name or from files, the classic ones
schedule            schedules, an independent check, orders of jobs, Gantt charts
rules, shops        the floor as an environment with one head for each machine
reference           the same in plain Python
players             who schedules any shop: dispatching rules, chance, CP-SAT
tables              gaps of players to the best known, on a terminal and on a run's page
evaluation          how policies are evaluated
dispatch            any shop, one dispatch after another; random shops as an environment
dispatch_reference  the same in plain Python
policy, dispatcher  a network that schedules any shop; its agent, and how it learns

No torch here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tenfold.config.agent_config import AgentConfig
from tenfold.config.schedules import Linear, Schedule
from tenfold.config.schema import Count, Limits, Positive
from tenfold.core.errors import ConfigError
from tenfold.core.protocols import AlgorithmSpec
from tenfold.core.registry import Domain, deferred

if TYPE_CHECKING:
    import argparse

    from tenfold.config.run import Run
    from tenfold.envs.adapter import Environments
    from tenfold.runs.page import Section

SHOP = "tenfold/JobShop-v0"


@dataclass(frozen=True)
class Dispatcher(AgentConfig):
    """One policy for job shops of any size. It learns from its own best schedules: of every random
    shop it draws `samples`, and the shortest becomes more likely (self-labelling)."""

    run_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"eval_every": 10_000})
    can_sample: ClassVar[bool] = True
    wrappable: ClassVar[bool] = False

    name: Literal["dispatcher"] = "dispatcher"
    """which agent"""
    lr: Schedule = Linear(1e-3, 1e-5, 100_000)
    """learning rate of Adam; a step is a shop"""
    shops: Count = 16
    """random shops of one size that an update learns from"""
    samples: Annotated[int, Limits(2, 2**16)] = 64
    """schedules drawn of each, of which the shortest is learned from"""
    width: Annotated[int, Limits(1, 2**12)] = 64
    """numbers that stand for an operation, and width of the hidden layers"""
    layers: Annotated[int, Limits(0, 16)] = 2
    """rounds in which operations hear of their neighbours: before and after them in the job, and
    on the same machine"""
    clip_norm: Positive | None = 1.0
    """longest gradient (Euclidean norm over all parameters), or none"""

    def check_run(self, run: "Run") -> None:
        super().check_run(run)
        for setting, usual in (("num_envs", 1), ("actors", 1), ("verify", False)):
            if getattr(run, setting) != usual:
                raise ConfigError(
                    setting,
                    f"= {getattr(run, setting)} is not for the dispatcher, which draws its shops "
                    "itself (agent.shops, agent.samples): leave it out.",
                )
        if run.engine not in ("auto", "plain"):
            raise ConfigError(
                "engine", f"= {run.engine} is not one of the dispatcher's: leave it out."
            )


class Dispatching(AlgorithmSpec):
    """The dispatcher: one policy for shops of any size, from its own best schedules."""

    name = "dispatcher"
    config = Dispatcher
    reads_masks = True

    make_agent = deferred("tenfold.domains.jobshop.dispatcher:DispatchAgent")
    make_learner = deferred("tenfold.domains.jobshop.dispatcher:make_learner")
    evaluation = deferred("tenfold.domains.jobshop.evaluation:ShopGaps")


class JobShops(Domain):
    """One instance, scheduled by a policy; judged by makespans."""

    name, title = "jobshop", "job shops"
    registered: Mapping[str, dict[str, Any]] = {
        SHOP: {
            "entry_point": "tenfold.domains.jobshop.shops:make_env",
        }
    }

    flags = ("instance", "suite", "samples")

    resolve_paths = deferred("tenfold.domains.jobshop.shops:resolve_instance")
    evaluate = deferred("tenfold.domains.jobshop.evaluation:evaluate_shop")

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
        from tenfold.domains.jobshop.evaluation import check_deployment

        return check_deployment(env, options), {}

    def lines(self, results: dict[str, Any]) -> list[str]:
        if "rules" not in results:
            return []
        best = results["best_known"]
        known = "" if best is None else f", best known {best}"
        known = known if results["optimum"] is None else f", the optimum is {best}"
        gap = f"{known}, lower bound {results['lower_bound']}"
        rules = ", ".join(f"{rule} {makespan}" for rule, makespan in results["rules"].items())
        samples = f"best of {results['samples']}"
        return [
            f"  makespan   {samples} samples {results['best_makespan']}, "
            f"greedy {results['greedy_makespan']}{gap}",
            f"  untrained  {samples} samples {results['untrained_best_makespan']}",
            f"  rules      {rules} (random: {samples})",
            results["picture"],
            f"  chart      {results['gantt']}",
        ]

    def member_words(self, results: dict[str, Any]) -> str:
        if "rules" not in results:
            return ""
        return f"   makespan {results['best_makespan']}, greedy {results['greedy_makespan']}"

    def lines_of_seeds(self, members: dict[int, dict[str, Any]]) -> list[str]:
        if not all("rules" in results for results in members.values()):
            return []
        best, seed = min(
            (min(results["best_makespan"], results["greedy_makespan"]), seed)
            for seed, results in members.items()
        )
        return [f"the best, {best} by seed {seed}:", *self.lines(members[seed])]

    def sections(self, path: Path, rows: list[dict[str, Any]]) -> "list[Section]":
        from tenfold.domains.jobshop.tables import sections

        return sections(path)


# names that `import tenfold as ten` gives, by the file they are in
PUBLIC = {
    "instances": "Instance lower_bound random_shop",
    "players": "dispatch",
    "reading": "read_instance read_instances suite write_instance",
    "schedule": "check_schedule schedule_of_order",
    "tables": "ShopTable compare_players",
}
ALGORITHMS = (Dispatching(),)
DOMAINS = (JobShops(),)
