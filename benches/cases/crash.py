"""A URL that crashes its worker, asked for four times a second: what the other requests notice of it."""

import statistics

from harness.needs import BOTH, PHP_BUILDS
from harness.servers import SERVERS, Pool
from harness.table import Row

PACKAGES = BOTH
BUILDS = PHP_BUILDS

CLIENTS = 2
PAUSE_MS = 5
CRASH_EVERY_MS = 250
POOLS = {
    "static, 2 workers": Pool(max_children=2),
    "dynamic, 5 workers": Pool(
        pm="dynamic", max_children=5, start_servers=2, min_spare_servers=1, max_spare_servers=3
    ),
    "ondemand, 5 workers": Pool(pm="ondemand", max_children=5),
}


def run(bench):
    seconds, rounds = (3, 1) if bench.quick else (8, 3)
    for name, pool in POOLS.items():
        slowest = {server.name: [] for server in SERVERS}
        crashes = {server.name: [] for server in SERVERS}
        for number in range(rounds):
            for server in SERVERS if number % 2 == 0 else reversed(SERVERS):
                p95, count = _beside_crashes(bench, server, pool, seconds)
                slowest[server.name].append(p95)
                crashes[server.name].append(count)
        forkyard, php_fpm = (statistics.median(slowest[server.name]) for server in SERVERS)
        ratio = forkyard / php_fpm
        yield Row(
            work=f"{name}, 4 crashes a second: p95 of the others",
            forkyard=forkyard,
            php_fpm=php_fpm,
            unit="ms",
            ratio=ratio,
            must="≤ 1.5 x",
            met=ratio <= 1.5,
            note="crashes: " + ", ".join(f"{who} {counts}" for who, counts in crashes.items()),
            rounds=slowest,
        )


def _beside_crashes(bench, server, pool, seconds):
    """The 95th percentile of good requests, ms, and how many workers crashed meanwhile."""
    with bench.start(server, pool) as running:
        bench.load(running, "sleep.php", uri="/sleep.php?ms=5", clients=CLIENTS, seconds=0.5)
        crashing = {"clients": 1, "pause_ms": CRASH_EVERY_MS, "seconds": seconds}
        with bench.loading(running, "crash.php", **crashing) as crash:
            good = bench.load(
                running, "sleep.php", uri="/sleep.php?ms=5", clients=CLIENTS, pause_ms=PAUSE_MS, seconds=seconds
            )
        if good["errors"]:
            raise RuntimeError(f"{server.name}: {good['errors_by_kind']}")
        if not crash.report["errors"]:
            raise RuntimeError(f"{server.name}: nothing crashed")
        return good["latency_us"]["p95"] / 1000, crash.report["errors"]
