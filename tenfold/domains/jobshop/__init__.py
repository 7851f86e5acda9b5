"""Job shops."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenfold.core.protocols import Domain

if TYPE_CHECKING:
    from tenfold.runs.page import Section


class JobShops(Domain):
    """Jobs on machines, finished as early as can be."""

    name = "jobshop"

    def owns(self, env: str) -> bool:
        return env.split("(")[0] == "tenfold/JobShop-v0"

    def sections(self, path: Path, rows: list[dict[str, Any]]) -> "list[Section]":
        from tenfold.domains.jobshop.page import sections

        return sections(path)


DOMAINS = (JobShops(),)
