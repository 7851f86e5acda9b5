"""`tenfold eval`, `check`, `profile` and `list`."""

import argparse
import json
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tenfold.cli.flags import (
    add_run,
    add_settings,
    add_trust,
    chosen_run,
    print_table,
    settings_given,
    whole_number,
    whole_number_or_none,
)
from tenfold.config.files import named, presets
from tenfold.config.notation import read_yaml
from tenfold.core.errors import UserError, told_of
from tenfold.core.registry import Command, algorithms, domain_of, domains


def add_eval(parsers: Any, argv: Sequence[str]) -> None:
    evaluate = parsers.add_parser(
        "eval", help="play episodes with a trained agent", allow_abbrev=False
    )
    add_run(evaluate, archive=True)
    evaluate.add_argument("--episodes", default="20", help="how many (20)")
    evaluate.add_argument(
        "--checkpoint", default="last", metavar="best|last|STEP", help="which parameters (last)"
    )
    evaluate.add_argument("--seed", help="seeds the episodes (the run's seed by default)")
    evaluate.add_argument(
        "--video",
        nargs="?",
        const="",
        metavar="FILE",
        help="film an episode: .gif or .mp4 (RUN/video.gif, RUN/video-best.gif, …)",
    )
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")
    add_trust(evaluate)
    meet_domain(argv)
    for domain in domains():
        domain.add_flags(evaluate)


def meet_domain(argv: Sequence[str]) -> None:
    """Loads the domain of the run's environment, which may be a user's module, so that its flags
    are known."""
    if argv[:1] != ["eval"]:
        return
    from tenfold.runs.folder import RunFolder, is_run

    # what is wrong with the run is said when it is judged
    with suppress(UserError, OSError, ValueError):
        named = [word for word in argv[1:2] if not word.startswith("-")]
        path = chosen_run(named[0] if named else None)
        if is_run(path):
            domain_of(RunFolder.open(path, "--trust" in argv)[1].env)


def evaluate(arguments: argparse.Namespace) -> int:
    path = chosen_run(arguments.run)
    episodes = whole_number(arguments.episodes, "--episodes", 1, 10**6)
    seed = whole_number_or_none(arguments.seed, "--seed", 0)
    from tenfold.core.system import set_threads
    from tenfold.evaluation.evaluate import scores
    from tenfold.runs.archive import keep_outputs, opened

    # so small a network gains nothing by more, and threads that wait for a busy machine cost
    # seconds
    set_threads(1)
    options = {name: getattr(arguments, name) for domain in domains() for name in domain.flags}
    with opened(path) as folder:
        request = arguments.checkpoint, episodes, seed, arguments.video, options, arguments.trust
        result, lines = scores(folder, *request)
        show_film(folder, result, arguments.trust)
        text = json.dumps(result) if arguments.json else "\n".join(lines)
        if folder != path:  # an archive's, which goes
            text = text.replace(f'"run": "{folder}"', f'"run": {json.dumps(str(path))}')
            text = text.replace(str(folder), str(keep_outputs(folder, path)))
    print(text)
    return 0


def show_film(folder: Path, result: dict[str, Any], trust: bool) -> None:
    """Rewrites the page of a run after a film was made in its folder."""
    from tenfold.runs.folder import RunFolder
    from tenfold.runs.report import write_report

    filmed = Path(result["video"]).absolute().parent if "video" in result else None
    if filmed == folder.absolute() and (folder / "report.html").is_file():
        with suppress(OSError):  # the film is there, the page as it was
            write_report(*RunFolder.open(folder, trust))


EVAL = Command("eval", add_eval, evaluate)


def add_check(parsers: Any, argv: Sequence[str]) -> None:
    check = parsers.add_parser(
        "check", help="compare every fast path with its plain reference, here", allow_abbrev=False
    )
    check.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="only those with one of these in their name, such as returns; module:NAME for those "
        "of a module of your own",
    )


def own_pairs(name: str) -> str:
    """For `module:NAME` imports the module, which registers its pairs; returns NAME."""
    module, colon, inside = name.partition(":")
    if not colon:
        return name
    with told_of(f"{name}: importing {module}"):
        import_module(module)
    return inside


