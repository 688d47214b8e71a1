"""phpt.py: sends php-src's .phpt tests as FastCGI requests to php-fpm and to forkyard-fpm, and compares the answers byte
for byte.

Both servers see the tests at the same path, in namespaces of their own. Tests are sent in two modes:
  fresh      each in a new worker over a new connection, with the test's INI section as PHP_ADMIN_VALUE;
  sequence   those without INI section, all in one worker over one kept connection. After each a script shows what the
             test has left behind in its process.
Whether a test passes doesn't matter, only that both servers say the same. What may differ is listed with its reason in
phpt-differences.txt; the run fails if another test differs, and also if a listed one doesn't."""

import difflib
import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sources
from comparison import compare, without_chance
from fastcgi import Client
from phpt_file import Phpt, parameters
from program import SKIPPED, add_choice_of_phpt, suite_parser, tested, work_directory
from servers import Home, Server

HERE = Path(__file__).resolve().parent
NEEDED = ["tests", "Zend/tests", "ext/*/tests"]
# Longer than the servers allow a request (servers.py).
PATIENCE_S = 40
MODES = ["fresh", "sequence"]
# A test that differs is sent so many times more, to tell chance from cause.
MORE_TRIES = 3


def arguments():
    parser = suite_parser("phpt", "php-src's .phpt tests, sent to php-fpm and forkyard-fpm")
    add_choice_of_phpt(parser, sample="only so many tests, always the same ones")
    add = parser.add_argument
    add("--mode", choices=[*MODES, "both"], default="both", help="with --sample, each test is sent in one of both")
    add("--lanes", type=int, default=2, help="pairs of servers that work side by side")
    return parser.parse_args()


def main():
    return on_sources(arguments(), "phpt-", run_in_lanes)


def on_sources(asked, prefix, run):
    """Unpacks the tests into a directory of this run, and says what `run` comes to with them, or that they were not run."""
    binary = tested(asked.binary)
    if os.geteuid() != 0:
        print("SKIPPED, NOT TESTED: php-src's .phpt tests: servers in namespaces need root", file=sys.stderr)
        return SKIPPED
    # Not below /tmp, which each server has for itself.
    with work_directory(prefix, "/var/tmp") as work:
        try:
            origin = sources.unpack(asked.php_version, work / "src", NEEDED)
        except sources.Missing as missing:
            print(f"SKIPPED, NOT TESTED: php-src's .phpt tests: {missing}", file=sys.stderr)
            return SKIPPED
        if asked.out:
            asked.out.mkdir(parents=True, exist_ok=True)
        return run(work, asked, binary, origin)


