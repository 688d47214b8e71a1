//! The logs of slow requests, and a tracer for each request.

use crate::context::Context;
use crate::context::pools::Pools;
use crate::context::processes::Who;
use crate::context::worker::{SlowCalls, Traceable, WorkerProcess};
use forkyard_config::{Application, Calls, Interface, LogLevel, Pool};
use forkyard_core::master::event::WorkerId;
use forkyard_scoreboard::slot_reader;
use forkyard_slowlog::{Asking, Job, Means};
use forkyard_sys::fd::{copy, socket_pair};
use forkyard_sys::file::{open_in_time, open_log};
use forkyard_sys::process::{self, Ended, Program};
use forkyard_sys::{Error, clock, identity, memfile, pidfd};
use nix::sys::socket::SockType;
use std::fs::File;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The most tracers at once. Each ends within seconds; many slow workers must not start a burst of processes.
const MOST_TRACERS: usize = 16;
const STANDARD_INPUT: i32 = 0;

pub(crate) fn open(pool: &Pool) -> io::Result<Option<File>> {
    let open = |path| open_in_time(&format!("pool {}", pool.name), || open_log(path));
    let slow = pool.logs.slow_log.as_ref();
    let named =
        |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    slow.map(|slow| open(&slow.path).map_err(|error| named(&slow.path, error)))
        .transpose()
}

/// Device and inode of a file; `None` if it can't be examined.
pub(crate) fn identify(path: &Path) -> Option<(u64, u64)> {
    let entry = std::fs::metadata(path).ok()?;
    Some((entry.dev(), entry.ino()))
}

impl Context {
    pub(crate) fn trace(&mut self, id: WorkerId) {
        if let Err(error) = self.try_trace(id) {
            let (pool, pid) = self.pools.name_worker(id);
            log::error!("[pool {pool}] failed to trace child {pid}: {error}");
        }
    }

    fn try_trace(&mut self, id: WorkerId) -> Result<(), Error> {
        let worker = self.pools.workers.get(&id);
        let generation = worker.and_then(|it| self.pools.generations.get(&it.generation));
        let pid = worker.and_then(|it| it.pid);
        let (Some(worker), Some(generation), Some(pid)) = (worker, generation, pid) else {
            return Ok(());
        };
        let settings = &generation.settings;
        let (Some(resources), Some(log), Some(slow)) = (
            &generation.resources,
            &generation.slow_log,
            &settings.pool.logs.slow_log,
        ) else {
            return Ok(());
        };
        let page = resources.board.slot(worker.slot as usize);
        let (number, taken, [method, path, query, script, _]) = page
            .map(slot_reader::read)
            .map(|entry| (entry.shown, entry.taken, entry.texts))
            .unwrap_or_default();
        let application = &settings.pool.application;
        let request = [&method[..], &path, &query];
        let heading = forkyard_slowlog::heading(
            clock::epoch_micros(),
            clock::utc_offset_seconds(),
            self.in_force.config.global.log_level == LogLevel::Debug,
            &settings.pool.name,
            pid,
            &script,
            Some(request).filter(|_| application.php().is_none()),
        );
        let all = self.processes.by_pid.values();
        let tracers = all.filter(|who| matches!(who, Who::Tracer(_)));
        let is_time = tracers.count() < MOST_TRACERS;
        let look = means(application, worker, pid, number).filter(|_| is_time);
        let Some(look) = look.transpose()? else {
            // The runtime shows no calls, or too many tracers are at work.
            let appended = log.append(heading.as_bytes());
            // The next slow request may come much later.
            log.rest();
            return match appended {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    Err(Error::from_io("write", "slowlog", &error))
                }
                // A user who holds the log's lock loses lines.
                _ => Ok(()),
            };
        };
        let job = Job {
            heading,
            pid,
            depth: slow.trace_depth,
            means: look.means,
            identity: settings.identity.clone().filter(|_| identity::is_root()),
        };
        // Serialising plain values can't fail.
        let job = serde_json::to_vec(&job).unwrap_or_default();
        let messages = copy(&generation.connected()?.messages_in)?;
        let mut descriptors = vec![
            (memfile::sealed("forkyard-trace", &job)?, STANDARD_INPUT),
            (copy(log.file())?, forkyard_slowlog::LOG),
            (messages, forkyard_slowlog::MESSAGES),
        ];
        let calls = memfile::create("forkyard-calls")?;
        descriptors.push((copy(&calls)?, forkyard_slowlog::COPY));
        descriptors.extend(look.descriptors);
        let (program, option) = look.program;
        let path = self.services.libexec.join(program);
        let title = format!("{}: tracer {}", settings.pool.title, settings.pool.name);
        let program = Program::new(&path, [title.as_str(), option], [], descriptors);
        let tracer = process::start(&program)?;
        self.processes.by_pid.insert(tracer, Who::Tracer(pid));
        if let Some(worker) = self.pools.workers.get_mut(&id) {
            worker.calls = Some(SlowCalls {
                taken,
                read: clock::now(),
                copy: calls,
            });
        }
        log::info!("about to trace {pid}");
        Ok(())
    }
}

