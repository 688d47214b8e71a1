"""Background jobs: pushes them to the job server.

    import forkyard.jobs

    number = forkyard.jobs.push("mail", "welcome", {"to": "you@example.org"}, key="welcome/7")
"""

import base64
import json
import os
import socket
import time

# The default timeout of a push, in seconds.
_SECONDS = 2
# How often to push a job whose connection closed before the answer.
_TRIES = 3


class PushError(RuntimeError):
    """The job was not pushed."""


class PushUnknown(PushError):
    """It is unknown whether the job was pushed. Pushing it again with the same `ref` stores it only once."""

    def __init__(self, message, ref):
        super().__init__(message)
        self.ref = ref


def push(queue, kind, payload=None, push_timeout=None, **options):
    """Pushes a job and returns its number. `options`: tenant, priority, in_ms, at_ms, expires_ms, key, ref, serial,
    steps, attempts, timeout_ms, content_type and traceparent. `push_timeout` is in seconds. Each call opens a
    connection, so threads and forks may call it."""
    path = os.environ.get("FORKYARD_JOBS")
    if path is None:
        raise PushError("the daemon's configuration has no [jobs]")
    seconds = _seconds(push_timeout)
    job = dict(options, queue=queue, kind=kind)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        job["payload_base64"] = base64.b64encode(payload).decode()
    elif payload is not None:
        job["payload"] = payload
    if job.get("ref") is None:
        job["ref"] = os.urandom(16).hex()
    ref = job["ref"]
    # The process says what it knows before the time is over.
    request = {"command": "push", "job": job, "timeout_ms": max(1, int(seconds * 875))}
    line = _encode(request)
    answer = _ask(path, line, ref, time.monotonic() + seconds)
    if answer.get("result") == "pushed":
        return answer["jobs"][0]["id"]
    message = answer.get("message", f"{path}: the answer is about something else")
    raise PushUnknown(message, ref) if answer.get("is_unknown") else PushError(message)


def _seconds(own):
    if own is None:
        return int(os.environ.get("FORKYARD_JOBS_TIMEOUT") or 0) / 1000 or _SECONDS
    if not 0 < own < 1e6:
        raise ValueError("push_timeout is a number of seconds above 0")
    return own


def _encode(request):
    try:
        return json.dumps(request, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        # What the application's own objects raise passes through.
        last = error.__traceback__
        while last.tb_next is not None:
            last = last.tb_next
        if last.tb_frame.f_globals.get("__name__") not in (__name__, json.encoder.__name__):
            raise
        raise PushError(f"the job can't be written as JSON: {error}") from error


def _ask(path, line, ref, until):
    """The answer. If the server was replaced, asks the next one, which recognises the job by its name."""
    is_sent, failure = False, None
    for _ in range(_TRIES):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                _connect(connection, path, until)
                connection.sendall(line)
                is_sent, answer = True, b""
                while not answer.endswith(b"\n"):
                    _wait(connection, until)
                    part = connection.recv(65536)
                    if not part:
                        raise ConnectionResetError("the connection ended before the answer")
                    answer += part
                return json.loads(answer)
        except (BrokenPipeError, ConnectionResetError) as error:
            failure = error
        except (OSError, ValueError) as error:
            failure = error
            break
    message = f"{path}: {failure}"
    if is_sent:
        raise PushUnknown(f"{message}; whether the job is stored is not known", ref) from failure
    raise PushError(message) from failure


def _connect(connection, path, until):
    while True:
        _wait(connection, until)
        try:
            return connection.connect(path)
        except BlockingIOError:
            # The backlog is full.
            time.sleep(0.01)


def _wait(connection, until):
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    connection.settimeout(left)