def run_in_lanes(work, asked, binary, origin):
    run = Run(work, asked, binary)
    plan = run.plan()
    told = ", ".join(f"{len(tests)} {mode}" for mode, tests in plan.items())
    print(f"tests of {origin}: {told}", flush=True)
    lanes = [threading.Thread(target=run.lane, args=(number, plan)) for number in range(asked.lanes)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    return run.judge(plan)


def names_of(root, asked):
    """The tests' names, in the order in which a sample takes them."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*.phpt"))
    if asked.only:
        names = [name for name in names if any(text in name for text in asked.only)]
    return sorted(names, key=digest) if asked.sample else names


class Run:
    def __init__(self, work, asked, binary):
        self.work, self.asked, self.binary = work, asked, binary
        self.tally = {}
        self.different = {}
        self.lock = threading.Lock()

    def plan(self):
        """The tests for each mode, with their scripts written."""
        root = self.work / "src"
        plan = {"fresh": [], "sequence": []}
        for name in names_of(root, self.asked):
            test = Phpt(root, name)
            if reason := test.reason_to_leave_out():
                self.count(f"left out: {reason}")
                continue
            # In a sample, each test is sent in one mode.
            turn = digest(name)[-1] % 2 if self.asked.sample else None
            is_both = self.asked.mode == "both"
            is_fresh = test.has_ini() or turn != 1 if is_both else self.asked.mode == "fresh"
            is_sequence = not test.has_ini() and (turn != 0 if is_both else self.asked.mode == "sequence")
            if is_fresh:
                plan["fresh"].append(test)
            if is_sequence:
                plan["sequence"].append(test)
            if is_fresh or is_sequence:
                test.write_scripts(root)
            if self.asked.sample and sum(map(len, plan.values())) >= self.asked.sample:
                break
        # There are many, and the servers don't need them.
        for path in root.rglob("*.phpt"):
            path.unlink()
        # In one order whatever the sample, so that tests that leave files behind meet the same ones.
        return {mode: sorted(tests, key=lambda test: test.name) for mode, tests in plan.items() if tests}

    def lane(self, number, plan):
        """Sends a share of the tests, one after the other, to a pair of servers."""
        programs = {"php-fpm": Path(f"/usr/sbin/php-fpm{self.asked.php_version}"), "forkyard-fpm": self.binary}
        try:
            homes = [Home(self.work / f"{name}-{number}", self.work / "src") for name in programs]
            for mode, tests in plan.items():
                servers = []
                try:
                    for home, program in zip(homes, programs.values()):
                        servers.append(Server(program, home, mode == "sequence", self.asked.php_version))
                    if mode == "fresh":
                        again = Home(self.work / f"php-fpm-again-{number}", self.work / "src")
                        servers.append(Server(programs["php-fpm"], again, False, self.asked.php_version))
                    with ThreadPoolExecutor(2) as pool:
                        Lane(self, mode, servers, pool).run(tests[number :: self.asked.lanes])
                finally:
                    for server in servers:
                        server.stop()
        except Exception as error:
            with self.lock:
                self.different["lane", str(number)] = f"ended: {error!r}"
            raise

    def count(self, what):
        with self.lock:
            self.tally[what] = self.tally.get(what, 0) + 1

    def differs(self, mode, name, cause, answers):
        with self.lock:
            self.different[mode, name] = cause
        if self.asked.out:
            file = self.asked.out / f"{mode}-{name.replace('/', '_')}.diff"
            file.write_text(shown(name, cause, answers), errors="replace")

    def judge(self, plan):
        for what, count in sorted(self.tally.items(), key=lambda entry: -entry[1]):
            print(f"{count:7} {what}")
        listed = differences()
        bad = 0
        for (mode, name), cause in sorted(self.different.items()):
            if (mode, name) not in listed:
                print(f"DIFFERENT: {name} ({mode}): {cause}")
                bad += 1
        for mode, tests in plan.items():
            for name in (test.name for test in tests):
                reason = listed.get((mode, name))
                if reason and (mode, name) not in self.different and not reason.startswith("sometimes: "):
                    print(f"NO LONGER DIFFERENT: {name} ({mode}); remove it from phpt-differences.txt")
                    bad += 1
        if bad and not self.asked.out:
            print("with --only NAME --out DIRECTORY you see how")
        return 1 if bad else 0


class Lane:
    """One pair of servers and the tests that they are sent; in mode fresh php-fpm once more, which is asked when the two differ."""

    def __init__(self, run, mode, servers, pool):
        self.run_, self.mode, self.pool = run, mode, pool
        self.site = str(servers[0].home.site)
        clients = [Client(str(server.home.socket), mode == "sequence", PATIENCE_S) for server in servers]
        self.clients, self.again = clients[:2], clients[2:]
        self.states = None

    def run(self, tests):
        if self.mode == "sequence":
            self.probe("the start")
        for test in tests:
            self.test(test)
            if self.mode == "sequence":
                self.probe(test.name)

    def ask(self, parameters, body=b""):
        """Both servers at the same time."""
        return list(self.pool.map(lambda client: client.ask(parameters, body), self.clients))

    def test(self, test):
        run, mode = self.run_, self.mode
        if test.sections.get("SKIPIF", b"").strip():
            answers = self.ask(test.parameters(self.site, ".skip.php"))
            skips = [body(answer).lstrip().lower().startswith(b"skip") for answer in answers]
            if skips[0] != skips[1]:
                run.count("different")
                return run.differs(mode, test.name, "SKIPIF", answers)
            if skips[0]:
                return run.count("skipped by the test itself")
        parameters, content = test.request(self.site)
        tries = []
        for _ in range(1 + MORE_TRIES):
            tries.append(self.ask(parameters, content))
            if test.sections.get("CLEAN", b"").strip():
                self.ask(test.parameters(self.site, ".clean.php"))
            verdict, cause = compare(tries, is_sequence=mode == "sequence")
            if verdict != "different":
                break
        if verdict == "different" and self.is_of_its_place(test, tries[-1]):
            verdict = "same but for what differs between two of php-fpm"
        run.count(f"{mode}: {verdict}")
        if verdict == "different":
            run.differs(mode, test.name, cause, tries[-1])

    def is_of_its_place(self, test, answers):
        """Whether only such numbers differ in which another php-fpm differs, too: inodes and times of files, free space."""
        parameters, content = test.request(self.site)
        for client in self.again:
            other = client.ask(parameters, content)
            if test.sections.get("CLEAN", b"").strip():
                client.ask(test.parameters(self.site, ".clean.php"), b"")
            alike = {without_chance(answer) for answer in [other, *answers]}
            if other.whole() != answers[0].whole() and len(alike) == 1:
                return True
        return False

    def probe(self, name):
        """Looks at what a test left behind in each server's worker, and whether it is the same."""
        script = f"{self.site}/probe.php"
        answers = self.ask(parameters(self.site, script))
        states = [body(answer).decode(errors="replace").splitlines() for answer in answers]
        before, self.states = self.states, states
        if before is None or states == before:
            return
        changes = [set(now) ^ set(was) for now, was in zip(states, before)]
        if changes[0] != changes[1]:
            self.run_.count("sequence: leaves something else behind")
            self.run_.differs("sequence", name, f"state: {sorted(changes[0] ^ changes[1])[:2]}"[:300], answers)
        else:
            self.run_.count("sequence: leaves the same behind")


def digest(name):
    return hashlib.sha256(name.encode()).digest()


def body(answer):
    return answer.out.partition(b"\r\n\r\n")[2]


def shown(name, cause, answers):
    lines = [f"# {name}: {cause}", *(f"# {answer.how} {answer.end}" for answer in answers)]
    for stream in ("out", "err"):
        here, there = (getattr(answer, stream).decode("latin1").splitlines() for answer in answers)
        lines += difflib.unified_diff(here, there, f"php-fpm {stream}", f"forkyard-fpm {stream}", n=2, lineterm="")
    return "\n".join(lines) + "\n"


def differences():
    """What may differ: for each mode and test the reason."""
    found = {}
    for line in (HERE / "phpt-differences.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            mode, name, reason = line.split(None, 2)
            for each in MODES if mode == "both" else [mode]:
                found[each, name] = reason
    return found


if __name__ == "__main__":
    sys.exit(main())
