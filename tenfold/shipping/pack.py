"""`ten.pack` and `tenfold pack`: a run as one archive (`runs.archive` has the format)."""

import hashlib
import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import tenfold
from tenfold.config.files import Trust
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import EvalRequest
from tenfold.core.registry import algorithm
from tenfold.evaluation.evaluate import evaluation_of
from tenfold.evaluation.player import play, random_policy
from tenfold.runs.archive import CARD, CURVE, FORMAT, KIND, MANIFEST, METRICS, readable
from tenfold.runs.checkpoint import BEST, flat_state
from tenfold.runs.folder import RunFolder, is_seeds
from tenfold.runs.metrics import read_rows
from tenfold.runs.reporter import reporter_of
from tenfold.runs.seeds import SeedsFolder, rows_of
from tenfold.runs.statistics import sentence, together
from tenfold.runs.storage import for_writing, tensor_file, writing
from tenfold.shipping.card import Card, Scored, card, curve
from tenfold.training.learners import Trained, load_run

RUN_JSON_FIELDS = ("kind", "id", "created", "command", "versions", "machine", "sessions")
MAX_LICENCE_CHARS = 200
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same run packed twice is the same file, but for its card
OTHER_KINDS = {
    *(".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar"),
    *(".onnx", ".pt", ".pt2", ".pth", ".safetensors", ".pkl"),
}
STORED = (".safetensors", ".png")  # not worth compressing; weights must not be


def pack(
    run: Any,
    out: str | Path | None = None,
    *,
    licence: str = "",
    episodes: int = 20,
    env: Any = None,
    trust: bool = False,
) -> Path:
    """Writes a run as one archive to share: settings, metrics, what acting needs of the last and
    the best checkpoint, and a model card; no replay memory. `ten.load`, `ten.evaluate` and
    `ten.export` take its path.

    `run` is a run's folder or what `ten.train` returned. `episodes` are played by each checkpoint
    for the card's scores; 0: those of training stand alone. `env` is the run's environment again,
    where it was an object or a function. `trust` allows modules that somebody else's run names to
    be imported.
    """
    path = Path(getattr(run, "path", run))
    if path.is_file():
        raise UserError(f"{path} is a file, and what is packed is a run's folder.")
    if is_seeds(path):
        raise UserError(
            f"{path} holds several seeds, and one run is packed: name a seed's folder, such as "
            f"{SeedsFolder.open(path, trust).members[0]}."
        )
    if len(licence) > MAX_LICENCE_CHARS or not all(map(str.isprintable, licence)):
        raise ConfigError(
            "--licence", f"must be one line of at most {MAX_LICENCE_CHARS} characters."
        )
    if episodes < 0:
        raise ConfigError("--episodes", f"= {episodes} is out of range: it must be at least 0.")
    folder, settings = RunFolder.open(path, trust)
    file = for_writing(named_zip(Path(out)) if out else Path(f"{path.resolve().name}.zip"), "--out")
    checkpoints = loaded(folder, env)
    files = texts(folder, settings, file.name, licence, checkpoints, episodes)
    for name, trained in checkpoints.items():
        state = flat_state({"agent": trained.agent.policy_state()})
        files[name] = tensor_file(state, {"run": folder.id, "step": trained.step})[0]
    with writing(f"--out {file}"):
        write_zip(file, files, licence)
    return file


def named_zip(file: Path) -> Path:
    """Refuses a file name with the extension of another format."""
    if file.suffix.lower() in OTHER_KINDS:
        stem = file.name.partition(".")[0] or "run"
        raise ConfigError(
            "--out",
            f"= {file} is named as another kind of file, and a run is packed as a zip "
            f"file: name it {file.with_name(f'{stem}.zip')}.",
        )
    return file


def loaded(folder: RunFolder, env: Any) -> dict[str, Trained]:
    """The last and the best checkpoint, by their names in the archive."""
    last = load_run(folder.path, "last", env, folder.trust)
    trained = {f"checkpoints/step-{last.step:012d}.safetensors": last}
    if (folder.checkpoints / BEST).exists():
        trained[f"checkpoints/{BEST}"] = load_run(folder.path, "best", env, folder.trust)
    return trained


