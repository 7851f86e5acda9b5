"""Stable-Baselines3's constructors beside our settings, argument by argument, with both defaults.

Theirs are those of the version that is named; ours are read from the settings, so that
`readme.py --check` fails where one changes."""

from functools import partial, reduce
from typing import NamedTuple

VERSION = "2.9.2"


class Row(NamedTuple):
    """`ours` is a setting's path, empty where there is none; `differs` is empty where both mean the
    same. `alike` says whether the defaults are, where the two texts do not tell."""

    theirs: str
    default: str
    ours: str
    differs: str = ""
    alike: bool | None = None


REPLAY = (
    Row(
        "buffer_size",
        "1000000",
        "agent.capacity",
        "rows of all environments together; an episode takes one row more than it has steps",
    ),
    Row("batch_size", "256", "agent.batch_size"),
    Row("learning_starts", "100", "agent.learning_starts"),
    Row(
        "train_freq",
        "1",
        "agent.every",
        "theirs counts calls of `step`, ours environment steps: `every` = `train_freq` · `n_envs`; "
        'there is no unit "episode"',
    ),
    Row("gradient_steps", "1", "agent.updates", "−1 there is `train_freq` · `n_envs` here"),
    Row("gamma", "0.99", "agent.gamma"),
)
OTHERWISE = {"batch_size": "32", "train_freq": "4"}  # of DQN
ROWS: dict[str, tuple[Row, ...]] = {
    "ppo": (
        Row("learning_rate", "0.0003", "agent.lr", "a function there is given what is left, 1 … 0"),
        Row("n_steps", "2048", "agent.horizon"),
        Row(
            "batch_size",
            "64",
            "agent.minibatches",
            "theirs is a size, ours a number: `n_steps` · `n_envs` / `batch_size`, whose parts are "
            "as equal as can be; `none` makes parts of 64",
            alike=True,
        ),
        Row("n_epochs", "10", "agent.epochs"),
        Row("gamma", "0.99", "agent.gamma"),
        Row("gae_lambda", "0.95", "agent.lam"),
        Row("clip_range", "0.2", "agent.clip", "a number, no schedule"),
        Row(
            "clip_range_vf",
            "none",
            "agent.value_clip",
            "theirs is the loss of the clipped value, ours the larger of both losses",
        ),
        Row(
            "normalize_advantage",
            "true",
            "agent.normalize_advantage",
            "theirs by mean and deviation (N − 1) of each minibatch, ours of the whole rollout (N)",
        ),
        Row("ent_coef", "0", "agent.entropy"),
        Row(
            "vf_coef",
            "0.5",
            "agent.value_weight",
            "theirs weighs (V − R)², ours ½ (V − R)²: `value_weight` = 2 · `vf_coef`, so that the "
            "default here is half of theirs",
            alike=False,
        ),
        Row("max_grad_norm", "0.5", "agent.clip_norm"),
        Row(
            "target_kl",
            "none",
            "agent.target_kl",
            "theirs stops before a minibatch's step where its mean exceeds 1.5 · `target_kl`; ours "
            "after an epoch whose mean (in closed form) exceeds `target_kl`",
        ),
        Row("policy_kwargs: net_arch", "64,64", "agent.net.hidden", "the same layers for both"),
        Row("policy_kwargs: activation_fn", "tanh", "agent.net.activation"),
        Row(
            "policy_kwargs: log_std_init",
            "0",
            "agent.std",
            "theirs is its logarithm: `std` = exp(`log_std_init`)",
            alike=True,
        ),
        Row("policy_kwargs: optimizer eps", "1e-05", "agent.adam_eps"),
        Row("use_sde", "false", "", "not here"),
    ),
    "dqn": (
        Row("learning_rate", "0.0001", "agent.lr"),
        *(row._replace(default=OTHERWISE.get(row.theirs, row.default)) for row in REPLAY),
        Row(
            "target_update_interval, tau",
            "10000, 1",
            "agent.target",
            "theirs counts environment steps, ours gradient updates: `hard(n)`, n = "
            "`target_update_interval` · `gradient_steps` / (`train_freq` · `n_envs`); "
            "`polyak(tau)` moves at every update",
        ),
        Row(
            "exploration_initial_eps, _final_eps, _fraction",
            "1, 0.05, 0.1",
            "agent.explore",
            "theirs falls for a share of the run, ours for a number of steps: "
            "`epsilon(linear(1, 0.05, fraction · steps))`",
        ),
        Row("max_grad_norm", "10", "agent.clip_norm"),
        Row("(always single)", "false", "agent.double", "double unless it is `false`"),
        Row("(always Huber)", "huber", "agent.loss"),
        Row("policy_kwargs: net_arch", "64,64", "agent.net.hidden"),
        Row("policy_kwargs: activation_fn", "relu", "agent.net.activation"),
    ),
    "sac": (
        Row("learning_rate", "0.0003", "agent.lr"),
        *REPLAY,
        Row("tau", "0.005", "agent.tau", "moves after every update"),
        Row(
            "ent_coef, target_entropy",
            "auto, auto",
            "agent.temperature",
            '"auto_0.1" is `auto(none, 0.1)`; a number is that number',
            alike=True,
        ),
        Row("action_noise", "none", "", "not here: the policy draws its actions"),
        Row("policy_kwargs: net_arch", "256,256", "agent.net.hidden", "the same layers for both"),
        Row("policy_kwargs: activation_fn", "relu", "agent.net.activation"),
        Row("use_sde", "false", "", "not here"),
    ),
    "td3": (
        Row("learning_rate", "0.001", "agent.lr"),
        *REPLAY,
        Row("tau", "0.005", "agent.tau", "moves with the policy"),
        Row(
            "action_noise",
            "none",
            "agent.noise",
            "`NormalActionNoise(0, σ)` is `noise = σ`, before actions are brought to their bounds; "
            "`none` there is 0 here",
        ),
        Row("policy_delay", "2", "agent.policy_delay"),
        Row("target_policy_noise", "0.2", "agent.smoothing"),
        Row("target_noise_clip", "0.5", "agent.smoothing_clip"),
        Row("policy_kwargs: net_arch", "400,300", "agent.net.hidden", "the same layers for both"),
        Row("policy_kwargs: activation_fn", "relu", "agent.net.activation"),
    ),
}


def differences(agent: str) -> str:
    """The rows of an algorithm; both defaults stand in bold where they differ."""
    from tenfold.config.notation import show
    from tenfold.config.run import Run

    run = Run.of({"agent": {"name": agent}})
    lines = [
        f"| `{agent.upper()}(…)` {VERSION} | default | ours | default | what differs |",
        "|---|---|---|---|---|",
    ]
    for row in ROWS[agent]:
        theirs = row.theirs if row.theirs.startswith("(") else f"`{row.theirs}`"
        if not row.ours:
            lines.append(f"| {theirs} | {row.default} | | | {row.differs} |")
            continue
        value = show(reduce(getattr, row.ours.split("."), run))
        alike = same(value, row.default) if row.alike is None else row.alike
        mark = "" if alike else "**"
        lines.append(
            f"| {theirs} | {mark}{row.default}{mark} | `--{row.ours.replace('_', '-')}` | "
            f"{mark}{value}{mark} | {row.differs} |"
        )
    return "\n".join(lines)


def same(ours: str, theirs: str) -> bool:
    """Of values as text: 1e-05 is 0.00001."""
    try:
        return float(ours) == float(theirs)
    except ValueError:
        return ours == theirs


TABLES = {f"sb3_{agent}": partial(differences, agent) for agent in ROWS}
