"""The daemon's library with types; see forkyard.h."""

import ctypes
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, c_char_p, c_int, c_int64, c_size_t, c_ssize_t, c_uint32, c_uint64, c_void_p

READ_BYTES = 64 * 1024


class ClientGone(ConnectionError):
    """The client has disconnected."""


class Text(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]

    def bytes(self):
        return ctypes.string_at(self.data, self.length)


class Table(ctypes.Structure):
    """struct forkyard_api. Calls that may block release the GIL (CFUNCTYPE)."""

    _fields_ = [
        ("version", c_uint32),
        ("size", c_uint32),
        ("param_count", c_void_p),
        ("param_at", c_void_p),
        ("param", c_void_p),
        ("read_body", CFUNCTYPE(c_ssize_t, c_void_p, c_void_p, c_size_t)),
        ("write", CFUNCTYPE(c_ssize_t, c_void_p, c_char_p, c_size_t)),
        ("write_error", CFUNCTYPE(c_ssize_t, c_void_p, c_char_p, c_size_t)),
        ("flush", CFUNCTYPE(c_int, c_void_p)),
        ("finish", CFUNCTYPE(c_int, c_void_p)),
        ("is_finished", c_void_p),
        ("set_stage", c_void_p),
        ("describe", c_void_p),
        ("set_memory", c_void_p),
        ("end", CFUNCTYPE(c_int, c_void_p)),
        ("params_packed", PYFUNCTYPE(c_size_t, c_void_p, c_void_p, c_size_t)),
        ("read_body_now", PYFUNCTYPE(c_ssize_t, c_void_p, c_void_p, c_size_t)),
        ("connection", PYFUNCTYPE(c_int, c_void_p)),
        ("retire", PYFUNCTYPE(None, c_void_p)),
        ("break_off", CFUNCTYPE(None, c_void_p)),
        ("want_work", PYFUNCTYPE(None, c_void_p)),
    ]


ANSWER = CFUNCTYPE(None, c_void_p, c_void_p)


