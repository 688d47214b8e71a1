"""DokuWiki's front page, from a copy with a configuration and data of its own."""

import re
import shutil
import subprocess

from harness.needs import BOTH, PHP_BUILDS
from harness.table import at_least

PACKAGES = (*BOTH, "dokuwiki")
BUILDS = PHP_BUILDS


def run(bench):
    wiki = bench.directory("dokuwiki")
    _copy(wiki)
    rounds, seconds = (5, 1) if bench.quick else (21, 2)
    with bench.both() as servers:
        for server in servers:
            # The first requests fill its caches.
            bench.load(server, wiki / "doku.php", requests=4, uri="/doku.php?id=start")
        comparison = bench.rate(servers, wiki / "doku.php", seconds, rounds, clients=1, uri="/doku.php?id=start")
        yield at_least(comparison, 0.98, work="DokuWiki's front page")


def _copy(wiki):
    shutil.copytree("/usr/share/dokuwiki", wiki, symlinks=False, ignore_dangling_symlinks=True)
    for name, source in (("conf", "/etc/dokuwiki"), ("data", "/var/lib/dokuwiki/data")):
        shutil.rmtree(wiki / name, ignore_errors=True)
        shutil.copytree(source, wiki / name, ignore_dangling_symlinks=True)
    preload = wiki / "inc/preload.php"
    text = preload.read_text().replace("/etc/dokuwiki/", f"{wiki}/conf/")
    preload.write_text(re.sub(r"'/var/lib/dokuwiki/", f"'{wiki}/", text))
    (wiki / "conf/local.php").write_text(
        f"<?php\n$conf['savedir'] = '{wiki}/data';\n$conf['useacl'] = 0;\n$conf['allowdebug'] = 0;\n"
    )
    page = wiki / "data/pages/start.txt"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_page())
    subprocess.run(["chmod", "-R", "a+rwX", wiki], check=True)


def _page():
    section = "===== Part {n} =====\n\nSome **bold** and //slanted// text with a [[part{n}|link]], and a list:\n\n"
    section += "  * one\n  * two\n  * three\n\n^ head ^ head ^\n| cell | cell |\n\n"
    return "====== Front page ======\n\n" + "".join(section.format(n=n) for n in range(10))
