"""A page of Express behind nginx, through forkyard's gateway and by proxy_pass directly."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from harness import processes
from harness.servers import Forkyard, Pool, Server
from harness.table import Row, no_more

from .wsgi import _free_port, _micros

CLIENTS = 8
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
        with Nginx(bench, forkyard, direct) as nginx:
            for server in (forkyard, direct):
                nginx.load(server, 2)
            yield from _compare(bench, nginx, forkyard, direct, rounds, seconds)


def _compare(bench, nginx, forkyard, direct, rounds, seconds):
    comparison = bench.compare([forkyard, direct], lambda server: nginx.load(server, seconds), rounds)
    work = f"an Express page, {CLIENTS} clients (beside: proxy_pass)"
    cpu = comparison.number(3)
    yield Row(
        work=work,
        forkyard=comparison.forkyard,
        php_fpm=comparison.php_fpm,
        unit="/s",
        ratio=comparison.ratio,
        # A process more in the way of each request.
        must="≥ 0.6 x",
        met=comparison.ratio >= 0.6,
        note=f"CPU time for a request without nginx: {cpu[0]:.0f} µs, direct {cpu[1]:.0f} µs, ratio {cpu[2]:.2f}",
        rounds=comparison.rounds,
    )
    for label, index in (("p50", 1), ("p99", 2)):
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

    def everyone(self):
        return self.processes()


def kind(root):
    """Express by itself, on a port."""

    class Direct(Server):
        name = "direct"

        def configure(self):
            self.port = _free_port()
            self._ready_at = time.monotonic()
            self._ready.set()
            environment = [f"PORT={self.port}", "NODE_ENV=production", f"NODE_PATH={MODULES}"]
            user = ["setpriv", "--reuid", "www-data", "--regid", "www-data", "--clear-groups"]
            return ["env", "-C", str(root), *environment, *(user if os.geteuid() == 0 else []), "node", "app.js"]

        def everyone(self):
            return [self.pid]

    return Direct


class Nginx:
    """An nginx with a port for each, connections behind it kept."""

    def __init__(self, bench, forkyard, direct):
        directory = bench.directory("nginx")
        directory.mkdir()
        directory.chmod(0o755)
        self._ports = {server.name: _free_port() for server in (forkyard, direct)}
        temporary = "".join(
            f"{kind}_temp_path {directory}/{kind};\n" for kind in ("client_body", "fastcgi", "proxy", "uwsgi", "scgi")
        )
        path = directory / "nginx.conf"
        path.write_text(f"""
daemon off;
pid {directory}/pid;
events {{}}
http {{
    access_log off;
    {temporary}
    upstream forkyard {{ server unix:{forkyard.socket()}; keepalive 16; }}
    upstream direct {{ server 127.0.0.1:{direct.port}; keepalive 16; }}
    server {{
        listen 127.0.0.1:{self._ports["forkyard"]};
        location / {{ include /etc/nginx/fastcgi_params; fastcgi_keep_conn on; fastcgi_pass forkyard; }}
    }}
    server {{
        listen 127.0.0.1:{self._ports["direct"]};
        location / {{
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_pass http://direct;
        }}
    }}
}}
""")
        self._process = subprocess.Popen(["/usr/sbin/nginx", "-e", directory / "error.log", "-c", path])
        for server in (forkyard, direct):
            retry = ["--retry", "20", "--retry-all-errors", "--retry-delay", "1"]
            subprocess.run(
                ["curl", "-sSf", "-o", "/dev/null", *retry, self.url(server)], check=True, stderr=subprocess.DEVNULL
            )

    def url(self, server):
        return f"http://127.0.0.1:{self._ports[server.name]}/"

    def load(self, server, seconds):
        """Requests a second; p50 and p99 in µs; processor time of all behind nginx for each in µs."""
        everyone = server.everyone()
        before = processes.cpu_seconds(everyone)
        output = subprocess.run(
            ["wrk", "-t1", "--latency", f"-c{CLIENTS}", f"-d{seconds}s", self.url(server)],
            check=True, capture_output=True, text=True,
        ).stdout
        if "Non-2xx" in output or "Socket errors" in output:
            raise RuntimeError(f"{server.name}:\n{output}")
        cpu = processes.cpu_seconds(everyone) - before
        requests = int(re.search(r"(\d+) requests in", output).group(1))
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))
        return rate, _micros(output, "50%"), _micros(output, "99%"), cpu / requests * 1e6

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)
