//! Simulates passages of both fronts with processes that keep or close their connections, answer early, late, in part
//! or not at all, and with clients that are slow, leave, or send nonsense.

mod case;
#[path = "../../../../../../tests/random/mod.rs"]
mod random;

use super::super::table::ProcessEntry;
use super::links::{Attempt, LinkState, Reuse, Served, Unreachable};
use super::passage::{Ready, Step};
use super::upstream::Taken;
use case::{Case, Kind, LIMITS, Plan, check, end_of_head, plan, read_body};
use forkyard_base::tick::Tick;
use random::{Random, outcome, seeds};
use std::collections::BTreeMap;
use std::time::Duration;

const SEEDS: u64 = 3000;
const CASES: usize = 6;
const EVENTS: usize = 400;
const LONGEST_STEPS: usize = 10_000;
#[derive(Debug)]
struct Link {
    process: Option<ProcessEntry>,
    state: LinkState,
    case: Option<usize>,
    /// On its way to the program.
    sent: Vec<u8>,
    /// Read by the program, since its last request.
    read: Vec<u8>,
    plan: Option<Plan>,
    /// On its way from the program.
    coming: Vec<u8>,
    is_closed: bool,
    is_shut: bool,
}

struct World {
    random: Random,
    now: Tick,
    is_started: bool,
    up: Vec<ProcessEntry>,
    failure: Option<u32>,
    links: BTreeMap<usize, Link>,
    cases: Vec<Case>,
    last_link: usize,
    /// Everything is ready, and no faults occur.
    is_calm: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let is_started = !random.one_in(3);
        let count = random.below(4);
        World {
            now: Tick::ZERO + Duration::from_secs(1),
            up: (0..count).map(|index| ProcessEntry { index, life: 1 }).collect(),
            failure: random.one_in(6).then_some(7),
            random,
            is_started,
            links: BTreeMap::new(),
            cases: Vec::new(),
            last_link: 0,
            is_calm: false,
        }
    }

    fn is_ready(&mut self) -> bool {
        self.is_calm || !self.random.one_in(4)
    }

    fn ready(&mut self, id: usize) -> Ready {
        let case = &self.cases[id];
        let link = case.passage.link().map(|id| &self.links[&id]);
        let from_process = link.is_some_and(|link| !link.coming.is_empty() || link.is_closed);
        let to_process = link.is_some_and(|link| link.state != LinkState::Connecting || self.is_calm);
        let is_silent = case.kind == Kind::Silent && case.unsent.is_empty();
        let is_in_tunnel = case.kind == Kind::Tunnel && !case.got.is_empty();
        let ends = !case.is_http || is_in_tunnel || case.has_left;
        let from_client = !is_silent && (!case.unsent.is_empty() || (ends && !case.has_ended));
        Ready {
            from_client: from_client && self.is_ready(),
            to_client: self.is_ready(),
            from_process: from_process && self.is_ready(),
            to_process: to_process && self.is_ready(),
        }
    }

    fn pump(&mut self, id: usize) {
        for _ in 0..LONGEST_STEPS {
            if self.cases[id].is_over {
                return;
            }
            let ready = self.ready(id);
            let step = self.cases[id].passage.next(ready);
            if let Step::Wait = step {
                let due = self.cases[id].passage.due();
                assert!(
                    due.is_none_or(|due| due <= self.now + LIMITS.connect),
                    "{due:?} is too late"
                );
                return;
            }
            if !self.perform(id, step) {
                return;
            }
        }
        panic!("case {id} never waits: {:?}", self.cases[id]);
    }

    /// As the event loop. Returns false if the passage waits for an event.
    fn perform(&mut self, id: usize, step: Step) -> bool {
        let now = self.now;
        let case = &mut self.cases[id];
        let mut link = case.passage.link().and_then(|link| self.links.get_mut(&link));
        match step {
            Step::Wait => {}
            Step::Connect => self.connect(id),
            Step::Complete => {
                let fails = self.random.one_in(6);
                let link = link.unwrap();
                link.state = LinkState::New;
                case.was_unreachable |= fails;
                let result = if fails { Err(Unreachable::NotUp) } else { Ok(()) };
                case.passage.completed(result, now);
            }
            Step::FromClient => self.read_client(id),
            Step::ToClient => {
                let room = if self.is_calm {
                    usize::MAX
                } else {
                    self.random.below(30)
                };
                let (answer, is_last) = case.passage.for_client();
                let count = answer.rest().len().min(room);
                case.got.extend_from_slice(&answer.rest()[..count]);
                answer.advance(count);
                let is_sent = answer.is_empty();
                assert!(case.shut_at.is_none(), "bytes after the end");
                if case.has_left {
                    case.passage.end();
                    return true;
                }
                if is_last && is_sent && !case.is_http {
                    assert_eq!(case.token.take(), Some(0), "ended twice");
                    case.is_finished = true;
                }
                case.passage.delivered(now);
            }
            Step::FromProcess => {
                let link = link.unwrap();
                let count = 1 + self.random.below(link.coming.len());
                let bytes: Vec<u8> = link.coming.drain(..count.min(link.coming.len())).collect();
                match bytes.is_empty() {
                    true => case.passage.process_ended(now),
                    false => case.passage.process_sent(&bytes, now),
                }
            }
            Step::ToProcess => {
                let link = link.as_mut().unwrap();
                assert!(!link.is_shut, "bytes after the end");
                if link.is_closed && self.random.one_in(2) {
                    case.passage.process_is_deaf();
                    return true;
                }
                let queue = case.passage.for_process();
                let count = 1 + self.random.below(queue.rest().len());
                let count = count.min(queue.rest().len());
                link.sent.extend_from_slice(&queue.rest()[..count]);
                queue.advance(count);
                case.sends += usize::from(!case.has_sent);
                case.has_sent = true;
            }
            Step::LookAtClient => {
                if !case.has_left {
                    return false;
                }
                case.passage.end();
            }
            Step::ShutClient => {
                assert!(case.is_http && case.shut_at.is_none());
                case.shut_at = Some(now);
            }
            Step::ShutProcess => link.unwrap().is_shut = true,
            Step::Begin(params) => {
                assert!(params.get(b"REQUEST_URI").is_some() && case.token.is_none());
                case.token = Some(0);
            }
            Step::Endless => assert_eq!(case.kind, Kind::Tunnel),
            Step::Release { taken, served, keeps } => self.release(id, taken, served, keeps),
            Step::Explain(_) => case.explained += 1,
            Step::Finish(status) => {
                if case.token.take().is_some() {
                    assert!(!case.is_finished, "finished twice");
                    assert_eq!(case.is_http && status.is_some(), status.is_some());
                    case.is_finished = true;
                }
            }
            Step::Over => {
                let lingered = case.shut_at.map(|since| now.since(since));
                let is_read = case.unsent.is_empty() || case.has_left || case.kind == Kind::Tunnel;
                let may_reset = lingered.is_none_or(|time| time >= Duration::from_secs(5));
                assert!(is_read || may_reset, "closed with unread bytes");
                let took = now.since(case.since);
                let is_late = took > LIMITS.client + Duration::from_millis(100);
                assert!(case.kind != Kind::Silent || !is_late, "a head took {took:?}");
                case.is_over = true;
            }
        }
        true
    }

    fn connect(&mut self, id: usize) {
        let now = self.now;
        let case = &mut self.cases[id];
        let (tried, reuse) = case.passage.wanted();
        let process = match self.is_started {
            false => None,
            true => match self.up.iter().find(|process| !tried.contains(process)) {
                Some(process) => Some(*process),
                None => return case.passage.not_chosen(self.failure, now),
            },
        };
        let kept = self
            .links
            .iter()
            .find(|(_, link)| link.case.is_none() && link.process == process)
            .filter(|(_, link)| reuse == Reuse::Any || (reuse == Reuse::Quiet && !link.is_closed));
        let attempt = if let Some((link, _)) = kept {
            Attempt::Link(*link, LinkState::Kept)
        } else {
            match self.random.below(8) {
                0 if !self.is_calm => Attempt::Busy,
                1 => {
                    case.was_unreachable = true;
                    Attempt::Unreachable(Unreachable::NotUp)
                }
                2 | 3 => Attempt::Link(self.last_link + 1, LinkState::Connecting),
                _ => Attempt::Link(self.last_link + 1, LinkState::New),
            }
        };
        if let Attempt::Link(link, state) = attempt {
            self.last_link = self.last_link.max(link);
            let entry = self.links.entry(link).or_insert_with(|| Link {
                process,
                state,
                case: None,
                sent: Vec::new(),
                read: Vec::new(),
                plan: None,
                coming: Vec::new(),
                is_closed: false,
                is_shut: false,
            });
            entry.case = Some(id);
        }
        case.has_sent = false;
        case.held += usize::from(process.is_some());
        case.passage.attempted(process, attempt, now);
    }

    fn read_client(&mut self, id: usize) {
        let now = self.now;
        let case = &mut self.cases[id];
        let count = case.unsent.len().min(1 + self.random.below(40));
        let piece: Vec<u8> = case.unsent.drain(..count).collect();
        let is_end = case.unsent.is_empty();
        if case.is_http && (case.has_left || piece.is_empty()) {
            case.has_ended = true;
            match case.has_left && self.random.one_in(2) {
                true => case.passage.end(),
                false => case.passage.client_ended(),
            }
        } else {
            case.has_ended = is_end && !case.is_http;
            case.passage.client_sent(&piece, case.has_ended, now);
        }
    }

    fn release(&mut self, id: usize, taken: Taken, served: Served, keeps: bool) {
        let case = &mut self.cases[id];
        case.held -= usize::from(taken.process.is_some());
        let Some(link) = taken.link else { return };
        let mut link_state = self.links.remove(&link).expect("released twice");
        assert_eq!(link_state.case, Some(id));
        if let Some(plan) = link_state.plan.take() {
            if served == Served::Whole {
                assert!(
                    plan.is_whole || plan.closes_at.is_some(),
                    "a cut answer counts as whole"
                );
            }
            case.read_by.push(plan);
        }
        if keeps && link_state.coming.is_empty() {
            assert_eq!(served, Served::Whole);
            // The program reads the rest before the next request.
            link_state.read.append(&mut link_state.sent);
            let (body, is_whole) = read_body(case, &link_state.read);
            assert!(is_whole && body == case.body, "kept within a request");
            link_state.read.clear();
            link_state.case = None;
            self.links.insert(link, link_state);
        }
    }

    /// A program reads, writes or closes.
    fn program(&mut self, id: usize) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let Some(case) = link.case else {
            link.is_closed |= self.random.one_in(3);
            return;
        };
        if link.is_closed {
            return;
        }
        if !self.is_calm && self.random.one_in(40) {
            // It dies.
            link.is_closed = true;
            if let Some(plan) = &mut link.plan {
                let is_tunnel = self.cases[case].kind == Kind::Tunnel;
                plan.is_whole &= plan.written == plan.wire.len() && !is_tunnel;
                plan.closes_at = Some(plan.written);
            }
            return;
        }
        let case = &mut self.cases[case];
        let count = link.sent.len().min(1 + self.random.below(50));
        link.read.extend(link.sent.drain(..count));
        if link.plan.is_none() && end_of_head(&link.read).is_some() {
            let wanted = format!(" /{} HTTP/1.1", link.case.unwrap());
            assert!(
                String::from_utf8_lossy(&link.read).contains(&wanted),
                "another request"
            );
            link.plan = Some(plan(&mut self.random, case));
        }
        let Some(plan) = &mut link.plan else { return };
        let (body, is_whole) = read_body(case, &link.read);
        plan.body = body;
        if case.kind == Kind::Tunnel {
            // An echo, which ends with its client's bytes.
            let known = plan.wire.len() - end_of_head(&plan.wire).unwrap();
            let more = &plan.body[known..];
            plan.wire.extend_from_slice(more);
            plan.wanted.extend_from_slice(more);
            if (link.is_shut && link.sent.is_empty()) || (!case.is_http && plan.body.len() == case.body.len())
            {
                plan.closes_at = Some(plan.wire.len());
            }
        } else if plan.waits_for_body && !is_whole {
            return;
        }
        if plan.never_answers {
            return;
        }
        let most = plan.closes_at.unwrap_or(plan.wire.len());
        let count = (most - plan.written).min(1 + self.random.below(50));
        link.coming
            .extend_from_slice(&plan.wire[plan.written..plan.written + count]);
        plan.written += count;
        link.is_closed = plan.closes_at == Some(plan.written);
    }

    fn event(&mut self) {
        if self.cases.len() < CASES && self.random.one_in(8) {
            let id = self.cases.len();
            self.cases.push(Case::new(&mut self.random, id, self.now));
            return self.pump(id);
        }
        self.now = self.now + self.random.millis(0, 40);
        let links: Vec<usize> = self.links.keys().copied().collect();
        for link in links {
            if self.random.one_in(2) {
                self.program(link);
            }
        }
        if self.is_started && self.random.one_in(20) {
            let index = self.random.below(3);
            match self.up.iter().position(|process| process.index == index) {
                Some(at) => drop(self.up.remove(at)),
                None => self.up.push(ProcessEntry { index, life: 2 }),
            }
        }
        if self.cases.is_empty() {
            return;
        }
        let id = self.random.below(self.cases.len());
        let case = &mut self.cases[id];
        match self.random.below(60) {
            0 if !case.is_over => {
                case.has_left = true;
                if !case.is_http {
                    case.passage.end();
                }
            }
            1 if case.token.is_some() && case.kind != Kind::Tunnel => self.expire(id),
            2 => case.passage.hurry(self.now),
            _ => {}
        }
        self.pump(id);
    }

    fn expire(&mut self, id: usize) {
        let case = &mut self.cases[id];
        (case.token, case.is_finished, case.is_expired) = (None, true, true);
        case.passage.expire(self.now);
    }

    fn is_slow(&self, id: usize) -> bool {
        let mut links = self.links.values().filter(|link| link.case == Some(id));
        let plan = links.find_map(|link| link.plan.as_ref());
        plan.is_some_and(|plan| plan.never_answers)
    }

    /// Lets everything end: programs go on, time passes, requests that are too slow expire.
    fn finish(&mut self) -> Result<(), String> {
        self.is_calm = true;
        for round in 0..3000 {
            let links: Vec<usize> = self.links.keys().copied().collect();
            links.into_iter().for_each(|link| self.program(link));
            for id in 0..self.cases.len() {
                let case = &mut self.cases[id];
                if case.passage.due().is_some_and(|due| due <= self.now) && !case.is_over {
                    case.passage.pass_due(self.now);
                }
                // The worker's limit; a tunnel's client leaves at last.
                if round > 2000 && case.token.is_some() {
                    if case.kind == Kind::Tunnel {
                        case.has_left = true;
                        case.passage.end();
                    } else if self.is_slow(id) {
                        self.expire(id);
                    } else {
                        return Err(format!("case {id} hangs: {:?}", self.cases[id]));
                    }
                }
                self.pump(id);
            }
            if self.cases.iter().all(|case| case.is_over) {
                return self.cases.iter().enumerate().try_for_each(|(id, case)| {
                    check(case).map_err(|what| format!("case {id}: {what}: {case:?}"))
                });
            }
            self.now = self.now + Duration::from_millis(50);
        }
        let case = self.cases.iter().find(|case| !case.is_over);
        Err(format!("a passage does not end: {case:?}"))
    }
}

fn run(seed: u64) -> Result<(), String> {
    let mut world = World::new(seed);
    for _ in 0..EVENTS {
        world.event();
    }
    world.finish()
}

#[test]
fn every_request_gets_one_answer_whatever_happens() {
    for seed in seeds(SEEDS) {
        if let Err(what) = outcome(|| run(seed)) {
            panic!("{what}; replay with FORKYARD_SEED={seed}");
        }
    }
}
