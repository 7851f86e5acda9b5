"""Tables of how long things take, here and beside others."""

from typing import Any

from table_parts import RESULTS, results

# file, and what its rows are called; a row's own words are its setting
SPEED = {
    "dqn-update": "a DQN update",
    "dqn-update-full": "the same, double + dueling + prioritised + 3-step + Huber + clip",
    "dqn-update-wide": "the same, 256-256",
    "updates-in-one-call": "K updates a call",
    "cartpole-dqn": "CartPole-v1 end to end, one update a step",
    "cartpole-dqn-128": "the same, batch 128",
    "cartpole-dqn-by-64": "64 updates every 64 steps",
    "cartpole-compiled-dqn": "tenfold/CartPole-v1 end to end",
    "cartpole-compiled-dqn-128": "the same, batch 128",
    "products": "small products, register tiles",
    "per": "prioritised replay of 100k",
    "eight-seeds": "eight seeds on two cores",
    "cartpole-ppo": "PPO, CartPole-v1 end to end",
    "cartpole-compiled-ppo": "PPO, tenfold/CartPole-v1 end to end",
    "recurrent-zoo": "PPO with an LSTM, CartPole without velocities",
    "recurrent-zoo-256": "the same, a wide LSTM",
    "recurrent-default": "the same, minibatches of one lane",
    "sac-update": "a SAC update, two critics",
    "sac-products": "the same beside its bare products",
    "pendulum-sac": "SAC, Pendulum-v1 end to end, one update a step",
    "pendulum-compiled-sac": "SAC, tenfold/Pendulum-v1 end to end",
    "masked-heads-acting": "10 heads x 8 options: logits, mask, sample, log-probability",
    "masked-heads-one-hot": "one-hot of 10 components",
    "masked-heads-tables": "masked heads, tables made once",
    "masked-heads-baselines": "counterfactual baselines, 10 x 8, 64-64",
    "closed-forms": "entropy and divergence",
    "gae": "advantages (GAE), 2048 x 64",
    "observations": "Dict observation of 20 keys",
    "rllib-act": "RLlib, 10 heads x 8 options: acting",
    "rllib-loss": "RLlib, PPO's loss and gradient",
    "rllib-ppo": "RLlib, a PPO iteration",
    "ring": "rows between two processes",
    "weights": "weights from learner to actor",
    "waiting": "waiting",
    "frames": "stacked frames from replay",
    "team-update": "an update of five agents",
    "treasure-actors": "treasure-small, actors and learner",
    "heavy-environment": "an environment that takes 1 ms a step",
    "treasure-windows": "64 gridworlds x 5 agents, what all see",
    "treasure-turns": "64 gridworlds x 5 agents, a turn",
    "colony-step": "64 colonies of 50 nodes, a step",
    "colony-features": "64 colonies of 50 nodes, what is seen",
    "k-smallest": "the k smallest nodes by (x, id)",
    "reward-record": "64 colonies' named rewards",
    "graph-forward": "a policy on graphs, forward",
    "component-gae": "advantages of 10 reward components, 32 x 64",
    "colony-training": "PPO on colonies, end to end",
    "latent-bound": "evidence bound of a latent model, forward and backward",
    "latent-tables": "its weights and windows",
    "latent-ensemble": "an ensemble of 5 dynamics models",
    "latent-encoder": "a new observation, gru encoder",
    "plan": "one plan, 32 sequences x horizon 10, 5 models, D-optimality",
    "explorer-step": "a step of the explorer: plan, act, correct, train",
    "explorer-members": "eight seeds of an explorer",
    "window-append": "a step into a full window",
    "encoder-carried": "reading one observation, gru",
}


def speed() -> str:
    lines = ["| what | setting | baseline | tenfold | ratio | equal |", "|---|---|---|---|---|---|"]
    for name, title in SPEED.items():
        if not (RESULTS / f"{name}.json").exists():
            continue
        for r in results(name)["rows"]:
            said = (
                "width",
                "batch",
                "updates",
                "work",
                "hidden",
                "env",
                "substrate",
                "colonies",
                "nodes",
                "k",
                "gpu",
            )
            words = {k: v for k, v in r["setting"].items() if k in said}
            setting = ", ".join(
                f"{k} {'-'.join(map(str, v)) if isinstance(v, list) else v}"
                for k, v in words.items()
            )
            equal = (
                "" if r["equal"] is None else f"yes, {r['max_diff']:.0e}" if r["equal"] else "NO"
            )
            lines.append(
                f"| {title} | {setting} | {r['baseline']}: {amount(r, 'baseline')} | "
                f"{r['candidate']}: {amount(r, 'candidate')} | **{r['ratio']:g}** | {equal} |"
            )
    return "\n".join(lines)


def amount(r: dict, side: str) -> str:
    if f"{side}_per_second" in r:
        return f"{r[f'{side}_per_second']:,} steps/s"
    us = r[f"{side}_us"]
    return f"{us / 1e6:.1f} s" if us > 1e5 else f"{us:,.1f} µs"


