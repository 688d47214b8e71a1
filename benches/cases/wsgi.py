"""A page of Django behind nginx, through forkyard, uWSGI and gunicorn."""

import os
import shutil
import time
from pathlib import Path

from harness import processes
from harness.needs import NGINX, WRAPPED_BUILDS
from harness.nginx import Nginx
from harness.servers import Forkyard, Pool, Server
from harness.table import Row, latencies, no_more

PACKAGES = (*NGINX, "python3-django", "uwsgi-core", "uwsgi-plugin-python3", "gunicorn")
BUILDS = WRAPPED_BUILDS

CLIENTS = 8
WORKERS = 16
SITE = Path(__file__).resolve().parents[1] / "scripts/django"
PYTHON = "/usr/bin/python3"


def run(bench):
    rounds, seconds = (5, 1) if bench.quick else (9, 3)
    root = bench.directory("django")
    shutil.copytree(SITE, root)
    pool = Pool(max_children=WORKERS, application=f'{{ runtime = "wsgi", root = "{root}", entry = "page" }}')
    with bench.start(Forkyard, pool) as forkyard:
        for kind in (Uwsgi, Gunicorn):
            kind.root = root
            with bench.start(kind, pool) as other, Site(bench, [forkyard, other]) as nginx:
                for server in (forkyard, other):
                    server.wait_for_workers(WORKERS)
                    nginx.rate(server, CLIENTS, 1)
                yield from _compare(bench, nginx, forkyard, other, rounds, seconds)


def _compare(bench, nginx, forkyard, other, rounds, seconds):
    comparison = bench.compare([forkyard, other], lambda server: nginx.rate(server, CLIENTS, seconds), rounds)
    name, work = other.name, f"a Django page, {CLIENTS} clients (beside: {other.name})"
    cpu = comparison.number(1)
    yield Row(
        work=work,
        forkyard=comparison.forkyard,
        php_fpm=comparison.php_fpm,
        unit="/s",
        ratio=comparison.ratio,
        must="≥ 1 x",
        met=comparison.ratio >= 1,
        note=f"workers' CPU time for a request: {cpu[0]:.0f} µs, {name} {cpu[1]:.0f} µs, ratio {cpu[2]:.2f}",
        rounds=comparison.rounds,
    )
    yield from latencies(comparison, work)
    yield no_more(
        f"{WORKERS} workers that served Django (beside: {name}): memory",
        processes.pss_mib(forkyard.processes()),
        processes.pss_mib(other.processes()),
        "MiB",
    )


class Site(Nginx):
    """In front of servers that speak different protocols."""

    def location(self, server):
        if isinstance(server, Gunicorn):
            return f"proxy_set_header Host $http_host; proxy_pass http://unix:{server.socket()};"
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
