"""The gradient of a batch in one launch, for small fully connected networks: a program takes some
of the items through all passes, the derivative of the loss and the backward pass in registers, by
the functions of the resident engine. What follows a gradient is `ops.device.step`'s."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.core.layout import ObsLayout
from tenfold.core.pairs import pair
from tenfold.core.spaces import DiscreteActions
from tenfold.ops.device import network, td
from tenfold.ops.device.language import available, device, gpu_kernel
from tenfold.ops.device.network import NetShape
from tenfold.ops.device.td import ValueShape

WIDEST, DEEPEST = 128, 3  # hidden layers that fit into registers
ROWS = 16  # items of a program
PRECISIONS = {"fp32": "bf16x6", "tf32": "tf32"}


class GradientShape(NamedTuple):
    """What the kernel is compiled for."""

    net: NetShape
    outputs: ValueShape
    batch: int
    size: int  # numbers of a frame
    frames: int
    scale: float
    stride: int  # numbers between two agents' parameters


@gpu_kernel
def seen_at(table, places, item, valid, S: tl.constexpr):
    """What the network sees of items whose frames lie at `places`."""
    column = tl.arange(0, S.net.pads[0])[None, :]
    mask = valid[:, None] & (column < S.size * S.frames)
    at = item[:, None] * S.frames + column // S.size
    row = tl.load(places + at, mask=mask, other=0)
    numbers = tl.load(table + row * S.size + column % S.size, mask=mask, other=0)
    return numbers.to(tl.float32) * S.scale


@gpu_kernel
def gradient_kernel(
    table,
    places,
    action,
    reward,
    discount,
    weight,
    online,
    target,
    partial,
    errors,
    metrics,
    S: tl.constexpr,
    ROWS: tl.constexpr,
):
    N: tl.constexpr = S.net
    V: tl.constexpr = S.outputs
    part, member = tl.program_id(0), tl.program_id(1).to(tl.int64)
    item = part * ROWS + tl.arange(0, ROWS)
    valid = item < S.batch
    row = member * S.batch + item
    first = places + member * 2 * S.batch * S.frames
    next_obs = seen_at(table, first + S.batch * S.frames, item, valid, S)
    layers = network.load(online + member * S.stride, N)
    next_values = td.values(network.load(target + member * S.stride, N), next_obs, S)
    chooser = next_values
    if S.outputs.double:
        chooser = td.values(layers, next_obs, S)
    outputs = network.forward(layers, seen_at(table, first, item, valid, S), N)
    delta, error, loss, q = td.gradient(
        td.joined(outputs[N.layers], S),
        next_values,
        chooser,
        tl.load(action + row, mask=valid, other=0).to(tl.int32),
        tl.load(reward + row, mask=valid, other=0.0),
        tl.load(discount + row, mask=valid, other=0.0),
        tl.load(weight + row, mask=valid, other=0.0),
        S.batch,
        V,
    )
    grads = network.backward(layers, outputs, td.parted(delta, S), N)
    program = member * tl.num_programs(0) + part
    network.store(partial + program * N.parameters, grads, N)
    tl.store(errors + row, error, mask=valid)
    tl.store(metrics + program * 3, tl.sum(loss, 0))
    tl.store(metrics + program * 3 + 1, tl.sum(q, 0))
    tl.store(metrics + program * 3 + 2, tl.sum(tl.abs(error), 0))


def why_not(agent: Any) -> str:
    """What keeps the kernel from an agent."""
    settings, network = agent.config, agent.online
    if settings.net.module or settings.net.encoder != "mlp":
        return "the network is none of fully connected layers"
    if settings.implicit or network.noise_size:
        return "quantiles are implicit, or layers noisy"
    if settings.categorical:
        return "the distribution is categorical"
    if agent.masked:
        return "actions are masked"
    if settings.net.activation not in ("relu", "tanh"):
        return f"the activation is {settings.net.activation}"
    if len(network.sizes) > DEEPEST + 2 or max(network.sizes) > WIDEST:
        return "the layers are too many or too wide"
    return ""


def shape_of(agent: Any, batch: int, precision: str) -> GradientShape:
    """`precision` of the products, in the words of a run."""
    settings, sizes = agent.config, tuple(agent.online.sizes)
    parameters = agent.online.flat.shape[-1]
    return GradientShape(
        NetShape.of(
            sizes,
            settings.net.activation,
            # the interpreter has float32 alone
            PRECISIONS[precision] if agent.device.type == "cuda" else "ieee",
        ),
        ValueShape(
            int(settings.dueling),
            agent.actions.n,
            settings.atoms,
            settings.loss == "huber",
            settings.double,
        ),
        batch,
        agent.layout.size,
        settings.frames,
        agent.layout.scale,
        agent.online.flat.stride(0) if agent.members > 1 else parameters,
    )


def batch_gradient(
    agent: Any, table: torch.Tensor, sent: dict[str, torch.Tensor], shape: GradientShape
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(parts of the gradient [M, parts, P], TD errors [M, B], rows of [loss, Σ Q, Σ |TD error|])
    of items at places in `table`."""
    programs, flat = triton.cdiv(shape.batch, ROWS), agent.online.flat
    partial = flat.new_empty(agent.members, programs, shape.net.parameters)
    errors = flat.new_empty(sent["action"].shape)
    metrics = flat.new_empty(agent.members * programs, 3)
    gradient_kernel[(programs, agent.members)](
        table,
        *(sent[name] for name in ("places", "action", "reward", "discount", "weight")),
        agent.online.flat,
        agent.target.flat,
        partial,
        errors,
        metrics,
        S=shape,
        ROWS=ROWS,
        num_warps=4,
    )
    return partial, errors, metrics


