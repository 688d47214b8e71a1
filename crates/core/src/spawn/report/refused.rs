//! The report of an application that was refused before it ran.

use super::{ErrorId, Report};
use crate::spawn::error::{Category, Failure};
use crate::spawn::journey::Journey;
use crate::spawn::plan::{Account, Plan};
use crate::spawn::step::{Route, Step};
use forkyard_base::tick::Tick;
use std::path::Path;
use std::sync::Arc;

impl Report {
    /// Returns the report of a refused application. `owner`: its user and group; `None`: root. `why`: the headline,
    /// path and remedy.
    pub fn refused(
        id: ErrorId,
        pool: &str,
        root: &Path,
        owner: Option<(u32, u32)>,
        why: &str,
        now: Tick,
    ) -> Report {
        let (uid, gid) = owner.unwrap_or_default();
        let account = Account {
            user: uid.to_string(),
            group: gid.to_string(),
            uid,
            gid,
            groups: Vec::new(),
            home: None,
            shell: None,
        };
        let step = Step::KitPreparation;
        let mut journey = Journey::new(Route::SpawnDirectly, false);
        journey.blame(step, now);
        let (headline, details) = why.split_once('\n').unwrap_or((why, ""));
        let plan = Plan::new(pool, root.to_owned(), "", account);
        let mut failure = Failure::new(
            Category::FileSystem,
            step,
            headline.to_owned(),
            format!(
                "The application in {} was refused before anything of it ran.",
                root.display()
            ),
            "The error names the correction. The next request tries again; no reload is needed.",
        );
        failure.details = (!details.is_empty()).then(|| details.to_owned());
        Report::before_start(id, Arc::new(plan), journey, failure, now)
    }
}
