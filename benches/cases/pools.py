"""A thousand ondemand pools, as a shared host has them: how long they take to come up, and their memory."""

from harness import processes
from harness.needs import BOTH, PHP_BUILDS
from harness.servers import SERVERS, Pool
from harness.table import Row

PACKAGES = BOTH
BUILDS = PHP_BUILDS

POOLS = 1000


def run(bench):
    pools = [Pool(f"p{number}", "ondemand", max_children=4) for number in range(POOLS)]

    def measure(server):
        with bench.start(server, *pools) as running:
            listening = processes.listening_sockets(running.directory)
            if listening != POOLS:
                raise RuntimeError(f"{server.name} was ready with {listening} sockets")
            return running.start_seconds, processes.pss_mib(running.processes())

    comparison = bench.compare(SERVERS, measure, 2 if bench.quick else 7)
    yield Row(
        work="1,000 ondemand pools: ready after",
        forkyard=comparison.forkyard,
        php_fpm=comparison.php_fpm,
        unit="s",
        ratio=comparison.ratio,
        must="≤ 0.15 s",
        met=comparison.forkyard <= 0.15,
    )
    forkyard, php_fpm, ratio = comparison.number(1)
    yield Row(
        work="1,000 ondemand pools: memory",
        forkyard=forkyard,
        php_fpm=php_fpm,
        unit="MiB",
        ratio=ratio,
        must="≤ 40 MiB",
        met=forkyard <= 40,
        note="PSS of all processes",
    )
