"""The smallest script over FastCGI: what a request costs beside its script."""

from harness.needs import BOTH, PHP_BUILDS
from harness.table import at_least, latencies, processor_time

PACKAGES = BOTH
BUILDS = PHP_BUILDS

# What a request may cost in processor time, of php-fpm's: on a new connection, on a kept one.
MOST_CPU = {False: 0.70, True: 0.80}


def run(bench):
    rounds, seconds = (5, 0.5) if bench.quick else (9, 2)
    with bench.both() as servers:
        for clients in (1, 8):
            for keep in (False, True):
                options = {"clients": clients} | ({"keep": True} if keep else {})
                comparison = bench.rate(servers, "hello.php", seconds, rounds, **options)
                kind = "kept" if keep else "a new"
                many = "client" if clients == 1 else "clients"
                connection = "connection" if clients == 1 or not keep else "connections"
                work = f"hello, {clients} {many}, {kind} {connection}"
                yield at_least(comparison, 1.3, work=work)
                yield processor_time(comparison, work, MOST_CPU[keep])
                yield from latencies(comparison, work)
