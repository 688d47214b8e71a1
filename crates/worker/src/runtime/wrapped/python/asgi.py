"""ASGI 3: HTTP and lifespan."""

import asyncio
import http
import inspect
import os
import socket
import sys

from forkyard import _WORK_HEADERS, _work

from . import slow
from .abi import ClientGone
from .wsgi import HOP_BY_HOP, INTERNAL_ERROR, is_secure, read_params, report_of

REASONS = {status.value: f"Status: {status.value} {status.phrase}".encode() for status in http.HTTPStatus}
DROPPED = {name.encode() for name in HOP_BY_HOP}
WORK_HEADERS = {name.encode() for name in _WORK_HEADERS}
VERSIONS = {"version": "3.0", "spec_version": "2.3"}


def scope_of(params, state):
    headers = []
    for name, value in params.items():
        # nginx says what describes the body twice, once in CGI's way.
        if name.startswith("HTTP_") and name not in ("HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH"):
            headers.append((name[5:].replace("_", "-").lower().encode("latin-1"), value.encode("latin-1")))
    for name, header in (("CONTENT_TYPE", b"content-type"), ("CONTENT_LENGTH", b"content-length")):
        if name in params:
            headers.append((header, params[name].encode("latin-1")))
    decode = lambda text: text.encode("latin-1").decode("utf-8", "surrogateescape")
    path = params["PATH_INFO"]
    scope = {
        "type": "http",
        "asgi": VERSIONS,
        "http_version": params["SERVER_PROTOCOL"].rpartition("/")[2],
        "method": params["REQUEST_METHOD"].upper(),
        "scheme": "https" if is_secure(params) else "http",
        "path": path if path.isascii() else decode(path),
        "raw_path": params.get("REQUEST_URI", path).partition("?")[0].encode("latin-1"),
        "query_string": params["QUERY_STRING"].encode("latin-1"),
        "root_path": decode(params["SCRIPT_NAME"]),
        "headers": headers,
        "client": address(params.get("REMOTE_ADDR"), params.get("REMOTE_PORT")),
        "server": address(params["SERVER_NAME"], params["SERVER_PORT"]),
    }
    if state is not None:
        scope["state"] = state.copy()
    return scope


def address(host, port):
    return (host, int(port) if port and port.isdigit() else 0) if host else None


