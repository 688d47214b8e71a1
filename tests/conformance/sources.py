"""php-src's tests: where they come from, and unpacking them.

They are taken at run time: from PHP_SRC_DIR if that is set, or else from Debian's source package, which is fetched once
through the sources of apt that this machine has.

sources.py VERSION fetches PHP VERSION's source, unless it is there, and prints where it is. Exit status 77: no mirror has it."""

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from program import SKIPPED

# The Debian release that has each version of PHP.
RELEASES = {"8.2": "bookworm", "8.4": "trixie", "8.5": "experimental", "8.6": "experimental"}
# Releases that are no whole Debian: the suites that make one with them. There are no others beside these, such as for security.
SUITES = {"experimental": "sid experimental"}
# What apt complains of where a mirror is reached and does not have a file.
NOT_HELD = re.compile(r" 404 |Failed to fetch some archives|Unable to find a source package|have a Release file")


class Missing(Exception):
    """There are no tests to run: there is no copy, and none could be fetched."""


class NotHeld(Missing):
    """No mirror has the source. Trying again does not help."""


def cache():
    """Where what was fetched is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = Path(base, "forkyard")
    path.mkdir(parents=True, exist_ok=True)
    return path


def unpack(version, target, wanted):
    """Puts the files and directories `wanted` of PHP `version`'s source below `target`, and says where they are from."""
    target.mkdir(parents=True, exist_ok=True)
    given = os.environ.get("PHP_SRC_DIR")
    if given:
        found = sorted({str(path.relative_to(given)) for each in wanted for path in Path(given).glob(each)})
        if not found:
            raise Missing(f"PHP_SRC_DIR={given} has no {' or '.join(wanted)}")
        subprocess.run(["cp", "-a", "--parents", *found, str(target)], cwd=given, check=True)
        return given
    archive = archive_of(version)
    patterns = ["*/" + path for path in wanted]
    subprocess.run(
        ["tar", "--extract", "--file", str(archive), "--directory", str(target), "--strip-components=1", "--wildcards",
         "--no-wildcards-match-slash", "--no-same-owner", *patterns],
        check=True,
    )  # fmt: skip
    return archive.name


def archive_of(version):
    """The source package's archive. The first of several callers fetches it, and the others wait."""
    if version not in RELEASES:
        raise Missing(f"no Debian release is known that has PHP {version}: set PHP_SRC_DIR")
    directory = cache() / f"php{version}"
    directory.mkdir(exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return newest(directory) or fetch(version, directory)


def newest(directory):
    found = sorted(directory.glob("*.orig.tar.*"), key=lambda path: path.stat().st_mtime)
    found = [path for path in found if path.suffix != ".asc"]
    return found[-1] if found else None


def fetch(version, directory):
    """Asks apt for the newest source that a mirror has, with lists of its own: the machine's configuration stays as it is."""
    name = f"php{version}"
    with tempfile.TemporaryDirectory(dir=directory) as work:
        work = Path(work)
        (work / "lists" / "partial").mkdir(parents=True)
        (work / "php.sources").write_text(source_entries("deb-src", RELEASES[version]))
        complaints = complaints_of(ask(work, "apt-get", "update"))
        listed = ask(work, "apt-cache", "showsrc", name)
        versions = sorted(set(re.findall(r"^Version: (\S+)$", listed.stdout, re.M)), key=sort_key, reverse=True)
        for each in versions:
            # Debian's own changes are not needed.
            fetched = ask(work, "apt-get", "source", "--download-only", "--tar-only", f"{name}={each}")
            archive = newest(work)
            if fetched.returncode == 0 and archive:
                return archive.rename(directory / archive.name)
            complaints += complaints_of(fetched)
    if complaints:
        raise Missing(f"the source of {name} could not be fetched, and no copy is in {directory}: {complaints[-1]}")
    listed = f"lists {' and '.join(versions)} and holds none of them" if versions else "lists none"
    raise NotHeld(f"no copy of the source of {name} is in {directory}, and the mirror of apt {listed}")


def ask(work, program, *words):
    """Runs a program of apt's on the lists in a directory."""
    options = [
        *("-o", "Dir::Etc::sourcelist=/dev/null"),
        *("-o", f"Dir::Etc::sourceparts={work}"),
        *("-o", f"Dir::State::lists={work}/lists"),
        *("-o", "Dir::Cache::pkgcache="),
        *("-o", "Dir::Cache::srcpkgcache="),
        *("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "-o", "APT::Sandbox::User=root"),
    ]
    try:
        return subprocess.run([program, *options, *words], cwd=work, capture_output=True, text=True)
    except FileNotFoundError:
        raise Missing(f"there is no {program}: set PHP_SRC_DIR") from None


def complaints_of(done):
    """What went wrong, but for files that a mirror does not have."""
    lines = done.stderr.splitlines()
    lines = [line for line in lines if re.match(r"E: |W: Failed to fetch", line) and not NOT_HELD.search(line)]
    if done.returncode != 0 and not done.stderr.strip():
        lines.append(f"{done.args[0]} ended with {done.returncode}")
    return lines


def sort_key(version):
    return [int(part) if part.isdigit() else 0 for part in re.split(r"[.\-~+]|(?<=\d)(?=\D)", version)]


def source_entries(kind, release):
    """This machine's Debian sources of apt, as sources of `kind` (deb, deb-src) for another release."""
    with open("/etc/os-release") as text:
        own = re.search(r'^VERSION_CODENAME="?(\w+)', text.read(), re.M)
    own = own.group(1) if own else "stable"
    found = []
    directory = Path("/etc/apt")
    for path in sorted(directory.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            suites = re.search(r"^Suites:(.*)$", stanza, re.M)
            if suites and re.search(rf"\b{own}\b", suites.group(1)):
                stanza = re.sub(r"^Types:.*$", f"Types: {kind}", stanza, flags=re.M)
                if release not in SUITES:
                    found.append(re.sub(rf"\b{own}\b", release, stanza).strip())
                elif own in suites.group(1).split():
                    found.append(re.sub(r"^Suites:.*$", f"Suites: {SUITES[release]}", stanza, flags=re.M).strip())
    for path in [directory / "sources.list", *sorted(directory.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else []:
            entry = re.match(rf"deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+({own}\S*)\s+(.*)$", line)
            if entry and (release not in SUITES or entry.group(3) == own):
                options, address, suite, components = entry.groups()
                suite = SUITES.get(release) or suite.replace(own, release)
                text = f"Types: {kind}\nURIs: {address}\nSuites: {suite}\nComponents: {components}"
                signed = re.search(r"signed-by=(\S+)", options or "")
                found.append(text + (f"\nSigned-By: {signed.group(1)}" if signed else ""))
    return "\n\n".join(found) + "\n"


def main(version):
    try:
        print(os.environ.get("PHP_SRC_DIR") or archive_of(version))
        return 0
    except Missing as missing:
        print(f"SKIPPED, NOT TESTED: {missing}", file=sys.stderr)
        return SKIPPED if isinstance(missing, NotHeld) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
