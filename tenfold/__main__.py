"""`python -m tenfold`: the command line."""

import sys

from tenfold.cli import main

if __name__ == "__main__":
    sys.exit(main())
