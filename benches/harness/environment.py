"""A virtual environment with packages of PyPI, newer than Debian's, for forkyard and those beside it."""

import subprocess

PACKAGES = ("python3-venv",)


def environment(bench, *packages, system=False):
    """The interpreter of a new environment with these packages. `system`: with Debian's as well."""
    directory = bench.directory("environment")
    more = ["--system-site-packages"] if system else []
    subprocess.run(["/usr/bin/python3", "-m", "venv", *more, directory], check=True)
    python = directory / "bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    return python
