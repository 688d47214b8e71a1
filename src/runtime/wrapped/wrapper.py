"""Loads a WSGI application and forks workers from this process.

Started by forkyard: argv[1] is its library, whose C functions (forkyard.h) speak to the master and serve.
"""

import ctypes
import gc
import importlib
import json
import os
import sys
import traceback
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ssize_t, c_uint32, c_uint64, c_void_p

READ_BYTES = 64 * 1024
USUAL_FILES = ["passenger_wsgi.py", "wsgi.py", "app.py"]
HOP_BY_HOP = {"connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade"}


class Text(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]

    def bytes(self):
        return ctypes.string_at(self.data, self.length)


def function(result, *arguments):
    return ctypes.CFUNCTYPE(result, *arguments)


class Api(ctypes.Structure):
    """struct forkyard_api."""

    _fields_ = [
        ("version", c_uint32),
        ("size", c_uint32),
        ("param_count", function(c_size_t, c_void_p)),
        ("param_at", function(c_int, c_void_p, c_size_t, POINTER(Text), POINTER(Text))),
        ("param", function(c_int, c_void_p, c_char_p, c_size_t, POINTER(Text))),
        ("read_body", function(c_ssize_t, c_void_p, c_void_p, c_size_t)),
        ("write", function(c_ssize_t, c_void_p, c_char_p, c_size_t)),
        ("write_error", function(c_ssize_t, c_void_p, c_char_p, c_size_t)),
        ("flush", function(c_int, c_void_p)),
        ("finish", function(c_int, c_void_p)),
        ("is_finished", function(c_int, c_void_p)),
        ("set_stage", function(None, c_void_p, c_uint32)),
        ("describe", function(None, c_void_p, c_void_p)),
        ("set_memory", function(None, c_void_p, c_uint64)),
        ("end", function(c_int, c_void_p)),
    ]


ANSWER = function(None, c_void_p, c_void_p)


class Library:
    """The functions of a preloader, typed."""

    def __init__(self, path):
        # Calls that wait let other threads of the application run; the fork itself must not.
        free, held = ctypes.CDLL(path), ctypes.PyDLL(path)

        def typed(library, name, result, *arguments):
            found = getattr(library, name)
            found.restype, found.argtypes = result, arguments
            return found

        self.begin = typed(free, "forkyard_preloader_begin", c_void_p)
        self.application = typed(free, "forkyard_preloader_application", Text, c_void_p)
        self.settle = typed(free, "forkyard_preloader_settle", c_int, c_void_p)
        self.ready = typed(free, "forkyard_preloader_ready", None, c_void_p, c_char_p, c_size_t)
        self.failed = typed(free, "forkyard_preloader_failed", None, c_void_p, c_char_p, c_size_t)
        self.wait = typed(free, "forkyard_preloader_wait", c_int, c_void_p)
        self.fork = typed(held, "forkyard_preloader_fork", c_int, c_void_p)
        self.run = typed(free, "forkyard_worker_run", c_int, c_void_p, ANSWER, c_void_p)
        self.api = typed(free, "forkyard_api_v1", POINTER(Api))().contents


class ClientGone(ConnectionError):
    """Nobody is there to read the answer."""


class Body:
    """wsgi.input."""

    def __init__(self, api, request):
        self._api, self._request = api, request
        self._buffer = ctypes.create_string_buffer(READ_BYTES)
        self._rest = b""
        self._ended = False

    def _more(self):
        if self._ended:
            return b""
        count = self._api.read_body(self._request, self._buffer, READ_BYTES)
        if count < 0:
            raise ClientGone("the client is gone, or silent for too long")
        self._ended = count == 0
        return ctypes.string_at(self._buffer, count)

    def read(self, size=-1):
        if size is None or size < 0:
            parts = [self._rest]
            while part := self._more():
                parts.append(part)
            self._rest = b""
            return b"".join(parts)
        parts, length = [self._rest], len(self._rest)
        while length < size and (part := self._more()):
            parts.append(part)
            length += len(part)
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]

    def readline(self, size=-1):
        limit = sys.maxsize if size is None or size < 0 else size
        parts, length = [], 0
        while length < limit:
            if not self._rest:
                self._rest = self._more()
                if not self._rest:
                    break
            end = self._rest.find(b"\n") + 1 or len(self._rest)
            end = min(end, limit - length)
            part, self._rest = self._rest[:end], self._rest[end:]
            parts.append(part)
            length += len(part)
            if part.endswith(b"\n"):
                break
        return b"".join(parts)

    def readlines(self, hint=-1):
        lines, length = [], 0
        while line := self.readline():
            lines.append(line)
            length += len(line)
            if 0 < hint <= length:
                break
        return lines

    def __iter__(self):
        while line := self.readline():
            yield line


class Errors:
    """wsgi.errors: the web server's error log."""

    def __init__(self, api, request):
        self._api, self._request = api, request

    def write(self, text):
        data = text.encode("utf-8", "backslashreplace")
        self._api.write_error(self._request, data, len(data))
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        """Sent with the answer."""


