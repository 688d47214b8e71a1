"""A page of Django and one of Flask behind nginx, through forkyard, uWSGI, gunicorn and granian."""

import os
import shutil
import time
from pathlib import Path

from harness import environment, processes
from harness.needs import NGINX, WRAPPED_BUILDS
from harness.nginx import Nginx, free_port
from harness.servers import Forkyard, Pool, Server
from harness.table import at_least, latencies, no_more

PACKAGES = (
    *NGINX, *environment.PACKAGES, "python3-django", "python3-flask", "uwsgi-core", "uwsgi-plugin-python3", "gunicorn",
)
BUILDS = WRAPPED_BUILDS

CLIENTS = 8
WORKERS = 16
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
PYTHON = "/usr/bin/python3"
# Of the rate of those beside.
LEAST = 1.1


def run(bench):
    rounds, seconds = (5, 1) if bench.quick else (9, 3)
    # granian alone comes from PyPI; the applications and Python are Debian's for all.
    Granian.python, Granian.interface = environment.environment(bench, "granian", system=True), "wsgi"
    Granian.entry, Granian.more = "page:application", ("--blocking-threads", "1")
    for framework in ("django", "flask"):
        root = bench.directory(framework)
        shutil.copytree(SCRIPTS / framework, root)
        pool = Pool(max_children=WORKERS, application=f'{{ runtime = "wsgi", root = "{root}", entry = "page" }}')
        for kind in (Uwsgi, Gunicorn, Granian):
            kind.root = root
            with bench.start(Forkyard, pool) as forkyard, bench.start(kind, pool) as other:
                servers = [forkyard, other]
                with Site(bench, servers) as nginx:
                    for server in servers:
                        server.wait_for_workers(WORKERS)
                        nginx.rate(server, CLIENTS, 1)
                    yield from _compare(bench, nginx, framework.title(), servers, rounds, seconds)


def _compare(bench, nginx, framework, servers, rounds, seconds):
    forkyard, other = servers
    comparison = bench.compare(servers, lambda server: nginx.rate(server, CLIENTS, seconds), rounds)
    work = f"a {framework} page, {CLIENTS} clients (beside: {other.name})"
    yield at_least(comparison, LEAST, work=work)
    yield from latencies(comparison, work)
    yield no_more(
        f"{WORKERS} workers that served {framework} (beside: {other.name}): memory",
        processes.pss_mib(forkyard.processes()),
        processes.pss_mib(other.processes()),
        "MiB",
    )


class Site(Nginx):
    """In front of servers that speak different protocols."""

    def location(self, server):
        if isinstance(server, Gunicorn):
            return f"proxy_set_header Host $http_host; proxy_pass http://unix:{server.socket()};"
        if isinstance(server, Granian):
            return f"proxy_set_header Host $http_host; proxy_pass http://127.0.0.1:{server.port};"
        if isinstance(server, Uwsgi):
            return f"include /etc/nginx/uwsgi_params; uwsgi_pass unix:{server.socket()};"
        return super().location(server)


class Other(Server):
    """Counts as ready once its socket is there."""

    root = None

    def configure(self):
        if os.geteuid() == 0:
            shutil.chown(self.directory, "www-data", "www-data")
        self._ready_at = time.monotonic()
        self._ready.set()
        return self.command(self.pools[0].max_children)

    def workers(self):
        return self.processes()[1:]


class Uwsgi(Other):
    name = "uwsgi"

    def command(self, workers):
        user = ["--uid", "www-data", "--gid", "www-data"] if os.geteuid() == 0 else []
        return [
            "uwsgi", "--plugin", "python3", "--master", "--die-on-term", "--processes", str(workers), "--socket", str(self.socket()),
            "--chmod-socket=666", "--chdir", str(self.root), "--module", "page:application", "--disable-logging", *user,
        ]


class Gunicorn(Other):
    name = "gunicorn"

    def command(self, workers):
        user = ["--user", "www-data", "--group", "www-data"] if os.geteuid() == 0 else []
        return [
            PYTHON, "-m", "gunicorn", "--preload", "--workers", str(workers), "--bind", f"unix:{self.socket()}",
            "--umask", "0", "--chdir", str(self.root), *user, "page:application",
        ]


class Granian(Other):
    """A server in Rust, by TCP as most run it."""

    name = "granian"
    python = None
    interface = "asgi"
    entry = "page:app"
    more = ()

    def workers(self):
        # The other child keeps multiprocessing's books.
        return [pid for pid in self.processes()[1:] if b"tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def command(self, workers):
        self.port = free_port()
        return [
            "env", "-C", str(self.root), str(self.python), "-m", "granian", "--interface", self.interface, "--host", "127.0.0.1",
            "--port", str(self.port), "--workers", str(workers), "--no-access-log", "--log-level", "error", *self.more, self.entry,
        ]
