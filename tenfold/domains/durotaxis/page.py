"""What a run's page shows of a colony: what `tenfold eval` drew."""

from pathlib import Path
from typing import Any

from tenfold.core.errors import UserError
from tenfold.runs.file_schema import NUMBER, TEXT, WHOLE, Schema, maybe, read_json
from tenfold.runs.page import Section, image, paragraph, table

AGAIN = "`tenfold eval` writes it anew"
SUCCESSES: dict[Any, Schema] = {
    "success_rate": NUMBER,
    "episodes": WHOLE,
    "steps_to_goal": maybe(NUMBER),
}
EPISODES: Schema = {  # what `tenfold eval` leaves in episodes.json
    **SUCCESSES,
    "where": TEXT,
    "step": WHOLE,
    "seed": WHOLE,
    "policy": TEXT,
    "rounding": TEXT,
    "yardsticks": {...: SUCCESSES},
}


def sections(path: Path) -> list[Section]:
    return [evaluation(drawn) for drawn in sorted(path.glob("eval/*/paths.png"))]


def evaluation(drawn: Path) -> Section:
    """One trial of a colony; its title says of which checkpoint, so that nobody takes an early one
    for the run's result."""
    try:
        said = read_json(drawn.parent / "episodes.json", EPISODES, AGAIN)
    except UserError as error:
        return Section("", paragraph(error))
    untrained = not said["step"]
    title = (
        f"Evaluation: {said['where']}, checkpoint of step "
        f"{said['step']:,}{' (untrained)' if untrained else ''}, seed {said['seed']}, "
        f"{said['episodes']} episodes"
    )
    cells = {
        "policy": said["policy"],
        "rounding of deletions": said["rounding"],
        "untrained (step 0)" if untrained else "trained": told(said),
        **{name: told(own) for name, own in said["yardsticks"].items()},
    }
    picture = image(drawn.read_bytes(), "the centroid's way through several episodes")
    return Section(title, table(cells) + picture)


def told(own: dict[str, Any]) -> str:
    """How many episodes reached the goal, and in how many steps."""
    steps = own["steps_to_goal"]
    return f"success {own['success_rate']:.1%} of {own['episodes']} episodes" + (
        "" if steps is None else f", {steps:.1f} steps to the goal"
    )