def check(arguments: argparse.Namespace) -> int:
    from rich.text import Text

    from tenfold.core.pairs import all_pairs, check_pair

    names = [own_pairs(name) for name in arguments.names]
    pairs = [
        tested for tested in all_pairs() if not names or any(name in tested.name for name in names)
    ]
    if not pairs:
        raise UserError(
            f"No fast path has {' or '.join(names)} in its name: `tenfold check` without "
            "a name shows all."
        )
    verdicts = [check_pair(tested) for tested in pairs]
    lines = [
        [
            verdict.name,
            str(verdict.cases),
            f"{verdict.difference:.2g}",
            verdict.tolerance,
            Text("equal", "green") if verdict.equal else Text("DIFFERENT", "red"),
        ]
        for verdict in verdicts
    ]
    print_table(("pair", "cases", "max difference", "tolerance", "verdict"), lines)
    equal = sum(verdict.equal for verdict in verdicts)
    print(f"{equal} of {len(lines)} fast paths equal their references on this machine.")
    return 0 if equal == len(lines) else 1


def add_profile(parsers: Any, argv: Sequence[str]) -> None:
    profile = parsers.add_parser(
        "profile",
        help="show where a run's time goes, engine by engine",
        allow_abbrev=False,
        usage="tenfold profile WHAT [--SETTING VALUE …]",
    )
    profile.add_argument(
        "what", metavar="WHAT", help="a preset, an agent or FILE.yaml, as for train"
    )
    profile.add_argument(
        "--engine",
        dest="engines",
        metavar="A,B",
        help="which engines (plain, and fused where it fits)",
    )
    profile.add_argument(
        "--for", dest="length", default="3k", metavar="STEPS", help="environment steps to time (3k)"
    )
    profile.add_argument(
        "--trace", metavar="FILE", help="where the Chrome trace goes (profile.json)"
    )
    add_settings(profile, argv, without=("engine",))


def profile(arguments: argparse.Namespace) -> int:
    run = named(arguments.what, settings_given(arguments))
    return show_run_profile(run, arguments.engines, arguments.length, arguments.trace)


def show_run_profile(run: Any, engines: str | None, length: str, trace_file: str | None) -> int:
    from tenfold.runs.storage import for_writing
    from tenfold.training.profiling import (
        engines_for,
        profile_run,
        show_profiles,
        verdict,
        write_trace,
    )

    steps = whole_number(length, "--for", 1, 10**8)
    trace = for_writing(Path(trace_file or "profile.json"), "--trace")
    profiles = [profile_run(run, engine, steps) for engine in engines_for(run, engines)]
    show_profiles(profiles)
    write_trace(profiles, trace)
    print(f"{verdict(profiles)}\ntrace: {trace} (open it at chrome://tracing or ui.perfetto.dev)")
    return 0


def add_list(parsers: Any, argv: Sequence[str]) -> None:
    parsers.add_parser(
        "list", help="show presets, agents, engines, environments and runs", allow_abbrev=False
    )


def show_list(arguments: argparse.Namespace) -> int:
    from tenfold.envs.making import known_environments

    print("presets")
    for name, path in presets().items():
        print(f"  {name:20} {about_preset(path)}")
    print("agents")
    for name, algorithm in algorithms().items():
        first, *_ = (algorithm.config.__doc__ or "").split("\n\n")
        print(f"  {name:20} {' '.join(first.split())}")
    print("engines")
    entries = {name: one for kind in algorithms().values() for name, one in kind.engines.items()}
    for name, entry in entries.items():
        print(f"  {name:20} {entry.about}")
    print("environments that are installed (ppo takes all actions, dqn one Discrete)")
    ids = known_environments()
    for start in range(0, len(ids), 4):
        print("  " + "".join(f"{i:32}" for i in ids[start : start + 4]).rstrip())
    list_runs()
    return 0


def about_preset(path: Path) -> str:
    """The preset's first line, if a comment, or its environment."""
    first = path.read_text().partition("\n")[0]
    return first.lstrip("# ") if first.startswith("#") else str(read_yaml(path).get("env"))


def list_runs() -> None:
    """Lists the runs below runs/."""
    from tenfold.runs.folder import is_seeds, is_sweep, runs_below
    from tenfold.runs.seeds import describe_run, describe_seeds
    from tenfold.runs.storage import RUNS
    from tenfold.runs.sweep_folder import describe_sweep

    paths = runs_below(RUNS)
    if not paths:
        return
    print("runs")
    many = {path.parent for path in paths if is_seeds(path.parent)}
    sweeps = {path.parent for path in many if is_sweep(path.parent)}
    paths = [path.parent if path.parent in many else path for path in paths]
    for path in dict.fromkeys(p.parent if p.parent in sweeps else p for p in paths):
        about = (
            describe_sweep if path in sweeps else describe_seeds if path in many else describe_run
        )
        print(f"  {path!s:32} {about(path)}")


COMMANDS = (
    Command("check", add_check, check),
    Command("profile", add_profile, profile),
    Command("list", add_list, show_list),
)
