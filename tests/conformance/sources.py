"""php-src's tests: where they come from, and unpacking them.

They are taken at run time: from PHP_SRC_DIR if that is set, or else from Debian's source package, which is fetched once
through the sources of apt that this machine has."""

import os
import re
import subprocess
from pathlib import Path

# The Debian release that has each version of PHP.
RELEASES = {"8.2": "bookworm", "8.4": "trixie", "8.5": "experimental", "8.6": "experimental"}
# Releases that are no whole Debian: the suites that make one with them. There are no others beside these, such as for security.
SUITES = {"experimental": "sid experimental"}


class Missing(Exception):
    """There are no tests to run: neither a copy nor a network."""


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
    """The source package's archive, fetched if it is not there."""
    if version not in RELEASES:
        raise Missing(f"no Debian release is known that has PHP {version}: set PHP_SRC_DIR")
    directory = cache() / f"php{version}"
    directory.mkdir(exist_ok=True)
    return newest(directory) or fetch(version, directory)


def newest(directory):
    found = sorted(directory.glob("*.orig.tar.*"), key=lambda path: path.stat().st_mtime)
    found = [path for path in found if path.suffix != ".asc"]
    return found[-1] if found else None


def fetch(version, directory):
    """Asks apt for the source, with lists of its own: the machine's configuration stays as it is."""
    release = RELEASES[version]
    (directory / "sources").mkdir(exist_ok=True)
    (directory / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    lists = directory / "sources" / "php.sources"
    lists.write_text(source_entries("deb-src", release))
    options = [
        *("-o", "Dir::Etc::sourcelist=/dev/null"),
        *("-o", f"Dir::Etc::sourceparts={lists.parent}"),
        *("-o", f"Dir::State::lists={directory}/lists"),
        *("-o", "Dir::Cache::pkgcache="),
        *("-o", "Dir::Cache::srcpkgcache="),
        *("-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20"),
    ]

    def ask(*command):
        return subprocess.run([*command[:1], *options, *command[1:]], cwd=directory, capture_output=True, text=True)

    update = ask("apt-get", "update")
    name = f"php{version}"
    listed = ask("apt-cache", "showsrc", name).stdout
    versions = sorted(set(re.findall(r"^Version: (\S+)$", listed, re.M)), key=sort_key, reverse=True)
    # A mirror may list what it doesn't hold.
    for each in versions:
        if ask("apt-get", "source", "--download-only", f"{name}={each}").returncode == 0:
            return newest(directory)
    reason = (update.stderr.strip().splitlines() or ["the mirror has no such package"])[-1]
    raise Missing(f"the source of {name} could not be fetched, and no copy is in {directory}: {reason}")


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
