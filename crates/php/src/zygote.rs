//! One start of PHP for pools of any user.
//!
//! The process runs as its own user and keeps the capability to change users only for its workers
//! ([`rights::become_source_of_children`]). No script runs in it and no data of a pool enters its memory: the command
//! to fork a worker carries them in a memory file that only the worker reads.
//!
//! Each pool has a copy of the memory that PHP's extensions share with forked processes, such as OPcache's. The master
//! copies the initial state for each pool and sends the copy with each command; the worker maps it over the shared
//! memory ([`shared_mappings`]). The master decides how long a zygote lives.

use crate::ffi::Php;
use crate::preloader::{Error, Role, hold_values, lost, ready, serve, set_values, start_php};
use crate::warm::{self, NAMING};
use forkyard_config as config;
use forkyard_host::confine;
use forkyard_runtimes::php::ini_snapshot::IniFiles;
use forkyard_runtimes::php::protocol::{Answer, EXIT_START_FAILED};
use forkyard_runtimes::php::settings::worker_settings;
use forkyard_runtimes::preloader::{CodeCache, Parcel, Preloader};
use forkyard_spawn::setupper::{self, Notes};
use forkyard_spawn::step::Step;
use forkyard_sys::process::{Side, exit_now, fork_sibling, kill_if_orphaned};
use forkyard_sys::shared_mappings::{self, Segment};
use forkyard_sys::{self as sys, fd, heap, identity, image, program, rights, session, signal, title};
use forkyard_worker::Settings;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

/// Names of OPcache's lock by PHP version. The lock is on the file, so every process with the same file can hold it.
const LOCKS: [&str; 2] = ["opcache_lock", ".ZendSem."];
const MEMORY: &str = "forkyard php";
const DATA: &str = "forkyard php data";
const CODE: &str = "forkyard php code";
const FEW: u32 = 8;

pub(crate) struct Zygote {
    segments: Vec<Segment>,
    lock: Option<RawFd>,
    is_privileged: bool,
    is_for_many: bool,
}

pub(crate) fn run(
    preloader: Preloader,
    held: Result<Option<IniFiles>, Error>,
    notes: Option<Notes>,
) -> ExitCode {
    // Workers must not have root's directory open.
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
    let Some(config) = settings.pool.application.php() else {
        return Err(Error::NotPhp);
    };
    let is_privileged = identity::is_root();
    forkyard_worker::apply_environment(settings);
    setupper::forget_mark();
    if is_privileged {
        rights::become_source_of_children(rights::SOURCE_OF_CHILDREN)?;
    }
    if preloader.is_for_many() {
        confine::prepare();
    }
    let before = fd::open_ones()?;
    let php = start_php(config, held, Role::Zygote, settings.pool.pushes_jobs())?;
    let lock = alone(&before, php.leaver().as_deref()).map_err(|error| Error::Unfit(error.to_string()))?;
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

/// Makes later forks cheap, at the cost of dozens of forks. `description`: see [`shared_mappings::describe`].
fn prepare_for_many(description: &str) -> Result<(), sys::Error> {
    // SAFETY: there is one thread and no signal handler. The heap can only have grown since it was described.
    unsafe { image::put_data_into_file(description, DATA)? };
    // SAFETY: libphp's symbols are global. Otherwise as above: PHP is idle.
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

#[derive(Debug, thiserror::Error)]
enum NotAlone {
    #[error("{who} has started {count} threads")]
    Threads { who: String, count: usize },
    #[error("{who} has opened {target}")]
    Opened { who: String, target: String },
    #[error(transparent)]
    System(#[from] forkyard_sys::Error),
}

/// Checks that a fork is complete: no other thread, and no descriptor that an extension opened and all would share.
/// Returns OPcache's lock. `leaver`: the extension to blame.
fn alone(before: &[(RawFd, String)], leaver: Option<&str>) -> Result<Option<RawFd>, NotAlone> {
    let who = leaver.map_or_else(
        || "an extension of PHP".to_owned(),
        |name| format!("the extension {name}"),
    );
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        let count = threads.saturating_sub(1);
        return Err(NotAlone::Threads { who, count });
    }
    let mut lock = None;
    for (fd, target) in fd::open_ones()?
        .into_iter()
        .filter(|entry| !before.contains(entry))
    {
        let is_lock = LOCKS.iter().any(|name| target.contains(name));
        if !is_lock || lock.replace(fd).is_some() {
            return Err(NotAlone::Opened { who, target });
        }
    }
    Ok(lock)
}

/// The pools' compiled code. Only a process with the pool's memory can read it.
struct CodeCaches<'z> {
    php: &'z Php,
    zygote: &'z Zygote,
}

impl CodeCache for CodeCaches<'_> {
    fn name_scripts(&mut self, most: u32, to: OwnedFd, parcel: Option<Parcel>) {
        let pipe = [to.as_raw_fd()];
        self.in_pool(parcel, &pipe, NAMING, |php, _| warm::name_scripts(php, most, &to));
    }

    fn write_state(&mut self, to: OwnedFd, parcel: Option<Parcel>) {
        let limit = Duration::from_secs(u64::from(warm::STATE_SECONDS));
        self.in_pool(parcel, &[to.as_raw_fd()], limit, |php, _| {
            warm::write_state(php, &to, false);
        });
    }

    fn compile(&mut self, descriptors: Vec<OwnedFd>, parcel: Option<Parcel>) {
        let Some(from) = descriptors.last() else { return };
        let pipes: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        self.in_pool(parcel, &pipes, Duration::ZERO, |php, config| {
            warm::compile(php, from, config);
        });
    }
}

