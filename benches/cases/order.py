"""Slow scripts and more clients than workers: requests on kept connections wait no longer than those on new ones."""

import statistics

from harness import processes
from harness.needs import PHP, PHP_BUILDS
from harness.servers import Forkyard, Pool
from harness.table import Row

PACKAGES = PHP
BUILDS = (*PHP_BUILDS, "libforkyard.so")

WORKERS = 4
# A request of 6 ms that keeps no processor busy.
SCRIPT = "sleep.php"
WSGI = """
import time

def application(environ, start_response):
    time.sleep(0.006)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]
"""
MOST = 1.2


def run(bench):
    rounds, seconds = (3, 1) if bench.quick else (5, 4)
    with bench.start(Forkyard, Pool(max_children=WORKERS)) as server:
        yield from _rows(bench, server, "PHP", rounds, seconds)
    root = bench.directory("wsgi")
    root.mkdir()
    root.chmod(0o755)
    (root / "wsgi.py").write_text(WSGI)
    pool = Pool(max_children=WORKERS, application=f'{{ runtime = "wsgi", root = "{root}" }}')
    with bench.start(Forkyard, pool) as server:
        yield from _rows(bench, server, "Python", rounds, seconds)


def _rows(bench, server, name, rounds, seconds):
    server.wait_for_workers(WORKERS)
    for clients in (8, 16, 32):
        found = {True: [], False: []}
        with processes.awake():
            for number in range(rounds):
                for keep in (True, False) if number % 2 == 0 else (False, True):
                    found[keep].append(_p99(bench, server, clients, keep, seconds))
        kept, new = (statistics.median(found[keep]) for keep in (True, False))
        ratio = statistics.median(k / n for k, n in zip(found[True], found[False], strict=True))
        yield Row(
            work=f"{name}, 6 ms, {clients} clients, {WORKERS} workers, kept connections (beside: new ones): p99",
            forkyard=kept,
            php_fpm=new,
            unit="ms",
            must=f"≤ {MOST} x",
            met=ratio <= MOST,
            ratio=ratio,
            rounds={"kept": found[True], "new": found[False]},
        )


def _p99(bench, server, clients, keep, seconds):
    options = {"clients": clients, "uri": "/sleep.php?ms=6"} | ({"keep": True} if keep else {})
    report = bench.load(server, SCRIPT, seconds=seconds, **options)
    if report["errors"]:
        raise RuntimeError(f"{server.name}: {report['errors_by_kind']}")
    return report["latency_us"]["p99"] / 1000
