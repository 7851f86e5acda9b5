"""One renderer for the docs' tables, and the tables of how long things take: rows of
bench/results/*.json, each {name, setting, baseline, candidate, …, ratio, equal}."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]
Cell = str | Callable[[Row], str]  # a format of a row's values, or a function of the row
Group = tuple[Iterable[Row], *tuple[Cell, ...]]  # rows, and what each of their cells holds


def render(heads: str, *groups: Group) -> str:
    """A table in Markdown: headings separated by |, and rows."""
    lines = [f"| {heads} |", "|---" * (heads.count(" | ") + 1) + "|"]
    for rows, *cells in groups:
        for row in rows:
            filled = (cell(row) if callable(cell) else cell.format_map(row) for cell in cells)
            lines.append(f"| {' | '.join(filled)} |")
    return "\n".join(lines)


def results(name: str) -> dict[str, Any]:
    """The file of a benchmark: rows, machine and versions. No rows where it was not measured."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {"rows": []}


def rows_of(name: str) -> list[Row]:
    return results(name)["rows"]


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in names)].append(row)
    return groups


def listed(values: Iterable[float], form: str = ".1f") -> str:
    return ", ".join(format(value, form) for value in values)


def equality(row: Row) -> str:
    """With the largest difference; empty where whole programs are compared."""
    if row.get("max_diff") is None:
        return ""
    return f"yes, {row['max_diff']:.0e}" if row["equal"] else "NO"


INTERVAL = "{iqm:.1f}, {interval[0]:.1f} to {interval[1]:.1f}"
# files, and what their rows are called
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
    "mujoco-step": "a step of 16 MuJoCo environments",
    "mujoco-runs": "HalfCheetah end to end",
}
SPOKEN = ("width", "batch", "updates", "work", "hidden", "env", "substrate", "colonies", "nodes")
SPOKEN += ("k", "gpu", "threads")  # of a setting


def speed() -> str:
    return render(
        "what | setting | baseline | tenfold | ratio | equal",
        (
            ({**row, "title": title} for name, title in SPEED.items() for row in rows_of(name)),
            "{title}",
            setting_in_words,
            lambda row: f"{row['baseline']}: {amount(row, 'baseline')}",
            lambda row: f"{row['candidate']}: {amount(row, 'candidate')}",
            "**{ratio:g}**",
            equality,
        ),
    )


# files of the page's own table, a row each; all rows are in bench/README.md
SHORT = (
    "dqn-update",
    "dqn-update-full",
    "dqn-update-wide",
    "cartpole-dqn",
    "cartpole-compiled-dqn",
    "products",
    "eight-seeds",
    "cartpole-ppo",
    "recurrent-zoo",
    "sac-update",
    "pendulum-sac",
    "masked-heads-acting",
    "gae",
    "rllib-ppo",
    "ring",
    "team-update",
    "heavy-environment",
    "colony-training",
    "plan",
    "explorer-step",
    "explorer-members",
)


def speed_short() -> str:
    """The fast engines beside one opponent a file, Stable-Baselines3 where it is one."""
    files = {
        name.replace("the same", "a DQN update"): rows_of(file)
        for file, name in SPEED.items()
        if file in SHORT
    }
    return shortened(
        {**row, "title": title}
        for title, rows in files.items()
        for row in rows
        if row["baseline"] == opponent(rows) and row["candidate"] != "plain engine"
    )


def times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def opponent(rows: list[Row]) -> str:
    names = [row["baseline"] for row in rows]
    return next((name for name in names if name.startswith("Stable-Baselines3")), names[0])


def shortened(rows: Iterable[Row]) -> str:
    """A line for each title and opponent: the first ratio, and the range of all."""
    groups = grouped(rows, "title", "baseline").values()
    lines = [{**group[0], "ratios": [row["ratio"] for row in group]} for group in groups]
    return render(
        "what | beside | ratio | over all settings",
        (
            lines,
            "{title}",
            "{baseline}",
            lambda row: f"**{times(row['ratio'])}**",
            lambda row: (
                f"{times(min(row['ratios']))} to {times(max(row['ratios']))}"
                if len(row["ratios"]) > 1
                else ""
            ),
        ),
    )


