"""What an application may say to forkyard, which has loaded it once and forks workers from it.

    import forkyard

    @forkyard.before_fork
    def close_what_must_not_be_shared(): ...

    @forkyard.after_fork
    def open_it_in_this_worker(): ...

Both run in the order in which they were given. `before_fork` runs in the preloader before each fork; what it raises is
logged. `after_fork` runs in each new worker before its first request; a worker in which it raises is given up.
"""

_before = []
_after = []


def before_fork(function):
    """Calls `function` in the preloader before each worker is made."""
    _before.append(function)
    return function


def after_fork(function):
    """Calls `function` in each worker before its first request."""
    _after.append(function)
    return function