# the pair

SIZE, ROOM = 3, 40  # numbers of a frame, rows of a table


def gradient_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for options in (
        {},
        {
            "double": False,
            "loss": "huber",
            "frames": 2,
            "net": {"hidden": [5], "activation": "tanh"},
        },
        {"dueling": True, "distribution": "quantile(3)", "batch_size": 20},
    ):
        yield options, int(rng.integers(100))


def example_batch(options: dict[str, Any], seed: int) -> tuple[DQNAgent, Any, Any]:
    """An agent whose target is another network, a table, and items at places in it."""
    rng = np.random.default_rng(seed)
    config = DQN.of({"batch_size": 7, "net": {"hidden": [9, 8]}, **options})
    layout = ObsLayout((SIZE,), np.dtype(np.float32), (SIZE,), 1.0)
    agent = DQNAgent(config, layout, DiscreteActions(4, 0), seed, device())
    agent.target.flat.mul_(0.5)
    size = config.batch_size
    drawn = {
        "places": rng.integers(0, ROOM, (2, size, config.frames)),
        "action": rng.integers(0, 4, size),
        "reward": rng.normal(size=size).astype(np.float32),
        "discount": (0.9 * rng.integers(0, 2, size)).astype(np.float32),
        "weight": rng.uniform(0.1, 1, size).astype(np.float32),
    }
    table = torch.from_numpy(rng.normal(size=(ROOM, SIZE)).astype(np.float32))
    sent = {name: torch.from_numpy(value).to(device()) for name, value in drawn.items()}
    return agent, table.to(device()), sent


def gradient_reference(options: dict[str, Any], seed: int) -> tuple[torch.Tensor, ...]:
    """Autograd of the agent's loss."""
    agent, table, sent = example_batch(options, seed)
    obs, next_obs = table[sent["places"]]
    size = len(obs)
    rows = {"obs": obs.view(size, -1), "next_obs": next_obs.view(size, -1)}
    loss, errors, q = agent.loss(sent | rows, None, None, size)
    loss.backward()
    metrics = torch.stack([loss.detach(), size * q, errors.abs().sum()])
    return agent.online.flat_grad, errors, metrics


@pair(
    gradient_reference,
    gradient_examples,
    rtol=1e-4,
    atol=1e-5,
    when=available,
    name="algorithms.kernels.dqn_cudagraph_kernel.a gradient in one launch",
)
def gradient_outcome(options: dict[str, Any], seed: int) -> tuple[torch.Tensor, ...]:
    agent, table, sent = example_batch(options, seed)
    shape = shape_of(agent, len(sent["action"]), "fp32")
    partial, errors, metrics = batch_gradient(agent, table, sent, shape)
    return partial[0].sum(0), errors, metrics.sum(0)
