"""The file formats that job shops come in, read and written.

Standard: a line with the numbers of jobs and machines (a line of words may stand before it), then a
line for each job: machine and duration of its operations in turn, machines counted from 0. Jobs may
have other numbers of operations.

Taillard's: a line that begins with the numbers of jobs and machines (time seed, machine seed, upper
bound and lower bound may follow), then the durations, a line for each job, then the machines, which
count from 1. Words before the numbers and before each block may be left out. Machines −1 (or 0)
with duration 0 fill the lines of shorter jobs. A file may hold several instances, each with its
line of words.

JSON of job_shop_lib: an object with `name`, `duration_matrix`, `machines_matrix` (machines count
from 0) and `metadata`, where `optimum`, `lower_bound` and `upper_bound` are looked for; or an
object of such objects by name.

In the first two, empty lines and what follows a # are skipped.
"""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from tenfold.core.errors import EnvironmentFault
from tenfold.domains.jobshop.instances import LONGEST, NO_MACHINE, Instance

Jobs = list[list[tuple[int, int]]]
# Taillard's line of words
TITLE = "Nb of jobs, Nb of Machines, Time seed, Machine seed, Upper bound, Lower bound"


class Word(NamedTuple):
    """A word of a file with its line and column, both counted from 1."""

    text: str
    line: int
    column: int


class SourceText(NamedTuple):
    """A file's text, its name for error messages, and the name of the instance in it."""

    file: str
    name: str
    text: str

    def fault(self, sentence: str, at: Word | None = None) -> EnvironmentFault:
        where = "" if at is None else f", line {at.line}, column {at.column}"
        return EnvironmentFault(f"{self.file}{where}: {sentence}")

    def number(self, word: Word) -> int:
        if not re.fullmatch(r"-?[0-9]+", word.text):
            raise self.fault(f"{word.text[:60]} is not a whole number.", word)
        # anything so long is refused as too large
        return int(word.text) if len(word.text) < 19 else LONGEST + 1

    def duration(self, word: Word) -> int:
        duration = self.number(word)
        if not 0 <= duration <= LONGEST:
            raise self.fault(
                f"the duration is {duration:,}; it must be from 0 to {LONGEST:,}.", word
            )
        return duration

    def machine(self, word: Word, first: int, machines: int) -> int:
        """A machine counted from 0; the file counts from `first`."""
        machine = self.number(word)
        if not first <= machine < first + machines:
            which = " in Taillard's format" if first else ""
            raise self.fault(
                f"there is no machine {machine}; they count from {first} to {first + machines - 1}"
                f"{which}.",
                word,
            )
        return machine - first

    def instance(
        self, jobs: Jobs, machines: int, bounds: tuple[int, int] | None, name: str = ""
    ) -> Instance:
        try:
            return Instance.of_jobs(name or self.name, jobs, machines, bounds)
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"{self.file}: {fault}") from None


def parse(source: SourceText) -> list[Instance]:
    """The instances of a file in any of the formats."""
    if source.text.lstrip().startswith(("{", "[")):
        return parse_json(source)
    lines = [
        [Word(match[0], n, match.start() + 1) for match in matches]
        for n, line in enumerate(source.text.splitlines(), 1)
        if (matches := list(re.finditer(r"\S+", line.partition("#")[0])))
    ]
    if not lines:
        raise source.fault(
            "the file is empty; it must begin with the numbers of jobs and machines."
        )
    titles = [i for i, line in enumerate(lines) if line[0].text.lower() in ("nb", "number")]
    if not titles or titles[0] > 0:
        titles = [0, *titles]
    sections = [lines[a:b] for a, b in zip(titles, [*titles[1:], len(lines)], strict=True)]
    if len(sections) == 1:
        return [parse_lines(source, sections[0])]
    return [
        parse_lines(source._replace(name=f"{source.name}-{i}"), part)
        for i, part in enumerate(sections, 1)
    ]


def is_word(line: list[Word]) -> bool:
    return line[0].text[0].isalpha()


