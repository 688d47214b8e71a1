//! Explains why a spawn failed.

mod category;
mod end;
mod headline;
mod texts;
mod trouble;

pub use category::Category;
pub use end::{DOES_NOT_STAY, explain_end};
pub use forkyard_base::ended::Ended;
pub use forkyard_protocol::start_failure::Fault;
pub use headline::{headline, missing_variable};
pub use texts::{Failure, explain};
pub use trouble::Trouble;
