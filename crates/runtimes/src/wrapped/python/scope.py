"""Builds an ASGI scope from FastCGI parameters."""

import sys

VERSIONS = {"version": "3.0", "spec_version": "2.3"}
# Not headers, or duplicates: nginx also sends the body's headers under their CGI names.
NO_HEADERS = {b"HTTP_CONTENT_TYPE", b"HTTP_CONTENT_LENGTH", b"HTTP_PROXY"}
BODY_HEADERS = ((b"CONTENT_TYPE", b"content-type"), (b"CONTENT_LENGTH", b"content-length"))
# Requests a protocol switch; only forkyard dev sends it.
UPGRADE = b"FORKYARD_UPGRADE"
TUNNEL = "forkyard.tunnel"
# Sets of names to cache. A web server sends few: its configured ones combined with each client's.
MOST_PLANS = 256


class Plan:
    """What to do with the values of these names."""

    __slots__ = ("headers", "body_headers", "place", "is_upgrade")

    def __init__(self, names):
        names = names.split(b"\0")[:-1]
        self.place = {name: place for place, name in enumerate(names)}
        self.is_upgrade = UPGRADE in self.place
        self.headers = [
            (name[5:].replace(b"_", b"-").lower(), place)
            for name, place in self.place.items()
            if name.startswith(b"HTTP_") and name not in NO_HEADERS
        ]
        self.body_headers = [(header, self.place[name]) for name, header in BODY_HEADERS if name in self.place]


class Mount:
    """Splits a request's path into `root_path` and `path`. `prefix`: where the operator mounted the application."""

    def __init__(self, prefix):
        self._prefix = prefix
        # The specification, and uvicorn since 0.26, start `path` with `root_path`. Starlette before 0.33 expects `path`
        # without it.
        starlette = getattr(sys.modules.get("starlette"), "__version__", "").split(".")[:2]
        self._is_whole = not (len(starlette) == 2 and all(map(str.isdigit, starlette)) and [*map(int, starlette)] < [0, 33])

    def divide(self, script, path):
        """Returns `root_path` and `path`. `script` and `path` are SCRIPT_NAME and PATH_INFO."""
        whole, prefix = script + path, self._prefix
        if prefix and whole.startswith(prefix) and whole[len(prefix):len(prefix) + 1] in ("", "/"):
            script = prefix
        return script, whole if self._is_whole else whole[len(script):]


class Scopes:
    """Makes scopes."""

    def __init__(self, mount):
        self._mount = mount
        self._plans = {}

    def scope(self, names, values, state):
        plan = self._plans.get(names)
        if plan is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            plan = self._plans[names] = Plan(names)
        values = values.split(b"\0")
        place = plan.place

        def value(name, default):
            at = place.get(name)
            return default if at is None else values[at]

        headers = [(name, values[at]) for name, at in plan.headers]
        for name, at in plan.body_headers:
            # Empty means unset.
            if values[at]:
                headers.append((name, values[at]))
        script = text(value(b"SCRIPT_NAME", b""))
        path = value(b"PATH_INFO", None)
        if path is None:
            # A web server that sends no PATH_INFO sends the whole path as SCRIPT_NAME.
            path, script = script, ""
        else:
            path = text(path)
        script, path = self._mount.divide(script, path)
        raw_path = value(b"REQUEST_URI", None)
        is_secure = value(b"HTTPS", b"off").lower() in (b"on", b"1") or value(b"REQUEST_SCHEME", b"") == b"https"
        scope = {
            "type": "http",
            "asgi": VERSIONS,
            "http_version": value(b"SERVER_PROTOCOL", b"HTTP/1.1").rpartition(b"/")[2].decode("latin-1"),
            "method": value(b"REQUEST_METHOD", b"GET").decode("latin-1").upper(),
            "scheme": "https" if is_secure else "http",
            "path": path,
            "raw_path": path.encode("utf-8", "surrogateescape") if raw_path is None else raw_path.partition(b"?")[0],
            "query_string": value(b"QUERY_STRING", b""),
            "root_path": script,
            "headers": headers,
            "client": address(value(b"REMOTE_ADDR", b""), value(b"REMOTE_PORT", b"")),
            "server": address(value(b"SERVER_NAME", b"localhost"), value(b"SERVER_PORT", b"80")),
        }
        if plan.is_upgrade:
            scope["extensions"] = {TUNNEL: {}}
        if state is not None:
            scope["state"] = state.copy()
        return scope


def text(value):
    return value.decode("ascii") if value.isascii() else value.decode("utf-8", "surrogateescape")


def address(host, port):
    return (host.decode("latin-1"), int(port) if port.isdigit() else 0) if host else None
