"""What a user may give as a callback."""

from collections.abc import Callable
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


def callback_of(given: Any) -> Any:
    """What a user gives as a callback: an object, a class of such without arguments, or a function
    of (training, row). Refuses what would never be called."""
    name = getattr(given, "__name__", type(given).__name__)
    if isinstance(given, type):
        with told_of(f"{name}()"):
            given = given()
    if any(hasattr(given, moment) for moment in MOMENTS):
        return given
    if callable(given):
        return EveryRow(given, name)
    raise UserError(
        f"{name} is no callback: derive it from tenfold.Callback, or give it one of "
        f"{', '.join(MOMENTS)}; a function is called with (training, row) for every row of "
        "training metrics."
    )
