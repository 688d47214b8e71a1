"""A Django site of one page: middleware, a session, a form's token and a template."""

import os

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.shortcuts import render
from django.urls import path

HERE = os.path.dirname(os.path.abspath(__file__))
settings.configure(
    SECRET_KEY="not one",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.sessions", "django.contrib.messages"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "DIRS": [os.path.join(HERE, "templates")]}],
    USE_TZ=True,
)


def page(request):
    rows = [{"number": number, "name": f"row {number} & more"} for number in range(50)]
    return render(request, "page.html", {"rows": rows, "title": "A page"})


urlpatterns = [path("", page), path("wsgi", page)]
django.setup()
application = get_wsgi_application()
