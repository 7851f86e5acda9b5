"""Writes the tables of README.md and docs/*.md from bench/results/*.json; with --check it only says
whether they are fresh."""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import ray_tables

ROOT = Path(__file__).parent.parent


def results(name: str) -> dict:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())


def learning() -> str:
    found = results("learning")
    cases: dict[str, list[dict]] = {}
    for row in found["rows"]:
        cases.setdefault(row["case"], []).append(row)
    lines = [
        "| run | returns by seed | solved is | solved | seconds a run (two at a time) |",
        "|---|---|---|---|---|",
    ]
    for case, rows in cases.items():
        returns = ", ".join(
            f"{r['mean_return']:.2f}" if r["bar"] < 1 else f"{r['mean_return']:.1f}" for r in rows
        )
        solved = f"{sum(r['solved'] for r in rows)} of {len(rows)}"
        seconds = sum(r["seconds"] for r in rows) / len(rows)
        lines.append(f"| {case} | {returns} | ≥ {rows[0]['bar']:g} | {solved} | {seconds:.0f} |")
    return "\n".join(lines)


def published() -> str:
    """Against SLM-Lab's published averages, as it reports them."""
    if not (ROOT / "bench" / "results" / "published.json").exists():
        return ""
    lines = [
        "| command | frames, seeds | mean of the last 100 training episodes | interquartile mean, "
        "95 % interval | lowest, highest seed | SLM-Lab: DQN, double + prioritised | bar, goal | "
        "minutes | SB3's minutes |",
        "|---" * 9 + "|",
    ]
    for r in results("published")["rows"]:
        low, high = r["interval"]
        lines.append(
            f"| `{r['command']}` | {r['steps']:,}, {r['seeds']} | {r['mean']:.1f} | "
            f"{r['iqm']:.1f}, {low:.1f} to {high:.1f} | {r['min']:.1f}, {r['max']:.1f} | "
            f"{r['slm_dqn']:g}, {r['slm_ddqn_per']:g} | {r['bar']:g}, {r['goal']:g} | "
            f"{r['minutes']:.1f} | {r['sb3_minutes']:.0f} |"
        )
    return "\n".join(lines)


def continuous() -> str:
    """What presets of soft actor-critic reach."""
    lines = [
        "| preset | steps | greedy return of each seed | mean | bar | others | where, minutes |",
        "|---" * 7 + "|",
    ]
    for r in results("continuous")["rows"]:
        each = ", ".join(f"{value:,.0f}" for value in r["returns"])
        took = "" if r["minutes"] is None else f", {r['minutes']:.1f}"
        lines.append(
            f"| `{r['name']}` | {r['steps']:,} | {each} | **{r['mean']:,.1f}** | "
            f"≥ {r['bar']:,} | {r['others']} | {r['where']}{took} |"
        )
    if (ROOT / "bench" / "results" / "sac-curves.json").exists():
        (r,) = results("sac-curves")["rows"]
        told = [
            f"{who} {side['iqm']} ({side['interval'][0]} to {side['interval'][1]})"
            for who, side in (
                ("tenfold", r["tenfold"]),
                ("Stable-Baselines3", r["stable_baselines3"]),
            )
        ]
        lines += [
            "",
            f"With equal settings on {r['setting']['env']}, {r['setting']['steps']:,} steps, eight "
            f"seeds each, interquartile means of final greedy returns and their 95 % intervals: "
            f"{', '.join(told)}.",
        ]
    return "\n".join(lines)


def defaults() -> str:
    """Defaults against defaults; a task that one side has not played yet stays out."""
    if not (ROOT / "bench" / "results" / "defaults.json").exists():
        return ""
    lines = [
        "| command | seeds | tenfold: interquartile mean, 95 % interval | Stable-Baselines3 | "
        "intervals overlap, or ours is above |",
        "|---" * 5 + "|",
    ]
    for r in results("defaults")["table"]:
        if "at_least" in r:
            ours, theirs = r["tenfold"], r["sb3"]
            told = [
                "{:.1f}, {:.1f} to {:.1f}".format(side["iqm"], *side["interval"])
                for side in (ours, theirs)
            ]
            lines.append(
                f"| `tenfold train {r['agent']} --env {r['env']} --steps {r['steps'] // 1000}k` | "
                f"{ours['seeds']} | {' | '.join(told)} | {'yes' if r['at_least'] else 'NO'} |"
            )
    return "\n".join(lines)


