"""Reports what this worker is doing, for the log of slow requests."""

import faulthandler
import os
import socket
import sys
import threading

QUESTION = 51
END = b"\0"
MOST_TASKS = 50
MOST_CALLS = 100
MOST_BYTES = 128 * 1024
# How long a thread may take to end.
END_SECONDS = 1


def begin(library, preloader):
    """Returns the descriptor of the socket for questions; None: nobody asks.

    faulthandler writes the calls of the serving thread, in C: no Python code runs and no sleep is interrupted.
    """
    descriptor = library.questions(preloader, 1)
    if descriptor < 0:
        return None
    try:
        faulthandler.register(QUESTION, file=descriptor, all_threads=False, chain=False)
    except (OSError, RuntimeError, ValueError):
        os.close(descriptor)
        return None
    if library.end_answers(descriptor) != 0:
        faulthandler.unregister(QUESTION)
        os.close(descriptor)
        return None
    return descriptor


def end(descriptor):
    """Stops answering in a copy of the worker."""
    if descriptor is not None:
        faulthandler.unregister(QUESTION)
        os.close(descriptor)


class Threads:
    """Reports what the serving threads are doing, from another thread, so none is interrupted."""

    def __init__(self, descriptor, running):
        self._running = running
        self._socket = socket.socket(fileno=descriptor)
        self._socket.setblocking(True)
        self._thread = threading.Thread(target=self._wait, name="forkyard", daemon=True)
        self._thread.start()

    def end(self):
        """Ends its thread without notice to the master."""
        try:
            self._socket.shutdown(socket.SHUT_RD)
        except OSError:
            pass
        self._thread.join(END_SECONDS)

    def close(self):
        """Stops answering in a copy of the worker."""
        self._socket.close()

    def _wait(self):
        try:
            while question := self._socket.recv(64):
                # The id of the slow request, which may be over by now.
                shown = int(question) if question.isdigit() else 0
                self._socket.sendall(self._tell(shown)[:MOST_BYTES] + END)
        except Exception:
            # The master is gone.
            pass

    def _tell(self, shown):
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        frames = sys._current_frames()
        # The thread of the slow request first, then by the age of their requests.
        running = sorted(self._running.copy().items(), key=lambda thread: thread[1] != shown)
        lines = []
        for thread, _ in running[:MOST_TASKS]:
            calls, frame = [], frames.get(thread)
            while frame is not None and len(calls) < MOST_CALLS:
                calls.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
                frame = frame.f_back
            lines.append(f"Task {names.get(thread, thread)}")
            lines.extend(shown_calls(calls))
        return text_of(lines)


class Tasks:
    """Reports what an event loop's tasks wait for. A busy loop does not answer; its calls have been reported."""

    def __init__(self, loop, descriptor, first):
        self._loop, self._first = loop, first
        self._socket = socket.socket(fileno=descriptor)
        loop.add_reader(self._socket.fileno(), self._on_question)

    def end(self):
        """The descriptor stays with the worker, whose signal handler writes to it."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.detach()

    def _on_question(self):
        try:
            if not self._socket.recv(64):
                # The master is gone. The signal handler keeps the descriptor.
                self._loop.remove_reader(self._socket.fileno())
                return
            self._socket.send(self._tell()[:MOST_BYTES] + END)
        except (BlockingIOError, InterruptedError):
            pass
        except Exception:
            self._loop.remove_reader(self._socket.fileno())

    def _tell(self):
        # Already loaded if there is a loop.
        import asyncio

        lines = []
        # Tasks of requests first, oldest first.
        tasks = list(self._first)
        others = asyncio.all_tasks(self._loop).difference(tasks)
        tasks += sorted(others, key=lambda task: task.get_name())
        for task in tasks[:MOST_TASKS]:
            lines.append(f"Task {task.get_name()}")
            lines.extend(shown_calls(reversed(calls_of(task))))
        return text_of(lines)


def shown_calls(calls):
    return (f'  File "{file}", line {line} in {name}' for file, line, name in calls)


def text_of(lines):
    text = "\n".join(line.replace("\n", "\\n").replace("\0", "\\0") for line in lines)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def calls_of(task):
    """From the task's own coroutine to the innermost."""
    calls = []
    awaited = task.get_coro()
    while awaited is not None and len(calls) < MOST_CALLS:
        for frame, inner in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
            if hasattr(awaited, frame):
                break
        else:
            break
        frame = getattr(awaited, frame)
        if frame is not None:
            calls.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        awaited = getattr(awaited, inner)
    return calls
