"""A script that only computes: libphp must not be slower than php-fpm's own copy of PHP."""

from harness.needs import BOTH, PHP_BUILDS
from harness.table import at_least

PACKAGES = BOTH
BUILDS = PHP_BUILDS


def run(bench):
    rounds, seconds = (7, 0.5) if bench.quick else (25, 1)
    with bench.both() as servers:
        comparison = bench.rate(servers, "compute.php", seconds, rounds, clients=1)
        yield at_least(comparison, 0.98, work="a script that computes")
