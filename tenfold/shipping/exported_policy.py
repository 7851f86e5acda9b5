"""The exported policy: observations -> actions, as one torch module. Between encoder and decoder
stands the agent's own code for encoded rows.

Inputs and outputs are named arrays (ports), one for every leaf of the spaces: an observation of
several components has an input for each, named by its path (`obs.sensors.speed`), an action of
several an output for each.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from tenfold.core.graph_spaces import BoundedGraph, Gated
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import PolicyActions

BATCH = "batch"  # the size of a batch, in shapes
Path = tuple[str | int, ...]
# what torch has no arithmetic for is taken as int64
WIDE = {"uint16": "int64", "uint32": "int64", "uint64": "int64"}


@dataclass(frozen=True)
class Port:
    """An input or an output: an array [*lead, *shape]. `path` is its position in the observation or
    action; `part` names one of a graph's arrays."""

    name: str
    kind: str  # obs, mask, uniform, normal, state or action
    dtype: str
    shape: tuple[int, ...]
    lead: tuple[str | int, ...] = (BATCH,)
    path: Path = ()
    part: str = ""

    def described(self) -> dict[str, Any]:
        """The metadata of the port."""
        description = {
            "name": self.name,
            "kind": self.kind,
            "dtype": self.dtype,
            "shape": [*self.lead, *self.shape],
            "path": list(self.path),
        }
        return description | ({"part": self.part} if self.part else {})

    def example(self, batch: int) -> torch.Tensor:
        """Zeros; for a mask ones."""
        size = [batch if side == BATCH else int(side) for side in (*self.lead, *self.shape)]
        fill = torch.ones if self.kind == "mask" else torch.zeros
        return fill(size, dtype=getattr(torch, self.dtype))

    @property
    def axis(self) -> int:
        """The batch axis."""
        return self.lead.index(BATCH)


def named(kind: str, path: Path, names: set[str]) -> str:
    """`obs.a.0` for the path a, 0; with a number appended where a key that contains a dot has taken
    it."""
    base = name = ".".join((kind, *map(str, path)))
    number = 1
    while name in names:
        number += 1
        name = f"{base}_{number}"
    names.add(name)
    return name


def observation_ports(space: Any, layout: ObsLayout, lead: tuple[str | int, ...]) -> list[Port]:
    """The inputs of an observation, in the order of the encoded row."""
    ports, names = [], set[str]()
    for path, leaf, part in leaves(space, layout):
        if isinstance(leaf, BoundedGraph):
            assert part.graph
            room = part.graph
            for name, dtype, shape in (
                ("counts", "int64", (2,)),  # of nodes and of edges that are there
                ("nodes", "float32", (room.nodes, room.node)),
                ("links", "int64", (room.edges, 2)),
                ("edges", "float32", (room.edges, room.edge)),
            ):
                if math.prod(shape):
                    port_name = named("obs", (*path, name), names)
                    ports.append(Port(port_name, "obs", dtype, shape, lead, path, name))
            continue
        shape = tuple(leaf.shape or ())
        dtype = "int64" if part.one_hot else np.dtype(part.dtype).name
        if isinstance(leaf, spaces.MultiBinary):
            dtype = "int8"  # as Gymnasium gives it
        dtype = WIDE.get(dtype, dtype)
        ports.append(Port(named("obs", path, names), "obs", dtype, shape, lead, path))
    return ports


def leaves(space: Any, layout: ObsLayout, path: Path = ()) -> Iterator[tuple[Path, Any, ObsLayout]]:
    """The leaves of a space, with their paths and layouts."""
    if not layout.children:
        yield path, space, layout
        return
    keys: tuple[str | int, ...] = layout.keys or tuple(range(len(layout.children)))
    for key, part in zip(keys, layout.children, strict=True):
        yield from leaves(space[key], part, (*path, key))


def action_ports(actions: PolicyActions, lead: tuple[str | int, ...]) -> list[Port]:
    names: set[str] = set()
    ports = []
    for path, part in action_leaves(actions):
        dtype = np.dtype(part.space.dtype).name if part.space.dtype is not None else "int64"
        shape = () if isinstance(part.space, spaces.Discrete) else tuple(part.space.shape or ())
        name = named("action", path, names)
        ports.append(Port(name, "action", WIDE.get(dtype, dtype), shape, lead, path))
    return ports


