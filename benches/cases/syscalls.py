"""System calls for the smallest script: those that move the request and the answer, and the rest."""

from harness import processes
from harness.needs import BOTH, PHP_BUILDS
from harness.servers import Pool
from harness.table import Row

PACKAGES = (*BOTH, "strace")
BUILDS = PHP_BUILDS

INPUT_OUTPUT = {
    "accept", "accept4", "read", "recvfrom", "recvmsg", "readv", "write", "sendto", "sendmsg", "writev", "close",
    "shutdown", "poll", "ppoll", "select", "epoll_wait", "epoll_pwait", "epoll_ctl",
}


def run(bench):
    requests = 200 if bench.quick else 1000
    with bench.both(Pool(max_children=1)) as servers:
        for kind, options in (("a new connection", {}), ("a kept connection", {"keep": True})):
            counts = [_count(bench, server, requests, options) for server in servers]
            moving, rest = ([_split(calls, part) for calls in counts] for part in (True, False))
            for name, values in (("input and output", moving), ("the rest", rest)):
                yield Row(
                    work=f"system calls, hello, {kind}: {name}",
                    forkyard=sum(values[0].values()),
                    php_fpm=sum(values[1].values()),
                    unit="",
                    ratio=sum(values[0].values()) / sum(values[1].values()),
                    must="fewer",
                    met=sum(values[0].values()) < sum(values[1].values()),
                    note=f"{_words(values[0])}; php-fpm: {_words(values[1])}",
                )


def _count(bench, server, requests, options):
    """System calls of the worker for one request, by name."""
    bench.load(server, "hello.php", requests=50, **options)
    output = bench.directory("strace")
    with processes.traced(server.workers(), output, "-c"):
        bench.load(server, "hello.php", requests=requests, **options)
    return {name: count / requests for name, count in processes.calls_counted(output).items()}


def _split(calls, moving):
    # Rounded, so that what happened once in the run is not told.
    part = {name: count for name, count in calls.items() if (name in INPUT_OUTPUT) == moving}
    return {name: round(count, 1) for name, count in part.items() if count >= 0.05}


def _words(calls):
    return ", ".join(f"{name} {count:g}" for name, count in sorted(calls.items())) or "none"
