"""Tables of what was measured on GPUs."""

import json

from table_parts import RESULTS

# what the rows of a GPU's file are called
CUDA = {
    "cuda-dqn": "DQN, an update a step",
    "cuda-gae": "generalised advantages",
    "cuda-graph-dqn": "cudagraph, DQN's updates",
    "cuda-graph-images": "cudagraph, DQN's updates from images",
    "cuda-graph-ppo": "cudagraph, PPO's learning phases",
    "cuda-graph-recurrent": "cudagraph, PPO with a memory",
    "cuda-graph-sac": "cudagraph, updates of SAC and TD3",
    "cuda-graph-team": "cudagraph, updates of a team",
    "cuda-ppo": "PPO",
}


def cuda() -> str:
    """What was measured on a GPU, by the machines it was measured on."""
    files = sorted(RESULTS.glob("cuda-*.json"))
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


TABLES = {"cuda": cuda}
