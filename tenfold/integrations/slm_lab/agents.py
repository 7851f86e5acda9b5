"""The groups agent.algorithm, agent.memory and agent.net of a spec as settings of dqn, ppo and sac.

SLM-Lab counts frames, those of all environments, and so do we; it trains at most once in a step of
all environments.
"""

import math
from typing import Any

from tenfold.config.notation import show
from tenfold.integrations.slm_lab.keys import Keys
from tenfold.integrations.slm_lab.networks import network

Settings = dict[str, Any]
NAMES = {
    "PPO": "ppo",
    "SoftActorCritic": "sac",
    "DQN": "dqn",
    "DoubleDQN": "dqn",
    "VanillaDQN": "dqn",
}
INSTEAD = {
    "A2C": "PPO",
    "ActorCritic": "PPO",
    "A3C": "PPO",
    "Reinforce": "PPO",
    "REINFORCE": "PPO",
    "SARSA": "DQN",
    "SIL": "PPO",
    "PPOSIL": "PPO",
    "CrossQ": "SoftActorCritic",
}
LOSSES = {"MSELoss": "mse", "SmoothL1Loss": "huber"}
DISCRETE_ENTROPY = 0.6  # SLM-Lab's share of log n that a discrete policy's entropy is led to


def agent_settings(agent: Keys, num_envs: int, options: int | None) -> Settings:
    """The settings of our agent; `options`: how many actions there are, None if continuous or not
    known."""
    keys = agent.group("algorithm")
    agent.take("name")
    theirs = keys.word("name")
    if theirs not in NAMES:
        instead = INSTEAD.get(theirs, "PPO, DQN or SoftActorCritic")
        keys.refuse("name", f"is not in tenfold: the nearest is {instead}")
    name = NAMES[theirs]
    memory, net = agent.group("memory"), agent.group("net")
    settings, dueling = network(net, name)
    kind = {"ppo": ppo, "sac": sac, "dqn": dqn}[name]
    settings |= {"name": name} | kind(keys, memory, net, num_envs, options)
    if name == "dqn":
        settings["dueling"] = dueling
    for group in (keys, memory, net, agent):
        group.done()
    return settings


# what several of them have


def decay(keys: Keys, name: str) -> Any:
    """A variable that a spec lets decay, as a number or a schedule."""
    group = keys.group(name)
    start = group.number("start_val")
    kind = group.take("name", "no_decay")
    end, first, last = (
        group.number(key, start if key == "end_val" else 0)
        for key in ("end_val", "start_step", "end_step")
    )
    group.take("frequency")
    if kind not in ("no_decay", "linear_decay"):
        group.refuse("name", "is not in tenfold: use linear_decay")
    group.done()
    if kind == "no_decay":
        return start
    if last <= first:
        group.refuse("end_step", f"is not behind start_step = {show(first)}")
    after = f", after={show(int(first))}" if first else ""
    return f"linear({show(float(start))}, {show(float(end))}, {int(last - first)}{after})"


def clip_norm(net: Keys, separate: bool) -> float | None:
    """`clip_grad_val` is the longest gradient of a network."""
    limit = net.number("clip_grad_val", None)
    if limit is not None and separate:
        net.note("clip_grad_val", "one norm over policy and value, and not one each")
    return limit


def replay(memory: Keys, num_envs: int) -> Settings:
    """A replay memory."""
    kind = memory.require("name")
    settings = {
        "batch_size": memory.whole("batch_size"),
        "capacity": memory.whole("max_size"),
        "replay": "uniform",
    }
    if kind == "PrioritizedReplay":
        alpha, eps = memory.number("alpha"), memory.number("epsilon")
        # without importance weights
        settings["replay"] = f"prioritized({show(float(alpha))}, 0, {show(float(eps))})"
    elif kind != "Replay":
        memory.refuse("name", "is not in tenfold: use Replay or PrioritizedReplay")
    if memory.flag("use_cer"):
        memory.note("use_cer", "batches do not hold the newest transitions besides those drawn")
    return settings


def training(keys: Keys, memory: Keys, num_envs: int, iterations: int) -> Settings:
    """How often there are updates."""
    every = max(keys.whole("training_frequency", 1), num_envs)
    if every % num_envs:
        keys.note("training_frequency", f"updates come every {every} frames on average")
    updates = keys.whole("training_iter", iterations)
    repeats = keys.whole("training_batch_iter", 1)
    if repeats > 1:
        keys.note("training_batch_iter", "each of these updates draws a batch of its own")
    starts = keys.whole("training_start_step", memory.values.get("batch_size", 0))
    return {"every": every, "updates": updates * repeats, "learning_starts": starts}


def distribution(keys: Keys, allowed: tuple[str, ...]) -> None:
    """`action_pdtype`, which the environment decides here."""
    kind = keys.take("action_pdtype", "default")
    if kind not in allowed:
        keys.refuse("action_pdtype", f"is not in tenfold: use {allowed[0]}")


# the algorithms


def dqn(keys: Keys, memory: Keys, net: Keys, num_envs: int, options: int | None) -> Settings:
    vanilla = keys.values["name"] == "VanillaDQN"
    settings = replay(memory, num_envs) | training(keys, memory, num_envs, 1)
    policy = keys.take("action_policy", "epsilon_greedy")
    if policy not in ("epsilon_greedy", "boltzmann"):
        keys.refuse("action_policy", "is not in tenfold: use epsilon_greedy or boltzmann")
    distribution(keys, ("Argmax", "Categorical", "default"))
    schedule = decay(keys, "explore_var_spec")
    kind = "boltzmann" if policy == "boltzmann" else "epsilon"
    return settings | {
        "gamma": keys.number("gamma"),
        "explore": f"{kind}({show(schedule)})",
        "double": not vanilla,
        "target": target(net, num_envs, vanilla),
        "loss": net.group("loss_spec", {"name": "MSELoss"}).choice("name", LOSSES),
        "clip_norm": clip_norm(net, separate=False),
    }


