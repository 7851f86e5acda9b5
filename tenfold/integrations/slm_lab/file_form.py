"""The command line of SLM-Lab: `tenfold train spec.json NAME MODE -s key=value`.

Its first word, `run`, and `PROFILE=true` are understood too."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenfold.cli.flags import (
    Parser,
    add_settings,
    number_of_jobs,
    refuse_empty,
    settings_given,
)
from tenfold.core.errors import UserError
from tenfold.core.registry import FileForm, made_from
from tenfold.integrations.slm_lab.spec import ENDINGS, Spec, looks_like_specs, read_spec

COMMANDS = ("train", "run", "profile")
MODES = ("dev", "train", "search", "enjoy")
# of theirs, about what we decide otherwise or do not have
IGNORED = {
    "render": "tenfold eval RUN --video films an episode",
    "log-level": "--quiet says less",
    "cuda-offset": "CUDA_VISIBLE_DEVICES names a GPU",
    "log-extra": "all numbers are in RUN/metrics.jsonl",
    "upload-hf": "tenfold pack RUN makes an archive",
    "optimize-perf": "the engine decides",
    "stop-ray-processes": "there are none",
}


class SpecFiles(FileForm):
    """SLM-Lab's specs."""

    name, title = "slm_lab", "SLM-Lab's measures"

    def claims(self, words: Sequence[str]) -> bool:
        rest = without_command(words)
        if rest is words and not (words and words[0].endswith(ENDINGS)):
            return False
        file = next((Path(word) for word in rest if word.endswith(ENDINGS)), None)
        if file is None:
            return False
        missing = str(file) == rest[0] and file.suffix == ".json" and not file.exists()
        return missing or looks_like_specs(file)

    def run(self, words: Sequence[str]) -> int:
        rest = list(without_command(words))
        arguments = parser(rest).understand(rest)
        arguments.profiled = (
            words[0] == "profile"
            or is_true(arguments.profile)
            or is_true(os.environ.get("PROFILE", ""))
        )
        return run_spec(arguments)

    def results(self, source: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, float]:
        from tenfold.integrations.slm_lab.strength import measures_of

        return measures_of(paths, float(source["random_return"]))


FORM = SpecFiles()


def without_command(words: Sequence[str]) -> Sequence[str]:
    """A command line without its first words, ours and theirs."""
    while words and words[0] in COMMANDS:
        words = words[1:]
    return words


def is_true(text: str) -> bool:
    return text.lower() in ("true", "1", "yes")


def parser(words: Sequence[str]) -> Parser:
    top = Parser(
        prog="tenfold train",
        usage="tenfold train SPECS.json [NAME] [dev|train|search|enjoy] [-s key=value] "
        "[--SETTING VALUE …]",
        description="Trains an agent by a spec of SLM-Lab. The first lines say in what the run "
        "differs from theirs; a key that cannot be honoured is refused by its name.",
        allow_abbrev=False,
    )
    top.add_argument("spec", metavar="SPECS.json", help="a file of specs, JSON or YAML")
    top.add_argument("spec_name", nargs="?", default="", metavar="NAME", help="the spec's name")
    top.add_argument(
        "mode",
        nargs="?",
        default="",
        metavar="MODE",
        help="dev: one session (the default); train: max_session sessions in parallel; "
        "train@latest, train@RUN: go on; search: max_trial trials; enjoy, enjoy@RUN: play",
    )
    top.add_argument(
        "-s",
        "--set",
        dest="variables",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="the value of ${KEY} in the spec; more than once",
    )
    top.add_argument("--out", metavar="FOLDER", help="where the run is kept (runs/NAME, …)")
    top.add_argument("--jobs", help="sessions at the same time (as many as there are cores)")
    top.add_argument("--overwrite", action="store_true", help="replace the run in that folder")
    top.add_argument("--quiet", action="store_true", help="no progress, only the result")
    top.add_argument(
        "--profile", nargs="?", const="true", default="", help="show where the time goes"
    )
    for name in IGNORED:
        top.add_argument(f"--{name}", nargs="?", const="true", help=argparse.SUPPRESS)
    add_settings(top, words, without=("name",))
    return top


def variables_of(texts: Sequence[str]) -> dict[str, str]:
    variables = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UserError(f"-s {text} cannot be read: write -s key=value.")
        variables[name] = value
    return variables


