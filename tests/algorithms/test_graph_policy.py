"""Policies on graphs: what a network sees of each graph, choices at nodes, values by component, and
whole runs."""

import json
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import tenfold as ten
from tenfold.algorithms.ppo import PPOAgent
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.algorithms.ppo_policy import old_outputs
from tenfold.algorithms.ppo_settings import PPO
from tenfold.cli.main import main
from tenfold.config.networks import PolicyNet
from tenfold.config.notation import read_yaml
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.graph_spaces import BoundedGraph, Gated, GraphSize, write_graph
from tenfold.core.layout import observation_layout
from tenfold.core.spaces import policy_actions
from tenfold.nets.action_distribution import NodeDistribution, graph_outputs
from tenfold.nets.graph import GraphNetwork, GraphOutputs
from tenfold.ops.gaussian import squashed_entropy_reference
from tenfold.ops.segments import pack, segment_sum

SIZE = GraphSize(9, 8, 3, 2, 4)
NET = PolicyNet(hidden=(16, 16), activation="relu")


def random_rows(count: int, seed: int = 0, size: GraphSize = SIZE) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = np.zeros((count, size.starts[-1]), np.float32)
    for row in rows:
        n = int(rng.integers(1, size.nodes + 1))
        row[2 : 2 + size.whole] = rng.normal(size=size.whole)
        links = np.array([(rng.integers(j), j) for j in range(1, n)]).reshape(-1, 2)
        write_graph(
            size,
            spaces.GraphInstance(
                rng.normal(size=(n, size.node)), rng.normal(size=(n - 1, size.edge)), links
            ),
            row,
        )
    return rows


def network(outputs: GraphOutputs, columns: int = 0) -> GraphNetwork:
    return GraphNetwork(SIZE, outputs, NET, columns, 0.05).initialise(3, 0.7)


BOTH = GraphOutputs(((3, True), (2, False)), ((2, True), (1, False)))


