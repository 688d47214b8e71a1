//! Resolves the job store and the TCP address.

use std::net::SocketAddr;

use super::{absolute_file, addresses, path};
use crate::draft::{JobsDraft, PoolText};
use crate::error::Location;
use crate::flat_keys::Field;
use crate::jobs::{JobsStore, JobsTcp};
use crate::model::{Address, Pool};
use crate::postgresql::{PostgresqlServer, SCHEMES, UrlMistake};
use crate::report::WorldReport;
use crate::units::Text;
use crate::value::quoted;

const DEFAULT_STORE: &str = "/var/lib/forkyard/jobs.db";

/// The TCP address, which other machines must not reach, because the protocol is unencrypted.
pub(super) fn tcp(
    draft: &JobsDraft,
    location: &Location,
    pools: &[(&PoolText, Pool)],
    report: &mut WorldReport<'_>,
) -> Option<JobsTcp> {
    let Some(written) = draft.listen_tcp.written() else {
        if let Some(secret) = draft.secret_file.written() {
            let problem = "it has no effect without listen_tcp";
            report.rule(
                secret,
                problem,
                "remove it, or write listen_tcp = \"127.0.0.1:PORT\"",
            );
        }
        return None;
    };
    let write = "secret_file = followed by the path of a file with the secret of listen_tcp";
    let secret_file = report.require(&draft.secret_file, location, "secret_file", write);
    let secret_file = secret_file.and_then(|written| absolute_file(written, report));
    let address = written.value.0.parse::<SocketAddr>().ok();
    let Some(address) = address.filter(|address| address.ip().is_loopback() && address.port() != 0) else {
        let problem = format!(
            "{} is no address of this machine alone with a port",
            quoted(&written.value.0)
        );
        let remedy = "write \"127.0.0.1:PORT\" or \"[::1]:PORT\"; others reach it through ssh, or by a web application that pushes";
        report.rule(written, problem, remedy);
        return None;
    };
    if let Some(pool) = addresses::user_of(pools, &Address::Tcp(address), report.world) {
        let problem = format!("pool {} listens on it", pool.name);
        report.rule(written, problem, "give the jobs their own port");
    }
    Some(JobsTcp {
        address,
        secret_file: secret_file?,
    })
}

pub(super) fn store(field: &Field<Text>, report: &mut WorldReport<'_>) -> Option<JobsStore> {
    let is_url = |text: &str| SCHEMES.iter().any(|scheme| text.starts_with(scheme));
    match field.written().filter(|written| is_url(&written.value.0)) {
        Some(url) => match PostgresqlServer::parse(&url.value.0) {
            Ok(server) => Some(JobsStore::Postgresql(server)),
            Err(UrlMistake { problem, remedy }) => {
                report.rule(url, problem, remedy);
                None
            }
        },
        None => path(field, DEFAULT_STORE, report).map(JobsStore::File),
    }
}
