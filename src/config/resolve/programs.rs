//! Applications that are not PHP.

use super::application::{DEFAULT_PRELOADER_IDLE_TIMEOUT, file};
use super::listen::address;
use super::pool::positive;
use crate::config::World;
use crate::config::draft::{CgiDraft, HttpDraft, PoolText, WrappedDraft};
use crate::config::model::{Cgi, Http, Interface, Wrapped};
use crate::config::report::Report;
use std::path::PathBuf;
use std::time::Duration;

/// Applications with many parts take long to load; Passenger gives them as much.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) fn http(
    text: &PoolText,
    draft: &HttpDraft,
    world: &dyn World,
    report: &mut Report<'_>,
) -> Option<Http> {
    let Some(written) = draft.address.written() else {
        if draft.address.is_absent() {
            let runtime = text.draft.runtime.written();
            let place = runtime.map_or(&text.place, |runtime| &runtime.place);
            let write = "address = \"127.0.0.1:3000\", or the path of the socket that the program listens on";
            report.missing(place, "application.address", write);
        }
        return None;
    };
    Some(Http {
        address: address(written, world, report)?,
    })
}

pub(super) fn cgi(
    text: &PoolText,
    draft: &CgiDraft,
    world: &dyn World,
    report: &mut Report<'_>,
) -> Option<Cgi> {
    if draft.script.is_absent() && draft.root.is_absent() {
        let runtime = text.draft.runtime.written();
        let place = runtime.map_or(&text.place, |runtime| &runtime.place);
        let write =
            "root = \"/usr/lib/cgi-bin\", below which programs may be run, or script = \"...\", the only one";
        report.missing(place, "application.root", write);
        return None;
    }
    Some(Cgi {
        script: file(&draft.script, world, report),
        root: file(&draft.root, world, report),
        search_arguments: draft
            .search_arguments
            .written()
            .is_some_and(|written| written.value.0),
    })
}

pub(super) fn wrapped(
    text: &PoolText,
    interface: Interface,
    draft: &WrappedDraft,
    world: &dyn World,
    report: &mut Report<'_>,
) -> Option<Wrapped> {
    if draft.root.is_absent() {
        let runtime = text.draft.runtime.written();
        let place = runtime.map_or(&text.place, |runtime| &runtime.place);
        let write = "root = \"/srv/app\", the directory of the application";
        report.missing(place, "application.root", write);
    }
    let usual = match interface {
        Interface::Wsgi | Interface::Asgi => "/usr/bin/python3",
        Interface::Rack => "/usr/bin/ruby",
    };
    let interpreter = if draft.interpreter.is_absent() {
        Some(PathBuf::from(usual))
    } else {
        file(&draft.interpreter, world, report)
    };
    Some(Wrapped {
        interface,
        root: file(&draft.root, world, report)?,
        entry: draft.entry.written().map(|written| written.value.0.clone()),
        interpreter: interpreter?,
        start_timeout: positive(&draft.start_timeout, DEFAULT_START_TIMEOUT, report),
        preloader_idle_timeout: draft
            .preloader_idle_timeout
            .written()
            .map_or(DEFAULT_PRELOADER_IDLE_TIMEOUT, |written| written.value.0),
    })
}
