"""What a user may give as a callback."""

from collections.abc import Callable, Sequence
from typing import Any

from tenfold.core.errors import UserError, told_of

MOMENTS = ("on_start", "on_round", "on_log", "on_evaluate", "on_checkpoint", "on_row", "on_end")


class EveryRow:
    """A function as a callback: it is called where `on_log` is."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function, self.name = function, name

    def on_log(self, training: Any, row: dict[str, Any]) -> None:
        with told_of(self.name):
            self.function(training, row)


def require_row(name: str, before: dict[str, Any], row: dict[str, Any]) -> None:
    """Refuses what a callback made of a row where it is more than numbers beside the run's own."""
    for key in before.keys() - row.keys():
        raise UserError(f"{name} took {key} out of the row: a callback may only add numbers to it.")
    for key, value in row.items():
        if key in before and before[key] is not value:
            raise UserError(
                f"{name} changed {key} of the row, which is the run's own: add a number under "
                "another name."
            )
        if key not in before and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(
                f"{name} added {key} = {value!r:.100} to the row, and rows hold numbers: add a "
                "number, int or float."
            )


def callbacks_of(callbacks: Any) -> Sequence[Any]:
    """A list or tuple of callbacks; one by itself is refused."""
    if not isinstance(callbacks, list | tuple):
        raise UserError(f"callbacks = {callbacks!r:.100} is no list: give callbacks=[…].")
    return callbacks


def callback_of(callback: Any) -> Any:
    """What a user gives as a callback: an object, a class of such without arguments, or a function
    of (training, row). Refuses what would never be called."""
    name = getattr(callback, "__name__", type(callback).__name__)
    if isinstance(callback, type):
        with told_of(f"{name}()"):
            callback = callback()
    if any(hasattr(callback, moment) for moment in MOMENTS):
        return callback
    if callable(callback):
        return EveryRow(callback, name)
    raise UserError(
        f"{name} is no callback: derive it from tenfold.Callback, or give it one of "
        f"{', '.join(MOMENTS)}; a function is called with (training, row) for every row of "
        "training metrics."
    )
