"""The reference engine: data, loss, gradient, step, target and priorities in the right order."""

import copy

import numpy as np
import pytest
import torch

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.config.networks import Net
from tenfold.config.schedules import value_at
from tenfold.core.layout import ObsLayout
from tenfold.core.spaces import DiscreteActions
from tenfold.core.system import Clock
from tenfold.engines.plain import OffPolicyEngine
from tenfold.memory.replay import Replay

VECTOR = ObsLayout((3,), np.dtype(np.float32), (3,), 1.0)
OPTIONS = [
    {},
    {"double": False},
    {"dueling": True},
    {"n_step": 3},
    {"replay": "prioritized"},
    {"distribution": "quantile(4)"},
    {"distribution": "implicit(3, 5, cosines=4)", "double": True, "replay": "prioritized"},
    {"explore": "noisy"},
    {"target": "polyak(0.1)"},
    {"loss": "huber", "clip_norm": 0.5},
    {"lr": "linear(1e-2, 1e-3, 50)"},
]


def engine(**options: object) -> OffPolicyEngine:
    config = DQN(
        **(
            {"batch_size": 8, "capacity": 200, "net": Net(hidden=(6, 5)), "target": "hard(3)"}
            | options
        )
    )  # type: ignore[arg-type]
    memory = Replay(config, VECTOR, 2, seed=5)
    rng = np.random.default_rng(0)
    memory.begin(rng.normal(size=(2, 3)).astype(np.float32))
    for _ in range(60):
        memory.add(
            rng.integers(0, 4, 2),
            rng.normal(size=2),
            rng.random(2) < 0.1,
            rng.random(2) < 0.1,
            np.zeros(2, bool),
            rng.normal(size=(2, 3)).astype(np.float32),
            rng.normal(size=(2, 3)).astype(np.float32),
        )
    return OffPolicyEngine(DQNAgent(config, VECTOR, DiscreteActions(4, 0), seed=2), memory, None)  # type: ignore[arg-type]


def digest(e: OffPolicyEngine) -> list[list[float]]:
    return [
        t.flatten().tolist()
        for t in (
            e.agent.online.flat,
            e.agent.target.flat,
            e.agent.exp_avg,
            e.agent.exp_avg_sq,
            torch.from_numpy(e.replay.tree),
            torch.from_numpy(e.replay.count),
        )
    ]


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_k_updates_in_one_call_equal_k_calls(option: dict[str, object]) -> None:
    once, singly = engine(**option), engine(**option)
    once.update(7, 20, Clock())
    for _ in range(7):
        singly.update(1, 20, Clock())
    assert digest(once) == digest(singly)
    assert once.agent.updates == 7


def test_k_updates_differ_from_one_update_of_the_merged_batch() -> None:
    several, merged = engine(), engine(batch_size=32)
    several.update(4, 0, Clock())
    merged.update(1, 0, Clock())
    assert not torch.allclose(several.agent.online.flat, merged.agent.online.flat, atol=1e-4)


@pytest.mark.parametrize(
    "option",
    [
        {},
        {"replay": "prioritized"},
        {"distribution": "quantile(4)"},
        {"distribution": "implicit"},
        {"explore": "noisy"},
    ],
    ids=str,
)
def test_accumulated_micro_batches_equal_one_large_batch(option: dict[str, object]) -> None:
    micro, large = engine(batch_size=4, accumulate=6, **option), engine(batch_size=24, **option)
    for _ in range(5):  # from equal state each time: errors of the last bits do not add up
        micro.update(1, 0, Clock())
        large.update(1, 0, Clock())
        assert torch.allclose(
            micro.agent.online.flat_grad, large.agent.online.flat_grad, rtol=1e-4, atol=1e-6
        )
        assert micro.replay.batch.row.tolist() == large.replay.batch.row.tolist()
        for own, other in zip(
            micro.agent.state().values(), large.agent.state().values(), strict=True
        ):
            own.copy_(other)
        micro.replay.load_state({k: v.copy() for k, v in large.replay.state().items()})
    assert micro.statistics() == pytest.approx(large.statistics(), rel=1e-3)


