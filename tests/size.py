"""How large the package is: code lines (no blank lines, comments or docstrings), what is too long
for a reader's head, and what a reader stumbles on (tests/words.py).

    python tests/size.py             # what there is
    python tests/size.py --write     # into docs/design.md
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from words import ambiguous, depths, dialect

PACKAGE = Path(__file__).parent.parent / "tenfold"
PAGE = PACKAGE.parent / "docs" / "design.md"
OUTSIDE = {"domains", "integrations"}  # of the core
FILE, FUNCTION, PARAMETERS = 350, 60, 12  # the most lines, lines and parameters
DEPTH, DIALECT_LIMIT = 3, 5  # the most classes in a line of descent, bindings of one name
Documented = ast.Module | ast.ClassDef | ast.FunctionDef


def is_text(node: ast.stmt) -> bool:
    """A docstring, or the help under a setting."""
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def code_lines(text: str) -> int:
    """Lines of code with every statement on one line, so that no formatter makes it more or
    less."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, Documented):
            node.body = [s for s in node.body if not is_text(s)] or [ast.Pass()]
    return sum(bool(line.strip()) for line in ast.unparse(tree).splitlines())


def is_kernel(function: ast.FunctionDef) -> bool:
    return any("kernel" in ast.unparse(decorator).lower() for decorator in function.decorator_list)


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    return (
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)
    )


def parameters(function: ast.FunctionDef) -> int:
    arguments = function.args
    return len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])


def rooms() -> Counter[str]:
    """Code lines by room."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "."
        found[room] += code_lines(path.read_text())
    return found


def totals(found: Counter[str]) -> dict[str, int]:
    core = sum(lines for room, lines in found.items() if room not in OUTSIDE)
    return {"core": core, "whole": sum(found.values())}


def too_long() -> dict[str, list[str]]:
    """Files and functions beyond what a reader's head holds."""
    long: dict[str, list[str]] = {"files": [], "functions": [], "parameters": []}
    for path in sorted(PACKAGE.rglob("*.py")):
        lines, name = path.read_text().count("\n"), str(path.relative_to(PACKAGE))
        if lines > FILE:
            long["files"].append(f"{name} {lines}")
        for function in functions(path):
            length = (function.end_lineno or 0) - function.lineno + 1
            if length > FUNCTION:
                long["functions"].append(f"{name} {function.name} {length}")
            if parameters(function) > PARAMETERS and not is_kernel(function):
                long["parameters"].append(f"{name} {function.name} {parameters(function)}")
    return long


def measures() -> dict[str, str]:
    """What a newcomer pays for, besides statements: each with its number."""
    names = dialect()
    return {
        "files": f"{len(list(PACKAGE.rglob('*.py')))}",
        "longest chain of base classes in the package": f"{max(depths())}",
        "names of more than one public class or module": f"{len(ambiguous())}",
        "identifiers of the dialect bound more than five times": ", ".join(
            f"`{name}` {count}" for name, count in names.most_common() if count > DIALECT_LIMIT
        )
        or "none",
        "bindings of the dialect": f"{names.total():,}",
    }


def table() -> str:
    """For docs/design.md."""
    found = rooms()
    lines = [f"| `{room}/` | {count:,} |" for room, count in found.most_common() if room != "."]
    ends = [f"| **{name}** | **{count:,}** |" for name, count in totals(found).items()]
    reading = [f"| {name} | {value} |" for name, value in measures().items()]
    return "\n".join(
        [
            *("| room | statements |", "|---|---|", *lines, *ends),
            *("", "| measure | value |", "|---|---|", *reading),
        ]
    )


def main() -> None:
    if "--write" in sys.argv:
        text = PAGE.read_text()
        before, rest = text.split("<!--size-->")
        PAGE.write_text(
            f"{before}<!--size-->\n{table()}\n<!--/size-->{rest.split('<!--/size-->')[1]}"
        )
        return
    found = rooms()
    for room, lines in [*found.most_common(), *totals(found).items()]:
        print(f"{lines:7,} {room}")
    for name, value in measures().items():
        print(f"{name}: {value}")
    deep = [line for depth, lines in depths().items() if depth > DEPTH for line in lines]
    print(f"classes of more than {DEPTH}: {len(deep)}", *(f"    {line}" for line in deep), sep="\n")
    print("names of more than one:")
    for name, files in ambiguous().items():
        print(f"    {name}: {' '.join(files)}")
    limits = (f"lines > {FILE}", f"lines > {FUNCTION}", f"> {PARAMETERS}, no kernels")
    for (what, items), most in zip(too_long().items(), limits, strict=True):
        print(f"{what}, {most}: {len(items)}", *(f"    {item}" for item in items), sep="\n")


if __name__ == "__main__":
    main()
