"""`python -m omni_kit`."""

import sys

from omni_kit.cli import main

if __name__ == "__main__":
    sys.exit(main())
