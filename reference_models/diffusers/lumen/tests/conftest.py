"""Lets these tests import the package from any working directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
