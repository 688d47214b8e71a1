//! The status of each instance, its version included.

use super::Sites;
use crate::support::prelude::*;

fn instances(sites: &Sites) -> Vec<Value> {
    let status = sites.status();
    let all = status["book"]["applications"][0]["instances"].as_array();
    all.cloned().unwrap_or_default()
}

fn versions(sites: &Sites) -> BTreeSet<String> {
    let versions = instances(sites).into_iter();
    versions
        .map(|one| one["version"].as_str().unwrap_or("none").to_owned())
        .collect()
}

#[test]
fn instances_are_shown_with_the_version_that_they_were_started_from() {
    let sites = Sites::start("max = 2\nmin_instances = 2");
    let root = sites.wsgi("app", 0, "'one'");
    fs::write(root.join("REVISION"), "v1\n").expect("write");
    assert_eq!(sites.body("/app/"), "one");
    wait_until("both instances", || instances(&sites).len() == 2);
    for one in instances(&sites) {
        assert_eq!(one["version"], "v1", "{one}");
        assert!(
            one["memory"].as_u64().is_some_and(|bytes| bytes > 1 << 20),
            "{one}"
        );
        assert!(one["cpu_ms"].is_u64(), "{one}");
        for key in ["pid", "sessions", "processed", "uptime", "last_used"] {
            assert!(one[key].is_number(), "{one}");
        }
    }
    let table = sites.table(&["sites"]);
    assert_eq!(table.matches(", version v1\n").count(), 2, "{table}");
    let metrics = sites.table(&["--metrics"]);
    let pid = instances(&sites)[0]["pid"].to_string();
    for family in [
        "info",
        "sessions",
        "processed_total",
        "uptime_seconds",
        "idle_seconds",
        "memory_bytes",
        "cpu_seconds_total",
    ] {
        let begins = format!(
            "forkyard_instance_{family}{{pool=\"sites\",application=\"{}\",pid=\"{pid}\"",
            root.display()
        );
        assert!(
            metrics.lines().any(|line| line.starts_with(&begins)),
            "{begins}\n{metrics}"
        );
    }
    fs::write(root.join("REVISION"), "v2\n").expect("write");
    let router = sites.companion("router");
    process::signal(router, Signal::SIGKILL);
    wait_until("another router", || sites.companion("router") != router);
    assert_eq!(sites.body("/app/"), "one");
    assert_eq!(versions(&sites), BTreeSet::from(["v1".to_owned()]));
    fs::write(root.join("tmp/restart.txt"), "").expect("touch");
    wait_until("the new version", || {
        sites.body("/app/");
        versions(&sites) == BTreeSet::from(["v2".to_owned()])
    });
}
