"""How large the package is: code lines (no blank lines, comments or docstrings), and what is too
long for a reader's head.

    python tests/size.py
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "tenfold"
OUTSIDE = {"domains", "integrations"}  # of the core
FILE, FUNCTION, PARAMETERS = 350, 60, 12  # the most lines, lines and parameters
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
    return any("kernel" in ast.unparse(decorator) for decorator in function.decorator_list)


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    return (
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)
    )


def parameters(function: ast.FunctionDef) -> int:
    arguments = function.args
    return len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])


def main() -> None:
    rooms: Counter[str] = Counter()
    long = {"files": [], "functions": [], "parameters": []}
    for path in sorted(PACKAGE.rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(PACKAGE))
        rooms[path.relative_to(PACKAGE).parts[0] if path.parent != PACKAGE else "."] += code_lines(
            text
        )
        if text.count("\n") > FILE:
            long["files"].append(f"{name} {text.count(chr(10))}")
        for function in functions(path):
            lines = (function.end_lineno or 0) - function.lineno + 1
            if lines > FUNCTION:
                long["functions"].append(f"{name} {function.name} {lines}")
            if parameters(function) > PARAMETERS and not is_kernel(function):
                long["parameters"].append(f"{name} {function.name} {parameters(function)}")
    for room, lines in rooms.most_common():
        print(f"{lines:7,} {room}")
    print(
        f"{sum(lines for room, lines in rooms.items() if room not in OUTSIDE):7,} core\n{sum(rooms.values()):7,} whole"
    )
    for what, most in zip(
        long, (f"lines > {FILE}", f"lines > {FUNCTION}", f"> {PARAMETERS}, no kernels"), strict=True
    ):
        print(
            f"{what}, {most}: {len(long[what])}", *(f"    {item}" for item in long[what]), sep="\n"
        )


if __name__ == "__main__":
    main()
