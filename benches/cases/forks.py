"""Workers that are forked from a loaded application, beside those that load it by themselves: starts and memory."""

import shutil
import statistics
import subprocess
import time

from harness import processes
from harness.needs import NGINX, PHP, PHP_BUILDS, WRAPPED_BUILDS
from harness.servers import PHP_VERSION, Forkyard, Pool
from harness.table import Row, no_more

from . import rack, wsgi

PACKAGES = (*PHP, f"php{PHP_VERSION}-cli", *NGINX, "python3-django", "gunicorn", "ruby-sinatra", "puma")
BUILDS = (*PHP_BUILDS, *WRAPPED_BUILDS)

WORKERS = 16
CLIENTS = 32
# A copy of a worker becomes the preloader after so many of its requests; twice.
REFORK_AFTER = [100, 300, 0]
DJANGO = (
    "import io, page, wsgiref.util; environ = {'wsgi.input': io.BytesIO()};"
    "wsgiref.util.setup_testing_defaults(environ); page.application(environ, lambda status, headers: None)"
)
SINATRA = (
    "require 'rack'; app = Rack::Builder.parse_file('site.ru'); app = app.first if app.is_a?(Array);"
    "Rack::MockRequest.new(app).get('/world')"
)


class Gunicorn(wsgi.Gunicorn):
    """Each worker loads the application."""

    def command(self, workers):
        return [word for word in super().command(workers) if word != "--preload"]


class Puma(rack.Puma):
    """The same."""

    def command(self):
        command = super().command()
        path = self.directory / "puma.rb"
        path.write_text(path.read_text().replace("preload_app!\n", ""))
        return command


def run(bench):
    django = bench.directory("django")
    shutil.copytree(wsgi.SITE, django)
    wsgi.Gunicorn.root = django
    yield _start(bench, "PHP", Pool().application, "hello.php", [f"php{PHP_VERSION}", "hello.php"], bench.scripts)
    for name, application, path, command, root in (
        ("Django", _application("wsgi", django, "page"), "wsgi", [wsgi.PYTHON, "-c", DJANGO], django),
        ("Sinatra", _application("rack", bench.scripts, "site.ru"), "world", ["ruby", "-e", SINATRA], bench.scripts),
    ):
        yield _start(bench, name, application, path, command, root)
    yield from _memory(
        bench, "Django", ("wsgi", django, "page"), "gunicorn", lambda pool: bench.start(Gunicorn, pool), wsgi.Site
    )
    yield from _memory(
        bench, "Sinatra", ("rack", bench.scripts, "site.ru"), "puma",
        lambda pool: Puma(bench.directory("puma"), [pool], bench.scripts / "site.ru"),
        rack.Site,
    )


def _application(runtime, root, entry, refork_after=0):
    return f'{{ runtime = "{runtime}", root = "{root}", entry = "{entry}", refork_after = {refork_after} }}'


def _start(bench, name, application, path, command, root):
    """From the end of one worker to the first answer of the next; beside it a process that begins with nothing."""
    rounds = 5 if bench.quick else 15
    pool = Pool(max_children=1, max_requests=1, application=application)
    with bench.start(Forkyard, pool) as server:
        server.wait_for_workers(1)
        report = bench.load(server, path, clients=1, requests=20 * rounds)
    if report["errors"]:
        raise RuntimeError(f"{name}: {report['errors_by_kind']}")
    warm = report["latency_us"]["p50"] / 1000
    cold = []
    for _ in range(rounds):
        begun = time.monotonic()
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
        cold.append((time.monotonic() - begun) * 1000)
    cold = statistics.median(cold)
    return Row(f"{name}: a worker's start and its first request (beside: a process by itself)", warm, cold, "ms",
               "≤ 1/4", warm <= cold / 4, warm / cold)


def _memory(bench, name, application, rival, start_rival, nginx_of):
    """PSS of all processes after the same requests."""
    plain = Pool(max_children=WORKERS, application=_application(*application))
    refork = Pool(max_children=WORKERS, application=_application(*application, REFORK_AFTER))
    seconds = 4 if bench.quick else 15
    own = _weigh(bench, bench.start(Forkyard, plain), nginx_of, seconds)
    copied = _weigh(bench, bench.start(Forkyard, refork), nginx_of, seconds)
    alone = _weigh(bench, start_rival(plain), nginx_of, seconds)
    work = f"{WORKERS} {name} workers that served: memory"
    yield no_more(f"{work} (beside: {rival}, where each loads the application)", own, alone, "MiB")
    yield no_more(f"{work}, with refork_after (beside: the same)", copied, alone, "MiB")
    yield no_more(f"{work}, with refork_after (beside: forkyard without)", copied, own, "MiB")


def _weigh(bench, server, nginx_of, seconds):
    with server:
        server.wait_for_workers(WORKERS)
        with nginx_of(bench, [server]) as nginx:
            nginx.load(server, CLIENTS, seconds, "--timeout", "30s")
        server.wait_for_workers(WORKERS)
        return processes.pss_mib(server.processes())