class Answer:
    """One answer: start_response and what follows (PEP 3333)."""

    def __init__(self, api, request):
        self._api, self._request = api, request
        self._head = None
        self.is_sent = False

    def start(self, status, headers, exc_info=None):
        if exc_info:
            try:
                if self.is_sent:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self._head is not None:
            raise AssertionError("start_response was called before, and without exc_info")
        lines = [f"Status: {status}"]
        for name, value in headers:
            if "\n" in value or "\r" in value or "\n" in name or "\r" in name:
                raise ValueError(f"a line break in header {name!r}")
            if name.lower() not in HOP_BY_HOP:
                lines.append(f"{name}: {value}")
        self._head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        return self.write_now

    def _put(self, data):
        if self._api.write(self._request, data, len(data)) < 0:
            raise ClientGone("the client is gone")

    def write(self, data):
        if self._head is None:
            raise AssertionError("write before start_response")
        if not self.is_sent:
            # Headers may still be changed until there is something to send.
            if not data:
                return
            self.is_sent = True
            data = self._head + data
        if data:
            self._put(data)

    def write_now(self, data):
        self.write(data)
        self._api.flush(self._request)

    def end(self):
        if self._head is None:
            raise AssertionError("the application returned without calling start_response")
        if not self.is_sent:
            self.is_sent = True
            self._put(self._head)


def environ(api, request):
    names, values, found = Text(), Text(), {}
    for index in range(api.param_count(request)):
        api.param_at(request, index, byref(names), byref(values))
        found[names.bytes().decode("latin-1")] = values.bytes().decode("latin-1")
    found.pop("HTTP_PROXY", None)
    # nginx's SCRIPT_NAME is the whole path; an application at the root has none, and all of it is PATH_INFO.
    if not found.get("PATH_INFO"):
        found["PATH_INFO"], found["SCRIPT_NAME"] = found.get("SCRIPT_NAME", ""), ""
    for name, value in (("REQUEST_METHOD", "GET"), ("SERVER_NAME", "localhost"), ("SERVER_PORT", "80")):
        found.setdefault(name, value)
    found.setdefault("QUERY_STRING", "")
    found.setdefault("SERVER_PROTOCOL", "HTTP/1.1")
    is_secure = found.get("HTTPS", "off").lower() in ("on", "1") or found.get("REQUEST_SCHEME") == "https"
    found["wsgi.version"] = (1, 0)
    found["wsgi.url_scheme"] = "https" if is_secure else "http"
    found["wsgi.input"] = Body(api, request)
    found["wsgi.errors"] = Errors(api, request)
    found["wsgi.multithread"] = False
    found["wsgi.multiprocess"] = True
    found["wsgi.run_once"] = False
    found["wsgi.input_terminated"] = True
    return found


def serve(api, application, request):
    answer = Answer(api, request)
    try:
        parts = application(environ(api, request), answer.start)
        try:
            # A whole body is sent at once, one that is made piece by piece as it comes.
            put = answer.write if isinstance(parts, (list, tuple)) else answer.write_now
            for part in parts:
                put(part)
            answer.end()
        finally:
            if hasattr(parts, "close"):
                parts.close()
    except ClientGone:
        pass
    except BaseException as error:
        report = traceback.format_exc()
        sys.stderr.write(report)
        sys.stderr.flush()
        Errors(api, request).write(report)
        if not answer.is_sent:
            data = b"Status: 500 Internal Server Error\r\nContent-Type: text/plain\r\n\r\nInternal Server Error\n"
            api.write(request, data, len(data))
        if not isinstance(error, Exception):
            raise


def load(settings):
    """The application, from `module:callable`, a file, or the usual file."""
    root = settings["root"]
    os.chdir(root)
    sys.path.insert(0, root)
    entry = settings.get("entry")
    if entry is None:
        entry = next((name for name in USUAL_FILES if os.path.exists(name)), None)
        if entry is None:
            raise FileNotFoundError(f"none of {', '.join(USUAL_FILES)} is in {root}; name what is to be loaded in application.entry")
    name, _, attribute = entry.partition(":")
    name = name.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(name)
    for candidate in [attribute] if attribute else ["application", "app"]:
        found = module
        try:
            for part in candidate.split("."):
                found = getattr(found, part)
        except AttributeError:
            continue
        if callable(found):
            return found
    wanted = attribute or "application"
    raise AttributeError(f"{module.__file__} has no callable named {wanted}; name it in application.entry, as {name}:NAME")


def main():
    library = Library(sys.argv[1])
    preloader = library.begin()
    if not preloader:
        return 0
    settings = json.loads(library.application(preloader).bytes())
    (settings,) = settings.values()
    if library.settle(preloader) != 0:
        return 70
    sys.argv = [sys.argv[0]]
    try:
        application = load(settings)
    except BaseException:
        message = traceback.format_exc().encode("utf-8", "backslashreplace")
        library.failed(preloader, message, len(message))
        return 70
    api = library.api

    def answer(request, _):
        try:
            serve(api, application, request)
        except SystemExit:
            # The application asked for its process to end; the answer is told first.
            api.finish(request)
            sys.stderr.flush()
            os._exit(0)

    callback = ANSWER(answer)
    version = sys.version.split()[0].encode()
    # What is there now is shared by all workers: nothing of it is looked at by their garbage collectors.
    gc.collect()
    gc.freeze()
    library.ready(preloader, version, len(version))
    before, child, parent = (
        getattr(ctypes.pythonapi, name) for name in ("PyOS_BeforeFork", "PyOS_AfterFork_Child", "PyOS_AfterFork_Parent")
    )
    while library.wait(preloader):
        sys.stdout.flush()
        sys.stderr.flush()
        before()
        pid = library.fork(preloader)
        if pid != 0:
            parent()
            continue
        child()
        code = library.run(preloader, callback, None)
        run_exit_handlers()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return 0


def run_exit_handlers():
    import atexit

    try:
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main())