def say(line: str, quiet: bool = False) -> None:
    if not quiet:
        print(line, file=sys.stderr)


def chosen_spec(arguments: argparse.Namespace) -> tuple[Spec, str]:
    """The spec and the mode; the name may be missing where a file has one spec."""
    name, mode = arguments.spec_name, arguments.mode
    if not mode and name.partition("@")[0] in MODES:
        name, mode = "", name
    spec = read_spec(arguments.spec, name, variables_of(arguments.variables))
    mode = mode or "dev"
    if mode.partition("@")[0] not in MODES:
        raise UserError(f"{mode} is not a mode: {', '.join(MODES)} are.")
    return spec, mode


def run_spec(arguments: argparse.Namespace) -> int:
    spec, mode = chosen_spec(arguments)
    refuse_empty(arguments, out="a folder")
    for name, instead in IGNORED.items():
        variable = name.upper().replace("-", "_")
        if getattr(arguments, variable.lower()) is not None or variable in os.environ:
            say(f"Note: {variable} is not used: {instead}.")
    mode, _, before = mode.partition("@")
    if mode == "enjoy" or before:
        from tenfold.cli.main import main

        command = "eval" if mode == "enjoy" else "resume"
        return main([command, str(folder_of(spec, before))])
    return begin(spec, mode, arguments)


def folder_of(spec: Spec, before: str) -> Path:
    """The folder of a run that went before; the latest of this spec."""
    from tenfold.runs.storage import RUNS, Numbered

    if before and before != "latest":
        return Path(before)
    folders = []
    for path in Numbered(RUNS / spec.run_name):
        if not path.exists():
            break
        folders.append(path)
    if not folders:
        raise UserError(f"There is no run of {spec.name} below {RUNS}/: name its folder.")
    return max(reversed(folders), key=lambda path: path.stat().st_mtime)


def begin(spec: Spec, mode: str, arguments: argparse.Namespace) -> int:
    """Trains, searches or profiles."""
    from tenfold.config.files import changed
    from tenfold.integrations.slm_lab.spaces import search_spaces
    from tenfold.integrations.slm_lab.translation import first_lines, translate

    translation = translate(spec)
    run = changed(translation.run, settings_given(arguments))
    for line in first_lines(spec, translation, run):
        say(line, arguments.quiet)
    if arguments.profiled:
        from tenfold.cli.tools import show_run_profile

        return show_run_profile(run, None, "3k", None)
    spaces = search_spaces(spec) if mode == "search" else {}
    from tenfold.integrations.slm_lab.strength import random_return

    source: dict[str, Any] = {
        "form": FORM.name,
        "spec": spec.name,
        "file": str(spec.path),
        "mode": mode,
    }
    say("playing 100 episodes at random, which strengths are measured from …", arguments.quiet)
    source["random_return"] = random_return(run.world, run.episode_limit)
    sessions = tuple(range(run.seed, run.seed + translation.sessions))
    jobs = number_of_jobs(arguments.jobs)
    how: dict[str, Any] = {"overwrite": arguments.overwrite, "quiet": arguments.quiet}
    with made_from(source):
        if mode == "search":
            return search(spec, translation, run, spaces, sessions, arguments)
        from tenfold.cli.closing import finish, finish_seeds

        how["name"] = spec.run_name
        if mode == "dev":
            from tenfold.training.loop import train

            return finish(train(run, arguments.out or "", **how))
        from tenfold.training.run_group import train_seeds

        return finish_seeds(train_seeds(run, sessions, arguments.out or "", jobs=jobs, **how))


def search(
    spec: Spec,
    translation: Any,
    run: Any,
    spaces: dict[str, Any],
    sessions: tuple[int, ...],
    arguments: argparse.Namespace,
) -> int:
    from tenfold.cli.search_command import finish_sweep
    from tenfold.runs.folder import destination
    from tenfold.training.sweep import sweep

    name = f"search-{spec.run_name}"
    result = sweep(
        run,
        spaces,
        translation.trials,
        sessions,
        destination(arguments.out or "", name, arguments.overwrite),
        pruner=translation.pruner,
        confirm=0,
        jobs=number_of_jobs(arguments.jobs),
        overwrite=arguments.overwrite,
        quiet=arguments.quiet,
    )
    return finish_sweep(result)
