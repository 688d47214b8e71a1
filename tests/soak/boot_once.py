#!/usr/bin/env python3
"""A worker that is put back after each request, for a long time: worker_mode = "snapshot" with requests that leave something everywhere.

Wanted: all memory of the worker is what it was before the first request after 1, 10, 100 ... of them, but for words that are named,
and nowhere in it is a token of a user; its memory and the preloader's do not grow; no answer has anything of another user's, and
no random value comes twice, neither after a reload (but for those of mt_rand(), whose seed PHP draws out of 2^32); one process serves all requests of a generation; what APCu has, in shared
memory, stays. Run by scripts/soak boot-once; tests/it/php_worker/soak.rs runs a small sample.
"""

import argparse
import base64
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "conformance"))

import fastcgi  # noqa: E402

POOL = """[global]
control = "{directory}/control.sock"
[pool.snap]
listen = {{ address = "{directory}/snap.sock", mode = "0666" }}
{user}pm = "static"
max_children = 1
max_requests = 1000000000
[pool.snap.application]
runtime = "php"
version = "{php}"
php_ini = "{directory}/php.ini"
worker = "{directory}/boot_once.php"
worker_mode = "snapshot"
isolation = "rewind"
php_admin_value = {{ "ffi.enable" = "true", memory_limit = "128M", "session.save_path" = "{directory}/sessions", \
"opcache.jit" = "tracing", "opcache.jit_buffer_size" = "16M" }}
"""
# What a request does, and how often of a hundred.
KINDS = [("", 50), ("mixture", 30), ("session", 10), ("exit", 4), ("exception", 4), ("fatal", 2)]
USERS = ("alice", "carol")
TOKEN = re.compile(rb"(?:alice|carol)\d+token")
# What only a user's requests have: a name alone may come by chance.
NAMED = re.compile(rb"(alice|carol)(?:\d|session)")
# Memory that changes while a worker waits: how it waits and what it counts, and what is below the frames of the snapshot.
APART = ("[stack]", "/memfd:forkyard worker")
RSEQ_BYTES = 32
WAITS = ("232 ", "281 ", "441 ")
PATIENCE_SECONDS = 120
PAGE = 4096


def until(what, ask):
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := ask()):
        if time.monotonic() > end:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.01)
    return found


def is_listening(path):
    """A socket exists before it accepts connections."""
    accepting = "00010000"
    fields = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
    return any(f[3] == accepting and f[7:] == [path] for f in fields)


class Worker:
    """The pool's only worker, seen from outside."""

    def __init__(self, program, directory):
        self.program, self.directory = program, directory
        self.client = fastcgi.Client(f"{directory}/snap.sock", False, PATIENCE_SECONDS)

    def ask(self, query, body=b"", **more):
        script = f"{self.directory}/boot_once.php"
        parameters = {
            "SCRIPT_FILENAME": script, "SCRIPT_NAME": "/boot_once.php", "REQUEST_URI": f"/?{query}", "QUERY_STRING": query,
            "REQUEST_METHOD": "POST" if body else "GET", "CONTENT_LENGTH": str(len(body)), "SERVER_PROTOCOL": "HTTP/1.1",
        }
        answer = self.client.ask(parameters | more, body)
        if answer.how not in ("end", "eof") or answer.end is None:
            sys.exit(f"no answer to {query}: {answer.how}")
        return answer

    def say(self, query):
        return body_of(self.ask(query))

    def status(self):
        command = [self.program, "status", "snap", "--json", "--socket", f"{self.directory}/control.sock"]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["pools"][0]

    def when_put_back(self, pid):
        """It is idle when it was put back, and not before; then it waits."""
        def is_idle():
            workers = [worker for generation in self.status()["generations"] for worker in generation["workers"]]
            return any(worker["pid"] == pid and worker["stage"] == "Idle" for worker in workers)

        until("an idle worker", is_idle)
        until("a worker that waits", lambda: Path(f"/proc/{pid}/syscall").read_text().startswith(WAITS))


def body_of(answer):
    return answer.out.split(b"\r\n\r\n", 1)[-1]


