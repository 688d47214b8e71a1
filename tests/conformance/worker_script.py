"""worker_script.py: sends php-src's .phpt tests to php-fpm and to a worker script of forkyard's, and compares the answers.

Both include the test in a function: php-fpm in a script that begins anew with each request, the worker script in its handler, one
test after the other. What may differ is listed with its reason in worker-script-differences.txt, loop-differences.txt and
snapshot-differences.txt.

With worker_mode = "loop" all tests have one process. A test whose answer differs there is sent once more to a worker of its own:
what differs then as well must be listed. What differs only in the long sequence is the test's own doing: it finds functions,
classes or settings of an earlier one, which an application that boots once keeps. After each test a probe shows what is each
request's own; that must never differ.

With "snapshot" a worker is put back after each test: whatever differs must be listed, and all that a probe shows of the process
must be what a new worker shows."""

import json
import re
import sys
from pathlib import Path

from comparison import compare, without_chance
from fastcgi import Client
from phpt_file import Phpt, parameters
from program import add_choice_of_phpt, suite_parser
from servers import Home, Server, WorkerScriptServer
from phpt import PATIENCE_S, body, names_of, on_sources, shown

HERE = Path(__file__).resolve().parent
# In a trace: the frames of what includes the test.
FRAMES = re.compile(
    rb"\n#\d+ [^\n]*/(?:handler|ordinary|worker)\.php\(\d+\): [^\n]*"
    rb"|\n#\d+ \[internal function\]: handle_request\(\)|\n#\d+ \{main\}"
)
# The names of these scripts, where a test shows which is the first.
NAMES = re.compile(rb"/(?:ordinary|worker)\.php")
# What a worker shows after each test.
PROBES = {"loop": "loop-probe.php", "snapshot": "probe.php"}


def arguments():
    parser = suite_parser("loop|snapshot", "php-src's .phpt tests, sent to php-fpm and to a worker script", "forkyard's program")
    parser.set_defaults(binary="target/release/forkyard")
    parser.add_argument("mode", choices=PROBES, help="worker_mode of the worker script")
    add_choice_of_phpt(parser, sample="only so many tests, always the same ones")
    return parser.parse_args()


def main():
    asked = arguments()
    return on_sources(asked, f"{asked.mode}-", run_in_sequence)


def run_in_sequence(work, asked, binary, origin):
    tests, left_out = chosen(work / "src", asked)
    print(f"tests of {origin}: {len(tests)}, {left_out} are not for servers or need settings of their own", flush=True)
    homes = [Home(work / name, work / "src") for name in ("php-fpm", "forkyard")]
    servers = []
    try:
        servers.append(Server(Path(f"/usr/sbin/php-fpm{asked.php_version}"), homes[0], True, asked.php_version))
        servers.append(WorkerScriptServer(binary, homes[1], asked.mode, asked.php_version))
        return Sequence(servers, asked).run(tests)
    finally:
        for server in servers:
            server.stop()


def chosen(root, asked):
    """The tests, with their scripts written, and how many were left out."""
    tests, left_out = [], 0
    for name in names_of(root, asked):
        test = Phpt(root, name)
        # A worker script takes no settings from requests.
        if test.reason_to_leave_out() or test.has_ini():
            left_out += 1
            continue
        test.write_scripts(root)
        tests.append(test)
        if asked.sample and len(tests) >= asked.sample:
            break
    # There are many, and the servers don't need them.
    for path in root.rglob("*.phpt"):
        path.unlink()
    return sorted(tests, key=lambda test: test.name), left_out


