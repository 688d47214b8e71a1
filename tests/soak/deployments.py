#!/usr/bin/env python3
"""A great many deployments while visitors fetch pages and their assets through nginx.

Four sites are deployed in turn: PHP by a zygote with a static, a dynamic and an ondemand pool, and WSGI. Every file of a release
has the release's number, and every asset has its hash in its name. Wanted: each request has an answer; each page is whole, of one
release, and that one is in service or deployed; and each page finds its assets, also after one deployment. An interrupt ends it after
the deployment that is under way, with the report. Run by scripts/soak deployments; tests/it/releases/soak.rs runs a small sample.
"""

import argparse
import collections
import contextlib
import functools
import hashlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

PATIENCE_SECONDS = 120
# A visitor's.
TIMEOUT_SECONDS = 30
# Name and length of each asset.
ASSETS = (("style.css", 300), ("app.js", 2_000), ("font.woff", 9_000), ("logo.svg", 40_000), ("photo.webp", 130_000))
PARTS = ("index", "first", "second", "third")
# The parts of visitors' pages that are slow, or fetched with POST.
SLOW_SHARE, POST_SHARE, PAUSE_MICROSECONDS = 0.05, 0.2, 25_000
# A site's deployments follow each other this often before the next site's.
BLOCK = 10
GRADUAL_ROUND, WSGI_ROUND = 4, 9
PROBLEMS = ("lost", "mixed", "stale", "missing", "wrong")
PART, LISTED = re.compile(r"^part (\w+) (\d+)$", re.M), re.compile(r"^asset (\S+)$", re.M)
REPORT = re.compile(r"\(error (\w+)\)")
SIGNALLED = re.compile(r"exited on signal|was sent")
# What nginx says of files that it looks for in another release next.
EXPECTED = re.compile(r"No such file or directory")

PHP = {
    "public/index.php": r"""<?php
spl_autoload_register(function ($class) { require __DIR__ . "/../classes/$class.php"; });
header('Content-Type: text/plain');
$pause = fn () => usleep((int) ($_GET['pause'] ?? 0));
echo "part index %NUMBER%\n";
$pause();
$assets = require __DIR__ . '/../parts/first.php';
$pause();
require 'second.php';
$pause();
echo 'part third ', Third::RELEASE, "\n";
foreach ($assets as $asset) {
    echo "asset $asset\n";
}
echo "end\n";
""",
    "parts/first.php": '<?php echo "part first %NUMBER%\\n"; return %ASSETS%;\n',
    "lib/second.php": '<?php echo "part second %NUMBER%\\n";\n',
    "classes/Third.php": "<?php class Third { const RELEASE = '%NUMBER%'; }\n",
}
WSGI = {
    "wsgi.py": r"""import first, time, urllib.parse
def application(environ, start_response):
    pause = int(urllib.parse.parse_qs(environ['QUERY_STRING']).get('pause', [0])[0]) / 1e6
    time.sleep(pause)
    import second
    time.sleep(pause)
    with open('third.txt') as file:
        lines = ['part index %NUMBER%', first.PART, second.PART, file.read()]
    lines += [f'asset {asset}' for asset in first.ASSETS]
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return ['\n'.join([*lines, 'end', '']).encode()]
""",
    "first.py": "PART = 'part first %NUMBER%'\nASSETS = %ASSETS%\n",
    "second.py": "PART = 'part second %NUMBER%'\n",
    "third.txt": "part third %NUMBER%",
}
MANAGERS = {
    "static": 'pm = "static"\nmax_children = 4\n',
    "dynamic": 'pm = "dynamic"\nmax_children = 6\nmin_spare_servers = 1\nmax_spare_servers = 3\n',
    "ondemand": 'pm = "ondemand"\nmax_children = 6\nprocess_idle_timeout = "1s"\n',
}
POOL = """[pool.{name}]
listen = {{ address = "{directory}/{name}.sock", mode = "0666" }}
{user}{manager}release = "{link}"
gradual = [{steps}]
step_time = "1s"
[pool.{name}.application]
{application}"""
PHP_APPLICATION = """runtime = "php"
version = "{php}"
script_root = "{link}/public"
php_value.include_path = "{link}/lib"
php_admin_value."opcache.validate_timestamps" = 0
"""
WSGI_APPLICATION = 'runtime = "wsgi"\nroot = "{link}"\n'
TEMPORARY = ("client_body", "fastcgi", "proxy", "uwsgi", "scgi")


