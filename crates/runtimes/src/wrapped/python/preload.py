"""Loads an application once and forks workers whenever the master asks.

forkyard starts it with the path of its library, whose C functions (forkyard.h) talk to the master and serve requests.
"""

import atexit
import ctypes
import faulthandler
import gc
import json
import os
import signal
import sys
import threading
import time
import traceback

import forkyard

from . import django, load
from .abi import Library, Requests
from .children import Arguments, Forks, end_executors

EXIT_SOFTWARE = 70
# How long before the start timeout a hanging application is reported.
LAST_SECONDS = 3
# How long threads may take to end.
PATIENCE_SECONDS = 0.2
PROBLEM, SOLUTION, DETAILS = 1, 2, 3
# Tasks of a worker besides serving.
WORKS = 2
WORK_DIRECTORY = 5
MARK = "FORKYARD_SPAWN_WORK_DIR"


def main(library_path, modules):
    try:
        library = Library(library_path)
    except OSError as error:
        complain(
            f"can't load forkyard's library with {sys.executable or 'Python'}: {error}",
            "Install forkyard anew: its library belongs beside its programs. The interpreter has to be built for this"
            " machine and its C library, as forkyard is.",
        )
        return EXIT_SOFTWARE
    preloader = library.begin()
    if not preloader:
        return 0
    os.environ.pop("FORKYARD_SETTLED", None)
    # Programs that the application starts while loading are marked; later ones are not.
    mark = os.environ.get(MARK)
    (settings,) = json.loads(library.application(preloader).bytes()).values()
    if library.settle(preloader) != 0:
        return EXIT_SOFTWARE
    sys.argv = Arguments([settings.get("entry") or ""], modules)
    forks = Forks(library, settings["preload"] == "auto")
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Line-buffered, so that output reaches the log at once.
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    show_faults()
    preloads = settings["preload"] != "never"
    if preloads:
        watch(settings)
        try:
            server = load_server(settings, library)
        except BaseException as error:
            fail(library, preloader, *load.report(error))
            return EXIT_SOFTWARE
        finally:
            faulthandler.cancel_dump_traceback_later()
    if mark is not None and os.environ.get(MARK) == mark:
        del os.environ[MARK]
    attend(library, preloader)
    if preloads:
        # Only when the first worker is wanted it is known which connections are open.
        if not library.expect(preloader):
            return 0
        prepare()
        path = os.fsencode(library_path)
        library.renew(preloader, path, len(path))
        warn_of_threads(library, preloader)
    if not becomes_worker(library, preloader, forks, preloads):
        return 0
    make = (lambda: server) if preloads else (lambda: load_in_worker(settings, library))
    while True:
        preloader = live(library, preloader, make, forks)
        if not becomes_worker(library, preloader, forks):
            break
    # Exit handlers belong to the worker that this process was forked from.
    flush()
    os._exit(0)


def show_faults():
    """Has faults write the calls that lead there to standard error. Workers inherit that. The application may choose
    otherwise with faulthandler's functions."""
    try:
        if not faulthandler.is_enabled():
            # Only the thread with the fault: a report has the end of the output.
            faulthandler.enable(file=sys.stderr, all_threads=False)
    except (OSError, RuntimeError, ValueError, AttributeError):
        # There is no standard error.
        pass


def load_in_worker(settings, library):
    """Loads the application in this worker only, which exits if that takes too long."""
    watch(settings, ends=True)
    try:
        return load_server(settings, library)
    finally:
        faulthandler.cancel_dump_traceback_later()


def load_server(settings, library):
    """Loads the application. Returns what serves in each worker."""
    application = load.load(settings["root"], settings.get("entry"), settings["interface"])
    if settings["interface"] == "asgi":
        from .asgi import Server
    elif settings["concurrency"] > 1:
        from .threads import Server

        return Server(settings["concurrency"], application)
    else:
        from .wsgi import Server
    return Server(Requests(library.table), application)


def watch(settings, ends=False):
    """Reports shortly before the start timeout what the application is doing, from a thread in C that works even if
    Python hangs. `ends`: the process then exits."""
    limit = settings["start_timeout"]
    seconds = limit["secs"] + limit["nanos"] / 1e9
    # Subtract the time of the interpreter's own start.
    seconds -= min(seconds / 3, LAST_SECONDS)
    try:
        faulthandler.dump_traceback_later(seconds, file=sys.stderr, exit=ends)
    except (OSError, OverflowError, RuntimeError, ValueError, AttributeError):
        # Without standard error there is no place to report it.
        pass


def complain(summary, solution):
    """Reports a failure without the library, through the work directory of the start."""
    sys.stderr.write(summary + "\n")
    for name, text in [("summary", summary), ("solution_description.txt", solution)]:
        try:
            with open(f"/proc/self/fd/{WORK_DIRECTORY}/response/error/{name}", "x") as file:
                file.write(text)
        except OSError:
            pass


def fail(library, preloader, summary, details, solution):
    """Reports why there will be no workers."""

    def text(text):
        return text[-load.MOST_OF_A_REPORT:].encode("utf-8", "backslashreplace")

    for what, said in [(SOLUTION, text(solution)), (DETAILS, text(details))]:
        library.explain(preloader, what, said, len(said))
    message = text(summary)
    library.failed(preloader, message, len(message))
    flush()


