//! Values that the tests of the crate start from.

use super::protocol::{FoundApplication, InspectReply, Kind};
use forkyard_config::Applications;
use forkyard_core::applications::Options;
use forkyard_protocol::reason::Reason;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

pub(crate) fn applications(directory: &Path) -> Applications {
    Applications {
        directories: vec![directory.to_owned()],
        root_parameter: String::new(),
        max: NonZeroU32::MIN,
        max_spawning: NonZeroU32::MIN,
        reserve: 0,
        concurrency: None,
        options: Options::default(),
        restart_dir: None,
        groups: BTreeMap::new(),
        stat_throttle_rate: Duration::ZERO,
        max_request_queue_time: None,
        forget_after: Duration::from_secs(60),
        min_uid: 0,
        user_switching: true,
        user_mounts: false,
        default_user: None,
        router_user: None,
        releases: None,
    }
}

pub(crate) fn found(root: &str, user: u32) -> FoundApplication {
    FoundApplication {
        root: root.into(),
        kind: Kind::Php,
        startup_file: None,
        owner: (user, user),
        settings: None,
        python: None,
        restart: None,
        always_restart: false,
        revision: None,
        link: None,
        origin: None,
    }
}

pub(crate) fn reply(number: u64, found: Result<FoundApplication, Reason>) -> InspectReply {
    InspectReply {
        number,
        found,
        is_unknown: false,
        refusal: None,
    }
}
