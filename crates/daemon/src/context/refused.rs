//! Why a request on the control socket is refused.

use forkyard_protocol::control::Answer;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("there is no pool {0}, and no pool has its application there")]
    NoPool(String),
    #[error("pools {one} and {other} have {path}; name one of them")]
    TwoPools {
        path: String,
        one: String,
        other: String,
    },
    #[error("pool {0} has many applications; name one by its root")]
    ManyApplications(String),
    #[error("pool {0} does not run, or not with PHP")]
    NoPhp(String),
    #[error("pool {0} does not run")]
    PoolDoesNotRun(String),
    #[error("permission denied: it is no {0} of yours")]
    NotYours(&'static str),
    #[error("permission denied: it is no application of yours that runs")]
    NotYourApplication,
    #[error("process {0} is no worker; forkyard status POOL shows a pool's workers")]
    NoWorker(i32),
    #[error("process {0} is no {1} any more")]
    Gone(i32, &'static str),
    #[error("worker {0} has no request")]
    NoRequest(i32),
    #[error("worker {0} is already finishing; kill -TERM ends it now")]
    Finishing(i32),
    #[error("worker {0} does not listen; kill -TERM ends it with all of its requests")]
    Deaf(i32),
    #[error("there is no lease {0}")]
    NoLease(u64),
    #[error("there is a group {group} in pool {one} and in pool {other}; rename one")]
    TwoGroups {
        group: String,
        one: String,
        other: String,
    },
    #[error("{} is below no directory of an application pool; name an application by its root", .0.display())]
    NoDirectory(PathBuf),
    #[error("there has to be at least 1 instance")]
    NoInstance,
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Answer {
        Answer::refusal(refused.to_string())
    }
}
