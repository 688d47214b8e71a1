"""What requests cost in what can be counted: system calls, bytes, page faults, context switches, instructions."""

import contextlib
import multiprocessing
import shutil
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from harness import counting, fastcgi, record, sites, stepping, valgrind
from harness.needs import PHP, PHP_BUILDS, WRAPPED_BUILDS
from harness.servers import PHP_VERSION, Forkyard, Pool

from .applications import PYTHON, RUBY, Sites
from .express import MODULES, SITE

PACKAGES_QUICK = (*PHP, "strace", "valgrind")
BUILDS_QUICK = PHP_BUILDS[:2]
PACKAGES = (*PACKAGES_QUICK, *sites.SYMFONY, *sites.WORDPRESS, "python3", "ruby-rack", "nodejs", "node-express")
BUILDS = (*BUILDS_QUICK, *WRAPPED_BUILDS)

ASGI = (
    "async def application(scope, receive, send):\n"
    "    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-type', b'text/plain')]})\n"
    "    await send({'type': 'http.response.body', 'body': b'Hello, world\\n'})\n"
)
# Its code is looked after in the first of these requests only, however long all take.
FIXED = f'{{ runtime = "php", version = "{PHP_VERSION}", php_admin_value = {{ "opcache.revalidate_freq" = "86400" }} }}'


@dataclass
class Kind:
    """A kind of request: the pool that it is for, and how it is sent."""

    name: str
    pool: str
    script: Path
    # Requests that callgrind is warmed up with and counts, and those that dhat counts.
    warm_up: int = 5
    counted: int = 6
    copying: int = 100
    options: dict = field(default_factory=dict)

    def client(self, running):
        return fastcgi.Client(running.socket(self.pool), self.script, **self.options)


def run(bench):
    figures = measure(bench)
    yield from record.rows(figures)
    if bench.reason:
        record.renew(figures, bench.reason)


def measure(bench):
    """The figures by kinds of requests, as benches/counts.json has them."""
    sites.settle(bench.scripts)
    with contextlib.ExitStack() as stack:
        stack.enter_context(counting.on_one_processor())
        php, loop, snapshot = _pools(bench)
        languages = [] if bench.quick else _languages(bench)
        pools = [php, loop, snapshot, *languages]
        running = stack.enter_context(bench.start(WithModules, *pools))
        running.wait_for_workers(len(pools))
        kinds = _hellos(bench)
        figures = {kind.name: _plain(bench, running, kind) for kind in kinds}
        if not bench.quick:
            # After the others: WordPress changes the worker's umask.
            pages = _pages(bench, running, stack)
            kinds += pages
            figures |= {kind.name: _plain(bench, running, kind) for kind in pages}
            figures |= {pool.name: _calls(bench, running, pool) for pool in languages}
            figures["an application pool"] = _routed(bench)
            for kind in (kind for kind in kinds if kind.pool == snapshot.name):
                figures[kind.name]["instructions"] = _stepped(running, kind)
        for name, values in _under_valgrind(bench, [php, loop], kinds).items():
            for kind, value in values.items():
                figures[kind][name] = value
    return figures


def _pools(bench):
    script = bench.scripts / "hello_worker.php"
    loop, snapshot = (Pool(mode, max_children=1, application=sites.worker_script(script, mode)) for mode in ("loop", "snapshot"))
    return Pool("php", max_children=1, application=FIXED), loop, snapshot


def _hellos(bench):
    hello, worker = bench.scripts / "hello.php", bench.scripts / "hello_worker.php"
    return [
        Kind("hello, a new connection", "php", hello),
        Kind("hello, a kept connection", "php", hello, options={"keep": True}),
        Kind("a page of 1 MB", "php", bench.scripts / "large.php", 3, 3, 5),
        Kind("hello, loop", "loop", worker),
        Kind("hello, snapshot", "snapshot", worker),
    ]


def _under_valgrind(bench, pools, kinds):
    names = [pool.name for pool in pools]
    kinds = [kind for kind in kinds if kind.pool in names]
    # In processes of their own, so that neither waits for the other.
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as beside:
        tools = {"instructions": _instructions, "bytes copied by libc": _copied}
        futures = {name: beside.submit(tool, bench, pools, kinds) for name, tool in tools.items()}
        return {name: future.result() for name, future in futures.items()}