def parse_lines(source: SourceText, lines: list[list[Word]]) -> Instance:
    if is_word(lines[0]) and len(lines) > 1:  # a title
        lines = lines[1:]
    worded = any(map(is_word, lines))
    head, rest = lines[0], [line for line in lines[1:] if not is_word(line)]
    size = [source.number(word) for word in head]
    jobs, machines = (*size, 0, 0)[:2]
    if min(jobs, machines) < 1:
        raise source.fault(
            "the first line of numbers must be jobs and machines, both from 1, and is "
            f"{' '.join(word.text for word in head)[:60]}.",
            head[0],
        )
    if not worded and len(size) == 2 and len(rest) <= jobs:
        return parse_standard(source, head, rest, jobs, machines)
    if not worded and len(size) == 2 and len(rest) < 2 * jobs:
        raise source.fault(
            f"there are more lines than the {jobs} jobs announced, and fewer than the {2 * jobs} "
            "of Taillard's format.",
            rest[jobs][0],
        )
    return parse_taillard(source, head, rest, jobs, machines)


def unexpected_end(
    source: SourceText, head: list[Word], rest: list[list[Word]], content: str
) -> EnvironmentFault:
    """The error of a file that ends too early."""
    return source.fault(f"the file ends after {content}.", (rest[-1] if rest else head)[-1])


def parse_standard(
    source: SourceText, head: list[Word], rest: list[list[Word]], jobs: int, machines: int
) -> Instance:
    table: Jobs = []
    for line in rest:
        if len(line) % 2:
            raise source.fault(
                f"job {len(table)} has {len(line)} numbers, where each operation needs two, a "
                "machine and a duration.",
                line[-1],
            )
        table.append(
            [
                (source.machine(m, 0, machines), source.duration(d))
                for m, d in zip(line[::2], line[1::2], strict=True)
            ]
        )
    if len(rest) < jobs:
        raise unexpected_end(source, head, rest, f"{len(rest)} of {jobs} jobs")
    return source.instance(table, machines, None)


def parse_taillard(
    source: SourceText, head: list[Word], rest: list[list[Word]], jobs: int, machines: int
) -> Instance:
    if len(rest) > 2 * jobs:
        raise source.fault(
            f"there are more lines than the {jobs} of durations and {jobs} of machines announced.",
            rest[2 * jobs][0],
        )
    if len(rest) < 2 * jobs:
        done = (
            f"{min(len(rest), jobs)} lines of durations and {max(len(rest) - jobs, 0)} of machines"
        )
        raise unexpected_end(source, head, rest, f"{done}, where {jobs} jobs need {jobs} of each")
    table: Jobs = []
    for durations, visits in zip(rest[:jobs], rest[jobs:], strict=True):
        if len(durations) != len(visits):
            raise source.fault(
                f"job {len(table)} has {len(visits)} machines and {len(durations)} durations.",
                visits[-1],
            )
        last = len(visits)
        while last and visits[last - 1].text in ("0", "-1") and durations[last - 1].text == "0":
            last -= 1
        table.append(
            [
                (source.machine(m, 1, machines), source.duration(d))
                for m, d in zip(visits[:last], durations[:last], strict=True)
            ]
        )
    numbers = [source.number(word) for word in head[2:]]
    if len(numbers) not in (0, 2, 4):
        raise source.fault(
            "behind jobs and machines may stand time seed, machine seed, upper and lower bound.",
            head[2],
        )
    known = len(numbers) == 4 and min(numbers[2:]) > 0
    return source.instance(table, machines, (numbers[3], numbers[2]) if known else None)


# JSON


def parse_json(source: SourceText) -> list[Instance]:
    try:
        document = json.loads(source.text)
    except json.JSONDecodeError as error:
        raise source.fault(
            f"this is no JSON: {error.msg}.", Word("", error.lineno, error.colno)
        ) from None
    if not isinstance(document, dict) or not document:
        raise source.fault("its JSON must be an object with duration_matrix and machines_matrix.")
    if "duration_matrix" in document or "machines_matrix" in document:
        return [json_instance(source, document, str(document.get("name") or source.name), "")]
    return [json_instance(source, entry, key, f"{key}.") for key, entry in document.items()]


