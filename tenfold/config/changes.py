"""Settings that can change on resume: those that do not change the meaning of the saved state.

No torch here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenfold.config.notation import differing, dotted, merge, nested, show
from tenfold.config.run import Run
from tenfold.config.schedules import Exponential, Linear, Table
from tenfold.config.schema import Count, convert, to_mapping
from tenfold.core.errors import ConfigError

CHANGEABLE = (
    "steps",
    "agent.lr",
    "agent.entropy",
    "agent.clip",
    "agent.epochs",
    "agent.explore",
    "eval_every",
    "eval_episodes",
    "eval_policy",
    "eval_steps",
    "episode_limit",
    "checkpoint_every",
    "keep",
    "log_every",
    "where",
    "address",
    "ahead",
    "on_death",
    "patience",
    "engine",
    "stack",
    "verify",
    "device",
    "threads",
    "env_form",
    "env_threads",
)

# those of them that decide who holds what a checkpoint saves, and in which form
STATE_HOLDERS = ("where", "ahead", "on_death", "engine", "stack", "verify", "device")


def changed_run(run: Run, change: Mapping[str, Any]) -> Run:
    """The run with changed settings, nested or by dotted names; refuses settings that cannot change
    on resume."""
    change = nested(change)
    for path in dotted(change):
        if path not in CHANGEABLE:
            raise ConfigError(
                path,
                "cannot change on resume, since what was saved was made with it: start a run of "
                f"its own. What can change: {', '.join(CHANGEABLE)}.",
            )
    new = Run.of(merge(to_mapping(run), change))
    require_same_networks(new, run)
    in_processes = [settings.where in ("processes", "ray") for settings in (new, run)]
    if new.actors == 1 and in_processes[0] != in_processes[1]:
        raise ConfigError(
            "where",
            f"= {new.where} cannot be on resume: one actor's state in a process of its own is not "
            f"what it is here; leave it at {run.where}.",
        )
    lr = ending_lr(new)
    if new.steps > run.steps and lr == ending_lr(run) and (end := idle_from(new)):
        raise ConfigError(
            "agent.lr",
            f"= {show(lr)} ended at 0 at step {end:,}: nothing would be learned from "
            f"there to step {new.steps:,}; give --agent.lr a number or a schedule that goes on.",
        )
    return new


def require_same_networks(new: Run, before: Run) -> None:
    """Refuses a change that needs other networks than those saved."""
    if new.agent.name != before.agent.name:
        return  # which is refused by its name
    try:
        new.agent.check_change(before.agent)
    except ConfigError as error:
        raise error.within("agent") from None


def new_end(
    run: Run, steps: Any, more: Any, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The new end of a resumed run as a change of settings: `steps` in all, or `more` than
    before."""
    if more is None:
        return {} if steps is None else {"steps": steps}
    if steps is not None or "steps" in (settings or {}):
        raise ConfigError(
            "more", f"= {show(more)} says how many steps come on top: leave out steps."
        )
    return {"steps": run.steps + convert(more, Count, "more")}


def ending_lr(run: Run) -> Linear | Exponential | Table | None:
    """The learning rate, if it is a schedule that ends at a step."""
    lr = getattr(run.agent, "lr", None)
    return lr if isinstance(lr, Linear | Exponential | Table) else None


def idle_from(run: Run) -> int | None:
    """The step from which the learning rate is 0 before the run ends."""
    lr = ending_lr(run)
    return lr.last if lr and lr.end == 0 and lr.last < run.steps else None


def advice(run: Run) -> list[str]:
    """Notes on settings that are valid but may not be what was meant."""
    end = idle_from(run)
    idle = end and f"agent.lr ends at 0 at step {end:,}: nothing is learned from there on."
    sentences = (cut_short(run), never_learns(run), unused_layers(run))
    notes = (idle, *sentences, named_in_main(run))
    return [note for note in notes if note]


def named_in_main(run: Run) -> str:
    """A note about classes and functions that are defined in `__main__`."""
    settings = dotted(to_mapping(run))
    values = {name: str(value) for name, value in settings.items()}
    in_main = [f"{name} = {value}" for name, value in values.items() if "__main__:" in value]
    if not in_main:
        return ""
    return (
        f"{', '.join(in_main)}: only this program has it, so `tenfold resume` and `tenfold eval` "
        "cannot go on with the run; put it into a module of its own and import it from there."
    )


def cut_short(run: Run) -> str:
    """A note if a run ends before the schedule of its learning rate: most often a preset with fewer
    steps."""
    lr = ending_lr(run)
    if lr is None or lr.last <= run.steps:
        return ""
    return (
        f"agent.lr = {show(lr)} is made for {lr.last:,} steps, and this run ends at {run.steps:,}."
    )


def unused_layers(run: Run) -> str:
    """A note if layer widths are set together with a custom network, which ignores them."""
    net: Any = getattr(run.agent, "net", None)
    if not getattr(net, "module", "") or net.hidden == type(net).hidden:
        return ""
    return f"agent.net.hidden = {show(net.hidden)} is not used: agent.net.module takes its place."


def never_learns(run: Run) -> str:
    """A note if a run ends before its first update."""
    first = run.agent.first_update(run)
    if first is None or run.steps >= first[0]:
        return ""
    return f"this run ends at step {run.steps:,}, before it learns: {first[1]} comes first."


def constant_from(before: Run, run: Run) -> str:
    """A note if a resumed run goes beyond the end of its learning rate's schedule."""
    lr = ending_lr(run)
    if lr is None or run.steps <= max(before.steps, lr.last) or lr != ending_lr(before):
        return ""
    return (
        f"agent.lr = {show(lr)} ends at step {lr.last:,} and stays at {lr.end:g} to step "
        f"{run.steps:,}: --agent.lr sets another."
    )


def changes(before: Mapping[str, Any], run: Run, file: Path) -> dict[str, list[str]]:
    """Differences from the settings that a checkpoint was saved with, as old and new value; refuses
    those that cannot change."""
    # a setting that was not there yet has its default
    require_same_networks(run, Run.of(before))
    now, before, changed = to_mapping(run), to_mapping(Run.of(before)), {}
    for path in differing(now, before):
        if path not in CHANGEABLE:
            raise ConfigError(
                path,
                f"in {file} is not what the checkpoint was trained with: put it back, or start a "
                f"run of its own. What can change: {', '.join(CHANGEABLE)}.",
            )
        changed[path] = [show(dotted(settings).get(path)) for settings in (before, now)]
    return changed


def changes_in_words(changed: Mapping[str, list[str]]) -> str:
    """agent.lr 0.001 → 0.0001, steps 600 → 900."""
    return ", ".join(f"{name} {old} → {new}" for name, (old, new) in changed.items())
