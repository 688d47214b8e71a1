//! Starts preloaders with the spawning kit.

use super::Preloaders;
use super::preloader::{Command, Preloader};
use crate::context::Context;
use crate::context::generation::{closed, refork_at};
use crate::context::pools;
use crate::context::sources::Source;
use crate::context::spawner::Purpose;
use crate::context::start_source::Source as StartSource;
use crate::workers::slow;
use crate::workers::start_report::account;
use forkyard_config::sharing;
use forkyard_core::master::event::GenerationId;
use forkyard_core::zygotes::Members;
use forkyard_host::confine;
use forkyard_runtimes::Launch;
use forkyard_runtimes::php::ini_snapshot;
use forkyard_spawn::plan::{Internal, Kind, Plan};
use forkyard_sys::Error;
use forkyard_sys::fd::{null, set_nonblocking, socket_pair};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::identity::is_root;
use forkyard_worker::Settings;
use nix::sys::socket::SockType;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;

/// Room for a preloader's process title beyond its arguments.
const TITLE_ROOM_BYTES: usize = 96;
const PRELOADER_CHANNEL: RawFd = forkyard_runtimes::php::protocol::SOCKET;

struct Launching {
    purpose: Purpose,
    is_zygote: bool,
    /// Sent first, with these descriptors.
    settings: Settings,
    descriptors: Vec<OwnedFd>,
    source: StartSource,
    secrets: BTreeMap<String, String>,
    problem: Option<String>,
}

impl Preloaders {
    /// Starts a preloader for a generation: a zygote if it uses one.
    pub(super) fn start_own(&mut self, context: &mut Context, id: GenerationId) -> Result<(), Error> {
        context.open(id)?;
        let generation = context.pools.generations.get_mut(&id).ok_or_else(closed)?;
        let starts = &mut context.in_force.starts;
        let source = starts.source(&context.services, &generation.settings.pool);
        generation
            .make
            .begin(source.fingerprint, !generation.slots.is_empty());
        context.handover.pool_changed(generation.pool);
        let problem = generation.read_env_file().err().map(|error| error.to_string());
        let secrets = generation.secrets();
        let loads_in_workers = generation.make.connected_to.is_some();
        // A zygote also serves other pools, so a fault of this pool is reported for an own preloader.
        let common = generation.common().filter(|_| problem.is_none());
        let is_zygote = common.is_some();
        let (settings, descriptors) = match common {
            // It gets nothing of a pool.
            Some(common) => (common, vec![null()?]),
            None => {
                let (mut settings, descriptors) = context.pools.context(id)?.take_apart();
                if loads_in_workers {
                    Arc::make_mut(&mut settings.pool).application.load_in_workers();
                }
                (settings, descriptors)
            }
        };
        let launching = Launching {
            purpose: Purpose::Preloader(id),
            is_zygote,
            settings,
            descriptors,
            source,
            secrets,
            problem,
        };
        if let Some(preloader) = self.launch(context, launching)? {
            preloader.members.join(id);
            let pid = preloader.pid;
            log::debug!(
                "[pool {}] preloader {pid} started",
                context.pools.generation_name(id)
            );
            context.pools.set_preloader(id, Some(pid));
            if let Some(resources) = context.pools.resources_mut(id) {
                resources.promotions = 0;
            }
        }
        Ok(())
    }

    pub(super) fn try_start_zygote(&mut self, context: &mut Context, common: Settings) -> Result<(), Error> {
        let starts = &mut context.in_force.starts;
        let launching = Launching {
            purpose: Purpose::Zygote,
            is_zygote: true,
            source: starts.source(&context.services, &common.pool),
            settings: common,
            descriptors: vec![null()?],
            secrets: BTreeMap::new(),
            problem: None,
        };
        if let Some(zygote) = self.launch(context, launching)? {
            log::debug!("zygote {} started", zygote.pid);
        }
        Ok(())
    }

