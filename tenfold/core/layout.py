"""Observation spaces of Gymnasium as arrays: how an observation lies in a row."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tenfold.core.errors import ConfigError, EnvironmentFault, ObservationError, UserError
from tenfold.core.graph_spaces import BoundedGraph, GraphSize, write_graph

NATURE_SIDE = 36  # the smallest image side the Nature convolutions accept


@dataclass(frozen=True)
class ObsLayout:
    """How an observation lies in one row of an array: its shape and dtype, and how the network
    reads it."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    net_shape: tuple[int, ...]
    scale: float
    channels_last: bool = False
    # for discrete parts: (offset of the part, its first value)
    one_hot: tuple[tuple[int, int], ...] = ()
    children: tuple["ObsLayout", ...] = ()
    keys: tuple[str, ...] = ()
    graph: GraphSize | None = None
    alone: bool = False  # a number, of shape (): here a row of one
    # of each frame, where a row holds several of them, the oldest first
    frame: "ObsLayout | None" = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def frames(self) -> int:
        """Observations in a row."""
        return self.shape[0] if self.frame else 1

    def stacked(self, frames: int) -> "ObsLayout":
        """That of several observations together: side by side for a network that takes vectors, as
        further channels of an image."""
        if self.graph:
            raise ConfigError(
                "frames",
                f"= {frames} is not for observations that are graphs: leave it out.",
            )
        first, *sides = self.net_shape
        shape, net_shape = (frames, *self.shape), (frames * first, *sides)
        return ObsLayout(shape, self.dtype, net_shape, self.scale, frame=self)

    @property
    def direct(self) -> bool:
        """Whether the environment's array can be copied into the row as it is."""
        return not self.one_hot and not self.children and self.graph is None

    @cached_property
    def choices(self) -> tuple[tuple[int, int, int], ...]:
        """Of discrete parts: (offset, how many values, the first of them)."""
        ends = [offset for offset, _ in self.one_hot[1:]] + [self.size]
        return tuple(
            (offset, end - offset, first)
            for (offset, first), end in zip(self.one_hot, ends, strict=False)
        )

    @property
    def encoder(self) -> str:
        """The network that fits."""
        if self.graph:
            return "graph"
        if len(self.net_shape) != 3:
            return "mlp"
        return "nature" if min(self.net_shape[1:]) >= NATURE_SIDE else "small"

    def write(self, obs: Any, row: np.ndarray) -> None:
        """Encodes an observation that is not a plain array into `row`: one-hot for discrete parts,
        then joined."""
        if self.direct:
            row[...] = self.whole(np.asarray(obs)).reshape(row.shape)
        elif self.graph and not self.children:
            write_graph(self.graph, obs, row)
        elif self.one_hot:
            row[...] = 0
            for (offset, count, first), value in zip(self.choices, np.ravel(obs), strict=True):
                if not 0 <= value - first < count:
                    raise ObservationError(
                        "", f"holds {value}, and must hold one of {first} … {first + count - 1}."
                    )
                row[offset + int(value) - first] = 1
        else:
            start = 0
            fits = isinstance(obs, Mapping) if self.keys else isinstance(obs, Sequence | np.ndarray)
            if not fits:
                expected = (
                    f"a dict with the keys {', '.join(self.keys)}"
                    if self.keys
                    else f"a tuple of {len(self.children)} parts"
                )
                raise EnvironmentFault(
                    f"The observation is of type {type(obs).__name__}: its space promises "
                    f"{expected}."
                )
            missing = [k for k in self.keys if k not in obs]
            if missing:
                raise EnvironmentFault(
                    f"The observation has no key {missing[0]}: its space promises "
                    f"{', '.join(self.keys)}."
                )
            for part, value in zip(
                self.children, [obs[k] for k in self.keys] if self.keys else obs, strict=True
            ):
                if part.graph and self.graph:
                    write_graph(self.graph, value, row)
                    continue
                first = start + 2 * (self.graph is not None)
                part.write(value, row[first : first + part.size].reshape(part.shape))
                start += part.size

    def whole(self, obs: np.ndarray) -> np.ndarray:
        """The observation itself; refused where its numbers would be cut off to fit a space of
        whole ones."""
        if self.dtype.kind in "iu" and obs.dtype.kind not in "biu":
            raise ObservationError(
                "",
                f"is of type {obs.dtype}, and its space promises whole numbers ({self.dtype}), to "
                "which it would be cut off: let it be of that type, or change the space.",
            )
        return obs

    def key_at(self, column: int) -> str:
        """The dotted key of the number at `column` of a row, where the observation is a Dict; else
        nothing."""
        for key, part in zip(
            self.keys or map(str, range(len(self.children))), self.children, strict=True
        ):
            if column < part.size:
                below = part.key_at(column)
                return f"{key}.{below}" if below else key
            column -= part.size
        return ""

    def encode(self, obs: Any) -> np.ndarray:
        row = np.zeros(self.shape, self.dtype)
        self.write(obs, row)
        return row

    def rows_of(self, obs: Any) -> tuple[np.ndarray, bool]:
        """Encoded rows [B, *shape], and whether `obs` was a single observation, as a person gave
        it."""
        rows, single = self.encoded(obs)
        if rows.dtype.kind == "f" and not np.isfinite(rows).all():
            raise UserError("The observation is not finite, so that no action follows from it.")
        return rows, single

    def encoded(self, obs: Any) -> tuple[np.ndarray, bool]:
        if not self.direct:
            observations = obs if isinstance(obs, list) else self.unbatch(obs)
            return np.stack(
                [self.encode(o) for o in (observations if observations is not None else [obs])]
            ), observations is None
        array, shape = np.asarray(obs), self.shape
        if self.alone and array.ndim < 2:
            return array.reshape(-1, 1).astype(self.dtype), array.ndim == 0
        if array.shape[array.ndim - len(shape) :] != shape or array.ndim - len(shape) not in (0, 1):
            batch = f"({', '.join(map(str, ('B', *shape)))})"
            raise UserError(
                f"The observation has shape {array.shape}; this agent takes {shape} or, in a "
                f"batch, {batch}."
            )
        single = array.ndim == len(shape)
        return np.ascontiguousarray(array[None] if single else array, self.dtype), single

    def unbatch(self, obs: Any) -> list[Any] | None:
        """The observations of one whose leaves have a batch in front, as vector environments give
        them; None for a single one."""
        # of different sizes, so that a batch is a tuple of them; one is a tuple, too
        if self.graph and not self.children:
            return (
                list(obs) if isinstance(obs, list | tuple) and not hasattr(obs, "nodes") else None
            )
        if not self.children:
            alone = self.alone or len(self.one_hot) == 1
            dimensions = 0 if alone else 1 if self.one_hot else len(self.shape)
            return list(obs) if np.ndim(obs) > dimensions else None
        if self.keys and not (isinstance(obs, dict) and all(key in obs for key in self.keys)):
            return None  # `write` says what is wrong
        values = [obs[key] for key in self.keys] if self.keys else list(obs)
        per_child = [part.unbatch(value) for part, value in zip(self.children, values, strict=True)]
        if any(one is None for one in per_child):
            return None
        rows = zip(*per_child, strict=True)  # type: ignore[arg-type]
        return [dict(zip(self.keys, row, strict=True)) if self.keys else row for row in rows]

    def to_net(self, batch: Any) -> Any:
        """Rows [..., B, *shape] as the network takes them, for NumPy and torch alike (a view where
        that is possible)."""
        lead = batch.ndim - len(self.shape)
        if self.frame:
            frames = self.frame.to_net(batch)
            return frames.reshape(*batch.shape[:lead], *self.net_shape)
        if self.channels_last:
            return batch.swapaxes(lead + 1, lead + 2).swapaxes(lead, lead + 1)
        return batch.reshape(*batch.shape[:lead], *self.net_shape)


