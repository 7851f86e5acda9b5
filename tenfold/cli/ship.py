"""`tenfold export` and `tenfold pack`: a policy as a file that runs elsewhere, a run as an archive
that can be shared."""

import argparse
from collections.abc import Sequence
from typing import Any

from tenfold.cli.flags import add_run, add_trust, chosen_run, whole_number
from tenfold.core.domain import Command
from tenfold.core.errors import UserError

EXPORTS = """examples:
  tenfold export runs/cartpole                            # cartpole.onnx
  tenfold export runs/cartpole --checkpoint best --out policy.onnx
  tenfold export runs/cartpole/seed-3 --format torch      # seed-3.pt2
  tenfold export runs/ppo --sample                        # draws, by numbers that are inputs
  python examples/deploy_onnx.py policy.onnx              # onnxruntime and NumPy alone
"""
PACKS = """examples:
  tenfold pack runs/cartpole --licence MIT                # cartpole.zip
  tenfold eval cartpole.zip --checkpoint best
  tenfold export cartpole.zip
"""


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint", default="last", metavar="best|last|STEP", help="which parameters (last)"
    )


def add_export(parsers: Any, argv: Sequence[str]) -> None:
    export = parsers.add_parser(
        "export",
        help="write a policy as an ONNX or torch.export file",
        allow_abbrev=False,
        description="Writes the whole policy of a run: what the environment gives goes in, what it "
        "takes comes out, for any size of batch. The file is tried on 1,000 observations of the "
        "environment before it is kept.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXPORTS,
    )
    add_run(export, archive=True)
    export.add_argument("--format", default="onnx", metavar="onnx|torch", help="of the file (onnx)")
    export.add_argument("--out", metavar="FILE", help="where it goes (NAME.onnx, NAME.pt2)")
    add_checkpoint(export)
    export.add_argument(
        "--sample",
        action="store_true",
        help="draw from the policy, by uniform and normal numbers that are inputs of the file",
    )
    export.add_argument(
        "--mask",
        action="store_true",
        help="an input for masks also where the environment offers none",
    )
    add_trust(export)


def export(arguments: argparse.Namespace) -> int:
    path = chosen_run(arguments.run)
    if arguments.out == "":
        raise UserError("--out is empty: name a file, or leave it out.")
    from tenfold.core.system import set_threads
    from tenfold.shipping.export import export as write

    set_threads(1)
    exported = write(
        path,
        arguments.format,
        arguments.out,
        checkpoint=arguments.checkpoint,
        sample=arguments.sample,
        mask=True if arguments.mask else None,
        trust=arguments.trust,
    )
    about = exported.about
    print(
        f"{about['agent']} on {about['env']}, step {about['step']:,}, {about['policy']}: "
        f"{exported.path} ({exported.path.stat().st_size:,} bytes)"
    )
    for title, ports in (("takes", about["inputs"]), ("gives", about["outputs"])):
        for port in ports:
            print(f"  {title}  {port['name']}  {port['dtype']}  {told_shape(port['shape'])}")
    print(f"  {exported.checked}")
    return 0


def told_shape(shape: list[int | str]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def add_pack(parsers: Any, argv: Sequence[str]) -> None:
    pack = parsers.add_parser(
        "pack",
        help="write a run as one archive to share, with a model card",
        allow_abbrev=False,
        description="Writes a zip of settings, metrics and what acting needs of the last and the "
        "best checkpoint, without replay memory, beside a model card: curve, scores, command, "
        "environment, versions, licence. `tenfold eval`, `tenfold export` and ten.load take it by "
        "its path.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=PACKS,
    )
    add_run(pack)
    pack.add_argument("--out", metavar="FILE", help="where it goes (NAME.zip)")
    pack.add_argument(
        "--licence", default="", metavar="WORDS", help="for the card, such as MIT (not stated)"
    )
    pack.add_argument(
        "--episodes",
        default="20",
        help="played for the scores of the card by each checkpoint; 0: those of training (20)",
    )
    add_trust(pack)


def pack(arguments: argparse.Namespace) -> int:
    path = chosen_run(arguments.run)
    if arguments.out == "":
        raise UserError("--out is empty: name a file, or leave it out.")
    episodes = whole_number(arguments.episodes, "--episodes", 0, 10**6)
    from tenfold.config.files import modules_in
    from tenfold.config.schema import to_mapping
    from tenfold.core.system import set_threads
    from tenfold.runs.folder import read_settings
    from tenfold.shipping.pack import pack as write

    set_threads(1)
    how = {"licence": arguments.licence, "episodes": episodes, "trust": arguments.trust}
    file = write(path, arguments.out, **how)
    # of an archive nobody knows who made it
    settings = to_mapping(read_settings(path, arguments.trust))
    trust = " --trust" if any(modules_in(settings)) else ""
    print(f"{file} ({file.stat().st_size:,} bytes)   play it: tenfold eval {file}{trust}")
    return 0


COMMANDS = (Command("export", add_export, export), Command("pack", add_pack, pack))
