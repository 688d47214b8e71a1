"""A server of FastCGI requests with the tests at a path that is the same for all servers, and a /tmp of its own."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# As text: a checkout below /tmp is not seen where /tmp is another.
INSIDE = (HERE / "inside.py").read_text()
# Of the suites with a worker script.
WORKER_SCRIPTS = ("handler.php", "ordinary.php", "worker.php", "loop-probe.php", "facts.php")
# Longer than a server takes to start.
PATIENCE_S = 30
# A request that takes longer is ended.
LIMIT_S = 20
# As run-tests.php sets them, so that the tests do what they are for; errors are logged as well, to be compared.
PHP_INI = """
display_errors = 1
display_startup_errors = 1
error_reporting = 32767
html_errors = 0
log_errors = 1
output_handler =
precision = 14
serialize_precision = -1
memory_limit = 128M
zend.assertions = 1
zend.exception_ignore_args = 0
zend.exception_string_param_max_len = 15
short_open_tag = 1
auto_prepend_file =
auto_append_file =
ignore_repeated_errors = 0
session.auto_start = 0
opcache.enable = 1
opcache.file_update_protection = 0
opcache.revalidate_freq = 0
opcache.memory_consumption = 256
opcache.max_accelerated_files = 65000
"""


# A worker of a loop never ends by itself; one that is put back does, after so many requests as if nothing were set.
MODES = {
    "loop": 'worker_mode = "loop"\nloop_requests = 0\nloop_memory = 0\n',
    "snapshot": 'worker_mode = "snapshot"\nisolation = "rewind"\n',
}


class Home:
    """Where a server has its files: the tests, /tmp, a socket. All servers see their tests at `site`, and themselves and
    what belongs to them in `programs`, by the same names."""

    def __init__(self, path, source):
        self.path, self.site, self.socket = path, path.parent / "site", path / "socket"
        self.programs = path.parent / "programs"
        for directory in (self.site, self.programs):
            directory.mkdir(exist_ok=True)
        for name in ("", "tmp"):
            (path / name).mkdir()
        (path / "tmp").chmod(0o1777)
        subprocess.run(["cp", "-a", str(source), str(path / "tree")], check=True)
        for script in ("probe.php", *WORKER_SCRIPTS):
            shutil.copy(HERE / script, path / "tree" / script)
        subprocess.run(["chown", "-R", "www-data:", str(path / "tree")], check=True)
        (path / "tree/php.ini").write_text(PHP_INI)


class Server:
    """A running daemon."""

    def __init__(self, program, home, is_sequence, version):
        self.home, self.version = home, version
        home.socket.unlink(missing_ok=True)
        (home.path / "fpm.conf").write_text(self.configuration(is_sequence))
        name = self.name()
        mounts = [(home.path / "tree", home.site), (program, home.programs / name)]
        for companion in ("forkyard-php", "forkyard"):
            if program.with_name(companion).exists():
                mounts.append((program.with_name(companion), home.programs / companion))
        # The last, because the program may lie below /tmp.
        mounts.append((home.path / "tmp", Path("/tmp")))
        for _, target in mounts:
            if not target.exists():
                target.touch()
        script = ["set -e", "mount --make-rprivate /"]
        script += [shlex.join(["mount", "--bind", str(source), str(target)]) for source, target in mounts]
        script += ["cd /", 'exec "$@"']
        apart = ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child"]
        daemon = [home.programs / name, *self.arguments()]
        command = [*apart, "sh", "-c", "; ".join(script), "sh", sys.executable, "-B", "-c", INSIDE, "root", *daemon]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        self.output = open(home.path / "output", "wb")
        self.process = subprocess.Popen(
            [str(part) for part in command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
        )
        self.wait(program.name)

    def name(self):
        """What the program is called. Scripts run what PHP_BINARY names, so it has the same name everywhere."""
        return f"php-fpm{self.version}"

    def arguments(self):
        """Of the program."""
        return ["-F", "-c", self.home.site / "php.ini", "-y", self.home.path / "fpm.conf"]

    def configuration(self, is_sequence):
        workers, requests = (1, 0) if is_sequence else (3, 1)
        return f"""[global]
error_log = {self.home.path}/log
daemonize = no
[www]
user = www-data
group = www-data
listen = {self.home.socket}
listen.mode = 0666
pm = static
pm.max_children = {workers}
pm.max_requests = {requests}
request_terminate_timeout = {LIMIT_S}
catch_workers_output = yes
security.limit_extensions =
env[PATH] = /usr/bin:/bin
"""

    def wait(self, name):
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(self.home.socket))
                    return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    said = (self.home.path / "output").read_text(errors="replace")
                    raise RuntimeError(f"{name} does not start: {said[-1000:] or error}") from error
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.output.close()


class WorkerScriptServer(Server):
    """forkyard, whose worker script includes the test that a request names."""

    def __init__(self, program, home, mode, version):
        self.mode = mode
        super().__init__(program, home, True, version)

    def name(self):
        return "forkyard"

    def arguments(self):
        return ["run", "-F", "-c", self.home.path / "fpm.conf"]

    def configuration(self, is_sequence):
        return f"""[global]
error_log = "{self.home.path}/log"
[pool.www]
listen = {{ address = "{self.home.socket}", mode = "0666" }}
user = "www-data"
group = "www-data"
pm = "static"
max_children = 1
request_terminate_timeout = "{LIMIT_S}s"
catch_workers_output = true
env = {{ PATH = "/usr/bin:/bin" }}
[pool.www.application]
runtime = "php"
version = "{self.version}"
php_ini = "{self.home.site}/php.ini"
worker = "{self.home.site}/worker.php"
{MODES[self.mode]}"""
