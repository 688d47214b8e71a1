"""WSGI 1.0 (PEP 3333), one request at a time; threads.py serves several."""

import os
import re
import sys
import traceback

from forkyard import _WORK_HEADERS, _work

from . import slow
from .abi import ANSWER, ClientGone
from .body import Body

HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade",
}
INTERNAL_ERROR = (
    b"Status: 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 22\r\n\r\nInternal Server Error\n"
)
FILE_BLOCK_BYTES = 256 * 1024
STATUS = re.compile("[1-9][0-9]{2}( .*)?")
# Status texts that were checked; bounded, because applications may invent reasons.
CHECKED = set()
MOST_CHECKED = 1000
# Values that do not depend on the web server.
USUAL = {
    "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "QUERY_STRING": "", "SERVER_NAME": "localhost", "SERVER_PORT": "80",
    "SERVER_PROTOCOL": "HTTP/1.1",
}


class FileWrapper:
    """wsgi.file_wrapper: the blocks of a file."""

    def __init__(self, file, block_size=FILE_BLOCK_BYTES):
        self._file, self._block_size = file, max(block_size, FILE_BLOCK_BYTES)
        if hasattr(file, "close"):
            self.close = file.close

    def __iter__(self):
        while block := self._file.read(self._block_size):
            yield block


CONSTANT = {
    "wsgi.version": (1, 0),
    "wsgi.multithread": False,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
    "wsgi.input_terminated": True,
    "wsgi.file_wrapper": FileWrapper,
}


