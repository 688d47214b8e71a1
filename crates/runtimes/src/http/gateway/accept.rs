//! Accepts connections of web servers that speak HTTP.

use super::event_loop::{Client, Gateway};
use super::passage::Passage;
use super::stream::Stream;
use super::{FRONT, MOST_SERIAL, VISIT};
use forkyard_sys::clock;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::os::fd::OwnedFd;

const AT_ONCE: usize = 32;

impl Gateway {
    pub(super) fn update_listening(&mut self) {
        let is_open = self.worker.has_room();
        if is_open == self.is_open {
            return;
        }
        let epoll = &self.epoll;
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        let changed = self.worker.with_http(|http| match is_open {
            true => epoll.add(http, EpollEvent::new(flags, FRONT)),
            false => epoll.delete(http),
        });
        if let Some(Err(errno)) = changed {
            log::error!("the HTTP socket can't be watched: epoll_ctl: {errno}");
        }
        self.is_open = is_open;
    }

    pub(super) fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            if !self.worker.has_room() {
                return;
            }
            match self.worker.accept_http() {
                Some(client) => self.take_in(client),
                None => return,
            }
        }
    }

    fn take_in(&mut self, client: OwnedFd) {
        self.last_serial = self.last_serial.wrapping_add(1) & MOST_SERIAL;
        let index = self.passages.vacant_key();
        let number = VISIT | u64::from(self.last_serial) << 32 | index as u64;
        let mut client = match Stream::watch(client, number, true, &self.epoll) {
            Ok(client) => client,
            Err(error) => return log::error!("can't keep a connection: epoll_ctl: {}", error.errno),
        };
        client.readable = true;
        let passage = Passage::http(self.limits, clock::now());
        self.begin(passage, Client::Socket(client), None);
    }

    pub(super) fn see_client(&mut self, data: u64, flags: EpollFlags) {
        let index = (data & 0xffff_ffff) as usize;
        let Some(Client::Socket(client)) = self.passages.get_mut(index).map(|carried| &mut carried.client)
        else {
            return;
        };
        if client.number == data {
            client.see(flags);
            self.pump(index);
        }
    }
}
