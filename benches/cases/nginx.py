"""The smallest script through nginx, as a browser would fetch it."""

import re
import socket
import subprocess

from harness import processes
from harness.table import at_least

CLIENTS = 8


def run(bench):
    rounds, seconds = (5, 1) if bench.quick else (9, 3)
    with bench.both() as servers, Nginx(bench, servers) as nginx:
        for server in servers:
            nginx.rate(server, 1)
        comparison = bench.compare(servers, lambda server: nginx.rate(server, seconds), rounds)
        yield at_least(comparison, 1.2, work=f"hello through nginx, {CLIENTS} clients")


class Nginx:
    """An nginx with a port for each server."""

    def __init__(self, bench, servers):
        self._directory = bench.directory("nginx")
        self._directory.mkdir()
        self._directory.chmod(0o755)
        self._ports = {server.name: _free_port() for server in servers}
        sites = "".join(_site(self._ports[server.name], server.socket(), bench.scripts) for server in servers)
        temporary = "".join(
            f"    {kind}_temp_path {self._directory}/{kind};\n"
            for kind in ("client_body", "fastcgi", "proxy", "uwsgi", "scgi")
        )
        path = self._directory / "nginx.conf"
        path.write_text(
            f"daemon off;\npid {self._directory}/pid;\nevents {{}}\n"
            f"http {{\n    access_log off;\n{temporary}{sites}}}\n"
        )
        log = self._directory / "error.log"
        self._process = subprocess.Popen(["/usr/sbin/nginx", "-e", log, "-c", path])
        for port in self._ports.values():
            fetch = f"http://127.0.0.1:{port}/hello.php"
            retry = ["--retry", "20", "--retry-connrefused", "--retry-delay", "1"]
            subprocess.run(["curl", "-sSf", "-o", "/dev/null", *retry, fetch], check=True, stderr=subprocess.DEVNULL)

    def rate(self, server, seconds):
        """Requests a second, and processor time of the workers for each in µs."""
        workers = server.workers()
        before = processes.cpu_seconds(workers)
        url = f"http://127.0.0.1:{self._ports[server.name]}/hello.php"
        output = subprocess.run(
            ["wrk", "-t1", f"-c{CLIENTS}", f"-d{seconds}s", url], check=True, capture_output=True, text=True
        ).stdout
        if "Non-2xx" in output or "Socket errors" in output:
            raise RuntimeError(f"{server.name}:\n{output}")
        cpu = processes.cpu_seconds(workers) - before
        requests = int(re.search(r"(\d+) requests in", output).group(1))
        return float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1)), cpu / requests * 1e6

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(10)


def _site(port, upstream, root):
    return f"""    server {{
        listen 127.0.0.1:{port};
        root {root};
        location / {{
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
            fastcgi_pass unix:{upstream};
        }}
    }}
"""


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
