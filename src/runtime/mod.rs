//! How a request is answered.

pub mod cgi;
pub mod http;
pub mod php;

use crate::config::Application;
use crate::worker::Runtime;

/// The runtime of an application that needs nothing but a worker of the master's own; `None`: it is made elsewhere.
pub fn within_worker(application: &Application) -> Option<Box<dyn Runtime>> {
    match application {
        Application::Cgi(cgi) => Some(Box::new(cgi::Cgi::new(cgi.clone()))),
        Application::Http(http) => Some(Box::new(http::Http::new(http.clone()))),
        Application::Php(_) | Application::Rust => None,
    }
}
