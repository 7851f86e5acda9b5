"""Graphs as observations: what their spaces hold, how they lie in rows, and what is said of one
that does not fit."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import GraphInstance

import tenfold as ten
from tenfold.cli.main import main
from tenfold.config.networks import PolicyNet
from tenfold.core.errors import EnvironmentFault, ObservationError
from tenfold.core.graph_spaces import BoundedGraph, GraphSize, write_graph
from tenfold.core.layout import observation_layout
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.nets.graph import GraphNetwork, GraphOutputs
from tenfold.ops.segments import pack

WIDE = spaces.Box(-10, 10, (2,), np.float32)
BARE, FULL = (
    BoundedGraph(WIDE, None, 4, 6),
    BoundedGraph(WIDE, spaces.Box(-10, 10, (3,), np.float32), 4, 6),
)
NODES, LINKS = np.ones((3, 2), np.float32), np.array([[0, 1], [1, 2]], np.int32)


def graph(nodes: Any = NODES, edges: Any = None, links: Any = LINKS) -> GraphInstance:
    return GraphInstance(nodes, edges, links)


# spaces


def test_links_without_numbers_are_in_the_space_and_in_the_row() -> None:
    assert (
        BARE.contains(graph()) and BARE.contains(graph(links=None)) and not FULL.contains(graph())
    )
    for links in (LINKS + 2, LINKS - 1, LINKS.astype(float), LINKS[:, :1], np.tile(LINKS, (4, 1))):
        assert not BARE.contains(graph(links=links))
    layout = observation_layout(BARE, "x")
    assert layout.graph == GraphSize(4, 6, 2, 0)
    assert layout.encode(graph()).tolist() == [3, 2, *[1] * 6, 0, 0, *[0, 1, 1, 2], *[0] * 8]


def test_samples_of_a_space_without_edge_numbers_have_links() -> None:
    BARE.seed(0)
    drawn = [BARE.sample() for _ in range(50)]
    links = [len(np.asarray(one.edge_links)) for one in drawn]
    assert all(map(BARE.contains, drawn)) and max(links) == 6
    assert all(number == 0 for number, one in zip(links, drawn, strict=True) if len(one.nodes) == 1)


def test_a_neighbour_without_edge_numbers_is_heard() -> None:
    size = observation_layout(BARE, "x").graph
    assert size is not None
    network = GraphNetwork(
        size,
        GraphOutputs(((2, True),), ()),
        PolicyNet(hidden=(8, 8), attention=2, activation="relu"),
        0,
        0.05,
    ).initialise(0, 0.5)
    with torch.no_grad():
        network.flat.add_(
            torch.randn(network.flat.shape, generator=torch.Generator().manual_seed(0)) * 0.3
        )

    def known(links: np.ndarray) -> torch.Tensor:
        row = np.zeros((1, size.starts[-1]), np.float32)
        write_graph(
            size, graph(np.array([[1, 0], [0, 1], [2, 0]], np.float32), None, links), row[0]
        )
        return network.encode(pack(torch.from_numpy(row), size))[0]

    with torch.no_grad():
        assert (known(LINKS) - known(LINKS[:1]))[1:].abs().max() > 1e-3


def test_a_batch_in_which_no_graph_has_a_node_gets_values() -> None:
    size = GraphSize(4, 6, 2, 3)
    network = GraphNetwork(
        size,
        GraphOutputs(((2, True),), ()),
        PolicyNet(hidden=(8, 8), attention=2, activation="relu"),
        0,
        0.05,
    ).initialise(0, 0.5)
    output, value = network(pack(torch.zeros(2, size.starts[-1]), size))
    assert output.shape == (2, 8) and value.shape == (2,) and torch.isfinite(value).all()


# observations that do not fit


FAULTS = {
    "nodes of 3 numbers": (
        graph(np.ones((3, 3)), np.ones((2, 3))),
        r"nodes are an array of shape \(3, 3\): its space promises 2 numbers for each",
    ),
    "nodes of 1 number": (
        graph(np.ones((3, 1)), np.ones((2, 3))),
        r"nodes are an array of shape \(3, 1\): its space promises 2",
    ),
    "edges of 2 numbers": (
        graph(NODES, np.ones((2, 2))),
        r"edges are an array of shape \(2, 2\): its space promises 3",
    ),
    "edges without numbers": (
        graph(NODES, None),
        r"edges are an array of shape \(2, 0\): its space promises 3",
    ),
    "edges without links": (
        graph(NODES, np.ones((2, 3)), None),
        r"2 edges whose edge_links have the shape \(0, 2\)",
    ),
    "fewer links than edges": (
        graph(NODES, np.ones((3, 3))),
        r"3 edges whose edge_links have the shape \(2, 2\)",
    ),
    "flat links": (
        graph(NODES, np.ones((2, 3)), np.ones(4)),
        r"2 edges whose edge_links have the shape \(4,\)",
    ),
    "a link too far": (
        graph(NODES, np.ones((2, 3)), LINKS + 1),
        "3 nodes with a link from 2 to 3: nodes are numbered from 0",
    ),
    "a link below": (graph(NODES, np.ones((2, 3)), LINKS - 1), "3 nodes with a link from -1 to 0"),
    "half a link": (graph(NODES, np.ones((2, 3)), LINKS / 2), "3 nodes with a link from 0 to 0.5"),
    "too many nodes": (
        graph(np.ones((5, 2)), np.ones((2, 3))),
        "graph of 5 nodes and 2 edges: its space promises at most 4 and 6",
    ),
    "too many edges": (
        graph(NODES, np.ones((7, 3)), np.ones((7, 2), int)),
        "graph of 3 nodes and 7 edges: its space promises at most 4 and 6",
    ),
    "words": (graph([["a", "b"]], None, None), "not all arrays of numbers"),
    "nothing": (graph(None, None, None), "shape|not all arrays"),
    "an array": (np.ones(3), "of type ndarray: its space promises a graph"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_graph_that_its_space_does_not_promise_is_refused(fault: str) -> None:
    found, why = FAULTS[fault]
    with pytest.raises(ObservationError, match=rf"^The observation is [^\n]*({why})[^\n]*\.$"):
        observation_layout(FULL, "x").encode(found)


class Faulty(gym.Env):
    """Gives a graph that fits, until its `when`-th observation."""

    def __init__(
        self, fault: str = "", when: int = 0, bare: bool = False, ends: bool = False
    ) -> None:
        self.observation_space = spaces.Dict(
            {"graph": BARE if bare else FULL, "clock": spaces.Box(0, 99, (1,), np.float32)}
        )
        self.action_space, self.fault, self.when, self.bare, self.ends = (
            spaces.Discrete(2),
            fault,
            when,
            bare,
            ends,
        )

    def seen(self) -> dict[str, Any]:
        empty = GraphInstance(np.zeros((0, 2), np.float32), None, None)
        fits = graph(NODES, None if self.bare else np.ones((2, 3), np.float32))
        wrong = self.time >= self.when and self.fault
        return {
            "graph": (empty if self.fault == "empty" else FAULTS[self.fault][0]) if wrong else fits,
            "clock": np.array([self.time], np.float32),
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.seen(), float(action), self.ends and self.time >= self.when, self.time == 20, {}


gym.register("Faulty-v0", Faulty)  # type: ignore[arg-type]


@pytest.mark.parametrize("when", [0, 3])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_environment_that_gave_it_is_named(fault: str, when: int) -> None:
    with pytest.raises(
        EnvironmentFault,
        match=rf"^Faulty-v0\(fault={fault}, when={when}\), environment 0, episode 0, step \d: The observation is ",
    ):
        envs = ScalarEnvironments(f"Faulty-v0(fault={fault}, when={when})", 1, 0, policy=True)
        for _ in range(4):
            envs.step(np.zeros(1, int))


@pytest.mark.parametrize("when", [0, 3])
def test_a_graph_without_nodes_is_refused_where_the_episode_goes_on(when: int) -> None:
    name = f"Faulty-v0(fault=empty, when={when})"
    with pytest.raises(
        EnvironmentFault,
        match=r"^Faulty-v0.*environment 0.*graph without nodes, and only an episode's last one may be",
    ):
        envs = ScalarEnvironments(name, 1, 0, policy=True)
        for _ in range(4):
            envs.step(np.zeros(1, int))


def test_a_graph_without_nodes_may_be_the_last_one() -> None:
    envs = ScalarEnvironments("Faulty-v0(fault=empty, when=2, ends=true)", 1, 0, policy=True)
    for _ in range(2):
        envs.step(np.zeros(1, int))
    assert envs.terminated[0] and envs.final_obs[0, 0] == 0 and envs.obs[0, 0] == 3


# whole runs


SMALL = [
    "--steps",
    "128",
    "--num-envs",
    "4",
    "--agent.horizon",
    "16",
    "--agent.minibatches",
    "2",
    "--agent.net.hidden",
    "8,8",
    "--agent.net.activation",
    "relu",
    "--eval-every",
    "0",
    "--quiet",
]


def test_graphs_with_bare_links_train_and_are_loaded(tmp_path: Path) -> None:
    """Warnings are errors here: PyTorch has nothing to say of it."""
    out = str(tmp_path / "run")
    assert main(["train", "ppo", "--env", "Faulty-v0(bare=true)", *SMALL, "--out", out]) == 0
    agent, obs = ten.load(out), Faulty(bare=True).reset(seed=0)[0]
    assert agent.act(obs) in (0, 1)


@pytest.mark.parametrize("mode", ["ratio", "nodes"])
def test_an_agent_acts_on_what_a_vector_gives(mode: str, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    preset = "durotaxis" if mode == "ratio" else "durotaxis-nodes"
    assert (
        main(
            [
                "train",
                preset,
                "--env",
                f"tenfold/Durotaxis-v0(mode={mode}, max_nodes=12)",
                *SMALL,
                "--out",
                out,
            ]
        )
        == 0
    )
    agent: Any = ten.load(out)
    envs = gym.make_vec("tenfold/Durotaxis-v0", num_envs=4, mode=mode, max_nodes=12)
    obs, info = envs.reset(seed=0)
    for _ in range(3):
        actions = agent.act(obs, info.get("action_mask"))
        for i in range(4):
            alone = agent.act(
                {"colony": obs["colony"][i], "graph": obs["graph"][i]},
                info["action_mask"][i] if mode == "nodes" else None,
            )
            for mine, theirs in (
                ((alone[key], actions[i][key]) for key in alone)
                if mode == "nodes"
                else ((alone, actions[i]),)
            ):
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
        obs, _, _, _, info = envs.step(actions)
