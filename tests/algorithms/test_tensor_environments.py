"""Environments of tensors: what is learned on their device is what the plain engines learn on the
host; the conventions of simulators; what is refused."""

import math
from collections import Counter
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import drifting
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tenfold as ten
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.algorithms.off_policy_tensors import TensorOffPolicyLearner
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.algorithms.ppo_tensors import CudaGraphTensorPPO, TensorPPOLearner
from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.core.random import uniform_torch
from tenfold.engines.tensor_off_policy import CudaGraphTensorActorCritic
from tenfold.envs.tensor_episodes import TensorEpisodes
from tenfold.envs.tensor_sources import IDLE, TRAINING
from tenfold.envs.tensors import TensorStep, adapt
from tenfold.memory.tensor_replay import TensorReplay
from tenfold.memory.tensor_rollout import TensorRollout
from tenfold.training.learners import make_learner

SMALL = {"net": {"hidden": [8]}}
PPO_SETTINGS = {"name": "ppo", "horizon": 12, "minibatches": 3, "epochs": 2, **SMALL}
REPLAYED = {"batch_size": 8, "learning_starts": 12, "every": 6, "capacity": 600, **SMALL}


@pytest.fixture(autouse=True)
def nothing_open(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(drifting.__file__).rpartition("/")[0])
    yield
    left = list(TRAINING)
    TRAINING.clear(), IDLE.clear()
    assert not left


def run_of(agent: dict[str, Any], kind: str = "given", actions: str = "box", **more: Any) -> Any:
    env = f"drifting:make(kind={kind},actions={actions})"
    return ten.Run.of(
        {"env": env, "num_envs": 6, "agent": agent, "seed": 3, "engine": "plain"} | more
    )


def rounds(learner: Any, steps: int) -> list[Any]:
    episodes = []
    while learner.step < steps:
        episodes += learner.round()
    return episodes


