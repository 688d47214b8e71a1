"""Reload under load while a request of 4 s is being served: nothing fails, nothing waits."""

import time

from harness.needs import BOTH, PHP_BUILDS
from harness.servers import SERVERS, Pool
from harness.table import Row

PACKAGES = BOTH
BUILDS = PHP_BUILDS

CLIENTS = 4
FAST = "/sleep.php?ms=5"
SLOW_MS = 4000


def run(bench):
    reloads = 2 if bench.quick else 20
    failed, delay, notes = {}, {}, []
    for server in SERVERS:
        with bench.start(server, Pool(max_children=8)) as running:
            workers = set(running.wait_for_workers(8))
            quiet = bench.load(running, "sleep.php", uri=FAST, clients=CLIENTS, seconds=5)
            total = reloads * (SLOW_MS / 1000 + 1.2)
            with bench.loading(running, "sleep.php", uri=FAST, clients=CLIENTS, seconds=total) as load:
                slow = [_reload(bench, running) for _ in range(reloads)]
            if workers & set(running.wait_for_workers(8)):
                raise RuntimeError(f"{server.name}: workers of before the reload are still there")
            failed[server.name] = load.report["errors"] + sum(report["errors"] for report in slow)
            latency = load.report["latency_us"]
            delay[server.name] = (latency["max"] - quiet["latency_us"]["max"]) / 1000
            notes.append(
                f"{server.name}: longest of {load.report['requests']} requests {latency['max'] / 1000:.1f} ms"
                f" (p99.9 {latency['p99_9'] / 1000:.1f} ms), without reloads {quiet['latency_us']['max'] / 1000:.1f} ms"
            )
    work = f"{reloads} reloads under load, a request of 4 s in flight"
    yield Row(
        work=f"{work}: failed",
        forkyard=failed["forkyard"],
        php_fpm=failed["php-fpm"],
        unit="",
        must="0",
        met=failed["forkyard"] == 0,
        note="php-fpm with process_control_timeout = 10s",
    )
    yield Row(
        work=f"{work}: longest delay",
        forkyard=delay["forkyard"],
        php_fpm=delay["php-fpm"],
        unit="ms",
        must="≤ 50 ms",
        met=delay["forkyard"] <= 50,
        note="; ".join(notes),
    )


def _reload(bench, server):
    """One reload in the middle of a slow request; says what became of the request."""
    uri = f"/sleep.php?ms={SLOW_MS}"
    with bench.loading(server, "sleep.php", uri=uri, requests=1, timeout_ms=30000) as slow:
        time.sleep(0.3)
        server.reload()
    # The next one must find the server in peace.
    time.sleep(0.5)
    return slow.report
