"""The smallest script over FastCGI: what a request costs beside its script."""

from harness.needs import BOTH, PHP_BUILDS
from harness.servers import Pool
from harness.table import at_least, latencies, processor_time

PACKAGES = BOTH
BUILDS = PHP_BUILDS

WORKERS = 4
# Clients, kept connections: processor time and requests a second, of php-fpm's. More kept clients than workers can't be
# compared: php-fpm lets the others wait.
BARS = {
    (1, False): (0.75, 1.05),
    (WORKERS, False): (0.75, 1.0),
    (1, True): (0.95, 1.0),
    (WORKERS, True): (0.80, 1.0),
}


def run(bench):
    rounds, seconds = (5, 0.5) if bench.quick else (9, 2)
    with bench.both(Pool(max_children=WORKERS)) as servers:
        for (clients, keep), (most_cpu, least_rate) in BARS.items():
            options = {"clients": clients} | ({"keep": True} if keep else {})
            comparison = bench.rate(servers, "hello.php", seconds, rounds, **options)
            kind = "kept" if keep else "a new"
            many = "client" if clients == 1 else "clients"
            connection = "connection" if clients == 1 or not keep else "connections"
            work = f"hello, {clients} {many}, {kind} {connection}"
            yield at_least(comparison, least_rate, work=work)
            yield processor_time(comparison, work, most_cpu)
            yield from latencies(comparison, work)
