"""Runs a policy that `tenfold export` wrote, with onnxruntime and NumPy alone.

    tenfold export runs/cartpole --out policy.onnx
    python examples/deploy_onnx.py policy.onnx

Copy `Policy` into your own program. The file says what it takes and what it gives: a Dict or Tuple
observation has an input for each part, a graph one for each of its arrays, and normalisation,
one-hot codes and the action's bounds are inside.
"""

import json
import sys
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime

GRAPH = {"nodes": "nodes", "links": "edge_links", "edges": "edges"}  # as Gymnasium calls them


MISSING = object()  # instead of masks, where nobody gave any


class Policy:
    """Observations as the environment gives them -> actions as it takes them."""

    def __init__(self, file: str, seed: int = 0) -> None:
        self.session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        self.about = json.loads(self.session.get_modelmeta().custom_metadata_map["tenfold"])
        self.rng = np.random.default_rng(seed)  # for policies that draw

    def act(self, observations: list[Any], masks: Any = MISSING) -> list[Any]:
        """Actions for a list of observations. A policy that sees k frames takes a list of k for
        each (see `Frames`); one of several agents a list for each agent, and gives a list for each.
        `masks` are truths [batch, options], where the file has such an input, or a list with the
        mask of each observation, nested as the action space is. They must be given there: None
        says on purpose that every option is allowed."""
        team = self.about["agents"] > 1
        batch = len(observations[0] if team else observations)
        inputs = {
            port["name"]: self.array(port, observations, masks, batch) for port in self.inputs
        }
        outputs = self.session.run(None, inputs)
        if team:
            return [
                [self.action(outputs, (m, i)) for i in range(batch)] for m in range(len(outputs[0]))
            ]
        return [self.action(outputs, (i,)) for i in range(batch)]

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return self.about["inputs"]

    def array(self, port: dict[str, Any], observations: Any, masks: Any, batch: int) -> np.ndarray:
        """What one input is given."""
        shape = [batch if side == "batch" else side for side in port["shape"]]
        if port["kind"] == "mask":
            if masks is MISSING:
                raise ValueError(
                    "this policy takes action masks: give masks=…, or None to allow every option"
                )
            if masks is None:
                return np.ones(shape, bool)
            rows = masks
            if not isinstance(masks, np.ndarray):
                rows = (
                    [mask for team in masks for mask in team] if self.about["agents"] > 1 else masks
                )
                rows = np.stack([options(self.about["action_space"], one) for one in rows])
            return rows.astype(bool).reshape(shape)
        if port["kind"] in ("uniform", "normal"):
            drawn = (
                self.rng.random(shape) if port["kind"] == "uniform" else self.rng.normal(size=shape)
            )
            return drawn.astype(port["dtype"])
        lists = (self.about["agents"] > 1) + 1 + (self.about["frames"] > 1)

        def leaf(obs: Any, depth: int) -> np.ndarray:
            if depth:
                return np.stack([leaf(one, depth - 1) for one in obs])
            for key in port["path"]:
                obs = obs[key]
            return graph_part(port, obs) if "part" in port else np.asarray(obs)

        return leaf(observations, lists).astype(port["dtype"]).reshape(shape)

    def action(self, outputs: list[np.ndarray], index: tuple[int, ...]) -> Any:
        """The parts of one action, put together as its space has them."""
        values = {
            tuple(p["path"]): output[index]
            for p, output in zip(self.about["outputs"], outputs, strict=True)
        }

        def built(space: dict[str, Any], path: tuple[Any, ...]) -> Any:
            below = space.get("spaces")
            if isinstance(below, dict):
                return {key: built(inner, (*path, key)) for key, inner in below.items()}
            if isinstance(below, list):
                return tuple(built(inner, (*path, k)) for k, inner in enumerate(below))
            return values[path]

        return built(self.about["action_space"], ())