# noise has a reference of its own, nets.blocks.noisy_reference
@pytest.mark.parametrize("option", [o for o in OPTIONS if "explore" not in o], ids=str)
def test_an_update_is_the_textbooks(option: dict[str, object]) -> None:
    """The same update by a frozen, separate program: fresh tensors, torch's own Adam and clipping,
    one tensor at a time."""
    e = engine(**option)
    config, agent = e.agent.config, e.agent
    online, target = copy.deepcopy(agent.online), copy.deepcopy(agent.target)
    parameters = [p.detach().clone().requires_grad_() for p in online.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=0.0)
    for update in range(1, 8):
        before = e.replay.tree.copy()
        e.update(1, 20, Clock())
        b = {k: v.clone() for k, v in e.batch_tensors.items()}
        names = [n for n, _ in online.named_parameters()]
        values = torch.func.functional_call(
            online, dict(zip(names, parameters, strict=True)), (b["obs"], None, b.get("fractions"))
        )
        with torch.no_grad():
            there = (b["next_obs"], None, b.get("next_fractions"))
            after = target(*there)
            other = torch.func.functional_call(
                online, dict(zip(names, parameters, strict=True)), there
            )
        losses = []
        for i in range(len(b["action"])):
            chooser = (other if config.double else after)[i].mean(-1)
            y = b["reward"][i] + b["discount"][i] * after[i, chooser.argmax()]
            theta = values[i, b["action"][i]]
            if config.distribution:
                u = y[None] - theta[:, None]
                level = (
                    b["fractions"][i]
                    if "fractions" in b
                    else (torch.arange(len(theta)) + 0.5) / len(theta)
                )[:, None]
                rho = torch.abs(level - (u < 0).float()) * torch.where(
                    u.abs() <= 1, u * u / 2, u.abs() - 0.5
                )
                losses.append(rho.mean(1).sum())
            else:
                u = (y - theta).squeeze()
                losses.append(
                    u * u
                    if config.loss == "mse"
                    else (u * u / 2 if u.abs() <= 1 else u.abs() - 0.5)
                )
        loss = (torch.stack(losses) * b["weight"]).mean()
        optimiser.zero_grad()
        loss.backward()
        if config.clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        optimiser.param_groups[0]["lr"] = value_at(config.lr, 20)
        optimiser.step()
        flat = torch.cat([p.detach().flatten() for p in parameters])
        if config.target == DQN(target="polyak(0.1)").target:  # type: ignore[arg-type]
            target.flat.copy_(0.9 * target.flat + 0.1 * flat)
        elif update % 3 == 0:
            target.flat.copy_(flat)
        assert torch.allclose(agent.online.flat, flat, rtol=1e-4, atol=2e-6), update
        assert torch.allclose(agent.target.flat, target.flat, rtol=1e-4, atol=2e-6), update
        if config.replay != DQN().replay:
            assert not np.array_equal(before, e.replay.tree)


def test_a_batch_in_flight_is_not_overwritten_before_its_gradient_is_taken() -> None:
    """Batches are drawn into the same memory: lockstep with an engine that copies every batch
    first."""
    shared, copied = engine(n_step=3), engine(n_step=3)
    sample = copied.replay.sample

    def sample_and_copy(beta: float = 1.0):
        b = sample(beta)
        copied.batch_tensors = {
            name: torch.from_numpy(getattr(b, name).copy()) for name in copied.batch_tensors
        }
        return b

    copied.replay.sample = sample_and_copy  # type: ignore[method-assign]
    for _ in range(50):
        shared.update(1, 0, Clock())
        copied.update(1, 0, Clock())
    assert torch.equal(shared.agent.online.flat, copied.agent.online.flat)


def test_each_batch_is_drawn_after_the_previous_priorities_were_written() -> None:
    e = engine(replay="prioritized")
    order: list[str] = []
    sample, prioritise = e.replay.sample, e.replay.prioritise
    e.replay.sample = lambda beta=1.0: (order.append("sample"), sample(beta))[1]  # type: ignore[method-assign]
    e.replay.prioritise = lambda error: (order.append("prioritise"), prioritise(error))[1]  # type: ignore[method-assign, func-returns-value]
    e.update(3, 0, Clock())
    assert order == ["sample", "prioritise"] * 3
    errors = e.replay.tree[e.replay.tree.size // 2 :][e.replay.batch.row]
    assert (errors != 1.0).all()  # the priorities of this batch are no longer the initial ones


def test_a_hard_target_is_renewed_every_so_many_updates_and_not_between() -> None:
    e = engine(target="hard(3)")
    equal = []
    for _ in range(7):
        e.update(1, 0, Clock())
        equal.append(torch.equal(e.agent.online.flat, e.agent.target.flat))
    assert equal == [False, False, True, False, False, True, False]


def test_clipping_limits_the_gradients_norm() -> None:
    free, clipped = engine(), engine(clip_norm=1e-3)
    for e in (free, clipped):
        e.update(1, 0, Clock())
    assert clipped.agent.online.flat_grad.norm() == pytest.approx(1e-3, rel=1e-2)
    assert free.agent.online.flat_grad.norm() > 0.1
    # logged unclipped
    assert clipped.statistics()["grad_norm"] == pytest.approx(
        free.statistics()["grad_norm"], rel=1e-5
    )


def test_the_importance_exponent_follows_its_schedule() -> None:
    e = engine(replay="prioritized(alpha=1, beta=linear(0, 1, 100))")
    e.update(2, 0, Clock())
    assert (e.replay.batch.weight == 1).all()  # β = 0
    e.update(1, 100, Clock())
    assert (e.replay.batch.weight < 1).any()
