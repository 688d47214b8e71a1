//! Decides when a worker with several requests takes a new connection, and when its alarm rings. The simulation in
//! `crates/core/tests/sim` runs it.
//!
//! All workers are notified of a connection. The least busy one accepts it at once; the others leave it to siblings for
//! a moment, and then insist.
//!
//! Workers that only pass requests on concentrate connections on few instead: waking a worker costs more than giving a
//! request to one that is awake. The kernel also notifies awake workers registered before the one it wakes, so a worker
//! without connections leaves new ones to them briefly, if enough awake workers have some.

use super::super::gauge::Gauge;
use forkyard_base::tick::Tick;
use forkyard_host::listen::AcceptPause;
use forkyard_scoreboard::load::Load;
use std::time::Duration;

/// How long a connection is left to a less busy sibling, which normally takes it within microseconds.
pub const YIELD: Duration = Duration::from_millis(1);
/// How long it is left to a sibling without a request.
pub const YIELD_TO_IDLE: Duration = Duration::from_millis(5);
/// After siblings did not take a connection, leave none to them for this time: the kernel may not have notified them.
pub const LET_DOWN: Duration = Duration::from_secs(1);

/// When a worker looks for connections.
#[derive(Debug)]
pub struct Accepting {
    pub(crate) gauge: Gauge,
    /// The listening socket may have a connection.
    pub is_ready: bool,
    /// The hand-off queue may have one.
    pub queue_is_ready: bool,
    /// The generation's turn queue may have a message.
    pub turn_is_ready: bool,
    /// Until then the other generation may take connections; afterwards this worker accepts them.
    pub turn_at: Option<Tick>,
    /// How often it was the next connection's turn to be left.
    pub turns_left: u32,
    /// The other generation has left a connection to this one.
    pub is_poked: bool,
    /// When a request that was sent to the other generation comes back, unless a worker there has it.
    pub take_back_at: Option<Tick>,
    /// Accepting has failed.
    pub pause: AcceptPause,
    /// Until then siblings may take connections; afterwards this worker accepts them.
    insists_at: Option<Tick>,
    /// This many workers with connections are enough; `None`: connections are not concentrated.
    enough: Option<usize>,
    /// Connections are concentrated again.
    gathers_from: Tick,
}

/// A worker's own load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLoad {
    /// Its requests without an end.
    pub in_flight: usize,
    /// Its connections.
    pub connections: usize,
}

/// What to do about the next connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// There is none.
    Nothing,
    /// Leave it to siblings; from the first time on, until then.
    Leave(Option<Tick>),
    /// Accept it; true: although it was left to siblings.
    Accept(bool),
}

/// When the alarm rings: no later than the earliest time that it was set to.
#[derive(Debug, Default)]
pub struct Schedule(Option<Tick>);

impl Schedule {
    /// Returns whether the timer must be set to this time.
    pub fn set_by(&mut self, due: Tick) -> bool {
        let is_earlier = self.0.is_none_or(|set| set > due);
        if is_earlier {
            self.0 = Some(due);
        }
        is_earlier
    }

    /// The alarm has rung.
    pub fn ring(&mut self) {
        self.0 = None;
    }
}

/// Half of the processors, because the program and web server do more work per request.
pub fn enough(processors: usize) -> usize {
    (processors / 2).max(1)
}

impl Accepting {
    /// `enough`: so many workers with connections are enough ([`enough`]). `is_routed`: a router sends connections.
    pub fn begin(enough: Option<usize>, is_routed: bool) -> Accepting {
        Accepting {
            gauge: Gauge::default(),
            is_ready: !is_routed,
            queue_is_ready: true,
            turn_is_ready: true,
            turn_at: None,
            turns_left: 0,
            is_poked: false,
            take_back_at: None,
            pause: AcceptPause::default(),
            insists_at: None,
            enough,
            gathers_from: Tick::ZERO,
        }
    }

    /// Decides about a connection that may be there. `connected`: the siblings with connections and room.
    pub fn choose(
        &mut self,
        own: OwnLoad,
        siblings: impl Iterator<Item = Load>,
        connected: impl FnOnce() -> usize,
        now: Tick,
    ) -> Choice {
        if !self.may_look() {
            return Choice::Nothing;
        }
        let insists = self.insists_at.is_some_and(|due| due <= now);
        let time = match self.enough {
            _ if insists => None,
            Some(enough) => self.leaves_to_connected(own, enough, connected, now),
            None => leaves_to_sibling(own, siblings),
        };
        match (time, self.insists_at) {
            (Some(time), None) => {
                self.insists_at = Some(now + time);
                Choice::Leave(self.insists_at)
            }
            (Some(_), Some(_)) => Choice::Leave(None),
            (None, _) => {
                self.insists_at = None;
                Choice::Accept(insists)
            }
        }
    }

    fn leaves_to_connected(
        &self,
        own: OwnLoad,
        enough: usize,
        connected: impl FnOnce() -> usize,
        now: Tick,
    ) -> Option<Duration> {
        let leaves = own.connections == 0 && self.gathers_from <= now && connected() >= enough;
        leaves.then_some(YIELD)
    }

    /// A connection was accepted although it was left to siblings.
    pub fn was_let_down(&mut self, now: Tick) {
        self.gathers_from = now + LET_DOWN;
    }

