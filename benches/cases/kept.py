"""More kept connections than workers: none waits for another's next request."""

from harness.needs import BOTH, PHP_BUILDS
from harness.servers import Pool
from harness.table import Row

PACKAGES = BOTH
BUILDS = PHP_BUILDS

CLIENTS = 24
WORKERS = 8


def run(bench):
    seconds = 3 if bench.quick else 10
    with bench.both(Pool(max_children=WORKERS)) as servers:
        options = {"clients": CLIENTS, "keep": True, "pause_ms": 100, "timeout_ms": 2000}
        reports = [bench.load(server, "hello.php", seconds=seconds, **options) for server in servers]
    work = f"{CLIENTS} kept connections, {WORKERS} workers, pauses of 100 ms"
    errors = [report["errors"] for report in reports]
    yield Row(
        work=f"{work}: errors",
        forkyard=errors[0],
        php_fpm=errors[1],
        unit="",
        must="0",
        met=errors[0] == 0,
        note="given up after 2 s",
    )
    slow = [report["latency_us"]["p99"] / 1000 for report in reports]
    yield Row(
        work=f"{work}: p99",
        forkyard=slow[0],
        php_fpm=slow[1],
        unit="ms",
        must="≤ 50 ms",
        met=slow[0] <= 50,
        note="answers: {}, php-fpm {}".format(*(report["requests"] for report in reports)),
    )
