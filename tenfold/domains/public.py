"""Public names of domains, for type checkers; `PUBLIC` of each folder has them for everybody
else."""

from .dynamics.public import *  # noqa: F403
from .jobshop.public import *  # noqa: F403
