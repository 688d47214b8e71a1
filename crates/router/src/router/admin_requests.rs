//! Operators' requests. A restart of an application without instances can start it, so that a new release is up, or
//! known to be broken, before its first request.

use super::app_index::{Known, Lookup, Refused, is_possible};
use super::event_loop::Router;
use super::sessions::Who;
use forkyard_core::applications::RestartMethod;
use forkyard_core::applications::action::{Disabling, Refusal, Trouble};
use forkyard_core::applications::event::{Event, Get, InstanceId, Return, SessionId, Target, Wait};
use forkyard_protocol::reason::Reason;
use forkyard_protocol::router::{AdminRequest, ToMaster, Unstarted};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// The inspection client id for starts. No connection has it.
pub(super) const STARTER: u64 = u64::MAX - 1;
const MOST_TIME: Duration = Duration::from_secs(600);

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum AdminError {
    #[error("process {pid} is no instance of pool {pool}")]
    NoInstance { pid: i32, pool: String },
    #[error("a pool of no instances serves nothing: at least 1")]
    NoPlaces,
    #[error("{} is no application that pool {pool} knows; the first request starts it, or --wait", path.display())]
    Unknown { path: PathBuf, pool: String },
    #[error("{} is not run by pool {pool} (error ID {id:08x}); see forkyard error", root.display())]
    NotRun { root: PathBuf, pool: String, id: u32 },
    #[error("{} is no application of pool {pool}; see the log for the reason", root.display())]
    NoApplication { root: PathBuf, pool: String },
    #[error("too many applications are being inspected; try again")]
    Busy,
    #[error("permission denied: it is no application of yours")]
    NotYours,
    #[error("it could not be started (error ID {0}); see forkyard error")]
    NotStarted(String),
    #[error("{0}")]
    Refused(Refusal),
    #[error("it is the only one that serves, and another can't be started")]
    OnlyOne,
    #[error("it was enabled again before")]
    Enabled,
    #[error("it is leaving")]
    Leaving,
}

/// Requests that wait.
#[derive(Debug, Default)]
pub(super) struct AdminRequests {
    /// Starts, for the inspection of their application.
    starts: Vec<StartRequest>,
    /// Starts of another release that a link names, with the link.
    changes: HashMap<u64, (Arc<str>, Arc<str>)>,
    /// By the instance that is being disabled.
    disabling: HashMap<u64, Vec<u64>>,
}

#[derive(Debug)]
struct StartRequest {
    admin_request: u64,
    root: PathBuf,
    unstarted: Unstarted,
    /// A restart by this link.
    by_link: Option<(Arc<str>, Option<bool>)>,
}

impl AdminRequests {
    fn take_starts(&mut self, root: &Path) -> Vec<StartRequest> {
        let starts = std::mem::take(&mut self.starts).into_iter();
        let (taken, others) = starts.partition(|start| start.root == root);
        self.starts = others;
        taken
    }
}

impl Router {
    pub(super) fn done(&mut self, admin_request: u64, result: Result<Value, AdminError>) {
        self.master.say(&ToMaster::Done {
            admin_request,
            result: result.map_err(|error| Reason(error.to_string())),
        });
    }

