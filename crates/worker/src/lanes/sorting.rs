//! Decides for each connection that a worker accepts whether its request begins, in a pool with lanes.

use super::LaneQueues;
use super::queues::{Outlook, Peeked};
use crate::acceptor::{Acceptor, Work};
use crate::connection::Connection;
use crate::hand_off;
use crate::pool_view;
use crate::sequential::FIRST_BYTE_TIMEOUT;
use crate::service::Service;
use forkyard_base::tick::{Tick, nanos};
use forkyard_sys::clock;
use forkyard_sys::socket::{Readiness, wait};
use std::os::fd::AsFd;
use std::time::Duration;

impl Acceptor {
    /// Returns the connection if its request begins now. Otherwise parks it, or holds it if the client has sent nothing.
    pub(crate) fn sort(
        &mut self,
        service: &mut Service,
        connection: Box<Connection>,
    ) -> Option<Box<Connection>> {
        let Some(lanes) = &mut self.lanes else {
            return Some(connection);
        };
        if std::mem::take(&mut lanes.is_taken) {
            return Some(connection);
        }
        let lane = match look(lanes, &connection) {
            Peeked::Lane(lane) => lane,
            Peeked::Unknown => super::Lane::People,
            Peeked::Silent => {
                service.hold(connection, clock::now());
                return None;
            }
        };
        let now = clock::now();
        let is_alone = pool_view::count(&service.page.board).0 == 0;
        if lane.is_high() {
            let others_wait = || {
                lanes.has_high()
                    || wait(service.listener.as_fd(), Readiness::Readable, Duration::ZERO).unwrap_or(false)
            };
            if !is_alone || lanes.has_sorted_enough() || !others_wait() {
                if is_alone && service.tally.found_waiting {
                    lanes.high_waited(&service.page, now);
                }
                lanes.begin(&service.page, lane, now);
                return Some(connection);
            }
        }
        let since = Tick::from_nanos(now.as_nanos().saturating_sub(nanos(service.tally.waited)));
        let latest = hand_off::latest(&service.settings.pool, now);
        if lanes.park(&service.page, lane, &connection, (since, latest)) {
            service.close(connection);
            return None;
        }
        if lane.is_high() {
            lanes.begin(&service.page, lane, now);
        } else {
            lanes.refuse(lane);
        }
        Some(connection)
    }

    /// Takes a parked request, if one may begin.
    pub(crate) fn take_parked(&mut self, service: &mut Service, now: Tick) -> Option<Work> {
        let lanes = self.lanes.as_mut()?;
        let latest = hand_off::latest(&service.settings.pool, now);
        let parked = lanes.take(&service.page, now, latest)?;
        let mut connection = service.connection(parked.socket);
        connection.client.spoken = parked.is_spoken;
        connection.expires = parked.expires;
        connection.waiting = parked.waiting;
        service.tally.found_waiting = false;
        self.take_up(service);
        Some(Work::Connection(connection))
    }

    /// How long parked requests let the worker sleep; `None`: until it has work.
    pub(crate) fn parked_allow(&self, service: &Service, now: Tick) -> Option<Duration> {
        let outlook = self.lanes.as_ref()?.outlook(&service.page, now);
        outlook.may_sleep_for()
    }

    /// Wakes another worker for the parked requests, because this one leaves.
    pub(crate) fn leave_parked(&self, service: &Service) {
        let lanes = self.lanes.as_ref();
        if lanes.is_some_and(|lanes| lanes.outlook(&service.page, clock::now()) != Outlook::Nothing) {
            service.idle_watch.wake_sibling();
        }
    }
}

fn look(lanes: &mut LaneQueues, connection: &Connection) -> Peeked {
    let peeked = lanes.peek(connection);
    if peeked != Peeked::Silent || connection.client.spoken {
        return peeked;
    }
    match wait(connection.socket(), Readiness::Readable, FIRST_BYTE_TIMEOUT) {
        Ok(true) => lanes.peek(connection),
        Ok(false) | Err(_) => Peeked::Silent,
    }
}
