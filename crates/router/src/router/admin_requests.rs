//! Operators' requests. A restart of an application without instances can start it, so that a new release is up, or
//! known to be broken, before its first request.

use super::app_index::{Known, Lookup, Refused, is_possible};
use super::event_loop::Router;
use super::sessions::Who;
use forkyard_core::applications::RestartMethod;
use forkyard_core::applications::action::{Disabling, Refusal, Trouble};
use forkyard_core::applications::event::{Event, Get, InstanceId, Return, SessionId, Target, Wait};
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
    /// By the instance that is being disabled.
    disabling: HashMap<u64, Vec<u64>>,
}

#[derive(Debug)]
struct StartRequest {
    admin_request: u64,
    root: PathBuf,
    unstarted: Unstarted,
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
            result: result.map_err(|error| error.to_string()),
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
            } => match unstarted == Unstarted::Stays || self.pool.has_instances(&application) {
                true => self.restart(&application, rolling),
                false => return self.start(admin_request, application, unstarted),
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
        self.tell(Event::Restart(name, method));
        Ok(json!({ "rolling": method == RestartMethod::Rolling }))
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

    fn start(&mut self, admin_request: u64, root: PathBuf, unstarted: Unstarted) {
        let bytes = root.as_os_str().as_encoded_bytes();
        if !is_possible(bytes) {
            return self.is_none(admin_request, &root, None);
        }
        match self.inspections.ask(bytes, STARTER, Duration::ZERO, self.now) {
            Lookup::Known(known) => self.start_known(admin_request, &known, unstarted),
            Lookup::Refused(refused) => self.is_none(admin_request, &root, refused.as_deref()),
            Lookup::Busy => self.done(admin_request, Err(AdminError::Busy)),
            Lookup::Wait(_) => self.admin.starts.push(StartRequest {
                admin_request,
                root,
                unstarted,
            }),
        }
    }

    pub(super) fn start_seen(&mut self, root: &Path, known: Option<&Arc<Known>>, refused: Option<&Refused>) {
        for start in self.admin.take_starts(root) {
            match known {
                Some(known) => self.start_known(start.admin_request, known, start.unstarted),
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
        self.done(admin_request, Ok(json!({ "rolling": false, "started": true })));
    }

    pub(super) fn not_started(&mut self, admin_request: u64, refusal: Refusal) {
        let id = match &refusal {
            Refusal::Trouble(Trouble::Failed(error)) => self.errors.get(*error).error,
            _ => None,
        };
        let error = id.map_or(AdminError::Refused(refusal), AdminError::NotStarted);
        self.done(admin_request, Err(error));
    }
}
