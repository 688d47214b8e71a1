//! Reads the data of a frame from the daemon and the kernel.

use crate::look::observer::{MOST_LOOKS, Observer, Subject};
use crate::look::schedule;
use crate::model::processes;
use crate::readings::{Part, ProcessReading, Readings};
use forkyard_host::control::{AskError, Conversation};
use forkyard_protocol::control::{Answer, CrashLine, PoolStatus, Request, Status};
use forkyard_protocol::jobs::{JobsAnswer, Stats};
use forkyard_protocol::routes::RouteStatus;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The daemon's time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The job process's time for an answer.
const PATIENCE_FOR_JOBS: Duration = Duration::from_millis(500);
/// The most pools with readings of routes in a frame. Pools with more requests come first.
const MOST_POOLS_OF_ROUTES: usize = 8;
/// The most processes with readings of times in a frame.
const MOST_PROCESSES: usize = 2000;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("the daemon answers something else")]
    Unexpected,
    #[error("{0}")]
    Refused(String),
}

/// A daemon, and earlier readings.
#[derive(Debug)]
pub(crate) struct Source {
    socket: PathBuf,
    begun: Instant,
    observer: Observer,
    /// Memory by process, and the frame of the reading.
    memory: BTreeMap<i32, (Option<u64>, u64)>,
    frames: u64,
    /// Requests unknown to the daemon.
    unknown: Vec<Part>,
}

impl Source {
    pub(crate) fn new(socket: PathBuf) -> Source {
        Source {
            socket,
            begun: Instant::now(),
            observer: Observer::default(),
            memory: BTreeMap::new(),
            frames: 0,
            unknown: Vec::new(),
        }
    }

    /// Reads everything. `with_routes`: also the routes of the pools with the most requests.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses.
    pub(crate) fn read(&mut self, with_routes: bool) -> Result<Readings, SourceError> {
        let mut daemon = Conversation::begin(&self.socket)?.with_patience(PATIENCE)?;
        let at = self.begun.elapsed().as_secs_f64();
        let status = match daemon.ask(&Request::Status { caches: false })? {
            Answer::Status(status) => *status,
            Answer::Error { message, .. } => return Err(SourceError::Refused(message)),
            _ => return Err(SourceError::Unexpected),
        };
        let processes = self.processes(&status);
        let mut readings = Readings {
            at,
            time: std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs(),
            jobs: status.jobs.as_ref().and_then(|jobs| stats(&jobs.socket)),
            processes,
            status,
            ..Readings::default()
        };
        self.look(&mut readings);
        self.frames += 1;
        readings.crashes = self.crashes(&mut daemon)?;
        if with_routes {
            let mut pools: Vec<&PoolStatus> = readings.status.pools.iter().collect();
            pools.sort_by_key(|pool| std::cmp::Reverse(pool.counts.requests));
            for pool in pools.into_iter().take(MOST_POOLS_OF_ROUTES) {
                let routes = self.routes(&mut daemon, &pool.name)?;
                readings.routes.insert(pool.name.clone(), routes);
            }
        }
        readings.unknown.clone_from(&self.unknown);
        Ok(readings)
    }

    fn crashes(&mut self, daemon: &mut Conversation) -> Result<Vec<CrashLine>, SourceError> {
        if self.unknown.contains(&Part::Crashes) {
            return Ok(Vec::new());
        }
        match daemon.ask(&Request::Crashes { pool: None })? {
            Answer::Crashes { crashes } => Ok(crashes),
            // An older daemon, or a caller without the permission.
            _ => {
                self.unknown.push(Part::Crashes);
                Ok(Vec::new())
            }
        }
    }

    fn routes(&mut self, daemon: &mut Conversation, pool: &str) -> Result<Vec<RouteStatus>, SourceError> {
        if self.unknown.contains(&Part::Routes) {
            return Ok(Vec::new());
        }
        match daemon.ask(&Request::Routes {
            pool: pool.to_owned(),
        })? {
            Answer::Routes { routes } => Ok(routes),
            _ => {
                self.unknown.push(Part::Routes);
                Ok(Vec::new())
            }
        }
    }

    fn processes(&self, status: &Status) -> BTreeMap<i32, ProcessReading> {
        let workers = processes::all(status).into_iter().filter_map(|it| it.pid);
        let preloaders = processes::preloaders(status).into_keys();
        let all = workers.chain(preloaders).take(MOST_PROCESSES);
        all.map(|pid| {
            let reading = ProcessReading {
                schedule: schedule(pid),
                memory: None,
            };
            (pid, reading)
        })
        .collect()
    }

    /// Looks at a few busy processes, and reads the memory of the processes with the oldest readings.
    fn look(&mut self, readings: &mut Readings) {
        let mut busy: Vec<_> = processes::all(&readings.status);
        busy.retain(|process| process.is_busy && process.pid.is_some());
        busy.sort_by(|one, other| other.age.unwrap_or(0.0).total_cmp(&one.age.unwrap_or(0.0)));
        // The process with the longest request, and others in turn.
        let count = busy.len();
        let turn = |at: usize| match at {
            0 => 0,
            at => {
                1 + (self.frames as usize)
                    .wrapping_mul(MOST_LOOKS - 1)
                    .wrapping_add(at)
                    % (count - 1).max(1)
            }
        };
        let chosen = (0..count.min(MOST_LOOKS)).map(turn).filter_map(|at| busy.get(at));
        let subjects = chosen.filter_map(|process| {
            Some(Subject {
                pool: process.pool.to_owned(),
                pid: process.pid?,
                listen: process.listen.to_owned(),
            })
        });
        let subjects = subjects.collect();
        let pids = &readings.processes;
        self.memory.retain(|pid, _| pids.contains_key(pid));
        let mut wanted: Vec<i32> = pids.keys().copied().collect();
        wanted.sort_by_key(|pid| self.memory.get(pid).map(|(_, frame)| frame + 1));
        let seen = self.observer.look(subjects, wanted, self.frames == 0);
        readings.looks = seen.looks;
        let read = seen.memory.into_iter();
        self.memory
            .extend(read.map(|(pid, memory)| (pid, (memory, self.frames))));
        for (pid, process) in &mut readings.processes {
            process.memory = self.memory.get(pid).and_then(|(memory, _)| *memory);
        }
    }
}

/// Returns the figures of the process for jobs; `None`: it does not answer in time.
fn stats(socket: &Path) -> Option<Stats> {
    let conversation = Conversation::begin(socket).ok()?;
    let mut conversation = conversation.with_patience(PATIENCE_FOR_JOBS).ok()?;
    let answer = conversation.exchange(br#"{"command":"stats"}"#.to_vec()).ok()?;
    match serde_json::from_slice(&answer).ok()? {
        JobsAnswer::Stats(stats) => Some(*stats),
        _ => None,
    }
}
