"""A small Sinatra application behind nginx, beside Puma and Passenger."""

import os
import re
import shutil
import socket
import subprocess
import time

from harness import processes
from harness.servers import Forkyard, Pool, Server
from harness.table import at_least, latencies, no_more

APPLICATION = "site.ru"
PATH = "/world"
WORKERS = 16
CLIENTS = (1, 8)


class Rival(Server):
    """A server that says elsewhere when it is ready: once its socket is there and it has its workers."""

    def __init__(self, directory, pools, application):
        self.application = application
        super().__init__(directory, pools)
        try:
            self.wait_for_workers(pools[0].max_children)
        except RuntimeError:
            self.stop()
            raise

    def configure(self):
        self._ready_at = time.monotonic()
        self._ready.set()
        return self.command()


class Puma(Rival):
    """A cluster of processes with one thread each, forked from a loaded application."""

    name = "puma"

    def command(self):
        path = self.directory / "puma.rb"
        path.write_text(
            f'rackup "{self.application}"\nenvironment "production"\nworkers {self.pools[0].max_children}\n'
            f'threads 1, 1\npreload_app!\nbind "unix://{self.socket()}?umask=0111"\n'
        )
        return ["puma", "-q", "-C", path]

    def workers(self):
        return [pid for pid in self.processes() if "cluster worker" in processes.title(pid)]


class Passenger(Rival):
    """Its own HTTP server, which nginx's module passes requests to as well, with as many processes at all times."""

    name = "passenger"

    def command(self):
        count = str(self.pools[0].max_children)
        place = self.directory / "app"
        (place / "public").mkdir(parents=True)
        shutil.copy(self.application, place / "config.ru")
        user = []
        if os.geteuid() == 0:
            user = ["setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups"]
            for path in (self.directory, place, place / "public"):
                shutil.chown(path, "www-data")
        return user + [
            "env", f"HOME={self.directory}", "passenger", "start", place, "--engine", "builtin",
            "--environment", "production", "--socket", self.socket(), "--max-pool-size", count, "--min-instances", count,
            "--no-install-runtime", "--no-compile-runtime", "--log-file", self.directory / "log",
            "--pid-file", self.directory / "pid",
        ]

    def processes(self):
        # Its core leaves the process that was started.
        path = self.directory / "pid"
        core = processes.descendants(int(path.read_text())) if path.exists() else []
        return super().processes() + core

    def workers(self):
        return [pid for pid in self.processes() if "RubyApp" in processes.title(pid)]


def run(bench):
    rounds, seconds = (3, 1) if bench.quick else (7, 3)
    application = bench.scripts / APPLICATION
    pool = Pool(max_children=WORKERS, application=_application(bench))
    for kind in (Puma, Passenger):
        with bench.start(Forkyard, pool) as forkyard, kind(bench.directory(kind.name), [pool], application) as rival:
            forkyard.wait_for_workers(WORKERS)
            servers = [forkyard, rival]
            yield from _rates(bench, servers, rounds, seconds)
            memory = [processes.pss_mib(server.processes()) for server in servers]
            yield no_more(f"Sinatra, {WORKERS} workers that served: memory (beside: {kind.name})", *memory, "MiB")


def _application(bench):
    return f'{{ runtime = "rack", root = "{bench.scripts}", entry = "{APPLICATION}" }}'


def _rates(bench, servers, rounds, seconds):
    beside = servers[1].name
    with Nginx(bench, *servers) as nginx:
        for clients in CLIENTS:
            for server in servers:
                nginx.rate(server, clients, 1)
            comparison = bench.compare(servers, lambda server: nginx.rate(server, clients, seconds), rounds)
            work = f"Sinatra through nginx, {clients} {'client' if clients == 1 else 'clients'} (beside: {beside})"
            yield at_least(comparison, 1.0, work=work)
            yield from latencies(comparison, work)


class Nginx:
    """An nginx with a port for each server."""

    def __init__(self, bench, *servers):
        directory = bench.directory("nginx")
        directory.mkdir()
        directory.chmod(0o755)
        self._ports = {server.name: _free_port() for server in servers}
        passes = {
            server.name: f"include /etc/nginx/fastcgi_params; {self.parameters()} fastcgi_pass unix:{server.socket()};"
            if isinstance(server, Forkyard)
            else f"proxy_set_header Host $host; proxy_pass http://unix:{server.socket()};"
            for server in servers
        }
        sites = "".join(
            f"server {{ listen 127.0.0.1:{port}; location / {{ {passes[name]} }} }}\n"
            for name, port in self._ports.items()
        )
        kinds = ("client_body", "fastcgi", "proxy", "uwsgi", "scgi")
        temporary = "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in kinds)
        path = directory / "nginx.conf"
        path.write_text(
            f"daemon off;\npid {directory}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{sites}}}\n"
        )
        self._process = subprocess.Popen(["/usr/sbin/nginx", "-e", directory / "error.log", "-c", path])
        for port in self._ports.values():
            _wait_for(port)
        for server in servers:
            retry = ["--retry", "20", "--retry-connrefused", "--retry-delay", "1"]
            fetch = ["curl", "-sS", *retry, self.url(server)]
            begun = time.monotonic()
            page = subprocess.run(fetch, check=True, capture_output=True, text=True).stdout
            self.fetched(server, time.monotonic() - begun)
            if "Hello, world" not in page:
                raise RuntimeError(f"{server.name}: {page}")

    def parameters(self):
        """What nginx says to forkyard beside the usual."""
        return ""

    def fetched(self, server, seconds):
        """The first page of a server took so long."""

    def url(self, server):
        return f"http://127.0.0.1:{self._ports[server.name]}{PATH}"

    def rate(self, server, clients, seconds):
        """Requests a second; the workers' processor time for each and the latencies, in µs."""
        workers = server.workers()
        before = processes.cpu_seconds(workers)
        command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--latency", self.url(server)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if "Non-2xx" in output or "Socket errors" in output:
            raise RuntimeError(f"{server.name}:\n{output}")
        requests = int(re.search(r"(\d+) requests in", output).group(1))
        cpu = (processes.cpu_seconds(workers) - before) / requests * 1e6
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))
        return rate, cpu, _microseconds(output, "50%"), _microseconds(output, "99%")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)


def _wait_for(port):
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _microseconds(output, row):
    number, unit = re.search(rf"^\s+{row}\s+([\d.]+)(us|ms|s)$", output, re.M).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
