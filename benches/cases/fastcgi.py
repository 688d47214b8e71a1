"""A FastCGI program behind nginx, through forkyard and under spawn-fcgi."""

import os
import signal
import subprocess
import time

from harness import processes
from harness.needs import NGINX
from harness.servers import PHP_VERSION, Forkyard, Pool, Server
from harness.table import Row

from .nginx import CLIENTS, Scripts

PACKAGES = (*NGINX, "libfcgi-dev", f"php{PHP_VERSION}-cgi", "spawn-fcgi")
BUILDS = ("forkyard",)

WORKERS = 8
SOURCE = r"""
#include <fcgi_stdio.h>
int main(void)
{
    while (FCGI_Accept() >= 0)
        printf("Content-Type: text/plain\r\n\r\nhello");
    return 0;
}
"""
PHP = f"/usr/bin/php-cgi{PHP_VERSION}"
# A request passes a process more.
LEAST = 0.5


def run(bench):
    rounds, seconds = (5, 1) if bench.quick else (9, 3)
    program = bench.scripts / "hello.fcgi"
    subprocess.run(["cc", "-O2", "-x", "c", "-o", program, "-", "-lfcgi"], input=SOURCE, text=True, check=True)
    # php-cgi ends after 500 requests if it is not told otherwise, and spawn-fcgi starts nothing again.
    for name, command in (("libfcgi", str(program)), ("php-cgi", f"/usr/bin/env PHP_FCGI_MAX_REQUESTS=0 {PHP}")):
        pool = Pool(
            max_children=WORKERS,
            application=f'{{ runtime = "fastcgi", root = "{bench.scripts}", start_command = "{command}" }}',
        )
        with bench.start(Forkyard, pool) as forkyard, spawn_fcgi(command)(bench.directory("spawn-fcgi"), [pool]) as rival:
            for server in (forkyard, rival):
                server.wait_for_workers(WORKERS)
            with Scripts(bench, [forkyard, rival]) as nginx:
                yield _rate(bench, nginx, forkyard, rival, f"hello by {name}", rounds, seconds)
            yield _memory(forkyard, name)


def _rate(bench, nginx, forkyard, rival, work, rounds, seconds):
    for server in (forkyard, rival):
        nginx.rate(server, CLIENTS, 1)
    comparison = bench.compare([forkyard, rival], lambda server: nginx.rate(server, CLIENTS, seconds), rounds)
    ours, theirs, _ = comparison.number(1)
    return Row(
        work=f"{work} through nginx, {CLIENTS} clients (beside: spawn-fcgi)",
        forkyard=comparison.forkyard,
        php_fpm=comparison.php_fpm,
        unit="/s",
        ratio=comparison.ratio,
        must=f"≥ {LEAST} x",
        met=comparison.ratio >= LEAST,
        note=f"CPU time for a request without nginx: workers {ours:.0f} µs, spawn-fcgi's programs {theirs:.0f} µs",
        rounds=comparison.rounds,
    )


def _memory(forkyard, name):
    workers = forkyard.workers()
    each = processes.pss_mib(workers) / len(workers)
    return Row(f"a worker in front of {name} (beside: 2 MiB): memory", each, 2, "MiB", "≤ 1 x", each <= 2, each / 2)


def spawn_fcgi(command):
    """As many processes of a command on one socket."""

    class SpawnFcgi(Server):
        name = "spawn-fcgi"

        def configure(self):
            self._ready_at = time.monotonic()
            self._ready.set()
            user = ["-u", "www-data", "-g", "www-data"] if os.geteuid() == 0 else []
            count = str(self.pools[0].max_children)
            return [
                "spawn-fcgi", "-s", str(self.socket()), "-M", "0666", "-P", str(self.directory / "pids"), "-F", count,
                *user, "--", *command.split(),
            ]

        def workers(self):
            path = self.directory / "pids"
            return [int(pid) for pid in path.read_text().split()] if path.exists() else []

        def stop(self):
            super().stop()
            for pid in self.workers():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    return SpawnFcgi
