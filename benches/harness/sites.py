"""Applications that cases ask for pages: how they are set up, and how a worker script of theirs is."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from . import mariadb
from .servers import PHP_VERSION

LARAVEL_SOURCE = Path(__file__).parents[2] / "tests/it/php_worker/laravel"
SYMFONY = tuple(f"php-symfony-{part}" for part in ("framework-bundle", "twig-bundle", "twig-bridge", "form", "validator"))
LARAVEL = ("php-laravel-framework",)
WORDPRESS = ("wordpress", "wordpress-theme-twentytwentythree", "mariadb-server", f"php{PHP_VERSION}-mysql")


def symfony(bench, ask):
    """A small application. `ask(script, uri)` has its caches made, as a deployment does."""
    root = bench.scripts / "symfony"
    subprocess.run(["chmod", "-R", "a+rwX", root], check=True)
    for uri in ("/", "/form"):
        ask(root / "index.php", uri)
    settle(root)
    return root


def laravel(bench):
    """The application that the tests run, with its sessions in memory: a page writes no file."""
    site = bench.directory("laravel") / "site"
    shutil.copytree(LARAVEL_SOURCE, site)
    sessions = site / "config/session.php"
    sessions.write_text(sessions.read_text().replace("'driver' => 'file'", "'driver' => 'array'"))
    for path in ("storage/framework/sessions", "storage/framework/views", "storage/logs", "bootstrap/cache"):
        (site / path).mkdir(parents=True)
    # The harness writes no `env` of a pool, so the worker script sets the variables.
    variables = {
        "APP_BASE_PATH": str(site),
        "APP_PUBLIC_PATH": str(site / "public"),
        "LARAVEL_OCTANE": "1",
        "MAX_REQUESTS": "1000000000",
    }
    given = "".join(f"$_SERVER['{name}'] = '{value}';\n" for name, value in variables.items())
    (site / "worker.php").write_text(f"<?php\n{given}require __DIR__ . '/public/worker.php';\n")
    subprocess.run(["chmod", "-R", "a+rwX", site], check=True)
    settle(site)
    return site


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


FIXED = 'php_admin_value = { "opcache.validate_timestamps" = "0" }'


def fixed_code():
    """The pool's application for scripts whose code is fixed."""
    return f'{{ runtime = "php", version = "{PHP_VERSION}", {FIXED} }}'


def worker_script(script, mode, warm_up=(), server="{}"):
    """The pool's application for a worker script, whose code is fixed."""
    requests = ", ".join(f'"{path}"' for path in warm_up)
    return (
        f'{{ runtime = "php", version = "{PHP_VERSION}", worker = "{script}", worker_mode = "{mode}",'
        f" warm_up_requests = [{requests}], warm_up_server = {server}, {FIXED} }}"
    )