def texts(
    folder: RunFolder,
    run: Run,
    file: str,
    licence: str,
    checkpoints: dict[str, Trained],
    episodes: int,
) -> dict[str, bytes]:
    """The files of the archive other than weights."""
    rows = list(read_rows(folder.metrics, episodes=False))
    about = {name: folder.about[name] for name in RUN_JSON_FIELDS if name in folder.about}
    about["command"] = portable_command(about.get("command"))
    settings = (folder.path / "config.yaml").read_text()
    scored, random, lines = card_scores(run, checkpoints, episodes)
    content = Card(
        run,
        about,
        rows,
        settings,
        file,
        licence,
        tenfold.__version__,
        scored,
        random,
        lines,
        all_seeds(folder.path, run, folder.trust),
    )
    metrics = "".join(json.dumps(row) + "\n" for row in rows).encode()
    files = {
        CARD: card(content).encode(errors="replace"),
        CURVE: curve(run, rows),
        "config.yaml": settings.encode(),
        "run.json": json.dumps(about, indent=1).encode(),
    }
    # metrics of very long runs are left out rather than refused by whoever opens the archive
    return files | ({METRICS: metrics} if readable(metrics) else {})


def portable_command(command: Any) -> list[str]:
    """The recorded command without the folders of this machine."""
    command_words = [str(word) for word in command] if isinstance(command, list) else []
    if command_words:
        name = Path(command_words[0]).name
        command_words[0] = "tenfold" if name == "__main__.py" else name
    return command_words


def card_scores(
    run: Run, checkpoints: dict[str, Trained], episodes: int
) -> tuple[list[Scored], list[float], list[str]]:
    """Episodes of every checkpoint and of random actions; for an algorithm with its own evaluation,
    its lines."""
    if not episodes:
        return [], [], []
    which = {
        "best" if BEST in name else "last": trained_policy
        for name, trained_policy in checkpoints.items()
    }
    if algorithm(run.agent.name).evaluation():
        how, lines = evaluation_of(run), []
        for name, trained in which.items():
            folder = trained.folder
            request = EvalRequest(folder.path, name, episodes, trust=folder.trust)
            lines += [
                f"{name} checkpoint (step {trained.step:,})",
                *how.lines(request, how.evaluate(request)),
            ]
        return [], [], lines
    scores, limit = [], run.episode_limit
    for name, trained in which.items():
        policy = trained.agent.policy(run.eval_policy)
        score = play(run.world, trained.agent, policy, episodes, run.seed, limit=limit)
        scores.append(Scored(name, trained.step, score.returns, score.success_rate))
    agent = which["last"].agent
    chance = random_policy(agent, run.seed)
    return scores, play(run.world, agent, chance, episodes, run.seed, limit=limit).returns, []


def all_seeds(path: Path, run: Run, trust: Trust) -> dict[str, str]:
    """The summary of all seeds, if the run is one of several."""
    if not is_seeds(path.resolve().parent):
        return {}
    folder, reporter = SeedsFolder.open(path.resolve().parent, trust), reporter_of(run)
    members = [reporter.last_numbers(rows) for rows in rows_of(folder)]
    sentences = {}
    for name, number in reporter.numbers.items():
        values = [value for member in members if (value := member.get(name)) is not None]
        if name != "step" and values and len(values) == len(members):
            sentences[number.heading] = sentence(together(values), number.form)
    return sentences


def write_zip(file: Path, files: dict[str, bytes], licence: str) -> None:
    """Written under a temporary name: an existing archive stays until the new one is complete."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    about = {"kind": KIND, "format": FORMAT, "licence": licence, "files": digests}
    try:
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, content in {MANIFEST: json.dumps(about, indent=1).encode(), **files}.items():
                entry = zipfile.ZipInfo(name, ZIP_EPOCH)
                entry.external_attr = (stat.S_IFREG | 0o644) << 16
                stored = name.endswith(STORED)
                form = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
                archive.writestr(entry, content, form)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
