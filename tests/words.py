"""What jump-to-symbol meets in the package: names of a private dialect, public names with several
meanings, and how deep classes stand. `python tests/size.py` prints it.

    python tests/words.py found own     # where these names are bound
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "tenfold"
# a result is named after what it holds, never by one of these
DIALECT = (
    *("apart", "asked", "beside", "chosen", "each", "found", "given", "held", "own", "parts"),
    *("pieces", "place", "said", "seen", "shown", "taken", "there", "told", "wanted", "words"),
)
# folders whose modules have the names of those they are the counterparts of
MIRRORS = {"ops/device", "algorithms/kernels"}
DOMAINS = ("domains", "integrations")  # inside of one of them `rules` or `page` is clear


@cache
def trees() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def bound(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that is bound, with its line: variables, parameters, attributes, functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


def dialect() -> Counter[str]:
    """How often each name of the dialect is bound."""
    counts = Counter(name for tree in trees().values() for name, _ in bound(tree))
    return Counter({name: counts[name] for name in DIALECT if counts[name]})


def classes() -> dict[str, list[tuple[str, ast.ClassDef]]]:
    """Module-level classes by name: the files that define them."""
    by_name: dict[str, list[tuple[str, ast.ClassDef]]] = defaultdict(list)
    for file, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                by_name[node.name].append((file, node))
    return by_name


def modules() -> dict[str, list[str]]:
    """Modules and packages of the core by name."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in trees():
        path = Path(file)
        if path.parts[0] in DOMAINS or str(path.parent) in MIRRORS or len(path.parts) == 1:
            continue
        package = path.name == "__init__.py"
        by_name[path.parent.name if package else path.stem].append(file)
    return by_name


def ambiguous() -> dict[str, list[str]]:
    """Names of more than one public class, and of more than one module of the core."""
    by_class = {
        name: [file for file, _ in definitions]
        for name, definitions in sorted(classes().items())
        if len(definitions) > 1 and not name.startswith("_")
    }
    return by_class | {name: files for name, files in sorted(modules().items()) if len(files) > 1}


def imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Local name: the file and the name that it is imported from."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tenfold"):
            path = "/".join((node.module or "").split(".")[1:])
            file = f"{path}.py" if f"{path}.py" in trees() else f"{path}/__init__.py".lstrip("/")
            for alias in node.names:
                names[alias.asname or alias.name] = (file, alias.name)
    return names


def bases(file: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes of the package that a class derives from."""
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        home, name = file, ast.unparse(base).split(".")[-1]
        sources = imported(trees()[file])
        if name in sources:
            home, name = sources[name]
            again = imported(trees()[home]) if home in trees() else {}  # as a package gives it on
            home, name = again.get(name, (home, name))
        yield from ((f, c) for f, c in classes().get(name, []) if f == home)


def chain(file: str, node: ast.ClassDef) -> list[str]:
    """The longest line of descent of a class within the package, itself first."""
    lines = [chain(*base) for base in bases(file, node)]
    return [node.name, *max(lines, key=len, default=[])]


def depths() -> dict[int, list[str]]:
    """Lines of descent by their lengths."""
    by_depth: dict[int, list[str]] = defaultdict(list)
    for definitions in classes().values():
        for file, node in definitions:
            line = chain(file, node)
            by_depth[len(line)].append(f"{file} {' < '.join(line)}")
    return by_depth


def main() -> None:
    for file, tree in trees().items():
        for name, line in bound(tree):
            if name in sys.argv[1:]:
                print(f"tenfold/{file}:{line} {name}")


if __name__ == "__main__":
    main()
