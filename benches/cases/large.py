"""A page of 1 MB over FastCGI: what output costs."""

from harness.needs import BOTH, PHP_BUILDS
from harness.table import at_least, processor_time

PACKAGES = BOTH
BUILDS = PHP_BUILDS


def run(bench):
    rounds, seconds = (5, 0.5) if bench.quick else (9, 2)
    with bench.both() as servers:
        comparison = bench.rate(servers, "large.php", seconds, rounds, clients=1)
        work = "a page of 1 MB, 1 client"
        yield at_least(comparison, 2, work=work)
        yield processor_time(comparison, work, 0.6)
