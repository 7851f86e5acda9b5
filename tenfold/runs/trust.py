"""Whose settings may have modules imported.

Modules that a run's settings name (`my_module:MyNet`) are imported, and so run, when the run is
opened. That is done for runs that this user wrote the settings of, and for no others unless the
user says so: a run that was downloaded may name anything. Beside the settings stands a mark of the
modules they name, made with a key that only this user has.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenfold.core.errors import UserError
from tenfold.core.registry import domains
from tenfold.runs.files import replace_file

# anywhere in a setting: schedules stand inside of other settings
MODULE = re.compile(r"(?<![\w.])([^\W\d][\w.]*):(?=[^\W\d])")
PLAIN = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
MARK, TRUST = ".modules", "TENFOLD_TRUST"


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
        yield from (found[1] for found in MODULE.finditer(settings))


def modules_of(env: Any) -> Iterator[str]:
    """Those of an environment's name. Gymnasium imports whatever stands before a colon, also what
    is no name in Python."""
    if not isinstance(env, str):
        return
    module, colon, _ = env.partition("(")[0].partition(":")
    if colon:
        yield module.strip()
    for domain in domains():
        yield from domain.modules(env)


def user_key() -> bytes:
    """This user's secret, made when it is first needed; empty where it cannot be kept."""
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


def mark_of(modules: set[str]) -> str:
    key = user_key()
    text = "\n".join(sorted(modules)).encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest() if key else ""


def mark_modules(folder: Path, settings: Mapping[str, Any]) -> None:
    """Notes that this user wrote these settings, where they name modules."""
    modules = set(modules_in(settings))
    if modules or (folder / MARK).exists():
        replace_file(folder / MARK, mark_of(modules).encode())


def require_trust(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuses to import what somebody else's settings name."""
    modules = set(modules_in(settings))
    if not modules or os.environ.get(TRUST) == "1":
        return
    try:
        kept = (folder / MARK).read_text()
    except (OSError, ValueError):
        kept = ""
    if not kept or not hmac.compare_digest(kept.encode(), mark_of(modules).encode()):
        names = ", ".join(n if PLAIN.fullmatch(n) else ascii(n) for n in sorted(modules))
        raise UserError(
            f"{folder} names {names:.200}, which would be imported and run, and was not made by "
            "you here: if you trust whoever made it, give --trust (in Python trust=True) where "
            f"that is taken, or set {TRUST}=1."
        )


@contextmanager
def trusting(trust: bool) -> Iterator[None]:
    """Inside of it runs of others are trusted, if the user said so."""
    before = os.environ.get(TRUST)
    if trust:
        os.environ[TRUST] = "1"
    try:
        yield
    finally:
        if trust:
            os.environ.pop(TRUST)
            os.environ.update({TRUST: before} if before is not None else {})
