//! The checkpoint thread: it waits for the disk, so that commits do not.

use super::{beside, copy};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const FROM_BYTES: u64 = 16 << 20;
const COMMITS: u32 = 32;
const APART: Duration = Duration::from_millis(200);

/// The committing side, and the thread once it runs.
#[derive(Debug)]
pub(super) struct Checkpoints {
    store: PathBuf,
    log: PathBuf,
    commits: u32,
    wished: Option<Instant>,
    thread: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Checkpoints {
    pub(super) fn of(store: &Path) -> Checkpoints {
        Checkpoints {
            store: store.to_owned(),
            log: beside(store, "-wal"),
            commits: 0,
            wished: None,
            thread: None,
        }
    }

    pub(super) fn committed(&mut self) {
        self.commits += 1;
        if self.commits < COMMITS {
            return;
        }
        self.commits = 0;
        if self.wished.is_some_and(|wished| wished.elapsed() < APART) {
            return;
        }
        if std::fs::metadata(&self.log).is_ok_and(|log| log.len() >= FROM_BYTES) {
            if self.thread.is_none() {
                self.thread = start(self.store.clone());
            }
            self.wished = Some(Instant::now());
            if let Some((wish, _)) = &self.thread {
                // One pending request is enough.
                let _ = wish.try_send(());
            }
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Some((wish, thread)) = self.thread.take() {
            drop(wish);
            let _ = thread.join();
        }
    }
}

fn start(store: PathBuf) -> Option<(SyncSender<()>, JoinHandle<()>)> {
    let (wish, wishes) = sync_channel(1);
    let thread = std::thread::Builder::new().name("checkpoint".into());
    let thread = thread.spawn(move || run(&store, &wishes)).ok()?;
    Some((wish, thread))
}

fn run(store: &Path, wishes: &Receiver<()>) {
    let Ok(connection) = copy::open(store) else { return };
    while wishes.recv().is_ok() {
        // The rest follows at the next checkpoint; commits report errors of the disk.
        let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }
}
