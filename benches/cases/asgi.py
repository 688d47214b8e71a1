"""FastAPI behind nginx, beside uvicorn and granian: a handler that waits, one that does not, and a large upload."""

import shutil
import subprocess
import time
from pathlib import Path

from cases.wsgi import Granian, Other, Site
from harness import environment, processes
from harness.needs import NGINX, WRAPPED_BUILDS
from harness.servers import Forkyard, Pool
from harness.table import Row, at_least, latencies, no_more

PACKAGES = (*NGINX, *environment.PACKAGES)
BUILDS = WRAPPED_BUILDS

WORKERS = 2
CLIENTS = 64
UPLOAD_BYTES = 100_000_000
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
# Of the memory of as many processes of uvicorn.
MOST_MEMORY = 0.7


def run(bench):
    rounds, seconds = (3, 1) if bench.quick else (7, 3)
    root, uploads = bench.directory("fastapi"), bench.directory("upload")
    shutil.copytree(SCRIPTS / "fastapi", root)
    shutil.copytree(SCRIPTS / "upload", uploads)
    python = servers_and_fastapi(bench)
    Granian.interface, Granian.entry, Granian.more = "asgi", "page:app", ()
    for kind in (Uvicorn, Granian):
        kind.python, kind.root = python, root
        with bench.start(Forkyard, _pool(root, python)) as forkyard, bench.start(kind, _pool(root, python)) as rival:
            for path, what in (("/wait", "a FastAPI handler that waits for 50 ms"), ("/", "a FastAPI handler")):
                yield from _rates(bench, path, what, forkyard, rival, rounds, seconds)
            if kind is Uvicorn:
                yield _memory(forkyard, rival)
    Uvicorn.root = uploads
    with bench.start(Forkyard, _pool(uploads, python)) as forkyard, bench.start(Uvicorn, _pool(uploads, python)) as rival:
        yield from _upload(bench, forkyard, rival, rounds)


def servers_and_fastapi(bench):
    """The Python of an environment that has FastAPI, and the servers that are compared."""
    return environment.environment(bench, "fastapi", "python-multipart", "uvicorn", "uvloop", "httptools", "granian")


def _pool(root, python):
    application = f'{{ runtime = "asgi", root = "{root}", entry = "page:app", interpreter = "{python}" }}'
    return Pool(max_children=WORKERS, application=application)


def _rates(bench, path, what, forkyard, rival, rounds, seconds):
    servers = [forkyard, rival]
    with Page(bench, servers, path) as nginx:
        for server in servers:
            server.wait_for_workers(WORKERS)
            nginx.rate(server, CLIENTS, 1)
        comparison = bench.compare(servers, lambda server: nginx.rate(server, CLIENTS, seconds), rounds)
        work = f"{what}, {CLIENTS} clients (beside: {rival.name})"
        yield at_least(comparison, 1.0, work=work)
        yield from latencies(comparison, work)


def _memory(forkyard, rival):
    ours, theirs = (processes.pss_mib(server.processes()) for server in (forkyard, rival))
    return Row(
        work=f"{WORKERS} workers that served FastAPI (beside: {rival.name}): memory",
        forkyard=ours,
        php_fpm=theirs,
        unit="MiB",
        must=f"≤ {MOST_MEMORY} x",
        met=ours <= MOST_MEMORY * theirs,
        ratio=ours / theirs,
    )


def _upload(bench, forkyard, rival, rounds):
    servers = [forkyard, rival]
    file = bench.directory("large")
    file.write_bytes(bytes(UPLOAD_BYTES))
    with Page(bench, servers, "/") as nginx:
        for server in servers:
            server.wait_for_workers(WORKERS)

        def seconds(server):
            begun = time.monotonic()
            answer = subprocess.run(
                ["curl", "-sSf", "-F", f"file=@{file}", nginx.url(server)], check=True, capture_output=True, text=True
            ).stdout
            if f'"size":{UPLOAD_BYTES}' not in answer:
                raise RuntimeError(f"{server.name}: {answer}")
            return time.monotonic() - begun

        for server in servers:
            seconds(server)
        comparison = bench.compare(servers, seconds, rounds)
        yield no_more(
            "a form with a file of 100 MB for FastAPI (beside: uvicorn)",
            comparison.forkyard,
            comparison.php_fpm,
            "s",
            comparison.ratio,
            rounds=comparison.rounds,
        )


class Page(Site):
    def __init__(self, bench, servers, path):
        self.path = path
        super().__init__(bench, servers)

    def location(self, server):
        more = "client_max_body_size 0;"
        if isinstance(server, Uvicorn):
            return f"{more} proxy_set_header Host $http_host; proxy_pass http://unix:{server.socket()};"
        return f"{more} {super().location(server)}"


class Uvicorn(Other):
    """With uvloop and httptools, which it finds in its environment."""

    name = "uvicorn"
    python = None

    def workers(self):
        # The other child keeps multiprocessing's books.
        return [pid for pid in self.processes()[1:] if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def command(self, workers):
        return [
            self.python, "-m", "uvicorn", "--workers", str(workers), "--uds", str(self.socket()), "--app-dir", str(self.root),
            "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "error", "page:app",
        ]
