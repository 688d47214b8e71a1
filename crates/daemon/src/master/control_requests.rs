//! Control requests that concern the whole master: reload, upgrade, stop. `pool_requests.rs` has those of one pool or
//! application.

use super::event_loop::Master;
use crate::context::handover::program;
use crate::context::rights::Rights;
use forkyard_core::master::reload_diff::ReloadScope;
use forkyard_protocol::control::{Answer, DaemonMode, Request};
use forkyard_protocol::last_reload::ReloadCause;
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_protocol::router::AdminRequest;
use serde_json::Value;
use std::time::Duration;

impl Master {
    pub(super) fn handle_request(&mut self, asker: u64, request: &Request) {
        let rights = self.executor.control.rights(asker);
        if !Master::is_for_owners(request, rights) {
            let message = "permission denied: root and the daemon's own user may ask for that";
            return self.executor.answer(asker, &Answer::refusal(message.to_owned()));
        }
        let handled = match request {
            Request::Restart {
                application,
                rolling,
                start,
            } => self.restart_application(asker, application, *rolling, *start),
            Request::RestartPool { pool, wait } => self.restart_pool(asker, pool, *wait),
            Request::Deploy {
                pool,
                release,
                gradual,
            } => self.deploy(asker, pool, release, *gradual),
            Request::Rollback { pool, release } => self.roll_back(asker, pool, release.as_deref()),
            Request::Releases { pool } => self.releases(asker, pool.as_deref()),
            Request::Terminate { pid } => self.end_request(asker, *pid),
            Request::Detach { pid } => self.about_instance(asker, *pid, AdminRequest::Detach { pid: *pid }),
            Request::Disable { pid } | Request::Enable { pid } => {
                let enable = matches!(request, Request::Enable { .. });
                self.about_instance(asker, *pid, AdminRequest::Disable { pid: *pid, enable })
            }
            Request::Resize { pool, max } => self.resize(asker, pool, *max),
            Request::Take { of, wait_ms } => self.lend(asker, of, wait_ms.map(Duration::from_millis)),
            Request::Return { lease, failed } => {
                let executor = &mut self.executor;
                let given = (executor.applications).give_back(&mut executor.context, asker, *lease, !failed);
                given.map(|()| None).map_err(Answer::from)
            }
            Request::PoolAdd { file } => self.add_pools(asker, file),
            Request::PoolRemove {
                name,
                immediate,
                deadline_ms,
            } => {
                let limit = match (immediate, deadline_ms) {
                    (true, _) => Some(Duration::ZERO),
                    (false, limit) => limit.map(Duration::from_millis),
                };
                self.remove_pool(asker, name, limit)
            }
            Request::Ping {} => Ok(Some(Answer::Pong {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                mode: self.daemon_mode(),
                last_reload: match rights {
                    Rights::All => self.executor.context.handover.trouble().cloned(),
                    Rights::Own(_) => None,
                },
                program: match rights {
                    Rights::All => program().map(Box::new),
                    Rights::Own(_) => None,
                },
            })),
            Request::Drain { end } => {
                self.drain(*end);
                Ok(Some(Answer::Done { value: Value::Null }))
            }
            Request::ReopenLogs {} => {
                let failures = self.reopen_logs().join("; ");
                match failures.is_empty() {
                    true => Ok(Some(Answer::Done { value: Value::Null })),
                    false => Err(Answer::refusal(format!(
                        "logs that can't be opened are written to their old files: {failures}"
                    ))),
                }
            }
            Request::Status { caches } => {
                if *caches && rights == Rights::All {
                    self.executor.refresh_caches();
                }
                self.executor.begin_status(asker);
                Ok(None)
            }
            Request::Routes { pool } => {
                let context = &self.executor.context;
                let routes = context.pools.routes(&context.in_force.config, rights, pool);
                routes
                    .map(|routes| Some(Answer::Routes { routes }))
                    .map_err(Answer::from)
            }
            Request::Periods { pool } => {
                let periods = self.executor.archive.periods(&mut self.executor.context, pool);
                periods
                    .map(|periods| Some(Answer::Periods { periods }))
                    .map_err(Answer::from)
            }
            Request::Events {} => Ok(Some(self.executor.events(rights))),
            Request::Opcache { pool } => {
                let executor = &mut self.executor;
                let (context, preloaders) = (&mut executor.context, &mut executor.preloaders);
                let asked = executor
                    .caches
                    .ask(context, preloaders, asker, rights, pool.as_deref());
                asked.map(|()| None).map_err(Answer::from)
            }
            Request::Error { id, format } => {
                let source = self.executor.status_source();
                Ok(Some(source.error_report(rights, id.as_deref(), *format)))
            }
            Request::Crashes { pool } => {
                let source = self.executor.status_source();
                Ok(Some(source.crashes(rights, pool.as_deref())))
            }
            Request::Upgrade {} => match self.lifecycle.why_no_upgrade() {
                Some(why) => Err(Answer::refusal(why.to_owned())),
                None => {
                    self.upgrade(Some(asker));
                    Ok(None)
                }
            },
            Request::Reload { all, dry_run: true } => Ok(Some(self.compare(*all))),
            Request::Reload { all, dry_run: false } => {
                let (extent, by) = match all {
                    true => (ReloadScope::All, ReloadCause::CommandAll),
                    false => (ReloadScope::Changed, ReloadCause::Command),
                };
                self.service.tell_reloading();
                let result = self.reload(extent, by, Some(asker));
                self.service.tell_ready();
                result.map(|()| None)
            }
        };
        if let Some(answer) = handled.unwrap_or_else(Some) {
            self.executor.answer(asker, &answer);
        }
    }

    fn drain(&mut self, ends: bool) {
        let (mode, said) = match ends {
            true => (DaemonMode::Serving, "ready again"),
            false => (
                DaemonMode::Draining,
                "drained: not ready, and requests are served",
            ),
        };
        self.mode = mode;
        log::info!("{said}");
        let drained = Happening::of_daemon(EventKind::Drain, said);
        self.executor.context.handover.record(drained);
    }
}
