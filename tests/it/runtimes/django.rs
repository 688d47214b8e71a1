//! What Django leaves to the first request is loaded with the application.

use super::python_applications::{Site, django};
use crate::it::documents::blocks;
use crate::support::prelude::*;
use std::fs::OpenOptions;

fn append(file: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(file).expect("open");
    file.write_all(text.as_bytes()).expect("write");
}

fn project(settings: &str, urls: &str) -> impl FnOnce(&Path) {
    move |root: &Path| {
        django(root);
        append(&root.join("shop/settings.py"), settings);
        append(&root.join("shop/urls.py"), urls);
    }
}

const VIEWS: &str = r#"
from django.db import connection
from django.http import HttpResponse

with connection.cursor() as cursor:
    cursor.execute("SELECT 1")

def opened(request):
    return HttpResponse(f"{connection.connection is None}")

def fails(request):
    raise KeyError("on purpose")

urlpatterns += [path("opened", opened), path("fails", fails)]
"#;

#[test]
fn a_connection_that_was_opened_while_django_was_loaded_is_closed_before_the_fork() {
    for interface in ["wsgi", "asgi"] {
        let site = Site::start(interface, project("", VIEWS), "", "", "");
        let page = site.browse("/opened", &[]);
        assert!(page.ends_with("True"), "{interface}: {page}");
    }
}

#[test]
fn a_mistake_in_the_urls_keeps_the_old_code_in_service() {
    let site = Site::start("wsgi", project("", VIEWS), "", "", "");
    assert!(site.browse("/opened", &[]).contains("200 OK"));
    append(
        &site.root.path().join("shop/urls.py"),
        "import a_module_that_is_missing\n",
    );
    site.daemon.signal(Signal::SIGUSR2);
    site.daemon.wait_for("No module named 'a_module_that_is_missing'");
    assert!(site.browse("/opened", &[]).contains("200 OK"));
}

#[test]
fn with_debug_static_files_are_served_as_by_runserver() {
    for (interface, settings, answer) in [
        ("wsgi", "DEBUG = True\n", "200 OK"),
        ("asgi", "DEBUG = True\n", "200 OK"),
        ("wsgi", "", "404 Not Found"),
    ] {
        let site = Site::start(interface, project(settings, ""), "", "", "");
        let style = site.browse("/static/admin/css/base.css", &[]);
        assert!(style.contains(answer), "{interface}: {style}");
        assert_eq!(style.contains("DJANGO Admin styles"), answer == "200 OK");
    }
}

#[test]
fn the_documents_logging_has_refused_hosts_and_tracebacks() {
    let settings = blocks::find("docs/reference/python.md", "python", "LOGGING = {");
    let site = Site::start("wsgi", project(&settings, VIEWS), "", "", "");
    assert!(site.browse("/fails", &[]).contains("500 Internal Server Error"));
    assert!(
        site.browse("/opened", &["-H", "Host: other.example"])
            .contains("400 Bad Request")
    );
    for wanted in [
        "KeyError: 'on purpose'",
        "Invalid HTTP_HOST header: 'other.example'",
    ] {
        wait_until(wanted, || site.daemon.log().contains(wanted));
    }
}