@functools.lru_cache(maxsize=200)
def asset(number, name, length):
    """The bytes of a release's asset."""
    line = f"release {number} {name}\n".encode()
    return (line * (length // len(line) + 1))[:length]


@functools.lru_cache(maxsize=200)
def assets(number):
    """The assets of a release, by their paths."""
    found = {}
    for name, length in ASSETS:
        content = asset(number, name, length)
        stem, end = name.split(".")
        found[f"/assets/{stem}-{hashlib.sha256(content).hexdigest()[:12]}.{end}"] = content
    return found


# The numbers of the releases that are in service, were in service before, and are deployed, if any is.
Now = collections.namedtuple("Now", "serving before deployed")


class Site:
    def __init__(self, directory, name):
        self.name, self.is_wsgi = name, name == "wsgi"
        self.root = directory / name
        self.link = self.root / "current"
        self.now = Now(1, None, None)
        self.ports = {}
        self.write(1)
        self.link.symlink_to("releases/1")

    def write(self, number):
        """Makes the directory of a release."""
        place = self.root / "releases" / str(number)
        for name, text in (WSGI if self.is_wsgi else PHP).items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("%NUMBER%", str(number)).replace("%ASSETS%", json.dumps(list(assets(number)))))
        for path, content in assets(number).items():
            path = place / f"public{path}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return place

    def pages(self):
        return ("/", "/page/7") if self.is_wsgi else ("/", "/index.php", "/page/7")

    def pool(self, directory, given):
        application = WSGI_APPLICATION if self.is_wsgi else PHP_APPLICATION
        return POOL.format(
            name=self.name, directory=directory, link=self.link, manager=MANAGERS["static" if self.is_wsgi else self.name],
            user='user = "www-data"\n' if os.geteuid() == 0 else "", application=application.format(link=self.link, php=given.php),
            steps=given.steps,
        )  # fmt: skip

    def remove_old(self):
        """Deletes the releases that no link names, as docs/howto/deploy.md permits."""
        named = {os.path.basename(os.readlink(link)) for link in self.root.glob("current*")}
        for place in (self.root / "releases").iterdir():
            if place.name not in named:
                shutil.rmtree(place)

    def links(self):
        return {link.name: os.path.basename(os.readlink(link)) for link in self.root.glob("current*")}

    def may_serve(self, before, after):
        """The releases that a page may have, by the states before and after its fetch."""
        return {number for now in (before, after) for number in (now.serving, now.deployed) if number}

    def is_kept(self, number):
        """Whether the links still name a release, so that its pages find their assets."""
        now = self.now
        return number in ((now.serving, now.deployed) if now.deployed else (now.serving, now.before))


class Tally:
    """What all visitors saw."""

    def __init__(self):
        self.lock, self.counts, self.samples = threading.Lock(), collections.Counter(), []
        self.begun = time.monotonic()

    def add(self, name):
        with self.lock:
            self.counts[name] += 1

    def problem(self, name, text):
        self.add(name)
        with self.lock:
            if self.counts[name] <= 20:
                self.samples.append(f"{time.monotonic() - self.begun:.3f} s, {name}: {text}")
                print(self.samples[-1], flush=True)


class Visitor:
    """Fetches pages, and the assets that each lists."""

    def __init__(self, tally, keeps_own, kept_by_nginx):
        self.tally, self.keeps, self.port_kind = tally, keeps_own, kept_by_nginx
        self.connections = {}

    def get(self, site, path, method="GET"):
        """Returns the status and the body; nothing if they were lost."""
        port = site.ports[self.port_kind]
        self.tally.add("requests")
        begun = time.monotonic()
        connection = self.connections.get(port) if self.keeps else None
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, path, b"x=1" if method == "POST" else None, {} if self.keeps else {"Connection": "close"})
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
            if self.keeps:
                self.connections[port] = connection
            else:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            status, body = 0, f"{type(error).__name__}: {error} after {time.monotonic() - begun:.3f} s".encode()
            connection.close()
            self.connections.pop(port, None)
        if status == 0 or status >= 500:
            self.tally.problem("lost", f"{self.described(site, path)} {method}: {status} {body[:300]!r}")
            return None
        return status, body

    def described(self, site, path):
        kinds = ("kept" if self.keeps else "new", "kept" if self.port_kind else "new")
        return f"{site.name} {site.now} {path} ({kinds[0]} connection, {kinds[1]} one of nginx)"

    def page(self, site):
        """Fetches a page; returns its release and the paths of its assets."""
        path = random.choice(site.pages())
        if random.random() < SLOW_SHARE:
            path += f"?pause={PAUSE_MICROSECONDS}"
        before = site.now
        answer = self.get(site, path, "POST" if random.random() < POST_SHARE else "GET")
        after = site.now
        if answer is None:
            return None
        self.tally.add("pages")
        status, body = answer
        text = body.decode(errors="replace")
        parts, paths = PART.findall(text), LISTED.findall(text)
        what = f"{self.described(site, path)}: {status} {body[:300]!r}"
        if status != 200 or not text.endswith("\nend\n") or tuple(name for name, _ in parts) != PARTS or len(paths) != len(ASSETS):
            self.tally.problem("lost", what)
            return None
        number = int(parts[0][1])
        if any(int(other) != number for _, other in parts) or set(paths) != set(assets(number)):
            self.tally.problem("mixed", what)
            return None
        if number not in site.may_serve(before, after):
            self.tally.problem("stale", f"{what}; in service were {before}, {after}")
        return number, paths

    def fetch_assets(self, site, page):
        number, paths = page
        for path in paths:
            answer = self.get(site, path)
            if answer is None:
                continue
            status, body = answer
            self.tally.add("assets")
            if status == 200 and body == assets(number)[path]:
                continue
            if not site.is_kept(number):
                self.tally.add("outlived")
                continue
            is_missing = status != 200 or body.startswith(b"part ")
            problem = "missing" if is_missing else "wrong"
            self.tally.problem(problem, f"{self.described(site, path)} of {number}: {status} {body[:100]!r}; {site.links()}")


