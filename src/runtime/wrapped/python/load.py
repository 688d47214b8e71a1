"""Finds the application."""

import importlib
import os
import sys
import traceback

USUAL_FILES = {
    "wsgi": ["passenger_wsgi.py", "wsgi.py", "app.py"],
    "asgi": ["asgi.py", "main.py", "app.py"],
}
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


def report(error):
    """Why the application can't be loaded: the traceback from its own first line on."""
    told = traceback.TracebackException.from_exception(error)
    own = [
        frame
        for frame in told.stack
        if not frame.filename.startswith(("forkyard/", "/proc/self/fd/", "<frozen importlib", "importlib/"))
        and not frame.filename.endswith("/importlib/__init__.py")
    ]
    told.stack = traceback.StackSummary.from_list(own)
    text = "".join(told.format()).rstrip()
    if not own:
        text = text.replace("Traceback (most recent call last):\n", "", 1)
    return f"can't load the application with {sys.executable or 'Python'} {sys.version.split()[0]}:\n{text}"
