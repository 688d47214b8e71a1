"""A page of Django behind nginx, through forkyard, uWSGI and gunicorn."""

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

from harness import processes
from harness.servers import Forkyard, Pool, Server, place_library
from harness.table import Row, no_more

CLIENTS = 8
WORKERS = 16
SITE = Path(__file__).resolve().parents[1] / "scripts/django"
PYTHON = "/usr/bin/python3"


def run(bench):
    rounds, seconds = (5, 1) if bench.quick else (9, 3)
    root = bench.directory("django")
    shutil.copytree(SITE, root)
    place_library()
    pool = Pool(max_children=WORKERS, application=f'{{ runtime = "wsgi", root = "{root}", entry = "page" }}')
    with bench.start(Forkyard, pool) as forkyard:
        for kind in (Uwsgi, Gunicorn):
            kind.root = root
            with bench.start(kind, pool) as other, Nginx(bench, [forkyard, other]) as nginx:
                for server in (forkyard, other):
                    server.wait_for_workers(WORKERS)
                    nginx.load(server, 1)
                yield from _compare(bench, nginx, forkyard, other, rounds, seconds)


def _compare(bench, nginx, forkyard, other, rounds, seconds):
    comparison = bench.compare([forkyard, other], lambda server: nginx.load(server, seconds), rounds)
    name, work = other.name, f"a Django page, {CLIENTS} clients (beside: {other.name})"
    cpu = comparison.number(3)
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
    for label, index in (("p50", 1), ("p99", 2)):
        ours, theirs, ratio = comparison.number(index)
        yield no_more(f"{work}: {label}", ours, theirs, "µs", ratio)
    yield no_more(
        f"{WORKERS} workers that served Django (beside: {name}): memory",
        processes.pss_mib(forkyard.processes()),
        processes.pss_mib(other.processes()),
        "MiB",
    )


class Nginx:
    """An nginx with a port for each server."""

    def __init__(self, bench, servers):
        self._directory = bench.directory("nginx")
        self._directory.mkdir()
        self._directory.chmod(0o755)
        self._ports = {server.name: _free_port() for server in servers}
        sites = "".join(
            f"    server {{\n        listen 127.0.0.1:{self._ports[server.name]};\n"
            f"        location / {{ {_pass(server)} }}\n    }}\n"
            for server in servers
        )
        temporary = "".join(
            f"    {kind}_temp_path {self._directory}/{kind};\n"
            for kind in ("client_body", "fastcgi", "proxy", "uwsgi", "scgi")
        )
        path = self._directory / "nginx.conf"
        path.write_text(
            f"daemon off;\npid {self._directory}/pid;\nevents {{}}\n"
            f"http {{\n    access_log off;\n{temporary}{sites}}}\n"
        )
        log = self._directory / "error.log"
        self._process = subprocess.Popen(["/usr/sbin/nginx", "-e", log, "-c", path])
        for server in servers:
            retry = ["--retry", "20", "--retry-connrefused", "--retry-delay", "1"]
            subprocess.run(
                ["curl", "-sSf", "-o", "/dev/null", *retry, self.url(server)], check=True, stderr=subprocess.DEVNULL
            )

    def url(self, server):
        return f"http://127.0.0.1:{self._ports[server.name]}/"

    def load(self, server, seconds):
        """Requests a second; p50 and p99 in µs; processor time of the workers for each in µs."""
        workers = server.workers()
        before = processes.cpu_seconds(workers)
        output = subprocess.run(
            ["wrk", "-t1", "--latency", f"-c{CLIENTS}", f"-d{seconds}s", self.url(server)],
            check=True, capture_output=True, text=True,
        ).stdout
        if "Non-2xx" in output or "Socket errors" in output:
            raise RuntimeError(f"{server.name}:\n{output}")
        cpu = processes.cpu_seconds(workers) - before
        requests = int(re.search(r"(\d+) requests in", output).group(1))
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))
        return rate, _micros(output, "50%"), _micros(output, "99%"), cpu / requests * 1e6

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)


def _micros(output, percentile):
    number, unit = re.search(rf"{percentile}\s+([\d.]+)(us|ms|s)\b", output).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def _pass(server):
    if isinstance(server, Gunicorn):
        return f"proxy_set_header Host $http_host; proxy_pass http://unix:{server.socket()};"
    if isinstance(server, Uwsgi):
        return f"include /etc/nginx/uwsgi_params; uwsgi_pass unix:{server.socket()};"
    return f"include /etc/nginx/fastcgi_params; fastcgi_pass unix:{server.socket()};"


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
