//! One start of PHP for pools of any user.
//!
//! The process runs as a user of its own, and keeps the right to become others for its workers alone
//! ([`rights::become_source_of_children`]). No script runs in it, and nothing of a pool enters its memory: what a worker needs
//! comes with the command to fork it, in a memory file that only the worker reads.
//!
//! What PHP's extensions share with all that is forked of it, such as OPcache's memory, each pool has of its own. The master
//! gets a copy of how it is at the start, copies it for each pool, and sends that with each such command; a worker maps it in place
//! of what it shares ([`shared_mappings`]). It lives as long as the master keeps it, whether there are workers or not.

use crate::ffi::Php;
use crate::preloader::{Error, Role, hold_values, lost, ready, serve, set_values, start_php};
use crate::warm::{self, NAMING};
use forkyard_config::{self as config, Application};
use forkyard_host::confine;
use forkyard_spawn::setupper::{self, Notes};
use forkyard_spawn::step::Step;
use forkyard_sys::process::{Side, exit_now, fork_sibling, kill_if_orphaned};
use forkyard_sys::shared_mappings::{self, Segment};
use forkyard_sys::{self as sys, fd, program, rights, session, signal};
use forkyard_sys::{heap, identity, image, title};
use forkyard_worker::runtime::php::ini_snapshot::IniFiles;
use forkyard_worker::runtime::php::protocol::{Answer, EXIT_START_FAILED};
use forkyard_worker::runtime::php::settings::worker_settings;
use forkyard_worker::runtime::preloader::{CodeCache, Parcel, Preloader};
use forkyard_worker::worker::{self, Settings};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

/// What OPcache's lock is called, by version of PHP. Its locks are of the file: every process that has the same one can
/// hold them.
const LOCKS: [&str; 2] = ["opcache_lock", ".ZendSem."];
const MEMORY: &str = "forkyard php";
const DATA: &str = "forkyard php data";
const CODE: &str = "forkyard php code";
/// A zygote of one pool makes so many workers before it prepares for more: nearly all such pools have fewer.
const FEW: u32 = 8;

/// What its workers have to part with.
pub(crate) struct Zygote {
    segments: Vec<Segment>,
    lock: Option<RawFd>,
    is_privileged: bool,
    is_for_many: bool,
}

/// Starts PHP and serves the master until it closes the socket.
pub(crate) fn run(
    preloader: Preloader,
    held: Result<Option<IniFiles>, Error>,
    notes: Option<Notes>,
) -> ExitCode {
    // Its directory is root's, as this process is now. No worker may have it open.
    if let Some(notes) = notes {
        notes.settled(Step::SubprocessAppLoadOrExec);
    }
    let started = held.and_then(|held| start(&preloader, held.as_ref()));
    let (php, zygote, memory) = match started {
        Ok(started) => started,
        Err(error) => {
            let reason = error.to_string();
            preloader.ready(&Answer::Unfit { reason });
            return wait_for_end(preloader);
        }
    };
    preloader.ready_with(
        &ready(&php, memory.is_some(), None),
        memory.as_ref().map(AsFd::as_fd),
    );
    drop(memory);
    let mut caches = CodeCaches {
        php: &php,
        zygote: &zygote,
    };
    serve(preloader, &php, &mut caches, Some(&zygote))
}

