"""What Django leaves to the first request, or to `manage.py`."""

import os
import re
import sys

# The argument of setdefault in manage.py, as `startproject` writes it.
SETTINGS = re.compile(r"""DJANGO_SETTINGS_MODULE["']\s*,\s*["']([\w.]+)["']""")


def module_of(manage, interface):
    """The module `wsgi` or `asgi` of the project whose settings `manage.py` names."""
    with open(manage, encoding="utf-8", errors="replace") as file:
        found = SETTINGS.search(file.read())
    if not found:
        raise FileNotFoundError(f"{manage} does not say which settings it has; name what is to be loaded: entry = \"MODULE:NAME\"")
    package = settings = found.group(1)
    tried = []
    # mysite.settings is beside mysite.wsgi, and config.settings.production belongs to config.wsgi.
    while "." in package:
        package = package.rpartition(".")[0]
        file = f"{package.replace('.', '/')}/{interface}.py"
        if os.path.exists(file):
            return f"{package}.{interface}"
        tried.append(file)
    raise FileNotFoundError(
        f"{manage} has the settings {settings}, and there is no {' or '.join(tried) or interface + '.py'}; name what is to be"
        " loaded: entry = \"MODULE:NAME\""
    )


def complete(application, interface):
    """The application with its URLs and views loaded, so that a mistake in them fails the start and all workers share their
    memory. With DEBUG it has the static files of its applications, too, as by `runserver`."""
    if "django.conf" not in sys.modules or "django.apps" not in sys.modules:
        return application
    from django.apps import apps
    from django.conf import settings

    if not settings.configured or not apps.ready:
        return application
    if getattr(settings, "ROOT_URLCONF", None):
        from django.urls import get_resolver

        get_resolver().url_patterns
    if settings.DEBUG and settings.STATIC_URL and apps.is_installed("django.contrib.staticfiles"):
        from django.contrib.staticfiles import handlers

        handler = handlers.ASGIStaticFilesHandler if interface == "asgi" else handlers.StaticFilesHandler
        return handler(application)
    return application


def close_connections():
    """A connection to a database belongs to one process."""
    if database := sys.modules.get("django.db"):
        database.connections.close_all()
