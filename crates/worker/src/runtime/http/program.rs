//! Which process of a program is asked, and what is done when it does not answer.

use super::head::{self, Framing};
use super::run::{Outcome, ask, conclude, connect, is_quiet, is_repeatable};
use super::share::Share;
use super::table::{Place, Table};
use crate::config::Address;
use crate::runtime::refuse;
use crate::sys::{clock, socket};
use crate::tick::Tick;
use crate::worker::{ClientGone, Request};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How long a request waits for a program that is being started, at most.
const MOST_PATIENCE: Duration = Duration::from_secs(30);
/// The first pause between two looks at the table; each further one is twice as long, up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// A request that processes have taken and not answered so often may be what ends them.
const MOST_ASKED: u32 = 2;

/// The processes of a program, as one worker knows them.
#[derive(Debug)]
pub(super) struct Processes {
    share: Share,
    slot: usize,
    patience: Duration,
    links: Vec<Link>,
    /// Of equally busy ones, where the search begins: another one with each request.
    turn: usize,
}

/// A process that was asked before.
#[derive(Debug)]
struct Link {
    place: Place,
    address: Address,
    /// A connection that can serve another request.
    kept: Option<OwnedFd>,
}

/// What became of an attempt.
enum Attempt {
    /// It could not be reached: it has not seen the request.
    Unreachable(String),
    /// It has.
    Asked(Outcome),
}

impl Processes {
    /// The processes in a table, for the worker in `slot`. `start_timeout`: how long one may take to be up.
    pub(super) fn new(share: Share, slot: usize, start_timeout: Duration) -> Processes {
        Processes {
            share,
            slot,
            patience: start_timeout.min(MOST_PATIENCE),
            links: Vec::new(),
            turn: slot,
        }
    }

    pub(super) fn serve(&mut self, request: &mut Request<'_>) -> Result<(), ClientGone> {
        let (head, framing) = head::write(request.params());
        let may_repeat = framing == Framing::Nothing && is_repeatable(request);
        let share = self.share.clone();
        let table = share.table();
        let mut wait = Wait::new(self.patience);
        self.turn = self.turn.wrapping_add(1);
        let (mut asked, mut tried, mut why) = (0, Vec::new(), None);
        loop {
            let place = table.choose(self.turn, &tried);
            let Some(place) = place else {
                tried.clear();
                match wait.pause(request, &table) {
                    Waited::Look => continue,
                    Waited::ClientGone => return Err(ClientGone),
                    Waited::Failed(id) => {
                        let text = format!("the application can't be started (error {id:08x})");
                        return refuse(request, UNAVAILABLE, "", &text, &text);
                    }
                    Waited::TooLong => {
                        let why = why.unwrap_or_else(|| "it is not up".to_owned());
                        log::error!("the application can't be reached: {why}");
                        let why = "the application can't be reached";
                        return refuse(request, UNAVAILABLE, "", why, why);
                    }
                }
            };
            tried.push(place);
            if !table.take(self.slot, place) {
                continue;
            }
            request.set_program(table.pid(place));
            let attempt = self.attempt(request, &table, place, &head, framing);
            table.give(self.slot, place);
            match attempt {
                Attempt::Unreachable(error) => why = Some(error),
                Attempt::Asked(Outcome::Nothing) if may_repeat && asked + 1 < MOST_ASKED => asked += 1,
                Attempt::Asked(outcome) => return conclude(request, outcome),
            }
        }
    }

    fn attempt(
        &mut self,
        request: &mut Request<'_>,
        table: &Table<'_>,
        place: Place,
        head: &[u8],
        framing: Framing,
    ) -> Attempt {
        let Some(link) = self.link(table, place) else {
            return Attempt::Unreachable("it is gone".to_owned());
        };
        if let Some(kept) = link.kept.take().filter(is_quiet) {
            let outcome = ask(request, kept, &mut link.kept, head, framing);
            // Closed while the request was on its way.
            if !(outcome == Outcome::Nothing && framing == Framing::Nothing && is_repeatable(request)) {
                return Attempt::Asked(outcome);
            }
        }
        match connect(&link.address) {
            Ok(connection) => Attempt::Asked(ask(request, connection, &mut link.kept, head, framing)),
            Err(error) => Attempt::Unreachable(error.to_string()),
        }
    }

    /// What is known of a process; those that were at the same place before it are forgotten.
    fn link(&mut self, table: &Table<'_>, place: Place) -> Option<&mut Link> {
        self.links
            .retain(|link| link.place.index != place.index || link.place == place);
        let known = self.links.iter().position(|link| link.place == place);
        let at = match known {
            Some(at) => at,
            None => {
                self.links.push(Link {
                    place,
                    address: table.address(place)?,
                    kept: None,
                });
                self.links.len() - 1
            }
        };
        self.links.get_mut(at)
    }
}

const UNAVAILABLE: &str = "503 Service Unavailable\r\nRetry-After: 5";

/// Waiting until a process is up.
struct Wait {
    patience: Duration,
    until: Option<Tick>,
    pause: Duration,
}

enum Waited {
    /// Another look may find one.
    Look,
    ClientGone,
    /// The last start failed, with this id.
    Failed(u32),
    TooLong,
}

impl Wait {
    fn new(patience: Duration) -> Wait {
        Wait {
            patience,
            until: None,
            pause: FIRST_PAUSE,
        }
    }

    fn pause(&mut self, request: &Request<'_>, table: &Table<'_>) -> Waited {
        if let Some(id) = table.failure() {
            return Waited::Failed(id);
        }
        let now = clock::now();
        let until = *self.until.get_or_insert(now + self.patience);
        if until <= now {
            return Waited::TooLong;
        }
        let pause = self.pause.min(until.since(now));
        self.pause = (self.pause * 2).min(LAST_PAUSE);
        match request.connection() {
            Some(client) if socket::is_closed_within(client, pause) => Waited::ClientGone,
            Some(_) => Waited::Look,
            None => Waited::ClientGone,
        }
    }
}
