"""The interface between an application and forkyard, which loads it once and forks workers from it.

    import forkyard

    @forkyard.before_fork
    def close_what_must_not_be_shared(): ...

    @forkyard.after_fork
    def open_it_in_this_worker(): ...

    @forkyard.out_of_band
    def work_between_requests(): ...

    @forkyard.after_promotion
    def tidy_what_workers_will_share(): ...

Functions run in the order of registration.

* `before_fork`: in the preloader before each fork, and in a worker before the next preloader is forked from it.
  Exceptions are logged.
* `after_fork`: in each new worker before its first request. An exception ends the worker.
* `after_promotion`: once in a preloader that was forked from a worker. An exception ends the preloader.
* `out_of_band`: in a worker between two requests, some time after the application has sent an answer with the header
  `Forkyard-Request-OOB-Work: true`, while no client waits. Exceptions are logged. In ASGI it may be a coroutine function.

`forkyard.jobs.push(queue, kind, payload, **options)` pushes a background job.
"""

_before = []
_after = []
_promoted = []
_work = []
# Headers that request out-of-band work, including Passenger's; clients never see them.
_WORK_HEADERS = {"forkyard-request-oob-work", "x-passenger-request-oob-work", "!~request-oob-work"}


def before_fork(function):
    """Calls `function` in the preloader before each fork."""
    _before.append(function)
    return function


def after_fork(function):
    """Calls `function` in each worker before its first request."""
    _after.append(function)
    return function


def after_promotion(function):
    """Calls `function` in a preloader that was forked from a worker, before it forks workers."""
    _promoted.append(function)
    return function


def out_of_band(function):
    """Calls `function` in a worker between two requests, after the application has requested it with a header."""
    _work.append(function)
    return function


def __getattr__(name):
    """Loads `forkyard.jobs` on first use."""
    if name == "jobs":
        import importlib

        return importlib.import_module("forkyard.jobs")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
