//! The state of PHP pools' OPcache and APCu, for the control socket. A short-lived process of the pool reads it, without a
//! request, and the master does not wait for it. `forkyard opcache` gets a state that is at most a second old. A status gets
//! the last known state.

use crate::context::Context;
use crate::context::refused::Refused;
use crate::context::rights::Rights;
use crate::context::sources::Source;
use crate::preloaders::{CantRead, Preloaders};
use forkyard_base::tick::Tick;
use forkyard_core::master::event::GenerationId;
use forkyard_protocol::code_cache::{ApcuState, LastCaches, MOST_BYTES, OpcacheState, PoolCaches, parse};
use forkyard_protocol::control::Answer;
use forkyard_sys::fd::set_nonblocking;
use forkyard_sys::guarded::Guarded;
use forkyard_sys::socket::Progress;
use forkyard_sys::{Error, clock};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The most processes that read caches at a time.
const MOST_AT_ONCE: usize = 8;
/// The time for a process to report.
const PATIENCE: Duration = Duration::from_secs(2);
/// A state of this age is new enough for further questions.
const FRESH: Duration = Duration::from_secs(1);
/// A status leaves out states older than this.
const LONGEST: Duration = Duration::from_secs(300);
/// A status does not refresh states younger than this.
const OLD: Duration = Duration::from_secs(10);
/// How many pools' caches are read for one status. The next ones read the others.
const MOST_FOR_STATUS: usize = 64;

