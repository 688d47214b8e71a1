"""Pages of Symfony, Laravel and WordPress and hello world by a worker script, put back after each request and in a loop, beside php-fpm."""

import contextlib
import os

from harness import processes, sites
from harness.needs import BOTH, PHP_BUILDS
from harness.servers import Forkyard, PhpFpm, Pool
from harness.table import Row, at_least, latencies, processor_time

PACKAGES = (*BOTH, *sites.SYMFONY, *sites.LARAVEL, *sites.WORDPRESS)
BUILDS = PHP_BUILDS

WORKERS = 8
# What a page may cost in processor time, of php-fpm's with OPcache.
MOST_CPU = {"snapshot": 0.65, "loop": 0.48}
LEAST_RATE = 1.8
MOST_CPU_OF_FORM = 0.62
MOST_CPU_OF_WORDPRESS = 0.82
# The same beside php-fpm with opcache.preload.
MOST_CPU_BESIDE_PRELOAD = 0.85
# A worker that is put back, beside one that goes on: µs for each request.
MOST_REWINDING = 200
MOST_MEMORY = 1.2
# Least rate of snapshot mode, as a part of loop mode's.
LEAST_OF_LOOP = 0.9
# Least rate of WordPress without a worker script, as a part of php-fpm's.
LEAST_WORDPRESS = 0.98


class PhpFpmWithFixedCode(PhpFpm):
    """The code of a worker script is fixed, too."""

    def configure(self):
        command = super().configure()
        with (self.directory / "php-fpm.conf").open("a") as file:
            file.write("php_admin_value[opcache.validate_timestamps] = 0\n")
        return command


class PhpFpmWithPreload(PhpFpmWithFixedCode):
    """Its classes are loaded and linked before it has workers."""

    name = "php-fpm, preload"
    script = None

    def configure(self):
        user = ["-d", "opcache.preload_user=www-data"] if os.geteuid() == 0 else []
        return [*super().configure(), "-d", f"opcache.preload={self.script}", *user]


def run(bench):
    # Before there is anything that could compile its caches for itself alone.
    with bench.start(PhpFpmWithFixedCode, Pool(max_children=1)) as php_fpm:
        symfony = sites.symfony(bench, lambda script, uri: bench.load(php_fpm, script, requests=1, uri=uri))
    rounds, seconds = (5, 1) if bench.quick else (11, 2)
    memory = {}
    with contextlib.ExitStack() as stack:
        start = lambda server, pool: stack.enter_context(bench.start(server, pool))
        php_fpm = start(PhpFpmWithFixedCode, Pool(max_children=WORKERS))
        warm_up = ["/", "/form", "/", "/form"]
        modes = {mode: start(SERVERS[mode], _pool(symfony / "worker.php", mode, warm_up)) for mode in MOST_CPU}
        _warm_up(bench, (php_fpm, *modes.values()), symfony / "index.php", "/")
        for mode, server in modes.items():
            for clients in (1, WORKERS):
                comparison = bench.rate(
                    [server, php_fpm], symfony / "index.php", seconds, rounds, clients=clients, uri="/"
                )
                work = f"a Symfony page, {mode}, {clients} client{'s' * (clients > 1)}"
                is_bar = mode == "snapshot" and clients > 1
                yield at_least(comparison, LEAST_RATE if is_bar else 1, work=work)
                yield processor_time(comparison, work, MOST_CPU[mode])
                if clients > 1:
                    yield list(latencies(comparison, work))[1]
            memory[mode] = processes.pss_mib(server.processes())
        yield from _beside_loop(bench, modes, symfony / "index.php", "/", "a Symfony page", rounds, seconds)
        own, others = memory["snapshot"], processes.pss_mib(php_fpm.processes())
        yield Row(
            f"a Symfony page, snapshot: memory of {WORKERS} workers", own, others, "MiB", f"≤ {MOST_MEMORY} x",
            own <= MOST_MEMORY * others, own / others, note="PSS of all processes",
        )
        # After that: another php-fpm would share the pages of its program.
        yield from _beside_preload(bench, modes["snapshot"], symfony, start, rounds, seconds)
        # At last: pages of memory that it writes to are put back after the requests that follow, too.
        comparison = bench.rate([modes["snapshot"], php_fpm], symfony / "index.php", seconds, rounds, clients=1, uri="/form")
        yield processor_time(comparison, "a page with a form, snapshot, 1 client", MOST_CPU_OF_FORM)
    yield from _laravel(bench, rounds, seconds)
    yield from _hello(bench, rounds, seconds)
    yield from _wordpress(bench, rounds, seconds)


