//! The thread for long reads, with its own connection, so that a push does not wait for a list.

use super::operation::{Operation, Reply};
use super::thread::{StoreEvent, ToLoop};
use super::{Store, StoreError};
use forkyard_sys::clock;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

const MOST_WAITING: usize = 1_024;

#[derive(Debug)]
pub(super) struct Looks {
    operations: SyncSender<(u64, Operation)>,
    to_loop: ToLoop,
    thread: JoinHandle<()>,
}

/// Sends the thread its store once that is open.
pub(super) type Opened = Sender<Result<Store, StoreError>>;

impl Looks {
    pub(super) fn start(to_loop: ToLoop) -> std::io::Result<(Looks, Opened)> {
        let (operations, received) = sync_channel(MOST_WAITING);
        let (opened, stores) = channel();
        let said = to_loop.clone();
        let thread = std::thread::Builder::new()
            .name("looks".into())
            .spawn(move || run(&stores, &received, &said))?;
        let looks = Looks {
            operations,
            to_loop,
            thread,
        };
        Ok((looks, opened))
    }

    pub(super) fn close(self) {
        drop(self.operations);
        let _ = self.thread.join();
    }

    pub(super) fn ask(&self, number: u64, operation: Operation) {
        let refused = match self.operations.try_send((number, operation)) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => "too much is asked for at once",
            Err(TrySendError::Disconnected(_)) => "nothing looks at it",
        };
        let reply = Reply::Failed(refused.to_owned());
        self.to_loop.say(StoreEvent::Reply(number, reply));
    }
}

fn run(
    stores: &Receiver<Result<Store, StoreError>>,
    operations: &Receiver<(u64, Operation)>,
    to_loop: &ToLoop,
) {
    let mut store = None;
    while let Ok((number, operation)) = operations.recv() {
        if store.is_none() {
            store = stores.recv().ok();
        }
        let Some(store) = &mut store else { return };
        let now_ms = i64::try_from(clock::epoch_micros() / 1_000).unwrap_or(i64::MAX);
        let looked = match store {
            Ok(store) => store
                .perform(&[operation], now_ms)
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let reply = match looked {
            Ok(mut committed) => committed.replies.pop(),
            Err(why) => Some(Reply::Failed(why)),
        };
        if let Some(reply) = reply {
            to_loop.say(StoreEvent::Reply(number, reply));
            to_loop.wake();
        }
    }
}