def setting_in_words(row: Row) -> str:
    return ", ".join(f"{k} {dashed(v)}" for k, v in row["setting"].items() if k in SPOKEN)


def dashed(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)


def amount(row: Row, side: str) -> str:
    if f"{side}_per_second" in row:
        return f"{row[f'{side}_per_second']:,} steps/s"
    us = row[f"{side}_us"]
    return f"{us / 1e6:.1f} s" if us > 1e5 else f"{us:,.1f} µs"


# of README.md: a file of results, whom we are compared to, what was done, at which sizes; and the
# same at larger ones, where it was measured: file, setting
LARGE = (("dqn-update", {"batch": 512}), ("dqn-update-wide", {"hidden": [256, 256]}))
SMALL = "layers 64-64, batch 32, 1 environment"
ROLLOUT = "layers 64-64, 8 environments x 128 steps"
MORE = (("cartpole-dqn-128", {"batch": 128}),)
SB3_PPO = "Stable-Baselines3's PPO"
COLONIES = "PPO on colonies, graphs of changing size"
PLAN = "3 models, plans of 32 x horizon 10"
HEADS = "10 heads x 8, layers 64-64, 2,048 steps"
FAST = (
    ("dqn-update", "eager PyTorch", "a DQN update", "layers 64-64, batch 32", LARGE),
    ("cartpole-dqn", "Stable-Baselines3", "DQN on CartPole, an update a step", SMALL, MORE),
    ("cartpole-dqn", "Tianshou", "the same", SMALL, ()),
    ("cartpole-compiled-dqn", "JAX whole loop", "the same, compiled CartPole", SMALL, ()),
    ("cartpole-ppo", SB3_PPO, "PPO on CartPole", ROLLOUT, ()),
    ("cartpole-compiled-ppo", SB3_PPO, "the same, compiled CartPole", ROLLOUT, ()),
    ("colony-training", "one graph at a time", COLONIES, "batch 64", ()),
    ("explorer-step", "loops, clones, re-encoding", SPEED["explorer-step"], PLAN, ()),
    ("rllib-ppo", "RLlib's masking example", "a PPO iteration of RLlib, masked heads", HEADS, ()),
)


def fast() -> str:
    """The first row against each opponent, and how much is left of it where there is more
    arithmetic."""
    rows = (
        {**first(name, opponent), "title": title, "sizes": sizes, "larger": larger}
        for name, opponent, title, sizes, larger in FAST
    )
    cells = "{title}", "{baseline}", "{sizes}", "**{ratio:.3g}**", larger_ratios
    return render("what | beside | sizes | times as fast | larger", (rows, *cells))


def fast_real() -> str:
    """What is gained at the sizes that people train at."""
    by_sb3 = [row["ratio"] for row in rows_of("real-work")]
    sac = [row["ratio"] for row in rows_of("cuda-wide-updates") if "JAX" in row["baseline"]]
    cheetahs = max(rows_of("cuda-mujoco-step")[:5], key=lambda row: row["setting"]["threads"])
    asleep = rows_of("split-step")[0]
    cores = f"{results('real-work')['machine']['cores']} CPU cores"
    rows = [
        ("HalfCheetah by SAC, 256-256, an update a step", "Stable-Baselines3", cores, by_sb3[1]),
        ("HalfCheetah by PPO, 64-64, 16 environments", "Stable-Baselines3", cores, by_sb3[0]),
        ("an update of SAC, 256-256, batch 256", "JAX, one jitted scan", "H200", sac[0]),
        ("the same in TensorFloat32", "JAX, one jitted scan", "H200", sac[1]),
        ("a step of 16 HalfCheetahs", "Gymnasium, one by one", "16 cores", cheetahs["ratio"]),
        ("a step of 8 environments of 5 ms", "one by one", "8 processes", asleep["ratio"]),
    ]
    names = "what", "beside", "on", "ratio"
    dicts = [dict(zip(names, row, strict=True)) for row in rows]
    return render(
        "real work | beside | on | times as fast",
        (dicts, "{what}", "{beside}", "{on}", "**{ratio:.3g}**"),
    )


