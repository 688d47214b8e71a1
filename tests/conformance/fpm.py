"""fpm.py: runs php-src's own tests of php-fpm against a program in php-fpm's place.

The tests use fixed ports and fixed names, so each lane of them has a tree and namespaces of its own, and lanes run side
by side. What is expected to fail is listed with its reason in fpm-VERSION.txt; the run fails if a test fails that is not
listed, and also if one passes that is."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import sources
from program import SKIPPED, suite_parser, tested, work_directory

HERE = Path(__file__).resolve().parent
NEEDED = ["sapi/fpm/tests", "run-tests.php", "ext/standard/tests/misc/browscap.ini"]
# Longer than any lane takes.
PATIENCE_S = 900
GOOD = {"PASSED", "SKIPPED", "XFAILED", "WARNED"}
# More than these that fail are no accident.
MOST_AGAIN = 15
# Tests whose outcome depends on a race that php-fpm decides another way. They must pass in one of RACE_ATTEMPTS.
RACES = {
    "fpm_get_status_basic.phpt": "a spare worker is forked when the last idle one is taken; php-fpm does so within a second",
}
RACE_ATTEMPTS = 16
NO_REASON = "(no reason yet)"


def arguments():
    parser = suite_parser("fpm", "php-src's tests of php-fpm")
    add = parser.add_argument
    add("--as", dest="users", choices=["nobody", "root", "both"], help="the user (default: both, if this is root)")
    add("--beside", action="store_true", help="run php-fpm too, and show where the two differ")
    add("--only", action="append", default=[], metavar="GLOB", help="only the tests of these names")
    add("--lanes", type=int, default=3, help="how many run side by side for each user")
    add("--diff", action="store_true", help="show what was expected and what came, for each failure")
    add("--write-expected", action="store_true", help="write the list of expected failures anew, keeping the reasons")
    return parser.parse_args()


def main():
    asked = arguments()
    binary = tested(asked.binary)
    is_root = os.geteuid() == 0
    users = {"both": ["nobody", "root"], None: ["nobody", "root"] if is_root else ["nobody"]}.get(asked.users, [asked.users])
    if "root" in users and not is_root:
        sys.exit("the tests can be run as root by root only")
    programs = {"forkyard-fpm": binary}
    if asked.beside:
        programs["php-fpm"] = Path(f"/usr/sbin/php-fpm{asked.php_version}")

    with work_directory("fpm-") as work:
        try:
            origin = sources.unpack(asked.php_version, work / "src", NEEDED)
        except sources.Missing as missing:
            print(f"SKIPPED, NOT TESTED: php-src's tests of php-fpm: {missing}", file=sys.stderr)
            return SKIPPED
        names = sorted(path.name for path in (work / "src/sapi/fpm/tests").glob("*.phpt"))
        if asked.only:
            names = [name for name in names if any(Path(name).match(glob) for glob in asked.only)]
        if not names:
            sys.exit("no test has such a name")
        print(f"{len(names)} tests of {origin}, as {' and '.join(users)}", flush=True)
        suite = Suite(work, asked, is_root)
        results = {(program, user): Results(program, user) for program in programs for user in users}
        suite.run(programs, users, names, results)
        return judge(asked, users, names, results)


class Results:
    """What came of one program's tests as one user."""

    def __init__(self, program, user):
        self.program, self.user = program, user
        self.status = {}
        self.diffs = {}

    def failed(self):
        return sorted(name for name, status in self.status.items() if status not in GOOD)