def policies() -> str:
    """PPO's returns beside SLM-Lab's, then makespans."""
    if not (ROOT / "bench" / "results" / "policies.json").exists():
        return ""
    rows = results("policies")["rows"]
    lines = [
        "| command | frames | interquartile mean, 95 % interval | lowest, highest seed | "
        "SLM-Lab's PPO | bar | minutes |",
        "|---" * 7 + "|",
    ]
    for r in rows:
        if "iqm" in r:
            low, high = r["interval"]
            published, bar = ("" if r[k] is None else f"{r[k]:g}" for k in ("slm_ppo", "bar"))
            lines.append(
                f"| `{r['command']}` | {r['steps']:,} | {r['iqm']:.1f}, {low:.1f} to {high:.1f} | "
                f"{r['min']:.1f}, {r['max']:.1f} | {published} | {bar} | {r['minutes']:.1f} |"
            )
    lines += [
        "",
        "| command | best of 64 samples, by seed | greedy | untrained, best of 64 | SPT, MWKR, "
        "FIFO, random (best of 64) | optimum | minutes |",
        "|---" * 7 + "|",
    ]
    for r in rows:
        if "optimum" in r:
            best, greedy, before = (
                ", ".join(map(str, r[k]))
                for k in ("best_makespan", "greedy_makespan", "untrained_best_makespan")
            )
            rules = ", ".join(str(r["rules"][rule]) for rule in ("SPT", "MWKR", "FIFO", "random"))
            lines.append(
                f"| `{r['command']}` | {best} | {greedy} | {before} | {rules} | {r['optimum']} | "
                f"{r['minutes']:.1f} |"
            )
    return "\n".join(lines)


def worlds() -> str:
    """What agents of one world learn."""
    if not (ROOT / "bench" / "results" / "worlds.json").exists():
        return ""
    lines = [
        "| command | steps | mean return of an agent, by seed | random | scripted | closed of the "
        "gap between (least) | bar | minutes |",
        "|---" * 8 + "|",
    ]
    for r in results("worlds")["rows"]:
        returns = ", ".join(f"{value:.1f}" for value in r["returns"])
        lines.append(
            f"| `{r['command']}` | {r['steps']:,} | {returns} | {r['random']:.1f} | "
            f"{r['scripted']:.1f} | {r['closed']:.0%} ({r['least_closed']:.0%}) | {r['bar']:.0%} | "
            f"{r['minutes']:.1f} |"
        )
    return "\n".join(lines)


def colonies() -> str:
    """What colonies learn, on substrates that no training saw; the network before training beside
    it, where it was played."""
    if not (ROOT / "bench" / "results" / "durotaxis.json").exists():
        return ""
    rows = results("durotaxis")["rows"]
    scripted = {
        (r["yardstick"], r["mode"], r["substrate"]): r
        for r in rows
        if "yardstick" in r and "seed" not in r
    }
    learned, untrained = ({}, {})
    for r in rows:
        if "seed" in r:
            which = tuple(
                r[name] for name in ("trained_on", "mode", "substrate", "rounding", "policy")
            )
            (untrained if "yardstick" in r else learned).setdefault(which, []).append(r)
    before = " untrained, by seed |" if untrained else ""
    lines = [
        f"| trained on, mode | tried on | successes by seed | steps to the goal by seed |{before} "
        "constant action | follower |",
        "|---" * (7 if untrained else 6) + "|",
    ]
    for kind, own in learned.items():
        success, steps = by_seed(own)
        beside = [scripted.get((name, kind[1], kind[2])) for name in ("constant", "follower")]
        cells = " | ".join(
            "" if r is None else f"{r['success']:.1%}, {r['steps_to_goal']:.1f}" for r in beside
        )
        if untrained:
            cells = f"{'; '.join(by_seed(untrained[kind])) if kind in untrained else ''} | {cells}"
        down = ", deletions rounded down" if kind[3] == "floor" else ""
        lines.append(
            f"| {kind[0]}, {kind[1]} | {kind[2]} ({kind[4]}{down}) | {success} | {steps} | {cells} "
            "|"
        )
    return "\n".join(lines)


def starts() -> str:
    """How far colonies' policies carry: successes by seed for every size and number of first
    nodes; a dash for a seed that was not played there."""
    if not (ROOT / "bench" / "results" / "durotaxis-starts.json").exists():
        return ""
    rows = results("durotaxis-starts")["rows"]
    numbers = sorted({r["nodes"] for r in rows if r["nodes"] != "as trained"})
    heads = ["trained on, mode, first nodes", "thousand steps", "tried on", "as trained"]
    heads += [f"{n} node{'s' * (n > 1)}" for n in numbers]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    policies: dict[str, list[dict]] = {}
    for r in rows:
        first = re.search(r"init_nodes=([\d.]+)", r.get("env", ""))
        trained = f"{r['substrate']}, {r.get('mode')}, {first[1] if first else 5}"
        scripted = f"{r.get('yardstick')}, on {r['substrate']}"
        policies.setdefault(trained if "seed" in r else scripted, []).append(r)
    for whose, own in policies.items():
        played = {(r["size"], r["nodes"], r.get("seed")): f"{100 * r['success']:.0f}" for r in own}
        steps = {r.get("seed"): f"{r.get('steps', 0) / 1000:.0f}" for r in own}

        def cell(size: str, nodes: int | str, played=played, steps=steps) -> str:
            each = [played.get((size, nodes, seed), "–") for seed in steps]
            return "" if set(each) == {"–"} else f"{', '.join(each)} %"

        trained = [
            ", ".join(steps.values()) if None not in steps else "",
            cell(*["as trained"] * 2),
        ]
        for size in dict.fromkeys(r["size"] for r in own if r["size"] != "as trained"):
            cells = " | ".join(cell(size, n) for n in numbers)
            lines.append(f"| {whose} | {trained[0]} | {size} | {trained[1]} | {cells} |")
            whose, trained = "", ["", ""]
    return "\n".join(lines)


