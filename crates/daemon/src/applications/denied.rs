//! Why an instance is not started, and who may read the reason.

use forkyard_router::inspector::protocol::Refusal;
use forkyard_spawn::report::ErrorId;

#[derive(Debug)]
pub(super) struct Denied {
    pub(super) why: String,
    pub(super) report: Option<Matter>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Matter {
    /// Its number; `None`: none yet.
    pub(super) id: Option<ErrorId>,
    /// The user and group who may read it; `None`: root only.
    pub(super) owner: Option<(u32, u32)>,
}

impl Denied {
    pub(super) fn for_now(why: &str) -> Denied {
        Denied {
            why: why.to_owned(),
            report: None,
        }
    }

    pub(super) fn for_root(why: String) -> Denied {
        Denied {
            why,
            report: Some(Matter::default()),
        }
    }

    pub(super) fn by_inspector(why: String, refusal: Option<Refusal>) -> Denied {
        let known = refusal.map(|refusal| Matter {
            id: Some(ErrorId(refusal.id)),
            owner: refusal.owner,
        });
        Denied {
            why,
            report: Some(known.unwrap_or_default()),
        }
    }
}
