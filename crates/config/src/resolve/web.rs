//! Resolves the address of the numbers over HTTP.

use super::{addresses, listen};
use crate::draft::{GlobalDraft, PoolText};
use crate::model::{Pool, Web};
use crate::report::WorldReport;
use crate::value::quoted;

pub(super) fn resolve(
    draft: &GlobalDraft,
    pools: &[(&PoolText, Pool)],
    report: &mut WorldReport<'_>,
) -> Option<Web> {
    let Some(written) = draft.web.written() else {
        if let Some(hosts) = draft.web_hosts.written().filter(|_| draft.web.is_absent()) {
            let problem = "it has no effect without web";
            report.warn(hosts, problem, "remove it, or write web = \"127.0.0.1:9180\"");
        }
        return None;
    };
    let address = listen::address(written, report)?;
    if let Some(pool) = addresses::user_of(pools, &address, report.world) {
        let problem = format!("pool {} listens on it", pool.name);
        report.rule(written, problem, "give the numbers their own address");
        return None;
    }
    let hosts = draft.web_hosts.written();
    if let Some(wrong) = hosts.and_then(|hosts| hosts.value.0.iter().find(|name| !is_name(name))) {
        let problem = format!("{} is not the name of a host", quoted(wrong));
        report.rule(
            hosts?,
            problem,
            "write names without port, such as [\"numbers.example.org\"]",
        );
    }
    let hosts = hosts.into_iter().flat_map(|hosts| &hosts.value.0);
    Some(Web {
        address,
        hosts: hosts.map(|name| name.to_ascii_lowercase()).collect(),
    })
}

/// Whether the text can be a name in a Host header, without port.
fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= 253 && text.bytes().all(is_letter)
}
