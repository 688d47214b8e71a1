//! A pool of workers, its clients and the kernel. Times are in microseconds.

use crate::random::Random;
use crate::sim::agenda::Agenda;
use forkyard_worker::service_order::{self, LOOK_INTERVAL, ListenQueueState, Next, Waiting};
use std::collections::VecDeque;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    OwnFirst,
    NewFirst,
    KeptFirst,
    NoIdleWatch,
    LeavesWork,
}

impl Mutant {
    pub(crate) const ALL: [Mutant; 5] = [
        Mutant::OwnFirst,
        Mutant::NewFirst,
        Mutant::KeptFirst,
        Mutant::NoIdleWatch,
        Mutant::LeavesWork,
    ];
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) came: u64,
    pub(crate) begun: u64,
}

/// The time of a wake-up, and of a worker's overhead.
const WAKE: u64 = 5;
const OVERHEAD: u64 = 4;
const END: u64 = 150_000;
/// As in the worker.
const LINE_INTERVAL: u64 = 500;
const IDLE_LIMIT: u64 = 1_000;

#[derive(Debug)]
struct Client {
    keeps: bool,
    pause: u64,
    came: Option<u64>,
    noted: Option<Waiting>,
    holder: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Asleep(u64),
    Woken,
    Serves(usize, u64),
}

#[derive(Debug)]
struct Worker {
    doing: Doing,
    looked: u64,
    alone: bool,
    contended: bool,
    took: [u64; 2],
    own: VecDeque<usize>,
    /// Whether its epoll was woken for the listening socket, and for the queue.
    told: [bool; 2],
    line: (ListenQueueState, u64),
    /// During a long request it hands over what comes.
    minds: bool,
}

#[derive(Debug)]
struct Message {
    clients: Vec<usize>,
    waiting: Option<Waiting>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Send(usize),
    Turn(usize),
    Mind(usize, u64),
    Done(usize),
}

#[derive(Debug)]
pub(crate) struct Pool {
    random: Random,
    mutant: Option<Mutant>,
    agenda: Agenda<Event>,
    clients: Vec<Client>,
    workers: Vec<Worker>,
    listener: VecDeque<usize>,
    queue: VecDeque<Message>,
    accepted: u64,
    slow: (u32, u32),
    pub(crate) served: Vec<Served>,
}

const LISTENER: usize = 0;
const QUEUE: usize = 1;

