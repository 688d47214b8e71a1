//! Machines with many pools: what each costs, how they come and go, and what each has of the machine.

mod descriptors;
mod handover;
mod memory;
mod shares;
mod watched;

use crate::support::prelude::*;

const FIRST_USER: usize = 70_101;

fn member(dir: &Path, number: usize, more: &str) -> String {
    let user = match is_root() {
        true => format!("user = \"{0}\"\ngroup = \"{0}\"\n", FIRST_USER + number),
        false => String::new(),
    };
    let settings =
        format!("{user}pm = \"ondemand\"\nmax_children = 2\nprocess_idle_timeout = \"1s\"\n{more}");
    let application = format!("{PHP}preloader = \"zygote\"\n");
    pool(dir, &format!("p{number}"), &settings, &application)
}
