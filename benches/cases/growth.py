"""What a hello costs with ever more pools, workers and kept connections, in system calls and instructions."""

import contextlib
import math
import os
import resource
import statistics

from harness import counting, fastcgi, processes, sites, stepping, valgrind
from harness.needs import PHP, PHP_BUILDS
from harness.servers import Forkyard, Pool
from harness.table import Row

PACKAGES = (*PHP, "strace", "valgrind")
BUILDS = PHP_BUILDS[:2]

POOLS = (1, 100, 10_000)
WORKERS = (1, 30, 1000)
CONNECTIONS = (1, 100, 10_000)
# Of the figure of one, for ten times as many.
MOST_PER_DECADE = 0.01


def run(bench):
    script = bench.scripts / "hello_of.php"
    script.write_text("<?php echo 'Hello from ', getmypid();")
    sites.settle(bench.scripts)
    with _many_files(), counting.on_one_processor():
        for name, sizes, figures in (("pools", POOLS, _pools), ("workers", WORKERS, _workers), ("kept connections", CONNECTIONS, _connections)):
            points = {}
            for size in sizes[:2] if bench.quick else sizes:
                for figure, value in figures(bench, script, size).items():
                    points.setdefault(figure, []).append((size, value))
            for figure, values in points.items():
                slope = per_decade(values)
                yield Row(
                    f"{name}: {figure}", slope * 100, None, "%", f"≤ {MOST_PER_DECADE:.0%}",
                    slope <= MOST_PER_DECADE, note=", ".join(f"{size:,}: {value:,}" for size, value in values), rounds={"points": values},
                )  # fmt: skip


def per_decade(points):
    """The slope of the line through points, of the first one's value if it has one."""
    values = [value for _, value in points]
    return statistics.linear_regression([math.log10(size) for size, _ in points], values).slope / (values[0] or 1)


def _pools(bench, script, size):
    pools = [Pool(f"p{number}", "ondemand", max_children=4) for number in range(size - 1)]
    with _asked(bench, script, Pool(max_children=1), *pools) as (running, client):
        return _figures(bench, running, client)


def _workers(bench, script, size):
    with _asked(bench, script, Pool(max_children=size)) as (running, client):
        return _figures(bench, running, client)


def _figures(bench, running, client):
    """Of the worker that has the connection."""
    pid = int(client.ask().split()[-1])
    executed = stepping.instructions(pid, client, 1)[0]
    return _calls(bench, running, client, pid) | _instructions(executed)


def _connections(bench, script, size):
    """The others have been served, too, and are held by the same worker. Its second thread watches them, which costs a request nothing."""
    hello = bench.scripts / "hello.php"
    with _asked(bench, script, Pool(max_children=1)) as (running, client), _held(running, hello, client, size - 1):
        calls = _calls(bench, running, client, valgrind.worker(running, "www"))
    # Stepped through, a request takes so long that the others are passed on. The script calls getpid, the others' does not.
    server = valgrind.server(bench, "callgrind", "--callgrind:separate-threads=yes", "--callgrind:dump-before=getpid")
    with _asked(bench, script, Pool(max_children=1), server=server) as (running, client), _held(running, hello, client, size - 1):
        return calls | _instructions(valgrind.instructions(running, "www", client, 5, 6))


def _calls(bench, running, client, pid):
    for _ in range(10):
        client.ask()
    calls, _ = counting.calls(bench, [pid], client, 62, {pid})
    # In a second.
    idle = processes.calls_of_idle([running.pid], bench.directory("strace"), 1)
    return {"system calls": round(sum(calls.values()), 1), "master's idle calls": idle}


def _instructions(executed):
    return {"instructions, forkyard": executed["forkyard"], "instructions": sum(executed.values())}


@contextlib.contextmanager
def _held(running, script, client, count):
    """So many kept connections, and the client's, which is the last."""
    client.close()
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(fastcgi.Client(running.socket(), script, keep=True)).ask()
        client.ask()
        held = len(os.listdir(f"/proc/{valgrind.worker(running, 'www')}/fd"))
        if held <= count:
            raise RuntimeError(f"of {count} connections the worker holds {held}")
        yield


@contextlib.contextmanager
def _asked(bench, script, pool, *more, server=Forkyard):
    with bench.start(server, pool, *more) as running:
        running.wait_for_workers(pool.max_children)
        with fastcgi.Client(running.socket(), script, keep=True) as client:
            client.ask()
            yield running, client


@contextlib.contextmanager
def _many_files():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
