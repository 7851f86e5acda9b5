"""`policy` and `policy_kwargs`: the networks and their optimiser."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from tenfold.config.notation import nearest
from tenfold.config.schema import Count, Limits, NotNegative, Positive, convert
from tenfold.core.errors import ConfigError
from tenfold.integrations.sb3.converted import (
    FailedAssertion,
    SB3Settings,
    UnknownArgument,
    refuse,
    short,
)
from tenfold.integrations.sb3.signatures import PPO_FAMILY, Q_FAMILY

KEY = "policy_kwargs"
POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")
LSTM_POLICIES = ("MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy")
# packages whose classes are known by their names
THEIR_PACKAGES = ("stable_baselines3", "sb3_contrib")
# default layers: of vectors, and behind the convolutions of images
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "DQN": ((64, 64), ()),
    "QRDQN": ((64, 64), ()),
    "PPO": ((64, 64), ()),
    "MaskablePPO": ((64, 64), ()),
    "RecurrentPPO": ((64, 64), ()),
    "SAC": ((256, 256), (256, 256)),
    "TD3": ((400, 300), (256, 256)),
    "DDPG": ((400, 300), (256, 256)),
}
ACTIVATIONS = {
    "ReLU": "relu",
    "Tanh": "tanh",
    "ELU": "elu",
    "GELU": "gelu",
    "SiLU": "silu",
    "SELU": "selu",
    "LeakyReLU": "leaky_relu",
}
EXTRACTORS = {
    "MlpPolicy": ("FlattenExtractor",),
    "CnnPolicy": ("NatureCNN",),
    "MultiInputPolicy": ("CombinedExtractor",),
}
IMAGE_FEATURES = 512  # numbers that the convolutions end in
COMMON = {
    "net_arch": None,
    "activation_fn": None,
    "features_extractor_class": None,
    "features_extractor_kwargs": None,
    "normalize_images": True,
    "optimizer_class": None,
    "optimizer_kwargs": None,
}
# that mean something with state-dependent noise alone
OF_STATE_NOISE = {"use_sde": False, "full_std": True, "use_expln": False}
ON_POLICY = {
    **COMMON,
    **OF_STATE_NOISE,
    "ortho_init": True,
    "log_std_init": 0.0,
    "squash_output": False,
    "share_features_extractor": True,
}
ACTOR_CRITIC = {**COMMON, "n_critics": 2, "share_features_extractor": False}
# what policy_kwargs may hold, with its defaults
KNOWN: dict[str, dict[str, Any]] = {
    "DQN": COMMON,
    "QRDQN": {**COMMON, "n_quantiles": 200},
    "PPO": ON_POLICY,
    "MaskablePPO": {
        k: v
        for k, v in ON_POLICY.items()
        if k not in (*OF_STATE_NOISE, "log_std_init", "squash_output")
    },
    "RecurrentPPO": {
        **ON_POLICY,
        "lstm_hidden_size": 256,
        "n_lstm_layers": 1,
        "shared_lstm": False,
        "enable_critic_lstm": True,
        "lstm_kwargs": None,
    },
    "SAC": {**ACTOR_CRITIC, **OF_STATE_NOISE, "log_std_init": -3, "clip_mean": 2.0},
    "TD3": ACTOR_CRITIC,
    "DDPG": {**ACTOR_CRITIC, "n_critics": 1},
}
SIDES = {name: ("pi", "vf" if name in PPO_FAMILY else "qf") for name in KNOWN}
Widths = tuple[Annotated[int, Limits(1, 2**14)], ...]


def class_name_of(value: Any, key: str, packages: tuple[str, ...]) -> str:
    """The name of a class of one of these packages, or of a text that names one."""
    if isinstance(value, str):
        return value.rpartition(".")[2]
    home = getattr(value, "__module__", "").partition(".")[0]
    if not isinstance(value, type) or home not in packages:
        refuse(key, getattr(value, "__name__", value), "it is none that tenfold knows")
    return value.__name__


def policy_kind(t: SB3Settings) -> str:
    """`policy` as MlpPolicy, CnnPolicy or MultiInputPolicy."""
    policy, names = t["policy"], LSTM_POLICIES if t.class_name == "RecurrentPPO" else POLICIES
    if isinstance(policy, str):
        if policy not in names:
            raise ConfigError(
                "policy",
                f"= {policy} is not one of {', '.join(names)}{nearest(policy, names)}.",
            )
        return policy.replace("Lstm", "")
    home = getattr(policy, "__module__", "").partition(".")[0]
    if home not in THEIR_PACKAGES:
        raise ConfigError(
            "policy",
            f"= {getattr(policy, '__name__', short(policy))} is a network of your own: give it as "
            "net.module of tenfold.",
        )
    name = policy.__name__
    return next((kind for kind in POLICIES[1:] if kind[:5] in name), POLICIES[0])


def translate_networks(t: SB3Settings) -> None:
    """Networks, their initialisation and their optimiser."""
    kwargs = arguments_of(t)
    kind = policy_kind(t)
    layers(t, kwargs, kind)
    if kwargs["activation_fn"] is not None:
        name = class_name_of(kwargs["activation_fn"], f"{KEY}.activation_fn", ("torch",))
        if name not in ACTIVATIONS:
            refuse(f"{KEY}.activation_fn", name, f"there are {', '.join(ACTIVATIONS)}")
        t.set("net.activation", ACTIVATIONS[name], KEY)
    if not kwargs.get("ortho_init", True):
        t.set("net.init", "torch", KEY)
    if kwargs["normalize_images"] is not True:
        refuse(
            f"{KEY}.normalize_images", kwargs["normalize_images"], "bytes are divided by 255 here"
        )
    deviations(t, kwargs)
    if "n_critics" in kwargs:
        t.set(
            "critics",
            convert(kwargs["n_critics"], Annotated[int, Limits(1, 2)], f"{KEY}.n_critics"),
            KEY,
        )
    if "n_quantiles" in kwargs:
        count = convert(kwargs["n_quantiles"], Count, f"{KEY}.n_quantiles")
        t.set("distribution", f"quantile({count})", KEY)
    if t.class_name == "RecurrentPPO":
        memory(t, kwargs)
    optimiser(t, kwargs)


def arguments_of(t: SB3Settings) -> dict[str, Any]:
    """`policy_kwargs` with its defaults."""
    kwargs, known = t["policy_kwargs"] or {}, KNOWN[t.class_name]
    if not isinstance(kwargs, Mapping):
        refuse(KEY, kwargs, "it is no dict")
    for name, value in kwargs.items():
        if name not in known:
            raise UnknownArgument(
                f"{KEY}.{name}",
                f"= {short(value)} is no argument of {t.class_name}'s policies"
                f"{nearest(name, list(known))}.",
            )
    return {**known, **kwargs}


def layers(t: SB3Settings, kwargs: Mapping[str, Any], kind: str) -> None:
    """Layers of both networks, and how they read observations."""
    images = kind == "CnnPolicy"
    policy, value = architecture(t, kwargs["net_arch"], LAYERS[t.class_name][images])
    extractor, options = (
        kwargs["features_extractor_class"],
        options_in(kwargs, "features_extractor_kwargs") or {},
    )
    if extractor is not None:
        name = class_name_of(extractor, f"{KEY}.features_extractor_class", THEIR_PACKAGES)
        if name not in EXTRACTORS[kind]:
            refuse(
                f"{KEY}.features_extractor_class",
                name,
                f"{kind} has {EXTRACTORS[kind][0]}; give a network of your own as net.module of "
                "tenfold",
            )
    if wrong := [name for name in options if not (images and name == "features_dim")]:
        refuse(f"{KEY}.features_extractor_kwargs", options, f"{wrong[0]} is not here")
    t.set("net.encoder", "nature" if images else "mlp", "policy")
    if images:
        width = convert(options.get("features_dim", IMAGE_FEATURES), Count, f"{KEY}.features_dim")
        policy, value = (width, *policy), (width, *value)
        if "share_features_extractor" in kwargs:
            shared = kwargs["share_features_extractor"]
            if t.class_name in PPO_FAMILY:
                t.set("net.shared_body", bool(shared), KEY)
            elif shared:
                refuse(
                    f"{KEY}.share_features_extractor",
                    shared,
                    f"policy and critics of {t.class_name} have convolutions of their own here",
                )
    home = "after" if t.class_name == "RecurrentPPO" else "hidden"
    if home == "after":
        t.set("net.hidden", policy[:1] if images else (), KEY)
        policy, value = (policy[1:], value[1:]) if images else (policy, value)
    t.set(f"net.{home}", policy, KEY)
    if value != policy:
        if home == "after":
            refuse(
                f"{KEY}.net_arch", kwargs["net_arch"], "with a memory both sides are the same here"
            )
        t.set("net.value_hidden", value, KEY)


def architecture(
    t: SB3Settings, net_arch: Any, default: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The layers of the policy (or the values of actions), and of the value or the critics."""
    key = f"{KEY}.net_arch"
    if net_arch is None:
        return default, default
    if (
        isinstance(net_arch, list | tuple)
        and net_arch
        and isinstance(net_arch[0], Mapping)
        and t.class_name in PPO_FAMILY
    ):
        t.warn("net_arch = [dict(pi=…, vf=…)] is read as its first entry: write dict(pi=…, vf=…).")
        net_arch = net_arch[0]
    if not isinstance(net_arch, Mapping):
        both = convert(net_arch, Widths, key)
        return both, both
    sides = SIDES[t.class_name]
    if t.class_name in Q_FAMILY:
        refuse(key, net_arch, f"{t.class_name} has one network: give a list such as [64, 64]")
    if unknown := [side for side in net_arch if side not in sides]:
        refuse(key, net_arch, f"{unknown[0]} is not one of {' and '.join(sides)}")
    missing = [side for side in sides if side not in net_arch]
    if missing and t.class_name not in PPO_FAMILY:
        refuse(key, net_arch, f"{missing[0]} is missing", FailedAssertion)
    policy, value = (convert(net_arch.get(side, ()), Widths, key) for side in sides)
    return policy, value


