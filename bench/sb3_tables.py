"""Stable-Baselines3's constructors beside our settings, argument by argument, with both defaults.

Theirs are those of the version that is named; ours are read from the settings, so that
`readme.py --check` fails where one changes."""

from functools import partial, reduce
from typing import NamedTuple

from tables import render

VERSION = "2.9.2"


class Argument(NamedTuple):
    """`ours` is a setting's path, empty where there is none; `differs` is empty where both mean the
    same. `alike` says whether the defaults are, where the two texts do not tell."""

    theirs: str
    default: str
    ours: str
    differs: str = ""
    alike: bool | None = None


REPLAY = (
    Argument(
        "buffer_size",
        "1000000",
        "agent.capacity",
        "rows of all environments together; an episode takes one row more than it has steps",
    ),
    Argument("batch_size", "256", "agent.batch_size"),
    Argument("learning_starts", "100", "agent.learning_starts"),
    Argument(
        "train_freq",
        "1",
        "agent.every",
        "theirs counts calls of `step`, ours environment steps: `every` = `train_freq` · `n_envs`; "
        '(n, "episode") is `episodes(n)`',
    ),
    Argument("gradient_steps", "1", "agent.updates", "−1 is as many as steps, on both sides"),
    Argument("gamma", "0.99", "agent.gamma"),
)
OTHERWISE = {"batch_size": "32", "train_freq": "4"}  # of DQN
ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    "ppo": (
        Argument(
            "learning_rate", "0.0003", "agent.lr", "a function there is given what is left, 1 … 0"
        ),
        Argument("n_steps", "2048", "agent.horizon"),
        Argument(
            "batch_size",
            "64",
            "agent.minibatch_size",
            "`none` makes equal parts of 64",
            alike=True,
        ),
        Argument("n_epochs", "10", "agent.epochs"),
        Argument("gamma", "0.99", "agent.gamma"),
        Argument("gae_lambda", "0.95", "agent.lam"),
        Argument("clip_range", "0.2", "agent.clip"),
        Argument(
            "clip_range_vf",
            "none",
            "agent.value_clip",
            "theirs with `--agent.value-clip-kind clipped`, the loss of the clipped value alone",
        ),
        Argument(
            "normalize_advantage",
            "true",
            "agent.normalize_advantage",
            "theirs is `minibatch`, by mean and deviation (N − 1) of each; `true` is over the "
            "rollout",
        ),
        Argument("ent_coef", "0", "agent.entropy"),
        Argument(
            "vf_coef",
            "0.5",
            "agent.value_weight",
            "theirs weighs (V − R)², ours ½ (V − R)²: `value_weight` = 2 · `vf_coef`, so that the "
            "default here is half of theirs",
            alike=False,
        ),
        Argument("max_grad_norm", "0.5", "agent.clip_norm"),
        Argument(
            "target_kl",
            "none",
            "agent.target_kl",
            "theirs with `--agent.kl-stop minibatch`, before a step where its mean exceeds 1.5 · "
            "`target_kl`",
        ),
        Argument(
            "policy_kwargs: net_arch", "64,64", "agent.net.hidden", "`vf` is `net.value_hidden`"
        ),
        Argument("policy_kwargs: activation_fn", "tanh", "agent.net.activation"),
        Argument(
            "policy_kwargs: log_std_init",
            "0",
            "agent.std",
            "theirs is its logarithm: `std` = exp(`log_std_init`)",
            alike=True,
        ),
        Argument("policy_kwargs: optimizer eps", "1e-05", "agent.adam_eps"),
        Argument("use_sde", "false", "", "not here"),
    ),
    "dqn": (
        Argument("learning_rate", "0.0001", "agent.lr"),
        *(row._replace(default=OTHERWISE.get(row.theirs, row.default)) for row in REPLAY),
        Argument(
            "target_update_interval, tau",
            "10000, 1",
            "agent.target",
            "theirs is `hard(steps=10000, tau=1)`, environment steps from the first on; `hard(n)` "
            "counts updates, and `polyak(tau)` moves at every one",
        ),
        Argument(
            "exploration_initial_eps, _final_eps, _fraction",
            "1, 0.05, 0.1",
            "agent.explore",
            "theirs falls for a share of the run, ours for a number of steps: "
            "`epsilon(linear(1, 0.05, fraction · steps))`",
        ),
        Argument("max_grad_norm", "10", "agent.clip_norm"),
        Argument("(always single)", "false", "agent.double", "double unless it is `false`"),
        Argument("(always Huber)", "huber", "agent.loss"),
        Argument("policy_kwargs: net_arch", "64,64", "agent.net.hidden"),
        Argument("policy_kwargs: activation_fn", "relu", "agent.net.activation"),
    ),
    "sac": (
        Argument("learning_rate", "0.0003", "agent.lr"),
        *REPLAY,
        Argument("tau", "0.005", "agent.tau", "moves after every update"),
        Argument(
            "ent_coef, target_entropy",
            "auto, auto",
            "agent.temperature",
            '"auto_0.1" is `auto(none, 0.1)`; a number is that number',
            alike=True,
        ),
        Argument("action_noise", "none", "agent.noise", "`normal(σ)`, `ou(σ)`", alike=True),
        Argument(
            "policy_kwargs: net_arch", "256,256", "agent.net.hidden", "`qf` is `net.value_hidden`"
        ),
        Argument("policy_kwargs: activation_fn", "relu", "agent.net.activation"),
        Argument("use_sde", "false", "", "not here"),
    ),
    "td3": (
        Argument("learning_rate", "0.001", "agent.lr"),
        *REPLAY,
        Argument("tau", "0.005", "agent.tau", "moves with the policy"),
        Argument(
            "action_noise",
            "none",
            "agent.noise",
            "`NormalActionNoise(0, σ)` is `normal(σ)`, on actions drawn at random too; `none` "
            "there is 0 here",
        ),
        Argument("policy_delay", "2", "agent.policy_delay"),
        Argument("target_policy_noise", "0.2", "agent.smoothing"),
        Argument("target_noise_clip", "0.5", "agent.smoothing_clip"),
        Argument(
            "policy_kwargs: net_arch", "400,300", "agent.net.hidden", "`qf` is `net.value_hidden`"
        ),
        Argument("policy_kwargs: activation_fn", "relu", "agent.net.activation"),
    ),
}


