"""Background jobs: pushed to the process that keeps them.

    import forkyard.jobs

    number = forkyard.jobs.push("mail", "welcome", {"to": "you@example.org"}, key="welcome/7")
"""

import json
import os
import socket

# How long the process may take to read a request, and to answer, seconds.
PATIENCE = 30


class PushError(RuntimeError):
    """The job was not pushed, or it is not known whether it was."""


def push(queue, kind, payload=None, **options):
    """Pushes a job; gives its number. `options`: tenant, priority, in_ms, at_ms, expires_ms, key, serial, steps, attempts,
    timeout_ms, content_type and traceparent. Each call has a connection of its own, so threads and forks may call it."""
    path = os.environ.get("FORKYARD_JOBS")
    if path is None:
        raise PushError("the daemon's configuration has no [jobs]")
    job = dict(options, queue=queue, kind=kind)
    if payload is not None:
        job["payload"] = payload
    line = json.dumps({"command": "push", "job": job}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(path)
            connection.sendall(line)
            with connection.makefile("rb") as lines:
                answer = json.loads(lines.readline() or b"{}")
    except (OSError, ValueError) as error:
        raise PushError(f"{path}: {error}") from error
    if answer.get("result") != "pushed":
        raise PushError(answer.get("message", f"{path}: the connection ended before the answer"))
    return answer["jobs"][0]["id"]