def bench() -> str:
    adapter, startup, timers = results("adapter"), results("startup"), results("timers")
    lines = ["| what | measured | bar |", "|---|---|---|"]
    for r in adapter["rows"]:
        s = r["setting"]
        lines.append(
            f"| adapter, {s['env']} × {s['num_envs']}: a step over the environment itself | "
            f"{r['overhead_us']:.2f} µs ({r['adapter_us']:.2f} against {r['environment_us']:.2f}; "
            f"Gymnasium's SyncVectorEnv {r['sync_vector_us']:.2f}) | {r['bar_us']:g} µs |"
        )
    for r in startup["rows"]:
        lines.append(f"| {r['name']} | {r['seconds']:.2f} s | {r['bar']:g} s |")
    for r in timers["rows"]:
        lines.append(
            f"| timers that are always on, {r['setting']['engine']} engine | {r['share']:.1%} of a "
            "round | 1 % |"
        )
    m = adapter["machine"]
    return "\n".join(
        [
            *lines,
            "",
            f"Machine: {m['cpu']}, {m['cores']} cores, {m['memory_gb']} GB, Python {m['python']}, "
            f"torch {adapter['versions']['torch']}.",
        ]
    )


# of README.md: a file of results, whom we are compared to, what was done, at which sizes; and the
# same at larger ones, where it was measured: file, setting
LARGE = (("dqn-update", {"batch": 512}), ("dqn-update-wide", {"hidden": [256, 256]}))
SMALL = "layers 64-64, batch 32, 1 environment"
ROLLOUT = "layers 64-64, 8 environments x 128 steps"
FAST = (
    ("dqn-update", "eager PyTorch", "a DQN update", "layers 64-64, batch 32", LARGE),
    (
        "cartpole-dqn",
        "Stable-Baselines3",
        "DQN on CartPole, an update a step",
        SMALL,
        (("cartpole-dqn-128", {"batch": 128}),),
    ),
    ("cartpole-dqn", "Tianshou", "the same", SMALL, ()),
    ("cartpole-compiled-dqn", "JAX whole loop", "the same, compiled CartPole", SMALL, ()),
    ("cartpole-ppo", "Stable-Baselines3's PPO", "PPO on CartPole", ROLLOUT, ()),
    (
        "cartpole-compiled-ppo",
        "Stable-Baselines3's PPO",
        "the same, compiled CartPole",
        ROLLOUT,
        (),
    ),
    (
        "colony-training",
        "one graph at a time",
        "PPO on colonies, graphs of changing size",
        "batch 64",
        (),
    ),
    (
        "explorer-step",
        "loops, clones, re-encoding",
        "a step of the explorer: plan, act, correct, train",
        "3 models, plans of 32 x horizon 10",
        (),
    ),
    (
        "rllib-ppo",
        "RLlib's masking example",
        "a PPO iteration of RLlib, masked heads",
        "10 heads x 8, layers 64-64, 2,048 steps",
        (),
    ),
)


def fast() -> str:
    """The first row against each opponent, and how much is left of it where there is more
    arithmetic."""
    lines = [
        "| what | beside | sizes | times as fast | larger |",
        "|---|---|---|---|---|",
    ]
    for name, opponent, title, sizes, larger in FAST:
        row = first(name, opponent)
        more = [
            f"{first(other, opponent, **setting)['ratio']:.3g} at {in_words(setting)}"
            for other, setting in larger
        ]
        lines.append(
            f"| {title} | {opponent} | {sizes} | **{row['ratio']:.3g}** | {'; '.join(more)} |"
        )
    return "\n".join(lines)


def first(name: str, opponent: str, **setting: Any) -> dict[str, Any]:
    """The first row of a file's results against an opponent that has these settings."""
    return next(
        row
        for row in results(name)["rows"]
        if row["baseline"] == opponent and row["setting"] | setting == row["setting"]
    )


def in_words(setting: dict[str, Any]) -> str:
    """Of one setting."""
    ((name, value),) = setting.items()
    return f"layers {'-'.join(map(str, value))}" if name == "hidden" else f"{name} {value}"


def reports() -> str:
    found = results("reports")
    lines = [
        "| runs | metrics read | seconds (bar) | of the processor | page (bar) | memory at most |",
        "|---|---|---|---|---|---|",
    ]
    for r in found["rows"]:
        s = r["setting"]
        lines.append(
            f"| {s['seeds']} seeds × {s['episodes']:,} episodes | {r['read_mb']} MB | "
            f"{r['seconds']:.1f} ({r['bar_seconds']:g}) | {r['cpu_seconds']:.1f} | "
            f"{r['page_mb']:.2f} MB ({r['bar_mb']:g}) | {r['memory_mb']} MB |"
        )
    m = found["machine"]
    where = f"From the start of the process, on one core of an {m['cpu']}."
    return "\n".join([*lines, "", where])


TABLES = {"speed": speed, "bench": bench, "fast": fast, "reports": reports}