    pub(super) fn admin_request(&mut self, admin_request: u64, what: AdminRequest) {
        let result = match what {
            AdminRequest::View => {
                self.tell_refused(true);
                Ok(self.view())
            }
            AdminRequest::Restart {
                application,
                rolling,
                unstarted,
            } => match self.link_meant_by(&application) {
                // With the release that its link names now.
                Some(link) => {
                    let root = PathBuf::from(&*link);
                    return self.start(admin_request, root, unstarted, Some((link, rolling)));
                }
                None if unstarted == Unstarted::Stays || self.runs(&application) => {
                    self.restart(&application, rolling)
                }
                None => return self.start(admin_request, application, unstarted, None),
            },
            AdminRequest::Detach { pid } => self.instance_of(pid).map(|number| {
                self.tell(Event::Detach(InstanceId(number)));
                json!({ "instance": number })
            }),
            AdminRequest::Disable { pid, enable } => match self.instance_of(pid) {
                Ok(number) if enable => {
                    self.tell(Event::Enable(InstanceId(number)));
                    Ok(json!({ "instance": number }))
                }
                Ok(number) => {
                    self.admin
                        .disabling
                        .entry(number)
                        .or_default()
                        .push(admin_request);
                    return self.tell(Event::Disable(InstanceId(number)));
                }
                Err(error) => Err(error),
            },
            AdminRequest::SetMax { max } => NonZeroU32::new(max).ok_or(AdminError::NoPlaces).map(|max| {
                self.tell(Event::SetMax(max));
                json!({ "max": max })
            }),
            AdminRequest::Take { of, wait } => return self.take(admin_request, &of, wait),
            AdminRequest::Return { lease, ok } => {
                let session = SessionId(lease);
                if self.sessions.is_lease(session) {
                    self.sessions.remove(session);
                    let back = if ok { Return::Ok } else { Return::Failed };
                    self.tell(Event::Close(session, back));
                }
                Ok(json!({ "lease": lease }))
            }
        };
        self.done(admin_request, result);
    }

    fn instance_of(&self, pid: i32) -> Result<u64, AdminError> {
        let pool = || self.settings.name().to_owned();
        self.instances
            .of_pid(pid)
            .ok_or_else(|| AdminError::NoInstance { pid, pool: pool() })
    }

    /// Whether an application has instances that don't all leave because it was removed.
    fn runs(&self, application: &Path) -> bool {
        let is_known = application
            .to_str()
            .is_some_and(|name| self.apps.get(name).is_some());
        is_known && self.pool.has_instances(application)
    }

    fn restart(&mut self, application: &Path, rolling: Option<bool>) -> Result<Value, AdminError> {
        let name = application.to_str().filter(|name| self.apps.get(name).is_some());
        let name = name.map(Arc::<str>::from).ok_or_else(|| AdminError::Unknown {
            path: application.to_owned(),
            pool: self.settings.name().to_owned(),
        })?;
        let method = match rolling {
            Some(true) => RestartMethod::Rolling,
            Some(false) => RestartMethod::Blocking,
            None => self
                .pool
                .core
                .restart_method(&name)
                .unwrap_or(RestartMethod::Blocking),
        };
        let applications = [name.to_string()];
        self.tell(Event::Restart(name, method));
        Ok(json!({ "rolling": method == RestartMethod::Rolling, "applications": applications }))
    }

    pub(super) fn leased(&mut self, admin_request: u64, session: SessionId, number: u64) {
        let pid = self.instances.get(number).map(|process| process.pid);
        self.done(admin_request, Ok(json!({ "lease": session.0, "pid": pid })));
    }

    pub(super) fn disabled(&mut self, number: u64, outcome: Disabling) {
        let result = match outcome {
            Disabling::Done => Ok(json!({ "disabled": true })),
            Disabling::Already => Ok(json!({ "disabled": true, "already": true })),
            Disabling::Impossible => Err(AdminError::OnlyOne),
            Disabling::Canceled => Err(AdminError::Enabled),
            Disabling::Gone => Err(AdminError::Leaving),
        };
        for admin_request in self.admin.disabling.remove(&number).unwrap_or_default() {
            self.done(admin_request, result.clone());
        }
    }

    /// Returns the link of an application that an operator names by it or by its directory.
    fn link_meant_by(&self, path: &Path) -> Option<Arc<str>> {
        let link = self.sites.link_of(path)?;
        let is_release = path
            .to_str()
            .is_some_and(|path| self.sites.is_served(&link, path));
        (!is_release).then_some(link)
    }

    fn start(
        &mut self,
        admin_request: u64,
        root: PathBuf,
        unstarted: Unstarted,
        by_link: Option<(Arc<str>, Option<bool>)>,
    ) {
        let start = StartRequest {
            admin_request,
            root,
            unstarted,
            by_link,
        };
        let bytes = start.root.as_os_str().as_encoded_bytes();
        if !is_possible(bytes) {
            return self.is_none(start.admin_request, &start.root, None);
        }
        match self.inspections.ask(bytes, STARTER, Duration::ZERO, self.now) {
            Lookup::Known(known) => self.start_one(start, &known),
            Lookup::Refused(refused) => self.is_none(start.admin_request, &start.root, refused.as_deref()),
            Lookup::Busy => self.done(start.admin_request, Err(AdminError::Busy)),
            Lookup::Wait(_) => self.admin.starts.push(start),
        }
    }