class Library:
    """The functions of a preloader."""

    def __init__(self, path):
        # Blocking calls release the GIL; the fork must not.
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
        self.explain = typed(free, "forkyard_preloader_explain", None, c_void_p, c_int, c_char_p, c_size_t)
        self.expect = typed(free, "forkyard_preloader_expect", c_int, c_void_p)
        self.renew = typed(held, "forkyard_preloader_renew", None, c_void_p, c_char_p, c_size_t)
        self.warn = typed(held, "forkyard_preloader_warn", None, c_void_p, c_char_p, c_size_t)
        self.wait = typed(free, "forkyard_preloader_wait", c_int, c_void_p)
        self.fork = typed(held, "forkyard_preloader_fork", c_int, c_void_p)
        self.begin_worker = typed(free, "forkyard_worker_begin", c_void_p, c_void_p)
        self.serve = typed(free, "forkyard_worker_serve", c_int, c_void_p, ANSWER, c_void_p)
        self.begin_concurrent = typed(free, "forkyard_concurrent_begin", c_void_p, c_void_p)
        self.descriptor = typed(held, "forkyard_concurrent_descriptor", c_int, c_void_p)
        self.turn = typed(held, "forkyard_concurrent_turn", c_int, c_void_p, c_void_p)
        self.send = typed(
            held, "forkyard_concurrent_send", c_int64, c_void_p, c_uint64, c_char_p, c_size_t, c_size_t, c_uint32
        )
        self.send_error = typed(
            held, "forkyard_concurrent_send_error", c_int64, c_void_p, c_uint64, c_char_p, c_size_t
        )
        self.read = typed(held, "forkyard_concurrent_read", c_int, c_void_p, c_uint64, c_void_p)
        self.abandon = typed(held, "forkyard_concurrent_abandon", None, c_void_p, c_uint64)
        self.http = typed(held, "forkyard_concurrent_http", c_int, c_void_p)
        self.accept = typed(held, "forkyard_concurrent_accept", c_int, c_void_p)
        self.visit = typed(held, "forkyard_concurrent_visit", c_uint64, c_void_p, c_char_p, c_size_t)
        self.endless = typed(held, "forkyard_concurrent_endless", None, c_void_p, c_uint64)
        self.sent = typed(held, "forkyard_concurrent_sent", None, c_void_p, c_uint64)
        self.retire = typed(held, "forkyard_concurrent_retire", None, c_void_p)
        self.want_work = typed(held, "forkyard_concurrent_want_work", None, c_void_p)
        self.begin_threads = typed(free, "forkyard_threads_begin", c_void_p, c_void_p)
        self.mind = typed(free, "forkyard_threads_mind", c_int, c_void_p)
        self.next_of_thread = typed(free, "forkyard_threads_next", c_int, c_void_p, c_void_p)
        self.read_by_thread = typed(free, "forkyard_threads_read", c_int, c_void_p, c_uint64, c_void_p)
        # It does not block, and a released GIL may take long to get back.
        self.send_by_thread = typed(
            held, "forkyard_threads_send", c_int64, c_void_p, c_uint64, c_char_p, c_size_t, c_size_t, c_uint32
        )
        self.wait_by_thread = typed(free, "forkyard_threads_wait", c_int, c_void_p, c_uint64)
        self.send_error_by_thread = typed(
            held, "forkyard_threads_send_error", c_int64, c_void_p, c_uint64, c_char_p, c_size_t
        )
        self.abandon_by_thread = typed(held, "forkyard_threads_abandon", None, c_void_p, c_uint64)
        self.retire_threads = typed(held, "forkyard_threads_retire", None, c_void_p)
        self.want_work_of_threads = typed(held, "forkyard_threads_want_work", None, c_void_p)
        self.end_worker = typed(free, "forkyard_worker_end", c_int, c_void_p)
        self.leave = typed(held, "forkyard_worker_leave", None)
        self.worked = typed(held, "forkyard_worker_worked", None, c_void_p, c_char_p, c_size_t)
        self.fork_preloader = typed(held, "forkyard_worker_fork", c_int, c_void_p)
        self.shares = typed(held, "forkyard_worker_shares", c_int, c_void_p)
        self.refuse = typed(held, "forkyard_worker_refuse", None, c_void_p, c_char_p, c_size_t)
        self.promoted = typed(free, "forkyard_worker_promoted", c_void_p, c_void_p)
        self.settle_output = typed(held, "forkyard_worker_settle_output", None, c_void_p)
        self.questions = typed(held, "forkyard_worker_questions", c_int, c_void_p, c_int)
        self.end_answers = typed(held, "forkyard_worker_end_answers", c_int, c_int)
        self.table = typed(free, "forkyard_api_v1", POINTER(Table))().contents


class Requests:
    """The functions of a request, which is identified by its handle, a number."""

    def __init__(self, table):
        # Each access to a field of the table creates a function object.
        self._read_body = table.read_body
        self._write, self._write_error = table.write, table.write_error
        self._flush, self._end = table.flush, table.end
        self._params_packed = table.params_packed
        self.retire, self.break_off = table.retire, table.break_off
        self.want_work = table.want_work
        self._buffer = ctypes.create_string_buffer(READ_BYTES)
        self._address = ctypes.addressof(self._buffer)

    def params(self, request):
        """Names and values alternately, and a final empty text."""
        size = self._params_packed(request, self._address, READ_BYTES)
        if size <= READ_BYTES:
            return ctypes.string_at(self._address, size).decode("latin-1").split("\0")
        large = ctypes.create_string_buffer(size)
        self._params_packed(request, ctypes.addressof(large), size)
        return large.raw.decode("latin-1").split("\0")

    def read(self, request):
        """Reads from the body; empty at its end."""
        count = self._read_body(request, self._address, READ_BYTES)
        if count < 0:
            raise ClientGone("the client is gone, or silent for too long")
        return ctypes.string_at(self._address, count)

    def write(self, request, data):
        if self._write(request, data, len(data)) < 0:
            raise ClientGone("the client is gone")

    def write_last(self, request, data):
        """Sends the last part of the answer."""
        self.write(request, data)
        self.end(request)

    def write_error(self, request, text):
        data = text.encode("utf-8", "backslashreplace")
        self._write_error(request, data, len(data))

    def flush(self, request):
        if self._flush(request) < 0:
            raise ClientGone("the client is gone")

    def end(self, request):
        if self._end(request) < 0:
            raise ClientGone("the client is gone")
