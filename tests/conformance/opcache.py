"""opcache.py: sends php-src's tests of OPcache to workers of a zygote and to those of own preloaders, and compares the answers.

The settings of a test's INI section are those of a pool, since most are looked at when PHP starts only; tests with the same ones
share a pool, and so an OPcache, with a worker for each test. With --all come all other tests that have no INI section. It fails
where the answers differ, chance apart, and where the workers of a pool did not come from a zygote."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import sources
from comparison import cause, compare
from fastcgi import Client
from phpt_file import Phpt
from program import SKIPPED, add_choice_of_phpt, suite_parser, tested, work_directory
from servers import PHP_INI

OPCACHE = "ext/opcache/tests"
OTHERS = ["tests", "Zend/tests", "ext/*/tests"]
PATIENCE_S = 40
# Pools that a daemon has at once: each may be a start of PHP of its own.
BATCH = 24
# A test that differs is sent so many times more, to tell chance from cause.
MORE_TRIES = 3
# What a pool can't have in common with others: its script would run in the zygote.
PRELOAD = b"opcache.preload="
UNFIT = "PHP can't be started once for all pools"
# Settings without memory that could be shared, and those that PHP does not start with anywhere.
WITHOUT_ZYGOTE = {("opcache.file_cache_only", "1"), ("opcache.interned_strings_buffer", "500")}
# What run-tests.php sets for all of them.
OWN_INI = PHP_INI + "opcache.interned_strings_buffer = 8\nopcache.jit_buffer_size = 0\n"
PLACEHOLDERS = [
    (b"%e", rb"/"), (b"%s", rb"[^\r\n]+"), (b"%S", rb"[^\r\n]*"), (b"%a", rb".+"), (b"%A", rb".*"), (b"%w", rb"\s*"),
    (b"%i", rb"[+-]?\d+"), (b"%d", rb"\d+"), (b"%x", rb"[0-9a-fA-F]+"), (b"%f", rb"[+-]?\.?\d+\.?\d*(?:[Ee][+-]?\d+)?"),
    (b"%c", rb"."), (b"%0", rb"\x00"),
]  # fmt: skip


def arguments():
    parser = suite_parser(
        "opcache",
        "php-src's tests of OPcache, with a zygote and with own preloaders",
        binary="the program to test; forkyard is beside it",
    )
    add_choice_of_phpt(parser, sample="only so many tests, evenly chosen, always the same ones")
    parser.add_argument("--all", action="store_true", help="also all other tests that have no INI section")
    return parser.parse_args()


def main():
    asked = arguments()
    program = tested(asked.binary).with_name("forkyard")
    with work_directory("opcache-", "/var/tmp") as work:
        try:
            wanted = [OPCACHE, *(OTHERS if asked.all else [])]
            origin = sources.unpack(asked.php_version, work / "src", wanted)
        except sources.Missing as missing:
            print(f"SKIPPED, NOT TESTED: php-src's tests of OPcache: {missing}", file=sys.stderr)
            return SKIPPED
        return Run(work, asked, program).run(origin)


class Run:
    def __init__(self, work, asked, program):
        self.work, self.asked, self.program = work, asked, program
        self.site = work / "site"
        self.tally = {}
        self.different = {}
        self.unfit = set()

    def run(self, origin):
        pools = self.plan()
        tests = [test for members in pools for test in members]
        print(f"tests of {origin}: {len(tests)} in {len(pools)} pools", flush=True)
        for at in range(0, len(pools), BATCH):
            self.batch(pools[at : at + BATCH])
        for what, count in sorted(self.tally.items(), key=lambda entry: -entry[1]):
            print(f"{count:7} {what}")
        for name, why in sorted(self.different.items()):
            print(f"DIFFERENT: {name}: {why}")
        for what in sorted(self.unfit):
            print(f"NOT OF A ZYGOTE: {what}")
        return 1 if self.different or self.unfit else 0

    def plan(self):
        """The tests, in groups that have the same settings, with their scripts written."""
        root = self.work / "src"
        names = sorted(str(path.relative_to(root)) for path in root.rglob("*.phpt"))
        if self.asked.only:
            names = [name for name in names if any(text in name for text in self.asked.only)]
        if self.asked.sample and self.asked.sample < len(names):
            names = [names[at * len(names) // self.asked.sample] for at in range(self.asked.sample)]
        pools = {}
        for name in names:
            test = Phpt(root, name)
            reason = test.reason_to_leave_out()
            if not reason and PRELOAD in test.sections.get("INI", b"").replace(b" ", b""):
                reason = "a pool with opcache.preload has a preloader of its own"
            if not reason and test.has_ini() and not name.startswith(OPCACHE):
                reason = "has an INI section and is not OPcache's"
            if reason:
                self.count(f"left out: {reason}")
                continue
            test.write_scripts(root)
            pools.setdefault(self.settings(test), []).append(test)
        for path in root.rglob("*.phpt"):
            path.unlink()
        return list(pools.values())

    def settings(self, test):
        """The settings of a test's pool, as pairs."""
        found = {}
        if test.has_ini():
            for line in test.ini(str((self.site / test.name).parent)).decode("latin1").splitlines():
                name, _, value = line.partition("=")
                if not name.startswith(";"):
                    found[name.strip()] = value.split(" ;")[0].strip().strip("\"'")
        return tuple(sorted(found.items()))

    def batch(self, pools):
        tries = {}
        left = pools
        for number in range(1 + MORE_TRIES):
            own, zygote = (self.answers(left, preloader) for preloader in ("own", "zygote"))
            still = []
            for members in left:
                kept = []
                for test in members:
                    if self.is_settled(test, tries.setdefault(test.name, []), own, zygote, number == MORE_TRIES):
                        continue
                    kept.append(test)
                if kept:
                    still.append(kept)
            left = still
            if not left:
                return

    def is_settled(self, test, tries, own, zygote, is_last):
        first, second = own[test.name], zygote[test.name]
        if isinstance(first, str) or isinstance(second, str):
            if first == second:
                self.count("skipped by the test itself")
                return True
            if is_last:
                self.differs(test, "SKIPIF", None)
            return is_last
        tries.append((first, second))
        verdict, why = compare(tries, is_sequence=False)
        if verdict == "different" and not is_last:
            return False
        if verdict == "different":
            self.differs(test, why or cause(first, second), (first, second))
        else:
            self.count(f"{'as' if passes(test, second) else 'not as'} the test expects, {verdict}")
        return True

    def answers(self, pools, preloader):
        """What each test of these pools is answered, or `skipped`."""
        shutil.rmtree(self.site, ignore_errors=True)
        shutil.copytree(self.work / "src", self.site)
        # Tests write beside their scripts.
        for path, _, _ in os.walk(self.site):
            os.chmod(path, 0o777)
        (self.work / "php.ini").write_text(OWN_INI)
        server = Daemon(self, pools, preloader)
        found = {}
        try:
            for number, members in enumerate(pools):
                for test in members:
                    found[test.name] = self.ask(test, Client(server.socket(number), False, PATIENCE_S))
        finally:
            log = server.stop()
        expected = sum(not WITHOUT_ZYGOTE.isdisjoint(self.settings(members[0])) for members in pools)
        if preloader == "zygote":
            self.unfit.update([line for line in log.splitlines() if UNFIT in line][expected:])
        return found

    def ask(self, test, client):
        site = str(self.site)
        # The pool has the settings.
        without = {"PHP_ADMIN_VALUE"}
        if test.sections.get("SKIPIF", b"").strip():
            skip = client.ask(drop(test.parameters(site, ".skip.php"), without))
            if skip.out.partition(b"\r\n\r\n")[2].lstrip().lower().startswith(b"skip"):
                return "skipped"
        parameters, body = test.request(site)
        answer = client.ask(drop(parameters, without), body)
        if test.sections.get("CLEAN", b"").strip():
            client.ask(test.parameters(site, ".clean.php"))
        return answer

    def count(self, what):
        self.tally[what] = self.tally.get(what, 0) + 1

    def differs(self, test, why, answers):
        self.different[test.name] = why
        self.count("different")
        if self.asked.out and answers:
            self.asked.out.mkdir(parents=True, exist_ok=True)
            texts = [f"== {kind}: {a.how}\n{a.out.decode('latin1')}\n-- {a.err.decode('latin1')}\n"
                     for kind, a in zip(("own", "zygote"), answers)]  # fmt: skip
            (self.asked.out / f"{test.name.replace('/', '_')}.txt").write_text("".join(texts))


