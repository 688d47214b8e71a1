//! The commands for releases.

use super::table::ALL;
use super::{Code, Entry, Group};

const DEPLOYED: &[Code] = &[
    (0, "The release is in service, and the link names it."),
    (2, "The command line is wrong."),
    (69, "No daemon answers at the control socket."),
    (
        70,
        "The release did not start or was taken back, and the one before goes on.",
    ),
    (
        73,
        "The release is in service, but its link could not be moved; standard error has the reason.",
    ),
    (75, "A newer deployment took its place."),
    (
        78,
        "The release can't be used, or the pool has no release; nothing was changed.",
    ),
];

const SHOWN: &[Code] = &[
    (0, "It is done."),
    (2, "The command line is wrong."),
    (69, "No daemon answers at the control socket."),
    (70, "It failed; standard error has the reason."),
    (
        78,
        "There is no such pool, the pool has no release, or no control socket is named.",
    ),
];

pub(super) const COMMANDS: &[Entry] = &[
    Entry {
        name: "deploy",
        group: Group::Change,
        examples: &[
            (
                "forkyard deploy shop releases/42",
                "Gives the pool a release, step by step, and moves its link at the end.",
            ),
            (
                "forkyard deploy /srv/shop/current /srv/shop/releases/42 --at-once --wait",
                "Gives it all requests at once, and waits until the last old worker has gone.",
            ),
        ],
        codes: DEPLOYED,
        files: ALL,
    },
    Entry {
        name: "rollback",
        group: Group::Change,
        examples: &[(
            "forkyard rollback shop",
            "Ends the deployment that is under way, or deploys the release before.",
        )],
        codes: DEPLOYED,
        files: ALL,
    },
    Entry {
        name: "releases",
        group: Group::See,
        examples: &[
            (
                "forkyard releases",
                "Shows the releases of all pools, and the last deployment of each.",
            ),
            (
                "forkyard releases shop --json",
                "Shows the releases of one pool, for a program.",
            ),
        ],
        codes: SHOWN,
        files: ALL,
    },
];
