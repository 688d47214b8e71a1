//! Resolves the users of an application pool's router and inspector. A process of the same user could stop them for all
//! applications. If applications run as several users, router and inspector therefore need a user that nothing else
//! uses.

use crate::World;
use crate::applications::{Applications, FALLBACK_USER, OWN_USER};
use crate::draft::PoolText;
use crate::error::Kind;
use crate::flat_keys::{Field, Written};
use crate::model::Pool;
use crate::report::{Diagnostics, Report, WorldReport};
use crate::units::Text;
use crate::value::quoted;

const MAKE_IT: &str = "adduser --system --group --no-create-home forkyard";

/// Reports a missing user for the helpers, and other processes that run as that user.
pub(super) fn check(pools: &[(&PoolText, Pool)], world: &dyn World, diagnostics: &mut Diagnostics) {
    if !world.is_root() {
        return;
    }
    let own = world.user(OWN_USER).map(|ids| ids.uid);
    for (text, pool) in pools {
        let applications = pool.applications.as_ref();
        let default_user = &text.applications.default_user;
        let report = &mut Report::pool(diagnostics, &text.name).with(world);
        let is_own = |field: &Field<Text>| own.is_some() && uid(field, world) == own;
        let problem = "router and inspector of application pools run as this user; another process of this user could \
             stop them";
        if let Some(written) = text.draft.user.written().filter(|_| is_own(&text.draft.user)) {
            let remedy = match applications {
                Some(_) => "leave it out: they do without it",
                None => "name another user",
            };
            report.rule(written, problem, remedy);
        }
        if let Some(written) = default_user.written().filter(|_| is_own(default_user)) {
            report.rule(written, problem, "name another user");
        }
        if let Some(applications) = applications {
            check_pool(text, applications, own, report);
        }
    }
    let helped = pools.iter().filter_map(|(text, pool)| {
        let is_switching = pool.applications.as_ref()?.user_switching;
        let named = named(text).filter(|_| is_switching)?;
        Some((text.name.as_str(), world.uid(&named.value.0)?, named.key))
    });
    for (helped, user, key) in helped.collect::<Vec<_>>() {
        for (text, pool) in pools {
            let written = text.draft.user.written();
            let (Some(written), None) = (written, &pool.applications) else {
                continue;
            };
            if world.uid(&written.value.0) == Some(user) && Some(user) != own {
                let problem = format!(
                    "pool {} has it as {key}: the pool's router runs as this user, and a process of this pool \
                     could stop it",
                    quoted(helped)
                );
                let remedy = format!("name another user, or leave {key} out there");
                Report::pool(diagnostics, &text.name).rule(written, problem, remedy);
                diagnostics.concerns(helped);
            }
        }
    }
}

fn check_pool(text: &PoolText, applications: &Applications, own: Option<u32>, report: &mut WorldReport<'_>) {
    let named = named(text);
    if applications.user_switching && named.is_none() && own.is_none() {
        let problem = format!(
            "applications run as their owners, and there is no user {OWN_USER} for router and inspector"
        );
        let remedy = format!("make it: {MAKE_IT}; or name one that nothing else runs as");
        let kind = Kind::rule(problem, remedy);
        return report.error(&text.location, "applications.router_user", kind);
    }
    // With a single user for everything, that user must be configured explicitly.
    let is_said = named.is_some() && !applications.user_switching;
    let runs_as = match named {
        Some(named) => report.world.uid(&named.value.0),
        None => own.or_else(|| report.world.user(FALLBACK_USER).map(|ids| ids.uid)),
    };
    let default_user = &text.applications.default_user;
    let default = default_user
        .written()
        .filter(|_| uid(default_user, report.world) == runs_as);
    if let (Some(written), false, true) = (default, is_said, runs_as != own) {
        let problem =
            "router and inspector run as this user; an application of the same user could stop them";
        let remedy = format!("name another user, or make one for them: {MAKE_IT}");
        report.rule(written, problem, remedy);
    }
}

fn named(text: &PoolText) -> Option<&Written<Text>> {
    let router_user = text.applications.router_user.written();
    router_user.or_else(|| text.draft.user.written())
}

fn uid(field: &Field<Text>, world: &dyn World) -> Option<u32> {
    world.uid(&field.get()?)
}
