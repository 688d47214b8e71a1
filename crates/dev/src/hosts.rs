//! Restricts the names that this site answers to. Otherwise another site could point its name at this machine (DNS
//! rebinding) and read answers in the browser.

use crate::page::page;
use crate::reply::Reply;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, StatusCode, Uri, header};
use std::net::IpAddr;

/// Names in lower case. A leading dot includes all subdomains.
#[derive(Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(more: &[String]) -> Hosts {
        let named = more.iter().map(|name| name.trim_end_matches('.').to_lowercase());
        Hosts(std::iter::once(".localhost".to_owned()).chain(named).collect())
    }

    pub(crate) fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<Reply> {
        let mut named = headers.get_all(header::HOST).iter();
        let host = named.next().map(|host| String::from_utf8_lossy(host.as_bytes()));
        let names = [uri.authority().map(Authority::as_str), host.as_deref()];
        if let Some(name) = names.into_iter().flatten().find(|name| !self.has(name)) {
            let remedy = "A web page could have led another name to this machine. If the name is yours, start \
                          `forkyard dev` with `--allowed-host` and the name, or with `--allowed-host .` and a domain.";
            return Some(page(
                StatusCode::FORBIDDEN,
                "This site is not served by this name",
                remedy,
                name,
            ));
        }
        named.next().is_some().then(|| {
            let title = "The request has two Host headers";
            page(StatusCode::BAD_REQUEST, title, "", "")
        })
    }

    fn has(&self, authority: &str) -> bool {
        let Ok(authority) = authority.parse::<Authority>() else {
            return false;
        };
        let host = authority.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        if address.parse::<IpAddr>().is_ok() {
            return true;
        }
        let host = host.trim_end_matches('.').to_lowercase();
        self.0.iter().any(|name| match name.strip_prefix('.') {
            Some(domain) => host == domain || host.ends_with(name.as_str()),
            None => host == *name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_the_names_of_this_machine_and_those_that_were_given() {
        let hosts = Hosts::new(&["Shop.test".to_owned(), ".example.test".to_owned()]);
        for name in [
            "localhost",
            "LOCALHOST:8000",
            "localhost.",
            "shop.localhost:8000",
            "127.0.0.1:8000",
            "192.168.1.7",
            "[::1]:8000",
            "shop.test",
            "example.test",
            "a.example.test:80",
        ] {
            assert!(hosts.has(name), "{name}");
        }
        for name in [
            "evil.test",
            "localhost.evil.test",
            "notlocalhost",
            "a.shop.test",
            "evilexample.test",
            "127.0.0.1.evil.test",
            "",
            "a b",
        ] {
            assert!(!hosts.has(name), "{name}");
        }
    }
}
