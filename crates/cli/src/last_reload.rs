//! The result of the last reload, as text.

use super::control::printable;
use super::table::local;
use forkyard_protocol::last_reload::{LastReload, ReloadCause};

/// Describes the last reload in a line. Returns `None` for a successful start.
pub(super) fn line(last: &LastReload) -> Option<String> {
    if last.by == ReloadCause::Start && last.is_done() {
        return None;
    }
    let time = local(last.time);
    let took = last
        .took_ms
        .map(|took| format!(" in {}.{:03} s", took / 1000, took % 1000));
    let (took, by) = (took.unwrap_or_default(), last.by.in_words());
    let what = format!("{time} {by}{took}: {}", last.result.in_words());
    let why = last.error.as_ref().map(|error| format!(": {error}"));
    Some(printable(&format!(
        "last reload {what}{}",
        why.unwrap_or_default()
    )))
}

/// Describes the last reload in a line if it failed to apply the written configuration.
pub(super) fn trouble(last: Option<&LastReload>) -> Option<String> {
    last.filter(|last| !last.is_done()).and_then(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::control::Complaint;

    #[test]
    fn a_start_that_went_well_is_not_told() {
        let applied = |by| LastReload::applied(0, by, &[]);
        assert_eq!(line(&applied(ReloadCause::Start)), None);
        let done = line(&applied(ReloadCause::Signal)).expect("a line");
        assert!(
            done.starts_with("last reload 19") && done.ends_with(" by SIGUSR2: done"),
            "{done}"
        );
        assert_eq!(trouble(Some(&applied(ReloadCause::Signal))), None);
        let refused = LastReload::refused(0, ReloadCause::CommandAll, &[Complaint::text("a\u{1b}:1: x")]);
        let told = trouble(Some(&refused)).expect("a line");
        assert!(
            told.ends_with(
                " by forkyard reload --all: refused, the old configuration stays in force: a?:1: x"
            ),
            "{told}"
        );
    }
}