def attend(library, preloader):
    """Reports that workers can be forked."""
    # Objects that exist now are shared by all workers; garbage collectors should not touch them.
    gc.collect()
    gc.freeze()
    version = ("Python " + sys.version.split()[0]).encode()
    library.ready(preloader, version, len(version))


def becomes_worker(library, preloader, forks, is_prepared=False):
    """Forks workers. Returns True in each of them, and False in the preloader when the master is gone. `is_prepared`:
    for the first worker."""
    while library.wait(preloader):
        if not is_prepared:
            prepare()
        is_prepared = False
        with forks:
            if fork_sibling(library.fork, preloader):
                return True
    return False


def live(library, preloader, make, forks):
    """Runs a worker; its end is the process's end. `make`: creates what serves. Returns only in a copy that becomes a
    preloader, with its handle."""
    # This process must never continue as another preloader.
    code, heir = EXIT_SOFTWARE, None
    try:
        code, heir = work(library, preloader, make, forks)
    except BaseException as error:
        told = load.told_of(error)
        sys.stderr.write("".join(told.format() if told.stack else told.format_exception_only()))
    finally:
        if not heir:
            flush()
            os._exit(code)
    return heir


def work(library, preloader, make, forks):
    """Returns the exit code, or the preloader in a promoted copy."""
    reset_signals()
    library.settle_output(preloader)
    server = make()
    for function in forkyard._after:
        function()
    # Last, so that an application that uses the signal of slow.begin keeps it.
    worker = server.begin(library, preloader)
    if not worker:
        return EXIT_SOFTWARE, None
    while wish := server.serve(library, worker):
        if wish == WORKS:
            work_out_of_band(library, worker)
            continue
        # The worker exits afterwards, so closed connections need not be reopened.
        server.end()
        if is_copy_for_preloader(library, worker, forks):
            server.end_copy()
            return promoted(library, worker)
        if server.has_served:
            break
    code = library.end_worker(worker)
    server.end()
    end_executors()
    atexit._run_exitfuncs()
    return code, None


def work_out_of_band(library, worker):
    """Runs out-of-band work; the worker continues even if it fails."""
    problems = []
    for function in forkyard._work:
        try:
            function()
        except BaseException as error:
            problems.append(load.complaint(error))
    load.say_worked(library, worker, problems)


def is_copy_for_preloader(library, worker, forks):
    """Forks the next preloader from this worker. Returns True in the copy, which is still a worker."""
    prepare()
    # A thread may hold a lock, which would stay locked in the copy.
    if others := other_threads():
        why = f"it has threads besides the first one: {', '.join(others)}".encode("utf-8", "backslashreplace")
        library.refuse(worker, why, len(why))
        return False
    if forks.looks and library.shares(worker):
        return False
    with forks:
        return fork_sibling(library.fork_preloader, worker)


def promoted(library, worker):
    preloader = library.promoted(worker)
    if not preloader:
        # The master no longer wants it.
        return 0, None
    try:
        for function in forkyard._promoted:
            function()
    except BaseException as error:
        message = f"a function for forkyard.after_promotion failed: {error!r}"
        details = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        fail(library, preloader, message, details, "Correct the function, or leave refork_after away.")
        return EXIT_SOFTWARE, None
    attend(library, preloader)
    return 0, preloader


def prepare():
    flush()
    for function in [*forkyard._before, django.close_connections]:
        try:
            function()
        except Exception:
            traceback.print_exc()
            flush()


def fork_sibling(fork, handle):
    """Forks a child of the master. Returns True in it. Runs Python's handlers (os.register_at_fork) and C's."""
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = fork(handle)
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return True
    python.PyOS_AfterFork_Parent()
    return False


def reset_signals():
    """Resets Python's signal handlers as well: a worker has all signals at their defaults."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) and number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)


def native_threads():
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def other_threads():
    """The names of all other threads, after waiting for those that are ending."""
    until = time.monotonic() + PATIENCE_SECONDS
    ours = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    for thread in ours:
        thread.join(max(0, until - time.monotonic()))
    # A thread that has ended in Python may stay in the kernel's list for a moment.
    while native_threads() > 1 and not any(thread.is_alive() for thread in ours) and time.monotonic() < until:
        time.sleep(0.001)
    names = [thread.name for thread in ours if thread.is_alive()]
    if not names and native_threads() > 1:
        names = [name_of_task(task) for task in os.listdir("/proc/self/task") if int(task) != os.getpid()]
    return names


def name_of_task(task):
    try:
        with open(f"/proc/self/task/{task}/comm", errors="backslashreplace") as file:
            return file.read().strip()
    except OSError:
        return task


def warn_of_threads(library, preloader):
    others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others:
        message = (
            f"the application has started threads while it was loaded ({', '.join(others)}); workers, which are forked from"
            " this process, do not have them, and a lock that one of them holds then is never released: start them in a function"
            " for forkyard.after_fork, or write preload = false"
        ).encode("utf-8", "backslashreplace")
        library.warn(preloader, message, len(message))


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            # Closed, or without a reader.
            pass
