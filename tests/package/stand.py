"""A daemon of a package with a pool of CGI, for checks that need nothing else."""
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time


class Stand:
    """The directory of a daemon, which `start` runs."""

    def __init__(self, program, children=1):
        self.kept = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.kept.name)
        self.program = program
        self.dir.chmod(0o755)
        page = self.dir / "page"
        page.write_text("#!/bin/sh\n[ -z \"$QUERY_STRING\" ] || sleep 20\nprintf 'Content-Type: text/plain\\r\\n\\r\\nserved'\n")
        page.chmod(0o755)
        self.config = self.dir / "forkyard.toml"
        self.config.write_text(
            f'[global]\ncontrol = "{self.dir}/control.sock"\n[pool.app]\nlisten = {{ address = "{self.dir}/app.sock", mode = "0666" }}\n'
            f'user = "nobody"\npm = "static"\nmax_children = {children}\n'
            f'application = {{ runtime = "cgi", root = "{self.dir}", script = "{page}" }}\n')

    def start(self, **more):
        """Runs the daemon; the caller waits for it."""
        self.daemon = subprocess.Popen([self.program, "run", "-c", self.config], **more)

    def ask(self, query="", wait=True):
        """A request; without `wait` the connection that it is on."""
        params = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "/", "QUERY_STRING": query}
        body = b"".join(struct.pack("BB", len(k), len(v)) + k.encode() + v.encode() for k, v in params.items())
        record = lambda kind, content: struct.pack("!BBHHBx", 1, kind, 1, len(content), 0) + content
        client = socket.socket(socket.AF_UNIX)
        client.connect(str(self.dir / "app.sock"))
        client.sendall(record(1, struct.pack("!HB5x", 1, 0)) + record(4, body) + record(4, b"") + record(5, b""))
        if not wait:
            return client
        answer = b""
        while part := client.recv(65536):
            answer += part
        return answer

    def forkyard(self, *arguments, config=None):
        """A command: its exit code and how long it took."""
        begun = time.monotonic()
        done = subprocess.run([self.program, *arguments, "-c", config or self.config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return done.returncode, time.monotonic() - begun

    def ready(self):
        """Waits until the pool serves."""
        for _ in range(600):
            if self.forkyard("health", "--ready")[0] == 0:
                return
            time.sleep(0.1)
        raise SystemExit("the daemon is not ready")