/// It is of no use, and the master may have more to say before it knows.
fn wait_for_end(mut preloader: Preloader) -> ExitCode {
    match preloader.wait(&mut ()) {
        Ok(Some(wanted)) => {
            preloader.not_made(&wanted, "PHP is not started");
            wait_for_end(preloader)
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => lost(&error),
    }
}

fn start(preloader: &Preloader, held: Option<&IniFiles>) -> Result<(Php, Zygote, Option<OwnedFd>), Error> {
    let settings = &preloader.settings;
    let Application::Php(config) = &settings.pool.application else {
        return Err(Error::NotPhp);
    };
    let is_privileged = identity::is_root();
    // The environment that the master has chosen, and nothing of a pool.
    worker::apply_environment(settings);
    setupper::forget_mark();
    if is_privileged {
        rights::become_source_of_children(rights::SOURCE_OF_CHILDREN)?;
    }
    if preloader.is_for_many() {
        confine::prepare();
    }
    let before = fd::open_ones()?;
    let php = start_php(config, held, Role::Zygote, settings.pool.pushes_jobs())?;
    let lock = alone(&before, php.leaver().as_deref()).map_err(Error::Unfit)?;
    program::let_go_of_code();
    heap::trim();
    let description = shared_mappings::describe()?;
    let segments = shared_mappings::find(&description)?;
    if preloader.is_for_many() {
        prepare_for_many(&description)?;
    }
    let memory = match segments.as_slice() {
        [] => None,
        some => Some(shared_mappings::copy(some, MEMORY)?),
    };
    drop(description);
    heap::trim();
    let zygote = Zygote {
        segments,
        lock,
        is_privileged,
        is_for_many: preloader.is_for_many(),
    };
    Ok((php, zygote, memory))
}

/// Makes forks of this process cheap, which takes the time of dozens of them. `description`: see
/// [`shared_mappings::describe`].
fn prepare_for_many(description: &str) -> Result<(), sys::Error> {
    // SAFETY: there is one thread, and no handler of a signal. The heap has at most grown since it was described.
    unsafe { image::put_data_into_file(description, DATA)? };
    // SAFETY: libphp's symbols are everybody's. The rest as above: nothing of PHP runs now.
    let is_moved = unsafe {
        let code = libc::dlsym(libc::RTLD_DEFAULT, c"php_module_startup".as_ptr());
        image::put_code_into_huge_pages(code as usize, CODE)
    };
    match is_moved {
        Ok(true) => {}
        Ok(false) => log::debug!("PHP's code is not in huge pages"),
        Err(error) => log::debug!("PHP's code is not in huge pages: {error}"),
    }
    Ok(())
}

/// Looks whether a fork of this process has all that it has: no thread but this one, and no descriptor that an extension has
/// opened, which all would share. Says which is OPcache's lock. `leaver`: the extension that has left something.
fn alone(before: &[(RawFd, String)], leaver: Option<&str>) -> Result<Option<RawFd>, String> {
    let who = leaver.map_or_else(
        || "an extension of PHP".to_owned(),
        |name| format!("the extension {name}"),
    );
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return Err(format!("{who} has started {} threads", threads.saturating_sub(1)));
    }
    let now = fd::open_ones().map_err(|error| error.to_string())?;
    let mut lock = None;
    for (fd, target) in now.into_iter().filter(|entry| !before.contains(entry)) {
        let is_lock = LOCKS.iter().any(|name| target.contains(name));
        if !is_lock || lock.replace(fd).is_some() {
            return Err(format!("{who} has opened {target}"));
        }
    }
    Ok(lock)
}

/// What the pools' workers have compiled. It is in memory that the zygote does not have, so a process of the pool's own
/// looks at it.
struct CodeCaches<'z> {
    php: &'z Php,
    zygote: &'z Zygote,
}

impl CodeCache for CodeCaches<'_> {
    fn name_scripts(&mut self, most: u32, to: OwnedFd, parcel: Option<Parcel>) {
        let pipe = [to.as_raw_fd()];
        self.in_pool(parcel, &pipe, NAMING, |php, _| warm::name_scripts(php, most, &to));
    }

    fn compile(&mut self, descriptors: Vec<OwnedFd>, parcel: Option<Parcel>) {
        let Some(from) = descriptors.last() else { return };
        let pipes: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        // `warm::compile` has limits of its own.
        self.in_pool(parcel, &pipes, Duration::ZERO, |php, config| {
            warm::compile(php, from, config);
        });
    }
}

