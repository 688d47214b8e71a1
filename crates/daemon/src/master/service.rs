//! Notifies the service manager: ready, reloading, stopping, the watchdog, and the pools' state.

use super::executor::Executor;
use crate::pools::totals::Totals;
use forkyard_base::tick::Tick;
use forkyard_sys::clock;
use forkyard_sys::notify::Notifier;
use std::ffi::OsString;
use std::time::Duration;

pub(super) struct Service {
    notifier: Option<Notifier>,
    watchdog: Option<Watchdog>,
    bulletin: Option<Bulletin>,
}

impl Service {
    pub(super) fn new(notifier: Option<Notifier>) -> Service {
        let watchdog = notifier.as_ref().and_then(|notifier| notifier.watchdog);
        Service {
            watchdog: watchdog.map(Watchdog::new),
            bulletin: None,
            notifier,
        }
    }

    pub(super) fn tell_ready(&self) {
        let pid = std::process::id();
        self.tell(&format!(
            "READY=1\nSTATUS=Ready to handle connections\nMAINPID={pid}\n"
        ));
    }

    pub(super) fn tell_reloading(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.tell_reloading();
        }
    }

    pub(super) fn tell_stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Stopping\n");
    }

    fn tell(&self, text: &str) {
        if let Some(notifier) = &self.notifier {
            notifier.tell(text);
        }
    }

    pub(super) fn variables(&self) -> &[(&'static str, OsString)] {
        self.notifier.as_ref().map_or(&[][..], Notifier::variables)
    }

    pub(super) fn set_bulletin(&mut self, interval: Option<Duration>) {
        let is_known = self.bulletin.as_ref().map(|bulletin| bulletin.interval) == interval;
        if self.notifier.is_some() && !is_known {
            self.bulletin = interval.map(Bulletin::new);
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.notifier.is_some()
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        let watchdog = self.watchdog.as_ref().map(|watchdog| watchdog.due);
        let bulletin = self.bulletin.as_ref().map(|bulletin| bulletin.due);
        watchdog.into_iter().chain(bulletin).min()
    }

    pub(super) fn poll(&mut self, executor: &Executor) {
        let now = clock::now();
        let Some(notifier) = &self.notifier else { return };
        if let Some(watchdog) = self.watchdog.as_mut().filter(|it| it.due <= now) {
            watchdog.due = now + watchdog.interval;
            notifier.tell("WATCHDOG=1\n");
        }
        if let Some(bulletin) = self.bulletin.as_mut().filter(|it| it.due <= now) {
            bulletin.due = now + bulletin.interval;
            notifier.tell(&bulletin.text(&executor.context.pools.totals()));
        }
    }
}

struct Bulletin {
    interval: Duration,
    due: Tick,
    /// The number of requests at the previous notification.
    requests: u64,
}

impl Bulletin {
    fn new(interval: Duration) -> Bulletin {
        Bulletin {
            interval,
            due: clock::now() + interval,
            requests: 0,
        }
    }

    fn text(&mut self, totals: &Totals) -> String {
        let Totals {
            active,
            idle,
            requests,
            slow,
        } = *totals;
        // A reload resets the count.
        let new = requests.checked_sub(self.requests).unwrap_or(requests);
        self.requests = requests;
        let rate = new as f64 / self.interval.as_secs_f64();
        format!(
            "READY=1\nSTATUS=Processes active: {active}, idle: {idle}, Requests: {requests}, slow: {slow}, \
             Traffic: {rate:.2}req/sec"
        )
    }
}

/// Notifies the watchdog twice in each of its intervals.
struct Watchdog {
    interval: Duration,
    due: Tick,
}

impl Watchdog {
    fn new(limit: Duration) -> Watchdog {
        let interval = limit / 2;
        Watchdog {
            interval,
            due: clock::now() + interval,
        }
    }
}
