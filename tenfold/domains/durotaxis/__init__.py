"""Colonies that grow and die on a stiffness gradient."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.protocols import Domain

if TYPE_CHECKING:
    import argparse

    from tenfold.runs.page import Section


class Colonies(Domain):
    """Cells that move towards stiffer ground."""

    name = "durotaxis"

    def owns(self, env: str) -> bool:
        return env.split("(")[0] == "tenfold/Durotaxis-v0"

    def add_flags(self, parser: "argparse.ArgumentParser") -> None:
        group = parser.add_argument_group("colonies, tried elsewhere than they were trained")
        group.add_argument(
            "--substrate",
            default="",
            metavar="KIND|FILE.npy",
            help="linear, exponential, random, bend, or an array of your own",
        )
        group.add_argument("--size", default="", metavar="WxH", help="such as 900x300")
        group.add_argument("--nodes", metavar="N", help="nodes at the start")
        group.add_argument(
            "--deterministic",
            action="store_true",
            help="the most probable actions, deletions rounded down",
        )

    def sections(self, path: Path, rows: list[dict[str, Any]]) -> "list[Section]":
        from tenfold.domains.durotaxis.page import sections

        return sections(path)


DOMAINS = (Colonies(),)