class Course:
    """The deployments, and what visitors know of them."""

    def __init__(self, keepers):
        self.active, self.is_over = None, threading.Event()
        # The deployments and the visitors that keep a page open meet here.
        self.meeting = threading.Barrier(keepers + 1, timeout=PATIENCE_SECONDS)


def visit(visitor, sites, course):
    while not course.is_over.is_set():
        site = random.choice(sites) if random.random() < 0.2 else course.active
        if page := visitor.page(site):
            visitor.fetch_assets(site, page)


def keep_open(visitor, course):
    """Keeps a page open over each deployment."""
    with contextlib.suppress(threading.BrokenBarrierError):
        while True:
            course.meeting.wait()
            if course.is_over.is_set():
                return
            site = course.active
            page = visitor.page(site)
            course.meeting.wait()
            course.meeting.wait()
            if page:
                visitor.fetch_assets(site, page)
                visitor.tally.add("pages kept open")
            course.meeting.wait()


class Deployments:
    def __init__(self, given, directory, sites, course):
        self.given, self.directory, self.sites, self.course = given, directory, sites, course
        self.is_ended = threading.Event()
        self.times = {"at once": [], "gradual": []}
        self.outcomes, self.failures, self.numbers = collections.Counter(), [], dict.fromkeys(sites, 1)

    def site(self, turn):
        php = self.sites[:-1]
        return self.sites[-1] if turn % BLOCK == WSGI_ROUND else php[turn // BLOCK % len(php)]

    def run(self, progress):
        for turn in range(self.given.count):
            if self.is_ended.is_set():
                return
            site = self.site(turn)
            # One of ten, and the last of WSGI in ten of its.
            is_gradual = turn % BLOCK == GRADUAL_ROUND or turn % (10 * BLOCK) == 10 * BLOCK - 1
            self.course.active = site
            self.course.meeting.wait()
            self.course.meeting.wait()
            self.deploy(site, is_gradual)
            self.course.meeting.wait()
            self.course.meeting.wait()
            progress(turn + 1)

    def deploy(self, site, is_gradual):
        self.numbers[site] += 1
        number, before = self.numbers[site], site.now
        place = site.write(number)
        site.now = before._replace(deployed=number)
        how = "--gradual" if is_gradual else "--at-once"
        begun = time.monotonic()
        code, said = self.command("deploy", site.name, str(place), how, "--json")
        took = time.monotonic() - begun
        outcome = json.loads(said)["outcome"] if said.startswith("{") else f"exit code {code}"
        self.outcomes[outcome] += 1
        if code != 0:
            site.now = before
            self.failures.append(f"{site.name} {number} {how}: {said}")
            for report in REPORT.findall(said):
                self.failures.append(self.command("error", report)[1])
            print(self.failures[-1], flush=True)
            return
        site.now = Now(number, before.serving, None)
        self.times["gradual" if is_gradual else "at once"].append(took)
        links = site.links()
        if (links.get("current"), links.get("current.last")) != (str(number), str(before.serving)):
            self.failures.append(f"{site.name} {number}: the links are {links}")
        site.remove_old()

    def command(self, *words):
        command = [self.given.program, *words, "--socket", f"{self.directory}/control.sock"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        return done.returncode, done.stdout or done.stderr


def resources(pid):
    """What a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {
        "resident_kib": int(re.search(r"VmRSS:\s+(\d+)", status).group(1)),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "children": len(children),
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, what, log):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"{what}:\n{log.read_text(errors='replace')[-5000:]}")
        time.sleep(0.01)


def listens(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def nginx_configuration(given, directory, sites):
    """The sites that forkyard init writes, each on a port with kept connections to the pool and on one without."""
    text = ""
    for site in sites:
        written = directory / f"{site.name}.nginx"
        kind = "python" if site.is_wsgi else "php"
        command = [given.program, "init", kind, "--name", site.name, "--root", site.link, "--server-name", "localhost",
                   "--output", directory / f"{site.name}.pool", "--nginx", written]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        own = written.read_text().replace("include fastcgi_params", "include /etc/nginx/fastcgi_params")
        own = re.sub(r"\n *listen \[::\][^\n]*", "", own)
        passed = f"fastcgi_pass unix:/run/forkyard-{site.name}.sock;"
        if passed not in own:
            sys.exit(f"{passed} is not in the site:\n{own}")
        path = f"unix:{directory}/{site.name}.sock"
        text += f"upstream {site.name} {{ server {path}; keepalive 8; }}\n"
        ways = {False: f"fastcgi_pass {path};", True: f"fastcgi_pass {site.name}; fastcgi_keep_conn on;"}
        for is_kept, way in ways.items():
            site.ports[is_kept] = free_port()
            text += re.sub(r"listen 80[^;]*;", f"listen 127.0.0.1:{site.ports[is_kept]};", own).replace(passed, way)
    temporary = "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in TEMPORARY)
    user = "user www-data;\n" if os.geteuid() == 0 else ""
    return (
        f"{user}daemon off;\nworker_processes 2;\npid {directory}/nginx.pid;\nerror_log {directory}/nginx.log;\n"
        f"events {{ worker_connections 1024; }}\nhttp {{\naccess_log off;\n"
        # A visitor that keeps a connection comes to some sites seldom.
        f"keepalive_timeout 1h;\n{temporary}{text}}}\n"
    )


@contextlib.contextmanager
def running(command, output):
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def soak(given, directory):
    directory.chmod(0o755)
    sites = [Site(directory, name) for name in (*MANAGERS, "wsgi")]
    pools = "".join(site.pool(directory, given) for site in sites)
    (directory / "forkyard.toml").write_text(f'[global]\ncontrol = "{directory}/control.sock"\n{pools}')
    (directory / "nginx.conf").write_text(nginx_configuration(given, directory, sites))
    log, nginx_log = directory / "log", directory / "nginx.log"
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("wb"))
        daemon = stack.enter_context(running([given.program, "run", "-c", directory / "forkyard.toml"], output))
        is_ready = lambda: daemon.poll() is not None or "ready to handle connections" in log.read_text(errors="replace")  # noqa: E731
        wait_for(is_ready, "the daemon does not start", log)
        nginx = ["/usr/sbin/nginx", "-e", nginx_log, "-c", directory / "nginx.conf"]
        if given.stretch:
            calls = "newfstatat,openat"
            delay = ["-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter={given.stretch}"]
            # -D: nginx is the child.
            nginx = ["strace", "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", *delay, *nginx]
        stack.enter_context(running(nginx, output))
        wait_for(lambda: all(listens(port) for site in sites for port in site.ports.values()), "nginx does not start", nginx_log)
        report = load(given, directory, daemon, sites)
    said = log.read_text(errors="replace").splitlines()
    errors = [line for line in nginx_log.read_text(errors="replace").splitlines() if not EXPECTED.search(line)]
    report["signalled"] = [line for line in said if SIGNALLED.search(line)][:50]
    report["nginx_errors"], report["nginx_error_count"] = errors[:20], len(errors)
    if given.log:
        shutil.copy(log, given.log)
    return report


def load(given, directory, daemon, sites):
    kinds = [(keeps, by_nginx) for keeps in (False, True) for by_nginx in (False, True)]
    tally, course = Tally(), Course(keepers=2)
    course.active = sites[0]
    visitors = [Visitor(tally, *kinds[number % len(kinds)]) for number in range(given.visitors)]
    threads = [threading.Thread(target=visit, args=(visitor, sites, course), daemon=True) for visitor in visitors]
    keepers = [Visitor(tally, *kind) for kind in (kinds[0], kinds[-1])]
    threads += [threading.Thread(target=keep_open, args=(keeper, course), daemon=True) for keeper in keepers]
    for thread in threads:
        thread.start()
    deployments = Deployments(given, directory, sites, course)
    seen = {}

    def progress(done):
        # A tenth of them warms everything up.
        if done == max(given.count // 10, 1):
            seen["first"] = resources(daemon.pid)
        if done % given.every == 0:
            print(f"{done} deployments, {time.monotonic() - tally.begun:.0f} s, {shown(tally.counts)}", flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: deployments.is_ended.set())
    deployments.run(progress)
    seen["last"] = resources(daemon.pid)
    course.is_over.set()
    course.meeting.wait()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - tally.begun
    _, releases = deployments.command("releases", "--json")
    return {
        "deployments": sum(deployments.outcomes.values()), "outcomes": deployments.outcomes, "failures": deployments.failures, "seconds": round(seconds, 1),
        "requests_per_second": round(tally.counts["requests"] / seconds, 1),
        "counts": {name: tally.counts[name] for name in ("requests", "pages", "assets", "pages kept open", "outlived", *PROBLEMS)},
        "times": {name: summary(times) for name, times in deployments.times.items()},
        "master": seen, "outside": sum(pool["outside"] for pool in json.loads(releases)), "samples": tally.samples,
    }  # fmt: skip


def shown(counts):
    return ", ".join(f"{counts[name]} {name}" for name in ("requests", *PROBLEMS))


def summary(times):
    if not times:
        return {"count": 0}
    return {"count": len(times), "median": round(statistics.median(times), 3), "worst": round(max(times), 3)}


def tell(report):
    counts = report["counts"]
    print(f"{report['deployments']} deployments in {report['seconds']} s: {dict(report['outcomes'])}")
    print(f"{', '.join(f'{count} {name}' for name, count in counts.items())}; {report['requests_per_second']} requests a second")
    for name, times in report["times"].items():
        if times["count"]:
            print(f"{name}: {times['count']}, median {times['median']} s, worst {times['worst']} s")
    print(f"master: {report['master']}; {report['outside']} requests had a script in no release")
    print(f"{len(report['signalled'])} lines of ends by a signal, {report['nginx_error_count']} lines of nginx")
    for line in (*report["failures"], *report["signalled"], *report["nginx_errors"]):
        print(f"  {line}")


def is_good(report):
    outcomes = report["outcomes"]
    taken_back = sum(outcomes.values()) - outcomes["deployed"]
    return not any(report["counts"][name] for name in PROBLEMS) and taken_back <= 1 and len(report["failures"]) == taken_back


def main():
    parser = argparse.ArgumentParser(prog="scripts/soak deployments", description=__doc__.split("\n", 1)[0])
    parser.add_argument("count", nargs="?", type=int, default=1_000, help="deployments")
    parser.add_argument("--visitors", type=int, default=8)
    parser.add_argument("--every", type=int, default=50, help="deployments between two lines of the progress")
    parser.add_argument("--steps", default="1, 10, 50", help="a gradual deployment's, in percent")
    parser.add_argument("--stretch", type=int, help="microseconds that nginx waits before each look at a file: a race is met more often")
    parser.add_argument("--json", type=Path, help="a file for the report")
    parser.add_argument("--log", type=Path, help="a file for the daemon's log")
    parser.add_argument("--program", required=True)
    parser.add_argument("--php", required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = soak(given, Path(directory))
    tell(report)
    if given.json:
        given.json.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(0 if is_good(report) else 1)


main()
