"""Where a trained policy is tried."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenfold.config.schema import convert_scalar
from tenfold.core.errors import ConfigError, UserError
from tenfold.domains.durotaxis import COLONY
from tenfold.envs.arguments import join_name, split_name, with_absolute_path

SIDE = r"\d+(?:\.\.\d+)?"  # 900, or 300..900


@dataclass(frozen=True)
class Deployment:
    """Where a trained policy is tried: what is empty stays as in training. `deterministic` takes
    the most probable action and rounds the number of deletions down."""

    substrate: str = ""
    size: str = ""
    nodes: int | str | None = None
    deterministic: bool = False

    def __post_init__(self) -> None:
        if self.size and not re.fullmatch(rf"{SIDE}x{SIDE}", self.size):
            raise UserError(
                f"--size {self.size} is not a width and a height: write both, such as 900x300."
            )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Deployment":
        """From flags of `tenfold eval`, or arguments of `ten.evaluate`."""
        substrate, size, nodes = (options.get(name) for name in ("substrate", "size", "nodes"))
        if not isinstance(substrate, str | Path | None):
            raise UserError(
                "substrate must be a name (linear, exponential, random, bend) or an .npy file's: "
                "save an array with numpy.save first."
            )
        if isinstance(size, tuple):
            size = "x".join(map(written, size))
        if isinstance(nodes, tuple) or (isinstance(nodes, str) and ".." in nodes):
            # here: compiled code takes a while to import
            from tenfold.domains.durotaxis.extent import read_range
            from tenfold.domains.durotaxis.setting import MOST_NODES

            nodes = "..".join(map(str, read_range("--nodes", nodes, 1, MOST_NODES)))
        elif nodes is not None:
            nodes = convert_scalar(str(nodes), int, "--nodes")
            if nodes < 1:
                raise ConfigError("--nodes", f"= {nodes} is out of range: it must be at least 1.")
        return cls(str(substrate or ""), size or "", nodes, bool(options.get("deterministic")))

    def env(self, trained_in: str) -> str:
        """The environment's name there."""
        changed = {
            "substrate": self.substrate,
            "size": self.size,
            "init_nodes": self.nodes,
            "rounding": "floor" if self.deterministic else "",
        }
        wanted = {name: value for name, value in changed.items() if value}
        if not wanted:
            return trained_in
        arguments = split_name(trained_in)[1]
        if self.substrate:  # its own slope and intercept, not those of the one trained on
            own = ("slope", "intercept", *(("size",) if self.substrate.endswith(".npy") else ()))
            arguments = {name: value for name, value in arguments.items() if name not in own}
        return resolve_substrate(join_name(COLONY, arguments | wanted))

    @property
    def words(self) -> str:
        """What is other than in training; a file by its name and the beginning of its digest."""
        ground = self.substrate
        if ground.endswith(".npy") and Path(ground).is_file():
            ground = (
                f"{Path(ground).stem} {hashlib.sha256(Path(ground).read_bytes()).hexdigest()[:6]}"
            )
        parts = (
            ground,
            self.size,
            f"{self.nodes} nodes" if self.nodes else "",
            "deterministic" if self.deterministic else "",
        )
        return ", ".join(filter(None, parts)) or "as trained"


def written(side: Any) -> str:
    """A side as `--size` takes it: 900, or (300, 900) as 300..900."""
    return "..".join(map(str, side)) if isinstance(side, tuple) else str(side)


def resolve_substrate(name: str) -> str:
    """The environment's name with a substrate's file as an absolute path."""
    file = Path(str(split_name(name)[1].get("substrate", "")))
    if file.suffix != ".npy" or not file.is_file():
        return name
    return with_absolute_path(name, "substrate", "substrate")
