"""Many applications behind one socket: what the router adds, how many it can know, and Passenger beside it."""

import os
import re
import shutil
import socket
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from harness import processes
from harness.needs import NGINX, PHP, PHP_BUILDS, WRAPPED_BUILDS
from harness.servers import PHP_VERSION, PROGRAMS, Forkyard, Pool
from harness.table import Row, at_least, latencies, no_more

from . import rack

PACKAGES = (*PHP, *NGINX, "python3", "ruby-rack", "passenger")
BUILDS = (*PHP_BUILDS, *WRAPPED_BUILDS, "examples/application_pool_load")

WORKERS = 8
KNOWN = 10_000
RUBY = "run ->(env) { [200, {'content-type' => 'text/plain'}, [\"Hello, world\\n\"]] }\n"
PYTHON = (
    "def application(environ, start_response):\n"
    "    start_response('200 OK', [('Content-Type', 'text/plain')])\n"
    "    return [b'Hello, world\\n']\n"
)
LANGUAGES = {"Python": ("passenger_wsgi.py", PYTHON), "Ruby": ("config.ru", RUBY)}


class Sites(Forkyard):
    """forkyard with an application pool. Its applications are in `sites`, below its directory."""

    settings = ""

    def configure(self):
        self.sites = self.directory / "sites"
        self.sites.mkdir()
        self.sites.chmod(0o755)
        path = self.directory / "forkyard.toml"
        path.write_text(
            f'[pool.www]\nlisten = {{ address = "{self.socket()}", mode = "0666" }}\nrouting = "application"\n'
            f'[pool.www.applications]\ndirectories = ["{self.sites}"]\nmin_uid = 1\nmax = {self.pools[0].max_children}\n'
            f'{self.settings}[pool.www.application]\nruntime = "php"\nversion = "{PHP_VERSION}"\n'
        )
        return [PROGRAMS / "forkyard", "run", "-c", path]

    def add(self, name, files):
        """An application of www-data's."""
        root = self.sites / name
        root.mkdir()
        for file, text in files.items():
            (root / file).write_text(text)
            (root / file).chmod(0o755)
        if os.geteuid() == 0:
            for path in (root, *root.iterdir()):
                shutil.chown(path, "www-data", "www-data")
        return root

    def workers(self):
        """With the router: what it does is done for requests, too."""
        words = (": pool ", ": router ")
        return [pid for pid in self.processes() if any(word in processes.title(pid) for word in words)]


class OneUser(Sites):
    """All applications run as the same user. Only then is a connection kept that one of them has had."""

    settings = 'default_user = "www-data"\nuser_switching = false\n' if os.geteuid() == 0 else ""


class Plain(Forkyard):
    """forkyard with a pool for one application."""

    name = "plain"


class Known(Sites):
    """One whose instances leave as soon as they are idle."""

    settings = 'max_idle_time = "1s"\n'


class Passenger(rack.Passenger):
    """Nothing of it runs before the first request."""

    def place(self, directory):
        file, text = self.application
        (directory / file).write_text(text)

    def least(self):
        return 0

    def workers(self):
        """With its core, which does for requests what forkyard's router does."""
        return self.processes()

    def wait_for_workers(self, count):
        """Nothing is there before the first request; only its socket has to be."""
        end = time.monotonic() + 60
        while not self.socket().exists():
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name} has no socket")
            time.sleep(0.02)


def run(bench):
    yield from _router(bench)
    yield from _book(bench)
    yield from _known(bench)
    for language, application in LANGUAGES.items():
        yield from _passenger(bench, language, application)


def _router(bench):
    """Scripts through the router, beside a plain pool of as many workers."""
    rounds, seconds = (5, 0.5) if bench.quick else (9, 2)
    pool = Pool(max_children=WORKERS)
    scripts = {"hello.php": "hello", "short.php": "a script of a millisecond", "compute.php": "a script that computes"}
    with bench.start(Sites, pool) as owned, bench.start(OneUser, pool) as shared, bench.start(Plain, pool) as plain:
        plain.wait_for_workers(WORKERS)
        roots = {server: server.add("hello", {"index.php": ""}) for server in (owned, shared)}
        for script, name in scripts.items():
            for clients in (1, 8):
                for server, keep, how in ((owned, {}, "new"), (shared, {"keep": True}, "kept")):
                    param = {"param": f"FORKYARD_APP_ROOT={roots[server]}"}
                    comparison = bench.rate([server, plain], script, seconds, rounds, clients=clients, **param, **keep)
                    many = "client" if clients == 1 else "clients"
                    work = f"{name} through the router, {clients} {many}, {how} (beside: a plain pool)"
                    yield at_least(comparison, 0.9, work=work)
                    ours, theirs, _ = comparison.number(2)
                    added = ours - theirs
                    yield Row(f"{work}: p50", ours, theirs, "µs", "≤ 15 µs more", added <= 15, ours / theirs)