def target(net: Keys, num_envs: int, vanilla: bool) -> str:
    """The network that next states are valued by."""
    kind, every = net.take("update_type", "replace"), net.whole("update_frequency", 1)
    coefficient = net.number("polyak_coef", None)
    if vanilla:
        return "hard(1)"
    if kind == "polyak":
        return f"polyak({show(float(coefficient or net.number('polyak_coef')))})"
    if kind != "replace":
        net.refuse("update_type", "is not in tenfold: use replace or polyak")
    net.note("update_frequency", "the target network is renewed before that step's updates")
    return f"hard(steps={max(every, num_envs)})"


def sac(keys: Keys, memory: Keys, net: Keys, num_envs: int, options: int | None) -> Settings:
    settings = replay(memory, num_envs) | training(keys, memory, num_envs, num_envs)
    distribution(keys, ("default", "Normal", "Categorical", "GumbelSoftmax"))
    if keys.take("action_policy", "default") != "default":
        keys.refuse("action_policy", "is not in tenfold: use default")
    keys.refuse_set(("symlog",), "is not in tenfold: leave it out")
    if net.take("update_type", "polyak") != "polyak":
        net.refuse("update_type", "is not in tenfold: use polyak")
    net.whole("update_frequency", 1)  # theirs moves target networks in every training
    loss = net.group("loss_spec", {"name": "MSELoss"})
    if loss.choice("name", LOSSES) != "mse":
        loss.note("name", "errors of the critics are squared")
    if net.number("clip_grad_val", None) is not None:
        net.note("clip_grad_val", "gradients of sac are not cut")
    for name in ("log_alpha_min", "log_alpha_max"):
        if keys.number(name, None) is not None:
            keys.note(name, "the temperature has no limits")
    if options:
        keys.notes.append(
            "discrete actions: the lower of both critics counts, as with continuous ones, and "
            "not their mean; the temperature has no limits"
        )
    return settings | {
        "gamma": keys.number("gamma"),
        "tau": net.number("polyak_coef", 0.005),
        "temperature": temperature(keys, options),
    }


def temperature(keys: Keys, options: int | None) -> str:
    fixed, target = keys.number("fixed_alpha", None), keys.number("target_entropy", None)
    if fixed is not None:
        return show(float(fixed))
    if target is None and options:
        target = DISCRETE_ENTROPY * math.log(options)
    return "auto" if target is None else f"auto({show(float(target))})"


def ppo(keys: Keys, memory: Keys, net: Keys, num_envs: int, options: int | None) -> Settings:
    if memory.require("name") not in ("OnPolicyBatchReplay", "OnPolicyReplay"):
        memory.refuse("name", "is not for PPO: use OnPolicyBatchReplay")
    distribution(keys, ("default", "Categorical", "Normal", "MultiCategorical"))
    if keys.take("action_policy", "default") != "default":
        keys.refuse("action_policy", "is not in tenfold: use default")
    if keys.take("explore_var_spec") is not None:
        keys.refuse("explore_var_spec", "is not for PPO: leave it out")
    keys.refuse_set(("symlog", "clip_val_loss"), "is not in tenfold: leave it out")
    if keys.take("normalize_advantages", True) not in (True, "standardize"):
        keys.refuse("normalize_advantages", "is not in tenfold: leave it out")
    loss = net.group("loss_spec", {"name": "MSELoss"})
    if loss.choice("name", LOSSES) != "mse":
        loss.note("name", "errors of the value are squared")
    clip, weight = decay(keys, "clip_eps_spec"), keys.number("val_loss_coef", 1.0)
    clips_value = keys.flag("clip_vloss")
    settings = {
        **rollout(keys, num_envs),
        "gamma": keys.number("gamma"),
        "lam": keys.number("lam"),
        "clip": clip,
        "value_clip": clip if clips_value else None,
        # the mean squared error, of which we take half; theirs with clipping has that half too
        "value_weight": weight if clips_value else 2 * weight,
        "normalize_advantage": "minibatch",
        "entropy": entropy(keys),
        "clip_norm": clip_norm(net, separate=not net.values.get("shared")),
    }
    if keys.flag("normalize_v_targets"):
        keys.note("normalize_v_targets", "their variance is taken up once a rollout")
        settings["normalize_value"] = True
    if (log_std := net.number("log_std_init", None)) is not None:
        settings["std"] = math.exp(log_std)
    return settings


def rollout(keys: Keys, num_envs: int) -> Settings:
    """Lengths of rollouts and minibatches; both are raised to multiples of the environments where
    one is none."""
    horizon, batch = keys.whole("time_horizon"), keys.whole("minibatch_size", 4)
    if horizon % num_envs or batch % num_envs:
        horizon, batch = (math.ceil(n / num_envs) * num_envs for n in (horizon, batch))
    return {
        "horizon": horizon,
        "minibatch_size": min(batch, horizon * num_envs),
        "epochs": keys.whole("training_epoch"),
    }


def entropy(keys: Keys) -> float:
    if "entropy_coef_spec" not in keys:
        keys.take("entropy_coef_spec")
        return 0.0
    value = decay(keys, "entropy_coef_spec")
    if isinstance(value, str):
        keys.refuse("entropy_coef_spec", "decays, which is not in tenfold: use no_decay")
    return value
