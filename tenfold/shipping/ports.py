"""What goes into an exported policy and what comes out: named arrays, found by walking the spaces
of the environment. An observation of parts has an input for each, named by its path
(`obs.sensors.speed`); an action of parts an output for each."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from tenfold.core.graph_spaces import BoundedGraph, Gated
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import PolicyActions

BATCH = "batch"  # the size of a batch, in shapes
Path = tuple[str | int, ...]
# what torch has no arithmetic for is taken as int64
WIDE = {"uint16": "int64", "uint32": "int64", "uint64": "int64"}


@dataclass(frozen=True)
class Port:
    """An input or an output: an array [*lead, *shape]. `path` leads to it from the whole
    observation or action; of a graph `part` is one of its arrays."""

    name: str
    kind: str  # obs, mask, uniform, normal, state or action
    dtype: str
    shape: tuple[int, ...]
    lead: tuple[str | int, ...] = (BATCH,)
    path: Path = ()
    part: str = ""

    def described(self) -> dict[str, Any]:
        """For the file's metadata."""
        found = {
            "name": self.name,
            "kind": self.kind,
            "dtype": self.dtype,
            "shape": [*self.lead, *self.shape],
            "path": list(self.path),
        }
        return found | ({"part": self.part} if self.part else {})

    def example(self, batch: int) -> torch.Tensor:
        """Zeros of its kind; a mask allows everything."""
        size = [batch if side == BATCH else int(side) for side in (*self.lead, *self.shape)]
        fill = torch.ones if self.kind == "mask" else torch.zeros
        return fill(size, dtype=getattr(torch, self.dtype))

    @property
    def axis(self) -> int:
        """Of the batch."""
        return self.lead.index(BATCH)


def named(kind: str, path: Path, taken: set[str]) -> str:
    """`obs.a.0` for the path a, 0; where a key that holds a dot has taken it, with a number
    behind."""
    base = name = ".".join((kind, *map(str, path)))
    number = 1
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    taken.add(name)
    return name


def observation_ports(space: Any, layout: ObsLayout, lead: tuple[str | int, ...]) -> list[Port]:
    """The inputs of an observation, in the order in which they lie in a row."""
    found, taken = [], set[str]()
    for path, own, part in leaves(space, layout):
        if isinstance(own, BoundedGraph):
            assert part.graph
            room = part.graph
            for name, dtype, shape in (
                ("counts", "int64", (2,)),  # of nodes and of edges that are there
                ("nodes", "float32", (room.nodes, room.node)),
                ("links", "int64", (room.edges, 2)),
                ("edges", "float32", (room.edges, room.edge)),
            ):
                if math.prod(shape):
                    told = named("obs", (*path, name), taken)
                    found.append(Port(told, "obs", dtype, shape, lead, path, name))
            continue
        shape = tuple(own.shape or ())
        dtype = "int64" if part.one_hot else np.dtype(part.dtype).name
        if isinstance(own, spaces.MultiBinary):
            dtype = "int8"  # as Gymnasium gives it
        dtype = WIDE.get(dtype, dtype)
        found.append(Port(named("obs", path, taken), "obs", dtype, shape, lead, path))
    return found


def leaves(space: Any, layout: ObsLayout, path: Path = ()) -> Iterator[tuple[Path, Any, ObsLayout]]:
    """The parts of a space that have none, with their paths and layouts."""
    if not layout.parts:
        yield path, space, layout
        return
    keys: tuple[str | int, ...] = layout.keys or tuple(range(len(layout.parts)))
    for key, part in zip(keys, layout.parts, strict=True):
        yield from leaves(space[key], part, (*path, key))


def action_ports(actions: PolicyActions, lead: tuple[str | int, ...]) -> list[Port]:
    taken: set[str] = set()
    found = []
    for path, part in action_leaves(actions):
        dtype = np.dtype(part.space.dtype).name if part.space.dtype is not None else "int64"
        shape = () if isinstance(part.space, spaces.Discrete) else tuple(part.space.shape or ())
        name = named("action", path, taken)
        found.append(Port(name, "action", WIDE.get(dtype, dtype), shape, lead, path))
    return found


def action_leaves(actions: PolicyActions, path: Path = ()) -> Iterator[tuple[Path, PolicyActions]]:
    if not actions.parts:
        yield path, actions
        return
    space: Any = actions.space
    keys = list(space.keys()) if isinstance(space, spaces.Dict) else range(len(actions.parts))
    for key, part in zip(keys, actions.parts, strict=True):
        yield from action_leaves(part, (*path, key))


def described_space(space: Any) -> dict[str, Any]:
    """A space as JSON has it; a bound that is not there is null."""
    found: dict[str, Any] = {"type": type(space).__name__}
    if isinstance(space, spaces.Dict):
        return found | {"spaces": {key: described_space(own) for key, own in space.items()}}
    if isinstance(space, spaces.Tuple):
        return found | {"spaces": [described_space(own) for own in space.spaces]}
    if isinstance(space, BoundedGraph):
        edge = described_space(space.edge_space) if space.edge_space is not None else None
        return found | {
            "node_space": described_space(space.node_space),
            "edge_space": edge,
            "max_nodes": space.max_nodes,
            "max_edges": space.max_edges,
        }
    if isinstance(space, spaces.Box):
        more = {"option": space.option} if isinstance(space, Gated) else {}
        bounds = {"low": bound(space.low), "high": bound(space.high)}
        return found | {"shape": list(space.shape), "dtype": space.dtype.name} | bounds | more
    if isinstance(space, spaces.Discrete):
        return found | {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return found | {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
    return found | {"shape": list(space.shape or ())}


def bound(values: np.ndarray) -> Any:
    """One number where all are the same, else a list of them."""
    each = [float(x) if np.isfinite(x) else None for x in np.ravel(values).tolist()]
    return each[0] if len(set(each)) == 1 else each
