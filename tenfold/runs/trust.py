"""Modules that a run's settings name (`my_module:MyNet`) are imported, and so run, when the run is
opened. That is done for runs that this user wrote the settings of, and for no others unless the
user says so: a run that was downloaded may name anything.

Beside the settings stands a mark of the modules they name, made with a key that only this user has.
"""

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tenfold.core.errors import UserError
from tenfold.runs.files import replace_file

MODULE = re.compile(r"\s*([^\W\d][\w.]*):[^\W\d]")
MARK, TRUST = ".modules", "TENFOLD_TRUST"


def modules_in(settings: Any) -> Iterator[str]:
    """Names of modules in nested settings."""
    if isinstance(settings, Mapping):
        for value in settings.values():
            yield from modules_in(value)
    elif isinstance(settings, str) and (found := MODULE.match(settings)):
        yield found[1]


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
        names = ", ".join(sorted(modules))
        raise UserError(
            f"{folder} names {names}, which would be imported and run, and was not made by you "
            f"here: if you trust whoever made it, set {TRUST}=1."
        )
