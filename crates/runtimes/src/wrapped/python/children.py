"""Processes created by the application: forks of a worker and children of multiprocessing."""

import os
import signal
import sys

# Modules that applications import.
PUBLIC = ("forkyard", "forkyard.jobs")
IN_CHILD = "(lambda names: exec(names['finder'], names) or names['install'](names['modules']) or names['arguments'])({!r})"


class Arguments(list):
    """`sys.argv`, which multiprocessing sends to each spawned child before it imports the application. Unpickling this
    copy makes `forkyard` importable there."""

    def __init__(self, arguments, modules):
        super().__init__(arguments)
        self._names = {"finder": modules["forkyard.finder"], "modules": {name: modules[name] for name in PUBLIC}}

    def __reduce__(self):
        return eval, (IN_CHILD.format({**self._names, "arguments": list(self)}),)


class Forks:
    """Distinguishes the application's forks from forkyard's. A child of the application closes the worker's
    descriptors: with the listening socket it would keep a stopped pool's address in use."""

    def __init__(self, library, looks):
        self._library, self._is_own = library, False
        # A worker with open connections is not promoted.
        self.looks = looks
        os.register_at_fork(after_in_child=self._leave)

    def __enter__(self):
        self._is_own = True

    def __exit__(self, *_):
        self._is_own = False

    def _leave(self):
        if self._is_own:
            return
        self._library.leave()
        # A signal to the child would reach the worker's event loop.
        if signal.set_wakeup_fd(-1) != -1:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_executors():
    """Ends the executors' processes before the atexit functions run, as Python does at exit: one of them waits for all
    children."""
    for name, module in list(sys.modules.items()):
        if name == "concurrent.futures.process" or name.endswith("loky.process_executor"):
            module._python_exit()
