//! The commands that show what keeps workers busy, and how many there should be.

use super::table::{ALL, ASKED};
use super::{Entry, Group};

pub(super) const COMMANDS: &[Entry] = &[
    Entry {
        name: "routes",
        group: Group::See,
        examples: &[
            (
                "forkyard routes www",
                "Shows which paths of a pool keep its workers busy.",
            ),
            ("forkyard routes www --json", "Prints them for a program."),
        ],
        codes: ASKED,
        files: ALL,
    },
    Entry {
        name: "advise",
        group: Group::See,
        examples: &[
            (
                "forkyard advise",
                "Shows how many workers each pool may have, how many the autopilot would choose, and why.",
            ),
            (
                "forkyard advise www --json",
                "Prints that of one pool for a program.",
            ),
        ],
        codes: ASKED,
        files: ALL,
    },
];
