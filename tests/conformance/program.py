"""The program that a suite tests."""

import os
import sys
from pathlib import Path


def tested(name):
    """Its path; ends the run if it can't be executed."""
    path = Path(name).resolve()
    if not os.access(path, os.X_OK):
        sys.exit(f"{path} is not there: scripts/build makes it")
    return path