def _book(bench):
    """How many sessions a second the router's book lends and closes."""
    output = subprocess.run(
        [PROGRAMS / "examples/application_pool_load", str(KNOWN)], check=True, capture_output=True, text=True
    ).stdout
    for places, rate in re.findall(r"(\d+) places: (\d+) sessions/s", output):
        work = f"the book, {KNOWN:,} applications, {int(places):,} places: sessions"
        yield Row(work, float(rate), None, "/s", "≥ 100 000", float(rate) >= 100_000)


def _known(bench):
    """Applications that have been asked for and do not run any more."""
    count = 500 if bench.quick else KNOWN
    with bench.start(Known, Pool(max_children=WORKERS)) as server:
        begun = processes.pss_mib(server.processes())
        script = "#!/bin/sh\necho 'Content-Type: text/plain'\necho\necho Hello\n"
        files = {"run": script, "forkyard.toml": 'runtime = "cgi"\nentry = "run"\n'}
        roots = [server.add(f"app{number}", files) for number in range(count)]
        with ThreadPoolExecutor(WORKERS) as clients:
            answers = clients.map(lambda root: _ask(server.socket(), root), roots)
            if not all(b"Hello" in answer for answer in answers):
                raise RuntimeError("an application did not answer:\n" + "\n".join(server.log[-5:]))
        end = time.monotonic() + 60
        while any(": pool " in processes.title(pid) for pid in server.processes()):
            if time.monotonic() > end:
                raise RuntimeError("instances do not leave")
            time.sleep(0.1)
        memory = processes.pss_mib(server.processes())
        with bench.start(Forkyard, Pool(pm="ondemand")) as other:
            plain = processes.pss_mib(other.processes())
        ready = server.start_seconds
    work = f"{count:,} known applications of which none runs"
    note = f"{begun:.1f} MiB before the first was asked for; beside it, a pool of one application"
    most = 100
    yield Row(f"{work}: memory", memory, plain, "MiB", f"≤ {most} MiB", memory <= most, memory / plain, note)
    yield Row("an application pool: ready after", ready, None, "s", "≤ 0.15 s", ready <= 0.15)


def _ask(address, root):
    """One request over FastCGI, as bytes."""
    def record(kind, content):
        return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content

    names = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "/", "FORKYARD_APP_ROOT": str(root)}
    pairs = b"".join(bytes([len(name), len(value)]) + (name + value).encode() for name, value in names.items())
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(address))
        begin = record(1, struct.pack(">HB5x", 1, 0))
        client.sendall(begin + record(4, pairs) + record(4, b"") + record(5, b""))
        return b"".join(iter(lambda: client.recv(4096), b""))


def _passenger(bench, language, application):
    """The same application behind nginx: the first answer of all, then requests a second and memory."""
    rounds, seconds = (3, 1) if bench.quick else (7, 3)
    pool = Pool(max_children=WORKERS)
    file, text = application
    starts = {"forkyard": [], "passenger": []}
    for number in range(rounds):
        with bench.start(Sites, pool) as ours, Passenger(bench.directory("passenger"), [pool], application) as theirs:
            root = ours.add("hello", {file: text})
            with Routed(bench, ours, theirs, root) as nginx:
                for server in (ours, theirs):
                    starts[server.name].append(nginx.first[server.name])
                if number == rounds - 1:
                    yield from _rates(bench, [ours, theirs], nginx, language, seconds)
    middle = {name: sorted(figures)[len(figures) // 2] for name, figures in starts.items()}
    yield no_more(f"{language}: the first answer of all (beside: passenger)", *middle.values(), "ms")


def _rates(bench, servers, nginx, language, seconds):
    rounds = 3 if bench.quick else 7
    for clients in (1, 8):
        for server in servers:
            nginx.rate(server, clients, 1)
        comparison = bench.compare(servers, lambda server: nginx.rate(server, clients, seconds), rounds)
        many = "client" if clients == 1 else "clients"
        work = f"{language} through nginx, {clients} {many} (beside: passenger)"
        yield at_least(comparison, 1.0, work=work)
        yield from latencies(comparison, work)
    memory = [processes.pss_mib(server.processes()) for server in servers]
    yield no_more(f"{language}, {WORKERS} instances at most: memory (beside: passenger)", *memory, "MiB")


class Routed(rack.Site):
    """nginx before both, which names forkyard's application; how long the first answer of each took, in ms."""

    def __init__(self, bench, forkyard, rival, root):
        self._root = root
        self.first = {}
        super().__init__(bench, [forkyard, rival])

    def location(self, server):
        return f"fastcgi_param FORKYARD_APP_ROOT {self._root}; {super().location(server)}"

    def fetched(self, server, page, seconds):
        super().fetched(server, page, seconds)
        self.first[server.name] = seconds * 1000
