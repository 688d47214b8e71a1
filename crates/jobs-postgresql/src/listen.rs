//! What machines tell each other: a connection of its own hears it, because the one that works is not looked at meanwhile.

use crate::connection::connect;
use forkyard_jobs::store::sql::Notice;
use postgres::Config;
use postgres::fallible_iterator::FallibleIterator;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// How long it waits until it connects again.
const REST: Duration = Duration::from_secs(1);

/// A notice as it is sent.
pub(crate) fn word(notice: &Notice) -> String {
    match notice {
        Notice::News => String::new(),
        Notice::Cancel(id) => format!("cancel {id}"),
    }
}

fn read(word: &str) -> Notice {
    let id = word.strip_prefix("cancel ").and_then(|id| id.parse().ok());
    id.map_or(Notice::News, Notice::Cancel)
}

/// Hears for as long as the process lives. `own`: the server's process that the process' own notices come from.
pub(crate) fn start(
    config: Config,
    own: Arc<AtomicI32>,
    hear: Box<dyn Fn(Notice) + Send>,
) -> std::io::Result<()> {
    let listen = move || -> Result<(), postgres::Error> {
        let mut client = connect(&config)?;
        client.batch_execute("LISTEN forkyard_jobs")?;
        // What was said before was not heard.
        hear(Notice::News);
        let mut notices = client.notifications();
        let mut notices = notices.blocking_iter();
        while let Some(notice) = notices.next()? {
            if notice.process_id() != own.load(Ordering::Relaxed) {
                hear(read(notice.payload()));
            }
        }
        Ok(())
    };
    let forever = move || loop {
        if let Err(error) = listen() {
            log::debug!("jobs: other machines are not heard: {error}");
        }
        std::thread::sleep(REST);
    };
    std::thread::Builder::new()
        .name("listen".into())
        .spawn(forever)
        .map(|_| ())
}