def _stepped(running, kind):
    """Valgrind has no userfaultfd(2), without which no worker is put back."""
    with kind.client(running) as client:
        steps = stepping.instructions(valgrind.worker(running, kind.pool), client, 3)
    return {owner: statistics.median(step[owner] for step in steps) for owner in valgrind.OWNERS}


def _plain(bench, running, kind):
    """Without valgrind."""
    pids = [valgrind.worker(running, kind.pool)]
    with kind.client(running) as client:
        figures = _traced(bench, pids, client)
        faults, switches = counting.faults_and_switches(pids, client, 20)
    return figures | {"page faults": faults, "context switches": switches}


def _calls(bench, running, pool):
    """An application that is asked for its path only."""
    with fastcgi.Client(running.socket(pool.name), bench.scripts / "none") as client:
        return _traced(bench, [valgrind.worker(running, pool.name)], client)


def _traced(bench, pids, client):
    for _ in range(10):
        client.ask()
    calls, moved = counting.calls(bench, pids, client, 22)
    return {"system calls": calls, "bytes moved by system calls": moved}


def _instructions(bench, pools, kinds):
    kind_of_server = valgrind.server(bench, "callgrind", "--callgrind:dump-before=epoll_wait")
    with counting.on_one_processor(0), bench.start(kind_of_server, *pools) as running:
        figures = {}
        for kind in kinds:
            with kind.client(running) as client:
                figures[kind.name] = valgrind.instructions(running, kind.pool, client, kind.warm_up, kind.counted)
        return figures


def _copied(bench, pools, kinds):
    kind_of_server = valgrind.server(bench, "dhat", "--dhat:mode=copy")
    with counting.on_one_processor(1), bench.start(kind_of_server, *pools) as running:
        figures = {}
        for pool in pools:
            own = [kind for kind in kinds if kind.pool == pool.name]
            bytes_each = valgrind.copied(running, pool.name, {kind.client(running): kind.copying for kind in own})
            figures |= {kind.name: count for kind, count in zip(own, bytes_each, strict=True)}
        return figures


def _pages(bench, running, stack):
    """Pages of applications, without a worker script."""
    def ask(script, uri):
        with fastcgi.Client(running.socket("php"), script, uri=uri) as client:
            client.ask()

    site = stack.enter_context(sites.wordpress(bench, ask))
    return [
        Kind("a Symfony page", "php", sites.symfony(bench, ask) / "index.php", 2, 3, 5, {"uri": "/"}),
        Kind("WordPress' front page", "php", site / "index.php", 1, 3, 2, {"uri": "/"}),
    ]


def _languages(bench):
    """Pools of the smallest application in each."""
    root = bench.directory("languages")
    root.mkdir()
    root.chmod(0o755)
    for name, text in (("page.py", PYTHON), ("page_async.py", ASGI), ("page.ru", RUBY)):
        (root / name).write_text(text)
    express = bench.directory("express")
    shutil.copytree(SITE, express)
    return [
        Pool("WSGI", max_children=1, application=f'{{ runtime = "wsgi", root = "{root}", entry = "page" }}'),
        Pool("ASGI", max_children=1, application=f'{{ runtime = "asgi", root = "{root}", entry = "page_async" }}'),
        Pool("Rack", max_children=1, application=f'{{ runtime = "rack", root = "{root}", entry = "page.ru" }}'),
        Pool("Express", max_children=1, application=f'{{ runtime = "node", root = "{express}", start_command = "node app.js" }}'),
    ]


def _routed(bench):
    """The router and the worker that it passes a request to."""
    with bench.start(Sites, Pool(max_children=1)) as running:
        root = running.add("hello", {"passenger_wsgi.py": PYTHON})
        with fastcgi.Client(running.socket(), root / "none", FORKYARD_APP_ROOT=str(root)) as client:
            client.ask()
            return _traced(bench, running.workers(), client)


class WithModules(Forkyard):
    """Node finds Debian's packages."""

    def configure(self):
        command = super().configure()
        path = self.directory / "forkyard.toml"
        path.write_text(path.read_text().replace("application = ", f'env = {{ NODE_PATH = "{MODULES}" }}\napplication = '))
        return command
