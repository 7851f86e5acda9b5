"""An exported policy does what the agent does, on observations as the environment gives them."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from exporting import agent_for, written

from tenfold.config.run import Run
from tenfold.envs.making import make_env
from tenfold.ops.head_tables import some_mask
from tenfold.training.learners import agent_of

COUNT = 1000
SMALL = {"net": {"hidden": [16, 16]}}
SLOW = pytest.mark.slow  # each takes seconds to trace; those that are not cover every layer once

Q = {"name": "dqn", **SMALL}
PPO = {"name": "ppo", **SMALL}
SAC = {"name": "sac", **SMALL}
WEB = {"name": "ppo", "on_empty": "absent", "net": {"hidden": [8, 8], "attention": 2}}
NODES = "tenfold/Durotaxis-v0(mode=nodes, max_nodes=20)"


def observations(env: str, count: int) -> list[Any]:
    space = make_env(env).observation_space
    space.seed(1)
    return [space.sample() for _ in range(count)]


def leaves(action: Any) -> list[np.ndarray]:
    if isinstance(action, dict):
        return [leaf for own in action.values() for leaf in leaves(own)]
    if isinstance(action, tuple):
        return [leaf for own in action for leaf in leaves(own)]
    return [np.asarray(action)]


def assert_equal(found: list[Any], expected: Any) -> None:
    """Choices exactly, but for one in a thousand whose two best are equal within rounding; real
    numbers closely. Types and shapes are the space's."""
    assert len(found) == len(expected)
    others = 0
    for one, other in zip(found, expected, strict=True):
        for own, wanted in zip(leaves(one), leaves(other), strict=True):
            assert own.shape == wanted.shape and own.dtype == wanted.dtype
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-5)
            else:
                others += not np.array_equal(own, wanted)
    assert others <= len(found) / 1000


def adds_without_a_lock(file: Path) -> list[str]:
    """Nodes that ONNX Runtime may compute wrongly in several threads, now and then."""
    import onnx

    return [
        node.name
        for node in onnx.load(file).graph.node
        for attribute in node.attribute
        if node.op_type == "ScatterND" and attribute.name == "reduction" and attribute.s != b"none"
    ]


CASES = [
    pytest.param("CartPole-v1", Q, id="vector", marks=SLOW),
    pytest.param("CartPole-v1", Q | {"distribution": "quantile(7)"}, id="quantile", marks=SLOW),
    pytest.param("CartPole-v1", Q | {"explore": "noisy"}, id="noisy", marks=SLOW),
    pytest.param("CartPole-v1", Q | {"distribution": "implicit", "explore": "noisy", "dueling": True}, id="implicit"),
    pytest.param("CartPole-v1", Q | {"distribution": "categorical(7)", "dueling": True}, id="categorical", marks=SLOW),
    pytest.param("Taxi-v3", Q, id="masked values", marks=SLOW),
    pytest.param("tenfold/Catch-v0", Q | {"distribution": "quantile(5)"}, id="image"),
    pytest.param("tenfold/Catch-v0", Q | {"distribution": "implicit"}, id="implicit image", marks=SLOW),
    pytest.param("shipping/Numbered-v0", Q, id="one-hot", marks=SLOW),
    pytest.param("CartPole-v1", PPO, id="discrete policy", marks=SLOW),
    pytest.param("Pendulum-v1", PPO, id="continuous", marks=SLOW),
    pytest.param("Pendulum-v1", PPO | {"squash": True, "normalize_obs": True}, id="squashed", marks=SLOW),
    pytest.param("Pendulum-v1", SAC, id="soft actor-critic"),
    pytest.param("shipping/Numbered-v0", SAC, id="discrete soft actor-critic", marks=SLOW),
    pytest.param("tenfold/Catch-v0", SAC, id="image actor-critic", marks=SLOW),
    pytest.param("Pendulum-v1", SAC | {"name": "td3"}, id="td3", marks=SLOW),
    pytest.param("shipping/Mixed-v0", PPO | {"normalize_obs": True}, id="mixed, masked"),
    pytest.param("tenfold/Catch-v0", PPO, id="image policy", marks=SLOW),
    pytest.param("tenfold/Catch-v0", PPO | {"net": {"hidden": [8, 5], "shared_body": True, "activation": "gelu"}}, id="shared body"),
    *(
        pytest.param("CartPole-v1", PPO | {"net": {"hidden": [8], "value_hidden": [], "activation": name}}, id=name, marks=SLOW)
        for name in ("silu", "selu", "leaky_relu")
    ),
    pytest.param("shipping/Web-v0", WEB | {"squash": True, "net": {"hidden": [8], "attention": 2}}, id="graph"),
    pytest.param("shipping/Web-v0", WEB, id="deeper graph", marks=SLOW),
]  # fmt: skip


