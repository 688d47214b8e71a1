"""Loads what Django leaves to the first request or to `manage.py`."""

import os
import re
import sys

# The argument of setdefault in a manage.py created by `startproject`.
SETTINGS = re.compile(r"""DJANGO_SETTINGS_MODULE["']\s*,\s*["']([\w.]+)["']""")


def module_of(manage, interface):
    """The `wsgi` or `asgi` module of the project that `manage.py` names."""
    with open(manage, encoding="utf-8", errors="replace") as file:
        found = SETTINGS.search(file.read())
    if not found:
        raise FileNotFoundError(f"{manage} does not say which settings it has; name what is to be loaded: entry = \"MODULE:NAME\"")
    package = settings = found.group(1)
    tried = []
    # mysite.settings is next to mysite.wsgi; config.settings.production belongs to config.wsgi.
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
    """Loads URLs and views early, so that errors in them fail the start and workers share their memory. With DEBUG also
    serves static files, as `runserver` does."""
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
    """A database connection belongs to one process."""
    if database := sys.modules.get("django.db"):
        database.connections.close_all()