pub(crate) fn tracer_gone(pid: i32, ended: Ended) {
    match ended {
        Ended::Code(0) => log::info!("finished trace of {pid}"),
        // The tracer has logged the reason.
        Ended::Code(_) | Ended::Unknown => {}
        Ended::Signal { number, .. } => {
            log::error!("the tracer of child {pid} was ended by signal {number}");
        }
    }
}

impl Pools {
    /// Opens the slow logs again. Returns the failures.
    pub(crate) fn reopen_slow_logs(&mut self) -> Vec<String> {
        let mut failures = Vec::new();
        for generation in self.generations.values_mut() {
            match open(&generation.settings.pool) {
                Ok(log) => generation.take_slow_log(log),
                Err(error) => {
                    let name = &generation.settings.pool.name;
                    let failure = format!("[pool {name}] unable to open slowlog: {error}");
                    log::error!("{failure}");
                    failures.push(failure);
                }
            }
        }
        failures
    }
}

/// A socket pair, the master's end first, to ask a worker for its present calls; `None`: it is not asked.
pub(crate) fn questions(pool: &Pool) -> Result<Option<(OwnedFd, OwnedFd)>, Error> {
    let is_asked = pool.logs.slow_log.is_some() && pool.application.traits().calls == Calls::Asked;
    is_asked.then(|| socket_pair(SockType::Stream)).transpose()
}

struct TraceMeans {
    means: Means,
    descriptors: Vec<(OwnedFd, RawFd)>,
    program: (&'static str, &'static str),
}

fn means(
    application: &Application,
    worker: &WorkerProcess,
    pid: i32,
    request: u64,
) -> Option<Result<TraceMeans, Error>> {
    match application.traits().calls {
        Calls::Memory => Some(by_memory(worker.traceable.as_deref()?, pid)),
        Calls::Asked => {
            let asking = match application.wrapped()?.interface {
                Interface::Asgi => Asking::Loop,
                Interface::Wsgi | Interface::Rack if application.is_concurrent() => Asking::Threads,
                Interface::Wsgi => Asking::Signal,
                Interface::Rack => Asking::Thread,
            };
            let questions = worker.questions.as_ref()?;
            Some(by_asking(asking, request, questions, pid))
        }
        Calls::Processes => Some(by_programs(pid)),
        Calls::Unknown => None,
    }
}

fn by_memory(traceable: &Traceable, pid: i32) -> Result<TraceMeans, Error> {
    // Root's master leaves this to the tracer, because it may block.
    let memory = match identity::is_root() {
        true => None,
        false => forkyard_slowlog::open_memory(pid, traceable.executable)
            .map_err(|error| Error::from_io("open", format!("/proc/{pid}/mem"), &error))?,
    };
    Ok(TraceMeans {
        means: Means::Memory {
            source: traceable.source.clone(),
            executable: traceable.executable,
        },
        descriptors: memory
            .map(|memory| (OwnedFd::from(memory), forkyard_slowlog::MEMORY))
            .into_iter()
            .collect(),
        program: ("forkyard-php", forkyard_slowlog::OPTION),
    })
}

fn by_asking(asking: Asking, request: u64, questions: &OwnedFd, pid: i32) -> Result<TraceMeans, Error> {
    let process = pidfd::open(pid)?;
    Ok(TraceMeans {
        means: Means::Asked { asking, request },
        descriptors: vec![
            (copy(questions)?, forkyard_slowlog::QUESTIONS),
            (process, forkyard_slowlog::PROCESS),
        ],
        program: ("forkyard", forkyard_slowlog::COMMAND),
    })
}

fn by_programs(pid: i32) -> Result<TraceMeans, Error> {
    Ok(TraceMeans {
        means: Means::Programs,
        descriptors: vec![(pidfd::open(pid)?, forkyard_slowlog::PROCESS)],
        program: ("forkyard", forkyard_slowlog::COMMAND),
    })
}