    /// Starts a preloader and sends its settings. Returns `None` on failure; the kit reports why.
    fn launch(
        &mut self,
        context: &mut Context,
        launching: Launching,
    ) -> Result<Option<&mut Preloader>, Error> {
        let Launching {
            purpose,
            is_zygote,
            mut settings,
            ..
        } = launching;
        let (channel, theirs) = socket_pair(SockType::Stream)?;
        set_nonblocking(theirs.as_fd(), false)?;
        let mut launch = forkyard_runtimes::launch(&settings.pool.application, &context.services.libexec)?;
        if let Some(ini) = launching.source.ini {
            launch.arguments.push(ini_snapshot::OPTION.to_owned());
            launch.script = Some(ini);
        }
        let name = match is_zygote {
            true => sharing::ZYGOTE,
            false => &settings.pool.name,
        };
        let title = format!("{}: preloader {name}", settings.pool.title);
        let executable = slow::identify(&launch.path);
        let mut plan = plan(name, &settings, &launch);
        plan.secrets = launching.secrets;
        plan.problems.extend(launching.problem);
        let arguments = std::iter::once(title).chain(launch.arguments);
        plan.internal = Some(Internal {
            program: launch.path,
            arguments: arguments.chain([" ".repeat(TITLE_ROOM_BYTES)]).collect(),
        });
        let mut descriptors = vec![(theirs, PRELOADER_CHANNEL)];
        descriptors.extend(launch.script.map(|script| (script, forkyard_runtimes::SCRIPT)));
        let token = context.spawner.spawn(plan, descriptors, purpose);
        // If there is no pid, the answer has already come.
        let Some(pid) = context.spawner.pid(token) else {
            return Ok(None);
        };
        // Only a zygote may send descriptors, because no script of a pool runs in it: it sends its memory.
        let channel = match is_zygote {
            true => Guarded::with_descriptors(channel),
            false => Guarded::new(channel),
        };
        let mut preloader = Preloader::new(pid, channel, Some(token));
        preloader.executable = executable;
        let mut names = None;
        if is_zygote {
            preloader.members = Members::of_zygote(settings.clone());
            preloader.origin = launching.source.fingerprint;
        } else {
            settings.refork_at = refork_at(&settings, 0);
            if let Purpose::Preloader(id) = purpose {
                names = self.ask_for_scripts(&context.pools, id);
            }
        }
        let begin = Command::Begin {
            context: settings,
            warms_up: names.is_some(),
            is_zygote,
            is_for_many: purpose == Purpose::Zygote,
        };
        preloader.send(&begin, launching.descriptors);
        if let Some(names) = names {
            preloader.send(&Command::Warm { parcel: None }, vec![names]);
        }
        let sources = &mut context.services.sources;
        if let Err(error) = sources.watch_both(&preloader.channel, Source::Preloader(pid)) {
            context.spawner.complain(token, &error.to_string());
            context.spawner.cancel(token);
        }
        Ok(Some(self.by_pid.entry(pid).insert_entry(preloader).into_mut()))
    }
}

/// The kit's plan for a preloader, which sets limits, user and confinement itself ([`forkyard_worker::apply_process_settings`]).
fn plan(name: &str, settings: &Settings, launch: &Launch) -> Plan {
    let pool = &settings.pool;
    let root = pool.application.root().or(pool.setup.chdir.as_deref());
    let words = std::iter::once(launch.path.display().to_string()).chain(launch.arguments.iter().cloned());
    let command = words.collect::<Vec<_>>().join(" ");
    let identity = settings.identity.clone();
    let mut plan = Plan::new(
        name,
        root.unwrap_or(Path::new("/")).to_owned(),
        &command,
        account(identity.clone()),
    );
    plan.kind = Kind::Wrapper;
    plan.app_type = pool.application.traits().name.to_owned();
    plan.switch_user = identity.is_some() && is_root();
    plan.inherited = Some(forkyard_worker::environment(
        settings,
        std::env::vars_os().collect(),
    ));
    plan.no_new_privileges = pool.setup.no_new_privs;
    plan.cgroup = confine::group(pool);
    if let Some(policy) = pools::policy(pool).preloader {
        plan.start_timeout = policy.start_timeout;
    }
    plan
}
