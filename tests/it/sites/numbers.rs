//! The numbers of every runtime, in a pool of one application and in an application pool.

use super::table::Table;
use crate::support::prelude::*;
use forkyard_protocol::numbers::PoolNumbers;
use forkyard_protocol::routes::RouteStatus;

fn pools(cell_status: &str) -> BTreeMap<String, PoolNumbers> {
    let status = parsed(cell_status);
    let pools = status["pools"].as_array().expect("pools");
    let of = |pool: &Value| {
        let numbers = serde_json::from_value(pool["numbers"].clone()).expect("numbers");
        (pool["name"].as_str().expect("a name").to_owned(), numbers)
    };
    pools.iter().map(of).collect()
}

const ASKED: u64 = 3;

#[test]
fn every_runtime_counts_in_every_kind_of_pool() {
    let table = Table::start_with("", "pm = \"static\"\nmax_children = 2\n", &[false]);
    let applications = std::cell::Cell::new(0);
    table.each(false, |cell| {
        for _ in 0..ASKED {
            assert!(cell.pid("") > 0, "{}", cell.name());
        }
        let name = cell.name();
        let pool = cell.pool.unwrap_or("sites").to_owned();
        if cell.pool.is_none() {
            applications.set(applications.get() + 1);
        }
        let wanted = if cell.pool.is_none() {
            ASKED * applications.get()
        } else {
            ASKED
        };
        let numbers = until(&format!("the numbers of {name}"), || {
            let numbers = pools(&cell.forkyard(&["status", "--json"]).1).remove(&pool)?;
            (numbers.requests.success >= wanted).then_some(numbers)
        });
        assert_eq!(numbers.requests.success, wanted, "{name}: {numbers:?}");
        assert_eq!(numbers.requests.counts().iter().sum::<u64>(), wanted, "{name}");
        assert_eq!(
            (numbers.run.count, numbers.wait.count),
            (wanted, wanted),
            "{name}"
        );
        assert!(
            numbers.busy_seconds > 0.0 && numbers.run.sum > 0.0,
            "{name}: {numbers:?}"
        );
        assert!(
            numbers.bytes_in > wanted * 100 && numbers.bytes_out > wanted * 20,
            "{name}: {numbers:?}"
        );
        assert_eq!((numbers.aborted, numbers.timed_out), (0, 0), "{name}");
        let root = cell.root().display().to_string();
        let has_root = cell.pool.is_some() && !["php", "cgi", "rust"].contains(&cell.row.name);
        let asked = if has_root { root } else { pool };
        let (code, text) = cell.forkyard(&["routes", "--json", &asked]);
        assert_eq!(code, Some(0), "{name}: {text}");
        let routes: Vec<RouteStatus> = serde_json::from_str(&text).expect("routes");
        let file = format!("/{}", cell.row.file);
        let route = routes.iter().find(|route| route.route.ends_with(&file));
        let route = route.unwrap_or_else(|| panic!("{name}: {routes:?}"));
        assert!(route.requests >= ASKED && route.errors == 0, "{name}: {route:?}");
        assert!(
            route.p50 > Some(0.0) && route.busy_seconds > 0.0,
            "{name}: {route:?}"
        );
    });
}
