"""A CGI program for each request, beside fcgiwrap."""

import subprocess

from harness.servers import Fcgiwrap, Forkyard, Pool
from harness.table import at_least, latencies

PACKAGES = ("fcgiwrap", "perl")
BUILDS = ("forkyard", "forkyard-load")

SOURCE = r"""
#include <stdio.h>
int main(void) { puts("Content-Type: text/plain\r\n\r\nhello"); return 0; }
"""
SCRIPT = """#!/usr/bin/perl
print "Content-Type: text/plain\\r\\n\\r\\nhello\\n";
"""
WORKERS = 8


def run(bench):
    rounds, seconds = (3, 0.5) if bench.quick else (9, 2)
    program, script = bench.scripts / "hello.cgi", bench.scripts / "perl.cgi"
    subprocess.run(["cc", "-O2", "-x", "c", "-o", program, "-"], input=SOURCE, text=True, check=True)
    script.write_text(SCRIPT)
    script.chmod(0o755)
    pool = Pool(max_children=WORKERS, application=f'{{ runtime = "cgi", root = "{bench.scripts}" }}')
    with bench.start(Forkyard, pool) as forkyard, bench.start(Fcgiwrap, pool) as fcgiwrap:
        servers = [forkyard, fcgiwrap]
        for server in servers:
            server.wait_for_workers(WORKERS)
        for what, path in (("in C", program), ("in Perl", script)):
            for clients in (1, 8):
                comparison = bench.rate(servers, path.name, seconds, rounds, clients=clients)
                work = f"a CGI program {what}, {clients} {'client' if clients == 1 else 'clients'} (beside: fcgiwrap)"
                yield at_least(comparison, 1.0, work=work)
                yield from latencies(comparison, work)