def by_seed(rows: list[dict]) -> tuple[str, str]:
    """Successes, and steps to the goal."""
    return (
        ", ".join(f"{r['success']:.1%}" for r in rows),
        ", ".join("–" if r["steps_to_goal"] is None else f"{r['steps_to_goal']:.1f}" for r in rows),
    )


def fields() -> str:
    """Which experiments identify a hidden system best."""
    if not (ROOT / "bench" / "results" / "fields.json").exists():
        return ""
    rows = results("fields")["rows"]
    policies = list(dict.fromkeys(r["policy"] for r in rows))
    lines = [
        f"| field | steps | {' | '.join(policies)} | random − active | R² of observations 1, 5, 10 "
        "ahead (active) | the same of ARX on these data |",
        "|---" * (5 + len(policies)) + "|",
    ]
    for field, step in sorted({(r["field"], r["step"]) for r in rows}):
        own = {r["policy"]: r for r in rows if (r["field"], r["step"]) == (field, step)}
        cells = " | ".join(
            "{:.3f} ({:.3f} to {:.3f})".format(*own[p]["error"]) if p in own else ""
            for p in policies
        )
        active = own.get("active", {})
        less = (
            "{:.3f} ({:.3f} to {:.3f})".format(*active["less_than_random"])
            if "less_than_random" in active
            else ""
        )
        r2 = " | ".join(
            ", ".join(f"{active[name][k][0]:.3f}" for k in ("1", "5", "10"))
            if name in active
            else ""
            for name in ("r2", "arx_r2")
        )
        lines.append(f"| {field} | {step:,} | {cells} | {less} | {r2} |")
    return "\n".join(lines)


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
    "colony-torch": "a step of colonies in torch (machine with a GPU)",
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
        if not (ROOT / "bench" / "results" / f"{name}.json").exists():
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


def cuda() -> str:
    """What was measured on a GPU, by the machines it was measured on."""
    files = sorted((ROOT / "bench" / "results").glob("cuda-*.json"))
    if not files:
        return "Not measured yet."
    found = [json.loads(file.read_text()) for file in files]
    rows = [row for each in found for row in each["rows"]]
    tables = [cuda_ratios([r for r in rows if "ratio" in r])]
    tables += [cuda_commands([r for r in rows if "seconds" in r])]
    tables += [cuda_curves([r for r in rows if "overlap" in r])]
    machines = {gpu_machine(each["machine"], each["versions"]): True for each in found}
    return "\n\n".join([table for table in tables if table] + list(machines))


def cuda_ratios(rows: list[dict]) -> str:
    lines = ["| what | setting | baseline, a second | tenfold, a second | ratio | equal |"]
    lines.append("|---" * 6 + "|")
    for r in rows:
        setting = ", ".join(
            f"{v} {k}" if isinstance(v, int) else f"{k} {v}"
            for k, v in r["setting"].items()
            if k != "gpu"
        )
        apart = r.get("max_diff")
        equal = "" if apart is None else f"yes, {apart:.0e}" if r["equal"] else "NO"
        sides = (
            f"{r[side]}: {r.get(f'{side}_per_second') or 1e6 / r[f'{side}_us']:,.0f}"
            for side in ("baseline", "candidate")
        )
        lines.append(
            f"| {CUDA.get(r['name'], r['name'])} | {setting} | {' | '.join(sides)} | "
            f"**{r['ratio']:g}** | {equal} |"
        )
    return "\n".join(lines)


def cuda_commands(rows: list[dict]) -> str:
    if not rows:
        return ""
    lines = [
        "| command, kernels on disk | seconds | of them rounds | the first time | return |",
        "|---" * 5 + "|",
    ]
    for r in rows:
        lines.append(
            f"| `{r['setting']['command']}` | {r['seconds']:.1f} | {r['training_seconds']:.2f} | "
            f"{r['first_seconds']:.1f} | {r['return']:.1f} |"
        )
    return "\n".join(lines)


