//! Load of a worker that serves several requests concurrently.

/// A concurrent worker's load. Other workers publish only their stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Unanswered requests.
    pub in_flight: u32,
    /// Requests whose answers have begun and are idle, so that they don't count against the limit. Less than 2^30.
    pub quiet: u32,
    /// Accepts another request at once: below its limit, with a responsive event loop.
    pub has_room: bool,
    /// The worker is concurrent.
    pub is_told: bool,
}

const HAS_ROOM: u64 = 1 << 32;
const IS_TOLD: u64 = 1 << 33;
const QUIET: u32 = 34;
const MOST_QUIET: u32 = (1 << 30) - 1;

impl Load {
    pub(super) fn to_word(self) -> u64 {
        let bit = |is: bool, bit: u64| if is { bit } else { 0 };
        let quiet = u64::from(self.quiet.min(MOST_QUIET)) << QUIET;
        u64::from(self.in_flight) | bit(self.has_room, HAS_ROOM) | bit(self.is_told, IS_TOLD) | quiet
    }

    pub(super) fn from_word(word: u64) -> Load {
        Load {
            in_flight: word as u32,
            quiet: (word >> QUIET) as u32,
            has_room: word & HAS_ROOM != 0,
            is_told: word & IS_TOLD != 0,
        }
    }

    /// Whether to leave a new connection to a sibling that has room and less load, by an eighth or at least one
    /// request. Workers with equal load don't wait for each other.
    pub fn yields_to(self, siblings: impl IntoIterator<Item = Load>) -> bool {
        let enough = self.in_flight - self.in_flight / 8;
        let is_better = |other: Load| other.has_room && other.in_flight < enough;
        siblings.into_iter().any(is_better)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(in_flight: u32, has_room: bool) -> Load {
        Load {
            in_flight,
            quiet: in_flight / 2,
            has_room,
            is_told: true,
        }
    }

    #[test]
    fn a_word_is_read_as_it_was_written() {
        for load in [
            load(0, true),
            load(7, false),
            Load {
                quiet: MOST_QUIET,
                ..load(u32::MAX, true)
            },
            Load::default(),
        ] {
            assert_eq!(Load::from_word(load.to_word()), load);
        }
        assert_eq!(Load::from_word(0), Load::default());
    }

    #[test]
    fn a_connection_is_left_to_a_sibling_that_has_less_to_do_and_can_take_it() {
        let own = load(3, true);
        assert!(!own.yields_to([]));
        assert!(!own.yields_to([load(3, true), load(4, true)]));
        assert!(!own.yields_to([load(0, false)]), "its loop is held up");
        assert!(own.yields_to([load(9, true), load(2, true)]));
        assert!(!load(16, true).yields_to([load(14, true)]) && load(16, true).yields_to([load(13, true)]));
        assert!(
            !load(0, true).yields_to([load(0, true)]),
            "a worker leaves nothing to one that has as little to do"
        );
    }
}
