"""What all tables of the docs are made from: results/*.json."""

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def results(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text())
