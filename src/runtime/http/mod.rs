//! A gateway to a program that speaks HTTP/1.1 (RFC 9112): FastCGI in front, a kept connection behind.
//!
//! `head` writes a request's head from its parameters, `answer` reads the answer's head and body, `run` connects them.

mod answer;
mod head;
mod run;

pub use run::Http;
