"""The plain engines on a GPU: the same numbers as on the CPU, within float tolerance."""

import copy

import numpy as np
import pytest
import torch

from tenfold.algorithms.dqn_settings import DQN
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.algorithms.ppo_learner import PPOLearner
from tenfold.config.networks import Net
from tenfold.config.run import Run
from tenfold.core.random import Purpose, bits, bits_torch, key, normal_torch, uniform, uniform_torch
from tenfold.nets.q_network import QNetwork
from tenfold.training.learners import make_learner

pytestmark = pytest.mark.cuda


def test_the_generator_draws_the_same_on_the_gpu() -> None:
    stream, counter = key(3, Purpose.REPLAY, 1), np.arange(1000)
    on_gpu = torch.arange(1000, device="cuda")
    assert np.array_equal(
        bits_torch(stream, on_gpu).cpu().numpy().view(np.uint64), bits(stream, counter)
    )
    assert np.array_equal(uniform_torch(stream, on_gpu).cpu().numpy(), uniform(stream, counter))
    assert torch.allclose(
        normal_torch(stream, 5, 100, "cuda").cpu(),
        normal_torch(stream, 5, 100),
        rtol=1e-12,
        atol=1e-13,
    )


def test_parameters_stay_views_of_one_buffer_on_the_gpu() -> None:
    net = QNetwork((3,), 2, DQN()).initialise([0])
    before = net.flat.clone()
    net.to("cuda")
    assert net.flat.is_cuda and torch.equal(net.flat.cpu(), before)
    for moved in (net, copy.deepcopy(net)):
        moved.flat.zero_()
        assert all(p.is_cuda and p.abs().sum() == 0 for p in moved.parameters())
        moved(torch.ones(2, 3, device="cuda")).sum().backward()
        assert moved.flat_grad.abs().sum() > 0


@pytest.mark.parametrize(
    "option",
    [
        {},
        {
            "double": True,
            "dueling": True,
            "n_step": 3,
            "replay": "prioritized",
            "distribution": "quantile(8)",
        },
        {"distribution": "implicit", "explore": "noisy", "double": True, "accumulate": 2},
        {"explore": "noisy", "target": "polyak(0.1)", "clip_norm": 1.0, "accumulate": 2},
    ],
    ids=lambda o: ",".join(o) or "defaults",
)
def test_updates_on_the_gpu_equal_the_cpus(option: dict[str, object]) -> None:
    """Lockstep: the CPU's state is copied over before each update, on the batches of the CPU's
    run."""
    agent = DQN(learning_starts=10**6, capacity=500, net=Net(hidden=(32, 32)), **option)  # type: ignore[arg-type]
    cpu, gpu = (
        OffPolicyLearner(Run(agent=agent, device=device, engine="plain"))
        for device in ("cpu", "cuda")
    )
    for place in (cpu, gpu):
        while place.step < 200:
            place.round()
    gpu.replay.load_rows(cpu.replay.written(np.zeros_like(cpu.replay.head)))
    for _ in range(20):
        gpu.agent.load_state(cpu.agent.state())
        gpu.replay.load_state({k: v.copy() for k, v in cpu.replay.state().items()})
        for place in (cpu, gpu):
            place.engine.update(1, 100, place.clock)
        assert torch.allclose(
            cpu.agent.online.flat_grad, gpu.agent.online.flat_grad.cpu(), rtol=1e-3, atol=1e-5
        )
        assert torch.allclose(
            cpu.agent.online.flat, gpu.agent.online.flat.cpu(), rtol=1e-3, atol=1e-4
        )


def test_a_run_on_the_gpu_trains_and_acts() -> None:
    place = OffPolicyLearner(
        Run(agent=DQN(learning_starts=100, every=4, net=Net(hidden=(32,))), device="cuda")
    )
    start = place.agent.online.flat.clone()
    while place.step < 1000:
        place.round()
    assert place.agent.updates == 225 and not torch.equal(start, place.agent.online.flat)
    assert place.agent.act(np.zeros(4, np.float32)) in (0, 1)
    assert place.agent.act(torch.zeros(5, 4, device="cuda")).is_cuda


@pytest.mark.parametrize(
    ("env", "option"),
    [
        ("tenfold/CartPole-v1", {"value_clip": 0.1, "entropy": 0.01, "normalize_obs": True}),
        ("tenfold/Pendulum-v1", {"squash": True, "entropy": 0.01}),
        ("tenfold/Assign-v0", {"baseline": "counterfactual"}),
        ("tenfold/JobShop-v0(instance=ft06)", {"on_empty": "absent"}),
        ("tenfold/CartPole-v1", {"net": {"hidden": [32], "memory": "lstm(16)"}}),
        ("tenfold/Assign-v0", {"net": {"hidden": [32], "memory": "gru(16)"}, "minibatches": 6}),
    ],
)
def test_policy_updates_on_the_gpu_equal_the_cpus(env: str, option: dict[str, object]) -> None:
    """Lockstep: the CPU's rollout and state are copied over before each update."""
    small = {
        "name": "ppo",
        "horizon": 32,
        "epochs": 2,
        "minibatches": 2,
        "net": {"hidden": [32, 32]},
    }
    cpu, gpu = (
        PPOLearner(
            Run.of(
                {
                    "env": env,
                    "num_envs": 4,
                    "engine": "plain",
                    "device": device,
                    "agent": small | option,
                }
            )
        )
        for device in ("cpu", "cuda")
    )
    for _ in range(3):
        while cpu.rollout.left:
            cpu.envs.step(cpu.engine.explore(cpu.step, cpu.rounds))
            cpu.engine.store()
            cpu.rounds += 1
        for name, rows in vars(cpu.rollout).items():
            if isinstance(rows, np.ndarray):
                getattr(gpu.rollout, name)[...] = rows
        gpu.envs.obs[:] = cpu.envs.obs
        gpu.agent.load_state(cpu.agent.state())
        for place in (cpu, gpu):
            place.engine.finish()
        for number in range(cpu.engine.per_phase):
            gpu.agent.load_state(cpu.agent.state())
            for place in (cpu, gpu):
                place.engine.learn(number, number + 1, 100)
            assert torch.allclose(
                cpu.agent.online.flat_grad, gpu.agent.online.flat_grad.cpu(), rtol=1e-3, atol=1e-5
            )
            assert torch.allclose(
                cpu.agent.online.flat, gpu.agent.online.flat.cpu(), rtol=1e-3, atol=1e-4
            )


