//! Starts applications without instances on request, so that a new release is up, or known to be broken, before its
//! first request.

use super::app_index::{Known, Lookup, Refused, is_possible};
use super::event_loop::Router;
use super::instances::{Session, Who};
use crate::applications::RestartMethod;
use crate::applications::action::{Refusal, Trouble};
use crate::applications::event::{Event, Get, Return, SessionId, Target, Wait};
use forkyard_protocol::router::Unstarted;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The inspection client id for starts. No connection has it.
pub(super) const STARTER: u64 = u64::MAX - 1;
const MOST_TIME: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Waits {
    admin_request: u64,
    root: PathBuf,
    unstarted: Unstarted,
}

impl Router {
    pub(super) fn has_instances(&self, application: &Path) -> bool {
        let mut live = self.app_pool.names_with_instances();
        live.any(|name| Path::new(&*name) == application)
    }

    pub(super) fn start(&mut self, admin_request: u64, root: PathBuf, unstarted: Unstarted) {
        let bytes = root.as_os_str().as_encoded_bytes();
        if !is_possible(bytes) {
            return self.is_none(admin_request, &root, None);
        }
        match self.app_index.ask(bytes, STARTER, Duration::ZERO, self.now) {
            Lookup::Known(known) => self.start_known(admin_request, &known, unstarted),
            Lookup::Refused(refused) => self.is_none(admin_request, &root, refused.as_deref()),
            Lookup::Busy => self.done(
                admin_request,
                Err("too many applications are being inspected; try again".to_owned()),
            ),
            Lookup::Wait(look) => {
                if let Some(look) = look {
                    self.ask_inspector(&look);
                }
                self.starts.push(Waits {
                    admin_request,
                    root,
                    unstarted,
                });
            }
        }
    }

    pub(super) fn start_seen(&mut self, root: &Path, known: Option<&Arc<Known>>, refused: Option<&Refused>) {
        let (seen, others) = std::mem::take(&mut self.starts)
            .into_iter()
            .partition(|one| one.root == root);
        self.starts = others;
        let seen: Vec<Waits> = seen;
        for one in seen {
            match known {
                Some(known) => self.start_known(one.admin_request, known, one.unstarted),
                None => self.is_none(one.admin_request, root, refused),
            }
        }
    }

    fn is_none(&mut self, admin_request: u64, root: &Path, refused: Option<&Refused>) {
        let pool = &self.pool.name;
        let root = root.display();
        let why = match refused {
            Some(Refused { refusal, .. }) => format!(
                "{root} is not run by pool {pool} (error ID {:08x}); see forkyard error",
                refusal.id
            ),
            None => format!("{root} is no application of pool {pool}; see the log for the reason"),
        };
        self.done(admin_request, Err(why));
    }

    fn start_known(&mut self, admin_request: u64, known: &Arc<Known>, unstarted: Unstarted) {
        if matches!(unstarted, Unstarted::StartsFor(user) if user != known.owner) {
            let why = "permission denied: it is no application of yours".to_owned();
            return self.done(admin_request, Err(why));
        }
        let session = self.new_session();
        self.sessions
            .insert(session, Session::waiting(Who::Starter(admin_request)));
        if self.apps.asked(&known.name, self.now) {
            self.events.push_back(Event::Add {
                name: Arc::clone(&known.name),
                group: None,
                options: known.options,
            });
        }
        if !self.has_instances(Path::new(&*known.name)) {
            let restart = Event::Restart(Arc::clone(&known.name), RestartMethod::Blocking);
            self.events.push_back(restart);
        }
        self.tell(Event::Get(Get {
            session,
            target: Target::Application(Arc::clone(&known.name), known.options),
            wait: Wait::Until(self.now + MOST_TIME),
            lease_holder: None,
            restart_files: None,
            alone: false,
        }));
    }

    pub(super) fn started(&mut self, admin_request: u64, session: SessionId) {
        self.sessions.remove(&session);
        self.events.push_back(Event::Close(session, Return::Ok));
        self.done(admin_request, Ok(json!({ "rolling": false, "started": true })));
    }

    pub(super) fn not_started(&mut self, admin_request: u64, refusal: &Refusal) {
        let id = match refusal {
            Refusal::Trouble(Trouble::Failed(error)) => self.errors.get(*error).map(|(id, _)| id.clone()),
            _ => None,
        };
        let why = match id {
            Some(id) => format!("it could not be started (error ID {id}); see forkyard error"),
            None => refusal.to_string(),
        };
        self.done(admin_request, Err(why));
    }
}
