//! Starts the jobs process: from the daemon's document and descriptors to the loop.

use crate::process::Process;
use crate::store::sql::Database;
use crate::store::{Sqlite, Store, StoreError};
use forkyard_config::{Jobs, JobsStart, JobsStore};
use forkyard_host::logs::Log;
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::{Error, fd, memfile, process, signal, title};
use nix::errno::Errno;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::ExitCode;

const EXIT_SOFTWARE: u8 = 70;
const DOCUMENT: RawFd = 3;
const DESCRIPTORS: [RawFd; 3] = [4, 5, 6];
const TCP: RawFd = 7;
const MOST_BYTES: usize = 16 << 20;

/// Runs with SQLite until the master is gone or sends a stop, and no job runs.
pub fn main() -> ExitCode {
    serve_on(|jobs| match &jobs.store {
        JobsStore::File(path) => Ok(Box::new(Sqlite::open(path)?)),
        JobsStore::Postgresql(_) => Err(StoreError::Foreign("a PostgreSQL server".to_owned())),
    })
}

pub fn serve_on(open: impl Fn(&Jobs) -> Result<Box<dyn Database>, StoreError> + Send + 'static) -> ExitCode {
    title::prepare();
    signal::ignore_pipe();
    let ((start, identity), [channel, messages, listener]) = match begin() {
        Ok(begun) => begun,
        Err(error) => {
            Log::install();
            log::error!("{error}; the daemon starts this program, if its configuration has [jobs]");
            return ExitCode::from(EXIT_SOFTWARE);
        }
    };
    let log = Log::install();
    log.say_from(start.log_level);
    log.send_to_master(messages);
    title::set(&start.title);
    match serve(start, identity.as_ref(), channel, listener, open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("jobs: {error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

type Begun = ((JobsStart, Option<Identity>), [OwnedFd; 3]);

fn begin() -> Result<Begun, Error> {
    let document = fd::adopt_passed(DOCUMENT)?;
    let bytes = memfile::read(document.as_fd(), MOST_BYTES)?;
    let start = serde_json::from_slice(&bytes)
        .map_err(|error| Error::new("start", format!("the daemon's document: {error}"), Errno::EBADMSG))?;
    let [channel, messages, listener] = DESCRIPTORS;
    Ok((
        start,
        [
            fd::adopt_passed(channel)?,
            fd::adopt_passed(messages)?,
            fd::adopt_passed(listener)?,
        ],
    ))
}

fn serve(
    start: JobsStart,
    identity: Option<&Identity>,
    channel: OwnedFd,
    listener: OwnedFd,
    open: impl Fn(&Jobs) -> Result<Box<dyn Database>, StoreError> + Send + 'static,
) -> Result<(), Box<dyn std::error::Error>> {
    let tcp = match start.secret {
        Some(secret) => Some((fd::adopt_passed(TCP)?, secret)),
        None => None,
    };
    if let (Some(identity), true) = (identity, identity::is_root()) {
        identity::become_user(identity)?;
    }
    identity::give_up_new_privileges()?;
    identity::set_umask(0o077);
    // Each client and each running job needs one.
    if let Err(error) = fd::raise_descriptor_limit() {
        log::debug!("jobs: {error}");
    }
    let (jobs, own) = (start.jobs.clone(), own_name());
    let user = identity.and_then(|identity| identity.name.clone());
    let open = move || {
        let database = open(&jobs).map_err(|error| remedied(&jobs, user.as_deref(), error))?;
        Ok(Store::new(database, &own, jobs.machine_timeout))
    };
    let mut process = Process::begin(start.jobs, Box::new(open), channel, listener)?;
    process.set_tcp(tcp);
    process.serve()?;
    Ok(())
}

/// A unique name: it shows later processes whether this one still lives.
fn own_name() -> String {
    let pid = std::process::id();
    let since = i32::try_from(pid).ok().and_then(process::start_time).unwrap_or(0);
    format!("{pid}-{since}-{}", boot())
}

/// The daemon's name among users of a store, without blanks. It differs between daemons of a machine, between
/// containers, and after a reboot.
pub fn node(listen: &Path) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let name = format!(
        "{}:{}:{}:{}",
        host.trim(),
        listen.display(),
        space.display(),
        boot()
    );
    name.replace(char::is_whitespace, "_")
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

pub(crate) fn is_there(owner: &str) -> bool {
    // With several machines, the daemon's name comes first.
    let own = owner.rsplit(' ').next().unwrap_or_default();
    let mut parts = own.splitn(3, '-');
    let pid = parts.next().and_then(|pid| pid.parse::<i32>().ok());
    let since = parts.next().and_then(|since| since.parse::<u64>().ok());
    let is_this_boot = parts.next() == Some(boot().as_str());
    is_this_boot && pid.is_some_and(|pid| since.is_some() && process::start_time(pid) == since)
}

fn remedied(jobs: &Jobs, user: Option<&str>, error: StoreError) -> StoreError {
    let JobsStore::File(store) = &jobs.store else {
        return error;
    };
    let text = error.to_string();
    // SQLite's messages about a file that it can't create or write.
    if !["unable to open", "readonly", "ermission"]
        .iter()
        .any(|word| text.contains(word))
    {
        return error;
    }
    let directory = store.parent().unwrap_or(store).display();
    let remedy = match user {
        Some(user) => {
            format!("the directory has to be this process' own: install -d -o {user} -m 700 {directory}")
        }
        None => format!("this process has to be able to write in {directory}"),
    };
    StoreError::Remedied(Box::new(error), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_name_and_another_is_not() {
        let own = own_name();
        assert!(is_there(&own));
        let (pid, rest) = own.split_once('-').expect("parts");
        assert!(!is_there(&format!("{pid}-1{rest}")));
        assert!(!is_there(&own.replace(&boot(), "another")));
        assert!(!is_there("") && !is_there("x-y-z"));
    }
}
