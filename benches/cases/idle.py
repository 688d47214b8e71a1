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
            calls[server.name] = _calls(bench, running, seconds)
    yield Row(
        work=f"idle with {POOLS} ondemand pools: system calls in {seconds} s",
        forkyard=calls["forkyard"],
        php_fpm=calls["php-fpm"],
        unit="",
        must="0",
        met=calls["forkyard"] == 0,
    )


def _calls(bench, server, seconds):
    output = bench.directory("strace")
    with processes.traced(server.processes(), output, "-ttt"):
        # To be attached to interrupts a wait, which is then begun again.
        time.sleep(0.5)
        begun = time.time()
        time.sleep(seconds)
        ended = time.time()
    times = (float(line.split()[1]) for line in output.read_text().splitlines())
    return sum(1 for at in times if begun <= at < ended)
