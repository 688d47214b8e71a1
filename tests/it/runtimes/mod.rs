//! Every runtime, with applications that were written without forkyard in mind.

mod cgi;
mod equal;
mod fastcgi;
mod fastcgi_faults;
mod fastcgi_programs;
mod git;
mod http;
mod programs;
mod programs_faults;
mod python;
mod python_applications;
mod rack;
mod rack_faults;
mod rack_forks;
mod rack_sites;
mod refork;
mod slow;
mod wsgi;
