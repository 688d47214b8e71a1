//! Applications that are not PHP.

use super::application::{DEFAULT_PRELOADER_IDLE_TIMEOUT, file};
use super::pool::positive;
use crate::config::World;
use crate::config::draft::{CgiDraft, PoolText, WrappedDraft};
use crate::config::model::{Cgi, Interface, Wrapped};
use crate::config::report::Report;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Applications with many parts take long to load; Passenger gives them as much.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(90);

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
    let root = file(&draft.root, world, report);
    let interpreter = if draft.interpreter.is_absent() {
        root.as_deref()
            .map(|root| usual_interpreter(interface, root, world))
    } else {
        file(&draft.interpreter, world, report)
    };
    Some(Wrapped {
        interface,
        root: root?,
        entry: draft.entry.written().map(|written| written.value.0.clone()),
        interpreter: interpreter?,
        start_timeout: positive(&draft.start_timeout, DEFAULT_START_TIMEOUT, report),
        preloader_idle_timeout: draft
            .preloader_idle_timeout
            .written()
            .map_or(DEFAULT_PRELOADER_IDLE_TIMEOUT, |written| written.value.0),
    })
}

/// The interpreter where none is named: of the virtual environment that lies in the application's directory, or the
/// system's.
fn usual_interpreter(interface: Interface, root: &Path, world: &dyn World) -> PathBuf {
    match interface {
        Interface::Wsgi | Interface::Asgi => [".venv/bin/python", "venv/bin/python"]
            .iter()
            .map(|place| root.join(place))
            .find(|path| world.exists(path))
            .unwrap_or_else(|| PathBuf::from("/usr/bin/python3")),
        Interface::Rack => PathBuf::from("/usr/bin/ruby"),
    }
}
