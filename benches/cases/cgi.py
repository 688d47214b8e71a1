"""A CGI program for each request, beside fcgiwrap."""

import subprocess

from harness.servers import Fcgiwrap, Forkyard, Pool
from harness.table import at_least, latencies

PACKAGES = ("fcgiwrap",)
BUILDS = ("forkyard", "forkyard-load")

SOURCE = r"""
#include <stdio.h>
int main(void) { puts("Content-Type: text/plain\r\n\r\nhello"); return 0; }
"""
WORKERS = 8


def run(bench):
    rounds, seconds = (3, 0.5) if bench.quick else (9, 2)
    program = bench.scripts / "hello.cgi"
    subprocess.run(["cc", "-O2", "-x", "c", "-o", program, "-"], input=SOURCE, text=True, check=True)
    pool = Pool(max_children=WORKERS, application=f'{{ runtime = "cgi", root = "{bench.scripts}" }}')
    with bench.start(Forkyard, pool) as forkyard, bench.start(Fcgiwrap, pool) as fcgiwrap:
        servers = [forkyard, fcgiwrap]
        for server in servers:
            server.wait_for_workers(WORKERS)
        for clients in (1, 8):
            comparison = bench.rate(servers, program.name, seconds, rounds, clients=clients)
            work = f"a CGI program, {clients} {'client' if clients == 1 else 'clients'} (beside: fcgiwrap)"
            yield at_least(comparison, 1.0, work=work)
            yield from latencies(comparison, work)