impl CodeCaches<'_> {
    /// Runs `act` in a process set up like the generation's workers, without waiting; the master reaps it. `pipes`: the
    /// descriptors it needs. `limit`: the kernel kills it after this time, unless zero.
    fn in_pool(
        &self,
        parcel: Option<Parcel>,
        pipes: &[RawFd],
        limit: Duration,
        act: impl FnOnce(&Php, &config::Php),
    ) {
        let Some(parcel) = parcel else { return };
        // SAFETY: the process has one thread. The child exits by _exit.
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
        // SAFETY: the closed descriptors belong to the zygote's state, which is never dropped: the process exits by
        // _exit.
        unsafe { fd::close_all_but(&keep) };
        self.zygote.part_from_others(parcel.take_memory())?;
        let context = parcel.open()?;
        let pool = &context.settings.pool;
        title::set(&format!("{}: warm-up {}", pool.title, pool.name));
        fd::replace_standard_streams(fd::null()?.as_fd(), None)?;
        self.zygote.become_worker(self.php, &context.settings)?;
        // A change of user resets the parent-death signal.
        kill_if_orphaned();
        let Some(config) = context.settings.pool.application.php() else {
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
    pub(crate) fn has_made(&self, workers: u32) {
        if self.is_for_many || workers != FEW {
            return;
        }
        let prepared = shared_mappings::describe().and_then(|description| prepare_for_many(&description));
        if let Err(error) = prepared {
            // Parts of memory may be missing. The master starts another zygote.
            lost(&error);
            exit_now(EXIT_START_FAILED)
        }
        heap::trim();
    }

    /// In a worker, before PHP is used: replaces shared memory and OPcache's lock with the pool's, and leaves the
    /// session shared with other users' workers.
    pub(crate) fn part_from_others(&self, memory: Option<OwnedFd>) -> Result<(), sys::Error> {
        session::begin()?;
        let Some(memory) = memory else {
            if self.segments.is_empty() && self.lock.is_none() {
                return Ok(());
            }
            let missing = nix::errno::Errno::EINVAL;
            return Err(sys::Error::new("mmap", "the pool's memory is missing", missing));
        };
        // SAFETY: the mappings were found in the parent of this copy, and the memory is a copy of them, so references
        // into them stay valid.
        unsafe { shared_mappings::replace(&self.segments, memory.as_fd())? };
        if let Some(lock) = self.lock {
            // SAFETY: OPcache only locks bytes of this file.
            unsafe { shared_mappings::replace_descriptor(lock, &memory)? };
        }
        Ok(())
    }

    pub(crate) fn become_worker(&self, php: &Php, settings: &Settings) -> Result<(), Error> {
        match self.is_privileged {
            true => forkyard_worker::apply_process_settings_in_child(settings)?,
            false => forkyard_worker::apply_process_settings(settings)?,
        }
        forkyard_worker::apply_environment(settings);
        let config = settings.pool.application.php().ok_or(Error::NotPhp)?;
        set_values(php, worker_settings(config))
    }
}
