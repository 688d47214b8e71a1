"""Applications that cases ask for pages: how they are set up, and how a worker script of theirs is."""

import contextlib
import os
import shutil
import subprocess

from . import mariadb
from .servers import PHP_VERSION

SYMFONY = tuple(f"php-symfony-{part}" for part in ("framework-bundle", "twig-bundle", "twig-bridge", "form", "validator"))
WORDPRESS = ("wordpress", "wordpress-theme-twentytwentythree", "mariadb-server", f"php{PHP_VERSION}-mysql")


def symfony(bench, ask):
    """A small application. `ask(script, uri)` has its caches made, as a deployment does."""
    root = bench.scripts / "symfony"
    subprocess.run(["chmod", "-R", "a+rwX", root], check=True)
    for uri in ("/", "/form"):
        ask(root / "index.php", uri)
    settle(root)
    return root


@contextlib.contextmanager
def wordpress(bench, ask):
    """A copy of WordPress with some articles. `ask(script, uri)` has it install itself."""
    directory = bench.directory("wordpress")
    site, database = directory / "site", directory / "database"
    shutil.copytree("/usr/share/wordpress", site, symlinks=False, ignore_dangling_symlinks=True)
    for script in (bench.scripts / "wordpress").iterdir():
        shutil.copy(script, site)
    database.mkdir()
    subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
    settle(site)
    with mariadb.running(database):
        ask(site / "install.php", "/install.php")
        yield site


def settle(directory):
    """OPcache takes no file that is younger than 2 seconds."""
    for path in directory.rglob("*.php"):
        os.utime(path, (0, 1_000_000_000))


def worker_script(script, mode, warm_up=(), server="{}"):
    """The pool's application for a worker script, whose code is fixed."""
    requests = ", ".join(f'"{path}"' for path in warm_up)
    return (
        f'{{ runtime = "php", version = "{PHP_VERSION}", worker = "{script}", worker_mode = "{mode}",'
        f' warm_up_requests = [{requests}], warm_up_server = {server},'
        ' php_admin_value = { "opcache.validate_timestamps" = "0" } }'
    )
