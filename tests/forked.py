"""What processes of the tests have before they are forked: the package, and all that Numba imports when a kernel is first called."""

import tenfold.cli
import tenfold.places.processes
import tenfold.seeds
import tenfold.training  # noqa: F401
from tenfold.ops.random import Purpose, draw_bits, key

draw_bits(key(0, Purpose.INIT), 0)
