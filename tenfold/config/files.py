"""Runs by name: presets, agents, YAML files; and which settings may import user modules.

Modules that settings name (`my_module:MyNet`) are imported, and so run, when the run is opened.
That is done for folders that this user wrote the settings of, and for no others unless the user
says so (`trust`): a folder that was downloaded may name anything. Beside the settings stands a file
of marks, one for each module that they name, made with a key that only this user has.

Everything that is read from a folder or an archive and can become a setting goes through
`require_trust` before it is used: config.yaml, best.yaml, the changes of seeds.json, the search of
sweep.json, the settings in a checkpoint's note.
"""

import hashlib
import hmac
import inspect
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tenfold.config.agent_config import AgentConfig
from tenfold.config.notation import load_yaml, merge, nearest, nested, read_yaml
from tenfold.config.run import AGENTS_OWN, Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.other_libraries import algorithm_elsewhere
from tenfold.core.registry import OWN, Tell, domains, file_forms


def preset_folders() -> set[Path]:
    """The folders of presets: of the package, and of installed domains."""
    package = Path(__file__).parent.parent
    homes = {Path(inspect.getfile(type(domain))).parent for domain in domains()}
    return {
        package / "config" / "presets",
        *package.glob("domains/*/presets"),
        *(home / "presets" for home in homes),
    }


def presets() -> dict[str, Path]:
    paths = (path for folder in preset_folders() for path in folder.glob("*.yaml"))
    return {path.stem: path for path in sorted(paths, key=lambda path: path.name)}


def named(
    what: str, change: dict[str, Any] | None = None, tell: Tell = lambda sentence: None
) -> Run:
    """A run from a preset's name, an agent's name (one's own as module:Name) or a YAML file, with
    `change` on top. Of another library's file `tell` is given what was read of it."""
    agents = AgentConfig.kinds()
    if what in presets():
        base = read_yaml(presets()[what])
    elif what in agents:
        base = {"agent": {"name": what}}
    elif what.endswith((".yaml", ".yml")):
        if not Path(what).is_file():
            raise ConfigError(
                "",
                f"{what} is not there: give a YAML file, a preset or an agent (tenfold list shows "
                "them).",
            )
        content = load_yaml(Path(what))
        base = nested(content)
        require_trusted_file(Path(what), base)
        if form := next((form for form in file_forms() if form.reads(content)), None):
            return form.run_of(Path(what), content, change or {}, tell)
    elif OWN.fullmatch(what):
        base = {"agent": {"name": what}}
    else:
        raise ConfigError("", unknown(what))
    base = without_replaced(without_other_agent(base, change or {}), change or {})
    return Run.of(merge(fitted(base, change or {}), change or {}))


ENV_ID = re.compile(r".+-v\d+(\(.*\))?")


def unknown(what: str) -> str:
    """An error message for an unknown name."""
    if ENV_ID.fullmatch(what):
        return (
            f"{what} is an environment: say who learns in it, such as `tenfold train dqn --env "
            f'{what}`, in Python ten.train("dqn", env="{what}").'
        )
    agents = AgentConfig.kinds()
    if answer := algorithm_elsewhere(what):
        return f"{what} is no agent here: {answer} (agents are {', '.join(agents)})."
    return (
        f"{what} is no preset, agent or YAML file{nearest(what, [*agents, *presets()], 3)}: "
        f"`tenfold list` shows the presets, agents are {', '.join(agents)} and your own as "
        "module:Name, and a file ends in .yaml."
    )


def resolve_run(run: Any, change: dict[str, Any], quiet: bool = False) -> Run:
    """`run`, settings or a name for `named`, with `change` on top. Prints what was read of another
    library's file, unless `quiet`."""
    if isinstance(run, str):
        return named(run, nested(change), (lambda sentence: None) if quiet else print)
    if not isinstance(run, Run):
        raise ConfigError(
            "",
            f"{type(run).__name__} is no run: give settings, ten.Run(…), or the name of a preset, "
            "an agent or a YAML file.",
        )
    return changed(run, nested(change)) if change else run


def changed(run: Run, change: dict[str, Any]) -> Run:
    """`run` with `change` on top."""
    return Run.of(merge(without_other_agent(to_mapping(run), change), change))


