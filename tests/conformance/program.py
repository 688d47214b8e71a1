"""What the suites have in common: arguments, a work directory, and the program that they test."""

import argparse
import os
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

# What automake's tests say when they were not run.
SKIPPED = 77


def suite_parser(suite, description, binary="the program to test"):
    """A parser with the arguments of every suite."""
    parser = argparse.ArgumentParser(prog=f"scripts/conformance {suite}", description=description)
    parser.add_argument("--binary", default="target/release/forkyard-fpm", help=binary)
    parser.add_argument("--php-version", default=os.environ.get("FORKYARD_PHP", "8.2"), help="which PHP")
    return parser


def add_choice_of_phpt(parser, sample):
    """Adds the arguments that choose .phpt tests, and say where what differs is written."""
    add = parser.add_argument
    add("--sample", type=int, metavar="COUNT", help=sample)
    add("--only", action="append", default=[], metavar="TEXT", help="only tests with this in their names")
    add("--out", type=Path, metavar="DIRECTORY", help="where to write what differs, a file for each test")


@contextmanager
def work_directory(prefix, parent=None):
    """A directory that other users can enter, as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as work:
        work = Path(work)
        work.chmod(0o755)
        yield work


def tested(name):
    """Its path; ends the run if it can't be executed."""
    path = Path(name).resolve()
    if not os.access(path, os.X_OK):
        sys.exit(f"{path} is not there: scripts/build makes it")
    return path