# a last dimension of this size, with larger sides, is read as (height, width, channels)
IMAGE_CHANNELS = (1, 3, 4)


def observation_layout(space: gym.Space[Any], name: str) -> ObsLayout:
    """Box as it is (all floats become float32, the networks' precision); discrete spaces one-hot;
    Tuple and Dict joined."""
    if isinstance(space, spaces.Box):
        return box_layout(space)
    if isinstance(space, spaces.Discrete):
        return hot(((int(space.n), int(space.start)),))
    if isinstance(space, spaces.MultiDiscrete):
        starts = np.ravel(space.start)
        return hot(
            tuple((int(n), int(s)) for n, s in zip(np.ravel(space.nvec), starts, strict=True))
        )
    if isinstance(space, spaces.MultiBinary):
        return ObsLayout(space.shape, np.dtype(np.uint8), (math.prod(space.shape),), 1.0)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        keys = tuple(space.keys()) if isinstance(space, spaces.Dict) else ()
        below = [space[k] for k in keys] if isinstance(space, spaces.Dict) else list(space.spaces)
        children = tuple(observation_layout(s, name) for s in below)
        size = sum(p.size for p in children)
        graphs = [p.graph for p in children if p.graph]
        if len(graphs) > 1:
            raise EnvironmentFault(
                f"{name} has observations with {len(graphs)} graphs, and tenfold reads one."
            )
        if graphs:
            graph = replace(graphs[0], whole=size - graphs[0].starts[-1])
            return graph_layout(graph, children, keys)
        return ObsLayout((size,), np.dtype(np.float32), (size,), 1.0, children=children, keys=keys)
    if isinstance(space, BoundedGraph):
        graph = GraphSize(
            space.max_nodes,
            space.max_edges,
            math.prod(space.node_space.shape or ()),
            math.prod(space.edge_space.shape or ()) if space.edge_space else 0,
        )
        return graph_layout(graph)
    if isinstance(space, spaces.Graph):
        raise EnvironmentFault(
            f"{name} has graphs of any size as observations: give their space as "
            "tenfold.BoundedGraph, which says how many nodes and edges there are at most."
        )
    raise EnvironmentFault(
        f"{name} has observations of type {type(space).__name__}, which tenfold cannot read: wrap "
        "the environment so that it gives a Box, Discrete, MultiDiscrete, MultiBinary, Tuple or "
        "Dict."
    )


