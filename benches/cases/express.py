"""A page of Express behind nginx, through forkyard's gateway and by proxy_pass directly."""

import os
import shutil
import time
from pathlib import Path

from harness import processes
from harness.needs import NGINX
from harness.nginx import Nginx, free_port
from harness.servers import Forkyard, Pool, Server
from harness.table import Row, no_more

PACKAGES = (*NGINX, "nodejs", "node-express")
BUILDS = ("forkyard",)

CLIENTS = 8
# Of node's own rate, and of its processor time for a request.
LEAST = 0.95
MOST_CPU = 1.25
WORKERS = 16
SITE = Path(__file__).resolve().parents[1] / "scripts/express"
# Where Debian's packages are found by a node that is not Debian's.
MODULES = "/usr/share/nodejs"


def run(bench):
    rounds, seconds = (5, 1) if bench.quick else (9, 3)
    root = bench.directory("express")
    shutil.copytree(SITE, root)
    application = f'{{ runtime = "node", root = "{root}", start_command = "node app.js" }}'
    pool = Pool(max_children=WORKERS, application=application)
    with bench.start(WithModules, pool) as forkyard, bench.start(kind(root), pool) as direct:
        forkyard.wait_for_workers(WORKERS)
        with Gateway(bench, [forkyard, direct]) as nginx:
            for server in (forkyard, direct):
                nginx.rate(server, CLIENTS, 2)
            yield from _compare(bench, nginx, forkyard, direct, rounds, seconds)


def _compare(bench, nginx, forkyard, direct, rounds, seconds):
    comparison = bench.compare([forkyard, direct], lambda server: nginx.rate(server, CLIENTS, seconds), rounds)
    work = f"an Express page, {CLIENTS} clients (beside: proxy_pass)"
    cpu = comparison.number(1)
    yield Row(
        work=work,
        forkyard=comparison.forkyard,
        php_fpm=comparison.php_fpm,
        unit="/s",
        ratio=comparison.ratio,
        must=f"≥ {LEAST} x",
        met=comparison.ratio >= LEAST,
        note=f"CPU time for a request without nginx: {cpu[0]:.0f} µs, direct {cpu[1]:.0f} µs, ratio {cpu[2]:.2f}",
        rounds=comparison.rounds,
    )
    yield Row(f"{work}: CPU time", *cpu[:2], "µs", f"≤ {MOST_CPU} x", cpu[2] <= MOST_CPU, cpu[2])
    for label, index in (("p50", 2), ("p99", 3)):
        ours, theirs, ratio = comparison.number(index)
        yield Row(f"{work}: {label}", ours, theirs, "µs", "≤ 2 x", ratio <= 2, ratio)
    workers = forkyard.workers()
    yield no_more(f"a worker in front of Express (beside: 1 MiB): memory",
                  processes.pss_mib(workers) / len(workers), 1, "MiB")


class WithModules(Forkyard):
    """With the environment that the application needs."""

    def configure(self):
        command = super().configure()
        path = self.directory / "forkyard.toml"
        lines = f'env = {{ NODE_PATH = "{MODULES}" }}\napplication = '
        path.write_text(path.read_text().replace("application = ", lines))
        return command

    def busy(self):
        return self.processes()


def kind(root):
    """Express by itself, on a port."""

    class Direct(Server):
        name = "direct"

        def configure(self):
            self.port = free_port()
            self._ready_at = time.monotonic()
            self._ready.set()
            environment = [f"PORT={self.port}", "NODE_ENV=production", f"NODE_PATH={MODULES}"]
            user = ["setpriv", "--reuid", "www-data", "--regid", "www-data", "--clear-groups"]
            return ["env", "-C", str(root), *environment, *(user if os.geteuid() == 0 else []), "node", "app.js"]

        def busy(self):
            return [self.pid]

    return Direct


class Gateway(Nginx):
    """Connections behind it are kept."""

    def upstreams(self, servers):
        forkyard, direct = servers
        return (
            f"    upstream forkyard {{ server unix:{forkyard.socket()}; keepalive 16; }}\n"
            f"    upstream direct {{ server 127.0.0.1:{direct.port}; keepalive 16; }}\n"
        )

    def location(self, server):
        if isinstance(server, Forkyard):
            return "include /etc/nginx/fastcgi_params; fastcgi_keep_conn on; fastcgi_pass forkyard;"
        headers = {
            "Connection": '""', "Host": "$http_host", "X-Forwarded-For": "$proxy_add_x_forwarded_for",
        }
        set_headers = " ".join(f"proxy_set_header {name} {value};" for name, value in headers.items())
        return f"proxy_http_version 1.1; {set_headers} proxy_pass http://direct;"