def deviations(t: SB3Settings, kwargs: Mapping[str, Any]) -> None:
    """The deviation of actions at the start; what is about state-dependent noise alone."""
    if kwargs.get("use_sde"):
        refuse(f"{KEY}.use_sde", True, NO_STATE_NOISE)
    if kwargs.get("squash_output"):
        refuse(
            f"{KEY}.squash_output",
            True,
            "it is only for use_sde, which is not in tenfold; agent.squash passes actions through "
            "tanh",
            FailedAssertion,
        )
    unused = [n for n in ("full_std", "use_expln", "clip_mean") if n in kwargs]
    if t.class_name in PPO_FAMILY and "log_std_init" in kwargs:
        start = convert(kwargs["log_std_init"], float, f"{KEY}.log_std_init")
        t.set("std", math.exp(start), KEY)
    elif "log_std_init" in kwargs:
        unused.append("log_std_init")
    for name in unused:
        if kwargs[name] != KNOWN[t.class_name][name]:
            t.note(f"{KEY}.{name} changes nothing without use_sde, there and here")


NO_STATE_NOISE = (
    "state-dependent exploration is not in tenfold: leave it out, and noise is drawn anew every "
    "step"
)


def memory(t: SB3Settings, kwargs: Mapping[str, Any]) -> None:
    """An LSTM each for policy and value, before the layers."""
    for name, only in (
        ("n_lstm_layers", 1),
        ("shared_lstm", False),
        ("enable_critic_lstm", True),
        ("lstm_kwargs", None),
    ):
        if kwargs[name] != only and not (only is None and not kwargs[name]):
            refuse(
                f"{KEY}.{name}",
                kwargs[name],
                "policy and value each have an LSTM of one layer here: leave it out",
            )
    size = convert(kwargs["lstm_hidden_size"], Count, f"{KEY}.lstm_hidden_size")
    t.set("net.memory", f"lstm({size})", KEY)


