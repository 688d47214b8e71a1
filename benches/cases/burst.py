"""A cold dynamic pool and a sudden load: how much of a static pool's throughput it gives in the first seconds."""

import statistics

from harness.needs import BOTH, PHP_BUILDS
from harness.servers import SERVERS, Pool
from harness.table import Row

PACKAGES = BOTH
BUILDS = PHP_BUILDS

CLIENTS = 48
SECONDS = 3


def run(bench):
    static = Pool(pm="static", max_children=CLIENTS)
    dynamic = Pool(pm="dynamic", max_children=CLIENTS, start_servers=2, min_spare_servers=2, max_spare_servers=4)
    share = {server.name: [] for server in SERVERS}
    for _ in range(1 if bench.quick else 3):
        for server in SERVERS:
            full = _rate(bench, server, static, CLIENTS)
            share[server.name].append(_rate(bench, server, dynamic, 2) / full * 100)
    forkyard, php_fpm = (statistics.median(values) for values in share.values())
    yield Row(
        work=f"a cold dynamic pool, {CLIENTS} clients at once: share of a static pool's rate",
        forkyard=forkyard,
        php_fpm=php_fpm,
        unit="%",
        must="≥ 90%",
        met=forkyard >= 90,
        note=f"requests of 50 ms, over the first {SECONDS} s",
    )


def _rate(bench, server, pool, workers):
    with bench.start(server, pool) as running:
        running.wait_for_workers(workers)
        report = bench.load(running, "sleep.php", uri="/sleep.php?ms=50", clients=CLIENTS, seconds=SECONDS)
        if report["errors"]:
            raise RuntimeError(f"{server.name}: {report['errors_by_kind']}")
        return report["requests_per_second"]
