"""Colonies that grow and die on a stiffness gradient."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.registry import Domain, deferred

if TYPE_CHECKING:
    import argparse

    from tenfold.envs.adapter import Environments
    from tenfold.runs.page import Section

COLONY = "tenfold/Durotaxis-v0"


class Durotaxis(Domain):
    """Colonies, evaluated by how often they reach the goal, on the substrates of training or on
    others."""

    name, title = "durotaxis", "colonies"
    steps_alone = False
    registered: Mapping[str, dict[str, Any]] = {
        COLONY: {
            "entry_point": "tenfold.domains.durotaxis.api:DurotaxisEnv",
            "vector_entry_point": "tenfold.domains.durotaxis.api:DurotaxisVectorEnv",
        }
    }
    flags = ("substrate", "size", "nodes", "deterministic")

    resolve_paths = deferred("tenfold.domains.durotaxis.arguments:resolve_substrate")
    evaluate = deferred("tenfold.domains.durotaxis.evaluation:evaluate")
    lines = deferred("tenfold.domains.durotaxis.evaluation:lines")

    def environments(
        self, env: str, num_envs: int, seed: int, policy: bool, first: int
    ) -> "Environments | None":
        if not policy:
            return None
        from tenfold.domains.durotaxis.colonies import DurotaxisEnvironments

        return DurotaxisEnvironments(env, num_envs, seed, first)

    def add_flags(self, parser: "argparse.ArgumentParser") -> None:
        group = parser.add_argument_group("colonies, tried elsewhere than they were trained")
        group.add_argument(
            "--substrate",
            metavar="KIND|FILE.npy",
            help="linear, exponential, random, bend, or an array of your own",
        )
        group.add_argument("--size", metavar="WxH", help="such as 900x300, or 300..900x200..400")
        group.add_argument("--nodes", metavar="N", help="nodes at the start, such as 20 or 1..60")
        group.add_argument(
            "--deterministic",
            action="store_true",
            help="the most probable actions, deletions rounded down",
        )

    def deploy(self, env: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        from tenfold.domains.durotaxis.arguments import Deployment

        deployment = Deployment.of(options)
        return deployment.env(env), {"eval_policy": "greedy"} if deployment.deterministic else {}

    def film(self, played: Any) -> Path:
        from tenfold.domains.durotaxis.evaluation import tables_folder

        return tables_folder(played) / "colony.gif"

    def member_words(self, results: dict[str, Any]) -> str:
        steps = results["steps_to_goal"]
        goal = "" if steps is None else f", {steps:.1f} steps to the goal"
        return f"   success {results['success_rate']:.1%}{goal}"

    def lines_of_seeds(self, members: dict[int, dict[str, Any]]) -> list[str]:
        from tenfold.domains.durotaxis.evaluation import lines_of_seeds

        return lines_of_seeds(list(members.values()))

    def sections(self, path: Path, rows: list[dict[str, Any]]) -> "list[Section]":
        if not any(path.glob("eval/*/paths.png")):
            return []  # without importing compiled code
        from tenfold.domains.durotaxis.evaluation import sections

        return sections(path)


DOMAINS = (Durotaxis(),)
