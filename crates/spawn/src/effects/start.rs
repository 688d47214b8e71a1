//! Starts a process: creates its work directory and executes the env setupper.

use super::live::Live;
use super::own_socket::OwnDirectory;
use super::{Effects, Watched, fault, memory, ports};
use crate::event::{JourneyEvent, JourneyId};
use crate::handshake::arguments::Arguments;
use crate::journey::Journey;
use crate::plan::{OwnSocket, WORK_DIRECTORY};
use crate::workdir::WorkDirectory;
use forkyard_sys::{self as sys, clock, pidfd, process};
use nix::sys::signal::Signal;
use std::ffi::CString;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The descriptor that reserves a Node.js process's port. It is above numbers used by shell scripts. It is below 16,
/// where Node.js sets close-on-exec for its children.
const HELD_PORT: RawFd = 14;

impl Effects {
    pub(super) fn prepare(&mut self, id: JourneyId) {
        let Some(mut live) = self.live.remove(&id) else {
            return;
        };
        let done = self.make_ready(id, &mut live);
        self.live.insert(id, live);
        match done {
            Ok(()) => self.tell(id, JourneyEvent::Prepared),
            Err(error) => self.tell(id, JourneyEvent::NotPrepared(fault(&error))),
        }
    }

    fn make_ready(&mut self, id: JourneyId, live: &mut Live) -> sys::Result<()> {
        let steps = Journey::new(live.route, live.plan.kind.has_wrapper()).reported_steps();
        let plan = Arc::clone(&live.plan);
        let directory = WorkDirectory::make(self.work_place(), &steps, plan.debug_work_dir)?;
        let directory = live.directory.insert(directory);
        let finish = directory.make_finish()?;
        if let Some(OwnSocket::Preloaded(_)) = plan.own_socket {
            let (held, port) = ports::hold()?;
            (live.held, live.port) = (Some(held), Some(port));
        } else if plan.wants_port(live.route) {
            live.port = Some(self.ports.take(plan.bind_address)?);
        }
        if let Some(how) = plan.own_socket {
            live.own = Some(OwnDirectory::make(
                &self.context.spawn_dir,
                self.base.as_ref(),
                &plan,
                how,
            )?);
        }
        if plan.internal.is_some() {
            if plan.switch_user {
                directory.give_away(plan.account.uid, plan.account.gid)?;
            }
        } else {
            let mut arguments = Arguments::new(&plan, live.route, live.port, &self.unique_name(id));
            arguments.own_socket = live.own.as_ref().map(OwnDirectory::socket);
            arguments.node_preload = live.own.as_ref().and_then(OwnDirectory::script);
            directory.write_arguments(&arguments)?;
        }
        self.watch(&finish, id, Watched::Finish)?;
        live.finish = Some(finish);
        Ok(())
    }

    fn unique_name(&self, id: JourneyId) -> String {
        let now = clock::now().as_nanos();
        let mixed = now ^ (u64::from(std::process::id()) << 40) ^ id.0.rotate_left(32);
        format!("{:x}-{mixed:016x}", clock::epoch_seconds() / 60)
    }

    pub(super) fn fork(&mut self, id: JourneyId) {
        let Some(mut live) = self.live.remove(&id) else {
            return;
        };
        let done = self.start(id, &mut live);
        self.live.insert(id, live);
        match done {
            Ok(pid) => self.tell(id, JourneyEvent::Forked { pid }),
            Err(error) => {
                self.signal(id, Signal::SIGKILL);
                self.tell(id, JourneyEvent::NotForked(fault(&error)));
            }
        }
    }

    fn start(&mut self, id: JourneyId, live: &mut Live) -> sys::Result<i32> {
        let Some(directory) = &live.directory else {
            return Err(sys::Error::new(
                "fork",
                "no work directory",
                nix::errno::Errno::ENOENT,
            ));
        };
        let text = |bytes: &[u8]| {
            let unfit = |_| sys::Error::new("execve", "a NUL in a string", nix::errno::Errno::EINVAL);
            CString::new(bytes).map_err(unfit)
        };
        let (output, child_output) = sys::fd::output()?;
        let mut descriptors = std::mem::take(&mut live.descriptors);
        descriptors.push((sys::fd::copy(child_output.as_fd())?, 1));
        descriptors.push((child_output, 2));
        descriptors.extend(live.held.take().map(|held| (held, HELD_PORT)));
        let mut environment: Vec<CString> = Vec::new();
        let inherited = live.plan.inherited.as_ref();
        for (name, value) in inherited.unwrap_or(&self.context.environment) {
            environment.push(text(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
        let program = if let Some(internal) = &live.plan.internal {
            descriptors.push((sys::fd::copy(directory.top())?, WORK_DIRECTORY));
            environment.push(text(&live.mark().unwrap_or_default())?);
            let arguments = internal
                .arguments
                .iter()
                .map(|argument| text(argument.as_bytes()));
            process::Program {
                path: text(internal.program.as_os_str().as_bytes())?,
                arguments: arguments.collect::<sys::Result<_>>()?,
                environment,
                descriptors,
                descriptor_limit: None,
            }
        } else {
            let (child_input, input) = sys::fd::pipe(false)?;
            descriptors.push((child_input, 0));
            live.input = Some(input);
            process::Program {
                path: text(self.context.program.as_os_str().as_bytes())?,
                arguments: vec![
                    text(b"forkyard")?,
                    text(b"spawn-env-setupper")?,
                    text(directory.path().as_os_str().as_bytes())?,
                    text(b"--before")?,
                ],
                environment,
                descriptors,
                descriptor_limit: self.context.descriptor_limit,
            }
        };
        live.oom_kills = memory::oom_kills(live.plan.cgroup.as_deref());
        let pid = process::start(&program)?;
        live.pid = Some(pid);
        let handle = live.process.insert(pidfd::open(pid)?);
        self.watch(handle, id, Watched::Exit)?;
        self.watch(&output, id, Watched::Output)?;
        live.output = Some(output);
        Ok(pid)
    }
}
