//! How a program's processes start, and their addresses.

use crate::workers::start_report::account;
use forkyard_config::{Address, Listens};
use forkyard_spawn::NODE_SCRIPT;
use forkyard_spawn::handshake::properties::{self, Socket};
use forkyard_spawn::plan::{Kind, Limit, OwnSocket, Plan};
use forkyard_sys::identity;
use forkyard_worker::Settings;

pub(super) fn address_of(sockets: &[Socket]) -> Option<Address> {
    let fit = |socket: &&Socket| socket.accept_http_requests && socket.protocol == "http";
    match &sockets.iter().find(fit)?.address {
        properties::Address::Unix(path) => Some(Address::Unix(path.clone())),
        properties::Address::Tcp(host, port) => {
            let host = if host == "localhost" { "127.0.0.1" } else { host };
            let ip = host.trim_matches(['[', ']']).parse().ok()?;
            Some(Address::Tcp(std::net::SocketAddr::new(ip, *port)))
        }
    }
}

/// The kit's plan; `None`: the pool has no program.
pub(super) fn plan(settings: &Settings) -> Option<Plan> {
    let pool = &settings.pool;
    let program = pool.application.program()?;
    let mut account = account(settings.identity.clone());
    if program.load_shell_envvars {
        account.shell = identity::shell_and_group(account.uid, account.gid).0;
    }
    let mut plan = Plan::new(&pool.name, program.root.clone(), &program.start_command, account);
    match program.listens {
        Listens::Port => {}
        Listens::Handshake => (plan.kind, plan.app_type) = (Kind::Native, "http".to_owned()),
        Listens::Socket => plan.own_socket = Some(OwnSocket::Told),
        Listens::Node => plan.own_socket = Some(OwnSocket::Preloaded(NODE_SCRIPT)),
    }
    plan.switch_user = settings.identity.is_some() && identity::is_root();
    plan.inherited = Some(forkyard_worker::environment(
        settings,
        std::env::vars_os().collect(),
    ));
    // Set after the switch to the application's user.
    let environment = &pool.environment;
    let variables = environment.env.iter().chain(&environment.own_env);
    plan.environment = variables.cloned().collect();
    plan.app_env.clone_from(&program.app_env);
    plan.load_shell_envvars = program.load_shell_envvars;
    plan.limits = limits(settings);
    plan.umask = program.umask;
    plan.no_new_privileges = pool.setup.no_new_privs;
    plan.origin.clone_from(&pool.setup.origin);
    plan.start_timeout = program.start_timeout;
    plan.dies_with_parent = true;
    Some(plan)
}

fn limits(settings: &Settings) -> Vec<Limit> {
    use forkyard_config::CoreLimit;
    let pool = &settings.pool;
    let Some(program) = pool.application.program() else {
        return Vec::new();
    };
    let own = program.rlimits.iter().map(|limit| Limit {
        name: limit.name.clone(),
        soft: limit.soft,
        hard: limit.hard,
    });
    let mut limits: Vec<Limit> = own.collect();
    let mut add = |name: &str, value: Option<u64>| {
        if !limits.iter().any(|limit| limit.name == name) {
            let (name, soft, hard) = (name.to_owned(), value, value);
            limits.push(Limit { name, soft, hard });
        }
    };
    if pool.setup.rlimit_files.is_some() {
        add("nofile", pool.setup.rlimit_files);
    }
    match pool.setup.rlimit_core {
        Some(CoreLimit::Bytes(bytes)) => add("core", Some(bytes)),
        Some(CoreLimit::Unlimited) => add("core", None),
        None => {}
    }
    limits
}