def options_in(kwargs: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Arguments of a class among the policy's."""
    options = kwargs[name]
    if options is not None and not isinstance(options, Mapping):
        refuse(f"{KEY}.{name}", options, "it is no dict")
    return options


def optimiser(t: SB3Settings, kwargs: Mapping[str, Any]) -> None:
    """Adam or AdamW; the offset follows the class of algorithm."""
    key, optimizer_class = f"{KEY}.optimizer_class", kwargs["optimizer_class"]
    name = (
        "Adam"
        if optimizer_class is None
        else class_name_of(optimizer_class, key, ("torch", *THEIR_PACKAGES))
    )
    if name not in ("Adam", "AdamW"):
        refuse(key, name, "there are Adam and AdamW")
    options = options_in(kwargs, "optimizer_kwargs")
    usual = 1e-5 if t.class_name in PPO_FAMILY and name == "Adam" and options is None else 1e-8
    options = dict(options or {})
    if t.class_name == "QRDQN" and optimizer_class is None:
        usual = 0.01 / convert(t["batch_size"], Count, "batch_size")
        if options:
            t.note(
                f"{KEY}.optimizer_kwargs has no effect on QRDQN without optimizer_class, there and "
                "here"
            )
            options = {}
    eps = convert(options.pop("eps", usual), Positive, f"{KEY}.optimizer_kwargs.eps")
    decay = convert(
        options.pop("weight_decay", 0.01 if name == "AdamW" else 0.0),
        NotNegative,
        f"{KEY}.optimizer_kwargs.weight_decay",
    )
    # of td3 too, whose critics' loss has a ½ here and none there: half of it would be exact for
    # them, and further away for the policy
    t.set("adam_eps", eps, KEY)
    if decay and name == "Adam":
        refuse(
            f"{KEY}.optimizer_kwargs.weight_decay",
            decay,
            "Adam's is added to the gradient; AdamW's is here",
        )
    if decay:
        t.set("weight_decay", decay, KEY)
    usual_options = {"betas": (0.9, 0.999), "amsgrad": False, "maximize": False}
    for option, value in options.items():
        plain = tuple(value) if isinstance(value, list) else value
        if option not in usual_options or plain != usual_options[option]:
            refuse(f"{KEY}.optimizer_kwargs.{option}", value, "leave it out")