def memory(pid):
    """What only the process has and can write to."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", 0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            words = line.split(None, 5)
            if words[1] == "rw-p":
                start, end = (int(number, 16) for number in words[0].split("-"))
                file.seek(start)
                pieces = bytearray()
                while len(pieces) < end - start:
                    pieces += file.read(end - start - len(pieces))
                # A program that is replaced meanwhile is the same.
                name = words[5].removesuffix(" (deleted)") if len(words) > 5 else ""
                # The kernel may list one mapping as two, where a part of it was made anew.
                if found and found[-1][1] == name and found[-1][0] + len(found[-1][2]) == start:
                    found[-1] = (found[-1][0], name, found[-1][2] + bytes(pieces))
                else:
                    found.append((start, name, bytes(pieces)))
    return found


def unexplained(before, now, errno, rseq):
    """Words that differ, and that nothing explains. `errno` is that of the last call, and the kernel writes where the thread runs."""
    # What may differ may grow as well, as a stack does.
    before, now = ([one for one in memory if one[1] not in APART] for memory in (before, now))
    mappings = [{(hex(start), name, len(data)) for start, name, data in memory} for memory in (before, now)]
    if mappings[0] != mappings[1]:
        return [f"mappings, {gone}: {sorted(one - other)}" for gone, one, other in (("gone", *mappings), ("new", *mappings[::-1]))]
    found = []
    for (start, name, old), (_, _, new) in zip(before, now, strict=True):
        if old == new:
            continue
        for page in range(0, len(old), PAGE):
            if old[page : page + PAGE] == new[page : page + PAGE]:
                continue
            for word in range(page, min(page + PAGE, len(old)), 8):
                at = start + word
                if old[word : word + 8] != new[word : word + 8] and at != errno & ~7 and not rseq <= at < rseq + RSEQ_BYTES:
                    found.append(f"{at:x} {name}")
    return found


def resident_pages(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


class Requests:
    """Of two users, who leave a token wherever there is place for one."""

    def __init__(self):
        self.number, self.seen, self.kinds, self.used, self.stored = 0, set(), {}, set(), None
        self.seeds, self.same_seeds = set(), 0

    def one(self, worker):
        self.number += 1
        user = random.choice(USERS)
        token = f"{user}{self.number}token"
        kind = random.choices([kind for kind, _ in KINDS], [often for _, often in KINDS])[0]
        more, body, cookies, expected = {}, b"", [], ["", "", "", "", ""]
        # A session of the user's own, which lasts, or a new one.
        has_session = random.random() < 0.5
        if has_session:
            cookies.append(f"PHPSESSID={user}session")
            expected[0] = user
        elif kind == "session":
            expected[0] = token
        if random.random() < 0.5:
            cookies.append(f"token={token}")
            expected[1] = token
        if cookies:
            more["HTTP_COOKIE"] = "; ".join(cookies)
        if random.random() < 0.5:
            more["HTTP_AUTHORIZATION"] = "Basic " + base64.b64encode(f"{token}:x".encode()).decode()
            expected[2] = token
        if random.random() < 0.4:
            more["CONTENT_TYPE"] = "multipart/form-data; boundary=b"
            body = (
                f'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n{token}\r\n--b\r\nContent-Disposition: form-data; '
                f'name="f"; filename="f"\r\n\r\n{token}\r\n--b--\r\n'
            ).encode()
            expected[3] = expected[4] = token
        answer = worker.ask(f"token={token}&what={kind}", body, **more)
        what = f"request {self.number} ({kind}) of {user}"
        try:
            said, _ = json.JSONDecoder().raw_decode(body_of(answer).decode(errors="replace"))
        except ValueError:
            sys.exit(f"{what} was answered with {answer.out!r}")
        found = said["tokens"]
        if has_session and re.fullmatch(rf"{user}\d+token", found[0]):
            found[0] = user
        if not said["fresh"] or found != expected:
            sys.exit(f"{what} should have said {expected}: {said}")
        for found in NAMED.findall(answer.out + answer.err):
            if found.decode() != user:
                sys.exit(f"{what} was answered with something of {found!r}: {answer.out!r} {answer.err!r}")
        self.note(what, kind, said)

    def note(self, what, kind, said):
        for value in said["random"]:
            if value in self.seen:
                sys.exit(f"{what}: {value} came before")
            self.seen.add(value)
        self.same_seeds += said["mt_rand"] in self.seeds
        self.seeds.add(said["mt_rand"])
        if None not in (said["stored"], self.stored) and said["stored"] != self.stored + 1:
            sys.exit(f"{what}: APCu has lost a count: {self.stored}, {said['stored']}")
        self.stored = said["stored"]
        self.kinds[kind or "plain"] = self.kinds.get(kind or "plain", 0) + 1
        self.used.update(said["used"])


    def tell_random(self):
        # Of so many numbers that are drawn out of 2^32, so many are equal on average.
        average = self.number**2 / 2**33
        print(f"{len(self.seen)} random values of two boots, each once; mt_rand() began {self.same_seeds} times as before, {average:.1f} on average")
        if self.same_seeds > 4 * average + 8:
            sys.exit("mt_rand() does not begin by chance")


class Generation:
    """The processes of one boot."""

    def __init__(self, worker):
        self.worker = worker
        self.pid, self.errno, self.rseq = json.loads(worker.say("what=places"))
        worker.when_put_back(self.pid)
        self.before = memory(self.pid)
        generation = worker.status()["generations"][-1]
        self.preloader = generation["preloader"]
        self.pages, self.looks = {}, []

    def serve(self, requests, count):
        """So many requests, and looks at the memory after 1, 10, 100 ... of them."""
        look, begun = 1, time.monotonic()
        for number in range(1, count + 1):
            requests.one(self.worker)
            if number == look or number == count:
                self.look(number)
                look *= 10
        print(f"{count} requests in {time.monotonic() - begun:.0f} s by one process")

    def look(self, number):
        self.worker.when_put_back(self.pid)
        now = memory(self.pid)
        if found := unexplained(self.before, now, self.errno, self.rseq):
            sys.exit(f"after {number} requests {len(found)} words differ: {found[:20]}")
        for start, name, data in now:
            if token := TOKEN.search(data):
                sys.exit(f"after {number} requests {token[0]} is at {start + token.start():x} {name}")
        self.looks.append(number)
        self.pages[number] = (resident_pages(self.pid), resident_pages(self.preloader))

    def hello(self, load, count):
        """Many small requests, by the load generator."""
        script = f"{self.worker.directory}/boot_once.php"
        for part in range(10):
            command = [load, "--connect", f"{self.worker.directory}/snap.sock", "--script", script, "--requests", str(count // 10)]
            command += ["--param", "QUERY_STRING=what=hello"]
            report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            if report["errors"]:
                sys.exit(f"requests that failed: {report}")
            self.look(f"{(part + 1) * (count // 10)} small")

    def end(self):
        facts = json.loads(self.worker.say("what=facts"))
        if any(facts["given_up"].values()) or json.loads(self.worker.say("what=places"))[0] != self.pid:
            sys.exit(f"the worker was replaced: {facts}")
        rewound = facts["rewound"]
        print(f"memory is what it was after {self.looks} requests: {sum(len(data) for _, _, data in self.before) >> 10} KiB in {len(self.before)} mappings")
        print(f"put back in {facts['rewound_nanoseconds'] / rewound / 1000:.0f} us with {facts['rewound_pages'] / rewound:.0f} pages each")
        print(f"resident pages of worker and preloader: {self.pages}")
        grown = [max(last - first, 0) for first, last in zip(self.pages[self.looks[len(self.looks) // 2]], self.pages[self.looks[-1]], strict=True)]
        if max(grown) > 400:
            sys.exit(f"memory has grown: {grown} pages")


def run(arguments, directory):
    worker = Worker(arguments.program, directory)
    until("the pool", lambda: is_listening(f"{directory}/snap.sock"))
    requests = Requests()
    first = Generation(worker)
    first.serve(requests, arguments.requests)
    if arguments.hello:
        first.hello(arguments.program.with_name("forkyard-load"), arguments.hello)
    first.end()
    subprocess.run([arguments.program, "reload", "--socket", f"{directory}/control.sock"], check=True, capture_output=True)
    until("another worker", lambda: json.loads(worker.say("what=places"))[0] != first.pid)
    # Another boot has an APCu of its own.
    requests.stored = None
    second = Generation(worker)
    second.serve(requests, max(arguments.requests // 10, 1))
    second.end()
    print(f"of two users: {requests.kinds}")
    print(f"used: {', '.join(sorted(requests.used))}")
    requests.tell_random()


def expected(line):
    """What the requests bring about themselves."""
    return any(text in line for text in ("Allowed memory size", "Uncaught Exception", "Stack trace", "#0 ", "#1 ", "thrown in"))


def main():
    parser = argparse.ArgumentParser(prog="scripts/soak boot-once", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--hello", type=int, default=0, metavar="N", help="and so many small requests, by the load generator")
    parser.add_argument("--program", type=Path, default="target/debug/forkyard")
    parser.add_argument("--php", default=os.environ.get("FORKYARD_PHP", "8.2"))
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="forkyard-soak-") as directory:
        directory = Path(directory)
        directory.chmod(0o755)
        (directory / "sessions").mkdir()
        (directory / "sessions").chmod(0o777)
        # Where it is installed; as a package it would be in all PHP of the machine.
        extensions = subprocess.run([f"php-config{arguments.php}", "--extension-dir"], capture_output=True, text=True).stdout.strip()
        has_apcu = Path(extensions, "apcu.so").exists()
        (directory / "php.ini").write_text("extension = apcu.so\n" if has_apcu else "")
        (directory / "boot_once.php").write_bytes((HERE / "boot_once.php").read_bytes())
        user = 'user = "nobody"\n' if os.geteuid() == 0 else ""
        (directory / "forkyard.toml").write_text(POOL.format(directory=directory, user=user, php=arguments.php))
        with open(directory / "log", "wb") as log:
            daemon = subprocess.Popen([arguments.program, "run", "-c", directory / "forkyard.toml"], stderr=log)
        try:
            run(arguments, directory)
            unknown = [line for line in (directory / "log").read_text().splitlines() if "WARN" in line and not expected(line)]
            if unknown:
                sys.exit(f"the log has {unknown[:5]}")
        except SystemExit:
            sys.stderr.write((directory / "log").read_text(errors="replace")[-4000:])
            raise
        finally:
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(30)


if __name__ == "__main__":
    main()
