"""A small Sinatra application behind nginx, beside Puma and Passenger."""

import os
import shutil
import time

from harness import processes
from harness.needs import NGINX, WRAPPED_BUILDS
from harness.nginx import Nginx
from harness.servers import Forkyard, Pool, Server
from harness.table import at_least, latencies, no_more

PACKAGES = (*NGINX, "ruby-sinatra", "puma", "passenger")
BUILDS = WRAPPED_BUILDS

APPLICATION = "site.ru"
PATH = "/world"
WORKERS = 16
CLIENTS = (1, 8)
# Of Puma's rate.
LEAST = 1.1


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
    """A cluster of processes, forked from a loaded application."""

    name = "puma"
    threads = 1

    def command(self):
        path = self.directory / "puma.rb"
        path.write_text(
            f'rackup "{self.application}"\nenvironment "production"\nworkers {self.pools[0].max_children}\n'
            f'threads {self.threads}, {self.threads}\npreload_app!\nbind "unix://{self.socket()}?umask=0111"\n'
        )
        return ["puma", "-q", "-C", path]

    def workers(self):
        return [pid for pid in self.processes() if "cluster worker" in processes.title(pid)]


class ThreadedPuma(Puma):
    threads = 5


class Passenger(Rival):
    """Its own HTTP server, which nginx's module passes requests to as well, with as many processes at all times."""

    name = "passenger"

    def command(self):
        directory = self.directory / "app"
        (directory / "public").mkdir(parents=True)
        self.place(directory)
        user = []
        if os.geteuid() == 0:
            user = ["setpriv", "--reuid=www-data", "--regid=www-data", "--clear-groups"]
            for path in (self.directory, directory, *directory.iterdir()):
                shutil.chown(path, "www-data")
        return user + [
            "env", f"HOME={self.directory}", "passenger", "start", directory, "--engine", "builtin",
            "--environment", "production", "--socket", self.socket(),
            "--max-pool-size", str(self.pools[0].max_children), "--min-instances", str(self.least()),
            "--no-install-runtime", "--no-compile-runtime", "--log-file", self.directory / "log",
            "--pid-file", self.directory / "pid",
        ]

    def place(self, directory):
        """Puts the application there."""
        shutil.copy(self.application, directory / "config.ru")

    def least(self):
        """So many processes are there without requests."""
        return self.pools[0].max_children

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
    for workers, kind in ((WORKERS, Puma), (2, ThreadedPuma)):
        yield from _beside(bench, kind, application, workers, kind.threads, LEAST, rounds, seconds)
    yield from _beside(bench, Passenger, application, WORKERS, 1, 1.0, rounds, seconds)


def _beside(bench, kind, application, workers, threads, least, rounds, seconds):
    table = f'{{ runtime = "rack", root = "{bench.scripts}", entry = "{APPLICATION}", threads = {threads} }}'
    pool = Pool(max_children=workers, application=table)
    with bench.start(Forkyard, pool) as forkyard, kind(bench.directory(kind.name), [pool], application) as rival:
        forkyard.wait_for_workers(workers)
        servers = [forkyard, rival]
        about = f"{workers} workers" if threads == 1 else f"{workers} workers of {threads} threads"
        yield from _rates(bench, servers, about, least, rounds, seconds)
        memory = [processes.pss_mib(server.processes()) for server in servers]
        yield no_more(f"Sinatra, {about} that served: memory (beside: {kind.name})", *memory, "MiB")


def _rates(bench, servers, about, least, rounds, seconds):
    beside = servers[1].name
    with Site(bench, servers) as nginx:
        for clients in CLIENTS:
            for server in servers:
                nginx.rate(server, clients, 1)
            comparison = bench.compare(servers, lambda server: nginx.rate(server, clients, seconds), rounds)
            one = "client" if clients == 1 else "clients"
            work = f"Sinatra through nginx, {about}, {clients} {one} (beside: {beside})"
            yield at_least(comparison, least, work=work)
            yield from latencies(comparison, work)


class Site(Nginx):
    """In front of forkyard and of a server that speaks HTTP."""

    path = PATH

    def location(self, server):
        if isinstance(server, Forkyard):
            return super().location(server)
        return f"proxy_set_header Host $host; proxy_pass http://unix:{server.socket()};"

    def fetched(self, server, page, seconds):
        if "Hello, world" not in page:
            raise RuntimeError(f"{server.name}: {page}")
