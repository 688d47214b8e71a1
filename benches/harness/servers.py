"""forkyard and php-fpm, started on the same pools."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import processes
from .needs import PHP_VERSION

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(os.environ.get("FORKYARD_PROGRAMS", ROOT / "target/dist")).resolve()
PHP_FPM = f"/usr/sbin/php-fpm{PHP_VERSION}"
READY = "ready to handle connections"
PATIENCE_SECONDS = 60


@dataclass
class Pool:
    """A pool, for either server."""

    name: str = "www"
    pm: str = "static"
    max_children: int = 8
    start_servers: int = 0
    min_spare_servers: int = 0
    max_spare_servers: int = 0
    max_requests: int = 0
    user: int = 0
    # More settings of forkyard's, and others of those above; values as TOML.
    own: dict = field(default_factory=dict)
    application: str = f'{{ runtime = "php", version = "{PHP_VERSION}" }}'

    def settings(self):
        names = ["max_children", "max_requests"]
        if self.pm == "dynamic":
            names += ["start_servers", "min_spare_servers", "max_spare_servers"]
        return {name: getattr(self, name) for name in names}


class Server:
    """A running master. Its directory holds its configuration and its sockets."""

    name = ""

    def __init__(self, directory, pools):
        self.directory = Path(directory)
        self.directory.mkdir()
        self.directory.chmod(0o755)
        self.pools = pools
        self.log = []
        self._ready = threading.Event()
        command = self.configure()
        begun = time.monotonic()
        # In a session of its own, as a service manager starts it: the kernel shares processors out by sessions.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read_log, daemon=True).start()
        if not self._ready.wait(PATIENCE_SECONDS):
            self.stop()
            raise RuntimeError(f"{self.name} did not start:\n" + "\n".join(self.log))
        self.start_seconds = self._ready_at - begun

    def _read_log(self):
        for line in self._process.stderr:
            if READY in line and not self._ready.is_set():
                self._ready_at = time.monotonic()
                self._ready.set()
            self.log.append(line.rstrip())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def configure(self):
        """Writes the configuration; says the command."""
        raise NotImplementedError

    @property
    def pid(self):
        return self._process.pid

    def socket(self, pool="www"):
        return self.directory / f"{pool}.sock"

    def processes(self):
        return processes.descendants(self.pid)

    def workers(self):
        return [pid for pid in self.processes() if ": pool " in processes.title(pid)]

    def busy(self):
        """Whose processor time is spent on requests."""
        return self.workers()

    def wait_for_workers(self, count):
        end = time.monotonic() + PATIENCE_SECONDS
        while len(self.workers()) < count:
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name}: {len(self.workers())} workers instead of {count}")
            time.sleep(0.02)
        # The last ones have yet to reach their first wait.
        time.sleep(0.2)
        return self.workers()

    def reload(self):
        os.kill(self.pid, signal.SIGUSR2)

    def stop(self):
        if self._process.poll() is not None:
            return
        everyone = self.processes()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        # fcgiwrap leaves its children behind.
        for pid in everyone[1:]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Forkyard(Server):
    name = "forkyard"
    programs = PROGRAMS

    def configure(self):
        text = ""
        for pool in self.pools:
            names = f'user = "{pool.user}"\ngroup = "{pool.user}"\n' if pool.user else 'user = "www-data"\n'
            user = names if os.geteuid() == 0 else ""
            text += f'[pool.{pool.name}]\nlisten = {{ address = "{self.socket(pool.name)}", mode = "0666" }}\n{user}'
            # As php-fpm's.
            text += f'reload = "always"\npm = "{pool.pm}"\n'
            text += "".join(f"{name} = {value}\n" for name, value in (pool.settings() | pool.own).items())
            text += f"application = {pool.application}\n\n"
        path = self.directory / "forkyard.toml"
        path.write_text(text)
        return [self.programs / "forkyard", "run", "-c", path]


class PhpFpm(Server):
    name = "php-fpm"

    def configure(self):
        # Without a time limit php-fpm's reload ends what is being served. forkyard's default has one.
        text = "[global]\nerror_log = /dev/stderr\nprocess_control_timeout = 10s\n"
        for pool in self.pools:
            name = pool.user or "www-data"
            user = f"user = {name}\ngroup = {name}\n" if os.geteuid() == 0 else ""
            text += f"[{pool.name}]\nlisten = {self.socket(pool.name)}\nlisten.mode = 0666\n{user}pm = {pool.pm}\n"
            text += "".join(f"pm.{name} = {value}\n" for name, value in pool.settings().items())
        path = self.directory / "php-fpm.conf"
        path.write_text(text)
        return [PHP_FPM, "-F", "-y", path]


class Fcgiwrap(Server):
    """Its workers wait in accept(2) on a socket that it listens on as soon as it runs; it logs nothing."""

    name = "fcgiwrap"

    def configure(self):
        pool = self.pools[0]
        self._ready_at = time.monotonic()
        self._ready.set()
        return ["fcgiwrap", "-c", str(pool.max_children), "-s", f"unix:{self.socket()}"]

    def workers(self):
        return self.processes()[1:]


SERVERS = [Forkyard, PhpFpm]