def equal(first: Any, second: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(
        torch.as_tensor(first), torch.as_tensor(second), rtol=tolerance, atol=tolerance
    )


# equal to the host


@pytest.mark.parametrize(
    ("kind", "actions", "more"),
    [
        ("given", "box", {}),
        ("missing", "discrete", {"normalize_obs": True}),
        ("info", "box", {"normalize_obs": True, "squash": True, "reward_scale": 0.5}),
        ("four", "free", {"target_kl": 0.01, "normalize_advantage": False}),
    ],
)
def test_a_phase_of_ppo_is_the_one_on_the_host(kind: str, actions: str, more: Any) -> None:
    """Actions, advantages, updates, statistics of observations and episodes, of two phases."""
    run = run_of(PPO_SETTINGS | more, kind, actions)
    on_device, on_host = TensorPPOLearner(run), PPOLearner(run)
    for phase in (1, 2):
        here, there = (rounds(one, phase * 72) for one in (on_device, on_host))
        memory, rollout = on_device.memory, on_host.rollout
        assert rollout.boundary.any() and not rollout.boundary.all()
        for name in ("obs", "chosen", "real", "log_p", "reward", "discount", "boundary"):
            equal(getattr(memory, name), getattr(rollout, name))
        equal(memory.target, rollout.target, 1e-4)
        equal(memory.advantage, rollout.advantage, 1e-3)
        equal(on_device.agent.online.flat, on_host.agent.online.flat, 1e-4)
        assert here and [(e.env, e.length) for e in here] == [(e.env, e.length) for e in there]
        equal([e.ret for e in here], [e.ret for e in there])
        if on_host.agent.norm:
            equal(on_device.agent.norm.moments, on_host.agent.norm.moments, 1e-4)
    metrics, expected = on_device.statistics(), on_host.statistics()
    assert set(metrics) == set(expected) and on_device.agent.updates == on_host.agent.updates
    equal(list(metrics.values()), list(expected.values()), 1e-3)
    on_device.close(), on_host.close()


@pytest.mark.parametrize(
    ("name", "kind", "actions", "more"),
    [
        ("sac", "given", "box", {}),
        ("sac", "missing", "discrete", {"n_step": 3}),
        ("td3", "four", "box", {}),
        ("td3", "info", "box", {"normalize_obs": True, "n_step": 2}),
    ],
)
def test_updates_from_the_replay_are_those_on_the_host(
    name: str, kind: str, actions: str, more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are drawn otherwise there: the host is given those that were drawn here, by their
    step and world, and finds observations and returns in its own memory."""
    run = run_of({"name": name, **REPLAYED, **more}, kind, actions)
    on_device, on_host = TensorOffPolicyLearner(run), OffPolicyLearner(run)
    replay, memory = on_host.replay, on_device.memory
    drawn: list[np.ndarray] = []

    def sample(draw: int, oldest: int, rows: int) -> Any:
        u = uniform_torch(memory.stream, draw * memory.batch_size + memory.items)
        choice = (u * (rows * memory.num_envs)).long().numpy()
        t, lane = choice // memory.num_envs, choice % memory.num_envs
        ends = memory.boundary.numpy().cumsum(0) - memory.boundary.numpy()
        drawn.append(lane * replay.lane_rows + t + ends[t, lane].astype(int))
        return TensorReplay.sample(memory, draw, oldest, rows)

    def same_rows(beta: float) -> Any:
        replay.batch.row[:] = drawn.pop(0)
        replay.batch.weight[:] = 1
        return replay.gather()

    monkeypatch.setattr(memory, "sample", sample)
    monkeypatch.setattr(replay, "sample", same_rows)
    for steps in range(6, 150, 6):
        here, there = rounds(on_device, steps), rounds(on_host, steps)
        assert [(e.env, e.length) for e in here] == [(e.env, e.length) for e in there]
    assert on_device.agent.updates == on_host.agent.updates > 15 and memory.boundary.any()
    equal(memory.action[:20].flatten(0, 1)[:6], memory.action[0])
    equal(on_device.agent.online.flat, on_host.agent.online.flat, 1e-3)
    equal(on_device.agent.target.flat, on_host.agent.target.flat, 1e-3)
    metrics, expected = on_device.statistics(), on_host.statistics()
    equal(list(metrics.values()), list(expected.values()), 1e-3)
    on_device.close(), on_host.close()


def step_of(reward: list[float], terminated: list[int], truncated: list[int], final: Any) -> Any:
    ends = (torch.tensor(flags, dtype=torch.bool) for flags in (terminated, truncated))
    return TensorStep(torch.zeros(3, 1), torch.tensor(reward), *ends, final)


def test_a_time_limit_is_bootstrapped_from_the_last_observation_or_the_one_acted_on() -> None:
    """Worked out by hand: r = 1, γ = 0.99, V(s) = 5, V(final) = 4, V(next reset) = 0. World 0 is
    cut: δ = 1 + 0.99·4 − 5 = −0.04; without the final observation 1 + 0.99·5 − 5 = 0.95. World 1
    terminates: 1 − 5 = −4. World 2 goes on to V = 2: 1 + 0.99·2 − 5 = −2.02."""
    config = ten.PPO(horizon=1, normalize_advantage=False, gamma=0.99, minibatches=1)
    actions: Any = SimpleNamespace(sizes=(), low=(-1.0,))
    for final_value, expected in ((torch.full((3,), 4.0), -0.04), (None, 0.95)):
        rollout = TensorRollout(config, 1, actions, 3, torch.device("cpu"))
        rollout.value[0] = 5.0
        rollout.add(step_of([1.0] * 3, [0, 1, 0], [1, 0, 0], None), final_value)
        rollout.finish(torch.tensor([0.0, 0.0, 2.0]))
        equal(rollout.advantage[0], torch.tensor([expected, -4.0, -2.02]))


def test_the_replay_follows_the_last_observation_or_the_one_acted_on() -> None:
    settings = ten.SAC(capacity=9, batch_size=4, gamma=0.9)
    replay = TensorReplay(settings, 1, 3, 1, 0, torch.device("cpu"))
    obs, action = torch.full((3, 1), 7.0), torch.zeros(3, 1)
    for final in (torch.full((3, 1), 4.0), None):
        replay.add(obs, action, step_of([1.0] * 3, [0, 1, 0], [1, 0, 0], final))
    assert replay.next_obs[:2, :, 0].tolist() == [[4, 4, 0], [7, 7, 0]]
    equal(replay.discount[0], torch.tensor([0.9, 0.0, 0.9]))
    replay.cut()  # the worlds were reset: nothing goes on beyond that
    assert replay.boundary[1].tolist() == [1, 1, 1] and replay.rows == 2


def test_returns_of_several_steps_end_where_the_ring_does() -> None:
    """Three steps of one world in a ring of four, after six: the oldest is the third."""
    settings = ten.SAC(capacity=4, batch_size=4, gamma=0.5, n_step=2)
    replay = TensorReplay(settings, 1, 1, 1, 0, torch.device("cpu"))
    for k in range(6):
        ends = [int(k == 4)]
        obs = torch.full((1, 1), float(k))
        step = TensorStep(
            obs + 1,
            torch.tensor([float(k)]),
            torch.tensor(ends) > 0,
            torch.tensor([False]),
            obs + 1,
        )
        replay.add(obs, torch.zeros(1, 1), step)
    assert (replay.oldest, replay.rows) == (2, 3)
    rows = set()
    for draw in range(20):
        batch = replay.sample(draw, replay.oldest, replay.rows)
        columns = [batch[n].view(-1).tolist() for n in ("obs", "reward", "discount", "next_obs")]
        rows |= set(zip(*columns, strict=True))
    assert rows == {(2.0, 3.5, 0.25, 4.0), (3.0, 5.0, 0.0, 5.0), (4.0, 4.0, 0.0, 5.0)}


# graphs


def learner_by(kind: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A learner whose engine is that of a GPU: on the CPU what it would record is done anew."""

    def chosen(run: Any, *parts: Any, table: Any) -> Any:
        engine = kind(*parts)
        engine.prepare(run)
        return engine, "cudagraph, uncaptured"

    monkeypatch.setattr("tenfold.algorithms.tensor_learner.choose_engine", chosen)
    return make_learner(run)


@pytest.mark.parametrize("more", [{}, {"normalize_obs": True, "target_kl": 0.02, "minibatches": 5}])
def test_what_a_graph_records_of_ppo_is_the_plain_engine(
    more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(PPO_SETTINGS | more)
    plain, recorded = TensorPPOLearner(run), learner_by(CudaGraphTensorPPO, run, monkeypatch)
    learners = [plain, recorded]
    for phase in (1, 2, 3):
        [rounds(one, phase * 72) for one in learners]
        equal(recorded.memory.target, learners[0].memory.target, 1e-4)
        equal(recorded.agent.online.flat, learners[0].agent.online.flat, 1e-4)
    equal(list(recorded.statistics().values()), list(learners[0].statistics().values()), 1e-3)
    [one.close() for one in learners]


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("sac", {"updates": 11}),
        ("td3", {"every": 2, "normalize_obs": True}),
        ("td3", {"n_step": 3}),
    ],
)
def test_what_a_graph_records_of_updates_is_the_plain_engine(
    name: str, more: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of({"name": name, **REPLAYED, **more})
    plain = TensorOffPolicyLearner(run)
    recorded = learner_by(CudaGraphTensorActorCritic, run, monkeypatch)
    learners = [plain, recorded]
    [rounds(one, 60) for one in learners]
    assert recorded.agent.updates == learners[0].agent.updates > 5
    equal(recorded.agent.online.flat, learners[0].agent.online.flat, 1e-4)
    equal(recorded.agent.target.flat, learners[0].agent.target.flat, 1e-4)
    equal(list(recorded.statistics().values()), list(learners[0].statistics().values()), 1e-3)
    [one.close() for one in learners]


class Waiting(TorchDispatchMode):
    """Counts what makes the host wait for a device."""

    NAMES = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal")

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.name().removeprefix("aten::").partition(".")[0]
        self.counts[name] += name in self.NAMES
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["ppo", "sac", "td3"])
def test_nobody_waits_for_the_device_in_a_round(name: str) -> None:
    """Readings are few, and as many for 8 steps as for 32."""
    waited = []
    for steps in (8, 32):
        agent = (
            {"name": "ppo", **SMALL, "horizon": steps, "minibatches": 2}
            if name == "ppo"
            else {"name": name, **REPLAYED}
        )
        learner = make_learner(run_of(agent))
        if name != "ppo":
            learner.round(60)
        with Waiting() as waiting:
            learner.round(learner.step + 6 * steps)
        waited.append(sum(waiting.counts.values()))
        learner.close()
    assert waited[0] == waited[1] < 4


# conventions


@pytest.mark.parametrize(
    ("kind", "like"),
    [("info", "given"), ("arrays", "given"), ("groups", "missing"), ("four", "missing")],
)
def test_simulators_of_other_conventions_are_the_same_worlds(kind: str, like: str) -> None:
    agents = []
    for one in (kind, like):
        learner = make_learner(run_of(PPO_SETTINGS, one, "free"))
        rounds(learner, 144)
        agents.append(learner.agent.online.flat)
        notes = " ".join(learner.description.notes)
        assert ("last observation" in notes) == (like == "missing")
        learner.close()
    equal(*agents)


def test_other_arrays_are_handed_over_where_they_lie() -> None:
    obs = np.zeros((2, 3), np.float32)
    env = SimpleNamespace(
        num_envs=2,
        single_action_space=drifting.SPACES["box"],
        reset=lambda: obs,
        step=lambda action: (obs, obs[:, 0], obs[:, 0] > 1, obs[:, 0] > 1, None),
    )
    worlds = adapt(env)
    assert worlds.reset(0).data_ptr() == obs.ctypes.data and not worlds.gives_final


def broken(**changes: Any) -> Any:
    env = drifting.make()
    for name, value in changes.items():
        setattr(env, name, value)
    return env


def returning(position: int, value: Any) -> Any:
    env = drifting.make()
    step = env.step

    def altered(action: torch.Tensor) -> Any:
        values = list(step(action))
        values[position] = value(values[position]) if callable(value) else value
        return tuple(values)

    env.step = altered
    return env


META = torch.device("meta")


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (broken(num_envs="six"), "num_envs is 'six', and must be the number of its worlds"),
        (broken(single_action_space=None), "has no action space: set single_action_space"),
        (broken(num_envs=7, reset=lambda seed: torch.zeros(6, 3)), r"an observation is \[6, 3\], and must be \[7, D\]"),
        (broken(single_observation_space=drifting.SPACES["box"]), r"observations are \[6, 3\], and the space says \[2\]"),
        (broken(metadata={"autoreset_mode": drifting.gym.vector.AutoresetMode.NEXT_STEP}), "autoreset_mode NEXT_STEP: make it with SAME_STEP"),
        (broken(step=lambda action: None), r"step must return \(obs, reward, terminated"),
        (broken(step=lambda action: 1 / 0), "step raised ZeroDivisionError: division by zero in test_tensor"),
        (returning(0, {"camera": 1, "state": 2}), "a dict of camera, state, and the key policy"),
        (returning(0, lambda obs: obs[:, 0]), r"an observation is \[6\], and must be \[6, 3\]"),
        (returning(1, 0.0), "the reward is of type float, and must be a torch tensor"),
        (returning(1, lambda reward: reward[:2]), r"the reward is \[2\], and must be \[6\]"),
        (returning(2, lambda ends: ends.to(META)), "the end of episodes is on meta, and observations are on cpu"),
        (returning(4, lambda last: {"final_obs": [None] * 6}), "the observation is of type list"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_before_a_run_begins(env: Any, sentence: str) -> None:
    with pytest.raises(EnvironmentFault, match=sentence):
        adapt(env, "mine")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"agent": {"name": "dqn"}}, "agent = dqn is not for environments of tensors, such as .*: train ppo, sac, td3"),
        ({"actors": 2}, "actors = 2 is not for environments of tensors"),
        ({"action_repeat": 2}, "action_repeat = 2 is not for environments of tensors"),
        ({"frames": 3}, "frames = 3 is not for environments of tensors"),
        ({"clip_reward": 1.0}, "clip_reward = 1 is not for environments of tensors"),
        ({"verify": 5}, "verify = 5 is not for environments of tensors"),
        ({"agent": {**PPO_SETTINGS, "net": {"memory": "gru(8)"}}}, "agent.net.memory = gru"),
        ({"agent": {**PPO_SETTINGS, "baseline": "counterfactual"}}, "agent.baseline = counterfactual"),
        ({"agent": {"name": "sac", "replay": "prioritized"}}, "agent.replay = prioritized is not for"),
        ({"agent": {"name": "sac", "capacity": 300, "n_step": 60}, "num_envs": 1, "env": "drifting:many"}, "too few for agent.n_step = 60"),
        ({"engine": "fused"}, "engine = fused is none of ppo's for environments of tensors: there are cudagraph, plain and auto"),
        ({"env": "drifting:make(num_envs=6)", "num_envs": 4}, "num_envs = 4 is not what .* has, 6 worlds: leave it out"),
        ({"env": "drifting:KINDS.get"}, "drifting:KINDS.get cannot be made"),
        ({"env": "drifting:Box"}, "drifting:Box cannot be made"),
        ({"env": "drifting:make(actions=free)", "agent": {"name": "sac"}}, "has actions without bounds"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused_with_a_sentence(changes: Any, sentence: str) -> None:
    run = run_of(**({"agent": PPO_SETTINGS} | changes))
    with pytest.raises((ConfigError, EnvironmentFault), match=sentence):
        make_learner(run)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there it is another sentence")
def test_tensors_on_another_device_than_the_networks_are_refused() -> None:
    env = broken()
    env.reset = lambda seed=None: torch.zeros(6, 3, device=META)
    step = env.step
    drifting.Drifting.reset(env)
    env.step = lambda action: tuple(value.to(META) for value in step(torch.zeros(6, 2)))
    run = ten.Run(env=env, agent=ten.PPO(), device="cpu")
    with pytest.raises(
        ConfigError, match=r"device = cpu, and the tensors of own/Drifting.* are on meta"
    ):
        make_learner(run)


@pytest.mark.parametrize("what", ["reward", "observation"])
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_numbers_that_are_not_finite_are_told_with_their_world(what: str, name: str) -> None:
    env, spoiled = drifting.make(), []
    step = env.step

    def spoil(action: torch.Tensor) -> Any:
        values = list(step(action))
        if spoiled:
            values[what == "reward"][2] = math.nan
        return tuple(values)

    env.step = spoil
    agent = (
        ten.PPO(horizon=4, minibatches=1) if name == "ppo" else ten.SAC(capacity=60, batch_size=4)
    )
    learner = make_learner(ten.Run(env=env, agent=agent))
    learner.round(24)
    spoiled.append(1)
    with (
        closing(learner),
        pytest.raises(
            EnvironmentFault,
            match=f"own/Drifting.*, world 2: the {what} is not finite .between steps 24 and 30",
        ) as caught,
    ):
        learner.round(48)
    assert caught.value.certain


def test_a_policy_that_diverged_may_be_the_cause_where_all_worlds_are_spoiled_at_once() -> None:
    episodes = TensorEpisodes("worlds", 3, 4, torch.device("cpu"))
    no, obs = torch.zeros(3, dtype=torch.bool), torch.zeros(3, 2)
    for bad in (obs, obs + math.nan):
        episodes.add(TensorStep(bad, torch.zeros(3), no, no, obs))
    with pytest.raises(EnvironmentFault, match=r"world 0: the observation .* 13 and 16") as caught:
        episodes.read(10)
    assert not caught.value.certain


def test_what_vector_environments_write_into_shared_metadata_is_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gymnasium's write their mode into the metadata of whatever they wrap: often all share it."""
    gym = drifting.gym
    monkeypatch.setitem(gym.Env.metadata, "autoreset_mode", gym.vector.AutoresetMode.NEXT_STEP)
    learner = make_learner(run_of(PPO_SETTINGS, "groups", "free"))
    assert learner.envs.num_envs > 1
    learner.close()


def test_vector_environments_of_numpy_arrays_are_refused_when_they_are_made() -> None:
    gym = drifting.gym
    same = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    envs = gym.make_vec("CartPole-v1", 2, vectorization_mode="sync", vector_kwargs=same)
    with pytest.raises(EnvironmentFault, match="vector environment of NumPy arrays: give the name"):
        adapt(envs, "mine")


def test_simulators_that_can_be_differentiated_give_numbers_without_gradients() -> None:
    env = drifting.make()
    step, weight = env.step, torch.ones((), requires_grad=True)
    env.step = lambda action: tuple(
        value * weight if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in step(action)
    )
    worlds = adapt(env, "mine")
    result = worlds.step(worlds.idle_action())
    assert not any(t.requires_grad for t in result if isinstance(t, torch.Tensor))