def sb3_scripts() -> str:
    """Scripts for Stable-Baselines3, with their import changed."""
    by_script: dict[str, dict[str, Row]] = {}
    for row in rows_of("sb3-scripts"):
        setting = row["setting"]
        by_script.setdefault(setting["script"], {})[setting["callback"]] = row
    watched = "at every step"
    return render(
        "script | Stable-Baselines3, steps/s | times as fast | with a callback at every step",
        (
            [rows["none"] | {"watched": rows[watched]["ratio"]} for rows in by_script.values()],
            "{setting[script]}",
            "{baseline_per_second:,}",
            "**{ratio:.3g}**",
            "{watched:.3g}",
        ),
    )


def sb3_curves() -> str:
    """What scripts reach, with their import changed and without."""
    side = "{iqm} ({interval[0]} to {interval[1]}), {seeds} seeds"

    def text(name: str) -> Callable[[Row], str]:
        return lambda row: side.format(**row[name], seeds=len(row[name]["returns"]))

    return render(
        "script | steps | tenfold | Stable-Baselines3",
        (
            rows_of("sb3-curves"),
            "{setting[class]} on {setting[env]}",
            "{setting[steps]:,}",
            text("tenfold"),
            text("stable_baselines3"),
        ),
    )


def larger_ratios(row: Row) -> str:
    words = []
    for name, setting in row["larger"]:
        ((key, value),) = setting.items()
        ratio = first(name, row["baseline"], **setting)["ratio"]
        words.append(f"{ratio:.3g} at {'layers' if key == 'hidden' else key} {dashed(value)}")
    return "; ".join(words)


def first(name: str, opponent: str, **setting: Any) -> Row:
    """The first row of a file's results against an opponent that has these settings."""
    return next(
        row
        for row in rows_of(name)
        if row["baseline"] == opponent and row["setting"] | setting == row["setting"]
    )


def bench() -> str:
    return (
        render(
            "what | measured | bar",
            (
                rows_of("adapter"),
                "adapter, {setting[env]} × {setting[num_envs]}: a step over the environment itself",
                "{overhead_us:.2f} µs ({adapter_us:.2f} against {environment_us:.2f}; "
                "Gymnasium's SyncVectorEnv {sync_vector_us:.2f})",
                "{bar_us:g} µs",
            ),
            (rows_of("startup"), "{name}", "{seconds:.2f} s", "{bar:g} s"),
            (
                rows_of("timers"),
                "timers that are always on, {setting[engine]} engine",
                "{share:.1%} of a round",
                "1 %",
            ),
        )
        + "\n\nMachine: {machine[cpu]}, {machine[cores]} cores, {machine[memory_gb]} GB, Python "
        "{machine[python]}, torch {versions[torch]}.".format_map(results("adapter"))
    )


def reports() -> str:
    found = results("reports")
    return (
        render(
            "runs | metrics read | seconds (bar) | of the processor | page (bar) | memory at most",
            (
                found["rows"],
                "{setting[seeds]} seeds × {setting[episodes]:,} episodes",
                "{read_mb} MB",
                "{seconds:.1f} ({bar_seconds:g})",
                "{cpu_seconds:.1f}",
                "{page_mb:.2f} MB ({bar_mb:g})",
                "{memory_mb} MB",
            ),
        )
        + f"\n\nFrom the start of the process, on one core of an {found['machine']['cpu']}."
    )


def mujoco(file: str = "mujoco-step") -> str:
    """A step of each task by Gymnasium and in compiled code, on one thread and on more."""
    measured = rows_of(file)
    by_task: dict[str, list[Row]] = defaultdict(list)
    for row in measured:
        by_task[row["setting"]["env"]].append(row)
    counts = sorted({row["setting"]["threads"] for row in measured})
    heads = " | ".join(f"{n} thread{'s' * (n > 1)}" for n in counts)
    tasks = [{"env": env, "rows": rows} for env, rows in by_task.items()]
    return render(
        f"µs a step, 16 environments | Gymnasium | {heads}",
        (
            tasks,
            "`{env}`",
            lambda task: f"{task['rows'][0]['baseline_us']:,.1f}",
            *(
                lambda task, i=i: "{candidate_us:,.1f} (**{ratio:g}×**)".format_map(task["rows"][i])
                for i in range(len(counts))
            ),
        ),
    )


