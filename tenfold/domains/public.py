"""Public names of domains, for type checkers; `PUBLIC` of each folder has them for everybody
else."""

from tenfold.domains.dynamics.public import *  # noqa: F403
from tenfold.domains.jobshop.public import *  # noqa: F403