/// Why a state is unknown.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("no process of the pool reported within 2 s")]
    Late,
    #[error("a process of the pool reported nothing that is a state")]
    Nonsense,
    #[error(transparent)]
    NotOrdered(#[from] CantRead),
    #[error(transparent)]
    System(#[from] Error),
}

type Report = Result<(OpcacheState, ApcuState), Unread>;

#[derive(Debug, Default)]
pub(crate) struct Caches {
    known: HashMap<GenerationId, (Tick, Report)>,
    reading: BTreeMap<GenerationId, Reading>,
    waiting: VecDeque<GenerationId>,
    askers: Vec<Asker>,
}

#[derive(Debug)]
struct Reading {
    pipe: Guarded,
    bytes: Vec<u8>,
    until: Tick,
}

#[derive(Debug)]
struct Asker {
    session: u64,
    since: Tick,
    /// The pools, by name.
    pools: Vec<(String, GenerationId)>,
}

impl Caches {
    /// Answers, now or later, with the caches of one pool, of an application pool's applications, or of all pools.
    pub(crate) fn ask(
        &mut self,
        context: &mut Context,
        preloaders: &mut Preloaders,
        session: u64,
        rights: Rights,
        wanted: Option<&str>,
    ) -> Result<(), Refused> {
        let mut pools = context.pools_with_caches(rights, wanted)?;
        pools.sort();
        let now = clock::now();
        // Forgets old states, unless another question may still need them.
        if self.askers.is_empty() {
            self.known.retain(|_, (at, _)| now.since(*at) < LONGEST);
        }
        for (_, id) in &pools {
            let is_ordered = self.reading.contains_key(id) || self.waiting.contains(id);
            let is_fresh = self.known.get(id).is_some_and(|(at, _)| now.since(*at) < FRESH);
            if !is_fresh && !is_ordered {
                self.waiting.push_back(*id);
            }
        }
        self.askers.push(Asker {
            session,
            since: now,
            pools,
        });
        self.proceed(context, preloaders);
        Ok(())
    }

    /// Starts to read old states again, for a later status. Leaves out pools at rest and the applications of application
    /// pools.
    pub(crate) fn refresh(&mut self, context: &mut Context, preloaders: &mut Preloaders) {
        let now = clock::now();
        if self.askers.is_empty() {
            self.known.retain(|_, (at, _)| now.since(*at) < LONGEST);
        }
        let pools = &context.pools;
        let mut old: Vec<(Option<Tick>, GenerationId)> = Vec::new();
        for pool in pools.by_id.values().filter(|pool| pool.listener.is_some()) {
            let Some(id) = pool.serving else { continue };
            let generation = pools.generations.get(&id);
            let runs_php = generation.is_some_and(|it| {
                let settings = &it.settings.pool;
                settings.application.php().is_some()
                    && settings.applications.is_none()
                    && it.pipes().is_some()
            });
            let read = self.known.get(&id).map(|(at, _)| *at);
            let is_ordered = self.reading.contains_key(&id) || self.waiting.contains(&id);
            if runs_php && !is_ordered && read.is_none_or(|read| now.since(read) >= OLD) {
                old.push((read, id));
            }
        }
        old.sort_unstable();
        old.truncate(MOST_FOR_STATUS);
        self.waiting.extend(old.into_iter().map(|(_, id)| id));
        self.proceed(context, preloaders);
    }

    /// Returns the last state of a generation's caches.
    pub(crate) fn last(&self, id: GenerationId, now: Tick) -> Option<LastCaches> {
        let (read, report) = self.known.get(&id)?;
        let age = now.since(*read);
        let (opcache, apcu) = report.as_ref().ok().filter(|_| age < LONGEST)?;
        Some(LastCaches {
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            opcache: opcache.clone(),
            apcu: apcu.clone(),
        })
    }

    /// Starts waiting reads, and answers complete questions.
    fn proceed(&mut self, context: &mut Context, preloaders: &mut Preloaders) {
        while self.reading.len() < MOST_AT_ONCE {
            let Some(id) = self.waiting.pop_front() else { break };
            let ordered = preloaders.order_cache_state(context, id);
            let begun = ordered
                .map_err(Unread::from)
                .and_then(|pipe| Ok(self.begin(context, id, pipe)?));
            if let Err(why) = begun {
                self.known.insert(id, (clock::now(), Err(why)));
            }
        }
        let known = &self.known;
        let is_known =
            |asker: &Asker, id: &GenerationId| known.get(id).is_some_and(|(at, _)| *at + FRESH > asker.since);
        let has_all = |asker: &Asker| asker.pools.iter().all(|(_, id)| is_known(asker, id));
        let (done, waiting) = std::mem::take(&mut self.askers)
            .into_iter()
            .partition::<Vec<Asker>, _>(has_all);
        self.askers = waiting;
        for asker in done {
            let caches = asker.pools.into_iter().map(|(pool, id)| self.state(pool, id));
            let caches = caches.collect();
            context.services.answer(asker.session, Answer::Caches { caches });
        }
    }

    fn begin(&mut self, context: &mut Context, id: GenerationId, pipe: OwnedFd) -> Result<(), Error> {
        set_nonblocking(pipe.as_fd(), true)?;
        context.services.sources.watch(&pipe, Source::CacheState(id))?;
        let reading = Reading {
            pipe: Guarded::new(pipe),
            bytes: Vec::new(),
            until: clock::now() + PATIENCE,
        };
        self.reading.insert(id, reading);
        Ok(())
    }

    fn state(&self, pool: String, id: GenerationId) -> PoolCaches {
        let report = self.known.get(&id).map(|(_, report)| report);
        let (state, unknown) = match report {
            Some(Ok(state)) => (Some(state.clone()), None),
            Some(Err(why)) => (None, Some(why.to_string())),
            None => (None, Some(Unread::Late.to_string())),
        };
        let (opcache, apcu) = state.unzip();
        PoolCaches {
            pool,
            unknown,
            opcache,
            apcu,
        }
    }

    /// Reads a report. Returns `true` if there may be more.
    pub(crate) fn read(
        &mut self,
        context: &mut Context,
        preloaders: &mut Preloaders,
        id: GenerationId,
    ) -> bool {
        let Some(reading) = self.reading.get_mut(&id) else {
            return false;
        };
        let mut buffer = [0; 4096];
        let report = match reading.pipe.receive(&mut buffer) {
            Ok(Progress::Done(count)) if count > 0 => {
                reading.bytes.extend_from_slice(&buffer[..count]);
                match reading.bytes.len() {
                    0..=MOST_BYTES => return true,
                    _ => Err(Unread::Nonsense),
                }
            }
            Ok(Progress::WouldBlock) => return false,
            Ok(Progress::Done(_)) => parse(&reading.bytes).ok_or(Unread::Nonsense),
            Err(error) => Err(error.into()),
        };
        self.end(context, id, report);
        self.proceed(context, preloaders);
        false
    }

    fn end(&mut self, context: &mut Context, id: GenerationId, report: Report) {
        if let Some(reading) = self.reading.remove(&id) {
            context.services.sources.forget(&reading.pipe);
        }
        self.known.insert(id, (clock::now(), report));
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.reading.values().map(|reading| reading.until).min()
    }

    pub(crate) fn poll(&mut self, context: &mut Context, preloaders: &mut Preloaders, now: Tick) {
        let late = self.reading.iter().filter(|(_, reading)| reading.until <= now);
        let late: Vec<GenerationId> = late.map(|(id, _)| *id).collect();
        if late.is_empty() {
            return;
        }
        for id in late {
            self.end(context, id, Err(Unread::Late));
        }
        self.proceed(context, preloaders);
    }
}

impl Context {
    /// Returns the serving generations of PHP pools with their names. An owner gets only his own processes' generations.
    fn pools_with_caches(
        &self,
        rights: Rights,
        wanted: Option<&str>,
    ) -> Result<Vec<(String, GenerationId)>, Refused> {
        let pools = &self.pools;
        let is_wanted = |name: &str| {
            wanted.is_none_or(|wanted| {
                let rest = name.strip_prefix(wanted);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            })
        };
        let mut found = Vec::new();
        for pool in pools.by_id.values() {
            let Some(id) = pool.serving else { continue };
            let Some(generation) = pools.generations.get(&id) else {
                continue;
            };
            let settings = &generation.settings;
            let application = &settings.pool.application;
            // The applications of an application pool have pools without a listener.
            let is_router = pool.listener.is_some() && settings.pool.applications.is_some();
            let user = settings.identity.as_ref().map(|identity| identity.uid);
            let is_own = match rights {
                Rights::All => true,
                Rights::Own(uid) => user == Some(uid),
            };
            if application.php().is_some() && !is_router && is_own && is_wanted(&pool.name) {
                found.push((pool.name.clone(), id));
            }
        }
        match wanted {
            Some(wanted) if found.is_empty() => {
                let is_application_pool = self.in_force.pool(wanted).map(|pool| pool.applications.is_some());
                match (is_application_pool, rights) {
                    (Some(true), _) => Ok(found),
                    (Some(false), Rights::All) => Err(Refused::NoPhp(wanted.to_owned())),
                    (Some(false), Rights::Own(_)) => Err(Refused::NotYours("pool of PHP")),
                    (None, _) => Err(Refused::NoPool(wanted.to_owned())),
                }
            }
            _ => Ok(found),
        }
    }
}