class Suite:
    def __init__(self, work, asked, is_root):
        self.work, self.asked, self.is_root = work, asked, is_root
        self.php = shutil.which(f"php{asked.php_version}") or sys.exit(f"php{asked.php_version} is not there")

    def run(self, programs, users, names, results):
        """All lanes; then each that failed once more with nothing beside it, since some of the tests measure time."""
        count = self.asked.lanes if self.is_root else 1
        lanes = [
            (program, user, lane, names[lane::count])
            for lane in range(min(count, len(names)))
            for user in users
            for program in programs
        ]
        started = [
            threading.Thread(target=self.lane, args=(programs[program], f"{index}", some, results[program, user]))
            for index, (program, user, _, some) in enumerate(lanes)
        ]
        for thread in started:
            thread.start()
            if not self.is_root:
                thread.join()
        for thread in started:
            thread.join()
        listed = expected(self.asked.php_version)
        for (program, user), result in results.items():
            again = [name for name in result.failed() if program != "forkyard-fpm" or (user, name) not in listed]
            if again and len(again) <= MOST_AGAIN:
                self.lane(programs[program], f"again-{program}-{user}", again, result)
            for attempt in range(2, RACE_ATTEMPTS):
                raced = [name for name in result.failed() if name in RACES and (user, name) not in listed]
                if raced:
                    self.lane(programs[program], f"race-{attempt}-{program}-{user}", raced, result)

    def lane(self, binary, label, names, result):
        """Runs some tests in a tree of their own, one after the other."""
        tree = self.work / label
        tree.mkdir()
        for name in os.listdir(self.work / "src"):
            subprocess.run(["cp", "-a", str(self.work / "src" / name), str(tree)], check=True)
        user = result.user
        self.install(binary, tree)
        command = [f"{tree}/sapi/cli/php", "-n", "-d", "memory_limit=-1", "run-tests.php", "-n", "-q"]
        command += ["-d", "extension=posix", "--no-color", "--no-progress", "--offline", "--show-diff"]
        command += ["-W", f"{tree}/results.tsv", *(f"sapi/fpm/tests/{name}" for name in names)]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": f"{tree}/tmp",
            "TMPDIR": f"{tree}/tmp",
            "LC_ALL": "C",
            "NO_INTERACTION": "1",
            "TEST_PHP_EXECUTABLE": f"{tree}/sapi/cli/php",
        }
        if user == "root":
            environment["TEST_FPM_RUN_AS_ROOT"] = "1"
        if self.is_root:
            subprocess.run(["chown", "-R", f"{user}:", str(tree)], check=True)
            # What the tests leave running ends with the namespace.
            apart = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
            command = [*apart, sys.executable, str(HERE / "inside.py"), user, *command]
        with open(tree / "log", "wb") as log:
            try:
                subprocess.run(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               timeout=PATIENCE_S)  # fmt: skip
            except subprocess.TimeoutExpired:
                print(f"{result.program} as {user}: a lane took more than {PATIENCE_S} s", file=sys.stderr)
        self.collect(tree, names, result)

    def install(self, binary, tree):
        """Makes the tree look like one in which PHP was built, with `binary` as its php-fpm."""
        for directory in ("sapi/cli", "tmp", "ini"):
            (tree / directory).mkdir(parents=True)
        shutil.copy(self.php, tree / "sapi/cli/php")
        # The tests count on PHP's own defaults, not on the distribution's php.ini. They use posix, which is an extension
        # of its own here.
        (tree / "ini/php.ini").write_text("extension=posix\n")
        program = tree / "sapi/fpm/php-fpm"
        # In Perl, because a shell changes the order of the environment, at which one of the tests looks.
        program.write_text(
            "#!/usr/bin/perl\n"
            f"@ENV{{qw(PHPRC PHP_INI_SCAN_DIR)}} = ('{tree}/ini', '');\n"
            f"exec {{ '{binary}' }} '{binary}', @ARGV;\n"
            "die \"can't be executed: $!\";\n"
        )
        program.chmod(0o755)

    def collect(self, tree, names, result):
        table = tree / "results.tsv"
        found = {}
        for line in table.read_text(errors="replace").splitlines() if table.exists() else []:
            status, path = line.split("\t")[:2]
            found[Path(path).name] = status
        for name in names:
            before = result.status.get(name)
            result.status[name] = found.get(name, "NOT RUN")
            diff = (tree / "sapi/fpm/tests" / name).with_suffix(".diff")
            if diff.exists():
                result.diffs[name] = diff.read_text(errors="replace")
            if before and result.status[name] in GOOD:
                print(f"{result.program} as {result.user}: {name} did not pass at the first attempt")
        if not found:
            print((tree / "log").read_text(errors="replace")[-2000:], file=sys.stderr)


def judge(asked, users, names, results):
    for (program, user), result in results.items():
        counts = {}
        for status in result.status.values():
            counts[status] = counts.get(status, 0) + 1
        told = ", ".join(f"{count} {status.lower()}" for status, count in sorted(counts.items()))
        print(f"{program} as {user}: {told}")
    ours = {user: results["forkyard-fpm", user] for user in users}
    if asked.diff:
        for user, result in ours.items():
            for name in result.failed():
                print(f"--- {name} as {user}\n{result.diffs.get(name, result.status[name])}")
    if asked.beside:
        for user, result in ours.items():
            stock = results["php-fpm", user]
            for name in names:
                here, there = result.status[name], stock.status[name]
                if here != there:
                    print(f"{name} as {user}: php-fpm {there.lower()}, forkyard-fpm {here.lower()}")
    if asked.write_expected:
        write_expected(asked.php_version, users, names, ours)
        return 0
    listed = expected(asked.php_version)
    bad = 0
    for user, result in ours.items():
        for name in names:
            is_good = result.status[name] in GOOD
            if not is_good and (user, name) not in listed:
                print(f"FAILED: {name} as {user} ({result.status[name].lower()})")
                bad += 1
            elif is_good and (user, name) in listed:
                word = result.status[name].lower()
                print(f"NO LONGER EXPECTED: {name} as {user}: {word}; remove it from {file_of(asked.php_version).name}")
                bad += 1
    if bad and not asked.diff:
        print("with --diff --only NAME you see why")
    return 1 if bad else 0


def file_of(version):
    return HERE / f"fpm-{version}.txt"


def expected(version):
    """What is expected to fail: for each user and test the reason."""
    found = {}
    path = file_of(version)
    for line in path.read_text().splitlines() if path.exists() else []:
        if line and not line.startswith("#"):
            user, name, reason = line.split(None, 2)
            for each in ["nobody", "root"] if user == "both" else [user]:
                found[each, name] = reason
    return found


def write_expected(version, users, names, ours):
    """Replaces the list by what failed now. Reasons stay, and so does what was not run."""
    listed = expected(version)
    now = {key: reason for key, reason in listed.items() if key[0] not in users or key[1] not in names}
    for user, result in ours.items():
        for name in result.failed():
            reasons = [listed.get((each, name)) for each in (user, "nobody", "root")]
            now[user, name] = next((reason for reason in reasons if reason), NO_REASON)
    lines = []
    for name in sorted({name for _, name in now}):
        reasons = {user: now[user, name] for user in ("nobody", "root") if (user, name) in now}
        if len(reasons) == 2 and len(set(reasons.values())) == 1:
            lines.append(f"both   {name}  {reasons['root']}")
        else:
            lines += [f"{user:6} {name}  {reason}" for user, reason in reasons.items()]
    path = file_of(version)
    head = [line for line in path.read_text().splitlines() if line.startswith("#")] if path.exists() else []
    head = head or [f"# Tests of PHP {version}'s php-fpm that are expected to fail: user, test, reason."]
    path.write_text("\n".join([*head, *lines]) + "\n")
    print(f"{path.name}: {len(lines)} lines")


sys.exit(main())