    fn start_one(&mut self, start: StartRequest, known: &Arc<Known>) {
        let StartRequest {
            admin_request,
            unstarted,
            by_link,
            ..
        } = start;
        let Some((link, rolling)) = by_link else {
            if let Some(link) = known
                .link
                .as_ref()
                .filter(|link| self.sites.release(link).is_none())
            {
                self.change_release(&Arc::clone(link), &known.name);
            }
            return self.start_known(admin_request, known, unstarted);
        };
        let serving = self.sites.release(&link).cloned();
        let is_other = serving.as_ref().is_some_and(|serving| *serving != known.name);
        match serving.filter(|_| !is_other || self.sites.is_shared(&link)) {
            Some(serving) => {
                let serving = PathBuf::from(&*serving);
                match unstarted == Unstarted::Stays || self.runs(&serving) {
                    true => {
                        let result = self.restart(&serving, rolling);
                        self.done(admin_request, result);
                    }
                    false => self.start(admin_request, serving, unstarted, None),
                }
            }
            None => {
                if unstarted == Unstarted::Stays {
                    self.done(admin_request, Ok(json!({ "rolling": true })));
                }
                let change = (link, Arc::clone(&known.name));
                self.admin.changes.insert(admin_request, change);
                self.start_known(admin_request, known, unstarted);
            }
        }
    }

    pub(super) fn start_seen(&mut self, root: &Path, known: Option<&Arc<Known>>, refused: Option<&Refused>) {
        for start in self.admin.take_starts(root) {
            match known {
                Some(known) => self.start_one(start, known),
                None => self.is_none(start.admin_request, root, refused),
            }
        }
    }

    fn is_none(&mut self, admin_request: u64, root: &Path, refused: Option<&Refused>) {
        let (root, pool) = (root.to_owned(), self.settings.name().to_owned());
        let error = match refused {
            Some(Refused { refusal, .. }) => AdminError::NotRun {
                root,
                pool,
                id: refusal.id,
            },
            None => AdminError::NoApplication { root, pool },
        };
        self.done(admin_request, Err(error));
    }

    fn start_known(&mut self, admin_request: u64, known: &Arc<Known>, unstarted: Unstarted) {
        if matches!(unstarted, Unstarted::StartsFor(user) if user != known.owner) {
            return self.done(admin_request, Err(AdminError::NotYours));
        }
        let session = self.sessions.wait(Who::Starter(admin_request));
        if self.apps.asked(&known.name, self.now) {
            self.pool.add_application(&known.name, known.options);
        }
        if !self.pool.has_instances(Path::new(&*known.name)) {
            let restart = Event::Restart(Arc::clone(&known.name), RestartMethod::Blocking);
            self.pool.add(restart);
        }
        self.tell(Event::Get(Get {
            session,
            target: Target::Application(Arc::clone(&known.name), known.options),
            wait: Wait::Until(self.now + MOST_TIME),
            restart_files: None,
            alone: false,
        }));
    }

    pub(super) fn started(&mut self, admin_request: u64, session: SessionId) {
        self.sessions.remove(session);
        self.pool.add(Event::Close(session, Return::Ok));
        if let Some((link, release)) = self.admin.changes.remove(&admin_request) {
            self.change_release(&link, &release);
        }
        self.done(admin_request, Ok(json!({ "rolling": false, "started": true })));
    }

    pub(super) fn not_started(&mut self, admin_request: u64, refusal: Refusal) {
        self.admin.changes.remove(&admin_request);
        let id = match &refusal {
            Refusal::Trouble(Trouble::Failed(error)) => self.errors.get(*error).error,
            _ => None,
        };
        let error = id.map_or(AdminError::Refused(refusal), AdminError::NotStarted);
        self.done(admin_request, Err(error));
    }
}