class Sequence:
    """Both servers, and what came of the tests."""

    def __init__(self, servers, asked):
        self.site, self.out, self.mode = str(servers[0].home.site), asked.out, asked.mode
        self.clients = [Client(str(server.home.socket), True, PATIENCE_S) for server in servers]
        self.tally, self.different = {}, {}

    def run(self, tests):
        first = self.probe()
        for test in tests:
            self.test(test)
            state = self.probe()
            if state != first:
                changed = [line for line in state if line not in first]
                self.different[test.name] = f"leaves something to the next request: {changed[:2]}"[:400]
        self.tell_facts()
        return self.judge({test.name for test in tests})

    def ask(self, asked, content=b"", is_last=False):
        """Both servers: the same parameters, but for the script that php-fpm is to run."""
        asked = {**asked, "TEST_SCRIPT": asked["SCRIPT_FILENAME"], "SCRIPT_FILENAME": f"{self.site}/ordinary.php"}
        more = {"TEST_IS_LAST": "1"} if is_last else {}
        return [client.ask({**asked, **more}, content) for client in self.clients]

    def test(self, test):
        if test.sections.get("SKIPIF", b"").strip():
            skips = [body(answer).lstrip().lower().startswith(b"skip") for answer in self.ask(test.parameters(self.site, ".skip.php"))]
            if skips[0]:
                return self.count("skipped by the test itself")
        asked, content = test.request(self.site)
        tries = []
        for is_again in (False, True, True):
            # A worker that is put back is one of its own anyway.
            is_last = is_again and self.mode == "loop"
            answers = [plain(answer) for answer in self.ask(asked, content, is_last)]
            if test.sections.get("CLEAN", b"").strip():
                self.ask(test.parameters(self.site, ".clean.php"))
            tries.append(answers)
            verdict, cause = compare(tries, is_sequence=True)
            if verdict != "different":
                place = ", in a worker of its own" if is_last else ""
                return self.count(verdict.removesuffix(" at another try") + place)
            if self.mode == "loop" and not is_again:
                # The next one is the last of this worker, and then there is another.
                self.ask(parameters(self.site, f"{self.site}/loop-probe.php"), is_last=True)
        self.count("different")
        self.different[test.name] = cause
        if self.out:
            file = self.out / f"{test.name.replace('/', '_')}.diff"
            file.write_text(shown(test.name, cause, tries[-1]), errors="replace")

    def probe(self):
        """What the worker script's process shows to a request of nothing."""
        answer = self.ask(parameters(self.site, f"{self.site}/{PROBES[self.mode]}"))[1]
        return body(answer).decode(errors="replace").splitlines()

    def tell_facts(self):
        """How often workers were put back, and why some could not be."""
        answer = self.ask(parameters(self.site, f"{self.site}/facts.php"))[1]
        facts = json.loads(body(answer))
        if "rewound" in facts:
            given_up = ", ".join(f"{reason} {count}" for reason, count in facts["given_up"].items() if count)
            print(f"{facts['rewound']:7} times a worker was put back; replaced instead: {given_up or 'never'}")

    def count(self, what):
        self.tally[what] = self.tally.get(what, 0) + 1

    def judge(self, names):
        for what, count in sorted(self.tally.items(), key=lambda entry: -entry[1]):
            print(f"{count:7} {what}")
        listed = differences(self.mode)
        bad = 0
        for name, cause in sorted(self.different.items()):
            if name not in listed:
                print(f"DIFFERENT: {name}: {cause}")
                bad += 1
        for name in sorted(names & listed.keys() - self.different.keys()):
            if not listed[name].startswith("sometimes: "):
                print(f"NO LONGER DIFFERENT: {name}; remove it from the list")
                bad += 1
        if bad and not self.out:
            print("with --only NAME --out DIRECTORY you see how")
        return 1 if bad else 0


def plain(answer):
    """Without what tells the scripts apart that include the test."""
    answer.out, answer.err = (NAMES.sub(b"/script.php", FRAMES.sub(b"", part)) for part in (answer.out, answer.err))
    return answer


def differences(mode):
    """What may differ: for each test the reason."""
    found = {}
    for listed in ("worker-script", mode):
        for line in (HERE / f"{listed}-differences.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                name, reason = line.split(None, 1)
                found[name] = reason
    return found


if __name__ == "__main__":
    sys.exit(main())
