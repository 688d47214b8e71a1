//! Pools at rest: a generation without processes needs no pipes, and its pool no queue.

/// A generation's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    pub workers: usize,
    pub preloader: Holder,
    /// A worker that is becoming its next preloader.
    pub has_next_mold: bool,
    /// It serves applications of an application pool, or has a program.
    pub has_applications: bool,
    /// Its pool is in the configuration.
    pub is_configured: bool,
    /// A reporter or a 503 responder answers for its pool.
    pub has_responder: bool,
}

/// The process that forks a generation's workers now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Nobody,
    /// It gets the descriptors with each command and keeps none.
    Zygote,
    OwnPreloader,
}

impl Holdings {
    /// Whether the generation can release its pipes until it needs a process.
    pub fn rests(self) -> bool {
        self.workers == 0
            && self.preloader != Holder::OwnPreloader
            && !self.has_next_mold
            && !self.has_applications
            && self.is_configured
            && !self.has_responder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_rests_without_anything_that_uses_its_pipes() {
        let idle = Holdings {
            workers: 0,
            preloader: Holder::Nobody,
            has_next_mold: false,
            has_applications: false,
            is_configured: true,
            has_responder: false,
        };
        let preloader = Holder::Zygote;
        assert!(idle.rests() && Holdings { preloader, ..idle }.rests());
        let busy: [fn(&mut Holdings); 6] = [
            |it| it.workers = 1,
            |it| it.preloader = Holder::OwnPreloader,
            |it| it.has_next_mold = true,
            |it| it.has_applications = true,
            |it| it.is_configured = false,
            |it| it.has_responder = true,
        ];
        for change in busy {
            let mut holdings = idle;
            change(&mut holdings);
            assert!(!holdings.rests(), "{holdings:?}");
        }
    }
}
