"""A thousand ondemand pools, as a shared host has them, and ten thousand: how long they take to come up, and their memory."""

import os
import statistics
import time

from harness import processes
from harness.needs import BOTH, PHP_BUILDS
from harness.servers import SERVERS, Forkyard, Pool
from harness.table import Row

PACKAGES = (*BOTH, "strace")
BUILDS = PHP_BUILDS

POOLS = 1000
MANY_POOLS = 10_000
FIRST_USER = 70_000


def run(bench):
    yield from _beside_php_fpm(bench)
    if os.geteuid() == 0:
        yield from _many_users(bench)


def _beside_php_fpm(bench):
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


def _many_users(bench):
    """Each pool has a user of its own. php-fpm is not asked for so many."""
    pools = [Pool(f"p{number}", "ondemand", max_children=4, user=FIRST_USER + number) for number in range(MANY_POOLS)]
    seconds, taken, memory, calls = (3 if bench.quick else 10), [], [], []
    for _ in range(1 if bench.quick else 3):
        with processes.awake(), bench.start(Forkyard, *pools) as running:
            taken.append(running.start_seconds)
            # The zygote, which they have together, is ready a moment later.
            time.sleep(2)
            memory.append(processes.pss_mib(running.processes()))
            calls.append(processes.calls_of_idle(running.processes(), bench.directory("strace"), seconds))
    figures = [
        ("ready after", statistics.median(taken), "s", 1, "≤ 1 s"),
        ("memory", statistics.median(memory), "MiB", 60, "≤ 60 MiB"),
        (f"system calls in {seconds} s without a request", max(calls), "", 0, "0"),
    ]
    for name, figure, unit, most, must in figures:
        yield Row(f"10,000 users: {name}", figure, None, unit, must, figure <= most)