def graph_layout(
    graph: GraphSize, children: tuple[ObsLayout, ...] = (), keys: tuple[str, ...] = ()
) -> ObsLayout:
    size = graph.starts[-1]
    return ObsLayout(
        (size,), np.dtype(np.float32), (size,), 1.0, children=children, keys=keys, graph=graph
    )


def box_layout(space: spaces.Box) -> ObsLayout:
    shape: tuple[int, ...] = space.shape or (1,)  # a number alone is a row of one
    dtype = (
        np.dtype(np.float32) if np.issubdtype(space.dtype, np.floating) else np.dtype(space.dtype)
    )
    if dtype != np.uint8 or len(shape) not in (2, 3):
        return ObsLayout(shape, dtype, (math.prod(shape),), 1.0, alone=not space.shape)
    last = len(shape) == 3 and shape[-1] in IMAGE_CHANNELS and shape[0] > max(IMAGE_CHANNELS)
    net_shape = (1, *shape) if len(shape) == 2 else (*shape[2:], *shape[:2]) if last else shape
    scale = 1 / 255 if int(space.high.max()) > 1 else 1.0
    return ObsLayout(shape, dtype, net_shape, scale, channels_last=last)


def hot(sizes: tuple[tuple[int, int], ...]) -> ObsLayout:
    offsets = np.cumsum([0, *(n for n, _ in sizes)])
    size = int(offsets[-1])
    return ObsLayout(
        (size,),
        np.dtype(np.uint8),
        (size,),
        1.0,
        one_hot=tuple((int(o), s) for o, (_, s) in zip(offsets, sizes, strict=False)),
    )
