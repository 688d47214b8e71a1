"""What a request costs the master, in each mode of the process manager."""

from harness import processes
from harness.needs import BOTH, PHP_BUILDS
from harness.servers import Pool
from harness.table import no_more

PACKAGES = BOTH
BUILDS = PHP_BUILDS

MODES = [
    Pool(pm="static", max_children=8),
    Pool(pm="dynamic", max_children=8, start_servers=2, min_spare_servers=1, max_spare_servers=3),
    Pool(pm="ondemand", max_children=8),
]


def run(bench):
    seconds = 2 if bench.quick else 10
    for pool in MODES:
        with bench.both(pool) as servers:
            cost = [_cost(bench, server, seconds) for server in servers]
        yield no_more(f"master's CPU for 1,000 requests, {pool.pm}", *cost, "µs")


def _cost(bench, server, seconds):
    """Processor time of the master for 1,000 requests, µs: what it does in idle seconds falls on requests, too."""
    before = processes.cpu_seconds([server.pid])
    report = bench.load(server, "hello.php", seconds=seconds, clients=8)
    if report["errors"]:
        raise RuntimeError(f"{server.name}: {report['errors_by_kind']}")
    return (processes.cpu_seconds([server.pid]) - before) * 1e6 / report["requests"] * 1000
