//! The crashes that a client may read.

use super::StatusSource;
use crate::context::rights::Rights;
use forkyard_core::master::crash::Crash;
use forkyard_protocol::control::Answer;

impl StatusSource<'_> {
    /// The crashes of a pool or of all, for root and the applications' users.
    pub(crate) fn crashes(&self, rights: Rights, pool: Option<&str>) -> Answer {
        let pools = &self.context.pools;
        let may_read = |crash: &&Crash| match rights {
            Rights::All => true,
            Rights::Own(uid) => crash.uid == uid,
        };
        // Instances of an application pool have its name before theirs.
        let is_its = |crash: &&Crash| {
            pool.is_none_or(|pool| {
                let rest = crash.pool.strip_prefix(pool);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
            })
        };
        let crashes = pools.errors.crashes().filter(may_read).filter(is_its);
        let crashes: Vec<_> = crashes.map(Crash::line).collect();
        match pool {
            Some(pool) if crashes.is_empty() && pools.by_id.of(&pool.to_owned()).next().is_none() => {
                Answer::refusal(format!("there is no pool {pool}"))
            }
            Some(_) | None => Answer::Crashes { crashes },
        }
    }
}