def action_leaves(actions: PolicyActions, path: Path = ()) -> Iterator[tuple[Path, PolicyActions]]:
    if not actions.children:
        yield path, actions
        return
    space: Any = actions.space
    keys = list(space.keys()) if isinstance(space, spaces.Dict) else range(len(actions.children))
    for key, part in zip(keys, actions.children, strict=True):
        yield from action_leaves(part, (*path, key))


def described_space(space: Any) -> dict[str, Any]:
    """A space as JSON; a missing bound is null."""
    description: dict[str, Any] = {"type": type(space).__name__}
    if isinstance(space, spaces.Dict):
        return description | {
            "spaces": {key: described_space(inner) for key, inner in space.items()}
        }
    if isinstance(space, spaces.Tuple):
        return description | {"spaces": [described_space(inner) for inner in space.spaces]}
    if isinstance(space, BoundedGraph):
        edge = described_space(space.edge_space) if space.edge_space is not None else None
        return description | {
            "node_space": described_space(space.node_space),
            "edge_space": edge,
            "max_nodes": space.max_nodes,
            "max_edges": space.max_edges,
        }
    if isinstance(space, spaces.Box):
        more = {"option": space.option} if isinstance(space, Gated) else {}
        bounds = {"low": bound(space.low), "high": bound(space.high)}
        return description | {"shape": list(space.shape), "dtype": space.dtype.name} | bounds | more
    if isinstance(space, spaces.Discrete):
        return description | {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return description | {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
    return description | {"shape": list(space.shape or ())}


def bound(values: np.ndarray) -> Any:
    """One number if all bounds are equal, else a list."""
    bounds = [float(x) if np.isfinite(x) else None for x in np.ravel(values).tolist()]
    return bounds[0] if len(set(bounds)) == 1 else bounds


class OneHot(nn.Module):
    """Integers [..., C] -> one-hot [..., Σ n]; a number out of range is all zeros."""

    component: torch.Tensor
    value: torch.Tensor

    def __init__(self, layout: ObsLayout) -> None:
        super().__init__()
        component = [c for c, (_, n, _) in enumerate(layout.choices) for _ in range(n)]
        value = [first + k for _, n, first in layout.choices for k in range(n)]
        self.register_buffer("component", torch.tensor(component))
        self.register_buffer("value", torch.tensor(value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.index_select(-1, self.component) == self.value


class ObservationEncoder(nn.Module):
    """The inputs of an observation -> rows [*lead, *layout.shape], as `ObsLayout.rows_of` encodes
    them."""

    def __init__(self, space: Any, layout: ObsLayout, lead: tuple[str | int, ...]) -> None:
        super().__init__()
        self.layout, self.lead = layout, len(lead)
        self.ports = observation_ports(space, layout, lead)
        self.leaves = [(leaf, part) for _, leaf, part in leaves(space, layout)]
        self.hot = nn.ModuleList(
            OneHot(part) if part.one_hot else nn.Identity() for _, part in self.leaves
        )

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        by_port = dict(zip(self.ports, inputs, strict=True))
        graph = {port.part: tensor for port, tensor in by_port.items() if port.part}
        plain = iter([tensor for port, tensor in by_port.items() if not port.part])
        rows = [
            self.flat(hot(self.flat(next(plain))))
            for (space, _), hot in zip(self.leaves, self.hot, strict=True)
            if not isinstance(space, BoundedGraph)
        ]
        if graph:
            names = [name for name in ("nodes", "links", "edges") if name in graph]
            rows = [graph["counts"], *rows, *(self.flat(graph[name]) for name in names)]
        if len(self.layout.children) or graph:
            return torch.cat([row.float() for row in rows], -1)
        lead = rows[0].shape[: self.lead]
        return rows[0].reshape(*lead, *self.layout.shape)

    def flat(self, x: torch.Tensor) -> torch.Tensor:
        """[*lead, numbers]."""
        return x[..., None] if x.dim() == self.lead else x.flatten(self.lead)


class ActionDecoder(nn.Module):
    """Choices [*lead, C] and numbers [*lead, D] -> an output for every part of the action, clipped
    to its bounds, as in `PolicyActions.for_env`."""

    def __init__(self, actions: PolicyActions, lead: tuple[str | int, ...]) -> None:
        super().__init__()
        self.ports, self.actions = action_ports(actions, lead), actions
        for name in ("low", "high", "starts"):
            dtype = torch.int64 if name == "starts" else torch.float64
            self.register_buffer(name, torch.tensor(getattr(actions, name), dtype=dtype))

    def forward(self, choices: torch.Tensor, real: torch.Tensor) -> list[torch.Tensor]:
        low, high, starts = (getattr(self, name) for name in ("low", "high", "starts"))
        if any(self.actions.starts):
            choices = choices + starts
        if len(self.actions.low):
            real = torch.maximum(torch.minimum(real.double(), high), low)
        at, at_real, outputs = 0, 0, []
        for port, (_, part) in zip(self.ports, action_leaves(self.actions), strict=True):
            c, d = len(part.sizes), len(part.low)
            values = choices[..., at : at + c] if c else real[..., at_real : at_real + d]
            values = values.reshape(*values.shape[:-1], *port.shape)
            outputs.append(values.to(getattr(torch, port.dtype)))
            at, at_real = at + c, at_real + d
        return outputs


class ExportedPolicy(nn.Module):
    """Tensors in the order of `inputs` -> tensors in the order of `outputs`. `inner` is the
    algorithm's module: rows, masks, uniform and normal numbers -> choices and numbers; with a
    `state_size`, its recurrent state is a further input and output."""

    def __init__(
        self,
        inner: nn.Module,
        encoder: ObservationEncoder,
        actions: PolicyActions,
        mask: bool,
        sample: bool,
    ) -> None:
        super().__init__()
        self.inner, self.encoder = inner, encoder
        frames = len(encoder.ports[0].lead) - encoder.ports[0].axis - 1
        lead = encoder.ports[0].lead[: len(encoder.ports[0].lead) - frames]
        self.decoder = ActionDecoder(actions, lead)
        c, d = len(actions.sizes), len(actions.low)
        state_shape = (getattr(inner, "state_size", 0),)  # numbers that it remembers
        more = {
            "mask": Port("mask", "mask", "bool", (actions.options,), lead) if mask else None,
            "uniform": Port("uniform", "uniform", "float32", (c,), lead) if sample and c else None,
            "normal": Port("normal", "normal", "float32", (d,), lead) if sample and d else None,
            "state": Port("state", "state", "float32", state_shape, lead)
            if state_shape[0]
            else None,
        }
        self.more = {name: port for name, port in more.items() if port}
        self.inputs, self.outputs = [*encoder.ports, *self.more.values()], [*self.decoder.ports]
        if state_shape[0]:
            self.outputs.append(Port("next_state", "state", "float32", state_shape, lead))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = len(self.encoder.ports)
        rows, more = (
            self.encoder(list(inputs[:count])),
            dict(zip(self.more, inputs[count:], strict=True)),
        )
        names = ("mask", "uniform", "normal", *(("state",) if "state" in more else ()))
        choices, real, *after = self.inner(rows, *(more.get(name) for name in names))
        return *self.decoder(choices, real), *after


def arrays_of(encoder: ObservationEncoder, rows: np.ndarray) -> list[np.ndarray]:
    """The inverse of the encoder, for checks: the inputs of encoded rows."""
    layout, lead = encoder.layout, rows.shape[: encoder.lead]
    flat = rows.reshape(*lead, -1)
    arrays, at = [], 2 * (layout.graph is not None)
    graph: dict[str, np.ndarray] = {}
    if size := layout.graph:
        starts, widths = size.starts, (size.node, 2, size.edge)
        graph = {"counts": flat[..., :2]}
        for name, start, end, width in zip(
            ("nodes", "links", "edges"), starts, starts[1:], widths, strict=False
        ):
            graph[name] = flat[..., start:end].reshape(*lead, -1, max(width, 1))
    plain = iter([part for leaf, part in encoder.leaves if not isinstance(leaf, BoundedGraph)])
    for port in encoder.ports:
        if port.part:
            arrays.append(graph[port.part].astype(port.dtype))
            continue
        part = next(plain)
        leaf = flat[..., at : at + part.size]
        at += part.size
        if part.one_hot:
            leaf = np.stack(
                [leaf[..., o : o + n].argmax(-1) + first for o, n, first in part.choices], -1
            )
        arrays.append(leaf.reshape(*lead, *port.shape).astype(port.dtype))
    return arrays


def batch_lead(agents: int, frames: int) -> tuple[str | int, ...]:
    """The leading dimensions: agents with a network each, the batch, frames."""
    return (*((agents,) if agents > 1 else ()), "batch", *((frames,) if frames > 1 else ()))