impl CodeCaches<'_> {
    /// Does something in a process that is what a worker of the generation would be, with the pool's memory, and does not
    /// wait for it. `pipes`: what it needs of this process's descriptors. `limit`: the kernel ends it after this time; zero:
    /// it does not. The master reaps it.
    fn in_pool(
        &self,
        parcel: Option<Parcel>,
        pipes: &[RawFd],
        limit: Duration,
        act: impl FnOnce(&Php, &config::Php),
    ) {
        let Some(parcel) = parcel else { return };
        // SAFETY: the process has one thread. The child leaves by _exit.
        match unsafe { fork_sibling() } {
            Ok(Side::Parent(_)) => {}
            Ok(Side::Child) => {
                signal::reset_in_child();
                if let Err(error) = self.become_pools(parcel, pipes, limit, act) {
                    log::warn!("warm-up: {error}");
                }
                exit_now(0)
            }
            Err(error) => log::warn!("warm-up: {error}"),
        }
    }

    /// In the child.
    fn become_pools(
        &self,
        mut parcel: Parcel,
        pipes: &[RawFd],
        limit: Duration,
        act: impl FnOnce(&Php, &config::Php),
    ) -> Result<(), Error> {
        let mut keep = parcel.descriptors();
        keep.extend(pipes);
        keep.extend(self.zygote.lock);
        keep.sort_unstable();
        // SAFETY: the others are the zygote's, whose state this process never drops: it leaves by _exit.
        unsafe { fd::close_all_but(&keep) };
        self.zygote.part_from_others(parcel.take_memory())?;
        let context = parcel.open()?;
        let pool = &context.settings.pool;
        title::set(&format!("{}: warm-up {}", pool.title, pool.name));
        fd::replace_standard_streams(fd::null()?.as_fd(), None)?;
        self.zygote.become_worker(self.php, &context.settings)?;
        // A process that changes its user is no longer killed with its parent.
        kill_if_orphaned();
        let Application::Php(config) = &context.settings.pool.application else {
            return Err(Error::NotPhp);
        };
        hold_values(self.php, config);
        if !limit.is_zero() {
            nix::unistd::alarm::set(limit.as_secs().max(1) as u32);
        }
        act(self.php, config);
        Ok(())
    }
}

impl Zygote {
    /// In the zygote, when it has made so many workers: one pool can have more of them than was to be expected.
    pub(crate) fn has_made(&self, workers: u32) {
        if self.is_for_many || workers != FEW {
            return;
        }
        let prepared = shared_mappings::describe().and_then(|description| prepare_for_many(&description));
        if let Err(error) = prepared {
            // Parts of its memory may be missing. The master starts another.
            lost(&error);
            exit_now(EXIT_START_FAILED)
        }
        heap::trim();
    }

    /// In a worker, before it uses anything of PHP: puts the pool's memory in the place of what is shared, and OPcache's lock
    /// with it. Leaves the session, in which workers of other users are.
    pub(crate) fn part_from_others(&self, memory: Option<OwnedFd>) -> Result<(), sys::Error> {
        session::begin()?;
        let Some(memory) = memory else {
            if self.segments.is_empty() && self.lock.is_none() {
                return Ok(());
            }
            let missing = nix::errno::Errno::EINVAL;
            return Err(sys::Error::new("mmap", "the pool's memory is missing", missing));
        };
        // SAFETY: the mappings were found in the process that this one is a copy of, and the master has copied what
        // came of them. What refers into them finds the same there.
        unsafe { shared_mappings::replace(&self.segments, memory.as_fd())? };
        if let Some(lock) = self.lock {
            // SAFETY: OPcache locks bytes of the file, and does nothing else with it.
            unsafe { shared_mappings::replace_descriptor(lock, &memory)? };
        }
        Ok(())
    }

    /// In a worker: becomes what its pool says, and applies the pool's settings of PHP.
    pub(crate) fn become_worker(&self, php: &Php, settings: &Settings) -> Result<(), Error> {
        match self.is_privileged {
            true => worker::apply_process_settings_in_child(settings)?,
            false => worker::apply_process_settings(settings)?,
        }
        worker::apply_environment(settings);
        match &settings.pool.application {
            Application::Php(config) => set_values(php, worker_settings(config)),
            _ => Err(Error::NotPhp),
        }
    }
}
