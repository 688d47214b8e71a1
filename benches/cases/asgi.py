"""FastAPI behind nginx, through forkyard and uvicorn: a handler that waits, and one that does not."""

import os
import shutil
from pathlib import Path

from cases.wsgi import Other, Site
from harness import processes
from harness.needs import NGINX, WRAPPED_BUILDS
from harness.servers import Forkyard, Pool
from harness.table import Row, latencies, no_more

PACKAGES = (*NGINX, "python3-fastapi", "python3-uvicorn")
BUILDS = WRAPPED_BUILDS

WORKERS = 2
CLIENTS = 64
SITE = Path(__file__).resolve().parents[1] / "scripts/fastapi"
PYTHON = "/usr/bin/python3"


def run(bench):
    rounds, seconds = (3, 1) if bench.quick else (7, 3)
    root = bench.directory("fastapi")
    shutil.copytree(SITE, root)
    pool = Pool(max_children=WORKERS, application=f'{{ runtime = "asgi", root = "{root}", entry = "page:app" }}')
    Uvicorn.root = root
    with bench.start(Forkyard, pool) as forkyard, bench.start(Uvicorn, pool) as uvicorn:
        for path, what, least in (("/wait", "a FastAPI handler that waits for 50 ms", 1), ("/", "a FastAPI handler", 0.9)):
            with Page(bench, [forkyard, uvicorn], path) as nginx:
                for server in (forkyard, uvicorn):
                    server.wait_for_workers(WORKERS)
                    nginx.rate(server, CLIENTS, 1)
                yield from _compare(bench, nginx, what, least, forkyard, uvicorn, rounds, seconds)
        yield no_more(
            f"{WORKERS} workers that served FastAPI (beside: uvicorn): memory",
            processes.pss_mib(forkyard.processes()),
            processes.pss_mib(uvicorn.processes()),
            "MiB",
        )


def _compare(bench, nginx, what, least, forkyard, uvicorn, rounds, seconds):
    comparison = bench.compare([forkyard, uvicorn], lambda server: nginx.rate(server, CLIENTS, seconds), rounds)
    work = f"{what}, {CLIENTS} clients (beside: uvicorn)"
    yield Row(
        work=work,
        forkyard=comparison.forkyard,
        php_fpm=comparison.php_fpm,
        unit="/s",
        ratio=comparison.ratio,
        must=f"≥ {least} x",
        met=comparison.ratio >= least,
        note="",
        rounds=comparison.rounds,
    )
    yield from latencies(comparison, work)


class Page(Site):
    def __init__(self, bench, servers, path):
        self.path = path
        super().__init__(bench, servers)

    def location(self, server):
        if isinstance(server, Uvicorn):
            return f"proxy_set_header Host $http_host; proxy_pass http://unix:{server.socket()};"
        return super().location(server)


class Uvicorn(Other):
    name = "uvicorn"

    def workers(self):
        # The other child keeps multiprocessing's books.
        return [pid for pid in self.processes()[1:] if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def command(self, workers):
        return [
            PYTHON, "-m", "uvicorn", "--workers", str(workers), "--uds", str(self.socket()), "--app-dir", str(self.root),
            "--no-access-log", "--log-level", "error", "page:app",
        ]
