"""What a file with device functions of one's own needs: Triton's language, our `function` for its
`jit`, numbers by address. Where Triton is not installed such a file is imported all the same, and
its device functions are nothing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    tl: Any
    uniform: Any

try:
    import triton.language as tl

    from tenfold.ops.device.language import gpu_kernel as function
    from tenfold.ops.device.language import uniform as uniform

    constant = tl.constexpr
except ModuleNotFoundError:
    tl = uniform = None

    def function(function: Any = None, **options: Any) -> Any:
        """Nothing can run it."""
        return None

    def constant(value: Any) -> Any:
        return value
