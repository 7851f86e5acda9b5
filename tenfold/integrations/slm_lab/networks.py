"""The group agent.net of a spec: layers, activations, initialisation, optimiser."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenfold.config.notation import show
from tenfold.integrations.slm_lab.keys import Keys, short

ACTIVATIONS = {
    "relu": "relu",
    "tanh": "tanh",
    "elu": "elu",
    "selu": "selu",
    "gelu": "gelu",
    "silu": "silu",
    "swish": "silu",
    "leakyrelu": "leaky_relu",
    "leaky_relu": "leaky_relu",
}
# channels, kernel and stride of Mnih et al. (2015)
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
MLP, CONV, ARC = "MLPNet", "ConvNet", "TorchArcNet"
DUELING = {"DuelingMLPNet": MLP, "DuelingConvNet": CONV}
ADAM, ADAMW = ("Adam", "GlobalAdam"), ("AdamW", "GlobalAdamW")
BETAS, DECAY = [0.9, 0.999], 0.01  # PyTorch's
FINAL_GAINS = {"actor_init_std": 0.01, "critic_init_std": 1.0}  # ours, of ppo


@dataclass(frozen=True)
class Body:
    """The layers between an observation and the outputs."""

    encoder: str
    hidden: tuple[int, ...]
    activation: str


@dataclass(frozen=True)
class Optimiser:
    lr: float
    eps: float
    weight_decay: float


def body_of(keys: Keys, kind: str) -> Body:
    """The layers of a network without an arc."""
    activation = keys.choice("hid_layers_activation", ACTIVATIONS, "relu")
    keys.refuse_set(("batch_norm",), "is not in tenfold: leave it out")
    keys.take("normalize")  # images are divided by 255 in any case
    if kind == MLP:
        return Body("mlp", widths(keys, "hid_layers"), activation)
    layers = keys.require("conv_hid_layers")
    whole = [[*layer, 0, 1] for layer in NATURE]  # with padding and dilation
    if layers not in (whole, [[*layer] for layer in NATURE]):
        keys.refuse("conv_hid_layers", f"is not in tenfold, which has {show(NATURE)} alone")
    return Body("nature", widths(keys, "fc_hid_layers"), activation)


def widths(keys: Keys, name: str) -> tuple[int, ...]:
    value = keys.require(name)
    value = value if isinstance(value, list) else [value]
    if not all(type(width) is int for width in value):
        keys.refuse(name, "is not a list of layers' widths")
    return tuple(value)


# arcs of TorchArc


def sequence_of(keys: Keys, name: str) -> Sequence[Any]:
    """The layers of an arc that is one sequence from its input to its output."""
    arc = keys.require(name)
    modules = arc.get("modules") if isinstance(arc, Mapping) else None
    graph = arc.get("graph") if isinstance(arc, Mapping) else None
    layers = None
    if isinstance(modules, Mapping) and len(modules) == 1:
        ((module, body),) = modules.items()
        whole = {"input": "x", "modules": {module: ["x"]}, "output": module}
        if graph in (None, whole, whole | {"modules": {module: "x"}}):
            layers = body.get("Sequential") if isinstance(body, Mapping) else None
    if not isinstance(layers, list):
        keys.refuse(name, "is not one Sequential from x to the output, which tenfold reads alone")
    return layers


def body_of_arc(keys: Keys, name: str) -> Body:
    """The layers of an arc: convolutions as of `NATURE` or none, then fully connected ones, each
    with the same activation behind it."""
    convolutions: list[tuple[Any, ...]] = []
    linear: list[int] = []
    activations: list[str] = []
    for layer in sequence_of(keys, name):
        kind, values = kind_and_values(keys, name, layer)
        if kind == "Linear":
            linear.append(values.whole("out_features"))
        elif kind == "Conv2d":
            convolutions.append(convolution(keys, name, values))
        elif kind.lower() in ACTIVATIONS:
            if values.values not in ({}, {"negative_slope": 0.01}):
                keys.refuse(name, f"has {kind} with {short(values.values)}, which is not here")
            activations.append(ACTIVATIONS[kind.lower()])
        elif kind != "Flatten":
            keys.refuse(name, f"has {kind}, which is not in tenfold: leave it out")
    if len(activations) != len(linear) + len(convolutions) or len(set(activations)) > 1:
        keys.refuse(name, "needs the same activation behind each layer")
    if convolutions and tuple(convolutions) != NATURE:
        keys.refuse(name, f"has convolutions that are not in tenfold, but {show(NATURE)} alone")
    activation = activations[0] if activations else "relu"
    return Body("nature" if convolutions else "mlp", tuple(linear), activation)


def kind_and_values(keys: Keys, name: str, layer: Any) -> tuple[str, Keys]:
    """A layer's class without Lazy, and its arguments."""
    if isinstance(layer, Mapping) and len(layer) == 1:
        ((kind, values),) = layer.items()
    else:
        kind, values = layer, None
    kind = str(kind).removeprefix("Lazy")
    if isinstance(values, int):
        values = {"out_features": values}
    return kind, Keys({} if values is None else values, f"{keys.key(name)}.{kind}")


def convolution(keys: Keys, name: str, values: Keys) -> tuple[Any, ...]:
    """Channels, kernel and stride of a layer without padding."""
    plain = {"out_channels", "kernel_size", "stride", "padding"}
    if set(values.values) - plain or values.number("padding", 0) != 0:
        keys.refuse(name, f"has a convolution with {short(values.values)}, which is not here")
    return values.whole("out_channels"), values.whole("kernel_size"), values.whole("stride", 1)


