//! Every message between forkyard's processes, and the hand-over document between masters. Plain values without
//! descriptors or system calls.
//!
//! Between processes of the daemon:
//! * [`router`]: master and router. [`channel`]: router and worker. [`reason`]: why one process refused something.
//! * [`inspector`]: router or master, and directory inspector.
//! * [`preloader`]: master and preloader. [`stack`]: where workers keep their call stacks.
//! * [`accept_notify`], [`start_failure`]: from workers to the master. [`stop_pipe`]: from the master to a worker.
//! * [`keeper`]: master and keeper. [`web`]: master and web process.
//! * [`handover`]: old and new master.
//!
//! With clients of the daemon:
//! * [`control`]: daemon and its clients. [`address`], [`changes`], [`code_cache`], [`counters`], [`daemon_life`], [`dead_work`],
//!   [`history`], [`lanes`], [`last_reload`], [`last_upgrade`], [`logs`], [`numbers`], [`past_event`], [`program`], [`refusals`], [`release`], [`routes`]
//!   and [`skipped`] are parts of its answers, some of the hand-over document too.
//! * [`health`]: what a status means for probes.
//! * [`jobs`]: the jobs process, its clients and the master.
//! * [`upgrade`]: `forkyard dev` and workers, for WebSocket.
//!
//! [`startup`] lists the files that identify an application, [`runtimes`] what differs between the runtimes.
#![forbid(unsafe_code)]

pub mod accept_notify;
pub mod address;
pub mod changes;
pub mod channel;
pub mod code_cache;
pub mod control;
pub mod counters;
pub mod daemon_life;
pub mod dead_work;
pub mod handover;
pub mod health;
pub mod history;
pub mod inspector;
pub mod jobs;
pub mod keeper;
pub mod lanes;
pub mod last_reload;
pub mod last_upgrade;
pub mod logs;
pub mod numbers;
pub mod past_event;
pub mod preloader;
pub mod program;
pub mod reason;
pub mod refusals;
pub mod release;
pub mod router;
pub mod routes;
pub mod runtimes;
pub mod skipped;
pub mod stack;
pub mod start_failure;
pub mod startup;
pub mod stop_pipe;
pub mod upgrade;
pub mod web;
