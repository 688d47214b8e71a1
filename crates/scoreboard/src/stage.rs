/// A worker's stage. The numbers are php-fpm's, plus ACCEPTED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum RequestStage {
    /// Starting, before the first accept.
    Creating = 0,
    /// Idle: in accept(2) or waiting for work.
    Accepting = 1,
    /// Has work. Set before the worker notifies the master, so that the master never counts it as idle afterwards.
    Accepted = 2,
    /// Reading the parameters.
    ReadingHeaders = 3,
    /// The request is known.
    Info = 4,
    /// The application is running.
    Executing = 5,
    /// Writing the rest of the answer.
    End = 6,
    /// The request is complete and counted.
    Finished = 7,
    /// Out-of-band work; not in php-fpm.
    Working = 8,
    /// Only WebSocket connections; not in php-fpm.
    Open = 9,
}

impl RequestStage {
    /// Returns the stage with this number, which a hostile worker may have written.
    pub const fn from_number(number: u32) -> Option<RequestStage> {
        Some(match number {
            0 => RequestStage::Creating,
            1 => RequestStage::Accepting,
            2 => RequestStage::Accepted,
            3 => RequestStage::ReadingHeaders,
            4 => RequestStage::Info,
            5 => RequestStage::Executing,
            6 => RequestStage::End,
            7 => RequestStage::Finished,
            8 => RequestStage::Working,
            9 => RequestStage::Open,
            _ => return None,
        })
    }

    /// Name on php-fpm's status page.
    pub const fn name(self) -> &'static str {
        match self {
            RequestStage::Creating => "Creating",
            RequestStage::Accepting => "Idle",
            RequestStage::Accepted | RequestStage::ReadingHeaders => "Reading headers",
            RequestStage::Info => "Getting request information",
            RequestStage::Executing => "Running",
            RequestStage::End => "Ending",
            RequestStage::Finished => "Finishing",
            RequestStage::Working => "Working",
            RequestStage::Open => "Open WebSocket",
        }
    }
}
