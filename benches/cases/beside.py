"""Light requests beside a client that computes without end: FastAPI beside uvicorn, Flask beside gunicorn."""

import shutil
import subprocess
from pathlib import Path

from cases.asgi import Page, Uvicorn, servers_and_fastapi
from cases.wsgi import PYTHON, Gunicorn
from harness import environment
from harness.needs import NGINX, WRAPPED_BUILDS
from harness.servers import Forkyard, Pool
from harness.table import latencies

PACKAGES = (*NGINX, *environment.PACKAGES, "python3-flask", "gunicorn")
BUILDS = WRAPPED_BUILDS

WORKERS = 4
CLIENTS = 8
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


def run(bench):
    rounds, seconds = (3, 1) if bench.quick else (5, 5)
    python = servers_and_fastapi(bench)
    for framework, kind, interface, entry, interpreter in (
        ("fastapi", Uvicorn, "asgi", "page:app", python),
        ("flask", Gunicorn, "wsgi", "page:application", PYTHON),
    ):
        root = bench.directory(f"beside-{framework}")
        shutil.copytree(SCRIPTS / framework, root)
        kind.python, kind.root = python, root
        keys = f'runtime = "{interface}", root = "{root}", entry = "{entry}", interpreter = "{interpreter}"'
        pool = Pool(max_children=WORKERS, application=f"{{ {keys} }}")
        with bench.start(Forkyard, pool) as forkyard, bench.start(kind, pool) as rival:
            servers = [forkyard, rival]
            with Page(bench, servers, "/") as nginx:
                for server in servers:
                    server.wait_for_workers(WORKERS)
                    nginx.rate(server, CLIENTS, 1)
                comparison = bench.compare(servers, lambda server: _beside(nginx, server, seconds), rounds)
                yield from latencies(comparison, f"{framework}, beside a client that computes (beside: {rival.name})")


def _beside(nginx, server, seconds):
    """What `rate` measures while one client asks for a page that computes, again and again."""
    heavy = ["wrk", "-t1", "-c1", f"-d{seconds + 60}s", f"{nginx.url(server)}compute"]
    with subprocess.Popen(heavy, stdout=subprocess.DEVNULL) as client:
        try:
            return nginx.rate(server, CLIENTS, seconds)
        finally:
            client.kill()