class Exchange:
    """A request and its answer."""

    def __init__(self, loop, requests, request):
        self._loop, self._requests, self._request = loop, requests, request
        self._head = None
        self.is_sent = self.is_complete = False
        self._body_ended = self._is_gone = False
        self._over = None
        self._reader = None

    async def serve(self, application, prefix, state):
        params = read_params(self._requests, self._request, prefix)
        scope = scope_of(params, state)
        self._is_head = scope["method"] == "HEAD"
        length = params.get("CONTENT_LENGTH", "")
        self._body_left = int(length) if length.isdigit() else None
        await application(scope, self.receive, self.send)
        if not self.is_complete and not self._is_gone:
            raise RuntimeError("the application returned before its answer was complete")

    def close(self):
        """The request is no more."""
        self._request = None
        self.is_complete = True
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def receive(self):
        while not self._body_ended and not self._is_gone and self._request:
            try:
                data = self._requests.read_now(self._request)
            except ClientGone:
                self._is_gone = True
                break
            if data is None:
                await self._readable()
                continue
            if self._body_left is not None:
                self._body_left -= len(data)
            self._body_ended = not data or (self._body_left is not None and self._body_left <= 0)
            return {"type": "http.request", "body": data, "more_body": not self._body_ended}
        while not self.is_complete and not self._is_gone:
            await self._readable()
            if not self.is_complete and not self._is_gone and not self._look_if_gone():
                # The client has something else to say; it is heard when this request is over.
                await asyncio.shield(self._end())
        return {"type": "http.disconnect"}

    def _end(self):
        if self._over is None:
            self._over = self._loop.create_future()
            if self.is_complete:
                self._over.set_result(None)
        return self._over

    async def _readable(self):
        """Waits until the connection has something to read, or the answer is over."""
        descriptor = self._requests.connection(self._request) if self._request else -1
        if descriptor < 0:
            self._is_gone = True
            return
        if self._reader is None:
            self._reader = reader = self._loop.create_future()
            self._loop.add_reader(descriptor, lambda: reader.done() or reader.set_result(None))
        try:
            await asyncio.wait({self._reader, self._end()}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._reader is not None:
                self._loop.remove_reader(descriptor)
                self._reader.cancel()
                self._reader = None

    def _look_if_gone(self):
        descriptor = self._requests.connection(self._request)
        if descriptor >= 0:
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                try:
                    self._is_gone = connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
                except BlockingIOError:
                    return True
                except OSError:
                    self._is_gone = True
        return self._is_gone

    async def send(self, message):
        kind = message["type"]
        if kind == "http.response.start":
            if self._head is not None:
                raise RuntimeError("http.response.start was sent before")
            self._head = self._head_of(message)
        elif kind == "http.response.body":
            if self._head is None:
                raise RuntimeError("http.response.body was sent before http.response.start")
            if self.is_complete:
                if self._request is None or self._is_gone:
                    return
                raise RuntimeError("the answer was complete already")
            self._send_body(message.get("body", b""), message.get("more_body", False))
            if message.get("more_body", False):
                # Others have their turn, above all whoever waits for the client to leave.
                await asyncio.sleep(0)
        else:
            raise RuntimeError(f"{kind!r} can't be sent over FastCGI")

    def _head_of(self, message):
        status = message["status"]
        lines = [REASONS.get(status) or b"Status: %d Unknown" % status]
        for name, value in message.get("headers", ()):
            lower = name.lower()
            if lower in WORK_HEADERS:
                if _work and self._request:
                    self._requests.want_work(self._request)
            elif lower not in DROPPED:
                lines.append(bytes(name) + b": " + bytes(value))
        text = b"\r\n".join(lines)
        if text.count(b"\n") != len(lines) - 1 or text.count(b"\r") != len(lines) - 1 or b"\0" in text:
            raise ValueError("a header has a line break or a NUL in it")
        self._bodiless = self._is_head or status in (204, 304)
        return text + b"\r\n\r\n"

    def _send_body(self, data, more):
        if self._is_gone:
            self.is_complete = not more
            return
        data = b"" if self._bodiless else bytes(data)
        if not self.is_sent:
            self.is_sent = True
            data = self._head + data
        try:
            if data:
                self._requests.write(self._request, data)
            if more:
                self._requests.flush(self._request)
            else:
                self.is_complete = True
                self._requests.end(self._request)
        except ClientGone:
            self._is_gone = True
        if not more:
            # Nobody may have to wait for what the application does after its answer. One that returns at once has returned
            # before the second turn of the loop.
            self._loop.call_soon(self._loop.call_soon, self._let_go)
            if self._over is not None and not self._over.done():
                self._over.set_result(None)

    def _let_go(self):
        if self._request:
            self._requests.finish(self._request)

    def fail(self, report):
        has_begun, self.is_sent = self.is_sent, True
        if not has_begun:
            # Before the errors: nginx has little room for them ahead of the head.
            self._requests.write(self._request, INTERNAL_ERROR)
        sys.stderr.write(report)
        sys.stderr.flush()
        self._requests.write_error(self._request, report)
        if has_begun:
            self._requests.break_off(self._request)


class Lifespan:
    """The application's own beginning and end, in each worker."""

    def __init__(self, loop, application):
        self._loop = loop
        self.state = {}
        self._in = asyncio.Queue()
        self._failure = None
        self._application = application
        self._task = None
        self._told = {}

    async def _run(self):
        scope = {"type": "lifespan", "asgi": VERSIONS, "state": self.state}
        await self._application(scope, self._in.get, self._send)

    async def _send(self, message):
        step, _, outcome = message["type"].removeprefix("lifespan.").partition(".")
        told = self._told.get(step)
        if told and not told.done():
            told.set_result((outcome, message.get("message", "")))

    async def _step(self, step):
        """What came of a step; None: the application knows of none."""
        told = self._told[step] = self._loop.create_future()
        self._in.put_nowait({"type": f"lifespan.{step}"})
        await asyncio.wait({told, self._task}, return_when=asyncio.FIRST_COMPLETED)
        return told.result() if told.done() else None

    async def begin(self):
        self._task = self._loop.create_task(self._run())
        outcome = await self._step("startup")
        if outcome is None:
            # As the specification has it: an application that raises here does without.
            if self._task.done() and not self._task.cancelled():
                self._task.exception()
            self._task = None
        elif outcome[0] == "failed":
            raise RuntimeError(f"the application's start failed: {outcome[1]}")

    async def end(self):
        if self._task is None:
            return
        outcome = await self._step("shutdown")
        if outcome is not None and outcome[0] == "failed":
            sys.stderr.write(f"the application's end failed: {outcome[1]}\n")
        if self._task.done() and self._task.exception():
            sys.stderr.write(report_of(self._task.exception()))


class Server:
    """Answers a worker's requests, on an event loop of the worker's own."""

    def __init__(self, requests, application):
        self._requests, self._application = requests, application
        self._prefix = os.environ.get("SCRIPT_NAME", "").rstrip("/")

    def begin(self, questions):
        try:
            import uvloop
        except ImportError:
            self._loop = asyncio.new_event_loop()
        else:
            self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._tasks = slow.Tasks(self._loop, questions) if questions is not None else None
        self._loop.run_until_complete(self._begin())

    async def _begin(self):
        self._lifespan = Lifespan(self._loop, self._application)
        await self._lifespan.begin()

    def end(self):
        loop, self._loop = self._loop, None
        if loop is None:
            return
        if self._tasks is not None:
            self._tasks.end()
        loop.run_until_complete(self._lifespan.end())
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        asyncio.set_event_loop(None)

    def work(self, function):
        self._loop.run_until_complete(self._work(function))

    async def _work(self, function):
        result = function()
        if inspect.isawaitable(result):
            await result

    def answer(self, request):
        exchange = Exchange(self._loop, self._requests, request)
        try:
            state = self._lifespan.state
            self._loop.run_until_complete(exchange.serve(self._application, self._prefix, state))
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
            exchange.close()
