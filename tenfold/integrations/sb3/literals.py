"""Python values that are written as text, such as "dict(net_arch=[64, 64])": read, never
evaluated."""

import ast
from typing import Any

from tenfold.core.errors import ConfigError
from tenfold.integrations.sb3.converted import short

NAMES = ("HerReplayBuffer",)  # of classes that stand alone
MODULES = ("nn", "th.nn", "torch.nn", "th.optim", "torch.optim")


def parse_literal(text: str, key: str) -> Any:
    """Numbers, strings, truths, None, lists, tuples, dicts, calls of `dict`, and names of torch's
    classes (as text)."""
    try:
        return value_of(ast.parse(text.strip(), mode="eval").body, key)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(key, f"= {short(text)} cannot be read as Python.") from None


def value_of(node: ast.expr, key: str) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items):
            return [value_of(item, key) for item in items]
        case ast.Tuple(elts=items):
            return tuple(value_of(item, key) for item in items)
        case ast.Dict(keys=names, values=values) if all(
            isinstance(name, ast.Constant) for name in names
        ):
            return {
                name.value: value_of(value, key)  # type: ignore[union-attr]
                for name, value in zip(names, values, strict=True)
            }
        case ast.Call(func=ast.Name(id="dict"), args=[], keywords=arguments) if all(
            argument.arg for argument in arguments
        ):
            return {str(one.arg): value_of(one.value, key) for one in arguments}
        case ast.Name(id=name) if name in NAMES:
            return name
        case ast.Attribute(value=home) if ast.unparse(home) in MODULES:
            return ast.unparse(node)
    raise ConfigError(
        key,
        f"holds {short(ast.unparse(node))}, which is not read: values, lists, dict(…) and nn.ReLU "
        "are.",
    )