def wide_updates() -> str:
    """Updates of sac and td3 on a GPU, by precision."""
    by_setting: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for row in rows_of("cuda-wide-updates"):
        setting = row["setting"]
        group = by_setting[setting["agent"], setting["products"]]
        rival = "jax" if "JAX" in row["baseline"] else "torch"
        group |= {"setting": setting, "ours": row["candidate_us"], rival: row}
    cell = "{baseline_us:,.1f} (**{ratio:.1f}×**)"
    return render(
        "agent | products | tenfold, µs | PyTorch as a CUDA graph | JAX, one jitted scan",
        (
            list(by_setting.values()),
            "`{setting[agent]}`",
            "{setting[products]}",
            "**{ours:.1f}**",
            lambda group: cell.format_map(group["torch"]),
            lambda group: cell.format_map(group["jax"]) if "jax" in group else "–",
        ),
    )


def update_threads() -> str:
    """Updates of wide networks by number of threads, machine by machine."""
    groups: list[dict[str, Any]] = []
    for file in ("cuda-update-threads", "update-threads"):
        found = results(file)
        for agent in ("sac", "td3", "dqn", "ppo"):
            rows = [row for row in found["rows"] if row["setting"]["agent"] == agent]
            machine, ratios = found["machine"], {r["setting"]["threads"]: r["ratio"] for r in rows}
            groups += [{**rows[0], "machine": machine, "ratios": ratios}] if rows else []
    counts = sorted({count for group in groups for count in group["ratios"]})

    def cell(count: int) -> Any:
        return lambda group: times(group["ratios"][count]) if count in group["ratios"] else ""

    heads = " | ".join(f"{count} threads" for count in counts)
    return render(
        f"update of 256-256 | batch | on | 1 thread, µs | {heads}",
        (
            groups,
            "`{setting[agent]}`",
            "{setting[batch]}",
            "{machine[cores]} cores, {machine[cpu]}",
            "{baseline_us:,.0f}",
            *map(cell, counts),
        ),
    )


def split_steps() -> str:
    """A step of environments in one process and in several."""
    found = results("split-step")
    table = render(
        "environments | a step of each | processes | one process, µs | several, µs | times",
        (
            found["rows"],
            "{setting[num_envs]}",
            "{setting[work]}",
            "{setting[processes]}",
            "{baseline_us:,.0f}",
            "{candidate_us:,.0f}",
            lambda row: times(row["ratio"]),
        ),
    )
    return f"{table}\n\n" + "On {cores} cores of an {cpu}.".format_map(found["machine"])


def real_work() -> str:
    """Work of usual sizes from start to end, by machine."""
    files = [file for name in ("cuda-real-work", "real-work") if (file := results(name))["rows"]]

    rows = [
        {
            **row,
            "work": row["setting"]["work"],
            "where": "H200" if row["setting"]["device"] == "cuda" else "CPU",
            "cores": row["setting"]["cores"],
            "beside": row.get("baseline", "–"),
            "ours": row.get("candidate_per_second", row.get("steps_per_second")),
        }
        for file in files
        for row in file["rows"]
    ]
    return render(
        "work | on | cores | beside | its steps/s | tenfold, steps/s | times",
        (
            rows,
            "{work}",
            "{where}",
            "{cores}",
            "{beside}",
            lambda row: f"{row['baseline_per_second']:,}" if "baseline" in row else "–",
            "**{ours:,}**",
            lambda row: times(row["ratio"]) if "ratio" in row else "–",
        ),
    )


TABLES = {
    "real_work": real_work,
    "wide_updates": wide_updates,
    "update_threads": update_threads,
    "split_steps": split_steps,
    "mujoco": mujoco,
    "mujoco_cores": lambda: mujoco("cuda-mujoco-step"),
    "speed": speed,
    "speed_short": speed_short,
    "bench": bench,
    "fast": fast,
    "fast_real": fast_real,
    "sb3_scripts": sb3_scripts,
    "sb3_curves": sb3_curves,
    "reports": reports,
}