@pytest.mark.parametrize("columns", [0, 5])
def test_a_graph_in_a_batch_gets_what_it_gets_alone_gradients_too(columns: int) -> None:
    net, rows = network(BOTH, columns).double(), torch.from_numpy(random_rows(7))
    graphs = [pack(rows[b : b + 1], SIZE) for b in range(7)]
    graphs = [
        g._replace(nodes=g.nodes.double(), edges=g.edges.double(), whole=g.whole.double())
        for g in graphs
    ]
    together = pack(rows, SIZE)
    together = together._replace(
        nodes=together.nodes.double(), edges=together.edges.double(), whole=together.whole.double()
    )
    output, value = net(together)
    alone = [net(g) for g in graphs]
    assert torch.allclose(output, torch.cat([o for o, _ in alone]), atol=1e-12)
    assert torch.allclose(value, torch.cat([v for _, v in alone]), atol=1e-12)
    weight = torch.randn(
        output.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    net.flat_grad.zero_()
    ((output * weight).sum() + value.square().sum()).backward()
    whole = net.flat_grad.clone()
    net.flat_grad.zero_()
    for b, (o, v) in enumerate(alone):
        ((o * weight[b : b + 1]).sum() + v.square().sum()).backward()
    assert whole.abs().max() > 0 and torch.allclose(whole, net.flat_grad, atol=1e-10)


def test_a_neighbour_is_heard_along_and_against_an_edge_and_the_order_of_nodes_does_not_matter() -> (
    None
):
    net = network(GraphOutputs((), ((2, True),)))
    nodes = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    edges = np.array([[0.5, 0.1], [0.2, -0.3]])

    def outputs(
        order: list[int], links: list[tuple[int, int]], features: np.ndarray = nodes
    ) -> torch.Tensor:
        row = np.zeros((1, SIZE.starts[-1]), np.float32)
        place = {old: new for new, old in enumerate(order)}
        write_graph(
            SIZE,
            spaces.GraphInstance(
                features[order], edges, np.array([(place[a], place[b]) for a, b in links])
            ),
            row[0],
        )
        found = net(pack(torch.from_numpy(row), SIZE))[0].detach()[0, :18].view(9, 2)[:3]
        return found[[place[i] for i in range(3)]]

    chain = outputs([0, 1, 2], [(0, 1), (1, 2)])
    assert torch.allclose(chain, outputs([2, 0, 1], [(0, 1), (1, 2)]), atol=1e-6)
    # the direction tells
    assert not torch.allclose(chain, outputs([0, 1, 2], [(1, 0), (1, 2)]), atol=1e-4)
    other = nodes.copy()
    other[2, 0] = 5
    changed = (outputs([0, 1, 2], [(0, 1), (1, 2)], other) - chain).abs().amax(1)
    assert (changed > 1e-5).all()  # the source hears its target, and the token tells the rest


def test_outputs_of_nodes_that_are_not_there_are_nothing() -> None:
    net, rows = network(BOTH), random_rows(3)
    output, _ = net(pack(torch.from_numpy(rows), SIZE))
    logits, means = output[:, :27].view(3, 9, 3), output[:, 29:47].view(3, 9, 2)
    for b in range(3):
        n = int(rows[b, 0])
        assert (logits[b, n:] == 0).all() and (means[b, n:] == 0).all()
        assert (logits[b, :n] != 0).all()


def test_deviations_stay_above_their_floor() -> None:
    net = GraphNetwork(SIZE, GraphOutputs((), ((2, False),)), NET, 0, 0.3).initialise(0, 1e-4)
    output, _ = net(pack(torch.from_numpy(random_rows(2)), SIZE))
    assert torch.allclose(output[:, 2:], torch.full((2, 2), math.log(0.3)))


class Sprouts(gym.Env):
    """A user's own world of graphs: each of up to four nodes says yes or no, and whoever says yes
    gives a number near its own."""

    def __init__(self) -> None:
        wide = spaces.Box(-10, 10, (2,), np.float32)
        self.observation_space = spaces.Dict(
            {
                "graph": BoundedGraph(wide, spaces.Box(-10, 10, (1,), np.float32), 4, 3),
                "clock": spaces.Box(0, 1, (1,), np.float32),
            }
        )
        self.action_space = spaces.Dict(
            {
                "say": spaces.MultiDiscrete([2] * 4),
                "number": Gated(
                    np.float32(-2 * np.ones((4, 1))), np.float32(2 * np.ones((4, 1))), 1
                ),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.step_number = 0
        return self.seen(), self.info()

    def seen(self):
        self.n = int(self.np_random.integers(1, 5))
        self.values = self.np_random.uniform(-1, 1, self.n)
        nodes = np.stack([self.values, np.arange(self.n)], 1).astype(np.float32)
        links = np.array([(j, j + 1) for j in range(self.n - 1)], np.int32).reshape(-1, 2)
        graph = spaces.GraphInstance(nodes, np.ones((self.n - 1, 1), np.float32), links)
        return {"graph": graph, "clock": np.array([self.step_number / 8], np.float32)}

    def info(self):
        return {"action_mask": np.repeat(np.arange(4) < self.n, 2)}

    def step(self, action):
        said, number = action["say"][: self.n] == 1, action["number"][: self.n, 0]
        reward = float((said * (1 - 2 * np.abs(number - self.values))).sum()) / self.n
        self.step_number += 1
        return self.seen(), reward, False, self.step_number == 8, self.info()


class OpenSprouts(Sprouts):
    """Without a word about who is there: the graph says it."""

    def info(self):
        return {}


gym.register("Sprouts-v0", Sprouts)
gym.register("OpenSprouts-v0", OpenSprouts)
SPROUTS = [
    "--env",
    "Sprouts-v0",
    "--num-envs",
    "8",
    "--agent.horizon",
    "16",
    "--agent.minibatches",
    "4",
    "--agent.on-empty",
    "absent",
    "--agent.net.hidden",
    "16,16",
    "--agent.net.activation",
    "relu",
    "--eval-every",
    "0",
    "--quiet",
]


@pytest.mark.parametrize("learned", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_users_graph_environment_is_learned_by_name(learned: bool, tmp_path: Path) -> None:
    """What is learned takes 12,000 steps; that it trains, is reported and acts shows in fewer."""
    out, steps = str(tmp_path / "run"), "12k" if learned else "512"
    assert (
        main(
            [
                "train",
                "ppo",
                *SPROUTS,
                "--steps",
                steps,
                "--agent.lr",
                "3e-3",
                "--agent.std",
                "0.5",
                "--log-every",
                "512",
                "--out",
                out,
            ]
        )
        == 0
    )
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    returns = [row["return"] for row in rows if row["kind"] == "episode"]
    # 8 is the most there is
    assert np.mean(returns[:100]) < 2 and (not learned or np.mean(returns[-100:]) > 4)
    assert rows[-1]["kind"] == "train" and rows[-1]["updates"] > 0 and "policy_loss" in rows[-1]
    assert "Sprouts-v0" in (tmp_path / "run" / "report.html").read_text()
    agent, env = ten.load(out), Sprouts()
    obs, info = env.reset(seed=1)
    action = agent.act(obs, info["action_mask"])
    assert action["say"].shape == (4,) and action["number"].shape == (4, 1)
    assert not learned or np.abs(action["number"][: env.n, 0] - env.values).max() < 0.6
    both = agent.act([obs, obs], np.stack([info["action_mask"]] * 2))
    assert np.array_equal(both[0]["say"], action["say"]) and np.allclose(
        both[1]["number"], action["number"], atol=1e-5
    )


def test_graphs_of_any_size_and_gates_without_choices_are_refused() -> None:
    wide = spaces.Box(-1, 1, (2,), np.float32)
    with pytest.raises(EnvironmentFault, match="BoundedGraph"):
        observation_layout(spaces.Graph(wide, None), "World")
    with pytest.raises(EnvironmentFault, match="2 graphs"):
        observation_layout(
            spaces.Dict({"a": BoundedGraph(wide, wide, 3, 3), "b": BoundedGraph(wide, wide, 3, 3)}),
            "World",
        )
    with pytest.raises(EnvironmentFault, match="no 3 components"):
        policy_actions(
            spaces.Dict(
                {
                    "a": spaces.MultiDiscrete([2, 2]),
                    "b": Gated(np.zeros((3, 1), np.float32), np.ones((3, 1), np.float32), 1),
                }
            ),
            "World",
        )
    layout = observation_layout(BoundedGraph(wide, wide, 2, 1), "World")
    with pytest.raises(EnvironmentFault, match="3 nodes"):
        layout.encode(spaces.GraphInstance(np.zeros((3, 2)), None, None))
    with pytest.raises(ConfigError, match=r"net\.attention"):
        PPOAgent(
            PPO(net=PolicyNet(hidden=(10, 10))),
            layout,
            policy_actions(spaces.Discrete(2), "World"),
            0,
        )


def test_nodes_choose_without_a_mask_as_if_all_of_those_there_may(tmp_path: Path) -> None:
    blocks = []
    for env in ("Sprouts-v0", "OpenSprouts-v0"):
        settings = {
            "env": env,
            "num_envs": 3,
            "agent": {
                "name": "ppo",
                "horizon": 8,
                "minibatches": 2,
                "on_empty": "absent",
                "net": {"hidden": [16, 16], "activation": "relu"},
            },
        }
        place = PPOLearner(Run.of(settings))
        while place.agent.updates < 4:
            place.round()
        blocks.append(place.agent.block.clone())
    assert torch.equal(*blocks)


def test_the_compiled_engine_refuses_graphs() -> None:
    with pytest.raises(ConfigError, match="every batch of graphs has another number of nodes"):
        PPOLearner(
            Run.of(
                {
                    "env": "Sprouts-v0",
                    "engine": "compiled",
                    "agent": {
                        "name": "ppo",
                        "on_empty": "absent",
                        "horizon": 8,
                        "net": {"hidden": [16, 16]},
                    },
                }
            )
        )


def test_a_loaded_policy_draws_actions_when_asked(tmp_path: Path) -> None:
    agent = PPOAgent(
        PPO(),
        observation_layout(spaces.Box(-1, 1, (3,)), "World"),
        policy_actions(spaces.Discrete(4), "World"),
        0,
    )
    drawn = [agent.act(np.zeros(3, np.float32), sample=True) for _ in range(200)]
    assert set(drawn) == {0, 1, 2, 3}  # a first policy is nearly uniform
    assert len({agent.act(np.zeros(3, np.float32)) for _ in range(5)}) == 1


def test_gates_are_the_places_of_the_options_they_hang_on() -> None:
    actions = policy_actions(
        spaces.Dict(
            {
                "a": spaces.Discrete(2),
                "b": spaces.MultiDiscrete([3, 3]),
                "c": spaces.Box(-1, 1, (1,)),
                "d": Gated(np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32), 1),
            }
        ),
        "World",
    )
    assert actions.gates == (-1, 3, 3, 6, 6)  # options: two of a, then three and three of b
    assert graph_outputs(actions, 2).options == ((2, False), (3, True))
    assert graph_outputs(actions, 2).numbers == ((1, False), (2, True))


def place_of(env: str, **agent: object) -> PPOLearner:
    settings = {
        "env": env,
        "num_envs": 6,
        "agent": {
            "name": "ppo",
            "horizon": 8,
            "minibatches": 2,
            "squash": True,
            "on_empty": "absent",
            "net": {"hidden": [16, 16], "activation": "relu"},
            **agent,
        },
    }
    return PPOLearner(Run.of(settings))


@pytest.mark.parametrize("mode", ["ratio", "nodes"])
@pytest.mark.parametrize("entropy", [0.0, 0.01])
def test_the_ratio_is_one_before_the_first_update(mode: str, entropy: float) -> None:
    place = place_of(f"tenfold/Durotaxis-v0(mode={mode},substrate=bend)", entropy=entropy)
    while place.rollout.left > 1:
        place.round()
    engine, agent = place.engine, place.agent
    engine.explore(0, place.rounds)
    engine.finish()
    engine.rollout.order[:] = np.arange(engine.rollout.order.size)
    for part in range(2):
        batch = engine.minibatch(part)
        there = batch["weight"] > 0
        agent.online.flat_grad.zero_()
        loss, statistics = agent.loss(batch)
        loss.backward()
        assert float(statistics[4]) == 0 and float(agent.online.flat_grad.abs().max()) > 0
        if isinstance(agent.distribution, NodeDistribution):
            said, _ = agent.online.packed(batch["obs"])  # type: ignore[union-attr]
            graphs: Any = batch["obs"]
            own = (
                agent.distribution.nodes.packed(batch[name], graphs, 100)
                for name in ("chosen", "mask", "real")
            )
            both = torch.stack(agent.distribution.nodes.evaluate(said, *own), 1)
            log_p, more = segment_sum(both, graphs.owner, graphs.batch).unbind(1)
            padded, plain = agent.distribution.evaluate(agent.online(batch["obs"])[0], batch)
            assert torch.allclose(padded[:, 0], log_p, atol=2e-4) and torch.allclose(
                plain, more, atol=2e-4
            )
        else:
            log_p = agent.distribution.evaluate(agent.online(batch["obs"])[0], batch)[0][:, 0]
        assert float(((log_p.detach() - batch["log_p"][:, 0]).exp() - 1).abs()[there].max()) < 1e-5


@pytest.mark.parametrize("mode", ["ratio", "nodes"])
def test_the_divergence_is_what_samples_of_the_acting_policy_say(mode: str) -> None:
    place = place_of(f"tenfold/Durotaxis-v0(mode={mode},substrate=bend,init_nodes=3)")
    agent, times = place.agent, 5_000
    mask = None if place.envs.mask is None else place.envs.mask[:2]
    rows = torch.from_numpy(place.envs.obs[:2].copy())
    many = rows.repeat_interleave(times, 0)
    noise = torch.Generator().manual_seed(0)
    agent.online.flat.data += 0.1 * torch.randn(agent.online.flat.shape, generator=noise)
    before = old_outputs(agent, rows)
    chosen, real, log_p, *_ = agent.explore(
        many.numpy(), None if mask is None else mask.repeat(times, 0), 0
    )
    agent.online.flat.data += 0.02 * torch.randn(agent.online.flat.shape, generator=noise)
    with torch.no_grad():
        batch = {
            "obs": agent.to_net(many),
            "old_output": before.repeat_interleave(times, 0),
            "chosen": torch.from_numpy(chosen),
            "real": torch.from_numpy(real),
            "log_p": torch.from_numpy(log_p)[:, None],
        }
        allowed = None if mask is None else torch.from_numpy(mask.repeat(times, 0))
        batch |= {} if allowed is None else {"mask": allowed}
        new_log_p, _, _, kl = agent.distribution.compare(batch)
        change = new_log_p - batch["log_p"]
        padded = agent.distribution.kl(batch["old_output"], agent.online(batch["obs"])[0], allowed)
    assert torch.allclose(kl, padded, rtol=1e-4, atol=1e-5)  # of packed rows and of all places
    own, drawn = kl.view(2, times), -change.view(2, times)
    assert torch.allclose(own, own[:, :1].expand_as(own), rtol=1e-3) and bool((own > 0.05).all())
    assert bool(((own[:, 0] - drawn.mean(1)).abs() < 4 * drawn.std(1) / math.sqrt(times)).all())


def test_the_reported_entropy_is_that_of_the_squashed_action() -> None:
    reported = []
    for entropy in (0.0, 1e-9):  # without a weight fewer nodes of the quadrature do
        place = place_of("tenfold/Durotaxis-v0(substrate=bend)", entropy=entropy, std=0.5)
        while place.rollout.left > 1:
            place.round()
        place.engine.explore(0, place.rounds)
        place.engine.finish()
        reported.append(float(place.agent.loss(place.engine.minibatch(0))[1][2]))
    low, high = torch.tensor(place.agent.actions.low), torch.tensor(place.agent.actions.high)
    by_hand = squashed_entropy_reference(
        torch.zeros(5), torch.full((5,), math.log(0.5)), low, high
    ).sum()
    # the first policy is nearly the same everywhere
    assert reported == pytest.approx([float(by_hand)] * 2, abs=0.05)
    assert reported[0] == pytest.approx(reported[1], abs=1e-4)


def test_numbers_count_only_where_their_option_was_taken() -> None:
    place = place_of("tenfold/Durotaxis-v0(mode=nodes)")
    place.round()
    batch = {name: rows[:6] for name, rows in place.engine.rows.items()} | {
        "obs": place.agent.to_net(place.engine.rows["obs"][:6])
    }
    agent = place.agent
    output, _ = agent.online(batch["obs"])
    before = agent.distribution.evaluate(output, batch)[0]
    moved = dict(batch)
    chosen, there = batch["chosen"], batch["mask"].view(6, 100, 3).any(-1)
    spawning = ((chosen == 0) & there)[..., None].expand(6, 100, 4).reshape(6, 400)
    moved["real"] = torch.where(spawning, batch["real"], batch["real"] + 1)
    assert torch.equal(agent.distribution.evaluate(output, moved)[0], before)
    moved["real"] = torch.where(spawning, batch["real"] + 1, batch["real"])
    assert (agent.distribution.evaluate(output, moved)[0] != before)[spawning.any(1)].all()


def test_each_component_has_a_value_and_their_advantages_add_up() -> None:
    place = place_of("tenfold/Durotaxis-v0(substrate=linear)", normalize_advantage=False)
    while place.rollout.left > 1:
        place.round()
    rollout, engine = place.rollout, place.engine
    place.envs.step(engine.explore(0, place.rounds))
    engine.store()
    engine.finish()
    weights = place.envs.component_weights
    assert weights is not None and rollout.value.shape == (8, 6, 1 + len(weights))
    assert np.allclose(rollout.rewards[..., 1:] @ weights, rollout.rewards[..., 0], atol=1e-5)
    assert np.allclose(rollout.advantages[..., 1:] @ weights, rollout.advantage, atol=1e-4)
    assert np.allclose(rollout.target, rollout.advantages + rollout.value)
    batch = engine.minibatch(0)
    engine.agent.online.flat_grad.zero_()
    engine.agent.loss(batch)[0].backward()
    head = engine.agent.online.value_head.weight.grad  # type: ignore[union-attr]
    assert (head.abs().amax(1) > 0).all()


TINY = [
    "--num-envs",
    "4",
    "--agent.horizon",
    "16",
    "--agent.net.hidden",
    "16,16",
    "--agent.minibatches",
    "2",
    "--log-every",
    "64",
    "--checkpoint-every",
    "128",
    "--quiet",
]


@pytest.mark.parametrize("preset", ["durotaxis-bend", "durotaxis-nodes"])
def test_a_colonys_run_resumed_is_one_that_never_stopped(preset: str, tmp_path: Path) -> None:
    command = ["train", preset, *TINY, "--eval-every", "0"]
    assert main([*command, "--steps", "200", "--out", str(tmp_path / "whole")]) == 0
    assert main([*command, "--steps", "100", "--out", str(tmp_path / "halves")]) == 0
    assert main(["resume", str(tmp_path / "halves"), "--steps", "200", "--quiet"]) == 0
    one, other = (ten.load(tmp_path / name) for name in ("whole", "halves"))
    assert np.array_equal(one.online.flat.numpy(), other.online.flat.numpy())


@pytest.mark.usefixtures("pictures")
def test_a_colony_is_evaluated_elsewhere_with_tables_and_pictures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert (
        main(
            [
                "train",
                "durotaxis",
                *TINY,
                "--steps",
                "256",
                "--eval-every",
                "128",
                "--eval-episodes",
                "4",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    assert "success" in capsys.readouterr().out
    elsewhere = [
        "--substrate",
        "exponential",
        "--size",
        "300x200",
        "--nodes",
        "12",
        "--deterministic",
    ]
    assert (
        main(["eval", str(out), "--episodes", "3", "--checkpoint", "best", *elsewhere, "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert (
        "size=300x200" in found["env"]
        and "init_nodes=12" in found["env"]
        and "rounding=floor" in found["env"]
    )
    assert found["policy"] == "greedy" and set(found["yardsticks"]) == {
        "untrained",
        "random",
        "follower",
        "constant",
    }
    assert found["yardsticks"]["follower"]["success_rate"] > 0.9
    folder = Path(found["folder"])
    assert (
        folder.parent == out / "eval"
        and (folder / "colony.gif").stat().st_size > 1000
        and (folder / "paths.png").exists()
    )
    lines = (folder / "trajectories.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 + sum(found["lengths"])  # a head, and each episode's first state
    each = json.loads((folder / "episodes.json").read_text())["each"]
    assert len(each) == 3 and 0 <= each[0]["delete_ratio"] <= 1 and 0.5 <= each[0]["gamma"] <= 15
    assert main(["report", str(out)]) == 0
    page = (out / "report.html").read_text()
    assert (
        "Components" in page
        and "Evaluation: exponential, 300x200, 12 nodes, deterministic, checkpoint of step " in page
        and '"title":"reward: distance"' in page
    )
    logged = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    parts = next(
        row for row in reversed(logged) if row["kind"] == "train" and "reward/distance" in row
    )
    assert 0.5 <= parts["action/gamma"] <= 15 and parts["reward/survival"] <= 1
    assert all("success" in row for row in logged if row["kind"] == "episode")


def test_other_runs_have_no_substrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["train", "cartpole", "--steps", "64", "--out", out, "--quiet"]) == 0
    assert main(["eval", out, "--substrate", "bend"]) == 2
    assert "are for colonies" in capsys.readouterr().err


def test_presets_of_colonies_are_whole() -> None:
    from tenfold.config.files import presets

    for name in ("durotaxis", "durotaxis-bend", "durotaxis-nodes", "durotaxis-bend-nodes"):
        assert Run.of(read_yaml(presets()[name])).agent.squash  # type: ignore[union-attr]
