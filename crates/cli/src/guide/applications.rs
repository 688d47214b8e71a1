//! The commands about instances of application pools.

use super::table::{ALL, ASKED, ROOTS};
use super::{Entry, Group};

pub(super) const COMMANDS: &[Entry] = &[
    Entry {
        name: "detach",
        group: Group::Applications,
        examples: &[(
            "forkyard detach 4711",
            "Lets process 4711 end after its requests.",
        )],
        codes: ASKED,
        files: ALL,
    },
    Entry {
        name: "disable",
        group: Group::Applications,
        examples: &[(
            "forkyard disable 4711",
            "Gives process 4711 no more requests, to look at it.",
        )],
        codes: ASKED,
        files: ROOTS,
    },
    Entry {
        name: "enable",
        group: Group::Applications,
        examples: &[("forkyard enable 4711", "Gives process 4711 requests again.")],
        codes: ASKED,
        files: ROOTS,
    },
    Entry {
        name: "resize",
        group: Group::Applications,
        examples: &[(
            "forkyard resize sites 40",
            "Lets the pool have 40 instances until the next reload.",
        )],
        codes: ASKED,
        files: ROOTS,
    },
    Entry {
        name: "take",
        group: Group::Applications,
        examples: &[(
            "forkyard take /srv/shop --wait 10s",
            "Has an instance until standard input ends.",
        )],
        codes: ASKED,
        files: ROOTS,
    },
    Entry {
        name: "return",
        group: Group::Applications,
        examples: &[(
            "forkyard return 7 --fail",
            "Gives back the instance of lease 7, and has it replaced.",
        )],
        codes: ASKED,
        files: ROOTS,
    },
];