impl Pool {
    pub(crate) fn new(mut random: Random, mutant: Option<Mutant>) -> Pool {
        let workers = random.pick(&[1, 2, 4, 4, 8]);
        let clients = random.pick(&[2, 8, 16, 32, 64]);
        let kept = random.pick(&[0, 50, 90, 100]);
        let pauses = random.pick(&[0, 0, 500, 20_000]);
        let slow = (random.pick(&[0, 2, 20, 100]), random.pick(&[400, 1_500, 6_000]));
        let worker = || Worker {
            doing: Doing::Asleep(0),
            looked: 0,
            alone: false,
            contended: false,
            took: [0; 2],
            own: VecDeque::new(),
            told: [false; 2],
            line: (ListenQueueState::default(), 0),
            minds: false,
        };
        let mut pool = Pool {
            mutant,
            agenda: Agenda::new(),
            clients: Vec::new(),
            workers: (0..workers).map(|_| worker()).collect(),
            listener: VecDeque::new(),
            queue: VecDeque::new(),
            accepted: 0,
            slow,
            served: Vec::new(),
            random,
        };
        for client in 0..clients {
            let keeps = pool.random.percent(kept);
            let greedy = pool.random.percent(50);
            pool.clients.push(Client {
                keeps,
                pause: if greedy { 30 } else { pauses },
                came: None,
                noted: None,
                holder: None,
            });
            let begin = pool.random.below(3_000) as u64;
            pool.agenda.plan(begin, Event::Send(client));
        }
        pool
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn scenario(&self) -> String {
        let kept = self.clients.iter().filter(|client| client.keeps).count();
        let (all, workers) = (self.clients.len(), self.workers.len());
        format!(
            "{workers} workers, {all} clients, {kept} kept; {:?} slow",
            self.slow
        )
    }

    pub(crate) fn run(&mut self) {
        while let Some((at, event)) = self.agenda.next() {
            if at > END {
                return;
            }
            self.agenda.now = at;
            match event {
                Event::Send(client) => self.send(client),
                Event::Turn(worker) => self.advance(worker),
                Event::Mind(worker, number) => self.mind(worker, number),
                Event::Done(worker) => self.done(worker),
            }
            self.check_idleness();
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn send(&mut self, client: usize) {
        let now = self.agenda.now;
        assert!(self.clients[client].came.replace(now).is_none(), "asked twice");
        match self.clients[client].holder {
            Some(worker) if self.workers[worker].minds => {
                self.notice(worker, client);
                self.pass_on(worker, 0);
            }
            Some(worker) => self.wake(worker),
            // Queued connections are checked when taken out.
            None if self.queue.iter().any(|message| message.clients.contains(&client)) => {}
            None => {
                self.listener.push_back(client);
                self.tell(LISTENER);
            }
        }
    }

    /// Wakes one epoll after the other until a worker was asleep.
    fn tell(&mut self, what: usize) {
        for index in 0..self.workers.len() {
            self.workers[index].told[what] = true;
            if matches!(self.workers[index].doing, Doing::Asleep(_)) {
                return self.wake(index);
            }
        }
    }

    fn wake(&mut self, worker: usize) {
        if matches!(self.workers[worker].doing, Doing::Asleep(_)) {
            self.workers[worker].doing = Doing::Woken;
            self.agenda.plan(WAKE, Event::Turn(worker));
        }
    }

    fn line(&mut self, worker: usize) -> ListenQueueState {
        let (line, measured) = self.workers[worker].line;
        if measured != 0 && self.agenda.now - measured < LINE_INTERVAL {
            return line.at(self.accepted);
        }
        let line = ListenQueueState {
            accepted: self.accepted,
            waiting: self.listener.len().max(1) as u64,
        };
        self.workers[worker].line = (line, self.agenda.now);
        line
    }

    fn advance(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        let is_recent = self.agenda.now - worker.looked < LOOK_INTERVAL.as_micros() as u64;
        if worker.alone && is_recent {
            if let Some(client) = worker.own.pop_front() {
                return self.serve(index, client);
            }
        }
        while !self.scan(index) {}
    }

    /// `false`: look again.
    fn scan(&mut self, index: usize) -> bool {
        let worker = &mut self.workers[index];
        let may_have_slept = !worker.contended && worker.own.is_empty();
        worker.looked = self.agenda.now;
        worker.told[LISTENER] &= !self.listener.is_empty();
        worker.told[QUEUE] &= !self.queue.is_empty();
        let [mut listener, mut queue] = worker.told;
        worker.alone = !listener && !queue;
        let is_new = |client: &Client| client.holder == Some(index) && client.noted.is_none();
        let clients = self.clients.iter().enumerate();
        let mut ready: Vec<(u64, usize)> = clients
            .filter(|(_, client)| is_new(client))
            .filter_map(|(number, client)| Some((client.came?, number)))
            .collect();
        ready.sort_unstable();
        for (_, client) in ready {
            self.notice(index, client);
        }
        let worker = &self.workers[index];
        let second = worker.own.get(1).and_then(|client| self.clients[*client].noted);
        let takes = Duration::from_micros(worker.took[0].min(worker.took[1]));
        let stays = service_order::stays(takes, second, self.agenda.tick());
        if self.workers.len() > 1 {
            self.pass_on(index, stays);
        }
        let worker = &mut self.workers[index];
        let places = [listener, queue, !worker.own.is_empty()];
        worker.contended = places.into_iter().filter(|is| *is).count() > 1;
        let own = self.workers[index]
            .own
            .front()
            .and_then(|client| self.clients[*client].noted);
        listener &= !self.listener.is_empty();
        queue &= !self.queue.is_empty();
        let first = self
            .queue
            .front()
            .filter(|_| queue)
            .and_then(|message| message.waiting);
        let next = match listener && (own.is_some() || first.is_some()) {
            _ if queue && first.is_none() => Next::Queue,
            true => service_order::next(Some(self.line(index)), first, own),
            false => service_order::next(listener.then(ListenQueueState::default), first, own),
        };
        let next = match self.mutant {
            Some(Mutant::OwnFirst) if own.is_some() => Next::Own,
            Some(Mutant::NewFirst) if listener => Next::Accept,
            Some(Mutant::KeptFirst) if own.is_some() || first.is_some() => {
                service_order::next(None, first, own)
            }
            Some(Mutant::LeavesWork) if own.is_some() => Next::Own,
            _ => next,
        };
        let leaves = (listener && next != Next::Accept) || (queue && next != Next::Queue);
        let is_silent = next == Next::Queue && first.is_none();
        if leaves && may_have_slept && !is_silent && !self.is(Mutant::LeavesWork) {
            self.pass(Vec::new(), None);
        }
        match next {
            Next::Accept => {
                let client = self.listener.pop_front().expect("one waits");
                self.accepted += 1;
                self.serve(index, client);
            }
            Next::Queue => {
                let message = self.queue.pop_front().expect("one waits");
                if message.waiting.is_none() {
                    for client in &message.clients {
                        self.clients[*client].holder = Some(index);
                    }
                    return false;
                }
                self.serve(index, message.clients[0]);
            }
            Next::Own => {
                let client = self.workers[index].own.pop_front().expect("one waits");
                self.serve(index, client);
            }
            // A non-blocking look is followed by a blocking one.
            Next::Nothing if !may_have_slept => return false,
            Next::Nothing => self.workers[index].doing = Doing::Asleep(self.agenda.now),
        }
        true
    }

    fn notice(&mut self, index: usize, client: usize) {
        let turn = match self.listener.is_empty() {
            true => 0,
            false => self.line(index).end(),
        };
        let waiting = Waiting {
            since: self.agenda.tick(),
            turn,
        };
        self.clients[client].noted = Some(waiting);
        self.own(index, client, waiting);
    }

    fn own(&mut self, index: usize, client: usize, waiting: Waiting) {
        let clients = &self.clients;
        let own = &mut self.workers[index].own;
        let is_later = |other: &usize| {
            clients[*other]
                .noted
                .is_some_and(|other| other.since > waiting.since)
        };
        let place = own.iter().position(is_later).unwrap_or(own.len());
        own.insert(place, client);
    }

    fn pass_on(&mut self, index: usize, stays: usize) {
        while self.workers[index].own.len() > stays {
            let client = self.workers[index].own.remove(stays).expect("there are more");
            let waiting = self.clients[client].noted.take();
            self.clients[client].holder = None;
            self.pass(vec![client], waiting);
        }
    }

    fn pass(&mut self, clients: Vec<usize>, waiting: Option<Waiting>) {
        self.queue.push_back(Message { clients, waiting });
        self.tell(QUEUE);
    }

    fn serve(&mut self, index: usize, client: usize) {
        let came = self.clients[client].came.take().expect("it has a request");
        self.served.push(Served {
            came,
            begun: self.agenda.now,
        });
        self.clients[client].noted = None;
        self.clients[client].holder = None;
        let number = self.served.len() as u64;
        let takes = match self.random.percent(self.slow.0) {
            true => u64::from(self.random.between(self.slow.1 / 2, self.slow.1)),
            false => u64::from(self.random.between(20, 60)),
        };
        let worker = &mut self.workers[index];
        worker.doing = Doing::Serves(client, number);
        worker.minds = false;
        worker.took = [takes, worker.took[0]];
        let oldest = worker.own.front().and_then(|client| self.clients[*client].noted);
        let due = service_order::passes_on_at(self.agenda.tick(), oldest).since(self.agenda.tick());
        self.agenda.plan(takes + OVERHEAD, Event::Done(index));
        if !self.is(Mutant::NoIdleWatch) {
            self.agenda
                .plan(due.as_micros() as u64, Event::Mind(index, number));
        }
    }

    fn mind(&mut self, index: usize, number: u64) {
        if !matches!(self.workers[index].doing, Doing::Serves(_, serves) if serves == number) {
            return;
        }
        self.workers[index].minds = true;
        let is_held = |client: &Client| client.holder == Some(index) && client.noted.is_none();
        let clients = self.clients.iter().enumerate();
        let (ready, silent): (Vec<usize>, Vec<usize>) = clients
            .filter(|(_, client)| is_held(client))
            .map(|(client, _)| client)
            .partition(|client| self.clients[*client].came.is_some());
        for client in ready {
            self.notice(index, client);
        }
        self.pass_on(index, 0);
        let is_asleep = |worker: &Worker| matches!(worker.doing, Doing::Asleep(_));
        if !silent.is_empty() && self.workers.iter().any(is_asleep) {
            for client in &silent {
                self.clients[*client].holder = None;
            }
            self.pass(silent, None);
        }
    }

    fn done(&mut self, index: usize) {
        let Doing::Serves(client, _) = self.workers[index].doing else {
            return;
        };
        self.workers[index].minds = false;
        if self.clients[client].keeps {
            self.clients[client].holder = Some(index);
        }
        let pause = self.clients[client].pause;
        let pause = pause / 2 + self.random.below(pause as usize + 1) as u64;
        self.agenda.plan(pause, Event::Send(client));
        self.advance(index);
    }

    fn check_idleness(&self) {
        let is_old = |since: u64| self.agenda.now > since + IDLE_LIMIT;
        let sleeps = |worker: &Worker| matches!(worker.doing, Doing::Asleep(since) if is_old(since));
        if !self.workers.iter().any(sleeps) {
            return;
        }
        let queued = self.queue.iter().flat_map(|message| &message.clients);
        for client in self.listener.iter().chain(queued) {
            let waits = self.clients[*client].came.is_some_and(is_old);
            assert!(!waits, "client {client} waits while a worker sleeps");
        }
    }
}
