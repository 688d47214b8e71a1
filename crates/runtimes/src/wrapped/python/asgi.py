"""ASGI 3 (HTTP and lifespan) on an event loop that serves many requests at a time."""

import asyncio
import ctypes
import functools
import http
import inspect
import os
import signal
import struct
import sys

from forkyard import _WORK_HEADERS, _work

from . import load, slow
from .front import Front
from .abi import Text
from .scope import Mount, Scopes
from .wsgi import HOP_BY_HOP, INTERNAL_ERROR, difference, length_of, report_of

REASONS = {status.value: f"Status: {status.value} {status.phrase}".encode() for status in http.HTTPStatus}
DROPPED = {name.encode() for name in HOP_BY_HOP}
WORK_HEADERS = {name.encode() for name in _WORK_HEADERS}
LIFESPAN = {"version": "3.0", "spec_version": "2.0"}

# forkyard.h
EVENT = struct.Struct("=IIQ")
LENGTHS = struct.Struct("=III")
REQUEST, BODY, GONE, WRITABLE, EXPIRED, WORK, END = range(1, 8)
LAST = 1
IS_FULL, HAS_MORE = 1 << 62, 1 << 61
TAKEN = HAS_MORE - 1
NOT_YET = -2
IS_MORE, HAS_NO_ROOM = 1, 2
# How long cancelled tasks may take after the worker's time is over.
LAST_SECONDS = 0.4
# How long WebSockets may take to close in that time.
CLOSING_SECONDS = 0.1


def unknown(status):
    """The line of a status without a known reason."""
    if not isinstance(status, int) or not 100 <= status <= 999:
        raise ValueError(f"{status!r} is no status: write a number from 100 to 999")
    return b"Status: %d Unknown" % status


class Exchange:
    """A request and its answer."""

    __slots__ = (
        "_server", "_token", "_scope", "_body", "_body_ended", "_head", "_bodiless", "_left", "_waiters", "is_sent",
        "is_complete", "is_gone", "task",
    )

    def __init__(self, server, token, scope, body, body_ended):
        self._server, self._token, self._scope = server, token, scope
        # The body so far; None: nothing new for the application.
        self._body = body if body or body_ended else None
        self._body_ended = body_ended
        self._head = self._left = self._waiters = None
        self._bodiless = scope["method"] == "HEAD"
        self.is_sent = self.is_complete = self.is_gone = False

    async def serve(self, application):
        try:
            await application(self._scope, self.receive, self.send)
            if not self.is_complete and not self.is_gone:
                raise RuntimeError("the application returned before its answer was complete")
        except SystemExit:
            self._server.retire()
            await self._fail("the application called sys.exit before it answered\n")
        except asyncio.CancelledError:
            if not self.is_complete and not self.is_sent:
                await self._fail("the request was cancelled before it was answered\n")
        except BaseException as error:
            await self._fail(report_of(error))
        finally:
            # If the client is gone, the worker has not seen the end of the answer and still counts the request.
            if not self.is_complete or self.is_gone:
                self.is_complete = True
                self._server.abandon(self._token)
            self.wake()

    async def receive(self):
        while self._body is None and not self._body_ended and not self.is_gone and not self.is_complete:
            found, piece = self._server.read(self._token)
            if found == NOT_YET:
                await self._wait()
                # A fast body arrives in small pieces; pass one turn's pieces as one.
                await asyncio.sleep(0)
            elif found < 0:
                self.is_gone = True
            else:
                self._body, self._body_ended = piece, found == 0
        if self._body is not None and not self.is_complete:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": not self._body_ended}
        while not self.is_gone and not self.is_complete:
            await self._wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        kind = message["type"]
        if kind == "http.response.body":
            if self._head is None:
                raise RuntimeError("http.response.body was sent before http.response.start")
            if self.is_complete:
                if self.is_gone:
                    return
                raise RuntimeError("the answer was complete already")
            data = message.get("body", b"")
            more = message.get("more_body", False)
            data = b"" if self._bodiless else data if type(data) is bytes else bytes(data)
            wrong = 0
            if self._left is not None and not self._bodiless:
                self._left -= len(data)
                if self._left < 0:
                    data, more = data[:self._left], False
                wrong = 0 if more else self._left
            if not self.is_sent:
                self.is_sent = True
                data = self._head + data
            await self._send(data, not more)
            if wrong and not self.is_gone:
                raise RuntimeError(difference(wrong))
            if more:
                # Yield to other tasks, above all those that wait for a disconnect.
                await asyncio.sleep(0)
        elif kind == "http.response.start":
            if self._head is not None:
                raise RuntimeError("http.response.start was sent before")
            self._head = self._head_of(message)
        else:
            raise RuntimeError(f"{kind!r} can't be sent over FastCGI")

    async def _send(self, data, is_last):
        """Sends all of it; waits while the client doesn't read."""
        at, size = 0, len(data)
        while not self.is_gone:
            taken = self._server.send(self._token, data, at, size, LAST if is_last else 0)
            if taken < 0:
                self.is_gone = True
                self.wake()
                break
            at += taken & TAKEN
            if not taken & IS_FULL:
                break
            await self._wait()
            if at == size and not is_last:
                return
        if is_last:
            self.is_complete = True
            self.wake()

    def _head_of(self, message):
        status = message["status"]
        lines = [REASONS.get(status) or unknown(status)]
        for name, value in message.get("headers", ()):
            lower = name.lower()
            if lower in WORK_HEADERS:
                if _work:
                    self._server.want_work()
            elif lower not in DROPPED:
                if lower == b"content-length":
                    self._left = length_of(value)
                lines.append(b"%b: %b" % (name, value))
        text = b"\r\n".join(lines)
        if text.count(b"\n") != len(lines) - 1 or text.count(b"\r") != len(lines) - 1 or b"\0" in text:
            raise ValueError("a header has a line break or a NUL in it")
        self._bodiless = self._bodiless or status in (204, 304)
        return text + b"\r\n\r\n"

    async def _fail(self, report):
        sys.stderr.write(report)
        sys.stderr.flush()
        if self.is_complete or self.is_gone:
            return
        has_begun, self.is_sent = self.is_sent, True
        if has_begun:
            await self._send_error(report)
            # Giving the request up drops what was not sent.
            await self._send(b"", False)
        else:
            # Before the errors: nginx has little room for them before the head.
            self._server.send(self._token, INTERNAL_ERROR, 0, len(INTERNAL_ERROR), 0)
            await self._send_error(report)
            self._server.send(self._token, b"", 0, 0, LAST)
            self.is_complete = True

    async def _send_error(self, text):
        data = text.encode("utf-8", "backslashreplace")
        while data and not self.is_gone:
            taken = self._server.send_error(self._token, data)
            if taken < 0:
                self.is_gone = True
                break
            data = data[taken & TAKEN:]
            if taken & IS_FULL:
                await self._wait()

    async def _wait(self):
        """Waits for an event of this request."""
        waiter = self._server.loop.create_future()
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)
        await waiter

    def wake(self):
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def lose_client(self):
        self.is_gone = True
        self.wake()

    def expire(self):
        self.is_gone = self.is_complete = True
        self.wake()
        self.task.cancel()


