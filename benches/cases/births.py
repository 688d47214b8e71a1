"""A worker for each request: how long it takes from the end of one worker until the next has answered."""

from harness.needs import BOTH, PHP_BUILDS
from harness.servers import Pool
from harness.table import no_more

PACKAGES = BOTH
BUILDS = PHP_BUILDS


def run(bench):
    rounds, seconds = (3, 0.5) if bench.quick else (7, 2)
    with bench.both(Pool(max_children=1, max_requests=1)) as servers:
        # A client that finds no worker waits in the listen queue: its latency is the start of one.
        comparison = bench.rate(servers, "hello.php", seconds, rounds, clients=1)
    forkyard, php_fpm, ratio = comparison.number(2)
    yield no_more("a worker's start and its first request: p50", forkyard, php_fpm, "µs", ratio)
