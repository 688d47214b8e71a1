"""php-src's .phpt files: their sections, the scripts in them, and the requests that they stand for."""

import gzip
import os
import re
import zlib
from pathlib import Path

SECTION = re.compile(rb"^--([_A-Z]+)--")
DONE = re.compile(rb"^===DONE===\s*$")
CONTENT_TYPE = re.compile(rb"^Content-Type:(.*)", re.I)
FORM = b"application/x-www-form-urlencoded"
# What needs the command line, a debugger, or another test.
NOT_FOR_SERVERS = {"ARGS", "STDIN", "PHPDBG", "PHPDBG_EXTERNAL", "REDIRECTTEST"}


class Phpt:
    """One test; `name` is its path below the source's root."""

    def __init__(self, root, name):
        self.name = name
        self.sections = {}
        section, is_done = None, False
        with open(Path(root, name), "rb") as file:
            for line in file:
                start = SECTION.match(line)
                if start:
                    section, is_done = start.group(1).decode(), False
                    self.sections[section] = b""
                elif section and not is_done:
                    self.sections[section] += line
                    # As in run-tests.php: what follows is left out.
                    is_done = section == "FILE" and bool(DONE.match(line))

    def reason_to_leave_out(self):
        """Why this is no test for a server; `None` if it is one."""
        for section in sorted(NOT_FOR_SERVERS & self.sections.keys()):
            return f"needs {section}"
        if not {"FILE", "FILEEOF", "FILE_EXTERNAL"} & self.sections.keys():
            return "has no script"
        return None

    def has_ini(self):
        return bool(self.sections.get("INI", b"").strip())

    def write_scripts(self, root):
        """Puts the test's scripts beside it."""
        base = Path(root, self.name)
        if "FILE_EXTERNAL" in self.sections:
            script = (base.parent / os.fsdecode(self.sections["FILE_EXTERNAL"].strip())).read_bytes()
        elif "FILEEOF" in self.sections:
            script = self.sections["FILEEOF"].rstrip(b"\r\n")
        else:
            script = self.sections["FILE"]
        base.with_suffix(".php").write_bytes(script)
        for section, suffix in (("SKIPIF", ".skip.php"), ("CLEAN", ".clean.php")):
            if self.sections.get(section, b"").strip():
                base.with_suffix(suffix).write_bytes(self.sections[section])

    def request(self, site):
        """Parameters and body of the request for the test's script, where servers see the tests below `site`."""
        more, body, method, content_type = {}, None, "GET", b""
        for line in self.sections.get("ENV", b"").splitlines():
            name, equals, value = line.strip().partition(b"=")
            if equals:
                more[name.decode("latin1")] = value
        for section, pack in (("POST", None), ("GZIP_POST", gzip.compress), ("DEFLATE_POST", zlib.compress)):
            if section in self.sections:
                method, content_type, body = "POST", FORM, self.sections[section].strip()
                if pack:
                    more["HTTP_CONTENT_ENCODING"] = section.partition("_")[0].lower()
                    body = pack(body)
        for section in ("POST_RAW", "PUT"):
            if section in self.sections:
                method, lines = section.partition("_")[0], []
                for line in self.sections[section].strip().split(b"\n"):
                    typed = CONTENT_TYPE.match(line)
                    if typed and not content_type:
                        content_type = typed.group(1).strip()
                    else:
                        lines.append(line)
                body = b"\n".join(lines)
        length = "" if body is None else str(len(body))
        cookie = self.sections.get("COOKIE", b"").strip()
        if cookie:
            more["HTTP_COOKIE"] = cookie
        found = self.parameters(site, ".php", method=method, query=self.sections.get("GET", b"").strip())
        return {**found, "CONTENT_TYPE": content_type, "CONTENT_LENGTH": length, **more}, body or b""

    def parameters(self, site, suffix, method="GET", query=b""):
        """What a web server says of a request for one of the test's scripts."""
        script = str(Path(site, self.name).with_suffix(suffix))
        found = parameters(site, script, method, query)
        if self.has_ini() and suffix != ".clean.php":
            found["PHP_ADMIN_VALUE"] = self.ini(os.path.dirname(script))
        return found

    def ini(self, directory):
        text = self.sections["INI"].replace(b"{PWD}", directory.encode()).replace(b"{TMP}", b"/tmp")
        return b"\n".join(line.strip() for line in text.splitlines() if b"=" in line)


def parameters(site, script, method="GET", query=b""):
    name = script[len(site) :]
    return {
        "SCRIPT_FILENAME": script,
        "QUERY_STRING": query,
        "REQUEST_METHOD": method,
        "CONTENT_TYPE": "",
        "CONTENT_LENGTH": "",
        "SCRIPT_NAME": name,
        "REQUEST_URI": name.encode() + (b"?" + query if query else b""),
        "DOCUMENT_URI": name,
        "DOCUMENT_ROOT": site,
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REQUEST_SCHEME": "http",
        "GATEWAY_INTERFACE": "CGI/1.1",
        "SERVER_SOFTWARE": "nginx/1.22.1",
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_PORT": "40000",
        "SERVER_ADDR": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_NAME": "localhost",
        "REDIRECT_STATUS": "200",
        "HTTP_HOST": "localhost",
        "HTTP_USER_AGENT": "phpt",
        "PATH": "/usr/bin:/bin",
        # What run-tests.php tells the tests by the environment.
        "SKIP_SLOW_TESTS": "1",
        "SKIP_PERF_SENSITIVE": "1",
        "SKIP_ONLINE_TESTS": "1",
        "NO_INTERACTION": "1",
        "TEST_PHP_EXECUTABLE": "/usr/bin/php",
        "TEST_PHP_EXECUTABLE_ESCAPED": "'/usr/bin/php'",
    }