def _warm_up(bench, servers, script, uri, each=20):
    """`each`: requests for each worker."""
    for server in servers:
        server.wait_for_workers(WORKERS)
        bench.load(server, script, clients=WORKERS, requests=each * WORKERS, uri=uri)


def _beside_loop(bench, modes, script, uri, page, rounds, seconds):
    """The loop is in php-fpm's column."""
    for kept in (False, True):
        options = {"keep": True} if kept else {}
        comparison = bench.rate([modes["snapshot"], modes["loop"]], script, seconds, rounds, clients=1, uri=uri, **options)
        work = f"{page}, snapshot beside loop, 1 client, {'kept' if kept else 'new'} connections"
        yield at_least(comparison, LEAST_OF_LOOP, work=work)


def _beside_preload(bench, snapshot, symfony, start, rounds, seconds):
    PhpFpmWithPreload.script = symfony / "preload.php"
    preload = start(PhpFpmWithPreload, Pool(max_children=WORKERS))
    script = symfony / "index.php"
    _warm_up(bench, [preload], script, "/")
    comparison = bench.rate([snapshot, preload], script, seconds, rounds, clients=1, uri="/")
    yield processor_time(
        comparison, "a Symfony page, snapshot beside opcache.preload, 1 client", MOST_CPU_BESIDE_PRELOAD
    )


def _laravel(bench, rounds, seconds):
    site = sites.laravel(bench)
    with contextlib.ExitStack() as stack:
        start = lambda server, pool: stack.enter_context(bench.start(server, pool))
        php_fpm = start(PhpFpmWithFixedCode, Pool(max_children=WORKERS))
        modes = {mode: start(SERVERS[mode], _pool(site / "worker.php", mode, ["/hello/you"])) for mode in MOST_CPU}
        script = site / "public/index.php"
        _warm_up(bench, (php_fpm, *modes.values()), script, "/hello/you")
        for mode, server in modes.items():
            comparison = bench.rate([server, php_fpm], script, seconds, rounds, clients=1, uri="/hello/you")
            yield at_least(comparison, 1, work=f"a Laravel page, {mode}, 1 client")
        yield from _beside_loop(bench, modes, script, "/hello/you", "a Laravel page", rounds, seconds)


def _hello(bench, rounds, seconds):
    """What it costs to be put back. The loop is in php-fpm's column."""
    script = bench.scripts / "hello_worker.php"
    with bench.start(Forkyard, _pool(script, "snapshot", [])) as snapshot, bench.start(
        Loop, _pool(script, "loop", [])
    ) as loop:
        for server in (snapshot, loop):
            server.wait_for_workers(WORKERS)
        comparison = bench.rate([snapshot, loop], script, seconds, rounds, clients=1)
        own, loops, _ = comparison.number(1)
        yield Row(
            "hello, snapshot beside loop, 1 client: CPU time", own, loops, "µs", f"≤ + {MOST_REWINDING} µs",
            own - loops <= MOST_REWINDING, own / loops,
        )


def _wordpress(bench, rounds, seconds):
    """Its front page, without a user."""
    with contextlib.ExitStack() as stack:
        php_fpm = stack.enter_context(bench.start(PhpFpmWithFixedCode, Pool(max_children=WORKERS)))
        ask = lambda script, uri: bench.load(php_fpm, script, requests=1, uri=uri)
        site = stack.enter_context(sites.wordpress(bench, ask))
        with bench.start(Forkyard, Pool(max_children=WORKERS, application=sites.fixed_code())) as plain:
            _warm_up(bench, (php_fpm, plain), site / "index.php", "/", each=2)
            comparison = bench.rate([plain, php_fpm], site / "index.php", seconds, rounds, clients=1, uri="/")
            yield at_least(comparison, LEAST_WORDPRESS, work="WordPress' front page, 1 client")
        pool = _pool(site / "worker.php", "snapshot", [], server='{ HTTP_HOST = "localhost" }')
        with bench.start(Forkyard, pool) as snapshot:
            _warm_up(bench, (php_fpm, snapshot), site / "index.php", "/", each=2)
            comparison = bench.rate([snapshot, php_fpm], site / "index.php", seconds, rounds, clients=1, uri="/")
            yield processor_time(comparison, "WordPress' front page, snapshot, 1 client", MOST_CPU_OF_WORDPRESS)


class Loop(Forkyard):
    name = "loop"


SERVERS = {"snapshot": Forkyard, "loop": Loop}


def _pool(script, mode, warm_up, server="{}"):
    # A worker that is replaced can't be measured.
    return Pool(max_children=WORKERS, max_requests=0, application=sites.worker_script(script, mode, warm_up, server))
