//! What most end-to-end tests use.

pub use super::daemon::{
    Daemon, PHP, application_in, as_user, directory, folder, forkyard, make_folder, make_writable, php_pool,
    pool, said_by, told, with_control, with_signals,
};
pub use super::fcgi::{Answer, Client, Params, encoded};
pub use super::load::Load;
pub use super::nginx::{Nginx, curl, free_port, upload};
pub use super::strace::{self, Failing};
pub(crate) use super::tests;
pub use super::{
    PATIENCE, PHP_VERSION, StopAtEnd, assert_contains, assert_ends, assert_has, assert_lacks, assert_starts,
    assert_success, each, exited, is_root, make_fifo, parsed, pause, pause_for, process, read_file, text_of,
    until, wait_until, write_file, write_program,
};
pub(crate) use crate::skip::{needs_file, needs_root};
pub use fastcgi::Request;
pub use nix::sys::signal::{Signal, kill};
pub use nix::unistd::Pid;
pub use serde_json::{Value, json};
pub use std::collections::{BTreeMap, BTreeSet};
pub use std::fmt::Write as _;
pub use std::fs::{self, File, Permissions};
pub use std::io::{BufRead, BufReader, Read, Write};
pub use std::net::{TcpListener, TcpStream};
pub use std::os::fd::AsRawFd;
pub use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
pub use std::os::unix::net::{UnixListener, UnixStream};
pub use std::os::unix::process::CommandExt;
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, Output, Stdio};
pub use std::sync::atomic::{AtomicBool, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::time::{Duration, Instant, SystemTime};
pub use tempfile::TempDir;