def json_instance(source: SourceText, entry: Any, name: str, within: str) -> Instance:
    """Reads one object; `within` is the path to it, for error messages."""
    table = [
        matrix(source, entry.get(key) if isinstance(entry, dict) else None, f"{within}{key}")
        for key in ("machines_matrix", "duration_matrix")
    ]
    jobs: Jobs = []
    for j, (visits, durations) in enumerate(zip(*table, strict=False)):
        if len(visits) != len(durations):
            raise source.fault(
                f"{within}machines_matrix[{j}] has {len(visits)} machines, and "
                f"{within}duration_matrix[{j}] has {len(durations)} durations."
            )
        jobs.append(list(zip(visits, durations, strict=True)))
    if len(table[0]) != len(table[1]):
        raise source.fault(
            f"{within}machines_matrix has {len(table[0])} jobs, and {within}duration_matrix "
            f"{len(table[1])}."
        )
    metadata = entry.get("metadata")
    machines = metadata.get("machines", 0) if isinstance(metadata, dict) else 0
    if type(machines) is not int or not 0 <= machines <= LONGEST:
        raise source.fault(f"{within}metadata.machines must be the number of machines.")
    return source.instance(jobs, machines, metadata_bounds(source, metadata, within), name)


def matrix(source: SourceText, rows: Any, path: str) -> list[list[int]]:
    """A list of non-negative whole numbers for each job."""
    if not isinstance(rows, list) or not rows:
        raise source.fault(f"{path} is missing, or no list of lists of whole numbers.")
    for j, row in enumerate(rows):
        if not isinstance(row, list) or not row:
            raise source.fault(f"{path}[{j}] must be a list of whole numbers, one an operation.")
        for k, number in enumerate(row):
            if type(number) is not int or not 0 <= number <= LONGEST:
                raise source.fault(
                    f"{path}[{j}][{k}] is {json.dumps(number)[:60]}, and must be a whole number "
                    f"from 0 to {LONGEST:,}."
                )
    return rows


def metadata_bounds(source: SourceText, metadata: Any, within: str) -> tuple[int, int] | None:
    if not isinstance(metadata, dict):
        return None
    values = {key: metadata.get(key) for key in ("optimum", "lower_bound", "upper_bound")}
    for key, number in values.items():
        if number is not None and type(number) is not int:
            raise source.fault(
                f"{within}metadata.{key} is {json.dumps(number)[:60]}, and must be a whole number "
                "or null."
            )
    best, lower, upper = values.values()
    if best is not None:
        return best, best
    return None if upper is None else (lower or 0, upper)


# writing


def to_standard(instance: Instance) -> str:
    rows = [
        " ".join(f"{machine} {duration}" for machine, duration in instance.job(j))
        for j in range(instance.jobs)
    ]
    return "\n".join([f"{instance.jobs} {instance.machines}", *rows]) + "\n"


def to_taillard(instance: Instance) -> str:
    """Seeds are unknown and written as 0."""
    lower, upper = instance.bounds or (0, 0)
    # −1 is filled in behind a job's last operation
    machine = instance.machine + (instance.machine != NO_MACHINE)
    blocks = ["\n".join(" ".join(map(str, row)) for row in table.tolist()) for table in
              (instance.duration, machine)]  # fmt: skip
    head = f"{instance.jobs} {instance.machines} 0 0 {upper} {lower}"
    return f"{TITLE}\n{head}\nTimes\n{blocks[0]}\nMachines\n{blocks[1]}\n"


def to_json(instance: Instance) -> str:
    jobs = [instance.job(j) for j in range(instance.jobs)]
    lower, upper = instance.bounds or (None, None)
    document: dict[str, Any] = {
        "name": instance.name,
        "duration_matrix": [[duration for _, duration in job] for job in jobs],
        "machines_matrix": [[machine for machine, _ in job] for job in jobs],
        "metadata": {"optimum": instance.optimum, "upper_bound": upper, "lower_bound": lower},
    }
    if instance.machines > instance.machine.max() + 1:  # the last ones stand still
        document["metadata"]["machines"] = instance.machines
    return json.dumps(document) + "\n"


WRITERS: dict[str, Callable[[Instance], str]] = {
    "standard": to_standard,
    "taillard": to_taillard,
    "json": to_json,
}