    /// Whether the worker could take a connection at once. A worker without requests leaves no connection to siblings, unless
    /// connections are concentrated.
    pub fn could_take(&self, in_flight: usize, now: impl FnOnce() -> Tick) -> bool {
        let leaves_nothing = in_flight == 0 && !self.concentrates();
        let insists_at = self.insists_at.filter(|_| !leaves_nothing);
        let waits_until = insists_at.max(self.turn_at);
        self.may_look() && waits_until.is_none_or(|due| due <= now())
    }

    /// Whether connections are concentrated, because the worker only passes requests on.
    pub fn concentrates(&self) -> bool {
        self.enough.is_some()
    }

    pub(crate) fn may_look(&self) -> bool {
        self.is_ready && self.pause.deadline().is_none()
    }

    /// Returns when this worker takes the connections that it has left to others.
    pub fn insists_at(&self) -> Option<Tick> {
        let times = [self.insists_at, self.turn_at, self.take_back_at];
        times.into_iter().flatten().min()
    }

    /// No connection is there.
    pub fn found_none(&mut self) {
        (self.is_ready, self.is_poked) = (false, false);
        self.take_turn();
    }

    /// Connections are this generation's.
    pub fn take_turn(&mut self) {
        (self.turn_at, self.turns_left) = (None, 0);
    }

    /// The alarm has rung.
    pub fn ring(&mut self, now: Tick) {
        self.is_ready |= self.insists_at.is_some_and(|due| due <= now);
        self.is_ready |= self.pause.end(now);
    }

    /// When the alarm must ring next.
    pub fn due(&self, now: Tick) -> Option<Tick> {
        let times = [self.insists_at, self.turn_at, self.take_back_at];
        let later = times.into_iter().flatten().filter(|due| *due > now);
        later.chain(self.pause.deadline()).min()
    }
}

/// How long to leave a connection to a sibling; `None`: accept it.
fn leaves_to_sibling(own: OwnLoad, siblings: impl Iterator<Item = Load>) -> Option<Duration> {
    if own.in_flight == 0 {
        return None;
    }
    let with_room = siblings.filter(|sibling| sibling.has_room);
    let least = with_room.min_by_key(|sibling| sibling.in_flight)?;
    if least.in_flight == 0 {
        return Some(YIELD_TO_IDLE);
    }
    let own = Load {
        in_flight: u32::try_from(own.in_flight).unwrap_or(u32::MAX),
        ..least
    };
    own.yields_to([least]).then_some(YIELD)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: OwnLoad = OwnLoad {
        in_flight: 1,
        connections: 0,
    };

    fn choose(accepting: &mut Accepting, connected: usize, now: Tick) -> Choice {
        let idle = Load {
            has_room: true,
            ..Load::default()
        };
        accepting.choose(OWN, std::iter::once(idle), || connected, now)
    }

    #[test]
    fn a_connection_is_left_to_siblings_once_and_then_taken() {
        let mut accepting = Accepting::begin(None, false);
        let now = Tick::from_nanos(1);
        let due = now + YIELD_TO_IDLE;
        assert_eq!(choose(&mut accepting, 0, now), Choice::Leave(Some(due)));
        assert_eq!(choose(&mut accepting, 0, now + YIELD), Choice::Leave(None));
        assert!(!accepting.could_take(1, || now) && accepting.could_take(0, || now));
        assert_eq!(accepting.due(now), Some(due));
        accepting.is_ready = false;
        accepting.ring(now + YIELD);
        assert_eq!(choose(&mut accepting, 0, now + YIELD), Choice::Nothing);
        accepting.ring(due);
        assert_eq!(accepting.due(due), None);
        assert!(accepting.could_take(1, || due));
        assert_eq!(choose(&mut accepting, 0, due), Choice::Accept(true));
        assert_eq!(accepting.insists_at(), None);
    }

    #[test]
    fn a_pause_ends_by_the_alarm() {
        let mut accepting = Accepting::begin(None, false);
        let now = Tick::from_nanos(1);
        accepting.pause.begin(now);
        let due = accepting.due(now).unwrap();
        accepting.ring(now);
        assert!(!accepting.could_take(0, || now));
        accepting.ring(due);
        assert!(accepting.could_take(0, || due));
        assert!(
            !Accepting::begin(None, true).could_take(0, || due),
            "a router sends them"
        );
    }

    #[test]
    fn half_of_the_processors_pass_on_what_the_others_answer() {
        let enough = [1, 2, 3, 4, 16].map(enough);
        assert_eq!(enough, [1, 1, 1, 2, 8]);
    }

    #[test]
    fn a_worker_that_was_let_down_takes_connections_for_a_while() {
        let now = Tick::from_nanos(1);
        let leaves = |accepting: &mut Accepting, connected, now| {
            accepting.insists_at = None;
            matches!(choose(accepting, connected, now), Choice::Leave(_))
        };
        let mut accepting = Accepting::begin(Some(2), false);
        let left = [1, 2, 3].map(|connected| leaves(&mut accepting, connected, now));
        assert_eq!(left, [false, true, true]);
        accepting.was_let_down(now);
        assert!(!leaves(&mut accepting, 3, now));
        assert!(leaves(&mut accepting, 2, now + LET_DOWN));
    }
}
