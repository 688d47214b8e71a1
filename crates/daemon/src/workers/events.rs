//! Reads accept notifications, messages and output of workers.

use super::deaths::request_and_script;
use crate::context::Context;
use crate::context::effect::Effect;
use crate::context::lines::{Lines, PipeRead, read_rest};
use crate::context::pools::Pools;
use crate::context::processes::Processes;
use crate::context::services::Services;
use crate::context::sources::Source;
use forkyard_core::master::event::{Event, GenerationId, PoolId, WorkerId};
use forkyard_core::master::pool_restart::RestartRequest;
use forkyard_core::master::secrets::without_secret;
use forkyard_host::logs::parse_message;
use forkyard_protocol::accept_notify::AcceptNotice;
use forkyard_scoreboard::slot_reader;
use forkyard_sys::socket::Progress;
use mio::Token;

/// Reads of the accept-notify pipe per turn: 16 hold more than the pipe.
const ACCEPT_NOTIFY_READS: usize = 17;

impl Context {
    /// Reads accept notifications. Returns `true` if there are more; an endless sender must not block the master.
    pub(crate) fn accept_notify(&mut self, id: GenerationId) -> bool {
        let Some(generation) = self.pools.generations.get(&id) else {
            return false;
        };
        let Some(pipes) = generation.pipes() else {
            return false;
        };
        let mut buffer = [0; 4096];
        let (mut up, mut mold_candidate, mut restarts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut told, mut more, mut is_crowded, mut is_busy) = (false, true, false, false);
        for _ in 0..ACCEPT_NOTIFY_READS {
            match pipes.accept_notify.0.receive(&mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => {
                    for word in buffer[..count].chunks_exact(4) {
                        match AcceptNotice::decode([word[0], word[1], word[2], word[3]]) {
                            AcceptNotice::Candidate(slot) => {
                                mold_candidate.extend(generation.slots.get(&slot).copied());
                            }
                            AcceptNotice::Restart { reason: why, since } => {
                                restarts.push(Effect::RestartAsked(RestartRequest {
                                    generation: id,
                                    why,
                                    since,
                                }));
                            }
                            AcceptNotice::Up(slot) => {
                                told = true;
                                up.extend(generation.slots.get(&slot).copied());
                            }
                            AcceptNotice::Crowded(_) => is_crowded = true,
                            AcceptNotice::Busy(_) => is_busy = true,
                            AcceptNotice::Accepted(_) => told = true,
                        }
                    }
                }
                Ok(_) | Err(_) => {
                    more = false;
                    break;
                }
            }
        }
        self.services.effects.extend(restarts);
        let mut generation_is_well = false;
        for id in up {
            if let Some(worker) = self.pools.workers.get_mut(&id) {
                // A worker may be up before its fork was announced.
                if !worker.up {
                    worker.up = true;
                    self.handover.generation_changed(worker.generation);
                    generation_is_well = true;
                    self.services.tell(Event::WorkerUp(id));
                }
            }
            self.services.cause(Effect::WorkerUp(id));
        }
        if generation_is_well {
            if let Some(generation) = self.pools.generations.get_mut(&id) {
                generation.make.has_failed = false;
                generation.make.came_up = true;
            }
        }
        for worker in mold_candidate {
            self.services.tell(Event::MoldCandidate(worker));
        }
        if told {
            self.services.tell(Event::ChildAccept(id));
        }
        if is_crowded {
            self.services.cause(Effect::Crowded(id));
        }
        if is_busy {
            self.services.cause(Effect::GrewBusy(id));
        }
        more
    }
}

impl Services {
    pub(crate) fn source(&self, token: Token) -> Option<Source> {
        self.sources.source(token)
    }

    /// Reads the rest of a generation's messages.
    pub(crate) fn drain_messages(&self, pool: &str, messages: &mut Lines) {
        read_rest(|| messages.read(|line| write_message(self.log, pool, line)) == PipeRead::More);
    }
}

impl Pools {
    /// Counts only while the pool is watched; a late event is void.
    pub(crate) fn work_waits(&self, services: &mut Services, id: PoolId) {
        if self.by_id.get(&id).is_some_and(|pool| pool.watched) {
            services.tell(Event::SourceReady(id));
        }
    }

    pub(crate) fn read_messages(&mut self, services: &Services, id: GenerationId) -> bool {
        let Some(generation) = self.generations.get_mut(&id) else {
            return false;
        };
        let name = generation.settings.pool.name.clone();
        let Some(pipes) = generation.pipes_mut() else {
            return false;
        };
        let log = services.log;
        let look = pipes.messages.read(|line| write_message(log, &name, line));
        look == PipeRead::More
    }

    pub(crate) fn name_worker(&self, id: WorkerId) -> (&str, i32) {
        self.workers.get(&id).map_or(("?", 0), |worker| {
            (
                self.generation_name(worker.generation),
                worker.pid.unwrap_or_default(),
            )
        })
    }

    /// The request in a worker's slot: `, script '/x.php' (request: "GET /x.php")`.
    pub(crate) fn request_of(&self, id: WorkerId) -> String {
        self.request_as(id, |request| request)
    }

    /// Like [`Pools::request_of`], without the values of secrets.
    pub(crate) fn redacted_request_of(&self, id: WorkerId) -> String {
        self.request_as(id, |request| without_secret("REQUEST_URI", &request))
    }

    fn request_as(&self, id: WorkerId, shown: impl FnOnce(String) -> String) -> String {
        let page = self.workers.get(&id).and_then(|worker| self.page(worker));
        page.map(slot_reader::read).map_or_else(String::new, |entry| {
            let (request, script) = request_and_script(&entry);
            format!(", script '{script}' (request: \"{}\")", shown(request))
        })
    }
}

impl Processes {
    pub(crate) fn last_lines(&self, id: GenerationId) -> String {
        match self.last_lines.get(&id) {
            Some(lines) if !lines.is_empty() => {
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                format!(", having said {:?}", lines.join(" / "))
            }
            _ => String::new(),
        }
    }
}

fn write_message(log: &forkyard_host::logs::Log, pool: &str, line: &[u8]) {
    let (level, text) = parse_message(line);
    log.write_of_pool(level, pool, &text);
}