def cuda_curves(rows: list[dict]) -> str:
    if not rows:
        return ""
    lines = ["| preset | step | resident, GPU | fused, CPU | intervals overlap |", "|---" * 5 + "|"]
    for r in rows:
        sides = ("{:.1f} ({:.1f} to {:.1f})".format(*r[side]) for side in ("resident", "fused"))
        lines.append(
            f"| {r['setting']['preset']} | {r['setting']['step']:,} | {' | '.join(sides)} | "
            f"{'yes' if r['overlap'] else 'NO'} |"
        )
    return "\n".join(lines)


def gpu_machine(m: dict, versions: dict) -> str:
    jax = versions.get("jax", "not installed")
    beside = "" if jax == "not installed" else f", JAX {jax}"
    return (
        f"Machine: {m['gpu']} ({m['gpu_memory_gb']} GB, driver {m['driver']}, CUDA {m['cuda']}), "
        f"{m['cpu']}, {m['cores']} cores, Python {m['python']}, torch {versions['torch']}, Triton "
        f"{versions['triton']}{beside}."
    )


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


# of README.md: a file of results, whom we are compared to, what was done
FAST = (
    ("dqn-update", "eager PyTorch", "a DQN update, 64-64, batch 32"),
    ("cartpole-dqn", "Stable-Baselines3", "DQN on CartPole, an update a step"),
    ("cartpole-dqn", "Tianshou", "the same"),
    ("cartpole-compiled-dqn", "JAX whole loop", "the same, compiled CartPole"),
    ("cartpole-ppo", "Stable-Baselines3's PPO", "PPO on CartPole, 8 x 128"),
    ("cartpole-compiled-ppo", "Stable-Baselines3's PPO", "the same, compiled CartPole"),
    ("colony-training", "one graph at a time", "PPO on colonies, graphs of changing size"),
    (
        "explorer-step",
        "loops, clones, re-encoding",
        "a step of the explorer: plan, act, correct, train",
    ),
    ("rllib-ppo", "RLlib's masking example", "a PPO iteration of RLlib, 10 masked heads"),
)


def fast() -> str:
    """The first row against each opponent."""
    lines = ["| what | beside | times as fast |", "|---|---|---|"]
    for name, opponent, title in FAST:
        row = next(r for r in results(name)["rows"] if r["baseline"] == opponent)
        lines.append(f"| {title} | {opponent} | **{row['ratio']:.3g}** |")
    return "\n".join(lines)


def learns() -> str:
    lines = ["| `tenfold train …` | tenfold | Stable-Baselines3 |", "|---|---|---|"]
    for r in results("defaults")["table"]:
        task = f"{r['agent']} --env {r['env']} --steps {r['steps'] // 1000}k"
        lines.append(f"| `{task}` | {r['tenfold']['iqm']:.0f} | {r['sb3']['iqm']:.0f} |")
    return "\n".join(lines)


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


def theirs() -> str:
    """What other libraries call our settings: the words that the command line answers."""
    from tenfold.config.leaves import SUCH_AS, THEIRS

    lines = ["| theirs | ours | such as |", "|---|---|---|"]
    for ours, words in THEIRS.items():
        told = ", ".join(f"`{word}`" for word in words.split())
        such = f"`{SUCH_AS[ours]}`" if ours in SUCH_AS else ""
        lines.append(f"| {told} | `--{ours.replace('_', '-')}` | {such} |")
    return "\n".join(lines)


# what the rows of a GPU's file are called
CUDA = {
    "cuda-dqn": "DQN, an update a step",
    "cuda-gae": "generalised advantages",
    "cuda-graph-dqn": "cudagraph, DQN's updates",
    "cuda-graph-images": "cudagraph, DQN's updates from images",
    "cuda-graph-ppo": "cudagraph, PPO's learning phases",
    "cuda-graph-sac": "cudagraph, updates of SAC and TD3",
    "cuda-graph-team": "cudagraph, updates of a team",
    "cuda-ppo": "PPO",
}

TABLES = {
    "cuda": cuda,
    "fast": fast,
    "learns": learns,
    "theirs": theirs,
    "defaults": defaults,
    "learning": learning,
    "published": published,
    "continuous": continuous,
    "policies": policies,
    "worlds": worlds,
    "colonies": colonies,
    "starts": starts,
    "fields": fields,
    "speed": speed,
    "bench": bench,
    "reports": reports,
    **ray_tables.TABLES,
}


def main() -> int:
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text()
        fresh = re.sub(
            r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)",
            lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}",
            text,
            flags=re.DOTALL,
        )
        if fresh != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(fresh)
    if "--check" in sys.argv:
        print(
            f"{', '.join(stale)} stale: run python bench/readme.py"
            if stale
            else "the docs' tables are fresh"
        )
        return len(stale)
    return 0


if __name__ == "__main__":
    sys.exit(main())