def without_other_agent(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Settings without those of their agent, if `change` names another agent."""
    agent, new_agent = base.get("agent"), change.get("agent")
    if (
        not isinstance(agent, Mapping)
        or not isinstance(new_agent, Mapping)
        or "name" not in new_agent
    ):
        return base
    if str(new_agent["name"]) == str(agent.get("name", AgentConfig.usual)):
        return base

    def kept(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in settings.items() if name != "agent"}

    return {
        name: kept(value) if name in SECTIONS and isinstance(value, Mapping) else value
        for name, value in kept(base).items()
    }


MANY_ENVS = 1024
# sections of a preset or YAML file, and for which runs they hold
SECTIONS: dict[str, Callable[[Run], bool]] = {
    "on_cuda": lambda run: run.device == "cuda",
    "many_envs": lambda run: run.num_envs >= MANY_ENVS,
}


def fitted(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The settings of a file with those of its sections that apply to a run with `change`: settings
    for one environment on a CPU differ from those for thousands on a GPU."""
    settings = {name: value for name, value in base.items() if name not in SECTIONS}
    for name, holds in SECTIONS.items():
        if section := base.get(name):
            Run.of(merge(settings, section))  # a mistake in it is told, whatever the run
            if holds(Run.of(merge(settings, change))):
                settings = merge(settings, section)
    return settings


def without_replaced(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file without those that `change` sets at their other place: on the run
    instead of the agent, or the reverse."""

    def has(settings: Any, name: str) -> bool:
        return isinstance(settings, Mapping) and bool({name, name.replace("_", "-")} & {*settings})

    def without(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
        return {k: v for k, v in settings.items() if k not in (name, name.replace("_", "-"))}

    kept = dict(base)
    for name in AGENTS_OWN:
        if has(change.get("agent"), name):
            kept = without(kept, name)
        if has(change, name) and has(kept.get("agent"), name):
            kept["agent"] = without(kept["agent"], name)
    return kept


# trust

# anywhere in a setting: schedules stand inside of other settings
MODULE = re.compile(r"(?<![\w.])([^\W\d][\w.]*):(?=[^\W\d])")
PLAIN = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
MARK = ".modules"
# packages whose wrappers are imported because a file names them: what they do is known
KNOWN_WRAPPERS = ("gymnasium.wrappers", "minigrid.wrappers")
# what a folder of runs holds: YAML files in such a folder may be anybody's
OF_FOLDERS = ("run.json", "seeds.json", "compare.json", "sweep.json")


# whether modules that are named are imported: all of them, those, or those of the user's own
# settings
Trust = bool | frozenset[str]


def modules_in(settings: Any) -> Iterator[str]:
    """Names of modules in nested settings."""
    if isinstance(settings, Mapping):
        yield from modules_of(settings.get("env"))
        for value in settings.values():
            yield from modules_in(value)
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from modules_in(value)
    elif isinstance(settings, str):
        yield from (match[1] for match in MODULE.finditer(settings))


def modules_of(env: Any) -> Iterator[str]:
    """The modules of an environment's name. Gymnasium imports whatever stands before a colon, even
    if it is no identifier."""
    if not isinstance(env, str):
        return
    name = env.partition("(")[0]
    if ":" in name:
        yield name.partition(":")[0].strip()
    for domain in domains():
        yield from domain.modules(env)


def modules_beyond(env: str, own: Any) -> list[str]:
    """The modules that an environment's name in somebody's file would import, beyond those in
    `own`, which the user wrote, and beyond packages whose wrappers are known."""
    return sorted({*modules_in({"env": env})} - {*modules_in(own)} - {*KNOWN_WRAPPERS})


def user_key() -> bytes:
    """This user's secret key, created when first needed; empty if it cannot be stored."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(home) / "tenfold" / "key"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = path.with_name(f".key.{os.getpid()}")
            with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            made.rename(path)
        return path.read_bytes()
    except OSError:
        return b""


def mark_of(*modules: str) -> str:
    key = user_key()
    text = "\n".join(sorted(modules)).encode(errors="surrogatepass")
    return hmac.new(key, text, hashlib.sha256).hexdigest() if key else ""


def marks_in(folder: Path) -> list[str]:
    """The marks in a folder, not verified."""
    try:
        return (folder / MARK).read_text().split()
    except (OSError, ValueError):
        return []


def distrusted(folder: Path, modules: set[str]) -> list[str]:
    """The modules that this user has not marked."""
    marks = marks_in(folder)

    def is_marked(*names: str) -> bool:
        mark = mark_of(*names)
        return bool(mark) and any(hmac.compare_digest(mark, known) for known in marks)

    if not modules or is_marked(
        *modules
    ):  # as earlier versions marked them: all of config.yaml together
        return []
    return sorted(name for name in modules if not is_marked(name))


def require_trust(folder: Path, settings: Any, trust: Trust) -> None:
    """Refuses to import modules that somebody else's settings name."""
    if trust is True:
        return
    modules = set(modules_in(settings)) - (trust or frozenset())
    if not modules or not (unmarked := distrusted(folder, modules)):
        return
    names = ", ".join(n if PLAIN.fullmatch(n) else ascii(n) for n in unmarked)
    raise UserError(
        f"{folder} names {names:.200}, which would be imported and run, and was not made by you "
        "here: if you trust whoever made it, give --trust (in Python trust=True) where that is "
        "taken, or take a copy of its settings for a run of your own."
    )


def clusters_in(settings: Any) -> Iterator[str]:
    """Ray clusters in settings, as marks name them: joining one runs its code."""
    if isinstance(settings, Mapping) and settings.get("address") not in (None, "", "auto"):
        yield f"ray {settings['address']}"


def require_trusted_cluster(
    folder: Path, run: Any, trust: Trust, change: Mapping[str, Any] | None = None
) -> None:
    """Refuses to join a cluster that somebody else's settings name; an address in `change` is the
    user's own."""
    if trust is True or run.where != "ray" or "address" in (change or {}):
        return
    if unmarked := distrusted(folder, set(clusters_in({"address": run.address}))):
        raise UserError(
            f"{folder} names {unmarked[0]:.200}, a cluster that would be joined and may run code "
            "here, and was not made by you here: give an --address of your own, or --trust (in "
            "Python trust=True) if you trust whoever made it."
        )


def require_trusted_file(file: Path, settings: Any) -> None:
    """`require_trust` for a YAML file in a folder of runs; other files are the user's own."""
    folder = file.parent
    if not any((folder / name).exists() for name in OF_FOLDERS):
        return
    modules = set(modules_in(settings))
    if unmarked := modules and distrusted(folder, modules):
        names = ", ".join(n if PLAIN.fullmatch(n) else ascii(n) for n in unmarked)
        raise UserError(
            f"{file} names {names:.200}, which would be imported and run, and {folder} was not "
            "made by you here: if you trust whoever made it, copy the file out of that folder and "
            "name the copy."
        )
