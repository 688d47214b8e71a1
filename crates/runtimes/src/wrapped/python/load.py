"""Finds and loads the application."""

import importlib
import inspect
import os
import sys
import traceback

from . import django

# Messages to the master are limited.
MOST_OF_A_REPORT = 16 * 1024
USUAL_FILES = {}  # Replaced by the daemon's list; see python.rs.
USUAL_NAMES = ["application", "app"]
USUAL_FACTORIES = ["create_app", "make_app", "create_application"]
# Names the settings of a Django project.
MANAGE = "manage.py"


def load(root, entry, interface):
    """Loads the application from `module:callable`, a file, or the usual file."""
    os.chdir(root)
    # Without links: if a link changes to another release, this process still loads its own modules.
    root = os.getcwd()
    sys.path.insert(0, root)
    for place in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if place and place not in sys.path:
            sys.path.insert(1, place)
    if entry is None:
        usual = USUAL_FILES[interface]
        entry = next((name for name in usual if os.path.exists(name)), None)
        if entry is None:
            raise FileNotFoundError(
                f"none of {', '.join(usual)} is in {root}; name what is to be loaded: entry = \"MODULE:NAME\""
            )
    if entry == MANAGE:
        entry = django.module_of(entry, interface)
    name, _, attribute = entry.partition(":")
    if name.endswith(".py"):
        name = name[: -len(".py")].replace("/", ".").lstrip(".")
    module = importlib.import_module(name)
    for candidate in [attribute] if attribute else USUAL_NAMES:
        found = module
        try:
            for part in candidate.removesuffix("()").split("."):
                found = getattr(found, part)
        except AttributeError:
            continue
        if callable(found):
            made = found() if candidate.endswith("()") else found
            check(made, interface, f"{candidate} of {module.__file__}")
            return django.complete(made, interface)
    wanted = attribute or " or ".join(USUAL_NAMES)
    factory = next((one for one in USUAL_FACTORIES if callable(getattr(module, one, None))), None)
    shown = f"{name}:{factory}()" if factory else f"{name}:NAME"
    raise AttributeError(
        f"{module.__file__} has nothing callable that is named {wanted}; write entry = \"{shown}\""
    )


class WrongRuntime(TypeError):
    """The application has the other interface."""


def check(application, interface, shown):
    """Reports a wrong interface at the start instead of with every request, if it is certain."""
    if not callable(application):
        raise TypeError(f"{shown} made {application!r}, which is no application: nothing that can be called")
    is_asgi = any(map(inspect.iscoroutinefunction, (application, getattr(application, "__call__", None))))
    if interface == "wsgi" and is_asgi:
        raise WrongRuntime(f"{shown} is an ASGI application, and the runtime is wsgi")
    if interface == "asgi" and not is_asgi and takes(application, 2) and not takes(application, 3):
        raise WrongRuntime(f"{shown} is a WSGI application, and the runtime is asgi")


def takes(function, count):
    """Whether it accepts this number of arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


def told_of(error):
    """The traceback without forkyard's own calls."""
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
    """One line about a failure of out-of-band work; the full traceback goes to standard error."""
    told = told_of(error)
    sys.stderr.write("".join(told.format()))
    sys.stderr.flush()
    where = "".join(f" ({call.filename}:{call.lineno})" for call in told.stack[-1:])
    return f"{type(error).__name__}: {' '.join(str(error).split())}{where}"


def say_worked(library, worker, problems):
    """Reports that out-of-band work is done."""
    message = "; ".join(problems)[:MOST_OF_A_REPORT].encode("utf-8", "backslashreplace")
    library.worked(worker, message, len(message))


def report(error):
    """Why the application can't be loaded: a line, the traceback from its own first line on, and what to do."""
    told = told_of(error)
    text = "".join(told.format()).rstrip()
    if not told.stack:
        text = text.replace("Traceback (most recent call last):\n", "", 1)
    python = f"{sys.executable or 'Python'} {sys.version.split()[0]}"
    # The last line that is not a note has the error.
    what = [line for line in told.format_exception_only() if not line.startswith(" ")][-1:]
    what = "".join(what).strip().split("\n")[0]
    return f"can't load the application with {python}: {what}", text, remedy(error, python)


def remedy(error, python):
    if isinstance(error, ModuleNotFoundError):
        return (
            f"Install the package that has the module {error.name!r} for {python}, or into the virtual environment .venv of"
            f" {os.getcwd()}. Modules are looked for in: {', '.join(sys.path)}."
        )
    if isinstance(error, SyntaxError):
        return f"Correct {error.filename or 'the file'}, line {error.lineno}; it may be written for another Python than {python}."
    if isinstance(error, FileNotFoundError) and error.errno is None:
        return f"Check that {os.getcwd()} is the application's directory, and name what is to be loaded: entry = \"MODULE:NAME\"."
    if isinstance(error, WrongRuntime):
        return f'Write runtime = "{"asgi" if "an ASGI" in str(error) else "wsgi"}".'
    if variable := missing_variable(error):
        return (
            f"Set {variable} in env or env_file: the application reads it from the environment, where it is not set. Variables of"
            " a login shell are not there."
        )
    if isinstance(error, PermissionError):
        return "Let the pool's user read the file, and enter every directory of its path."
    if isinstance(error, MemoryError):
        return "Let the application need less memory while it is loaded, or allow it more."
    return "The traceback says where it happened: correct the application, or give it what it misses there."


def missing_variable(error):
    """The environment variable that the application missed; None for other errors."""
    calls = traceback.extract_tb(error.__traceback__)
    if isinstance(error, KeyError) and calls and calls[-1].filename in (os.__file__, "<frozen os>"):
        return error.args[0]
    return "the variable that is named" if "environment variable" in str(error).lower() else None
