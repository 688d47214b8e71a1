//! The stages of a worker.

/// Where a worker is with its current request. The numbers are php-fpm's, with ACCEPTED put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum RequestStage {
    /// The slot was given to a worker that has not yet come to its first accept.
    Creating = 0,
    /// About to call accept, or waiting for work: the worker is idle.
    Accepting = 1,
    /// Has work. Entered before the accept-notify byte is written, so that the master never takes the worker for idle
    /// after it was told that the worker had accepted.
    Accepted = 2,
    /// Reading the request's parameters.
    ReadingHeaders = 3,
    /// The request is known: method, URI, script.
    Info = 4,
    /// The application runs.
    Executing = 5,
    /// The application has answered; the rest of the answer is being written.
    End = 6,
    /// The request is over and accounted for.
    Finished = 7,
    /// No request: the application does its out-of-band work. php-fpm has no such stage.
    Working = 8,
    /// Nothing but WebSockets: connections that last for as long as both ends want. php-fpm has no such stage.
    Open = 9,
}

impl RequestStage {
    /// The stage with this number, if there is one: the number may come from a hostile worker.
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

    /// The name that php-fpm's status page shows.
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