class Errors:
    """wsgi.errors: the web server's error log, and standard error, which the daemon may log."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange):
        self._exchange = exchange

    def write(self, text):
        sys.stderr.write(text)
        exchange = self._exchange
        if exchange.request:
            exchange.requests.write_error(exchange.request, text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        sys.stderr.flush()


def check_status(status):
    if not isinstance(status, str) or not STATUS.fullmatch(status):
        raise ValueError(f"{status!r} is no status: write three digits from 100, a space and a reason, such as '200 OK'")
    if len(CHECKED) >= MOST_CHECKED:
        CHECKED.clear()
    CHECKED.add(status)


def length_of(text):
    """The number in a Content-Length, of text or bytes."""
    digits = text.strip()
    if not digits.isdigit() or not digits.isascii():
        raise ValueError(f"{text!r} is no Content-Length: write the number of bytes in digits")
    return int(digits)


def difference(left):
    """Describes a body that does not end at its Content-Length. `left`: the missing bytes; negative: the surplus."""
    if left > 0:
        return f"the body is {left} bytes shorter than its Content-Length"
    return f"the body is longer than its Content-Length by {-left} bytes or more, which were not sent"


class Exchange:
    """A request and its answer. Drops the request at the end of the answer, even if something still refers to this
    object."""

    __slots__ = ("requests", "request", "is_head", "is_sent", "is_ended", "_head", "_headers", "_bodiless", "_left")

    def __init__(self, requests, request):
        self.requests, self.request = requests, request
        self.is_head = self.is_sent = self.is_ended = False
        self._head = self._left = None

    def read_more(self):
        return self.requests.read(self.request) if self.request else b""

    def answer(self, application, environ):
        """Calls the application and sends its answer."""
        self.is_head = environ["REQUEST_METHOD"] == "HEAD"
        # A job ends with all its work; a client need not wait for the rest.
        is_job = "FORKYARD_JOB_ID" in environ
        parts = application(environ, self.start_response)
        try:
            if isinstance(parts, (list, tuple)) and len(parts) > 0 and not is_job:
                self.write_all(parts)
            else:
                for part in parts:
                    if not self.write_now(part):
                        break
            if not is_job:
                self.end()
        finally:
            if hasattr(parts, "close"):
                parts.close()
        self.end()

    def start_response(self, status, headers, exc_info=None):
        if exc_info:
            try:
                if self.is_sent:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self._head is not None:
            raise AssertionError("start_response was called before, and without exc_info")
        if status not in CHECKED:
            check_status(status)
        lines, left = ["Status: " + status], None
        for name, value in headers:
            lower = name.lower()
            if lower in HOP_BY_HOP:
                continue
            if lower == "content-length":
                left = length_of(value)
            elif lower in _WORK_HEADERS:
                self.want_work()
                continue
            lines.append(name + ": " + value)
        text = "\r\n".join(lines)
        if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1 or "\0" in text:
            raise ValueError("the status or a header has a line break or a NUL in it")
        self._head = text.encode("latin-1")
        self._left = left
        self._bodiless = self.is_head or status[:3] in ("204", "304") or status[:1] == "1"
        return self.write_now

    def want_work(self):
        if _work and self.request:
            self.requests.want_work(self.request)

    def write(self, data, is_last=False):
        """Buffers data, to be sent later. Returns False if no more is wanted."""
        if self._head is None:
            raise AssertionError("the application gave a part of the body before it called start_response")
        if not isinstance(data, bytes):
            if not isinstance(data, (bytearray, memoryview)):
                raise TypeError(f"a part of the body is {type(data).__name__}, not bytes")
            data = bytes(data)
        if not data:
            # Headers may change until there is something to send.
            return True
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                # As PEP 3333 asks: no more bytes than Content-Length.
                data = data[:self._left]
        if self._bodiless:
            data = b""
        if not self.is_sent:
            self.is_sent = True
            data = self._head + b"\r\n\r\n" + data
        if is_last:
            self.is_ended = True
            self.requests.write_last(self.request, data)
        elif data:
            self.requests.write(self.request, data)
        return not self._bodiless and (self._left is None or self._left >= 0)

    def write_now(self, data):
        """`write`, and flushes before returning, unless the answer ends at once."""
        if not self.request:
            raise AssertionError("the answer is over")
        more = self.write(data)
        if self._left is None or self._left > 0:
            self.requests.flush(self.request)
        return more

    def write_all(self, parts):
        """Sends the whole body."""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if self._head is not None and self._left is None and not self.is_sent and not self._is_without_length():
            self._head += b"\r\nContent-Length: %d" % len(data)
        # An error is reported before the end.
        self.write(data, self._left is None or self._left == len(data) or self._bodiless)

    def _is_without_length(self):
        return self._bodiless and not self.is_head

    def end(self):
        if self.is_ended:
            return
        if self._head is None:
            raise AssertionError("the application returned without calling start_response")
        self.is_ended = True
        if not self.is_sent:
            self.is_sent = True
            self.requests.write(self.request, self._head + b"\r\n\r\n")
        if self._left and not self._bodiless:
            Errors(self).write(difference(self._left) + "\n")
        self.requests.end(self.request)

    def fail(self, report):
        """Makes the web server see a failed answer, whatever was sent."""
        has_begun, self.is_sent = self.is_sent, True
        if not has_begun:
            # nginx has little room for errors before the head and would answer 502 unread.
            self.requests.write(self.request, INTERNAL_ERROR)
        errors = Errors(self)
        errors.write(report)
        errors.flush()
        if has_begun:
            # Breaking off drops what was not sent.
            self.requests.flush(self.request)
            self.requests.break_off(self.request)


def split_path(environ, prefix):
    """SCRIPT_NAME and PATH_INFO. A web server that sends no PATH_INFO sends the whole path as SCRIPT_NAME."""
    if "PATH_INFO" not in environ:
        environ["PATH_INFO"], environ["SCRIPT_NAME"] = environ["SCRIPT_NAME"], ""
    if prefix:
        path = environ["SCRIPT_NAME"] + environ["PATH_INFO"]
        if path.startswith(prefix) and path[len(prefix):len(prefix) + 1] in ("", "/"):
            environ["SCRIPT_NAME"], environ["PATH_INFO"] = prefix, path[len(prefix):]


def is_secure(params):
    return params.get("HTTPS", "off").lower() in ("on", "1") or params.get("REQUEST_SCHEME") == "https"


def read_params(requests, request, prefix):
    found = USUAL.copy()
    words = iter(requests.params(request))
    found.update(zip(words, words))
    put_right(found, prefix)
    return found


def put_right(found, prefix):
    """Removes values that break programs or that a client could fake, and splits the path."""
    for name in ("CONTENT_LENGTH", "CONTENT_TYPE"):
        # Empty means unset; some programs only test for presence.
        if not found.get(name, True):
            del found[name]
    found.pop("HTTP_PROXY", None)
    split_path(found, prefix)


def report_of(error):
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


class Server:
    """Answers a worker's requests, one after the other."""

    # A worker that should create a preloader is asked once more.
    has_served = False

    def __init__(self, requests, application):
        self._requests, self._application = requests, application
        self._callback = ANSWER(lambda request, _: self.answer(request))
        # Where the application is mounted, as in gunicorn.
        self._prefix = os.environ.get("SCRIPT_NAME", "").rstrip("/")

    def begin(self, library, preloader):
        """The worker."""
        self._questions = slow.begin(library, preloader)
        return library.begin_worker(preloader)

    def serve(self, library, worker):
        """Runs until the worker has something else to do (forkyard_worker_serve)."""
        return library.serve(worker, self._callback, None)

    def end(self):
        """The worker serves no more."""

    def end_copy(self):
        """Stops answering questions in a copy of the worker."""
        slow.end(self._questions)

    def answer(self, request):
        exchange = Exchange(self._requests, request)
        try:
            self._serve(exchange, request)
        except ClientGone:
            pass
        except SystemExit:
            self._requests.retire(request)
            if not exchange.is_sent:
                exchange.fail("the application called sys.exit before it answered\n")
        except BaseException as error:
            try:
                exchange.fail(report_of(error))
            except ClientGone:
                pass
        finally:
            exchange.request = None

    def _serve(self, exchange, request):
        environ = read_params(self._requests, request, self._prefix)
        environ.update(CONSTANT)
        environ["wsgi.url_scheme"] = "https" if is_secure(environ) else "http"
        environ["wsgi.input"] = Body(exchange.read_more)
        environ["wsgi.errors"] = Errors(exchange)
        exchange.answer(self._application, environ)
