//! The scout of an application pool: looks at applications' directories for the router and the master.
//!
//! Directories belong to sites, and a look at one may take for ever (a network file system) or meet something that was put
//! there to be read. So neither the master, which must not block or trust, nor the router, which has no rights there, looks
//! itself: a process of its own does, that can read (`CAP_DAC_READ_SEARCH`, if the daemon runs as root) and nothing else.
//! It answers over a socket of type `SOCK_SEQPACKET`, one for the router and one for the master; JSON, one value a message.

pub mod look;