class Lifespan:
    """The application's lifespan in each worker."""

    def __init__(self, loop, application):
        self._loop = loop
        self.state = {}
        self._in = asyncio.Queue()
        self._failure = None
        self._application = application
        self.task = None
        self._told = {}

    async def _run(self):
        scope = {"type": "lifespan", "asgi": LIFESPAN, "state": self.state}
        await self._application(scope, self._in.get, self._send)

    async def _send(self, message):
        step, _, outcome = message["type"].removeprefix("lifespan.").partition(".")
        told = self._told.get(step)
        if told and not told.done():
            told.set_result((outcome, message.get("message", "")))

    async def _step(self, step):
        """The result of a step; None: the application does not support lifespan."""
        told = self._told[step] = self._loop.create_future()
        self._in.put_nowait({"type": f"lifespan.{step}"})
        await asyncio.wait({told, self.task}, return_when=asyncio.FIRST_COMPLETED)
        return told.result() if told.done() else None

    async def begin(self):
        self.task = self._loop.create_task(self._run())
        outcome = await self._step("startup")
        if outcome is None:
            # As specified: an application that raises here runs without lifespan.
            if self.task.done() and not self.task.cancelled():
                self.task.exception()
            self.task = None
        elif outcome[0] == "failed":
            raise RuntimeError(f"the application's start failed: {outcome[1]}")

    async def end(self):
        if self.task is None:
            return
        outcome = await self._step("shutdown")
        if outcome is not None and outcome[0] == "failed":
            sys.stderr.write(f"the application's end failed: {outcome[1]}\n")
        if self.task.done() and self.task.exception():
            sys.stderr.write(report_of(self.task.exception()))