@pytest.mark.parametrize(("env", "settings"), CASES)
def test_onnx_runtime_does_what_the_agent_does(
    env: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    seen = observations(env, COUNT)
    mask = np.stack([one["action_mask"] for one in seen]) if "Mixed" in env else None
    if mask is not None:
        mask[:, [0, 3, 5, 9, 11]] = 1
    whole = np.stack(seen) if isinstance(seen[0], np.ndarray) else seen
    for seed in range(9):
        run, agent = agent_for(env, settings, seed)
        expected = agent.act(whole, mask)
        if len({str(one) for one in expected}) > 1:
            break  # a network that says something
    else:
        pytest.fail("no network says anything")
    policy = written(run, agent, tmp_path / "policy.onnx")
    assert not adds_without_a_lock(tmp_path / "policy.onnx")
    assert_equal(policy.act(seen, mask), expected)
    for batch in (1, 2):
        own = None if mask is None else mask[:batch]
        assert_equal(policy.act(seen[:batch], own), expected[:batch])


def test_frames_of_a_policy_and_normalised_ones_of_q_learning_are_exported(tmp_path: Path) -> None:
    """With statistics that matter: of observations far from zero."""
    stacks = np.stack(observations("CartPole-v1", 3 * COUNT)).reshape(COUNT, 3, 4)
    for settings in (PPO, Q):
        more = {"frames": 3, "normalize_obs": True}
        run = Run.of({"env": "CartPole-v1", "agent": settings} | more)
        agent = agent_of(run)
        agent.norm.update(stacks.reshape(-1, agent.norm.size) * 3 + 5)
        policy = written(run, agent, tmp_path / "policy.onnx")
        assert [port["shape"] for port in policy.inputs] == [["batch", 3, 4]]
        assert_equal(policy.act(list(map(list, stacks))), agent.act(stacks))


@pytest.mark.slow
def test_masks_of_many_components_are_heeded(tmp_path: Path) -> None:
    """Ragged and equal ones, on jobs that machines choose among and on an assignment."""
    for env in ("tenfold/Assign-v0", "tenfold/JobShop-v0"):
        run, agent = agent_for(env, PPO)
        policy = written(run, agent, tmp_path / "policy.onnx")
        seen = observations(env, COUNT)
        mask = some_mask(np.random.default_rng(0), agent.actions.sizes, (COUNT,), False).numpy()
        assert_equal(policy.act(seen, mask), agent.act(np.stack(seen), mask))


def test_the_example_takes_masks_nested_as_the_actions_are(tmp_path: Path) -> None:
    run, agent = agent_for("shipping/Mixed-v0", PPO)
    policy = written(run, agent, tmp_path / "policy.onnx")
    rng = np.random.default_rng(1)
    seen = observations(run.env, COUNT)
    masks = []
    for k in range(COUNT):
        go = tuple(one_allowed(rng, n) for n in (3, 2)) if k % 3 else None
        then = (one_allowed(rng, 4), rng.integers(0, 3, 2).astype(np.int8))
        masks.append({"go": go, "push": None, "then": then})
    seen = [{key: own for key, own in one.items() if key != "action_mask"} for one in seen]
    expected = agent.act(seen, masks)
    assert_equal(policy.act(seen, masks), expected)
    for action, mask in zip(expected, masks, strict=True):
        assert mask["then"][0][action["then"][0] + 2] == 1
        assert ((mask["then"][1] == 2) | (mask["then"][1] == action["then"][1])).all()
        if mask["go"]:
            assert mask["go"][0][action["go"][0] - 1] == mask["go"][1][action["go"][1]] == 1
    with pytest.raises(ValueError, match=r"takes action masks: give masks=…, or None"):
        policy.act(seen)
    free = agent.act(seen, None)
    assert_equal(policy.act(seen, None), free)
    assert any(str(one) != str(other) for one, other in zip(free, expected, strict=True))


def one_allowed(rng: np.random.Generator, options: int) -> np.ndarray:
    mask = rng.integers(0, 2, options).astype(np.int8)
    mask[rng.integers(options)] = 1
    return mask


def test_frames_and_masks_are_inputs_of_q_learning_too(tmp_path: Path) -> None:
    run, agent = agent_for("CartPole-v1", Q | {"frames": 3})
    policy = written(run, agent, tmp_path / "policy.onnx", mask=True)
    assert [port["shape"] for port in policy.inputs] == [["batch", 3, 4], ["batch", 2]]
    stacks = np.stack(observations("CartPole-v1", 3 * COUNT)).reshape(COUNT, 3, 4)
    mask = some_mask(np.random.default_rng(0), (2,), (COUNT,), False).numpy()
    found = policy.act(list(map(list, stacks)), mask)
    assert_equal(found, agent.act(stacks, mask))
    assert (mask[np.arange(COUNT), found]).all()
    none = np.zeros((2, 2), np.bool_)
    assert policy.act(list(map(list, stacks[:2])), none) == [0, 0]  # a file cannot refuse


@pytest.mark.slow
def test_frames_of_discrete_observations_are_one_hot_each(tmp_path: Path) -> None:
    run, agent = agent_for("shipping/Numbered-v0", Q | {"frames": 2})
    policy = written(run, agent, tmp_path / "policy.onnx")
    seen = observations("shipping/Numbered-v0", 2 * COUNT)
    stacks = [seen[2 * i : 2 * i + 2] for i in range(COUNT)]
    rows = np.stack([[agent.layout.encode(one) for one in stack] for stack in stacks])
    assert_equal(policy.act(stacks), agent.act(rows))


@pytest.mark.slow
@pytest.mark.parametrize("env", ["tenfold/TreasureSmall-v0", "pettingzoo/mpe2.simple_spread_v3"])
def test_a_team_is_one_file(env: str, tmp_path: Path) -> None:
    run, agent = agent_for(env, Q)
    policy = written(run, agent, tmp_path / "policy.onnx")
    rng = np.random.default_rng(0)
    shape = (agent.members, COUNT, *agent.layout.shape)
    seen = rng.integers(0, 2, shape).astype(agent.layout.dtype)
    found = policy.act(seen)
    assert policy.about["agents"] == agent.members > 1
    assert_equal([one for own in found for one in own], agent.act(seen).ravel())


class Given:
    """Numbers that were drawn before."""

    def __init__(self, uniform: np.ndarray, normal: np.ndarray) -> None:
        self.uniform, self.numbers = uniform, normal

    def random(self, shape: Any) -> np.ndarray:
        return self.uniform

    def normal(self, size: Any) -> np.ndarray:
        return self.numbers


DRAWN = [
    pytest.param("shipping/Mixed-v0", PPO, id="mixed, masked"),
    pytest.param("Pendulum-v1", PPO | {"squash": True}, id="squashed", marks=SLOW),
    pytest.param("CartPole-v1", PPO, id="discrete", marks=SLOW),
    pytest.param("shipping/Web-v0", WEB, id="graph", marks=SLOW),
]


@pytest.mark.parametrize(("env", "settings"), DRAWN)
def test_the_same_numbers_draw_the_same_actions(
    env: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    run, agent = agent_for(env, settings)
    policy = written(run, agent, tmp_path / "policy.onnx", sample=True)
    seen = observations(env, COUNT)
    mask = np.stack([one["action_mask"] for one in seen]) if "Mixed" in env else None
    if mask is not None:
        mask[:, [0, 3, 5, 9, 11]] = 1
    policy.rng = Given(*agent.draws(COUNT, 0))
    whole = isinstance(seen[0], np.ndarray)
    expected = agent.act(np.stack(seen) if whole else seen, mask, sample=True)
    assert_equal(policy.act(seen, mask), expected)
    greedy = agent.act(np.stack(seen) if whole else seen, mask)
    assert any(str(one) != str(other) for one, other in zip(expected, greedy, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("sample", [False, True])
def test_colonies_with_a_choice_at_every_node(sample: bool, tmp_path: Path) -> None:
    """A domain's own graphs, from episodes that are played at random."""
    run, agent = agent_for(NODES, WEB | {"squash": True})
    policy = written(run, agent, tmp_path / "policy.onnx", sample=sample)
    env = gym.make("tenfold/Durotaxis-v0", mode="nodes", max_nodes=20)
    seen, masks = [], []
    obs, info = env.reset(seed=0)
    env.action_space.seed(0)
    rng = np.random.default_rng(0)
    while len(seen) < COUNT:
        seen.append(obs)
        masks.append(info["action_mask"])
        allowed = masks[-1].reshape(20, 3)
        action = env.action_space.sample()
        action["choice"] = (allowed * rng.random(allowed.shape)).argmax(-1)
        obs, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            obs, info = env.reset()
    mask = np.stack(masks)
    policy.rng = Given(*agent.draws(COUNT, 0))
    assert_equal(policy.act(seen, mask), agent.act(seen, mask, *([True] if sample else [])))


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    run, agent = agent_for("shipping/Mixed-v0", PPO)
    about = written(run, agent, tmp_path / "policy.onnx").about
    assert json.loads(json.dumps(about)) == about
    assert about["observation_space"]["spaces"]["kind"] == {"type": "Discrete", "n": 4, "start": 2}
    assert about["action_space"]["spaces"]["push"]["high"] == [1.0, pytest.approx(0.1), None]
    assert [port["name"] for port in about["inputs"]] == [
        "obs.far", "obs.kind", "obs.more.0", "obs.more.1", "obs.picture", "mask",
    ]  # fmt: skip
    assert {port["name"]: port["shape"] for port in about["outputs"]} == {
        "action.go": ["batch", 2],
        "action.push": ["batch", 3],
        "action.then.0": ["batch"],
        "action.then.1": ["batch", 2],
    }
    assert len(about["settings_sha256"]) == 64 and about["step"] == 5
    content = (tmp_path / "policy.onnx").read_bytes()
    for place in (str(Path(__file__).parent.parent.parent), "site-packages"):
        assert place.encode() not in content  # nothing of the machine it was made on
