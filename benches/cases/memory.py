"""Many workers and one client at a time: memory must grow in the workers that are needed, not in all of them."""

from harness import processes
from harness.needs import BOTH, PHP_BUILDS
from harness.servers import SERVERS, Pool
from harness.table import Row, no_more

PACKAGES = BOTH
BUILDS = PHP_BUILDS

WORKERS = 64
BUSY = 8


def run(bench):
    yield from _alone(bench)
    yield from _each(bench)


def _alone(bench):
    """One client: of all workers, one should grow."""
    grown, growth = {}, {}
    for server in SERVERS:
        with bench.start(server, Pool(max_children=WORKERS)) as running:
            running.wait_for_workers(WORKERS)
            before = processes.pss_mib(running.processes())
            report = bench.load(running, "memory.php", requests=1000 if bench.quick else 4000)
            if report["errors"]:
                raise RuntimeError(f"{server.name}: {report['errors_by_kind']}")
            grown[server.name] = processes.pss_mib(running.processes())
            growth[server.name] = grown[server.name] - before
    forkyard, php_fpm = grown.values()
    yield Row(
        work=f"{WORKERS} workers, 1 client, a script of 20 MB: memory",
        forkyard=forkyard,
        php_fpm=php_fpm,
        unit="MiB",
        ratio=forkyard / php_fpm,
        must="≤ 1/8",
        met=forkyard <= php_fpm / 8,
        note="PSS of all processes; it grew by {:.1f} MiB, php-fpm's by {:.1f} MiB".format(*growth.values()),
    )


def _each(bench):
    """As many clients as workers: what a worker that has served weighs."""
    each = {}
    for server in SERVERS:
        with bench.start(server, Pool(max_children=BUSY)) as running:
            running.wait_for_workers(BUSY)
            report = bench.load(running, "hello.php", clients=4 * BUSY, requests=2000 if bench.quick else 20000)
            if report["errors"]:
                raise RuntimeError(f"{server.name}: {report['errors_by_kind']}")
            each[server.name] = processes.pss_mib(running.processes()) / BUSY
    yield no_more(
        f"{BUSY} workers that served: memory for each",
        *each.values(),
        "MiB",
        note="PSS of all processes, the master and the preloader among them, divided by the workers",
    )