def options(space: dict[str, Any], mask: Any) -> np.ndarray:
    """Truths for all options of an action side by side, of a mask in the form that Gymnasium's
    `sample` takes: nested as the space is, None for a part without restriction."""
    below = space.get("spaces")
    if below is not None and (mask is None or isinstance(mask, dict | tuple)):
        keys = list(below) if isinstance(below, dict) else range(len(below))
        masks = {} if mask is None else mask if isinstance(mask, dict) else dict(enumerate(mask))
        flat = [options(below[key], masks.get(key)) for key in keys]
        return np.concatenate([np.zeros(0, bool), *flat])
    binary = space["type"] == "MultiBinary"
    sizes = {
        "Discrete": [space.get("n", 0)],
        "MultiDiscrete": np.ravel(space.get("nvec", [])).tolist(),
        "MultiBinary": [2] * int(np.prod(space.get("shape", ()))),
    }.get(space["type"], [])
    if mask is None:
        return np.ones(int(sum(sizes)), bool)
    if binary and 2 * np.size(mask) == sum(sizes):  # 0 and 1 must be, 2 may be either
        return np.stack([np.not_equal(mask, 1), np.not_equal(mask, 0)], -1).ravel()
    while isinstance(mask, tuple) and any(isinstance(one, tuple) for one in mask):
        mask = tuple(one for some in mask for one in (some if isinstance(some, tuple) else [some]))
    if isinstance(mask, tuple):
        heads = zip(mask, sizes, strict=True)
        mask = np.concatenate([np.ones(n) if head is None else head for head, n in heads])
    return np.ravel(mask).astype(bool)


def graph_part(port: dict[str, Any], graph: Any) -> np.ndarray:
    """An array of a graph in the room that the file has for it, zeros where nothing is."""
    links = np.zeros((0, 2)) if graph.edge_links is None else np.asarray(graph.edge_links)
    if port["part"] == "counts":
        return np.array([len(graph.nodes), len(links)])
    room, array = np.zeros(port["shape"][-2:]), getattr(graph, GRAPH[port["part"]])
    if array is not None:  # a graph without edges may have no such array
        room[: len(array)] = np.reshape(array, (len(array), room.shape[1]))
    return room


class Frames:
    """The last k observations of an episode, oldest first; before its first stands that one
    again."""

    def __init__(self, count: int) -> None:
        self.observations: deque[Any] = deque(maxlen=count)

    def begin(self, observation: Any) -> list[Any]:
        self.observations.extend([observation] * (self.observations.maxlen or 1))
        return list(self.observations)

    def add(self, observation: Any) -> list[Any]:
        self.observations.append(observation)
        return list(self.observations)


def some(space: dict[str, Any], rng: np.random.Generator) -> Any:
    """Any observation of a space, for a first try."""
    kind, below = space["type"], space.get("spaces")
    if isinstance(below, dict):
        return {key: some(inner, rng) for key, inner in below.items()}
    if isinstance(below, list):
        return tuple(some(inner, rng) for inner in below)
    if kind == "Discrete":
        return space["start"] + int(rng.integers(space["n"]))
    if kind == "MultiDiscrete":
        return np.array(space["start"]) + rng.integers(space["nvec"])
    if kind == "MultiBinary":
        return rng.integers(0, 2, space["shape"])
    if kind == "BoundedGraph":
        nodes = int(rng.integers(1, space["max_nodes"] + 1))
        edges = int(rng.integers(0, space["max_edges"] + 1))
        bare = space["edge_space"] is None
        return SimpleNamespace(
            nodes=np.stack([some(space["node_space"], rng) for _ in range(nodes)]),
            edges=None
            if bare
            else np.array([some(space["edge_space"], rng) for _ in range(edges)]),
            edge_links=rng.integers(0, nodes, (edges, 2)),
        )
    low, high = (bound(space, name, side) for name, side in (("low", -3.0), ("high", 3.0)))
    drawn = low + (np.maximum(low, high) - low) * rng.random(space["shape"])
    return drawn.astype(space["dtype"])


def bound(space: dict[str, Any], name: str, missing: float) -> np.ndarray:
    """Of every number; `missing` where there is none, or one that is only a type's limit."""
    side = np.array(space[name], float)  # null is NaN
    side = np.where(np.abs(side) < 1e6, side, missing)
    return np.broadcast_to(side.reshape(space["shape"] if side.ndim else ()), space["shape"])


def main(file: str, count: int = 1000) -> None:
    policy, rng = Policy(file), np.random.default_rng(0)
    about = policy.about
    print(f"{about['agent']} on {about['env']}, {about['policy']}, after {about['step']:,} steps")
    observations = [some(about["observation_space"], rng) for _ in range(count)]
    if about["frames"] > 1:
        observations = [Frames(about["frames"]).begin(one) for one in observations]
    if about["agents"] > 1:
        observations = [observations] * about["agents"]
    start = time.perf_counter()
    actions = policy.act(observations, None)  # masks: all options are allowed
    print(f"first actions: {actions[:3]}")
    print(f"{count:,} observations in {1e3 * (time.perf_counter() - start):.1f} ms")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python deploy_onnx.py FILE, which `tenfold export` wrote")
    main(sys.argv[1])