class Server:
    """Answers a worker's requests on its event loop."""

    has_served = True

    def __init__(self, requests, application):
        self._application = application
        self._mount = Mount(os.environ.get("SCRIPT_NAME", "").rstrip("/"))
        self._scopes = Scopes(self._mount)
        self._exchanges = {}
        # For each request whose application has not returned.
        self._running = {}
        # The HTTP front, if there is one.
        self._front = None

    def begin(self, library, preloader):
        """The worker, after the application's startup."""
        self._questions = slow.begin(library, preloader)
        try:
            import uvloop
        except ImportError:
            self.loop = asyncio.new_event_loop()
        else:
            self.loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self._tasks = slow.Tasks(self.loop, self._questions, self._running) if self._questions is not None else None
        self.loop.run_until_complete(self._begin())
        return library.begin_concurrent(preloader)

    async def _begin(self):
        self._lifespan = Lifespan(self.loop, self._application)
        await self._lifespan.begin()

    def serve(self, library, worker):
        """Runs until the worker must exit. Returns True if it should create a preloader first."""
        self._library, self._worker = library, worker
        # In a worker that was forked from another one they may be set.
        self._promotes = self._will_turn = self._is_over = False
        if self._front is not None:
            self._front.is_closing = False
        self._text = Text()
        self._at_text = ctypes.byref(self._text)
        descriptor = library.descriptor(worker)
        if library.http(worker) >= 0:
            self._front = self._front or self._new_front()
            self._front.open(library, worker)
        self.loop.add_signal_handler(signal.SIGTERM, self._terminate)
        self.loop.add_reader(descriptor, self._turn)
        self._turn_soon()
        while not self._is_over:
            try:
                self.loop.run_forever()
            except SystemExit:
                # Set by a task of the application.
                self.retire()
        self.loop.remove_reader(descriptor)
        if self._front is not None:
            self._front.close()
        self.loop.remove_signal_handler(signal.SIGTERM)
        return self._promotes

    def _turn_soon(self):
        if not self._will_turn:
            self._will_turn = True
            self.loop.call_soon(self._turn_again)

    def _turn_again(self):
        self._will_turn = False
        self._turn()

    def _turn(self):
        more = self._library.turn(self._worker, self._at_text)
        text = self._text
        if text.length:
            self._hear(ctypes.string_at(text.data, text.length))
        if self._front is not None:
            self._front.watch(not more & HAS_NO_ROOM)
        if more & IS_MORE:
            self._turn_soon()

    def _hear(self, data):
        at, end = 0, len(data)
        while at < end:
            kind, length, token = EVENT.unpack_from(data, at)
            at += EVENT.size
            if kind == REQUEST:
                self._begin_request(token, data, at)
            elif kind == END:
                self._promotes = token == 1
                self.loop.create_task(self._end(), name="forkyard")
            elif kind == WORK:
                self.loop.create_task(self._do_work(), name="forkyard")
            else:
                exchange = self._exchanges.get(token)
                if exchange is None:
                    if kind == EXPIRED and self._front is not None:
                        self._front.expire(token)
                elif kind == BODY or kind == WRITABLE:
                    exchange.wake()
                elif kind == EXPIRED:
                    exchange.expire()
                else:
                    exchange.lose_client()
            at += length

    def _begin_request(self, token, data, at):
        names, values, is_whole = LENGTHS.unpack_from(data, at)
        _, length, _ = EVENT.unpack_from(data, at - EVENT.size)
        begin = at + LENGTHS.size
        middle = begin + names
        body = middle + values
        scope = self._scopes.scope(data[begin:middle], data[middle:body], self._lifespan.state)
        exchange = Exchange(self, token, scope, data[body:at + length], is_whole == 1)
        self._exchanges[token] = exchange
        application = self._tunnel(token) if "extensions" in scope else self._application
        task = exchange.task = self.loop.create_task(exchange.serve(application))
        self._running[task] = token
        task.add_done_callback(self._returned)

    def _new_front(self):
        return Front(self.loop, self._application, self._lifespan.state, self._running, self._mount, self._turn_soon)

    def _tunnel(self, token):
        """The server for requests that become WebSockets."""
        self._front = self._front or self._new_front()
        return functools.partial(self._front.tunnel, lambda: self._library.endless(self._worker, token))

    def _returned(self, task):
        del self._exchanges[self._running.pop(task)]
        if not task.cancelled():
            task.exception()

    def send(self, token, data, at, size, flags):
        taken = self._library.send(self._worker, token, data, at, size, flags)
        if taken & HAS_MORE and taken > 0:
            self._turn_soon()
        return taken

    def send_error(self, token, data):
        return self._library.send_error(self._worker, token, data, len(data))

    def read(self, token):
        found = self._library.read(self._worker, token, self._at_text)
        return found, ctypes.string_at(self._text.data, self._text.length) if found >= 0 else None

    def abandon(self, token):
        self._library.abandon(self._worker, token)
        self._turn_soon()

    def retire(self):
        self._library.retire(self._worker)
        self._turn_soon()

    def want_work(self):
        self._library.want_work(self._worker)

    async def _do_work(self):
        """Runs out-of-band work; the worker continues even if it fails."""
        problems = []
        for function in _work:
            try:
                result = function()
                if inspect.isawaitable(result):
                    await result
            except BaseException as error:
                problems.append(load.complaint(error))
        load.say_worked(self._library, self._worker, problems)
        self._turn_soon()

    async def _end(self):
        """No request is left: waits for work that the application does after its answers."""
        while self._running:
            await asyncio.wait(set(self._running))
        if self._front is not None:
            await self._front.drain()
        self._is_over = True
        self.loop.stop()

    def _terminate(self):
        """The worker's time is over: cancels running tasks and ends the process by the signal."""
        if self.loop is not None:
            self.loop.create_task(self._die(), name="forkyard")

    async def _die(self):
        if self._front is not None:
            self._front.close()
            # Pending output is sent, and awaited tasks end in order.
            await asyncio.sleep(CLOSING_SECONDS)
        others = asyncio.all_tasks() - {asyncio.current_task(), self._lifespan.task}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=LAST_SECONDS)
        try:
            # The master kills a worker that exceeds the pool's stop_timeout.
            await self._lifespan.end()
        except Exception:
            pass
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (AttributeError, OSError, ValueError):
                pass
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def end(self):
        loop, self.loop = self.loop, None
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

    def end_copy(self):
        slow.end(self._questions)
