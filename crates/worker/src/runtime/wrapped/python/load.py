"""Finds the application."""

import importlib
import os
import sys
import traceback

# A message to the master has an end.
MOST_OF_A_REPORT = 16 * 1024
USUAL_FILES = {}  # The daemon puts its own list here: python.rs.
USUAL_NAMES = ["application", "app"]


def load(root, entry, interface):
    """The application, from `module:callable`, a file, or the usual file."""
    os.chdir(root)
    sys.path.insert(0, root)
    for place in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if place and place not in sys.path:
            sys.path.insert(1, place)
    if entry is None:
        usual = USUAL_FILES[interface]
        entry = next((name for name in usual if os.path.exists(name)), None)
        if entry is None:
            raise FileNotFoundError(
                f"none of {', '.join(usual)} is in {root}; name what is to be loaded in application.entry"
            )
    name, _, attribute = entry.partition(":")
    if name.endswith(".py"):
        name = name[: -len(".py")].replace("/", ".").lstrip(".")
    module = importlib.import_module(name)
    for candidate in [attribute] if attribute else USUAL_NAMES:
        found = module
        try:
            for part in candidate.split("."):
                found = getattr(found, part)
        except AttributeError:
            continue
        if callable(found):
            return found
    wanted = attribute or " or ".join(USUAL_NAMES)
    raise AttributeError(
        f"{module.__file__} has nothing callable that is named {wanted}; name it in application.entry, as {name}:NAME"
    )


def told_of(error):
    """What was raised, with the application's own calls and not forkyard's."""
    told = traceback.TracebackException.from_exception(error)
    own = [
        frame
        for frame in told.stack
        if not frame.filename.startswith(("forkyard/", "/proc/self/fd/", "<frozen importlib", "importlib/"))
        and not frame.filename.endswith("/importlib/__init__.py")
    ]
    told.stack = traceback.StackSummary.from_list(own)
    return told


def complaint(error):
    """What went wrong in out-of-band work, in a line; the whole goes to standard error."""
    told = told_of(error)
    sys.stderr.write("".join(told.format()))
    sys.stderr.flush()
    where = "".join(f" ({call.filename}:{call.lineno})" for call in told.stack[-1:])
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


def say_worked(library, worker, problems):
    """Out-of-band work is done."""
    message = "; ".join(problems)[:MOST_OF_A_REPORT].encode("utf-8", "backslashreplace")
    library.worked(worker, message, len(message))


def report(error):
    """Why the application can't be loaded: a line, the traceback from its own first line on, and what to do."""
    told = told_of(error)
    text = "".join(told.format()).rstrip()
    if not told.stack:
        text = text.replace("Traceback (most recent call last):\n", "", 1)
    python = f"{sys.executable or 'Python'} {sys.version.split()[0]}"
    # The last line of it that is not a note says what it was.
    what = [line for line in told.format_exception_only() if not line.startswith(" ")][-1:]
    what = "".join(what).strip().split("\n")[0]
    return f"can't load the application with {python}: {what}", text, remedy(error, python)


def remedy(error, python):
    if isinstance(error, ModuleNotFoundError):
        return (
            f"Install the package that has the module {error.name!r} for {python}, or name the interpreter of the virtual"
            f" environment that has it in application.interpreter. Modules are looked for in: {', '.join(sys.path)}."
        )
    if isinstance(error, SyntaxError):
        return f"Correct {error.filename or 'the file'}, line {error.lineno}; it may be written for another Python than {python}."
    if isinstance(error, FileNotFoundError) and error.errno is None:
        return "Check application.root, and name what is to be loaded in application.entry."
    if isinstance(error, PermissionError):
        return "Let the pool's user read the file, and enter every directory of its path."
    if isinstance(error, MemoryError):
        return "Let the application need less memory while it is loaded, or allow it more."
    return "The traceback says where it happened: correct the application, or give it what it misses there."