def differences(agent: str) -> str:
    """The arguments of an algorithm; both defaults stand in bold where they differ. SAC's and TD3's
    tables leave out what DQN's says already and what is the same on both sides."""
    from tenfold.config.notation import show
    from tenfold.config.run import Run

    run = Run.of({"agent": {"name": agent}})

    def filled(argument: Argument) -> dict[str, str]:
        name, default, ours, *_ = argument
        theirs = name if name.startswith("(") else f"`{name}`"
        row = {"theirs": theirs, "default": default, "differs": argument.differs}
        if not ours:
            return row | {"flag": "", "value": ""}
        value = show(reduce(getattr, ours.split("."), run))
        alike = same(value, default) if argument.alike is None else argument.alike
        mark = "" if alike else "**"
        flag = f"`--{ours.replace('_', '-')}`"
        return row | {
            "flag": flag,
            "default": f"{mark}{default}{mark}",
            "value": mark + value + mark,
        }

    rows = [
        row
        for argument in ARGUMENTS[agent]
        if (row := filled(argument))["value"].startswith("**")
        or agent in ("ppo", "dqn")
        or (argument.differs and argument not in REPLAY)
    ]
    return render(
        f"`{agent.upper()}(…)` {VERSION} | default | ours | default | what differs",
        (rows, "{theirs}", "{default}", "{flag}", "{value}", "{differs}"),
    )


def same(ours: str, theirs: str) -> bool:
    """Of values as text: 1e-05 is 0.00001."""
    try:
        return float(ours) == float(theirs)
    except ValueError:
        return ours == theirs


TABLES = {f"sb3_{agent}": partial(differences, agent) for agent in ARGUMENTS}
