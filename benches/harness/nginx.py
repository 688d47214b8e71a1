"""An nginx in front of servers, and what wrk measures of them through it."""

import re
import socket
import subprocess
import time

from . import processes

TEMPORARY = ("client_body", "fastcgi", "proxy", "uwsgi", "scgi")


class Nginx:
    """An nginx with a port for each server. A case says in a class of its own what differs."""

    # What is fetched.
    path = "/"

    def __init__(self, bench, servers):
        directory = bench.directory("nginx")
        directory.mkdir()
        directory.chmod(0o755)
        self._ports = {server.name: free_port() for server in servers}
        path = directory / "nginx.conf"
        path.write_text(self._configuration(directory, servers))
        command = ["/usr/sbin/nginx", "-e", directory / "error.log", "-c", path]
        self._process = subprocess.Popen(command, start_new_session=True)
        try:
            for server in servers:
                _wait_for(self._ports[server.name])
                begun = time.monotonic()
                page = self._fetch(server)
                self.fetched(server, page, time.monotonic() - begun)
        except BaseException:
            self._stop()
            raise

    def location(self, server):
        """How nginx passes requests on."""
        return f"include /etc/nginx/fastcgi_params; fastcgi_pass unix:{server.socket()};"

    def upstreams(self, servers):
        """What `location` refers to."""
        return ""

    def fetched(self, server, page, seconds):
        """The first page of a server, and how long it took."""

    def url(self, server):
        return f"http://127.0.0.1:{self._ports[server.name]}{self.path}"

    def port(self, server):
        return self._ports[server.name]

    def rate(self, server, clients, seconds):
        """Requests a second; the processor time for each and the latencies, in µs."""
        busy = server.busy()
        before = processes.cpu_seconds(busy)
        output = self.load(server, clients, seconds)
        requests = int(re.search(r"(\d+) requests in", output).group(1))
        cpu = (processes.cpu_seconds(busy) - before) / requests * 1e6
        rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))
        return rate, cpu, _micros(output, "50%"), _micros(output, "99%")

    def load(self, server, clients, seconds, *options):
        """Sends requests; says what wrk writes."""
        command = ["wrk", "-t1", "--latency", f"-c{clients}", f"-d{seconds}s", *options, self.url(server)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        if "Non-2xx" in output or "Socket errors" in output:
            raise RuntimeError(f"{server.name}:\n{output}")
        return output

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stop()

    def _configuration(self, directory, servers):
        temporary = "".join(f"    {kind}_temp_path {directory}/{kind};\n" for kind in TEMPORARY)
        sites = "".join(
            f"    server {{\n        listen 127.0.0.1:{self._ports[server.name]};\n"
            f"        location / {{ {self.location(server)} }}\n    }}\n"
            for server in servers
        )
        return (
            f"daemon off;\npid {directory}/pid;\nworker_rlimit_nofile 8192;\nevents {{ worker_connections 4096; }}\n"
            f"http {{\n    access_log off;\n{temporary}{self.upstreams(servers)}{sites}}}\n"
        )

    def _fetch(self, server):
        # A server may be about to listen.
        retry = ["--retry", "20", "--retry-all-errors", "--retry-delay", "1"]
        fetch = ["curl", "-sSf", *retry, self.url(server)]
        return subprocess.run(fetch, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

    def _stop(self):
        self._process.terminate()
        self._process.wait(10)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(port):
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)


def _micros(output, percentile):
    number, unit = re.search(rf"^\s+{percentile}\s+([\d.]+)(us|ms|s)$", output, re.M).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]
