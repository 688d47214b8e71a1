"""WSGI in several threads, each with one request at a time."""

import ctypes
import os
import struct
import sys
import threading
import time

from . import slow
from .abi import ClientGone, Text
from .body import Body
from .wsgi import CONSTANT, USUAL, Errors, Exchange, is_secure, put_right, report_of

# forkyard.h
EVENT = struct.Struct("=IIQ")
LENGTHS = struct.Struct("=III")
BEGIN = EVENT.size + LENGTHS.size
NOW, LAST, LATER = 0, 1, 2
IS_FULL = 1 << 62
# Sets of names to cache. A web server sends few: its configured ones combined with each client's.
MOST_PLANS = 256
# How long idle threads may take to end.
END_SECONDS = 1
# sysexits.h
EXIT_SOFTWARE = 70


class Requests:
    """The functions of a request, which is a number here."""

    def __init__(self, library, worker):
        self._worker = worker
        self._send, self._wait = library.send_by_thread, library.wait_by_thread
        self._read, self._send_error = library.read_by_thread, library.send_error_by_thread
        self._abandon, self._retire = library.abandon_by_thread, library.retire_threads
        self._want_work = library.want_work_of_threads

    def read(self, request):
        """Reads from the body; empty at its end."""
        piece = Text()
        if self._read(self._worker, request, ctypes.byref(piece)) < 0:
            raise ClientGone("the client is gone, or silent for too long")
        return piece.bytes()

    def write(self, request, data):
        self._send_all(request, data, LATER)

    def write_last(self, request, data):
        self._send_all(request, data, LAST)

    def flush(self, request):
        self._send_all(request, b"", NOW)

    def end(self, request):
        self._send_all(request, b"", LAST)

    def _send_all(self, request, data, flags):
        size, at = len(data), 0
        while True:
            taken = self._send(self._worker, request, data, at, size, flags)
            if taken < 0:
                raise ClientGone("the client is gone")
            if not taken & IS_FULL:
                return
            at += taken & ~IS_FULL
            if self._wait(self._worker, request) < 0:
                raise ClientGone("the client is gone")
            if at == size and flags != LAST:
                return

    def write_error(self, request, text):
        data = text.encode("utf-8", "backslashreplace")
        while data:
            taken = self._send_error(self._worker, request, data, len(data))
            if taken < 0:
                return
            data = data[taken & ~IS_FULL:]
            if taken & IS_FULL and self._wait(self._worker, request) < 0:
                return

    def break_off(self, request):
        self._abandon(self._worker, request)

    def retire(self, _request):
        self._retire(self._worker)

    def want_work(self, _request):
        self._want_work(self._worker)


class Environs:
    """Builds environments. `prefix`: where the application is mounted."""

    def __init__(self, prefix):
        self._prefix = prefix
        self._plans = {}
        self._constant = {**USUAL, **CONSTANT, "wsgi.multithread": True}

    def environ(self, names, values):
        known = self._plans.get(names)
        if known is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            known = self._plans[names] = tuple(map(sys.intern, names.decode("latin-1").split("\0")[:-1]))
        environ = self._constant.copy()
        environ.update(zip(known, values.decode("latin-1").split("\0")))
        put_right(environ, self._prefix)
        environ["wsgi.url_scheme"] = "https" if is_secure(environ) else "http"
        return environ


class Server:
    """Answers a worker's requests."""

    has_served = True

    def __init__(self, count, application):
        self._count, self._application = count, application
        self._environs = Environs(os.environ.get("SCRIPT_NAME", "").rstrip("/"))

    def begin(self, library, preloader):
        """The worker."""
        # Ordered by the age of their requests.
        self._running = {}
        self._threads = []
        questions = library.questions(preloader, 0)
        worker = library.begin_threads(preloader)
        self._telling = None
        if worker and questions >= 0:
            self._telling = slow.Threads(questions, self._running)
        return worker

    def serve(self, library, worker):
        """Runs until the worker has something else to do (forkyard_threads_mind)."""
        if not self._threads:
            requests = Requests(library, worker)
            for number in range(1, self._count + 1):
                thread = threading.Thread(
                    target=self._run, args=(library, worker, requests), name=f"forkyard-{number}", daemon=True
                )
                thread.start()
                self._threads.append(thread)
        return library.mind(worker)

    def _run(self, library, worker, requests):
        pid = os.getpid()
        try:
            self._take_requests(library, worker, requests)
        except BaseException as error:
            sys.stderr.write(report_of(error))
            # A worker must not continue with a missing thread. This does not apply to forks of the application.
            os._exit(EXIT_SOFTWARE if os.getpid() == pid else 1)

    def _take_requests(self, library, worker, requests):
        wait, record = library.next_of_thread, Text()
        at_record = ctypes.byref(record)
        own = threading.get_ident()
        while wait(worker, at_record):
            data = record.bytes()
            _, _, request = EVENT.unpack_from(data, 0)
            self._running[own] = request
            try:
                self._answer(requests, request, data)
            finally:
                del self._running[own]

    def _answer(self, requests, request, data):
        exchange = Exchange(requests, request)
        try:
            self._serve(exchange, data)
        except ClientGone:
            pass
        except SystemExit:
            requests.retire(request)
            self._fail(exchange, "the application called sys.exit before it answered\n")
        except BaseException as error:
            self._fail(exchange, report_of(error))
        finally:
            exchange.request = None

    def _fail(self, exchange, report):
        try:
            if not exchange.is_ended:
                exchange.fail(report)
                exchange.requests.end(exchange.request)
            else:
                sys.stderr.write(report)
                sys.stderr.flush()
        except ClientGone:
            pass

    def _serve(self, exchange, data):
        names, values, is_whole = LENGTHS.unpack_from(data, EVENT.size)
        middle = BEGIN + names
        body = middle + values
        environ = self._environs.environ(data[BEGIN:middle], data[middle:body])
        environ["wsgi.input"] = Body(exchange.read_more, data[body:], is_whole == 1)
        environ["wsgi.errors"] = Errors(exchange)
        exchange.answer(self._application, environ)

    def end(self):
        """Ends the threads, except one that is stuck in a request that timed out."""
        until = time.monotonic() + END_SECONDS
        for thread in self._threads:
            thread.join(max(0, until - time.monotonic()))
        if self._telling is not None:
            self._telling.end()

    def end_copy(self):
        if self._telling is not None:
            self._telling.close()