@pytest.mark.parametrize(
    ("env", "agent"),
    [
        ("tenfold/Pendulum-v1", {"name": "sac", "replay": "prioritized", "n_step": 3}),
        ("tenfold/CartPole-v1", {"name": "sac"}),
        ("tenfold/Pendulum-v1", {"name": "td3"}),
    ],
)
def test_updates_with_critics_on_the_gpu_equal_the_cpus(env: str, agent: dict[str, object]) -> None:
    small = {"learning_starts": 10**6, "capacity": 500, "net": {"hidden": [32, 32]}}
    cpu, gpu = (
        make_learner(
            Run.of({"env": env, "agent": agent | small, "device": device, "engine": "plain"})
        )
        for device in ("cpu", "cuda")
    )
    for place in (cpu, gpu):
        while place.step < 300:
            place.round()
    gpu.replay.load_rows(cpu.replay.written(np.zeros_like(cpu.replay.head)))
    for _ in range(20):
        gpu.agent.load_state(cpu.agent.state())
        gpu.replay.load_state({k: v.copy() for k, v in cpu.replay.state().items()})
        for place in (cpu, gpu):
            place.engine.update(1, 100, place.clock)
        own, wanted = gpu.agent.online.flat_grad.cpu(), cpu.agent.online.flat_grad
        for place in cpu.agent.online.places.values():
            assert float((own[place] - wanted[place]).norm()) <= 1e-4 * float(wanted[place].norm())
        assert torch.allclose(
            cpu.agent.online.flat, gpu.agent.online.flat.cpu(), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_agents_with_critics_on_the_gpu_train_and_act(name: str) -> None:
    agent = {"name": name, "learning_starts": 100, "every": 4, "net": {"hidden": [32]}}
    place = make_learner(
        Run.of({"env": "tenfold/Pendulum-v1", "num_envs": 4, "device": "cuda", "agent": agent})
    )
    assert place.description.name == "cudagraph"
    start = place.agent.online.flat.clone()
    while place.step < 1000:
        place.round()
    assert place.agent.updates == 225 and not torch.equal(start, place.agent.online.flat)
    assert torch.isfinite(place.agent.block).all()
    assert place.envs.action_space.contains(place.agent.act(place.envs.obs[0]))


@pytest.mark.parametrize("env", ["tenfold/CartPole-v1", "tenfold/Pendulum-v1", "tenfold/Assign-v0"])
def test_a_policy_on_the_gpu_trains_and_acts(env: str) -> None:
    agent = {"name": "ppo", "horizon": 16, "net": {"hidden": [32]}}
    place = PPOLearner(Run.of({"env": env, "num_envs": 4, "device": "cuda", "agent": agent}))
    start = place.agent.online.flat.clone()
    while place.step < 500:
        place.round()
    assert place.agent.updates > 0 and torch.isfinite(place.agent.online.flat).all()
    assert not torch.equal(start, place.agent.online.flat)
    action = place.agent.act(place.envs.obs[0], mask=None)
    assert place.envs.action_space.contains(action)


@pytest.mark.parametrize("memory", ["gru(16)", "lstm(16)"])
def test_a_policy_that_remembers_trains_in_graphs_and_memory_stays_flat(memory: str) -> None:
    agent = {"name": "ppo", "horizon": 16, "net": {"hidden": [32], "memory": memory}}
    agent |= {"minibatches": 3, "normalize_obs": True, "lr": "linear(1e-3, 0, 10k)"}
    run = Run.of({"env": "tenfold/CartPole-v1", "num_envs": 4, "device": "cuda", "agent": agent})
    place = PPOLearner(run)
    assert place.description.name == "cudagraph"
    start = place.agent.online.flat.clone()
    while place.step < 500:
        place.round()
    graphs, before = dict(place.engine.graphs), torch.cuda.memory_allocated()
    while place.step < 5_000:
        place.round()
    assert place.engine.graphs == graphs and torch.cuda.memory_allocated() == before
    assert place.agent.updates > 0 and torch.isfinite(place.agent.block).all()
    assert not torch.equal(start, place.agent.online.flat)
    action, state = place.agent.act(place.envs.obs[0])
    assert action in (0, 1) and state.any()
