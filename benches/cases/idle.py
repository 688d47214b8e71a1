"""A daemon with a hundred ondemand pools and no requests: it makes no system calls."""

import time

from harness import processes
from harness.needs import BOTH, PHP_BUILDS
from harness.servers import SERVERS, Pool
from harness.table import Row

PACKAGES = (*BOTH, "strace")
BUILDS = PHP_BUILDS

POOLS = 100


def run(bench):
    seconds = 3 if bench.quick else 10
    pools = [Pool(f"p{number}", "ondemand", max_children=4) for number in range(POOLS)]
    calls = {}
    for server in SERVERS:
        with bench.start(server, *pools) as running:
            time.sleep(1)
            calls[server.name] = processes.calls_of_idle(running.processes(), bench.directory("strace"), seconds)
    yield Row(
        work=f"idle with {POOLS} ondemand pools: system calls in {seconds} s",
        forkyard=calls["forkyard"],
        php_fpm=calls["php-fpm"],
        unit="",
        must="0",
        met=calls["forkyard"] == 0,
    )