class Daemon:
    """forkyard with a pool for each group of tests."""

    def __init__(self, run, pools, preloader):
        self.work, self.run = run.work, run
        (self.work / "sockets").mkdir(exist_ok=True)
        configuration = ['[global]\non_error = "skip"\n']
        user = 'user = "www-data"\n' if os.geteuid() == 0 else ""
        for number, members in enumerate(pools):
            values = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in run.settings(members[0]))
            configuration.append(
                f'[pool.p{number}]\nlisten = {{ address = "{self.socket(number)}", mode = "0666" }}\n{user}'
                f'pm = "ondemand"\nmax_children = 1\nmax_requests = 1\nrequest_terminate_timeout = "30s"\n'
                f'env = {{ PATH = "/usr/bin:/bin" }}\n[pool.p{number}.application]\nruntime = "php"\n'
                f'version = "{run.asked.php_version}"\npreloader = "{preloader}"\nlimit_extensions = []\n'
                f'php_ini = "{self.work}/php.ini"\nphp_admin_value = {{ {values} }}\n'
            )
        path = self.work / "forkyard.toml"
        path.write_text("".join(configuration))
        self.log = self.work / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([run.program, "run", "-c", path], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_S
        while "ready to handle connections" not in (said := self.log.read_text(errors="replace")):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"forkyard does not start: {said[-2000:]}")
            time.sleep(0.05)
        if "is skipped" in said:
            raise RuntimeError(f"a pool is refused: {said[-2000:]}")

    def socket(self, number):
        return f"{self.work}/sockets/{number}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        return self.log.read_text(errors="replace")


def drop(parameters, names):
    return {name: value for name, value in parameters.items() if name not in names}


def passes(test, answer):
    """Whether the test would say that this is right."""
    body = answer.out.partition(b"\r\n\r\n")[2].replace(b"\r\n", b"\n").strip()
    wanted = {name: test.sections[name].replace(b"\r\n", b"\n").strip() for name in test.sections}
    if "EXPECT" in wanted:
        return body == wanted["EXPECT"]
    if "EXPECTREGEX" in wanted:
        pattern = wanted["EXPECTREGEX"]
    elif "EXPECTF" in wanted:
        pattern = re.escape(wanted["EXPECTF"])
        for placeholder, by in PLACEHOLDERS:
            pattern = pattern.replace(re.escape(placeholder), by)
    else:
        return False
    try:
        return re.fullmatch(pattern, body, re.S) is not None
    except re.error:
        return False


sys.exit(main())