def bodies(keys: Keys, algorithm: str) -> tuple[Body, Body, bool]:
    """The layers of the policy (or of Q), those of the value, and whether Q is dueling."""
    kind = keys.word("type")
    dueling = kind in DUELING
    kind = DUELING.get(kind, kind)
    if kind == ARC:
        keys.take("hid_layers_activation")  # of its initialisation alone
        both = [f"{who}_arc" if f"{who}_arc" in keys else "arc" for who in ("actor", "critic")]
        policy, value = (body_of_arc(keys, name) for name in both)
        if {"actor_arc", "critic_arc"} & set(both):
            keys.take("arc")
    elif kind in (MLP, CONV):
        policy = value = body_of(keys, kind)
    else:
        keys.refuse("type", f"is not in tenfold, which has {MLP}, {CONV} and {ARC}")
    if (policy.encoder, policy.activation) != (value.encoder, value.activation):
        keys.refuse("critic_arc", "differs from actor_arc in more than the layers' widths")
    if dueling and algorithm != "dqn":
        keys.refuse("type", "is for DQN and its relatives")
    return policy, value, dueling


# the optimiser


def optimiser(keys: Keys, name: str) -> Optimiser:
    group = keys.group(name)
    kind = group.require("name")
    if kind not in ADAM + ADAMW:
        group.refuse("name", "is not in tenfold: use Adam or AdamW")
    if group.take("betas", BETAS) != BETAS:
        group.refuse("betas", f"is not in tenfold, which has {show(tuple(BETAS))}")
    group.refuse_set(("amsgrad",), "is not in tenfold: leave it out")
    decay = group.number("weight_decay", DECAY if kind in ADAMW else 0.0)
    if decay and kind in ADAM:
        group.refuse("weight_decay", "with Adam is not in tenfold: AdamW has one")
    result = Optimiser(group.number("lr"), group.number("eps", 1e-8), decay)
    group.done()
    return result


def scheduled(keys: Keys, lr: float) -> Any:
    """A learning rate with the group's schedule."""
    if "lr_scheduler_spec" not in keys:
        keys.take("lr_scheduler_spec")
        return lr
    group = keys.group("lr_scheduler_spec")
    kind = group.require("name")
    if kind not in ("LinearToZero", "LinearToMin"):
        group.refuse("name", "is not in tenfold: use LinearToZero")
    factor = group.number("min_factor", 0.0) if kind == "LinearToMin" else 0.0
    frames = group.whole("frame")
    group.done()
    return f"linear({show(float(lr))}, {show(float(lr * factor))}, {frames})"


def optimisers(keys: Keys) -> tuple[Optimiser, Optimiser]:
    """Those of the policy and of the value."""
    names = [f"{who}_optim_spec" for who in ("actor", "critic")]
    names = [name if name in keys else "optim_spec" for name in names]
    if keys.flag("use_same_optim"):
        keys.take(names[1])
        names[1] = names[0]
    policy, value = (optimiser(keys, name) for name in names)
    for name in ("optim_spec", "actor_optim_spec", "critic_optim_spec"):
        keys.take(name)
    if (policy.eps, policy.weight_decay) != (value.eps, value.weight_decay):
        keys.refuse(names[1], f"differs from {names[0]} in more than lr, which is not in tenfold")
    return policy, value


def initialisation(keys: Keys, algorithm: str) -> str:
    """`net.init`."""
    gains = {name: keys.number(name, usual) for name, usual in FINAL_GAINS.items()}
    kind = keys.take("init_fn")
    if kind is None:
        return "torch"
    if algorithm != "ppo":
        keys.note("init_fn", "layers begin as PyTorch makes them")
        return "torch"
    if kind != "orthogonal_":
        keys.note("init_fn", "layers begin orthogonal")
    for name, usual in FINAL_GAINS.items():
        if not math.isclose(gains[name], usual):
            keys.note(name, f"the last layer begins with {usual:g}")
    return "default"


def network(keys: Keys, algorithm: str) -> tuple[dict[str, Any], bool]:
    """The agent's settings that agent.net decides, and whether Q is dueling."""
    policy, value, dueling = bodies(keys, algorithm)
    if "out_layer_activation" in keys:
        keys.refuse("out_layer_activation", "is not in tenfold: leave it out")
    net = {
        "encoder": policy.encoder,
        "hidden": list(policy.hidden),
        "activation": policy.activation,
        "init": initialisation(keys, algorithm),
    }
    if value.hidden != policy.hidden and algorithm != "dqn":
        net["value_hidden"] = list(value.hidden)
    if keys.flag("shared") and algorithm == "ppo":
        if policy.encoder == "mlp":
            keys.refuse("shared", "is for images: policy and value have networks of their own")
        net["shared_body"] = True
    of_policy, of_value = optimisers(keys)
    settings: dict[str, Any] = {
        "net": net,
        "lr": scheduled(keys, of_policy.lr),
        "adam_eps": of_policy.eps,
        "weight_decay": of_policy.weight_decay,
    }
    if of_value.lr != of_policy.lr:
        if algorithm != "ppo":
            keys.refuse("critic_optim_spec", "has a learning rate of its own, which is for PPO")
        settings["value_lr"] = scheduled(keys, of_value.lr)
    return settings, dueling


def device(keys: Keys) -> str:
    value = keys.take("gpu", "auto")
    return {True: "cuda", False: "cpu"}.get(value, "auto") if isinstance(value, bool) else "auto"
