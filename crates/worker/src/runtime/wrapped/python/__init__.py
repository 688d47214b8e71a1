"""What an application may say to forkyard, which has loaded it once and forks workers from it.

    import forkyard

    @forkyard.before_fork
    def close_what_must_not_be_shared(): ...

    @forkyard.after_fork
    def open_it_in_this_worker(): ...

    @forkyard.out_of_band
    def do_what_no_client_is_to_wait_for(): ...

    @forkyard.after_promotion
    def tidy_what_all_workers_will_share(): ...

They run in the order in which they were given. `before_fork` runs in the preloader before each fork, and in a worker before
the next preloader is forked from it; what it raises is logged. `after_fork` runs in each new worker before its first request;
a worker in which it raises is given up. `after_promotion` runs in a preloader that was forked from a worker, once; if it raises,
that preloader is given up. `out_of_band` runs in a worker between two requests, some time after the application has answered one
with the header `Forkyard-Request-OOB-Work: true`, when no client waits for that; what it raises is logged. For ASGI it may be a
coroutine function.

`forkyard.jobs.push(queue, kind, payload, **options)` pushes a background job.
"""

_before = []
_after = []
_promoted = []
_work = []
# The header by which an application asks for out-of-band work, and Passenger's names for it; no client sees it.
_WORK_HEADERS = {"forkyard-request-oob-work", "x-passenger-request-oob-work", "!~request-oob-work"}


def before_fork(function):
    """Calls `function` in the preloader before each worker is made."""
    _before.append(function)
    return function


def after_fork(function):
    """Calls `function` in each worker before its first request."""
    _after.append(function)
    return function


def after_promotion(function):
    """Calls `function` in a preloader that was forked from a worker, before it makes workers."""
    _promoted.append(function)
    return function


def out_of_band(function):
    """Calls `function` in a worker between two requests, after the application has asked for it by a header."""
    _work.append(function)
    return function


def __getattr__(name):
    """`forkyard.jobs`, which is loaded when it is first used."""
    if name == "jobs":
        import importlib

        return importlib.import_module("forkyard.jobs")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
